//! A team that signs its records. Records of its own machines are accepted, and all others are
//! refused.

use std::fs;

use larder_testkit::Run;

use crate::far::{FIRST, Far, SECOND};

/// A secret key and its public key: the first test of RFC 8032, section 7.1.
const SECRET: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
const PUBLIC: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
/// The secret key of a stranger: the second test of that section.
const STRANGER: &str = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb";

/// Records the current source in the first store, signed with this key or unsigned, and uploads it.
#[track_caller]
fn record(far: &Far, key: Option<&str>) {
    let path = far.place.path("key");
    let signs = |run: Run| match key {
        Some(_) => run.env("LARDER_REMOTE_SIGN_WITH", &path),
        None => run,
    };
    if let Some(key) = key {
        fs::write(&path, format!("{key}\n")).expect("cannot write the file");
    }
    far.larder(FIRST, &["daemon", "stop"]).run();
    signs(far.larder(FIRST, &["daemon", "start"])).run().ends(0);
    assert!((0..8).any(|_| far.compile_by(FIRST, signs).0.contains(" hit: ")), "nothing is recorded");
    let flushed = signs(far.larder(FIRST, &["remote", "flush"])).run().ends(0);
    assert!(flushed.stdout.contains(" 0 left"), "{flushed:?}");
}

fn believes(run: Run) -> Run {
    run.env("LARDER_REMOTE_TRUST", PUBLIC)
}

#[test]
fn only_what_the_team_signed_is_believed() {
    let far = Far::directory();
    // Each key records its own source, so that each source is recorded once.
    for (which, key) in [(1, Some(SECRET)), (2, None), (3, Some(STRANGER))] {
        far.source(0.0, which);
        record(&far, key);
    }
    far.source(0.0, 1);
    let log = far.fetch_by(SECOND, believes);
    assert!(log.contains(" hit: ") && log.contains("fetched from a remote"), "{log} {}", far.daemon_log(SECOND));
    let refused = || far.stats(SECOND)["remote"]["refused"].as_u64().unwrap_or(0);
    for which in [2, 3] {
        far.source(0.0, which);
        // All three records are in one list, and each request is for the whole list. On a busy
        // machine the tool may end before the list is there.
        let counted = (0..10).any(|_| {
            far.larder(SECOND, &["daemon", "stop"]).run().ends(0);
            far.larder(SECOND, &["clear"]).run().ends(0);
            believes(far.larder(SECOND, &["daemon", "start"])).run().ends(0);
            let before = refused();
            let (log, _) = far.compile_by(SECOND, |run| believes(run).env("LARDER_REMOTE_RW_MODE", "READ_ONLY"));
            assert!(log.contains("miss: x.c"), "{which}: {log}");
            refused() - before == 2
        });
        assert!(counted, "{which}: each refused record is counted for each request: {}", far.stats(SECOND));
    }
    assert_eq!(far.stats(SECOND)["remote_hit"], 1);
    // A client without `remote_trust` accepts all of them.
    far.larder(SECOND, &["daemon", "stop"]).run().ends(0);
    fs::remove_dir_all(far.place.path(SECOND)).expect("cannot remove the directory");
    for which in [1, 2, 3] {
        far.source(0.0, which);
        assert!(far.fetch(SECOND).contains("fetched from a remote"), "{which}");
    }
}

#[test]
fn who_does_not_sign_takes_nothing_away() {
    let far = Far::directory();
    record(&far, Some(SECRET));
    let refused = believes(far.larder(FIRST, &["remote", "push"])).run().ends(1);
    assert!(refused.stderr.contains("remote_sign_with is not"), "{refused:?}");
    // A client that sets neither `remote_trust` nor `remote_sign_with`.
    far.larder(FIRST, &["remote", "push"]).run().ends(0);
    let log = far.fetch_by(SECOND, believes);
    assert!(log.contains("fetched from a remote"), "{log} {}", far.daemon_log(SECOND));
}

/// If a key is removed from `remote_trust`, records that were fetched before and signed with it are
/// refused.
#[test]
fn a_revoked_key_answers_nothing_any_more() {
    let far = Far::directory();
    record(&far, Some(SECRET));
    let log = far.fetch_by(SECOND, believes);
    assert!(log.contains("fetched from a remote"), "{log} {}", far.daemon_log(SECOND));
    let without_remote = |run: Run| run.without("LARDER_REMOTE");
    let (log, _) = far.compile_by(SECOND, |run| without_remote(believes(run)));
    assert!(log.contains(" hit: "), "the fetched record is in the store: {log}");
    // The public key of the stranger: the second test of the same section.
    const OTHER: &str = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";
    let (log, _) = far.compile_by(SECOND, |run| without_remote(run).env("LARDER_REMOTE_TRUST", OTHER));
    assert!(log.contains(" miss: x.c"), "{log}");
}

/// `larder remote push` must not sign records that were fetched from a remote.
#[test]
fn push_signs_only_what_was_recorded_here() {
    let far = Far::directory();
    record(&far, None);
    let log = far.fetch(SECOND);
    assert!(log.contains("fetched from a remote"), "{log}");
    fs::remove_dir_all(far.place.path("far")).expect("cannot remove the directory");
    let key = far.place.path("key");
    fs::write(&key, SECRET).expect("cannot write the file");
    far.larder(SECOND, &["remote", "push"]).env("LARDER_REMOTE_SIGN_WITH", &key).run();
    far.larder(SECOND, &["daemon", "stop"]).run();
    fs::remove_dir_all(far.place.path(SECOND)).expect("cannot remove the directory");
    let (log, _) = far.compile_by(SECOND, believes);
    assert!(log.contains(" miss: x.c"), "{log}");
}

/// `remote_trust` is set, but its value is invalid.
#[test]
fn a_key_that_is_none_means_no_remote() {
    let far = Far::directory();
    far.record();
    let typo = |run: Run| run.env("LARDER_REMOTE_TRUST", format!("{PUBLIC}0"));
    let compiled = typo(far.larder(SECOND, &["./gcc", "-c", "x.c", "-o", "x.o"])).run().ends(0);
    assert!(compiled.stderr.contains("no remote is used until this is corrected"), "{compiled:?}");
    assert_eq!(far.stats(SECOND)["remote_hit"], 0);
    let checked = typo(far.larder(SECOND, &["remote", "check"])).run().ends(1);
    assert!(checked.stderr.contains("LARDER_REMOTE_TRUST"), "{checked:?}");
}

/// A key file that cannot be read disables remotes.
#[test]
fn a_key_that_cannot_be_read() {
    let far = Far::directory();
    far.record();
    let bad = far.place.path("bad");
    fs::write(&bad, "no key\n").expect("cannot write the file");
    let (log, _) = far.compile_by(SECOND, |run| run.env("LARDER_REMOTE_SIGN_WITH", &bad));
    assert!(log.contains("miss: x.c"), "{log}");
    let said = far.daemon_log(SECOND);
    assert!(said.contains("no remote is used") && said.contains("/bad: "), "{said}");
}
