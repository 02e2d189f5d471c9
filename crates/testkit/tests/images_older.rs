//! Kernels that know less: each thing that they refuse is refused here, by strace, and the next way is taken by itself.

use larder_testkit::{Place, Ran, has, is_root, larder, probe_skip};

/// `larder` where these calls fail; none where nothing can be refused. Whoever it starts is followed, and waited for by
/// nobody.
fn refused(place: &Place, calls: &[&str], words: &[&str]) -> Option<Ran> {
    if !has("strace") {
        eprintln!("skipped: strace is not installed");
        return None;
    }
    // Output to files: who mounts stays a while, and strace with it.
    let script = "strace -D -f -q -o /dev/null \"$@\" > out 2> err";
    let calls = calls.iter().map(|call| format!("--inject={call}")).collect::<Vec<_>>();
    let trace = format!("--trace={}", calls.iter().map(|call| call_of(call)).collect::<Vec<_>>().join(","));
    let program = larder().to_str().expect("is text");
    let first = ["sh", "-c", script, "sh", "--seccomp-bpf", &trace];
    let argv: Vec<&str> = first.into_iter().chain(calls.iter().map(String::as_str)).chain([program]).collect();
    let ran = place.run(&[&argv, words].concat()).run();
    let text = |name: &str| String::from_utf8_lossy(&place.read(name)).into_owned();
    let ran = Ran { stdout: text("out"), stderr: text("err"), ..ran };
    if ran.stderr.starts_with("strace:") {
        eprintln!("skipped: {}", ran.stderr);
        return None;
    }
    Some(ran)
}

/// `--inject=CALL:error=…`
fn call_of(inject: &str) -> &str {
    inject.trim_start_matches("--inject=").split(':').next().unwrap_or_default()
}

/// What doctor says of a way.
fn said<'a>(ran: &'a Ran, way: &str) -> &'a str {
    let line = ran.stdout.lines().find(|line| line.contains(&format!("via {way}")));
    line.unwrap_or_else(|| panic!("nothing of {way}: {ran:#?}"))
}

#[test]
fn doctor_says_what_a_kernel_lacks_and_what_is_used_instead() {
    probe_skip!(is_root(), "only root can mount");
    let place = Place::new();
    place.put("deps/a", "a");
    // The ways are tried in the store.
    place.run(&[larder().to_str().expect("is text"), "image", "save", "--key", "k-1", "deps"]).run().quiet();
    let Some(all) = refused(&place, &["getcpu:error=ENOSYS"], &["doctor"]) else { return };
    probe_skip!(said(&all, "lazy").contains("used so"), "not possible here anyway: {}", said(&all, "lazy"));
    // Before Linux 6.14 there are no events before access.
    let ran = refused(&place, &["fanotify_mark:error=EINVAL"], &["doctor"]).expect("as before");
    assert!(said(&ran, "lazy").contains("not possible: reads cannot be waited with"), "{ran:#?}");
    assert!(said(&ran, "lazy").contains("Linux 6.14"), "{ran:#?}");
    assert!(said(&ran, "mount").contains("used so"), "{ran:#?}");
    // Before 6.15 a mount that is nowhere cannot be copied, which showing it with others' owners takes.
    let ran = refused(&place, &["open_tree:error=EINVAL"], &["doctor"]).expect("as before");
    assert!(said(&ran, "lazy").contains("for root's jobs alone"), "{ran:#?}");
    assert!(!said(&ran, "lazy-fuse").contains("not possible"), "{ran:#?}");
    // Before 5.2, and in many a sandbox, nothing can be mounted so at all.
    let ran = refused(&place, &["fsopen:error=ENOSYS"], &["doctor"]).expect("as before");
    ["lazy", "mount", "lazy-fuse", "squashfs", "fuse"]
        .iter()
        .for_each(|way| assert!(said(&ran, way).contains("not possible"), "{ran:#?}"));
    assert!(said(&ran, "unpack").contains("used so"), "{ran:#?}");
}

#[test]
fn the_next_way_is_taken_by_itself() {
    probe_skip!(is_root(), "only root can mount without a broker");
    for (call, via, why) in [
        ("getcpu:error=ENOSYS", "lazy", None),
        ("fanotify_mark:error=EINVAL", "mount", Some("`lazy`: ")),
        ("open_tree:error=EINVAL", "lazy", None),
        ("fsopen:error=ENOSYS", "unpack", Some("`mount`: ")),
    ] {
        let place = Place::new();
        place.put("deps/a/index.js", "a");
        place.run(&[larder().to_str().expect("is text"), "image", "save", "--key", "k-1", "deps"]).run().quiet();
        let words = ["image", "mount", "--key", "k-1", "--json", "there"];
        let Some(ran) = refused(&place, &[call], &words) else { return };
        let ran = ran.ends(0);
        let object: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
        probe_skip!(call != "getcpu:error=ENOSYS" || object["via"] == via, "nothing can be mounted here: {ran:#?}");
        assert_eq!(object["via"], via, "{ran:#?}");
        assert_eq!(object["passed_over"].as_str().map(|said| said.contains(why.unwrap_or("-"))), why.map(|_| true));
        assert_eq!(place.read("there/a/index.js"), b"a");
        place.run(&[larder().to_str().expect("is text"), "image", "unmount", "--strict", "there"]).run().ends(0);
    }
}
