//! Tests the content of volumes as pods see it.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use larder_csi::proto::NodeGetVolumeStatsRequest;
use larder_testkit::Tree;
use tonic::Code;

use crate::fixture::{KEY, Node, wait};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("a_pod_reads_and_writes_and_leaves_nothing", a_pod_reads_and_writes_and_leaves_nothing),
    ("pods_do_not_see_what_others_write", pods_do_not_see_what_others_write),
    ("fallback_miss_and_strict", fallback_miss_and_strict),
    ("what_a_pod_may_not_ask_for", what_a_pod_may_not_ask_for),
    ("a_pod_writes_no_more_than_it_may", a_pod_writes_no_more_than_it_may),
    ("without_a_limit_no_file_system_is_made", without_a_limit_no_file_system_is_made),
    ("many_pods_at_once", many_pods_at_once),
    ("a_volume_of_many_files", a_volume_of_many_files),
];

const OPTIONS: [&str; 2] = ["--writes-max", "64"];
/// The number of pods that start and end at once. `LARDER_TEST_PODS` sets another one.
const PODS: usize = 20;
/// The number of files in a large image. `LARDER_TEST_FILES` sets another one.
const FILES: usize = 5_000;

/// Returns the number in a variable of the environment, or another one.
fn number(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).map_or(otherwise, |text| text.parse().expect("is a number"))
}

fn count(directory: &Path) -> usize {
    fs::read_dir(directory).expect("lists").count()
}

fn a_pod_reads_and_writes_and_leaves_nothing() {
    let node = Node::new(&OPTIONS);
    let saved = Tree::of(&node.path("deps"));
    let target = node.publish("pod-1", &[("key", KEY)]).expect("is mounted");
    assert_eq!(Tree::of(&target), saved);
    assert_eq!(node.publish("pod-1", &[("key", KEY)]).expect("is mounted already"), target);
    fs::write(target.join("a/new"), "new").expect("writes");
    fs::remove_file(target.join("top")).expect("removes");
    assert_eq!(fs::read(target.join("a/new")).expect("reads"), b"new");
    let (volume_id, volume_path) = ("pod-1".to_owned(), target.to_str().expect("is UTF-8").to_owned());
    let asked = NodeGetVolumeStatsRequest { volume_id, volume_path, ..Default::default() };
    let stats = wait(async { node.client().node_get_volume_stats(asked).await }).expect("has a size").into_inner();
    assert!((1 << 20..=64 << 20).contains(&stats.usage[0].total), "{stats:?}");
    node.unpublish("pod-1");
    node.has_nothing_left();
    node.unpublish("pod-1");
    let target = node.publish("pod-1", &[("key", KEY), ("readOnly", "true")]).expect("is mounted");
    assert_eq!(Tree::of(&target), saved);
    let error = fs::write(target.join("new"), "new").expect_err("is read-only");
    assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
    node.unpublish("pod-1");
    node.has_nothing_left();
}

fn pods_do_not_see_what_others_write() {
    let node = Node::new(&OPTIONS);
    let saved = Tree::of(&node.path("deps"));
    let first = node.publish("pod-1", &[("key", KEY), ("owner", "1000:1001")]).expect("is mounted");
    let second = node.publish("pod-2", &[("key", KEY)]).expect("is mounted");
    for path in [first.clone(), first.join("top"), first.join("a/b")] {
        let found = fs::metadata(&path).expect("is there");
        assert_eq!((found.uid(), found.gid()), (1000, 1001), "{}", path.display());
    }
    fs::write(first.join("top"), "changed").expect("writes");
    fs::write(first.join("a/new"), "new").expect("writes");
    assert_eq!(Tree::of(&second), saved);
    node.unpublish("pod-1");
    assert_eq!(Tree::of(&second), saved);
    let third = node.publish("pod-3", &[("key", KEY)]).expect("is mounted");
    assert_eq!(Tree::of(&third), saved);
    node.unpublish("pod-3");
    node.unpublish("pod-2");
    node.has_nothing_left();
}

fn fallback_miss_and_strict() {
    let node = Node::new(&OPTIONS);
    let saved = Tree::of(&node.path("deps"));
    let target = node.publish("fallback", &[("key", "deps-2"), ("fallback", "no-\ndeps-")]).expect("is mounted");
    assert_eq!(Tree::of(&target), saved);
    for (volume, attributes) in [
        ("miss", &[("key", "other-1")][..]),
        ("push", &[("key", KEY), ("policy", "push")]),
        ("no-remote", &[("key", "far-1"), ("fallback", "{{os}}-")]),
    ] {
        let target = node.publish(volume, attributes).expect("is mounted empty");
        assert_eq!(count(&target), 0, "{volume}");
        assert_eq!(fs::metadata(&target).expect("is there").permissions().mode() & 0o777, 0o777);
        fs::write(target.join("new"), "new").expect("writes");
        node.unpublish(volume);
    }
    let refused = node.publish("strict", &[("key", "other-1"), ("strict", "true")]).expect_err("is strict");
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("other-1") && refused.message().contains("no such image"), "{refused}");
    node.unpublish("strict");
    node.unpublish("fallback");
    node.has_nothing_left();
}

fn what_a_pod_may_not_ask_for() {
    let node = Node::new(&[&OPTIONS[..], &["--allow", "ci=deps-", "--allow", "prod=release-"]].concat());
    for (attributes, code, says) in [
        (&[("key", KEY), ("readonly", "true")][..], Code::InvalidArgument, "`readonly` is not known"),
        (&[("path", "deps")], Code::InvalidArgument, "`key` is missing"),
        (&[("key", "deps-{{env HOME}}")], Code::InvalidArgument, "placeholders"),
        (&[("key", "release-1")], Code::PermissionDenied, "the namespace `ci`"),
        (&[("key", KEY), ("remote", "http://localhost")], Code::PermissionDenied, "--remote"),
    ] {
        let refused = node.publish("pod", attributes).expect_err("is refused");
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.message().contains(says), "{refused}");
    }
    let mut elsewhere = node.asked("pod", &[("key", KEY)]);
    elsewhere.target_path = node.text("remote");
    let refused = wait(async { node.client().node_publish_volume(elsewhere).await }).expect_err("is refused");
    assert!(refused.message().contains("is not below"), "{refused}");
    node.publish("pod", &[("key", KEY)]).expect("is mounted");
    let mut second = node.asked("pod", &[("key", KEY)]);
    second.target_path = node.target("other").to_str().expect("is UTF-8").to_owned();
    let refused = wait(async { node.client().node_publish_volume(second).await }).expect_err("is refused");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    node.unpublish("pod");
    node.has_nothing_left();
}

fn a_pod_writes_no_more_than_it_may() {
    let node = Node::new(&OPTIONS);
    for (volume, key) in [("image", KEY), ("empty", "other-1")] {
        let target = node.publish(volume, &[("key", key)]).expect("is mounted");
        let error = fs::write(target.join("large"), vec![1; 65 << 20]).expect_err("is too much");
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{volume}: {error}");
        fs::remove_file(target.join("large")).expect("removes");
        fs::write(target.join("small"), vec![1; 8 << 20]).expect("there is room again");
    }
    node.unpublish("image");
    node.unpublish("empty");
    node.has_nothing_left();
}

fn without_a_limit_no_file_system_is_made() {
    let node = Node::new(&["--writes-max", "0"]);
    let target = node.publish("image", &[("key", KEY)]).expect("is mounted");
    fs::write(target.join("new"), "new").expect("writes");
    let empty = node.publish("empty", &[("key", "other-1")]).expect("is mounted");
    fs::write(empty.join("new"), "new").expect("writes");
    let files = fs::read_dir(node.path("state/volumes")).expect("lists").filter_map(Result::ok);
    assert!(files.map(|volume| volume.path()).all(|volume| !volume.join("writes.img").exists()));
    node.unpublish("image");
    node.unpublish("empty");
    node.has_nothing_left();
}

fn many_pods_at_once() {
    let node = Node::new(&OPTIONS);
    let saved = Tree::of(&node.path("deps"));
    let count = number("LARDER_TEST_PODS", PODS);
    let pods: Vec<String> = (0..count).map(|number| format!("pod-{number}")).collect();
    let longest = Mutex::new([Duration::ZERO; 2]);
    let waited = |which: usize, since: Instant| {
        let mut longest = longest.lock().expect("no pod failed");
        longest[which] = longest[which].max(since.elapsed());
    };
    std::thread::scope(|scope| {
        for pod in &pods {
            let (node, saved, waited) = (&node, &saved, &waited);
            scope.spawn(move || {
                let began = Instant::now();
                let target = node.publish(pod, &[("key", KEY)]).expect("is mounted");
                waited(0, began);
                assert_eq!(Tree::of(&target), *saved);
                fs::write(target.join("own"), pod).expect("writes");
                assert_eq!(fs::read_to_string(target.join("own")).expect("reads"), *pod);
            });
        }
    });
    let unpublish = |pod: &str| {
        let began = Instant::now();
        node.unpublish(pod);
        waited(1, began);
    };
    std::thread::scope(|scope| pods.iter().for_each(|pod| drop(scope.spawn(|| unpublish(pod)))));
    node.has_nothing_left();
    println!("    {count} pods: publish and unpublish took at most {:?}", longest.into_inner().expect("no pod failed"));
}

/// Publishes a large image twice: to a node that has never seen it, and once its data is there.
fn a_volume_of_many_files() {
    let node = Node::new(&OPTIONS);
    let files = number("LARDER_TEST_FILES", FILES);
    for file in 0..files {
        let directory = node.path(&format!("large/{}/{}", file / 5_000, file / 50));
        if file % 50 == 0 {
            fs::create_dir_all(&directory).expect("makes a directory");
        }
        fs::write(directory.join(format!("{file}.js")), format!("module.exports = {file};\n")).expect("writes");
    }
    node.save("large", "large");
    for pod in ["first", "second"] {
        let began = Instant::now();
        let target = node.publish(pod, &[("key", "large")]).expect("is mounted");
        let published = began.elapsed();
        let last = format!("{}/{}/{}.js", (files - 1) / 5_000, (files - 1) / 50, files - 1);
        assert_eq!(
            fs::read(target.join(&last)).expect("reads"),
            fs::read(node.path("large").join(&last)).expect("reads")
        );
        println!("    {files} files, {pod} pod: published in {published:?}, one read after {:?}", began.elapsed());
        let equal = Command::new("diff").args(["-r", "large"]).arg(&target).current_dir(node.path("")).status();
        assert!(equal.expect("starts").success(), "{pod}");
        node.unpublish(pod);
    }
    node.has_nothing_left();
}
