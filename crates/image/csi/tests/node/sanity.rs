//! The tests that the Kubernetes project has for every driver.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::controller;
use crate::fixture::{KEY, Node};

pub(crate) const TESTS: &[(&str, fn())] = &[("csi_sanity", csi_sanity)];

/// `csi-sanity` makes volumes by a controller, which drivers for inline volumes do not have. So this test has one,
/// which is not tested itself.
fn csi_sanity() {
    let Some(program) = larder_testkit::program("csi-sanity") else {
        return eprintln!("skipped: csi-sanity is missing (`cargo xtask setup` installs it, with Go)");
    };
    let node = Node::new(&["--writes-max", "64"]);
    let identity = sanity(&program, &node, &["--ginkgo.focus=Identity Service".to_owned()]);
    assert!(identity.contains("GetPluginCapabilities"), "{identity}");
    controller::serve_apart(&node.path("controller.sock"));
    let parameters = format!("csi.storage.k8s.io/ephemeral: \"true\"\nkey: {KEY}\n");
    fs::write(node.path("parameters"), parameters).expect("writes");
    let volumes = [
        "--ginkgo.skip=Controller S|Identity Service".to_owned(),
        format!("--csi.controllerendpoint=unix://{}", node.text("controller.sock")),
        format!("--csi.testvolumeparameters={}", node.text("parameters")),
    ];
    let volumes = sanity(&program, &node, &volumes);
    for tested in ["should remove target path", "should be idempotent"] {
        assert!(volumes.contains(tested), "`{tested}` was not tested: {volumes}");
    }
    node.has_nothing_left();
}

/// Runs it, and returns what it printed.
fn sanity(program: &Path, node: &Node, options: &[String]) -> String {
    let mut sanity = Command::new(program);
    for (option, path) in [("mountdir", "kubelet/sanity"), ("stagingdir", "kubelet/staging")] {
        sanity.arg(format!("--csi.{option}={}", node.text(path)));
    }
    sanity.arg(format!("--csi.endpoint=unix://{}", node.text("csi.sock"))).args(options);
    let ran = sanity.args(["--ginkgo.no-color", "--ginkgo.v"]).output().expect("starts");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{said}");
    for line in said.lines().filter(|line| line.starts_with("Ran ") || line.starts_with("SUCCESS!")) {
        println!("       csi-sanity: {line}");
    }
    said
}
