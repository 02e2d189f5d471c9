//! Each backend shows the same tree, is writable, and leaves nothing behind.

use std::fs;
use std::path::Path;

use larder_mount::{
    Ask, Backend, Image, Lease, Life, MountError, Owners, Places, Scratch, choose, erofs_by_loop_device, ladder,
    overlay, owned_by,
};

use crate::fixture::{Fixture, Test, append, layer};
use crate::served;

pub(crate) const TESTS: &[Test] = &[
    ("ladder_of_this_machine", ladder_of_this_machine),
    ("every_rung_shows_the_same_tree", every_rung_shows_the_same_tree),
    ("handles_take_their_mounts_with_them", handles_take_their_mounts_with_them),
    ("two_jobs_write_to_one_image", two_jobs_write_to_one_image),
    ("owners_are_seen_as_others", owners_are_seen_as_others),
    ("what_is_refused_says_why", what_is_refused_says_why),
];

/// Returns the mounts that this process sees, one line each.
pub(crate) fn mounts() -> Vec<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").expect("is there");
    text.lines().map(str::to_owned).collect()
}

pub(crate) fn ask<'a>(image: &'a Image, target: &'a Path, via: Backend) -> Ask<'a> {
    Ask {
        name: "deps",
        user: 0,
        image,
        target,
        layer: None,
        via,
        writable: true,
        owners: None,
        lease: Lease::Held,
        life: Life::AsMount,
        over: false,
        inside: None,
    }
}

fn ladder_of_this_machine() {
    let fixture = Fixture::new();
    let before = mounts();
    let found = ladder(&fixture.make("images"));
    for step in &found {
        println!("    {}: {}", step.backend, step.found.clone().unwrap_or_else(|why| format!("not possible: {why}")));
        assert!(step.found.as_ref().err().is_none_or(|why| !why.is_empty()));
    }
    assert_eq!(found.iter().map(|step| step.backend).collect::<Vec<_>>(), Backend::ALL);
    assert!(found.last().expect("there are some").found.is_ok(), "`unpack` works everywhere");
    assert_eq!(mounts(), before);
    assert!(fs::read_dir(fixture.path("images")).expect("is there").next().is_none(), "the tiny images are removed");
    // If the images cannot be written, each backend reports that.
    assert!(ladder(Path::new("/proc/no")).iter().all(|step| step.found.is_err()));
}

fn images(fixture: &Fixture) -> Vec<(Backend, Image)> {
    let backends = [Backend::Mount, Backend::LazyFuse, Backend::Fuse];
    let erofs = fixture.erofs().into_iter().flat_map(|image| backends.map(|backend| (backend, image.clone())));
    let squashfs = fixture.squashfs().into_iter();
    let squashfs = squashfs.flat_map(|image| [(Backend::Squashfs, image.clone()), (Backend::Fuse, image)]);
    erofs.chain(squashfs).collect()
}

fn every_rung_shows_the_same_tree() {
    let fixture = Fixture::new();
    let found = ladder(&fixture.make("images"));
    let places = Places::open(&fixture.path("state")).expect("opens");
    let target = fixture.make("target");
    for (backend, image) in images(&fixture) {
        if let Err(error) = choose(&found, &image, Some(backend)) {
            println!("    skipped: {error}");
            continue;
        }
        let before = mounts();
        let served = (backend == Backend::LazyFuse).then(|| served::whole(&image));
        let ask = |image, target, backend| Ask {
            layer: served.as_ref().map(|(layer, _)| layer),
            ..ask(image, target, backend)
        };
        let stay = places.mount(&ask(&image, &target, backend)).unwrap_or_else(|error| panic!("{backend}: {error}"));
        fixture.assert_same(&target);
        append(&target.join("deep/er/file1"), b"more");
        append(&target.join("new"), b"new");
        fs::remove_file(target.join("large")).expect("removes");
        fs::remove_dir(target.join("empty")).expect("removes");
        assert!(!target.join("large").exists());
        assert_eq!(places.list().expect("lists").len(), 1);
        assert!(matches!(places.mount(&ask(&image, &target, backend)), Err(MountError::Taken(_))));
        stay.end().unwrap_or_else(|error| panic!("{backend}: {error}"));
        assert_eq!(mounts(), before, "{backend}");
        assert!(fs::read_dir(fixture.path("state")).expect("is there").next().is_none(), "{backend}: nothing is left");
        assert!(fs::read_dir(&target).expect("is there").next().is_none(), "{backend}");
        // What was written is gone, and the image is unchanged. The second mount is read-only.
        let stay = places.mount(&Ask { writable: false, ..ask(&image, &target, backend) }).expect("mounts again");
        fixture.assert_same(&target);
        assert!(fs::write(target.join("new"), b"").is_err(), "{backend}: is read-only");
        drop(stay);
        assert_eq!(mounts(), before, "{backend}");
    }
}

fn handles_take_their_mounts_with_them() {
    let fixture = Fixture::new();
    let Some((_, image)) = fixture.of_kernel() else { return };
    let (before, target) = (mounts(), fixture.make("target"));
    let layer = layer(&image).expect("mounts");
    assert_eq!(mounts(), before, "the mount is detached");
    let placed = layer.another().expect("clones").place(&target).expect("is placed");
    fixture.assert_same(&target);
    placed.number().expect("has one");
    drop(placed);
    assert_eq!(mounts(), before);
    // An open file is still readable after the mount is removed.
    let placed = layer.another().expect("clones").place(&target).expect("is placed");
    let file = fs::File::open(target.join("large")).expect("opens");
    placed.take_away().expect("unmounts");
    assert_eq!(
        std::io::read_to_string(file).map(|_| ()).map_err(|error| error.kind()).err(),
        Some(std::io::ErrorKind::InvalidData)
    );
    // A subdirectory as a mount, and a subdirectory of that.
    let below = layer.below("deep").and_then(|deep| deep.below("er")).expect("is a directory");
    let placed = below.place(&target).expect("is placed");
    assert_eq!(fs::read_dir(&target).expect("lists").count(), 41);
    drop(placed);
    assert!(layer.below("large").is_err() && layer.below("nowhere").is_err());
    if let Image::Erofs { metadata, data } = &image {
        match erofs_by_loop_device(metadata, data.as_deref()) {
            Ok(by_device) => {
                let placed = by_device.place(&target).expect("is placed");
                fixture.assert_same(&target);
                placed.take_away().expect("unmounts");
            }
            Err(error) => println!("    skipped: {error}"),
        }
    }
    let scratch = Scratch::make(&fixture.path("scratch")).expect("makes");
    let above = overlay(&layer, &scratch).expect("is possible").place(&target).expect("is placed");
    fixture.assert_same(&target);
    drop(above);
    drop(scratch);
    assert_eq!(mounts(), before);
    assert!(!fixture.path("scratch/upper").exists());
    // A mount that was copied can still be attached.
    layer.place(&target).expect("is placed").take_away().expect("unmounts");
    assert_eq!(mounts(), before);
}

fn two_jobs_write_to_one_image() {
    let fixture = Fixture::new();
    let Some((backend, image)) = fixture.of_kernel() else { return };
    let places = Places::open(&fixture.path("state")).expect("opens");
    let targets = [fixture.make("one"), fixture.make("two")];
    let stays: Vec<_> =
        targets.iter().map(|target| places.mount(&ask(&image, target, backend)).expect("mounts")).collect();
    std::thread::scope(|scope| {
        for (job, target) in targets.iter().enumerate() {
            scope.spawn(move || {
                for number in 0..40 {
                    append(&target.join(format!("deep/er/file{number}")), format!("job {job}").as_bytes());
                    append(&target.join(format!("new{number}")), format!("job {job}").as_bytes());
                }
            });
        }
    });
    for (job, target) in targets.iter().enumerate() {
        for number in 0..40 {
            let path = format!("deep/er/file{number}");
            let mut expect = fs::read(fixture.tree().join(&path)).expect("reads");
            expect.extend(format!("job {job}").bytes());
            assert!(fs::read(target.join(&path)).expect("reads") == expect, "{path}");
            assert_eq!(fs::read_to_string(target.join(format!("new{number}"))).expect("reads"), format!("job {job}"));
        }
    }
    drop(stays);
    fixture.assert_same(&fixture.tree());
}

fn owners_are_seen_as_others() {
    use std::os::unix::fs::MetadataExt;
    let fixture = Fixture::new();
    let Some((backend, image)) = fixture.of_kernel() else { return };
    let owners = Owners::one((0, 0), (1234, 1235));
    let layer = layer(&image).expect("mounts");
    if let Err(error) = owned_by(&layer, &owners) {
        println!("    skipped: {error}");
        return;
    }
    let places = Places::open(&fixture.path("state")).expect("opens");
    let target = fixture.make("target");
    let stay = places.mount(&Ask { owners: Some(&owners), ..ask(&image, &target, backend) }).expect("mounts");
    for name in ["", "large", "deep", "pointer"] {
        let look = fs::symlink_metadata(target.join(name)).expect("is there");
        assert_eq!((look.uid(), look.gid()), (1234, 1235), "{name}");
    }
    // The user that is shown as the owner may change files that belong to root in the image.
    let line = format!("echo more >>{0}/deep/er/file1 && echo new >{0}/deep/new && rm {0}/large", target.display());
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid=1234", "--regid=1235", "--clear-groups", "sh", "-c", &line]);
    fs::set_permissions(fixture.path(""), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("changes");
    assert!(command.status().expect("setpriv runs").success());
    let look = fs::metadata(target.join("deep/er/file1")).expect("is there");
    assert_eq!((look.uid(), look.gid()), (1234, 1235));
    stay.end().expect("unmounts");
}

fn what_is_refused_says_why() {
    let fixture = Fixture::new();
    let places = Places::open(&fixture.path("state")).expect("opens");
    let target = fixture.make("target");
    fs::write(fixture.path("nonsense"), b"no image").expect("writes");
    let image = Image::Squashfs(fixture.path("nonsense"));
    let check = |asked: Ask, expect: &str| {
        let error = places.mount(&asked).expect_err("is refused").to_string();
        assert!(error.contains(expect), "{error}");
        assert!(fs::read_dir(fixture.path("state")).expect("is there").next().is_none(), "nothing is left");
    };
    check(ask(&image, &target, Backend::Squashfs), "nonsense cannot be mounted: create");
    check(ask(&image, &target, Backend::Mount), "`mount` is not possible here: it is not for a squashfs image");
    check(ask(&image, &fixture.path("nowhere"), Backend::Squashfs), "nowhere: is not a directory to mount on");
    let missing = Image::Erofs { metadata: fixture.path("missing"), data: None };
    check(ask(&missing, &target, Backend::Mount), "missing: cannot be found");
    check(ask(&image, &fixture.tree(), Backend::Squashfs), "tree: is not empty");
    assert!(matches!(places.unmount(&target), Err(MountError::NotMounted(_))));
}
