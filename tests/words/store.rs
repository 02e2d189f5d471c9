//! Tests of subcommands about the store and the settings: stats, config, doctor, evict, fsck,
//! clear.

use std::os::unix::fs::PermissionsExt;

use larder_model::{Bypass, Fallback, Outcome, Unrecorded};
use larder_store::{Counters, Store};
use serde_json::json;

use crate::place::Here;

fn counters(here: &Here) -> Counters {
    Counters::open(&Store::open(&here.path("store")).expect("opens")).expect("maps")
}

#[test]
fn stats_of_no_store_are_zeros_and_make_none() {
    let here = Here::new();
    let zeros = json!({
        "hit": 0, "waited": 0, "miss": 0, "bypass": 0, "fallback": 0, "store_bytes": 0, "limit_bytes": 10u64 << 30,
        "token_waits": 0, "memory_waits": 0, "token_waited_ms": 0,
        "bypass_reasons": {}, "fallback_reasons": {}, "unrecorded_reasons": {}, "remote_hit": 0,
        "remote": {
            "absent": 0, "bytes_in": 0, "bytes_out": 0, "dropped": 0, "failed": 0, "fetch_median_us": null,
            "fetch_p90_us": null, "prefetched": 0, "races": 0, "races_won": 0, "refused": 0, "send_failed": 0, "sent": 0,
        },
    });
    let said = here.larder(&["stats", "--json"]).ends(0).json();
    for (name, zero) in zeros.as_object().expect("is one") {
        assert_eq!(&said[name], zero, "{name}");
    }
    here.larder(&["stats"]).ends(0).says("not created yet");
    here.larder(&["stats", "--zero"]).ends(0);
    for word in ["clear", "evict", "fsck"] {
        here.larder(&[word]).ends(0).says("no store yet");
    }
    here.larder(&["evict", "--background"]).ends(0);
    assert!(!here.path("store").exists());
}

#[test]
fn stats_count_and_say_why() {
    let here = Here::new();
    let counters = counters(&here);
    let outcomes = [
        Outcome::Hit,
        Outcome::Hit,
        Outcome::Hit,
        Outcome::Miss(Some(Unrecorded::Clock)),
        Outcome::Bypass(Bypass::TooHard),
        Outcome::Fallback(Fallback::StoreFull),
    ];
    outcomes.into_iter().for_each(|outcome| counters.count(outcome));
    let shown = here.larder(&["stats"]).ends(0).says("75.0 %").says("too-hard").says(Bypass::TooHard.sentence());
    shown.says(Unrecorded::Clock.sentence()).says(Fallback::StoreFull.sentence());

    let before = here.larder(&["stats", "--json", "--zero"]).ends(0).json();
    assert_eq!((&before["hit"], &before["miss"]), (&json!(3), &json!(1)));
    assert_eq!(before["bypass_reasons"], json!({ "too-hard": 1 }));
    assert_eq!(before["fallback_reasons"], json!({ "store-full": 1 }));
    assert_eq!(before["unrecorded_reasons"], json!({ "clock": 1 }));
    assert_eq!(here.larder(&["stats", "--json"]).ends(0).json()["hit"], 0);
}

#[test]
fn an_unusable_store_gives_zeros_to_programs_and_a_line_to_people() {
    let here = Here::new();
    let check = |what: &str| {
        let ran = here.larder(&["stats", "--json"]).ends(0).complains(what);
        assert_eq!(ran.json()["hit"], 0);
        here.larder(&["stats"]).ends(1).complains(what);
        here.larder(&["fsck"]).ends(1).complains(what);
        here.larder(&["doctor"]).ends(1).says("problem  store");
        here.larder(&["explain", "gcc", "-c", "x.c"]).ends(0).says("Fallback");
    };
    here.fake_gcc();
    here.write("store", "a file");
    check("not a directory");
    std::fs::remove_file(here.path("store")).expect("removes");
    std::fs::create_dir(here.path("store")).expect("makes");
    std::fs::set_permissions(here.path("store"), PermissionsExt::from_mode(0o777)).expect("sets");
    check("can write to it");
    let garbage = here.path("store/v1");
    std::fs::set_permissions(here.path("store"), PermissionsExt::from_mode(0o700)).expect("sets");
    std::fs::write(garbage, "not a directory").expect("writes");
    assert_eq!(here.larder(&["stats", "--json"]).ends(0).json()["hit"], 0);
}

#[test]
fn config_says_where_a_value_comes_from_and_fails_on_what_is_wrong() {
    let here = Here::new();
    std::fs::create_dir_all(here.path("home/.config/larder")).expect("makes");
    here.write("home/.config/larder/larder.toml", "# mine\nmax_size = '2 GiB'\n");
    let ran = here.larder_with(&[("LARDER_RECACHE", "1"), ("LARDER_NONSENSE", "1")], &["config"]).ends(0);
    let file = here.path("home/.config/larder/larder.toml");
    let ran = ran.says(&format!("{}:2", file.display())).says("environment LARDER_RECACHE").says("default");
    ran.says("2 GiB").says("LARDER_NONSENSE").says("home/.local/state/larder/records");

    here.write("work/larder.toml", "dir = '/elsewhere'\nmax_sise = 1\n");
    let ran = here.larder(&["config"]).ends(1).says("larder.toml:1: a project's own file cannot set dir");
    ran.says("larder.toml:2").says("did you mean max_size?");
    let object = here.larder(&["config", "--json"]).ends(1).json();
    assert_eq!(object["problems"].as_array().map(Vec::len), Some(2));
    let settings = object["settings"].as_array().expect("a list");
    let dir = settings.iter().find(|setting| setting["key"] == "dir").expect("is listed");
    assert_eq!((dir["key"].as_str(), dir["source"].as_str()), (Some("dir"), Some("environment LARDER_DIR")));
}

#[test]
fn doctor_finds_what_is_there_and_what_is_wrong() {
    let here = Here::new();
    here.fake_gcc();
    here.write("larder", "stands for the wrapper");
    std::fs::set_permissions(here.path("larder"), PermissionsExt::from_mode(0o755)).expect("sets");
    let wrapper = here.path("larder");
    let wrapper = ("LARDER_WRAPPER", wrapper.to_str().expect("is text"));
    let ran = here.larder_with(&[wrapper], &["doctor"]).says("bin/gcc: family gcc; not tested");
    assert!(!ran.out.contains("LARDER_WRAPPER"), "{ran:?}");
    ran.says("not created yet, and can be created").says("no compiler name on PATH leads to larder");
    assert!(!here.path("store").exists());

    std::fs::create_dir(here.path("store")).expect("makes");
    std::fs::create_dir(here.path("links")).expect("makes");
    std::os::unix::fs::symlink(here.path("larder"), here.path("links/gcc")).expect("links");
    let path = |first: &str, second: &str| format!("{}:{}", here.path(first).display(), here.path(second).display());
    let right = path("links", "bin");
    here.larder_with(&[wrapper, ("PATH", &right)], &["doctor"]).says("gcc leads to larder, then to").says("writable");
    let wrong = path("bin", "links");
    let ran = here.larder_with(&[wrapper, ("PATH", &wrong), ("LARDER_DISABLE", "1")], &["doctor", "--json"]).ends(1);
    let object = ran.json();
    let checks = object["checks"].as_array().expect("a list");
    let state = |piece: &str| {
        let check = checks.iter().find(|check| check["found"].as_str().is_some_and(|found| found.contains(piece)));
        check.and_then(|check| check["state"].as_str()).unwrap_or_else(|| panic!("{piece}: {object:#}")).to_owned()
    };
    assert_eq!(state("before larder"), "problem");
    assert_eq!(state("LARDER_DISABLE"), "note");
    assert_eq!(state("bin/gcc"), "problem", "{object:#}");
}

#[test]
fn evict_fsck_and_clear_say_what_they_did() {
    let here = Here::new();
    here.fake_gcc();
    here.write("work/x.c", "int x;");
    crate::explain::record(&here, &["gcc", "-c", "x.c"]);
    here.larder(&["fsck"]).ends(0).says("1 manifest with 1 record, 1 blob").says("all sound");
    here.larder(&["evict"]).ends(0).says("nothing to evict");
    let store = Store::open(&here.path("store")).expect("opens");
    Counters::open(&store).expect("maps").set_store_bytes(1 << 40);
    let limit = [("LARDER_MAX_SIZE", "5K")];
    assert_eq!(here.larder_with(&limit, &["evict", "--background"]).ends(0).out, "");
    here.larder(&["fsck"]).ends(0).says("0 manifests");
    crate::explain::record(&here, &["gcc", "-c", "x.c"]);
    here.larder(&["evict", "--max-size", "0"]).ends(0).says("removed 1 record and 1 blob");
    crate::explain::record(&here, &["gcc", "-c", "x.c"]);
    damage(&here.path("store"));
    here.larder(&["fsck"]).ends(1).says("have another digest").says("--repair");
    here.larder(&["fsck", "--repair"]).ends(1).says("removed");
    here.larder(&["fsck"]).ends(0).says("all sound");
    here.larder(&["clear"]).ends(0).says("removed");
}

#[test]
fn what_this_environment_sets_is_not_set_for_an_installed_larderd() {
    let here = Here::new();
    let install = ["daemon", "install", "--print"];
    let remote = [("LARDER_REMOTE", "file:///far"), ("LARDER_LOG", "/log")];
    here.larder_with(&remote, &install)
        .ends(0)
        .complains("LARDER_REMOTE is set only in this environment: set remote in larder.toml");
    assert_eq!(here.larder(&install).ends(0).err, "");
}

#[test]
fn what_an_earlier_version_left_is_said_and_cleared() {
    let here = Here::new();
    drop(counters(&here));
    let earlier = here.path("store/v1");
    std::fs::create_dir(&earlier).expect("makes");
    std::fs::set_permissions(&earlier, PermissionsExt::from_mode(0o700)).expect("sets");
    here.larder(&["clear"]).ends(0);
    assert!(earlier.exists(), "it is not a store, so it must stay");
    let now = Store::open(&here.path("store")).expect("opens").daemon_socket().with_file_name("counters");
    std::fs::copy(now, earlier.join("counters")).expect("copies");
    here.larder(&["doctor"]).says("store/v1 is of an earlier version of larder");
    here.larder(&["stats"]).ends(0).says("not counted: ").says("store/v1, of an earlier version of larder");
    here.larder(&["evict"]).ends(0);
    assert!(earlier.exists(), "it was used a moment ago, so it must stay");
    here.larder(&["clear"]).ends(0).says("store/v1, of an earlier version of larder: removed");
    assert!(!earlier.exists());
}

/// Overwrites every file that is a blob by its path.
fn damage(dir: &std::path::Path) {
    for entry in std::fs::read_dir(dir).expect("lists").map(|entry| entry.expect("is there").path()) {
        if entry.is_dir() {
            damage(&entry);
        } else if entry.to_str().is_some_and(|path| path.contains("/blobs/")) {
            std::fs::write(entry, "damaged").expect("writes");
        }
    }
}
