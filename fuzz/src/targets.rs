//! Decoders that take bytes.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use larder_compiler::{Family, ResponseFiles, depfile_plan, family_of, is_compiler_part, parse};
use larder_config::{Surroundings, load, parse_size, show_size};
use larder_ipc::{Frame, HEADER_BYTES, Parcel};
use larder_model::{
    AccessTrace, ActionResult, Digest, FORMAT_VERSION, IMAGE_VERSION, ImageRecord, Judgement, Manifest, ObservationSet,
    PackList, PieceList, Reader, Roots, Writer,
};

const FAMILIES: [Family; 5] = [Family::Gcc, Family::Clang, Family::Binutils, Family::Generic, Family::Command];

/// The bytes as they are, and with a valid version and seal.
pub(crate) fn manifest(data: &[u8]) {
    check_manifest(data);
    let mut w = Writer::default();
    w.bytes.extend_from_slice(data);
    if let Some(version) = w.bytes.first_mut() {
        *version = FORMAT_VERSION;
    }
    let unsealed = w.bytes.len().saturating_sub(32);
    let mut again = Writer::default();
    again.bytes.extend_from_slice(&w.bytes[..unsealed]);
    check_manifest(&again.seal());
    check_manifest(&w.seal());
}

fn check_manifest(bytes: &[u8]) {
    let Ok(manifest) = Manifest::decode(bytes) else { return };
    assert!(manifest.encode() == bytes, "is encoded to other bytes");
    for entry in &manifest.entries {
        if let Ok((set, result)) = entry.open() {
            set.size();
            result.blobs().count();
        }
    }
}

/// The bytes as they are, and with a valid version and seal.
pub(crate) fn judgement(data: &[u8]) {
    let mut w = Writer::default();
    w.bytes.push(FORMAT_VERSION);
    w.bytes.extend_from_slice(data);
    for bytes in [data, &w.seal()] {
        if let Ok(judgement) = Judgement::decode(bytes) {
            assert_eq!(Judgement::decode(&judgement.encode()).as_ref(), Ok(&judgement));
        }
    }
}

/// The bytes as they are, and with a valid version and seal.
pub(crate) fn image(data: &[u8]) {
    let mut w = Writer::default();
    w.bytes.push(IMAGE_VERSION);
    w.bytes.extend_from_slice(data.get(1..data.len().saturating_sub(32)).unwrap_or_default());
    for bytes in [data, &w.seal()] {
        if let Ok(record) = ImageRecord::decode(bytes) {
            assert!(record.encode() == bytes, "is encoded to other bytes");
            assert!(record.needed().all(|needed| record.blobs().any(|blob| blob == needed)));
        }
    }
}

/// Reads the bytes as a list of packs, as a list of pieces, and as a trace, with a valid version.
pub(crate) fn packs(data: &[u8]) {
    let mut bytes = data.to_vec();
    if let Some(version) = bytes.first_mut() {
        *version = IMAGE_VERSION;
    }
    let packs = PackList::decode(&bytes);
    if let Ok(packs) = &packs {
        assert!(packs.encode() == bytes, "is encoded to other bytes");
        let blocks = packs.blocks();
        assert!(packs.of_block(blocks).is_none() && (blocks == 0 || packs.of_block(blocks - 1).is_some()));
    }
    if let Ok(pieces) = PieceList::decode(&bytes) {
        assert!(pieces.encode() == bytes, "is encoded to other bytes");
    }
    if let Ok(trace) = AccessTrace::decode(&bytes) {
        assert!(trace.encode() == bytes, "is encoded to other bytes");
    }
}

/// Frames one after the other, up to the first invalid one.
pub(crate) fn frame(data: &[u8]) {
    let mut rest = data;
    while let Some((header, body)) = rest.split_first_chunk() {
        let Ok(length) = Frame::length(*header) else { return };
        let Some((body, after)) = body.split_at_checked(length) else { return };
        if let Ok(frame) = Frame::decode(body) {
            assert!(frame.encode()[HEADER_BYTES..] == *body, "is encoded to other bytes");
        }
        rest = after;
    }
}

/// The bytes as they are, and with a valid version and seal.
pub(crate) fn parcel(data: &[u8]) {
    let mut w = Writer::default();
    w.bytes.push(FORMAT_VERSION);
    w.bytes.extend_from_slice(data.get(1..data.len().saturating_sub(32)).unwrap_or_default());
    for bytes in [data, &w.seal()] {
        if let Ok(parcel) = Parcel::decode(bytes) {
            assert!(parcel.encode() == bytes, "is encoded to other bytes");
        }
    }
}

pub(crate) fn observations(data: &[u8]) {
    let mut r = Reader::new(data);
    if let Ok(set) = ObservationSet::decode(&mut r) {
        let mut w = Writer::default();
        set.encode(&mut w);
        assert!(w.bytes == data[..r.position()], "is encoded to other bytes");
    }
}

pub(crate) fn result(data: &[u8]) {
    let mut r = Reader::new(data);
    if let Ok(result) = ActionResult::decode(&mut r) {
        let mut w = Writer::default();
        result.encode(&mut w);
        assert!(w.bytes == data[..r.position()], "is encoded to other bytes");
    }
}

pub(crate) fn digest(data: &[u8]) {
    if let Ok(digest) = String::from_utf8_lossy(data).parse::<Digest>() {
        assert_eq!(digest.hex().as_bytes(), data.to_ascii_lowercase());
    }
}

/// Lines: roots up to an empty line, then paths.
pub(crate) fn roots(data: &[u8]) {
    let mut lines = data.split(|&byte| byte == b'\n').map(<[u8]>::to_vec);
    let roots = Roots::new(lines.by_ref().take_while(|line| !line.is_empty()));
    for line in lines {
        let mut there = Vec::new();
        if !roots.decode_path(&line, &mut there) {
            // A zero byte stands for a root or a name that is not known here.
            assert!(line.contains(&0));
        }
        let text = roots.encode_text(&line);
        if line.contains(&0) {
            continue;
        }
        let (mut encoded, mut back) = (Vec::new(), Vec::new());
        roots.encode_path(&line, &mut encoded);
        assert!(roots.decode_path(&encoded, &mut back) && back == line, "decoding does not restore the path");
        // A zero byte and a number stand for a root. All other bytes are unchanged.
        let mut undone = Vec::new();
        let mut bytes = text.into_iter();
        while let Some(byte) = bytes.next() {
            match byte {
                0 => undone.extend_from_slice(&roots.paths()[usize::from(bytes.next().expect("has one")) - 1]),
                byte => undone.push(byte),
            }
        }
        assert!(undone == line, "decoding does not restore the text");
    }
}

struct File<'a>(&'a [u8]);

impl ResponseFiles for File<'_> {
    fn read(&self, path: &[u8]) -> Option<Vec<u8>> {
        (path == b"f").then(|| self.0.to_vec())
    }
}

fn command(arguments: &[Vec<u8>], files: &dyn ResponseFiles) {
    for family in FAMILIES {
        let _ = parse(family, arguments, files);
        let _ = depfile_plan(family, b"/w", arguments, files, &|name| name.len() % 2 == 0);
    }
}

/// Arguments that are separated by NUL bytes.
pub(crate) fn argv(data: &[u8]) {
    let arguments: Vec<Vec<u8>> = data.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect();
    command(&arguments, &File(b"-c 'a b.c'"));
    for name in &arguments {
        family_of(name);
        is_compiler_part(name);
    }
}

/// A response file that may name itself.
pub(crate) fn response(data: &[u8]) {
    command(&[b"@f".to_vec()], &File(data));
}

pub(crate) fn size(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(bytes) = parse_size(text) {
        assert_eq!(parse_size(&show_size(bytes)), Ok(bytes));
    }
}

/// Reads the bytes as each kind of configuration file. Its lines are used as environment variables
/// as well.
pub(crate) fn config(data: &[u8]) {
    let line = |line: &[u8]| {
        let at = line.iter().position(|&byte| byte == b'=')?;
        let name = [b"LARDER_", &line[..at]].concat().to_ascii_uppercase();
        Some((OsString::from_vec(name), OsString::from_vec(line[at + 1..].to_vec())))
    };
    let env: Vec<_> = data.split(|&byte| byte == b'\n').filter_map(line).take(20).collect();
    let read = |_: &Path| io::Result::Ok(data.to_vec());
    let home = || Some(PathBuf::from("/home/u"));
    let around = Surroundings { env: &env, read: &read, home: &home, wrapper_dir: None, cwd: Some(Path::new("/p")) };
    let loaded = load(&around);
    for problem in loaded.problems.iter().chain(&loaded.notes) {
        let text = problem.to_string();
        assert!(!text.chars().any(char::is_control), "{text:?}");
        assert!(text.len() < 4096, "{} bytes", text.len());
    }
    for value in loaded.values() {
        assert!(!value.shown.is_empty());
    }
    for path in [&loaded.settings.dir, &loaded.settings.log].into_iter().flatten() {
        assert!(path.is_absolute());
    }
    assert_eq!(load(&around).settings, loaded.settings);
}

pub(crate) fn depfile(data: &[u8]) {
    for name in larder_observe::fuzz::depfile(data).unwrap_or_default() {
        assert!(name.len() <= data.len());
    }
}

pub(crate) fn scan(data: &[u8]) {
    larder_observe::fuzz::scan(data);
}

pub(crate) fn log(data: &[u8]) {
    let bytes = larder_observe::fuzz::log(data);
    assert!(bytes <= data.len());
}

/// A tree is decoded by its format's version, and gives its own bytes again.
pub(crate) fn tree(data: &[u8]) {
    let rest = data.get(1..).unwrap_or_default();
    for bytes in [data, &[&[IMAGE_VERSION], rest].concat()] {
        if let Some(again) = larder_image::fuzz::tree(bytes) {
            assert!(larder_image::fuzz::tree(&again).as_ref() == Some(&again), "has another form");
        }
    }
}

pub(crate) fn broker(data: &[u8]) {
    let rest = data.get(1..).unwrap_or_default();
    for bytes in [data, &[&[1], rest].concat()] {
        if let Some(again) = larder_mount::fuzz::broker_message(bytes) {
            assert_eq!(again, bytes);
        }
    }
}

pub(crate) use larder_remote::fuzz::{bundle, index, list, used};
