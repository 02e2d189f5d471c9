//! Saving: paths → packs and trees in the store, and then the record that names them.
//!
//! | file | does |
//! |---|---|
//! | `scan.rs` | reads names and metadata |
//! | `snapshot.rs` | keeps both, and checks them again at the end |
//! | `contents.rs` | digests and holes of files |
//! | `plan.rs` | which packs of earlier images are reused, and what goes into new ones |
//!
//! The key leads to the image only after all of it is in the store. If a path changes meanwhile,
//! nothing is saved.
//!
//! Unaware of: remotes, what is printed.

mod contents;
mod plan;
mod scan;
mod snapshot;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use larder_model::{
    AccessTrace, BLOCK_BYTES, Blob, Digest, ImageKey, ImageRecord, Origin, PACK_BLOCKS_MAX, Pack, PackList, PieceList,
    SAVED_PATHS_MAX, SavedPath, is_saved_name,
};
use larder_store::{Lease, Store};

use self::plan::{EarlierPacks, Plan, Wanted};
use self::snapshot::{Opened, Snapshot};
use crate::compress::Packer;
use crate::image::check_tree;
use crate::tree::{HOLE, NodeKind, piece_length};
use crate::{Image, ImageError, Progress, Step, threads};

/// The most earlier images whose packs are reused. Further ones rarely have what these lack.
const BASES_MAX: usize = 4;
/// The most bytes of an access trace: five bytes for each of the 1 MiB packs of an image of 16 TiB.
const TRACE_BYTES_MAX: u64 = 128 << 20;

/// A request to save paths as an image.
pub struct Request<'a> {
    /// The key of the image.
    pub key: ImageKey,
    /// The paths, each with its name in the image.
    pub paths: &'a [(Vec<u8>, PathBuf)],
    /// The current time, in ms since 1970.
    pub now_ms: u64,
    /// Returns which of these blobs a remote has that the image will be uploaded to. Packs that are
    /// there can be reused even if they are not in the store.
    pub elsewhere: &'a dyn Fn(&[Blob]) -> Vec<bool>,
    /// Says what to do with set-user-id, set-group-id and capabilities.
    pub rights: Rights,
}

/// Says what to do with set-user-id, set-group-id and capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Save them. For local files, which have these rights on this machine already.
    Kept,
    /// Drop them. For archives, because a stranger may have set them.
    Dropped,
}

/// The result of saving.
pub struct Saved {
    /// The record, which is in the store now.
    pub record: ImageRecord,
    /// All packs.
    pub packs: Vec<Blob>,
    /// The compressed bytes of packs that did not exist before.
    pub new_bytes: u64,
    /// The compressed bytes of all packs.
    pub all_bytes: u64,
    /// Sockets, which were left out because they are useless without their process.
    pub left: Vec<PathBuf>,
    /// How many files and directories had attributes that were not kept.
    pub attributes_left: u64,
    /// How many files and directories had rights that were dropped.
    pub rights_dropped: u64,
    /// Keeps the image from being evicted.
    pub lease: Lease,
}

/// Saves paths as an image. Nothing is recorded under the key if it fails.
pub fn save(store: &Store, request: &Request<'_>, progress: &Progress) -> Result<Saved, ImageError> {
    if request.paths.len() > SAVED_PATHS_MAX {
        return Err(ImageError::TooLarge("64 paths"));
    }
    for (name, path) in request.paths {
        if !is_saved_name(name) {
            return Err(ImageError::Name(path.to_owned()));
        }
    }
    let (mut left, mut attributes_left, mut rights_dropped) = (Vec::new(), 0, 0);
    let mut snapshots = Vec::new();
    progress.begin(Step::Scan, 0);
    for (_, path) in request.paths {
        let scanned = scan::scan(path, progress)?;
        left.extend(scanned.left.iter().cloned());
        attributes_left += scanned.attributes_left;
        let mut snapshot = Snapshot::new(path, scanned)?;
        if request.rights == Rights::Dropped {
            rights_dropped += snapshot.tree.drop_rights();
        }
        snapshots.push(snapshot);
    }
    progress.begin(Step::Compare, snapshots.iter().flat_map(Snapshot::files).map(|(_, size, _)| size).sum());
    for snapshot in &mut snapshots {
        contents::read(store, snapshot, progress)?;
    }
    let Bases { known, touched, leases } = bases(store, request)?;
    let pieces = pieces(&snapshots);
    let plan = Plan::new(&pieces.iter().map(|piece| piece.1).collect::<Vec<_>>(), known);
    for (pack, _) in &plan.kept {
        store.freshen_blob(&pack.blob.digest);
    }
    let new = pack_new(store, &snapshots, &pieces, &plan, progress)?;
    progress.begin(Step::Stat, snapshots.iter().map(|snapshot| snapshot.tree.nodes.len() as u64).sum());
    snapshots.iter().try_for_each(|snapshot| snapshot.look_again(progress))?;
    let new_bytes = new.iter().map(|pack| pack.blob.size_bytes).sum();
    let record = keep(store, request, &mut snapshots, plan, new, &touched)?;
    let lease = store.lease_image(&record.image())?;
    let packs = store.packs_of(&record)?;
    let gone: Vec<Blob> = packs.iter().filter(|pack| !store.has_blob(pack)).copied().collect();
    let is_elsewhere = !gone.is_empty() && (request.elsewhere)(&gone).iter().all(|there| *there);
    store.keep_image(&record, Origin::Own, !is_elsewhere)?;
    // If this fails, an older image under the key will be accepted instead of refused.
    let _ = store.note_newest_image(&record.key, record.created_ms, record.created_ms);
    drop(leases);
    let all_bytes = packs.iter().map(|pack| pack.size_bytes).sum();
    Ok(Saved { record, packs, new_bytes, all_bytes, left, attributes_left, rights_dropped, lease })
}

/// Earlier images whose packs can be reused.
#[derive(Default)]
struct Bases {
    known: EarlierPacks,
    /// The packs that jobs read, in order: from the first of these images with an access trace.
    touched: Vec<Digest>,
    /// Keep these images from being evicted.
    leases: Vec<Lease>,
}

/// Returns the earlier images: that of the same key first, then those whose keys have the longest
/// common prefix with it.
fn bases(store: &Store, request: &Request<'_>) -> Result<Bases, ImageError> {
    let (key, mut images) = (&request.key, store.images()?);
    let common = |other: &ImageKey| key.text().bytes().zip(other.text().bytes()).take_while(|(a, b)| a == b).count();
    images.sort_by_key(|image| std::cmp::Reverse(common(&image.record.key)));
    let mut bases = Bases::default();
    for image in images.into_iter().take(BASES_MAX) {
        let lease = store.lease_image(&image.record.image())?;
        // A damaged image is ignored.
        let Ok((packs, pieces)) = Image::contents(store, &image.record) else { continue };
        if bases.touched.is_empty() {
            bases.touched = touched(store, &image.record, &packs);
        }
        let there = there(store, &packs.packs, request.elsewhere);
        let (packs, pieces): (Vec<Pack>, Vec<_>) = packs
            .packs
            .into_iter()
            .zip(pieces.packs)
            .zip(there)
            .filter(|(_, there)| *there)
            .map(|(both, _)| both)
            .unzip();
        bases.known.add(&packs, pieces);
        bases.leases.push(lease);
    }
    Ok(bases)
}

/// Returns the packs that jobs read of an image, in order; none if there is no readable access
/// trace.
fn touched(store: &Store, record: &ImageRecord, packs: &PackList) -> Vec<Digest> {
    let bytes = record.trace.and_then(|trace| store.blob_bytes(&trace, TRACE_BYTES_MAX).ok());
    let trace = bytes.and_then(|bytes| AccessTrace::decode(&bytes).ok()).unwrap_or_default();
    trace.packs.iter().filter_map(|&pack| Some(packs.packs.get(pack as usize)?.blob.digest)).collect()
}

/// Stores an access trace for a new image: those of the `touched` packs that it still has.
fn carried(store: &Store, touched: &[Digest], packs: &PackList) -> Result<Option<Blob>, ImageError> {
    let numbers: HashMap<Digest, u32> = packs.packs.iter().map(|pack| pack.blob.digest).zip(0..).collect();
    let still = touched.iter().filter_map(|digest| numbers.get(digest).copied());
    let trace = AccessTrace { is_carried: true, ..AccessTrace::default().and(still) };
    match trace.packs.is_empty() {
        true => Ok(None),
        false => Ok(Some(store.put_blob(&mut trace.encode().as_slice())?)),
    }
}

/// Returns which of these packs are in the store or elsewhere.
fn there(store: &Store, packs: &[Pack], elsewhere: &dyn Fn(&[Blob]) -> Vec<bool>) -> Vec<bool> {
    let mut there: Vec<bool> = packs.iter().map(|pack| store.has_blob(&pack.blob)).collect();
    let gone: Vec<usize> = (0..packs.len()).filter(|&at| !there[at]).collect();
    if !gone.is_empty() {
        let blobs: Vec<Blob> = gone.iter().map(|&at| packs[at].blob).collect();
        gone.iter().zip(elsewhere(&blobs)).for_each(|(&at, is_there)| there[at] = is_there);
    }
    there
}

/// A piece: its snapshot, its node, and its number in the file.
type PiecePosition = (usize, u32, u64);

/// Returns all pieces that are not holes, in the order of files.
fn pieces(snapshots: &[Snapshot]) -> Vec<(PiecePosition, Wanted)> {
    let mut all = Vec::new();
    for (at, snapshot) in snapshots.iter().enumerate() {
        for (node, size, pieces) in snapshot.files() {
            let NodeKind::File { extents, .. } = snapshot.tree.nodes[node as usize].kind else { continue };
            let written = &snapshot.tree.extents[extents.range()];
            for (number, piece) in (0..).zip(pieces.range()) {
                if contents::is_written(written, number) {
                    let length = piece_length(size, number);
                    let wanted = Wanted { number: all.len(), digest: snapshot.digests[piece], length };
                    all.push(((at, node, number), wanted));
                }
            }
        }
    }
    all
}

/// Reads and compresses what no reused pack has, and stores it.
fn pack_new(
    store: &Store,
    snapshots: &[Snapshot],
    pieces: &[(PiecePosition, Wanted)],
    plan: &Plan,
    progress: &Progress,
) -> Result<Vec<Pack>, ImageError> {
    let length = |pack: &Vec<Wanted>| pack.iter().map(|piece| piece.length).sum::<u64>();
    progress.begin(Step::Pack, plan.new.iter().map(length).sum());
    let made = Mutex::new(vec![None; plan.new.len()]);
    let begin = || (Packer::new(), Opened::default(), Vec::new(), Vec::new());
    threads::each(plan.new.len(), begin, |(packer, opened, raw, buffer), job| {
        raw.clear();
        for wanted in &plan.new[job] {
            let (at, node, number) = pieces[wanted.number].0;
            let snapshot = &snapshots[at];
            let file = opened.of(snapshot, node, larder_sys::Dir::open_file)?;
            let changed = || ImageError::Changed(snapshot.path(node));
            let size = snapshot.looks[node as usize].size_bytes;
            let bytes = contents::piece(&file, size, number, buffer).map_err(|_| changed())?;
            if Digest::of(bytes) != wanted.digest {
                return Err(changed());
            }
            raw.extend_from_slice(bytes);
            raw.resize(raw.len().next_multiple_of(BLOCK_BYTES as usize), 0);
        }
        let packer = match packer {
            Ok(packer) => packer,
            Err(error) => return Err(ImageError::Source(error.to_string())),
        };
        let blob = store.put_blob(&mut packer.pack(raw)?.as_slice())?;
        let pack = Pack { blob, blocks: (raw.len() as u64 / BLOCK_BYTES) as u32 };
        debug_assert!(u64::from(pack.blocks) <= PACK_BLOCKS_MAX);
        made.lock().unwrap_or_else(|poisoned| poisoned.into_inner())[job] = Some(pack);
        progress.add(length(&plan.new[job]));
        Ok(())
    })?;
    let made = made.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    Ok(made.into_iter().map(|pack| pack.expect("every job has made its pack")).collect())
}

/// Stores the trees and lists, and returns the record that names them.
fn keep(
    store: &Store,
    request: &Request<'_>,
    snapshots: &mut [Snapshot],
    plan: Plan,
    new: Vec<Pack>,
    touched: &[Digest],
) -> Result<ImageRecord, ImageError> {
    let new_pieces = plan.new.iter().map(|pack| {
        pack.iter().map(|piece| (piece.digest, piece.length.div_ceil(BLOCK_BYTES) as u32)).collect::<Vec<_>>()
    });
    let (kept, kept_pieces): (Vec<Pack>, Vec<_>) = plan.kept.into_iter().unzip();
    let packs = PackList::new(kept.into_iter().chain(new).collect());
    let packs = packs.map_err(|_| ImageError::TooLarge("16 TiB in blocks of 4 KiB"))?;
    let pieces = PieceList { packs: kept_pieces.into_iter().chain(new_pieces).collect() };
    let mut packer = Packer::new()?;
    let mut saved = Vec::new();
    for (snapshot, (name, _)) in snapshots.iter_mut().zip(request.paths) {
        place(snapshot, &packs, &plan.places);
        let bytes = snapshot.tree.encode();
        let tree = packer.pack(&bytes)?;
        check_tree(&snapshot.tree, bytes.len(), tree.len())?;
        saved.push(SavedPath { path: name.clone(), tree: store.put_blob(&mut tree.as_slice())? });
    }
    let files = snapshots.iter().flat_map(|snapshot| &snapshot.tree.nodes);
    let sizes = files.filter_map(|node| match node.kind {
        NodeKind::File { size, .. } => Some(size),
        _ => None,
    });
    let (files, size_bytes) = sizes.fold((0, 0), |(count, sum), size| (count + 1, sum + size));
    Ok(ImageRecord {
        key: request.key.clone(),
        created_ms: request.now_ms,
        saved,
        packs: store.put_blob(&mut packs.encode().as_slice())?,
        pieces: store.put_blob(&mut pieces.encode().as_slice())?,
        files,
        size_bytes,
        trace: carried(store, touched, &packs)?,
    })
}

/// Sets the block of each piece in a tree.
fn place(snapshot: &mut Snapshot, packs: &PackList, places: &HashMap<Digest, (usize, u32)>) {
    let written: Vec<(usize, bool)> = snapshot
        .files()
        .flat_map(|(node, _, pieces)| {
            let NodeKind::File { extents, .. } = snapshot.tree.nodes[node as usize].kind else { return Vec::new() };
            let written = &snapshot.tree.extents[extents.range()];
            (0..).zip(pieces.range()).map(|(number, piece)| (piece, contents::is_written(written, number))).collect()
        })
        .collect();
    for (piece, is_written) in written {
        let place = places.get(&snapshot.digests[piece]).filter(|_| is_written);
        snapshot.tree.blocks[piece] = place.map_or(HOLE, |(pack, block)| packs.start(*pack) + block);
    }
}

/// Returns the name of a path in an image: `~/…` if it is below the home directory, else the path
/// without `.` components. For example, `./a/b` becomes `a/b`.
pub fn name_of(path: &Path, home: Option<&Path>) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    let plain: PathBuf = path.components().filter(|part| !matches!(part, std::path::Component::CurDir)).collect();
    match home.and_then(|home| plain.strip_prefix(home).ok()) {
        Some(below) if !below.as_os_str().is_empty() => Path::new("~").join(below).as_os_str().as_bytes().to_vec(),
        _ if plain.as_os_str().is_empty() => b".".to_vec(),
        _ => plain.as_os_str().as_bytes().to_vec(),
    }
}
