//! The plugin, the broker or the node ends at any time.

use std::fs;
use std::process::Command;
use std::time::Duration;

use larder_testkit::Tree;

use crate::fixture::{KEY, Node, client, wait};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("a_plugin_is_killed_while_it_mounts", a_plugin_is_killed_while_it_mounts),
    ("a_plugin_is_killed_while_it_unmounts", a_plugin_is_killed_while_it_unmounts),
    ("a_volume_stays_while_the_plugin_is_gone", a_volume_stays_while_the_plugin_is_gone),
    ("a_volume_stays_while_the_broker_is_gone", a_volume_stays_while_the_broker_is_gone),
    ("a_node_that_was_restarted_has_nothing_left", a_node_that_was_restarted_has_nothing_left),
];

const OPTIONS: [&str; 2] = ["--writes-max", "64"];
/// The number of kills. `LARDER_TEST_KILLS` sets another one.
const KILLS: u64 = 12;

fn kills() -> u64 {
    std::env::var("LARDER_TEST_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS)
}

/// Starts a call and kills the plugin after a delay, whether the call has been answered or not.
fn killed_after<T: Send>(node: &mut Node, delay: Duration, call: impl Future<Output = T> + Send) {
    std::thread::scope(|scope| {
        let called = scope.spawn(|| wait(call));
        std::thread::sleep(delay);
        node.kill_plugin();
        drop(called.join());
    });
}

/// Kills the plugin while it mounts. In every other round, kubelet asks for the volume again before it ends.
fn a_plugin_is_killed_while_it_mounts() {
    let mut node = Node::new(&OPTIONS);
    let saved = Tree::of(&node.path("deps"));
    node.publish("first", &[("key", KEY)]).expect("is mounted");
    node.unpublish("first");
    for round in 0..kills() {
        let asked = node.asked("pod", &[("key", KEY)]);
        let socket = node.path("csi.sock");
        // From before the image is found until after everything is mounted.
        let delay = Duration::from_millis(round * 400 / kills());
        killed_after(&mut node, delay, async move { client(socket).node_publish_volume(asked).await });
        node.start_plugin();
        if round % 2 == 0 {
            let target = node.publish("pod", &[("key", KEY)]).expect("is mounted");
            assert_eq!(Tree::of(&target), saved, "round {round}");
            fs::write(target.join("new"), "new").expect("writes");
        }
        node.unpublish("pod");
        node.has_nothing_left();
    }
}

fn a_plugin_is_killed_while_it_unmounts() {
    let mut node = Node::new(&OPTIONS);
    for round in 0..kills() {
        let target = node.publish("pod", &[("key", KEY)]).expect("is mounted");
        let target_path = target.to_str().expect("is UTF-8").to_owned();
        let asked = larder_csi::proto::NodeUnpublishVolumeRequest { volume_id: "pod".to_owned(), target_path };
        let socket = node.path("csi.sock");
        let delay = Duration::from_millis(round * 60 / kills());
        killed_after(&mut node, delay, async move { client(socket).node_unpublish_volume(asked).await });
        node.start_plugin();
        node.unpublish("pod");
        node.has_nothing_left();
    }
}

fn a_volume_stays_while_the_plugin_is_gone() {
    let mut node = Node::new(&OPTIONS);
    let target = node.publish("pod", &[("key", KEY)]).expect("is mounted");
    let empty = node.publish("empty", &[("key", "other-1")]).expect("is mounted");
    fs::write(target.join("new"), "new").expect("writes");
    fs::write(empty.join("new"), "new").expect("writes");
    node.kill_plugin();
    assert_eq!(fs::read(target.join("top")).expect("reads"), b"top");
    node.start_plugin();
    for target in [&target, &empty] {
        assert_eq!(fs::read(target.join("new")).expect("reads"), b"new");
        fs::write(target.join("more"), "more").expect("writes");
    }
    assert_eq!(node.publish("pod", &[("key", KEY)]).expect("is mounted already"), target);
    assert_eq!(fs::read(target.join("new")).expect("is the same volume"), b"new");
    node.unpublish("pod");
    node.unpublish("empty");
    node.has_nothing_left();
}

fn a_volume_stays_while_the_broker_is_gone() {
    let mut node = Node::new(&OPTIONS);
    let saved = Tree::of(&node.path("deps"));
    let target = node.publish("pod", &[("key", KEY)]).expect("is mounted");
    node.kill_broker();
    let empty = node.publish("without", &[("key", KEY)]).expect("is mounted empty");
    assert_eq!(fs::read_dir(&empty).expect("lists").count(), 0);
    node.start_broker();
    assert_eq!(Tree::of(&target), saved);
    let again = node.publish("again", &[("key", KEY)]).expect("is mounted");
    assert_eq!(Tree::of(&again), saved);
    ["pod", "without", "again"].iter().for_each(|volume| node.unpublish(volume));
    node.has_nothing_left();
}

/// Leaves the state directory and no mounts, as a restart of the machine does.
fn a_node_that_was_restarted_has_nothing_left() {
    let mut node = Node::new(&OPTIONS);
    for volume in ["pod", "other"] {
        let target = node.publish(volume, &[("key", KEY)]).expect("is mounted");
        fs::write(target.join("new"), "new").expect("writes");
    }
    node.kill_plugin();
    for volume in ["pod", "other"] {
        assert!(Command::new("umount").arg(node.target(volume)).status().expect("starts").success());
    }
    node.start_plugin();
    node.has_nothing_left();
    let target = node.publish("pod", &[("key", KEY)]).expect("is mounted");
    assert!(!target.join("new").exists());
    node.unpublish("pod");
    node.unpublish("other");
    node.has_nothing_left();
}
