//! larder's own FUSE server: it shows the same tree, fetches bytes when they are read, and never
//! returns zeros. Nothing is left when it or the process that mounts is killed.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use larder_mount::lazy::Trace;
use larder_mount::serve::{Bytes, Filled, Served, Server, ToServe, mount, possible, serve};
use larder_mount::{Ask, Backend, Image, Life, Mount, Owners, Places};

use crate::backends::{ask, mounts};
use crate::fixture::{Fixture, LARGE_BYTES, Test, bytes};
use crate::lazy::{FromFile, until};

pub(crate) const TESTS: &[Test] = &[
    ("a_server_fetches_what_is_read", a_server_fetches_what_is_read),
    ("a_fetch_that_fails_is_an_error_and_never_zeros", a_fetch_that_fails_is_an_error_and_never_zeros),
    ("a_slow_fetch_holds_up_nothing_else", a_slow_fetch_holds_up_nothing_else),
    ("a_server_that_is_killed_leaves_errors", a_server_that_is_killed_leaves_errors),
    ("a_server_ends_with_its_mount_and_with_who_started_it", a_server_ends_with_its_mount_and_with_who_started_it),
    ("what_is_served_has_other_owners", what_is_served_has_other_owners),
    ("two_servers_fill_one_file", two_servers_fill_one_file),
    ("attributes_holes_and_acls_are_served", attributes_holes_and_acls_are_served),
    ("what_cannot_be_served_says_why", what_cannot_be_served_says_why),
];

/// The size of a piece of `FromFile`.
const PIECE_BYTES: usize = 64 << 10;

pub(crate) fn server_command() -> Vec<OsString> {
    vec![std::env::current_exe().expect("is known").into(), "role-serve".into()]
}

/// The name by which a test server is told what to serve, as fields separated by tabs.
#[derive(Clone)]
pub(crate) struct Told<'a> {
    pub(crate) metadata: &'a Path,
    /// The file with all of the data.
    pub(crate) source: &'a Path,
    /// The directory of the data file that is filled. `None` if the source is served itself.
    pub(crate) directory: Option<&'a Path>,
    pub(crate) delay_ms: u64,
    /// While this file exists, every fetch fails.
    pub(crate) fails: &'a Path,
}

impl Told<'_> {
    pub(crate) fn name(&self) -> String {
        let Told { metadata, source, directory, delay_ms, fails } = self;
        let directory = directory.unwrap_or(Path::new("-"));
        let paths = [metadata, source, directory, fails].map(|path| path.display().to_string());
        format!("{delay_ms}\t{}", paths.join("\t"))
    }
}

/// Fetches like `FromFile`, but fails while a file exists.
struct Switched {
    fill: Arc<FromFile>,
    fails: PathBuf,
}

impl larder_mount::Fill for Switched {
    fn fill(&self, offset: u64, length: u64, into: std::os::fd::BorrowedFd<'_>) -> io::Result<()> {
        self.fill.fill(offset, length, into)?;
        if self.fails.exists() { Err(io::Error::other("told to fail")) } else { Ok(()) }
    }

    fn piece(&self, offset: u64) -> std::ops::Range<u64> {
        self.fill.piece(offset)
    }
}

/// Plays the role of a server, as `larderd` runs it.
pub(crate) fn be_server() {
    let socket = io::stdin().as_fd().try_clone_to_owned().expect("is open");
    serve(socket, |name| {
        let mut words = name.split('\t');
        let mut next = || words.next().map(PathBuf::from).ok_or_else(|| format!("{name} says too little"));
        let delay = next()?.to_string_lossy().parse().map_err(|_| format!("{name}: no delay"))?;
        let (metadata, source, directory, fails) = (next()?, next()?, next()?, next()?);
        let filled = || {
            let size_bytes = fs::metadata(&source).expect("is there").len();
            let fill = FromFile::new(&source, Duration::from_millis(delay));
            let fill = Arc::new(Switched { fill, fails: fails.clone() });
            let touched = directory.join("touched.txt");
            let traced = move |trace: &Trace| fs::write(&touched, trace.encode()).expect("writes");
            let (directory, traced) = (directory.clone(), Some(Arc::new(traced) as _));
            Filled { directory, size_bytes, fill, order: Vec::new(), traced }
        };
        let bytes = if directory == Path::new("-") { Bytes::Whole(source.clone()) } else { Bytes::Filled(filled()) };
        Ok(Served { metadata, bytes, lease: Arc::new(()) })
    })
    .expect("serves");
}

/// An image and the directory in which it is filled. `near` returns `None` after printing the
/// reason if a server is not possible here.
pub(crate) struct Near {
    pub(crate) fixture: Fixture,
    metadata: PathBuf,
    source: PathBuf,
    pub(crate) directory: PathBuf,
    fails: PathBuf,
}

pub(crate) fn near() -> Option<Near> {
    let fixture = Fixture::new();
    let Some(Image::Erofs { metadata, data: Some(source) }) = fixture.erofs() else { return None };
    if let Err(why) = possible() {
        println!("    skipped: {why}");
        return None;
    }
    let (directory, fails) = (fixture.path("served"), fixture.path("fails"));
    Some(Near { fixture, metadata, source, directory, fails })
}

impl Near {
    fn told(&self, delay_ms: u64) -> Told<'_> {
        let (metadata, source, directory) = (&*self.metadata, &*self.source, Some(&*self.directory));
        Told { metadata, source, directory, delay_ms, fails: &self.fails }
    }

    pub(crate) fn mount(&self, delay_ms: u64, life: Life) -> (Mount, Option<Server>) {
        served(&self.told(delay_ms), None, life)
    }

    pub(crate) fn image(&self) -> Image {
        Image::Erofs { metadata: self.metadata.clone(), data: None }
    }

    pub(crate) fn places(&self) -> Places {
        Places::open(&self.fixture.path("places")).expect("opens")
    }

    fn filled_bytes(&self) -> u64 {
        fs::metadata(self.directory.join("data")).expect("is there").blocks() * 512
    }
}

pub(crate) fn served(told: &Told, owners: Option<&Owners>, life: Life) -> (Mount, Option<Server>) {
    let (server, name) = (server_command(), told.name());
    mount(&ToServe { server: &server, from: None, name: &name, owners, life }).expect("is served")
}

/// Serves an image whose data is complete.
pub(crate) fn whole(image: &Image) -> (Mount, Option<Server>) {
    let Image::Erofs { metadata, data } = image else { panic!("{image:?} is not served") };
    // For kernels without devices in EROFS, the data is in the metadata.
    let source = data.as_deref().unwrap_or(metadata);
    let told = Told { metadata, source, directory: None, delay_ms: 0, fails: Path::new("/nowhere") };
    served(&told, None, Life::AsThread)
}

/// Returns the processes that serve the data file in that directory.
pub(crate) fn servers(of: &Path) -> Vec<u32> {
    let of = of.join("data");
    let pids =
        fs::read_dir("/proc").expect("is there").filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let opens = |pid: &u32| {
        let opened = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        opened.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|path| path == of)
    };
    pids.filter(|pid| *pid != std::process::id()).filter(opens).collect()
}

fn kill(pid: u32) {
    assert!(Command::new("kill").args(["-KILL", &pid.to_string()]).status().expect("runs").success());
}

fn a_server_fetches_what_is_read() {
    let Some(near) = near() else { return };
    let (before, target) = (mounts(), near.fixture.make("target"));
    let (layer, server) = near.mount(0, Life::AsThread);
    assert_eq!(mounts(), before, "the mount is detached");
    let image = near.image();
    let asked = ask(&image, &target, Backend::LazyFuse);
    let asked = Ask { layer: Some(&layer), ..asked };
    let stay = near.places().mount(&asked).expect("mounts");
    // Names and attributes need no data.
    assert_eq!(fs::read_dir(target.join("deep/er")).expect("is there").count(), 41);
    assert!(fs::read(target.join("deep/er/file7")).expect("reads") == bytes(7, 100 + 7 * 311));
    near.fixture.assert_same(&target);
    crate::fixture::append(&target.join("deep/er/file1"), b"more");
    fs::remove_file(target.join("large")).expect("removes");
    assert!(!target.join("large").exists() && !target.join("never").exists());
    stay.end().expect("unmounts");
    drop(layer);
    assert_eq!(mounts(), before);
    // Dropping the server waits until the trace was recorded.
    drop(server);
    let touched = fs::read_to_string(near.directory.join("touched.txt")).expect("was kept");
    let touched = Trace::decode(&touched).expect("is one");
    assert!(touched.ranges.iter().map(|range| range.end - range.start).sum::<u64>() > LARGE_BYTES as u64);
    until("the server ends", || servers(&near.directory).is_empty());
    // The second server must not fetch anything: each fetch would fail.
    if !near.directory.join("complete").exists() {
        // The first server ended after it had all data, and before it noted that. The next one
        // notes it before it serves.
        drop(near.mount(0, Life::AsThread));
    }
    assert!(near.directory.join("complete").exists());
    fs::write(&near.fails, b"").expect("writes");
    let (layer, _server) = near.mount(0, Life::AsThread);
    let placed = layer.place(&target).expect("is placed");
    near.fixture.assert_same(&target);
    drop(placed);
}

fn a_fetch_that_fails_is_an_error_and_never_zeros() {
    let Some(near) = near() else { return };
    let target = near.fixture.make("target");
    fs::write(&near.fails, b"").expect("writes");
    let (layer, _server) = near.mount(1, Life::AsThread);
    let placed = layer.place(&target).expect("is placed");
    for _ in 0..3 {
        for name in ["large", "deep/er/file39"] {
            let error = fs::read(target.join(name)).expect_err("nothing can be fetched");
            assert_eq!(error.raw_os_error(), Some(5), "{name}: {error}");
        }
    }
    assert_eq!(fs::read(target.join("nothing")).expect("has no bytes"), b"");
    // Once fetches succeed again, everything can be read.
    fs::remove_file(&near.fails).expect("removes");
    near.fixture.assert_same(&target);
    drop(placed);
}

fn a_slow_fetch_holds_up_nothing_else() {
    let Some(near) = near() else { return };
    let target = near.fixture.make("target");
    // A first server fetches some of the data, and is killed after a file was read.
    let (layer, server) = near.mount(500, Life::AsThread);
    let placed = layer.place(&target).expect("is placed");
    assert!(fs::read(target.join("deep/er/file7")).expect("reads") == bytes(7, 100 + 7 * 311));
    servers(&near.directory).into_iter().for_each(kill);
    drop((placed, server));
    assert!(near.filled_bytes() < LARGE_BYTES as u64, "the data file is not complete");
    let (layer, _server) = near.mount(3_600_000, Life::AsThread);
    let placed = layer.place(&target).expect("is placed");
    let (waiting, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        // More readers wait than the server has threads for requests, and than it fetches at once.
        for reader in 0..40 {
            let (target, waiting, failed) = (&target, &waiting, &failed);
            scope.spawn(move || {
                let file = File::open(target.join("large")).expect("opens");
                waiting.fetch_add(1, SeqCst);
                let (at, mut got) = (LARGE_BYTES - 1 - reader * PIECE_BYTES, [0; 1]);
                match file.read_exact_at(&mut got, at as u64) {
                    Ok(()) => assert_eq!(got[0], bytes(99, LARGE_BYTES)[at]),
                    Err(_) => drop(failed.fetch_add(1, SeqCst)),
                }
            });
        }
        until("all of them wait", || waiting.load(SeqCst) == 40);
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(fs::read_dir(target.join("deep/er")).expect("is there").count(), 41);
        assert_eq!(fs::read_link(target.join("pointer")).expect("is a link"), Path::new("deep/er/file7"));
        assert!(fs::read(target.join("deep/er/file7")).expect("is there") == bytes(7, 100 + 7 * 311));
        servers(&near.directory).into_iter().for_each(kill);
    });
    assert!(failed.load(SeqCst) > 16, "these readers waited until the server was killed");
    drop(placed);
}

fn a_server_that_is_killed_leaves_errors() {
    let Some(near) = near() else { return };
    let (before, target) = (mounts(), near.fixture.make("target"));
    for round in 0..10u64 {
        let _ = fs::remove_dir_all(&near.directory);
        let (layer, server) = near.mount(2, Life::AsMount);
        assert!(server.is_none(), "the server's life does not depend on a handle");
        let image = near.image();
        let asked = ask(&image, &target, Backend::LazyFuse);
        let stay = near.places().mount(&Ask { layer: Some(&layer), ..asked }).expect("mounts");
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| read_all(&near, &target));
            std::thread::sleep(Duration::from_millis(round * 7));
            servers(&near.directory).into_iter().for_each(kill);
            reading.join().expect("sees right bytes or errors");
        });
        let never = fs::metadata(target.join("deep/was never asked for")).expect_err("no server answers");
        // ENOENT, which is what an overlay says if the lookup failed, EIO, ENOTCONN, ECONNABORTED.
        assert!(matches!(never.raw_os_error(), Some(2 | 5 | 107 | 103)), "{never}");
        stay.end().expect("unmounts");
        drop(layer);
        assert_eq!(mounts(), before);
    }
}

/// Reads the whole tree from many threads. Each file reads right or fails.
fn read_all(near: &Near, target: &Path) {
    std::thread::scope(|scope| {
        for reader in 0..4 {
            scope.spawn(move || {
                let names = (0..40).map(|number| format!("deep/er/file{}", (number + reader * 10) % 40));
                for name in names.chain(["large".to_owned(), "sparse".to_owned()]) {
                    match fs::read(target.join(&name)) {
                        Ok(got) => assert!(got == fs::read(near.fixture.tree().join(&name)).expect("reads"), "{name}"),
                        // EIO, ENOTCONN, ECONNABORTED.
                        Err(error) if matches!(error.raw_os_error(), Some(5 | 107 | 103)) => {}
                        Err(error) => panic!("{name}: {error}"),
                    }
                }
            });
        }
    });
}

/// Plays the role of a job that mounts and waits to be killed: `METADATA SOURCE DIRECTORY TARGET
/// PLACES`.
pub(crate) fn serve_and_wait(arguments: &[String]) {
    let [metadata, source, directory, target, places] = arguments else { panic!("{arguments:?}") };
    let (metadata, source, directory) = (Path::new(metadata), Path::new(source), Some(Path::new(directory)));
    let told = Told { metadata, source, directory, delay_ms: 0, fails: Path::new("/nowhere") };
    let (layer, _server) = served(&told, None, Life::AsThread);
    let image = Image::Erofs { metadata: metadata.to_owned(), data: None };
    let asked = Ask { layer: Some(&layer), ..ask(&image, Path::new(target), Backend::LazyFuse) };
    let _stay = Places::open(Path::new(places)).expect("opens").mount(&asked).expect("mounts");
    println!("mounted");
    std::thread::sleep(Duration::from_secs(120));
}

fn a_server_ends_with_its_mount_and_with_who_started_it() {
    let Some(near) = near() else { return };
    let (before, target) = (mounts(), near.fixture.make("target"));
    // A server ends with the last use of its mount. An open file is a use.
    let (layer, _) = near.mount(0, Life::AsMount);
    let placed = layer.place(&target).expect("is placed");
    let file = File::open(target.join("large")).expect("opens");
    placed.take_away().expect("unmounts");
    assert_eq!(servers(&near.directory).len(), 1);
    let mut got = vec![0; LARGE_BYTES];
    file.read_exact_at(&mut got, 0).expect("is served still");
    assert!(got == bytes(99, LARGE_BYTES));
    drop(file);
    until("the server ends", || servers(&near.directory).is_empty());
    // A server ends with the process that started it. That process is killed here, in our mount
    // namespace and in its own.
    for (round, program) in ["", "unshare"].into_iter().enumerate() {
        let this = std::env::current_exe().expect("is known");
        let mut command = if program.is_empty() { Command::new(&this) } else { Command::new(program) };
        if !program.is_empty() {
            command.args(["--mount", "--"]).arg(&this);
        }
        let places = near.fixture.path("places");
        command.arg("role-serve-and-wait").args([&near.metadata, &near.source, &near.directory, &target, &places]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("is piped")).read_line(&mut line).expect("reads");
        assert_eq!(line, "mounted\n");
        assert_eq!(servers(&near.directory).len(), 1);
        child.kill().expect("dies");
        child.wait().expect("died");
        until("the server ends", || servers(&near.directory).is_empty());
        if round == 0 {
            let error = fs::read_dir(&target).map(|_| ()).and_then(|()| fs::read(target.join("large")).map(|_| ()));
            assert!(error.is_err(), "no server answers");
        }
        near.places().sweep().expect("sweeps");
        assert_eq!(mounts(), before);
        assert_eq!(fs::read_dir(&places).expect("is there").count(), 0, "nothing is left");
    }
}

fn what_is_served_has_other_owners() {
    let Some(near) = near() else { return };
    let target = near.fixture.make("target");
    let owners = Owners::one((0, 0), (1234, 1235));
    let (layer, _server) = served(&near.told(0), Some(&owners), Life::AsThread);
    let image = near.image();
    let asked = ask(&image, &target, Backend::LazyFuse);
    let stay = near.places().mount(&Ask { layer: Some(&layer), ..asked }).expect("mounts");
    for name in ["", "large", "deep", "pointer"] {
        let look = fs::symlink_metadata(target.join(name)).expect("is there");
        assert_eq!((look.uid(), look.gid()), (1234, 1235), "{name}");
    }
    let line = format!("echo more >>{0}/deep/er/file1 && echo new >{0}/deep/new && rm {0}/large", target.display());
    let mut command = Command::new("setpriv");
    command.args(["--reuid=1234", "--regid=1235", "--clear-groups", "sh", "-c", &line]);
    fs::set_permissions(near.fixture.path(""), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("changes");
    assert!(command.status().expect("setpriv runs").success());
    stay.end().expect("unmounts");
    let nobodys = Owners::one((77, 77), (1234, 1235));
    let (layer, _server) = served(&near.told(0), Some(&nobodys), Life::AsThread);
    let placed = layer.place(&target).expect("is placed");
    let look = fs::metadata(target.join("large")).expect("is there");
    assert_eq!((look.uid(), look.gid()), (65534, 65534), "an owner in no range is shown as 65534");
    drop(placed);
}

fn two_servers_fill_one_file() {
    let Some(near) = near() else { return };
    let targets = [near.fixture.make("one"), near.fixture.make("two")];
    let mounted: Vec<_> = targets
        .iter()
        .map(|target| {
            let (layer, server) = near.mount(1, Life::AsThread);
            (layer.place(target).expect("is placed"), server)
        })
        .collect();
    std::thread::scope(|scope| {
        targets.iter().for_each(|target| drop(scope.spawn(|| near.fixture.assert_same(target))));
    });
    drop(mounted);
    until("the servers end", || servers(&near.directory).is_empty());
    assert!(fs::read(near.directory.join("data")).expect("reads") == fs::read(&near.source).expect("reads"));
}

fn attributes_holes_and_acls_are_served() {
    let fixture = Fixture::new();
    if let Err(why) = possible() {
        return println!("    skipped: {why}");
    }
    let tree = fixture.tree();
    let set = |name: &str, value: &[u8], path: &str| {
        let path = tree.join(path);
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&path, name, value, flags).unwrap_or_else(|error| panic!("{name}: {error}"));
    };
    let long = bytes(5, 3000);
    set("user.origin", b"here", "large");
    set("user.long", &long[..900], "deep/er/file1");
    set("user.origin", b"here", "deep");
    // u::rwx, u:1234:r--, g::r--, m::r--, o::---
    let acl: Vec<u8> = [2u32.to_le_bytes().to_vec()]
        .into_iter()
        .chain(
            [(1u16, 7u16, u32::MAX), (2, 4, 1234), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)]
                .map(|(tag, bits, id)| [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat()),
        )
        .flatten()
        .collect();
    set("system.posix_acl_access", &acl, "deep/er/file2");
    let many = fixture.tree().join("many");
    fs::create_dir(&many).expect("makes");
    for number in 0..3000 {
        fs::write(many.join(format!("{number}-a-name-that-takes-some-room-in-a-block-of-names")), b"").expect("writes");
    }
    std::os::unix::fs::symlink("x/".repeat(2040), tree.join("far")).expect("links");
    let Some(Image::Erofs { metadata, data: Some(source) }) = fixture.erofs() else { return };
    let target = fixture.make("target");
    let fails = fixture.path("fails");
    let told = Told { metadata: &metadata, source: &source, directory: None, delay_ms: 0, fails: &fails };
    let (layer, _server) = served(&told, None, Life::AsThread);
    let placed = layer.place(&target).expect("is placed");
    fixture.assert_same(&target);
    for name in ["large", "deep", "deep/er/file1", "deep/er/file2", "nothing"] {
        let attributes = |path: PathBuf| {
            let mut names = vec![0; 4096];
            let count = rustix::fs::listxattr(&path, &mut names).expect("lists");
            let mut all: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            for name in names[..count].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
                let mut value = vec![0; 4096];
                let count = rustix::fs::getxattr(&path, name, &mut value).expect("has it");
                all.push((name.to_owned(), value[..count].to_owned()));
            }
            all.sort();
            all
        };
        assert_eq!(attributes(target.join(name)), attributes(tree.join(name)), "{name}");
    }
    let read = |user: &str| {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={user}"), "--regid=4321", "--clear-groups", "cat"]);
        command.arg(target.join("deep/er/file2")).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().expect("setpriv runs").success()
    };
    for directory in ["", "tree"] {
        fs::set_permissions(fixture.path(directory), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("changes");
    }
    // Only root's group may enter `deep`.
    assert!(!read("1234") && !read("1235"));
    let sparse = File::open(target.join("sparse")).expect("opens");
    let data = rustix::fs::seek(&sparse, rustix::fs::SeekFrom::Data(0)).expect("has data");
    assert!(data <= 500_000, "{data}");
    let hole = rustix::fs::seek(&sparse, rustix::fs::SeekFrom::Hole(data)).expect("has an end");
    assert!(hole > 500_000 && hole <= 1 << 20, "{hole}");
    let mut wrong = vec![0; 10];
    assert_eq!(sparse.read_at(&mut wrong, 1 << 20).expect("is the end"), 0);
    drop(placed);
}

fn what_cannot_be_served_says_why() {
    let Some(near) = near() else { return };
    let before = mounts();
    fs::write(near.fixture.path("nonsense"), vec![1; 8192]).expect("writes");
    let nonsense = near.fixture.path("nonsense");
    let server = server_command();
    let check = |server: &[OsString], name: &str, expect: &str| {
        let wanted = ToServe { server, from: None, name, owners: None, life: Life::AsThread };
        let error = mount(&wanted).map(|_| ()).expect_err("is refused").to_string();
        assert!(error.contains(expect), "{error}");
        assert_eq!(mounts(), before);
    };
    check(&server, "nothing", "nothing: no delay");
    check(&server, &Told { metadata: &nonsense, ..near.told(0) }.name(), "it is not an EROFS image");
    check(&server, &Told { metadata: Path::new("/no/where"), ..near.told(0) }.name(), "/no/where: cannot be read");
    check(&["/bin/true".into()], "x", "it ended without a message");
    check(&["/no/program".into()], "x", "No such file");
    // Damaged metadata leads to errors for readers, but the server goes on.
    let whole = fs::read(&near.metadata).expect("reads");
    let target = near.fixture.make("target");
    for seed in 0..12u64 {
        let mut damaged = whole.clone();
        let noise = bytes(seed, 64);
        for (at, byte) in noise.iter().enumerate() {
            let place = 1152 + (seed as usize * 7919 + at * 104_729 * usize::from(*byte)) % (damaged.len() - 1152);
            damaged[place] ^= byte;
        }
        fs::write(&nonsense, &damaged).expect("writes");
        let told = Told { metadata: &nonsense, directory: None, ..near.told(0) };
        let name = told.name();
        let wanted = ToServe { server: &server, from: None, name: &name, owners: None, life: Life::AsThread };
        let Ok((layer, _server)) = mount(&wanted) else { continue };
        let Ok(placed) = layer.place(&target) else { continue };
        let _ =
            Command::new("timeout").args(["3", "tar", "-cf", "/dev/null"]).arg(&target).stderr(Stdio::null()).status();
        assert!(
            !matches!(fs::metadata(&target), Err(error) if error.raw_os_error() == Some(107)),
            "{seed}: the server goes on"
        );
        drop(placed);
    }
}
