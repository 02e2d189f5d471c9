//! What is left of mounts whose owners died, and that it is taken away.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use larder_mount::{Ask, Image, Lease, Places, Rung};

use crate::fixture::{Fixture, Test, append};
use crate::rungs::{ask, mounts};

pub(crate) const TESTS: &[Test] = &[
    ("a_killed_job_leaves_nothing_mounted", a_killed_job_leaves_nothing_mounted),
    ("what_is_kept_stays_until_it_is_unmounted", what_is_kept_stays_until_it_is_unmounted),
    ("killed_at_any_moment", killed_at_any_moment),
];

/// Mount, say so, and wait to be killed.
pub(crate) fn mount_and_wait(arguments: &[String]) {
    let [state, metadata, data, target, lease] = arguments else { panic!("{arguments:?}") };
    let image = Image::Erofs { metadata: metadata.into(), data: Some(data.into()) };
    let places = Places::open(Path::new(state)).expect("opens");
    let lease = match lease.as_str() {
        "held" => Lease::Held,
        "kept" => Lease::Kept,
        pid => Lease::of_process(pid.parse().expect("is a number")).expect("lives"),
    };
    let stay = places.mount(&Ask { lease, ..ask(&image, Path::new(target), Rung::Mount) }).expect("mounts");
    println!("mounted");
    if lease != Lease::Held {
        return stay.leave();
    }
    std::thread::sleep(std::time::Duration::from_secs(60));
}

/// This program as somebody who mounts.
fn somebody(fixture: &Fixture, image: &Image, lease: &str) -> Child {
    let Image::Erofs { metadata, data: Some(data) } = image else { unreachable!("was made so") };
    let mut command = Command::new(std::env::current_exe().expect("is known"));
    command.arg("role-mount").arg(fixture.path("state")).arg(metadata).arg(data).arg(fixture.make("target")).arg(lease);
    command.stdout(Stdio::piped()).spawn().expect("starts")
}

fn wait_for_mount(child: &mut Child) {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("is piped")).read_line(&mut line).expect("reads");
    assert_eq!(line, "mounted\n");
}

fn a_killed_job_leaves_nothing_mounted() {
    let fixture = Fixture::new();
    let Some(image) = fixture.erofs() else { return };
    let (before, target) = (mounts(), fixture.make("target"));
    let places = Places::open(&fixture.path("state")).expect("opens");
    let mut job = somebody(&fixture, &image, "held");
    wait_for_mount(&mut job);
    append(&target.join("large"), b"more");
    assert!(places.sweep().expect("sweeps").is_empty(), "it lives");
    assert!(places.list().expect("lists")[0].mounted);
    job.kill().expect("dies");
    job.wait().expect("died");
    assert!(mounts().len() > before.len());
    assert_eq!(places.sweep().expect("sweeps"), [target]);
    assert_eq!(mounts(), before);
    assert!(fs::read_dir(fixture.path("state")).expect("is there").next().is_none());
}

fn what_is_kept_stays_until_it_is_unmounted() {
    let fixture = Fixture::new();
    let Some(image) = fixture.erofs() else { return };
    let (before, target) = (mounts(), fixture.make("target"));
    let places = Places::open(&fixture.path("state")).expect("opens");
    let mut sleeper = Command::new("sleep").arg("60").spawn().expect("starts");
    for lease in ["kept", &sleeper.id().to_string()] {
        let mut job = somebody(&fixture, &image, lease);
        wait_for_mount(&mut job);
        assert!(job.wait().expect("ends").success());
        assert!(places.sweep().expect("sweeps").is_empty());
        fixture.assert_same(&target);
        places.unmount(&target).expect("unmounts");
        assert_eq!(mounts(), before);
    }
    let mut job = somebody(&fixture, &image, &sleeper.id().to_string());
    wait_for_mount(&mut job);
    assert!(job.wait().expect("ends").success());
    sleeper.kill().expect("dies");
    sleeper.wait().expect("died");
    assert_eq!(places.sweep().expect("sweeps"), std::slice::from_ref(&target));
    assert_eq!(mounts(), before);
    // Unmounted by somebody else: what it wrote is swept.
    let stay = places.mount(&Ask { lease: Lease::Kept, ..ask(&image, &target, Rung::Mount) }).expect("mounts");
    stay.leave();
    assert!(Command::new("umount").arg(&target).status().expect("runs").success());
    assert!(!places.list().expect("lists")[0].mounted);
    assert_eq!(places.sweep().expect("sweeps"), [target]);
}

fn killed_at_any_moment() {
    let fixture = Fixture::new();
    let Some(image) = fixture.erofs() else { return };
    let before = mounts();
    let places = Places::open(&fixture.path("state")).expect("opens");
    for micros in (0..6000).step_by(150) {
        let mut job = somebody(&fixture, &image, "held");
        std::thread::sleep(std::time::Duration::from_micros(micros));
        job.kill().expect("dies");
        job.wait().expect("died");
        places.sweep().expect("sweeps");
        assert_eq!(mounts(), before, "killed after {micros} µs");
        // A record that was just begun stays for a while: it could be that of somebody who lives.
        for left in fs::read_dir(fixture.path("state")).expect("is there") {
            let left = left.expect("is listed").path();
            let names = fs::read_dir(&left).expect("is there").count();
            let text = fs::read_to_string(left.join("record")).expect("is there");
            assert!(names == 1 && !text.contains("target"), "killed after {micros} µs: {text}");
        }
    }
}
