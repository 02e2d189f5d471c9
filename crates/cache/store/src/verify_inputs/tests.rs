//! Tests of facts that depend on how a path was accessed.

use super::*;
use crate::scan::Words;
use larder_model::{Fact, Prior};
use std::os::unix::ffi::OsStrExt;

fn witnessed(looked: Vec<(Vec<u8>, Looked)>) -> Result<VerifiedInputs, Refusal> {
    witnessed_all(&Seen { looked, ..Seen::default() })
}

fn witnessed_all(seen: &Seen) -> Result<VerifiedInputs, Refusal> {
    let (roots, stat_cache) = (Roots::new([]), StatCache::none());
    let witness = InputVerifier {
        roots: &roots,
        recorded_above: None,
        only_once_counts: false,
        one_file_counts: false,
        forms: Forms::plain(Words { names_files: |_| false, compares_dates: |_| false }),
        stat_cache: &stat_cache,
        started_ns: i64::MAX,
        identities_are_the_tools: true,
        before_links: &|_| None,
        value_key: ValueKey::ZERO,
    };
    witness.witness(seen)
}

#[test]
fn only_calls_that_show_an_inode_number_tell_directories_apart() {
    let dir = tempfile::tempdir().expect("makes a directory");
    let path = dir.path().canonicalize().expect("is there").as_os_str().as_bytes().to_vec();
    let is_told_apart = |looked: Looked| {
        let inputs = witnessed(vec![(path.clone(), looked)]).expect("is as it was");
        let set = inputs.set();
        let directory = set.directories.iter().find(|directory| directory.path == path);
        directory.expect("is recorded").class != 0
    };
    let by_readlink = Looked { link: true, ..Looked::default() };
    assert!(!is_told_apart(by_readlink.clone()));
    assert!(is_told_apart(Looked { kind: true, ..by_readlink.clone() }));
    assert!(is_told_apart(Looked { kind: true, ..Looked::default() }));
    assert!(is_told_apart(Looked { listed: true, ..by_readlink }));
}

#[test]
fn a_call_that_a_sandbox_refused_is_no_change_of_the_file() {
    let file = tempfile::NamedTempFile::new().expect("makes a file");
    let path = file.path().canonicalize().expect("is there").as_os_str().as_bytes().to_vec();
    let missing = [&path, &b"-missing"[..]].concat();
    let below = [&path, &b"-missing/x"[..]].concat();
    let refused = |path: &[u8], errno| {
        let looked = Looked { failed: Some((Fact::ACCESS | 4, errno)), ..Looked::default() };
        witnessed(vec![(path.to_vec(), looked)]).err().map(|refusal| refusal.why)
    };
    for path in [&path, &missing] {
        assert_eq!(refused(path, 1), Some(Unrecorded::Refused));
        assert_eq!(refused(path, 38), Some(Unrecorded::Refused));
    }
    assert_eq!(refused(&path, 13), Some(Unrecorded::InputChanged));
    // What is below a missing directory is absent, whatever the call said.
    assert_eq!(refused(&below, 1), None);
}

/// `opendir` of a file fails.
#[test]
fn a_file_is_no_directory() {
    const NOT_A_DIRECTORY: u32 = 20;
    let file = tempfile::NamedTempFile::new().expect("makes a file");
    let path = file.path().canonicalize().expect("is there").as_os_str().as_bytes().to_vec();
    let above = larder_model::path::parent(&path).expect("has one").to_vec();
    let fails = |path: &[u8]| {
        let looked = Looked { failed: Some((Fact::IS_DIRECTORY, NOT_A_DIRECTORY)), ..Looked::default() };
        witnessed(vec![(path.to_vec(), looked)]).is_ok()
    };
    assert!(fails(&path) && fails(&[&path, &b"/x"[..]].concat()) && !fails(&above));
}

/// A directory that the command made is absent before each run, by whatever path it was looked at.
#[test]
fn a_directory_that_was_made_is_not_there_before() {
    let dir = tempfile::tempdir().expect("makes a directory");
    let above = dir.path().canonicalize().expect("is there").as_os_str().as_bytes().to_vec();
    let (made, spelled) = ([&above, &b"/d"[..]].concat(), [&above, &b"//d"[..]].concat());
    std::fs::create_dir(larder_sys::as_path(&made)).expect("makes a directory");
    let absent = Looked { prior: Some(Prior::Absent), ..Looked::default() };
    let kind = Looked { kind: true, ..Looked::default() };
    let is_wanted = |names: Vec<(Vec<u8>, bool)>, looked: Vec<(Vec<u8>, Looked)>| {
        let inputs = witnessed_all(&Seen { looked, names, ..Seen::default() }).expect("is as it was");
        let set = inputs.set();
        let is_above = |directory: &&larder_model::DirFacts| directory.path == above;
        let absent = set.directories.iter().find(is_above).is_some_and(|directory| directory.absent == [b"d"]);
        (absent, set.directories.iter().any(|directory| directory.path == made))
    };
    let both = || vec![(made.clone(), absent.clone()), (spelled.clone(), kind.clone())];
    assert_eq!(is_wanted(vec![(made.clone(), false)], both()), (true, false));
    // It was there before the command replaced it, or only its presence is known.
    assert_eq!(is_wanted(vec![(made.clone(), true)], both()), (true, true));
    assert_eq!(is_wanted(vec![(made.clone(), false)], vec![(spelled, kind)]), (false, true));
}
