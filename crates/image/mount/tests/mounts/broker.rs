//! Jobs without the right to mount, and the broker that mounts for them.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use larder_mount::broker::{Broker, Client, Lazily, Policy, Programs, Supplied, Supply, Wish};
use larder_mount::{Backend, Fill, Image, Owners, owned_by};
use larder_sys::{Channel, Door};

use crate::backends::mounts;
use crate::fixture::{Fixture, Test, layer};
use crate::hang::Hanging;
use crate::lazy::{FromFile, far, gate_command, until, until_within};
use crate::served::{Told, server_command, servers};

pub(crate) const TESTS: &[Test] = &[
    ("a_job_in_a_container_of_its_own", a_job_in_a_container_of_its_own),
    ("a_job_that_places_its_mount_itself", a_job_that_places_its_mount_itself),
    ("two_users_on_one_image_writing", two_users_on_one_image_writing),
    ("a_job_among_everybodys_mounts", a_job_among_everybodys_mounts),
    ("what_a_broker_refuses", what_a_broker_refuses),
    ("a_job_with_deep_directories", a_job_with_deep_directories),
    ("a_user_who_asks_slowly_keeps_nobody_waiting", a_user_who_asks_slowly_keeps_nobody_waiting),
    ("descriptors_that_no_request_has_end_it_at_once", descriptors_that_no_request_has_end_it_at_once),
    ("what_hangs_keeps_nobody_waiting", what_hangs_keeps_nobody_waiting),
    ("a_broker_that_is_killed_and_comes_back", a_broker_that_is_killed_and_comes_back),
    ("what_is_served_outlives_its_broker", what_is_served_outlives_its_broker),
];

/// The users of jobs. The files of the fixture belong to root, and no other files belong to these
/// users.
const USER: u32 = 1234;
const OTHER: u32 = 1236;

/// Supplies the fixture's image under the name `deps`, and under the name `lazy` if it is to be
/// filled lazily.
struct OfFixture {
    image: Image,
    lazily: Option<(PathBuf, Arc<FromFile>, u64)>,
}

impl Supply for OfFixture {
    fn image(&self, _user: u32, name: &str) -> Result<Supplied, String> {
        let lazily = match (name, &self.lazily) {
            ("lazy", Some((directory, fill, size_bytes))) => {
                let (directory, size_bytes) = (directory.clone(), *size_bytes);
                let fill = Arc::clone(fill) as Arc<dyn Fill>;
                let prepare = Arc::new(larder_mount::lazy::prepare);
                Some(Lazily { directory, size_bytes, fill, prepare, order: Vec::new(), traced: None })
            }
            ("deps", _) => None,
            // Such a name is a request to a test server, which is passed on as it is.
            _ if name.contains('\t') => return Ok(self.to_be_served(name)),
            _ => return Err(format!("no image is called {name}")),
        };
        let via = if lazily.is_some() { Backend::Lazy } else { Backend::Mount };
        let (image, lease) = (self.image.clone(), Arc::new(()));
        Ok(Supplied { id: name.to_owned(), image, below: None, via, stored: (0, 0), lease, lazily, ready: None })
    }
}

fn programs() -> Programs {
    Programs { gate: gate_command(), server: server_command(), ..Programs::default() }
}

impl OfFixture {
    fn to_be_served(&self, name: &str) -> Supplied {
        let (image, lease, via) = (self.image.clone(), Arc::new(()), Backend::LazyFuse);
        let (id, below, stored, lazily, ready) = (name.to_owned(), None, (0, 0), None, None);
        Supplied { id, image, below, via, stored, lease, lazily, ready }
    }
}

/// A broker in a thread of this process, until this is dropped.
struct Served {
    fixture: Fixture,
    _wake: std::os::fd::OwnedFd,
}

impl Served {
    /// Starts a broker. Returns `None` after printing the reason if the test is not possible here.
    fn begin(policy: impl FnOnce(&Fixture) -> Policy) -> Option<Served> {
        let fixture = Fixture::new();
        let image = fixture.erofs()?;
        if !can_be_others() {
            println!("    skipped: other users (setpriv) or user namespaces (unshare --user) are not possible here");
            return None;
        }
        let owners = Owners::one((0, 0), (USER, USER + 1));
        if let Err(error) = layer(&image).and_then(|layer| owned_by(&layer, &owners)) {
            println!("    skipped: {error}");
            return None;
        }
        fs::set_permissions(fixture.path(""), fs::Permissions::from_mode(0o755)).expect("changes");
        let policy = policy(&fixture);
        let supply = Box::new(OfFixture { image, lazily: None });
        let says = Box::new(|what: &str| println!("    broker: {what}"));
        let broker = Broker::new(&fixture.path("state"), supply, policy, programs(), says).expect("begins");
        let door = open_door(&fixture.path("broker.sock"));
        let (woken, wake) = larder_sys::pipe().expect("makes");
        std::thread::spawn(move || broker.serve(&door, woken.as_fd()));
        Some(Served { fixture, _wake: wake })
    }

    /// Makes an empty directory that belongs to this user.
    fn make(&self, name: &str, user: u32) -> PathBuf {
        let path = self.fixture.make(name);
        chown(&path, Some(user), Some(user + 1)).expect("changes");
        path
    }

    fn job(&self, user: u32, in_container: bool, role: &str, words: &[&str]) -> Job {
        Job::start(&self.fixture.path("broker.sock"), user, in_container, role, words)
    }

    /// The names under which the image is mounted: by the kernel, and by a server if that works
    /// here.
    fn names(&self) -> Vec<String> {
        let Some(Image::Erofs { metadata, data: Some(source) }) = self.fixture.erofs() else { return Vec::new() };
        let (directory, fails) = (self.fixture.path("served"), self.fixture.path("fails"));
        let told =
            Told { metadata: &metadata, source: &source, directory: Some(&directory), delay_ms: 1, fails: &fails };
        let served = larder_mount::serve::possible().map(|()| told.name());
        served.inspect_err(|why| println!("    skipped: {why}")).into_iter().chain(["deps".to_owned()]).collect()
    }

    fn until_nothing_is_left(&self) {
        let state = self.fixture.path("state");
        until("nothing is left", || fs::read_dir(&state).expect("is there").next().is_none());
    }
}

fn open_door(socket: &Path) -> Door {
    let _ = fs::remove_file(socket);
    let door = Door::open(socket).expect("listens");
    fs::set_permissions(socket, fs::Permissions::from_mode(0o666)).expect("changes");
    door
}

/// Makes a command that runs as another user. In a container it has namespaces of its own, in which
/// it appears as root.
fn as_user(user: u32, in_container: bool) -> Command {
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={user}"), &format!("--regid={}", user + 1), "--clear-groups"]);
    if in_container {
        command.args(["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]);
    }
    command
}

fn can_be_others() -> bool {
    let program = std::env::current_exe().expect("is known");
    let reads = as_user(USER, true).arg("test").arg("-x").arg(program).status();
    reads.is_ok_and(|status| status.success())
}

/// A process that asks a broker, runs a script, and waits.
struct Job {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Job {
    fn start(socket: &Path, user: u32, in_container: bool, role: &str, words: &[&str]) -> Job {
        let mut command = as_user(user, in_container);
        command.arg(std::env::current_exe().expect("is known")).arg(role).arg(socket).args(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        let out = BufReader::new(child.stdout.take().expect("is piped"));
        Job { child, out }
    }

    fn says(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("reads");
        line.trim_end().to_owned()
    }

    /// Lets the job end by itself. Returns true if it succeeded.
    fn end(mut self) -> bool {
        drop(self.child.stdin.take());
        self.child.wait().expect("ends").success()
    }

    fn kill(mut self) {
        self.child.kill().expect("dies");
        self.child.wait().expect("died");
    }
}

/// Plays the role of a job: `SOCKET NAME TARGET WISH SCRIPT`.
pub(crate) fn ask_and_wait(arguments: &[String]) {
    let [socket, name, target, wish, script] = arguments else { panic!("{arguments:?}") };
    let own = larder_sys::open_process(std::process::id()).expect("this process exists");
    let wish = match wish.as_str() {
        "held" => Wish::Held,
        "process" => Wish::Process(own.as_fd()),
        _ => Wish::Kept,
    };
    let client = Client::mount(Path::new(socket), name, Path::new(target), wish);
    say_and_wait(client.map(|client| Box::new(client) as Box<dyn std::any::Any>), target, script);
}

/// Plays the role of a job that attaches a detached mount itself: `SOCKET NAME TARGET SCRIPT`.
pub(crate) fn place_and_wait(arguments: &[String]) {
    let [socket, name, target, script] = arguments else { panic!("{arguments:?}") };
    let placed = Client::detached(Path::new(socket), name).and_then(|(client, mount)| {
        let placed = mount.place(Path::new(target))?;
        Ok(Box::new((placed, client)) as Box<dyn std::any::Any>)
    });
    say_and_wait(placed, target, script);
}

fn say_and_wait(done: Result<Box<dyn std::any::Any>, larder_mount::MountError>, target: &str, script: &str) {
    let held = match done {
        Ok(held) => held,
        Err(error) => return println!("refused: {error}"),
    };
    let ended = Command::new("sh").args(["-euc", script]).env("T", target).status().expect("runs");
    println!("{}", if ended.success() { "fine" } else { "failed" });
    let _ = io::stdout().flush();
    let _ = io::stdin().read_to_end(&mut Vec::new());
    drop(held);
}

/// The script of a job on its tree, which is `$T`.
const WORK: &str = "test $(ls $T/deep/er | wc -l) = 41; cat $T/large >/dev/null; echo more >>$T/deep/er/file1; \
    mkdir $T/new; echo new >$T/new/file; rm $T/deep/er/file2; test ! -e $T/deep/er/file2; \
    test $(stat -c %u $T/large) = $(id -u); ! mknod $T/null c 1 3 2>/dev/null; mv $T/deep/er/file3 $T/moved";

fn a_job_in_a_container_of_its_own() {
    let Some(served) = Served::begin(|_| Policy::default()) else { return };
    let target = served.make("target", USER);
    let before = mounts();
    let sums = "cd $T; find . -type f -print0 | sort -z | xargs -0 sha256sum >";
    let names = served.names();
    for (number, (wish, name)) in
        ["held", "process"].into_iter().flat_map(|wish| names.iter().map(move |name| (wish, name))).enumerate()
    {
        let list = served.make("lists", USER).join(number.to_string());
        let script = format!("({sums}{}); {WORK}", list.display());
        let words = [name.as_str(), &target.to_string_lossy(), wish, &script];
        let mut job = served.job(USER, true, "role-ask", &words);
        assert_eq!(job.says(), "fine");
        assert_eq!(mounts(), before, "the mount is only visible in the job's namespace");
        assert!(fs::read_dir(&target).expect("is there").next().is_none());
        let expect = format!("T={}; {sums}{}.expect", served.fixture.tree().display(), list.display());
        assert!(Command::new("sh").args(["-euc", &expect]).status().expect("runs").success());
        let read = |path: &Path| fs::read(path).expect("reads");
        assert!(read(&list) == read(&list.with_extension("expect")), "the contents of all files");
        job.kill();
        served.until_nothing_is_left();
    }
    // Also a job that ends regularly.
    let mut job = served.job(USER, true, "role-ask", &["deps", &target.to_string_lossy(), "process", WORK]);
    assert_eq!(job.says(), "fine");
    assert!(job.end());
    served.until_nothing_is_left();
    served.fixture.assert_same(&served.fixture.tree());
}

fn a_job_that_places_its_mount_itself() {
    let Some(served) = Served::begin(|_| Policy::default()) else { return };
    let target = served.make("target", USER);
    for name in served.names() {
        let mut job = served.job(USER, true, "role-place", &[&name, &target.to_string_lossy(), WORK]);
        assert_eq!(job.says(), "fine");
        assert!(fs::read_dir(&target).expect("is there").next().is_none());
        job.kill();
        served.until_nothing_is_left();
    }
}

fn two_users_on_one_image_writing() {
    let Some(served) = Served::begin(|_| Policy::default()) else { return };
    let start = |name: &str, user: u32| {
        let target = served.make(&format!("of{user}"), user);
        let script = format!(
            "{WORK}; for i in $(seq 200); do echo {user} >>$T/large; echo {user} >$T/new/$i; done; \
            test $(tail -n 1 $T/large) = {user}; test $(cat $T/new/* | sort | uniq | wc -l) = 2"
        );
        served.job(user, true, "role-ask", &[name, &target.to_string_lossy(), "held", &script])
    };
    for name in served.names() {
        let mut jobs = [start(&name, USER), start(&name, OTHER), start(&name, USER + 20)];
        for job in &mut jobs {
            assert_eq!(job.says(), "fine");
        }
        jobs.into_iter().for_each(|job| assert!(job.end()));
    }
    served.until_nothing_is_left();
    served.fixture.assert_same(&served.fixture.tree());
}

fn a_job_among_everybodys_mounts() {
    let allowed = |fixture: &Fixture| Policy { targets: vec![fixture.make("allowed")], ..Policy::default() };
    let Some(served) = Served::begin(allowed) else { return };
    let target = served.make("allowed/target", USER);
    let (before, words) = (mounts(), ["deps", &target.to_string_lossy(), "kept", "true"]);
    let mut job = served.job(USER, false, "role-ask", &words);
    assert_eq!(job.says(), "fine");
    assert!(job.end());
    // The mount stays after the process that asked for it has ended. It belongs to that user and is
    // harmless.
    assert_eq!(fs::metadata(target.join("large")).expect("is there").uid(), USER);
    let line = mounts().into_iter().find(|line| line.contains("allowed/target")).expect("is mounted");
    assert!(line.contains("nosuid") && line.contains("nodev"), "{line}");
    let unmount = |user: u32| {
        let mut command = as_user(user, false);
        command.arg(std::env::current_exe().expect("is known")).arg("role-unmount");
        command.arg(served.fixture.path("broker.sock")).arg(&target).output().expect("runs")
    };
    let expect = format!("deps at {}\n", fs::canonicalize(&target).expect("is there").display());
    let list = |user: u32| {
        let mut command = as_user(user, false);
        command.arg(std::env::current_exe().expect("is known")).arg("role-list");
        command.arg(served.fixture.path("broker.sock")).output().expect("runs")
    };
    let said = String::from_utf8(unmount(OTHER).stdout).expect("is text");
    assert!(said.starts_with("refused: ") && said.contains("nothing of yours is mounted here"), "{said}");
    assert!(
        Client::mounts(&served.fixture.path("broker.sock")).expect("asks").is_empty(),
        "root sees no mount of another user"
    );
    assert_eq!(String::from_utf8(list(USER).stdout).expect("is text"), expect);
    assert_eq!(String::from_utf8(unmount(USER).stdout).expect("is text"), "fine\n");
    assert_eq!(mounts(), before);
    served.until_nothing_is_left();
}

/// Plays the role of a client that unmounts: `SOCKET TARGET`.
pub(crate) fn unmount(arguments: &[String]) {
    let [socket, target] = arguments else { panic!("{arguments:?}") };
    match Client::unmount(Path::new(socket), Path::new(target)) {
        Ok(()) => println!("fine"),
        Err(error) => println!("refused: {error}"),
    }
}

/// Plays the role of a client that lists its mounts: `SOCKET`.
pub(crate) fn list(arguments: &[String]) {
    let [socket] = arguments else { panic!("{arguments:?}") };
    for (name, target) in Client::mounts(Path::new(socket)).expect("asks") {
        println!("{name} at {}", target.display());
    }
}

fn what_a_broker_refuses() {
    let policy = |_: &Fixture| Policy { users: vec![USER], mounts_max: 1, ..Policy::default() };
    let Some(served) = Served::begin(policy) else { return };
    let (own, others) = (served.make("own", USER), served.make("others", OTHER));
    let full = served.make("full", USER);
    fs::write(full.join("file"), b"").expect("writes");
    let before = mounts();
    let check = |user: u32, in_container: bool, name: &str, target: &Path, wish: &str, expect: &str| {
        let words = [name, &target.to_string_lossy(), wish, "true"];
        let said = served.job(user, in_container, "role-ask", &words).says();
        assert!(said.starts_with("refused: ") && said.contains(expect), "{said}");
        served.until_nothing_is_left();
        assert_eq!(mounts(), before);
    };
    check(OTHER, true, "deps", &others, "held", "user 1236 is not served here");
    check(USER, true, "deps", &others, "held", "belongs to user 1236, not 1234");
    check(USER, true, "deps", &full, "held", "is not empty");
    check(USER, true, "deps", &own, "kept", "say for which process it is");
    check(USER, true, "nothing", &own, "held", "no image is called nothing");
    check(USER, false, "deps", &own, "held", "all users see it");
    let mut job = served.job(USER, true, "role-ask", &["deps", &own.to_string_lossy(), "held", "true"]);
    assert_eq!(job.says(), "fine");
    let said = served.job(USER, true, "role-ask", &["deps", &own.to_string_lossy(), "held", "true"]).says();
    assert!(said.contains("more are not allowed"), "{said}");
    assert!(job.end());
    // An invalid message only ends its connection.
    for nonsense in [&b"\xff\xff\xff\xff"[..], b"\x04\0\0\0\x01\x09\0\0", b"GET / HTTP/1.1\r\n\r\n", b""] {
        let mut stream = std::os::unix::net::UnixStream::connect(served.fixture.path("broker.sock")).expect("connects");
        // The broker may have refused the user and closed the connection before.
        let _ = stream.write_all(nonsense);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("sets");
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        assert!(said.is_empty() || said.get(5) == Some(&6), "{said:?}");
    }
    served.until_nothing_is_left();
}

/// Plays the role of a job: `DIRECTORY DEPTH` makes nested directories.
pub(crate) fn nest(arguments: &[String]) {
    let [directory, depth] = arguments else { panic!("{arguments:?}") };
    std::env::set_current_dir(directory).expect("is there");
    for _ in 0..depth.parse().expect("is a number") {
        fs::create_dir("d").expect("makes");
        std::env::set_current_dir("d").expect("is there");
    }
}

fn a_job_with_deep_directories() {
    let words = |target: &Path| {
        let program = std::env::current_exe().expect("is known");
        let script = format!("{} role-nest $T 3000", program.display());
        ["deps".to_owned(), target.to_string_lossy().into_owned(), "held".to_owned(), script]
    };
    // This broker has no limit for open files. Recursion would overflow its stack.
    let Some(served) = Served::begin(|_| Policy::default()) else { return };
    let target = served.make("target", USER);
    let job = |socket: &Path| {
        let words = words(&target);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut job = Job::start(socket, USER, true, "role-ask", &words);
        assert_eq!(job.says(), "fine");
        job.kill();
    };
    job(&served.fixture.path("broker.sock"));
    let until_gone = |state: &Path| {
        let is_gone = || fs::read_dir(state).expect("is there").next().is_none();
        until_within(Duration::from_secs(600), "nothing is left", is_gone);
    };
    until_gone(&served.fixture.path("state"));
    // The second broker may open 1,024 files, the default of systemd.
    let Some(Image::Erofs { metadata, data: Some(source) }) = served.fixture.erofs() else { return };
    let (state, socket) = (served.fixture.path("few"), served.fixture.path("few.sock"));
    let mut command = Command::new("prlimit");
    command.arg("--nofile=1024:1024").arg(std::env::current_exe().expect("is known")).arg("role-broker");
    command.args([&state, &socket, &metadata, &source, &source]).stdout(Stdio::piped());
    let Ok(mut broker) = command.spawn() else { return println!("    skipped: there is no prlimit") };
    let mut line = String::new();
    BufReader::new(broker.stdout.as_mut().expect("is piped")).read_line(&mut line).expect("reads");
    assert_eq!(line, "serves\n");
    job(&socket);
    until_gone(&state);
    assert!(broker.try_wait().expect("is known").is_none(), "the broker is still running");
    broker.kill().expect("dies");
    broker.wait().expect("died");
}

/// The role of a slow user: `SOCKET COUNT MOST` opens COUNT connections and sends a byte at a time
/// on each, until the broker has closed all of them. It prints a line when at most MOST are still
/// open.
pub(crate) fn drip(arguments: &[String]) {
    let [socket, count, most] = arguments else { panic!("{arguments:?}") };
    let number = |text: &String| text.parse::<usize>().expect("is a number");
    let (count, most) = (number(count), number(most));
    let connect = |_| {
        let stream = std::os::unix::net::UnixStream::connect(socket).expect("connects");
        stream.set_nonblocking(true).expect("sets");
        stream
    };
    let mut open: Vec<_> = (0..count).map(connect).collect();
    let mut told = false;
    // The first bytes announce a request of 2,000 bytes.
    for byte in 2000u32.to_le_bytes().into_iter().chain([1, 0]).chain(std::iter::repeat(0)).take(300) {
        // Connections that were refused or took too long have received a reply or were closed.
        open.retain_mut(|stream| {
            let goes_on = |error: io::Error| error.kind() == io::ErrorKind::WouldBlock;
            stream.write_all(&[byte]).is_ok() && stream.read(&mut [0; 64]).is_err_and(goes_on)
        });
        if open.len() <= most && !std::mem::replace(&mut told, true) {
            println!("{} are listened to", open.len());
        }
        if open.is_empty() {
            return println!("ended");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    println!("{} go on", open.len());
}

fn a_user_who_asks_slowly_keeps_nobody_waiting() {
    for is_served in [true, false] {
        let policy = |_: &Fixture| Policy { users: if is_served { vec![] } else { vec![USER] }, ..Policy::default() };
        let Some(served) = Served::begin(policy) else { return };
        let mut slow = served.job(OTHER, false, "role-drip", &["1000", if is_served { "64" } else { "0" }]);
        let said = slow.says();
        assert!(said.ends_with(" are listened to"), "{said}");
        let target = served.make("target", USER);
        let mut job = served.job(USER, true, "role-ask", &["deps", &target.to_string_lossy(), "held", "true"]);
        assert_eq!(job.says(), "fine");
        assert!(job.end());
        // A byte now and then does not extend the time limit of a request.
        assert_eq!(slow.says(), "ended");
        assert!(slow.end());
        served.until_nothing_is_left();
    }
}

fn descriptors_that_no_request_has_end_it_at_once() {
    let Some(served) = Served::begin(|_| Policy::default()) else { return };
    let socket = served.fixture.path("broker.sock");
    let channel = Channel::connect(&socket, Duration::from_secs(10)).expect("connects");
    let null = fs::File::open("/dev/null").expect("opens");
    // The rest of the request never comes.
    channel.send(b"x", &[null.as_fd(); 100]).expect("sends");
    let mut said = [0; 256];
    let count = channel.receive(&mut said, &mut Vec::new(), 0).expect("answers");
    let said = String::from_utf8_lossy(&said[..count]);
    assert!(said.contains("more descriptors were passed"), "{said}");
}

fn what_hangs_keeps_nobody_waiting() {
    let allowed = |fixture: &Fixture| Policy { targets: vec![fixture.make("allowed")], ..Policy::default() };
    let Some(served) = Served::begin(allowed) else { return };
    let before = mounts();
    let hanging = match Hanging::on(&served.fixture.path("allowed"), USER) {
        Ok(hanging) => hanging,
        Err(error) => return println!("    skipped: FUSE: {error}"),
    };
    let stuck = served.fixture.path("allowed/d");
    let mut job = served.job(USER, false, "role-ask", &["deps", &stuck.to_string_lossy(), "process", "true"]);
    assert_eq!(job.says(), "fine");
    // The job ends, but its mount point cannot be looked up.
    hanging.answer(false);
    job.kill();
    let target = served.make("target", OTHER);
    for _ in 0..3 {
        let mut job = served.job(OTHER, true, "role-ask", &["deps", &target.to_string_lossy(), "process", WORK]);
        assert_eq!(job.says(), "fine");
        assert!(job.end());
    }
    let left = || fs::read_dir(served.fixture.path("state")).expect("is there").count();
    until("all mounts but the one that hangs are removed", || left() == 1);
    hanging.answer(true);
    served.until_nothing_is_left();
    drop(hanging);
    assert_eq!(mounts(), before);
}

/// The role of a broker of a lazily filled image, until it is killed: `STATE SOCKET METADATA DATA
/// SOURCE`.
pub(crate) fn be_broker(arguments: &[String]) {
    let [state, socket, metadata, data, source] = arguments else { panic!("{arguments:?}") };
    let image = Image::Erofs { metadata: metadata.into(), data: Some(data.into()) };
    let fill = FromFile::new(Path::new(source), Duration::from_millis(60));
    let size_bytes = fs::metadata(source).expect("is there").len();
    let lazily = Some((Path::new(data).with_extension("state"), fill, size_bytes));
    let supply = Box::new(OfFixture { image, lazily });
    let says = Box::new(|what: &str| eprintln!("    broker: {what}"));
    let broker = Broker::new(Path::new(state), supply, Policy::default(), programs(), says).expect("begins");
    let door = open_door(Path::new(socket));
    let (woken, _wake) = larder_sys::pipe().expect("makes");
    println!("serves");
    broker.serve(&door, woken.as_fd());
}

fn what_is_served_outlives_its_broker() {
    let fixture = Fixture::new();
    let Some(Image::Erofs { metadata, data: Some(source) }) = fixture.erofs() else { return };
    if let Err(why) = larder_mount::serve::possible() {
        return println!("    skipped: {why}");
    }
    if !can_be_others() {
        return println!(
            "    skipped: other users (setpriv) or user namespaces (unshare --user) are not possible here"
        );
    }
    fs::set_permissions(fixture.path(""), fs::Permissions::from_mode(0o755)).expect("changes");
    let (state, socket, directory) = (fixture.path("state"), fixture.path("broker.sock"), fixture.path("served"));
    let start = || {
        let mut command = Command::new(std::env::current_exe().expect("is known"));
        command.arg("role-broker").args([&state, &socket, &metadata, &source, &source]);
        let mut broker = command.stdout(Stdio::piped()).spawn().expect("starts");
        let mut line = String::new();
        BufReader::new(broker.stdout.as_mut().expect("is piped")).read_line(&mut line).expect("reads");
        assert_eq!(line, "serves\n");
        broker
    };
    let mut broker = start();
    let target = fixture.make("target");
    chown(&target, Some(USER), Some(USER + 1)).expect("changes");
    let sums = "cd $T; find . -type f -print0 | sort -z | xargs -0 sha256sum";
    let list = fixture.make("lists").join("list");
    chown(list.parent().expect("has one"), Some(USER), None).expect("changes");
    let script = format!("{sums} >{}", list.display());
    let fails = fixture.path("fails");
    let told = Told { metadata: &metadata, source: &source, directory: Some(&directory), delay_ms: 60, fails: &fails };
    let words = [&told.name(), &*target.to_string_lossy(), "process", &script];
    let mut job = Job::start(&socket, USER, true, "role-ask", &words);
    until("the job reads", || fs::metadata(&list).is_ok());
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(30));
        broker.kill().expect("dies");
        broker.wait().expect("died");
        broker = start();
    }
    assert_eq!(job.says(), "fine");
    let expect = Command::new("sh").args(["-euc", sums]).env("T", fixture.tree()).output().expect("runs").stdout;
    assert!(fs::read(&list).expect("reads") == expect, "the contents of all files");
    assert_eq!(servers(&directory).len(), 1);
    assert!(job.end());
    until("nothing is left", || fs::read_dir(&state).expect("is there").next().is_none());
    until("the server ends", || servers(&directory).is_empty());
    broker.kill().expect("dies");
    broker.wait().expect("died");
}

fn a_broker_that_is_killed_and_comes_back() {
    let Some(far) = far() else { return };
    if !can_be_others() {
        println!("    skipped: other users (setpriv) or user namespaces (unshare --user) are not possible here");
        return;
    }
    fs::set_permissions(far.fixture.path(""), fs::Permissions::from_mode(0o755)).expect("changes");
    let (state, socket) = (far.fixture.path("state"), far.fixture.path("broker.sock"));
    let start = || {
        let mut command = Command::new(std::env::current_exe().expect("is known"));
        command.arg("role-broker").args([&state, &socket, &far.metadata, &far.data, &far.source]);
        let mut broker = command.stdout(Stdio::piped()).spawn().expect("starts");
        let mut line = String::new();
        BufReader::new(broker.stdout.as_mut().expect("is piped")).read_line(&mut line).expect("reads");
        assert_eq!(line, "serves\n");
        broker
    };
    let mut broker = start();
    let target = far.fixture.make("target");
    chown(&target, Some(USER), Some(USER + 1)).expect("changes");
    let sums = "cd $T; find . -type f -print0 | sort -z | xargs -0 sha256sum";
    let list = far.fixture.make("lists").join("list");
    chown(list.parent().expect("has one"), Some(USER), None).expect("changes");
    let script = format!("{sums} >{}", list.display());
    let words = ["lazy", &target.to_string_lossy(), "process", &script];
    let mut job = Job::start(&socket, USER, true, "role-ask", &words);
    until("the job reads", || fs::metadata(&list).is_ok());
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(30));
        broker.kill().expect("dies");
        broker.wait().expect("died");
        broker = start();
    }
    assert_eq!(job.says(), "fine");
    let expect = Command::new("sh").args(["-euc", sums]).env("T", far.fixture.tree()).output().expect("runs").stdout;
    assert!(fs::read(&list).expect("reads") == expect, "the contents of all files");
    assert!(job.end());
    until("nothing is left", || fs::read_dir(&state).expect("is there").next().is_none());
    broker.kill().expect("dies");
    broker.wait().expect("died");
}
