//! The exact bytes of frames and parcels, compared with the files in `golden/`.
//!
//! `crates/testkit/src/golden.rs` says how to update the files. If the format changes,
//! `larder_model::FORMAT_VERSION` must change too.

use std::path::{Path, PathBuf};

use larder_ipc::{Expect, Frame, Handed, Nothing, Parcel, Recorded, Remotes, State};
use larder_model::{Blob, Digest, Outcome, Unrecorded};
use larder_testkit::golden;

fn file(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden")).join(name)
}

#[test]
fn golden_frames() {
    let state = State { pid: 4_194_304, up_s: 3600, idle_s: 60, recorded: 300, refused: 0 };
    let frames = [
        Frame::HandOver { parcel_bytes: 70_000, blobs: 2 },
        Frame::More,
        Frame::Ask,
        Frame::State(state),
        Frame::Stop,
        Frame::Used(Digest([6; 32])),
    ];
    let bytes: Vec<u8> = frames.iter().flat_map(Frame::encode).collect();
    golden(&file("frames.hex"), "each frame, one after the other", &bytes);
}

#[test]
fn golden_frames_of_fetches() {
    let (weak, strong, directory) = (Digest([1; 32]), Digest([2; 32]), b"/home/you/project".to_vec());
    let frames = [
        Frame::Fetch { weak, directory: directory.clone() },
        Frame::Expect(Expect { median_us: 1500, p90_us: 40_000, samples: 300, overdue: false }),
        Frame::Found { manifest_bytes: 70_000 },
        Frame::Nothing(Nothing::OutOfReach),
        Frame::Want { strong, subject: Digest([3; 32]) },
        Frame::Fetched { bytes: 1 << 40 },
        Frame::Running,
        Frame::Recorded(Recorded { weak, strong, directory }),
        Frame::Flush(60),
        Frame::AskRemotes,
        Frame::Remotes(Remotes { queued: 1, sent: 2, dropped: 3, failed: 4, settings: Digest([4; 32]) }),
    ];
    let bytes: Vec<u8> = frames.iter().flat_map(Frame::encode).collect();
    golden(&file("fetches.hex"), "each frame of a fetch, one after the other", &bytes);
}

#[test]
fn golden_parcels() {
    let blobs = [(1, 5000), (2, 1 << 40)].map(|(byte, size_bytes)| Blob { digest: Digest([byte; 32]), size_bytes });
    let record = Handed { manifest: b"a manifest", subject: Digest([3; 32]), blobs: blobs.to_vec() };
    let judgements = vec![(Digest([4; 32]), &b"a judgement"[..]), (Digest([5; 32]), b"")];
    let with = Parcel { outcome: Outcome::Miss(None), judgements, record: Some(record) };
    golden(&file("parcel_with.hex"), "a parcel with a record", &with.encode());
    let why = Outcome::Miss(Some(Unrecorded::Clock));
    let without = Parcel { outcome: why, judgements: Vec::new(), record: None };
    golden(&file("parcel_without.hex"), "a parcel without a record", &without.encode());
}
