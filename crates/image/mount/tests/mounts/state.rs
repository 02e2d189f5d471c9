//! What is left of mounts whose owners died, and that a sweep removes it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use larder_mount::{Ask, Backend, Image, Lease, MountError, Places};
use larder_sys::{MountNumber, mount_number, open_place};

use crate::backends::{ask, mounts};
use crate::fixture::{Fixture, Test, append};

pub(crate) const TESTS: &[Test] = &[
    ("a_killed_job_leaves_nothing_mounted", a_killed_job_leaves_nothing_mounted),
    ("what_is_kept_stays_until_it_is_unmounted", what_is_kept_stays_until_it_is_unmounted),
    ("killed_at_any_moment", killed_at_any_moment),
    ("a_stranger_with_the_same_number_stays", a_stranger_with_the_same_number_stays),
    ("a_mount_below_a_renamed_directory_is_found", a_mount_below_a_renamed_directory_is_found),
    ("an_error_with_one_mount_does_not_keep_the_others", an_error_with_one_mount_does_not_keep_the_others),
];

/// The limit for foreign mounts that are made until one of them gets a number that was freed.
/// Kernels reuse the lowest free number.
const STRANGERS_MAX: usize = 300;

/// The role of a job: mounts, prints a line, and waits to be killed.
pub(crate) fn mount_and_wait(arguments: &[String]) {
    let [state, backend, target, lease, files @ ..] = arguments else { panic!("{arguments:?}") };
    let backend: Backend = backend.parse().expect("is a rung");
    let image = match files {
        [metadata, data @ ..] if backend == Backend::Mount => {
            Image::Erofs { metadata: metadata.into(), data: data.first().map(Into::into) }
        }
        [file] => Image::Squashfs(file.into()),
        _ => panic!("{arguments:?}"),
    };
    let places = Places::open(Path::new(state)).expect("opens");
    let lease = match lease.as_str() {
        "held" => Lease::Held,
        "kept" => Lease::Kept,
        pid => Lease::of_process(pid.parse().expect("is a number")).expect("lives"),
    };
    let stay = places.mount(&Ask { lease, ..ask(&image, Path::new(target), backend) }).expect("mounts");
    println!("mounted");
    if lease != Lease::Held {
        return stay.leave();
    }
    std::thread::sleep(std::time::Duration::from_secs(60));
}

/// Starts this program in the role of a job.
fn somebody(fixture: &Fixture, (backend, image): &(Backend, Image), lease: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("is known"));
    command.arg("role-mount").arg(fixture.path("state")).arg(backend.word()).arg(fixture.make("target")).arg(lease);
    match image {
        Image::Erofs { metadata, data } => command.arg(metadata).args(data),
        Image::Squashfs(file) => command.arg(file),
    };
    command.stdout(Stdio::piped()).spawn().expect("starts")
}

fn wait_for_mount(child: &mut Child) {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("is piped")).read_line(&mut line).expect("reads");
    assert_eq!(line, "mounted\n");
}

fn a_killed_job_leaves_nothing_mounted() {
    let fixture = Fixture::new();
    let Some(image) = fixture.of_kernel() else { return };
    let (before, target) = (mounts(), fixture.make("target"));
    let places = Places::open(&fixture.path("state")).expect("opens");
    let mut job = somebody(&fixture, &image, "held");
    wait_for_mount(&mut job);
    append(&target.join("large"), b"more");
    assert!(places.sweep().expect("sweeps").is_empty(), "the job is still running");
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
    let Some(image) = fixture.of_kernel() else { return };
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
    // If another process unmounts it, a sweep removes what was written.
    let stay = places.mount(&Ask { lease: Lease::Kept, ..ask(&image.1, &target, image.0) }).expect("mounts");
    stay.leave();
    assert!(Command::new("umount").arg(&target).status().expect("runs").success());
    assert!(!places.list().expect("lists")[0].mounted);
    assert_eq!(places.sweep().expect("sweeps"), [target]);
}

fn killed_at_any_moment() {
    let fixture = Fixture::new();
    let Some(image) = fixture.of_kernel() else { return };
    let before = mounts();
    let places = Places::open(&fixture.path("state")).expect("opens");
    for micros in (0..6000).step_by(150) {
        let mut job = somebody(&fixture, &image, "held");
        std::thread::sleep(std::time::Duration::from_micros(micros));
        job.kill().expect("dies");
        job.wait().expect("died");
        places.sweep().expect("sweeps");
        assert_eq!(mounts(), before, "killed after {micros} µs");
        // A record that was just begun stays for a while, because its process could still be
        // running.
        for left in fs::read_dir(fixture.path("state")).expect("is there") {
            let left = left.expect("is listed").path();
            let names = fs::read_dir(&left).expect("is there").count();
            let text = fs::read_to_string(left.join("record")).expect("is there");
            assert!(names == 1 && !text.contains("target"), "killed after {micros} µs: {text}");
        }
    }
}

fn a_stranger_with_the_same_number_stays() {
    let fixture = Fixture::new();
    let Some((backend, image)) = fixture.of_kernel() else { return };
    let (before, target) = (mounts(), fixture.make("target"));
    let places = Places::open(&fixture.path("state")).expect("opens");
    let number = || mount_number(open_place(&target).expect("opens")).expect("has one");
    for writable in [true, false] {
        let asked = Ask { lease: Lease::Kept, writable, ..ask(&image, &target, backend) };
        places.mount(&asked).expect("mounts").leave();
        let ours = number();
        assert_eq!(places.list().expect("lists")[0].number, Some(ours));
        assert!(places.list().expect("lists")[0].mounted);
        assert!(Command::new("umount").arg(&target).status().expect("runs").success());
        // Foreign file systems are mounted there on top of each other, until one of them gets the
        // number that was ours.
        let mut strangers = 0;
        loop {
            let mounted = Command::new("mount").args(["-t", "tmpfs", "stranger"]).arg(&target).status();
            assert!(mounted.expect("runs").success());
            strangers += 1;
            match ours {
                MountNumber::Unique(_) if strangers == 3 => break,
                MountNumber::Reused(_) if number() == ours => break,
                _ => assert!(strangers < STRANGERS_MAX, "the number {ours:?} was not reused"),
            }
        }
        assert!(!places.list().expect("lists")[0].mounted, "the mount is not ours");
        assert!(matches!(places.unmount(&target), Err(MountError::NotMounted(_))));
        assert_eq!(places.sweep().expect("sweeps"), std::slice::from_ref(&target));
        assert_eq!(mounts().len(), before.len() + strangers);
        for _ in 0..strangers {
            assert!(Command::new("umount").arg(&target).status().expect("runs").success());
        }
        assert_eq!(mounts(), before);
    }
}

fn a_mount_below_a_renamed_directory_is_found() {
    let fixture = Fixture::new();
    let Some((backend, image)) = fixture.of_kernel() else { return };
    let before = mounts();
    let places = Places::open(&fixture.path("state")).expect("opens");
    for writable in [true, false] {
        let (old, new) = (fixture.make("parent").join("target"), fixture.path("renamed/target"));
        let mount = || {
            fs::create_dir(&old).expect("makes");
            let asked = Ask { lease: Lease::Kept, writable, ..ask(&image, &old, backend) };
            places.mount(&asked).expect("mounts").leave();
        };
        mount();
        fs::rename(fixture.path("parent"), fixture.path("renamed")).expect("renames");
        assert!(places.sweep().expect("sweeps").is_empty(), "it is still mounted, at another path");
        let listed = places.list().expect("lists");
        assert_eq!((listed[0].mounted, &listed[0].target), (true, &new));
        fixture.assert_same(&new);
        // The old path is free again.
        fixture.make("parent");
        mount();
        assert_eq!(places.list().expect("lists").iter().filter(|mount| mount.mounted).count(), 2);
        assert!(matches!(places.mount(&ask(&image, &new, backend)), Err(MountError::Taken(_))));
        assert!(
            matches!(places.unmount(&new.join("deep")), Err(MountError::NotMounted(_))),
            "a subdirectory is not the mount"
        );
        for target in [&new, &old] {
            places.unmount(target).expect("unmounts");
        }
        assert_eq!(mounts(), before);
        assert!(fs::read_dir(fixture.path("state")).expect("is there").next().is_none());
        fs::remove_dir_all(fixture.path("renamed")).expect("removes");
        fs::remove_dir_all(fixture.path("parent")).expect("removes");
    }
}

fn an_error_with_one_mount_does_not_keep_the_others() {
    let fixture = Fixture::new();
    let Some((backend, image)) = fixture.of_kernel() else { return };
    let before = mounts();
    let places = Places::open(&fixture.path("state")).expect("opens");
    let mut sleeper = Command::new("sleep").arg("60").spawn().expect("starts");
    let targets: Vec<_> = (0..8).map(|number| fixture.make(&format!("parent{number}/target"))).collect();
    for target in &targets {
        let lease = Lease::of_process(sleeper.id()).expect("lives");
        places.mount(&Ask { lease, ..ask(&image, target, backend) }).expect("mounts").leave();
    }
    sleeper.kill().expect("dies");
    sleeper.wait().expect("died");
    // Two of the mounts are hidden by other mounts, so that they cannot be unmounted. One record is
    // a directory.
    let hidden = [fixture.path("parent2"), fixture.path("parent5")];
    for parent in &hidden {
        assert!(Command::new("mount").args(["-t", "tmpfs", "hides"]).arg(parent).status().expect("runs").success());
    }
    fs::create_dir_all(fixture.path("state/odd/record")).expect("makes");
    let error = places.sweep().expect_err("three errors are reported").to_string();
    assert_eq!(error.matches("cannot be unmounted").count(), 2, "{error}");
    assert_eq!(error.matches("its record cannot be read").count(), 1, "{error}");
    let left = places.list().expect("lists");
    assert!(left.len() == 2 && left.iter().all(|mount| mount.mounted), "{left:?}");
    for mount in &left {
        let scratch = fixture.path("state").join(&mount.id).join("upper");
        assert!(scratch.exists(), "a mount that exists keeps what was written");
    }
    for parent in &hidden {
        assert!(Command::new("umount").arg(parent).status().expect("runs").success());
    }
    fs::remove_dir_all(fixture.path("state/odd")).expect("removes");
    assert_eq!(places.sweep().expect("sweeps").len(), 2);
    assert_eq!(mounts(), before);
    assert!(fs::read_dir(fixture.path("state")).expect("is there").next().is_none());
}
