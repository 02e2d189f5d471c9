//! A process of a run uses what another process found out about a file only if the file and its
//! path are still the same.
#![cfg(target_os = "linux")]

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use larder_observe::{EventKind, Observed, Observer, PreloadObserver};
use larder_spawn::{Command, Destinations};

/// A temporary directory of the test.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        let root = std::env::temp_dir().join(format!("larder-known-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).expect("makes");
        Place(root.canonicalize().expect("is there"))
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("is text").to_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(script: &str) -> Observed {
    let argv = ["sh", "-c", script].map(|word| word.as_bytes().to_vec()).to_vec();
    let command = Command::new(b"/bin/sh".to_vec(), argv, vec![b"PATH=/usr/bin:/bin".to_vec()]);
    let observer = PreloadObserver::new().expect("can be made");
    observer.run(&command, &Destinations::now(), None).expect("runs")
}

/// Returns the programs that began, each with its inode.
fn began(observed: &Observed) -> Vec<(String, u64)> {
    let starts = observed.trace.iter().filter(|event| event.kind == EventKind::Start);
    let of = |event: larder_observe::Event<&[u8]>| {
        (String::from_utf8_lossy(event.path).into_owned(), event.identity.map_or(0, |identity| identity.inode))
    };
    starts.map(of).collect()
}

fn inode(path: &str) -> u64 {
    Path::new(path).metadata().expect("is there").ino()
}

fn drops(observed: &Observed) -> usize {
    observed.trace.iter().filter(|event| event.kind == EventKind::Drop).count()
}

/// This is a single test, because signal handlers and children belong to the whole process.
#[test]
fn it_is_the_same_file_under_the_same_name() {
    let place = Place::new();
    let [one, other, link, hard, script] = ["one", "other", "link", "hard", "script"].map(|name| place.path(name));
    for (from, to) in [("/bin/true", &one), ("/bin/echo", &other)] {
        larder_testkit::copy_program(from, to);
    }
    symlink("one", &link).expect("links");
    std::fs::hard_link(&one, &hard).expect("links");
    larder_testkit::write_program(&script, "#!/bin/sh\n:\n");
    let (true_inode, echo_inode) = (inode(&one), inode(&other));
    let (sh, sh_inode) = (Path::new("/bin/sh").canonicalize().expect("is there"), inode("/bin/sh"));
    let sh = sh.to_str().expect("is text");
    // Each program runs twice, so that it is known the second time. Then its path is another
    // program's, first as a link and then as a file, and at last its own again.
    let observed = run(&format!(
        "for i in 1 2; do {one}; {link}; {hard}; {script}; done; ln -sf other {link}; {link}; {link}; \
         mv {one} {one}.old; cp {other} {one}; {one}; {one}; mv {one}.old {one}; {one}; {one}; :"
    ));
    let of_place = |(path, inode): &(String, u64)| {
        let own = [one.as_str(), &hard, &other].contains(&path.as_str());
        own || path == sh && *inode == sh_inode
    };
    let began: Vec<(String, u64)> = began(&observed).into_iter().filter(of_place).collect();
    let name = |path: &str| path.to_owned();
    let four = [(name(&one), true_inode), (name(&one), true_inode), (name(&hard), true_inode), (name(sh), sh_inode)];
    let is_copy = began[11].1 != true_inode && began[11].1 != echo_inode;
    assert!(is_copy && began[11] == began[12], "{began:?}");
    let copy = began[11].clone();
    assert_eq!(copy.0, one);
    let expected = [
        &[(name(sh), sh_inode)][..],
        &four,
        &four,
        &[(name(&other), echo_inode), (name(&other), echo_inode)],
        &[copy.clone(), copy],
        &[(name(&one), true_inode), (name(&one), true_inode)],
    ];
    assert_eq!(began, expected.concat());
    assert_eq!(drops(&observed), 0);
    what_was_judged_is_judged_again_when_it_changes(&place);
}

/// The library may go along with the program until the program becomes set-user-id.
fn what_was_judged_is_judged_again_when_it_changes(place: &Place) {
    let tool = place.path("tool");
    larder_testkit::copy_program("/bin/true", &tool);
    // A file that was changed in the last seconds before the run is never taken as known.
    std::thread::sleep(std::time::Duration::from_secs(3));
    let observed = run(&format!("{tool}; {tool}; chmod u+s {tool}; {tool}; {tool}; chmod u-s {tool}; {tool}; :"));
    assert_eq!(drops(&observed), 2);
}
