//! Reads of bytes that are not local yet. They never return zeros, whatever is killed and whatever
//! fails.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use larder_mount::lazy::{Lazy, Options, Trace, fill_whole};
use larder_mount::{Ask, Backend, Fill, Image, Lease, MountError, Places, ladder};
use larder_sys::{Channel, Door};

use crate::backends::{ask, mounts};
use crate::fixture::{Fixture, LARGE_BYTES, Test, bytes};

pub(crate) const TESTS: &[Test] = &[
    ("what_is_touched_arrives", what_is_touched_arrives),
    ("a_fill_that_fails_is_an_error_and_never_zeros", a_fill_that_fails_is_an_error_and_never_zeros),
    ("what_is_away_for_a_moment_is_waited_for", what_is_away_for_a_moment_is_waited_for),
    ("many_readers_at_once", many_readers_at_once),
    ("a_filler_that_is_killed_shows_no_zeros", a_filler_that_is_killed_shows_no_zeros),
    ("a_gate_that_is_killed_shows_no_zeros", a_gate_that_is_killed_shows_no_zeros),
    ("what_was_touched_comes_first_the_next_time", what_was_touched_comes_first_the_next_time),
    ("all_of_it_at_once", all_of_it_at_once),
    ("all_of_it_for_several_at_once", all_of_it_for_several_at_once),
    ("a_gate_ends_with_the_last_reader", a_gate_ends_with_the_last_reader),
    ("who_comes_after_the_last_reader_can_mount", who_comes_after_the_last_reader_can_mount),
    ("a_process_that_may_not_mount_cannot_fill", a_process_that_may_not_mount_cannot_fill),
    ("a_process_that_may_not_mount_is_no_gate", a_process_that_may_not_mount_is_no_gate),
];

/// How long a test waits for another process.
const PATIENCE: Duration = Duration::from_secs(30);

/// The size of a piece. It is small, so that there are many pieces.
const PIECE_BYTES: u64 = 64 << 10;

/// Fetches from a local file that has all bytes.
pub(crate) struct FromFile {
    source: File,
    delay: Duration,
    fails: AtomicBool,
    /// The source cannot be reached: fetches fail with `HostUnreachable`.
    is_away: AtomicBool,
    asked: Mutex<Vec<Range<u64>>>,
    at_once: AtomicUsize,
    at_once_max: AtomicUsize,
}

impl FromFile {
    pub(crate) fn new(source: &Path, delay: Duration) -> Arc<FromFile> {
        Arc::new(FromFile {
            source: File::open(source).expect("opens"),
            delay,
            fails: AtomicBool::new(false),
            is_away: AtomicBool::new(false),
            asked: Mutex::new(Vec::new()),
            at_once: AtomicUsize::new(0),
            at_once_max: AtomicUsize::new(0),
        })
    }
}

impl Fill for FromFile {
    fn fill(&self, offset: u64, length: u64, into: BorrowedFd<'_>) -> io::Result<()> {
        self.at_once_max.fetch_max(self.at_once.fetch_add(1, SeqCst) + 1, SeqCst);
        self.asked.lock().expect("is sound").push(offset..offset + length);
        std::thread::sleep(self.delay);
        self.at_once.fetch_sub(1, SeqCst);
        if self.is_away.load(SeqCst) {
            return Err(io::ErrorKind::HostUnreachable.into());
        }
        if self.fails.load(SeqCst) {
            return Err(io::Error::other("told to fail"));
        }
        let mut buffer = vec![0; length as usize];
        self.source.read_exact_at(&mut buffer, offset)?;
        File::from(into.try_clone_to_owned()?).write_all_at(&buffer, offset)
    }

    fn piece(&self, offset: u64) -> Range<u64> {
        let start = offset / PIECE_BYTES * PIECE_BYTES;
        start..start + PIECE_BYTES
    }
}

pub(crate) fn gate_command() -> Vec<OsString> {
    vec![std::env::current_exe().expect("is known").into(), "role-gate".into()]
}

fn options() -> Options {
    Options { background: 0, ..Options::new(gate_command()) }
}

/// An image without local data, and a file that has the data.
pub(crate) struct Far {
    pub(crate) fixture: Fixture,
    pub(crate) metadata: PathBuf,
    pub(crate) source: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) size_bytes: u64,
}

/// Returns `None` after printing the reason if lazy mounts are not possible here.
pub(crate) fn far() -> Option<Far> {
    let fixture = Fixture::new();
    let Some(Image::Erofs { metadata, data: Some(source) }) = fixture.erofs() else { return None };
    if let Err(why) = &ladder(&fixture.make("images"))[0].found {
        println!("    skipped: {why}");
        return None;
    }
    let size_bytes = fs::metadata(&source).expect("is there").len();
    let data = fixture.path("images/data");
    Some(Far { fixture, metadata, source, data, size_bytes })
}

impl Far {
    fn image(&self) -> Image {
        Image::Erofs { metadata: self.metadata.clone(), data: Some(self.data.clone()) }
    }

    fn state(&self) -> PathBuf {
        self.fixture.path("images/state")
    }

    fn begin(&self, fill: &Arc<FromFile>, options: &Options) -> Lazy {
        let fill: Arc<dyn Fill> = Arc::clone(fill) as Arc<dyn Fill>;
        Lazy::begin(&self.state(), &self.data, self.size_bytes, fill, options).expect("begins")
    }

    pub(crate) fn places(&self) -> Places {
        Places::open(&self.fixture.path("places")).expect("opens")
    }

    fn allocated_bytes(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(&self.data).expect("is there").blocks() * 512
    }
}

pub(crate) fn until(what: &str, holds: impl FnMut() -> bool) {
    until_within(PATIENCE, what, holds);
}

/// Waits with a longer limit, for operations that are slow on a slow disk.
pub(crate) fn until_within(patience: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + patience;
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until no process is a gate of that image. A connection to the gate would take the place of
/// the filler's, and the gate would miss that all data is there. So this only looks for its socket.
fn until_gate_ends(far: &Far) {
    let socket = far.state().join("gate2.sock");
    let socket = socket.to_str().expect("not UTF-8");
    until("the gate ends", || {
        let sockets = fs::read_to_string("/proc/net/unix").expect("cannot read the list of sockets");
        !sockets.lines().any(|line| line.ends_with(socket))
    });
}

fn what_is_touched_arrives() {
    let Some(far) = far() else { return };
    let (before, target) = (mounts(), far.fixture.make("target"));
    let fill = FromFile::new(&far.source, Duration::ZERO);
    let lazy = far.begin(&fill, &Options { trace: true, ..options() });
    let layer = lazy.mount(&far.metadata).expect("mounts");
    let stay =
        far.places().mount(&Ask { layer: Some(&layer), ..ask(&far.image(), &target, Backend::Lazy) }).expect("mounts");
    // Names and attributes need no data.
    assert_eq!(fs::read_dir(target.join("deep/er")).expect("is there").count(), 41);
    assert!(fill.asked.lock().expect("is sound").is_empty());
    assert!(fs::read(target.join("deep/er/file7")).expect("reads") == bytes(7, 100 + 7 * 311));
    assert!(!lazy.is_complete() && lazy.filled_bytes() > 0 && far.allocated_bytes() < LARGE_BYTES as u64);
    let touched = lazy.trace();
    assert_eq!(touched.ranges.len(), 1, "{touched:?}");
    far.fixture.assert_same(&target);
    drop((stay, layer));
    assert_eq!(mounts(), before);
}

fn a_fill_that_fails_is_an_error_and_never_zeros() {
    let Some(far) = far() else { return };
    let target = far.fixture.make("target");
    let fill = FromFile::new(&far.source, Duration::ZERO);
    fill.fails.store(true, SeqCst);
    let lazy = far.begin(&fill, &Options { background: 2, ..options() });
    let placed = lazy.mount(&far.metadata).expect("mounts").place(&target).expect("is placed");
    for _ in 0..3 {
        let error = fs::read(target.join("large")).expect_err("nothing can be fetched");
        assert_eq!(error.raw_os_error(), Some(5), "{error}");
    }
    assert_eq!(lazy.filled_bytes(), 0);
    // Once fetches succeed again, everything can be read.
    fill.fails.store(false, SeqCst);
    far.fixture.assert_same(&target);
    until("all data is fetched", || lazy.is_complete());
    until_gate_ends(&far);
    placed.take_away().expect("unmounts");
    drop(lazy);
    // The next time nothing is fetched.
    let asked = fill.asked.lock().expect("is sound").len();
    let lazy = far.begin(&fill, &options());
    assert!(lazy.is_complete());
    let placed = lazy.mount(&far.metadata).expect("mounts").place(&target).expect("is placed");
    far.fixture.assert_same(&target);
    assert_eq!(fill.asked.lock().expect("is sound").len(), asked);
    drop(placed);
}

fn what_is_away_for_a_moment_is_waited_for() {
    let Some(far) = far() else { return };
    let target = far.fixture.make("target");
    let fill = FromFile::new(&far.source, Duration::ZERO);
    fill.is_away.store(true, SeqCst);
    let lazy = far.begin(&fill, &Options { background: 2, ..options() });
    let placed = lazy.mount(&far.metadata).expect("mounts").place(&target).expect("is placed");
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| read_all(&far, &target));
        until("many fetches were tried", || fill.asked.lock().expect("is sound").len() > 40);
        assert_eq!(lazy.filled_bytes(), 0);
        fill.is_away.store(false, SeqCst);
        assert_eq!(reading.join().expect("all bytes are right"), 0, "the waiting reads succeeded");
    });
    far.fixture.assert_same(&target);
    drop(placed);
}

fn many_readers_at_once() {
    let Some(far) = far() else { return };
    let target = far.fixture.make("target");
    let fill = FromFile::new(&far.source, Duration::from_millis(3));
    let lazy = far.begin(&fill, &options());
    let placed = lazy.mount(&far.metadata).expect("mounts").place(&target).expect("is placed");
    let large = bytes(99, LARGE_BYTES);
    std::thread::scope(|scope| {
        for reader in 0..32 {
            let (target, large) = (&target, &large);
            scope.spawn(move || {
                let file = File::open(target.join("large")).expect("opens");
                for step in 0..40 {
                    let offset = (reader * 7919 + step * 104_729) * 13 % (LARGE_BYTES - 5000);
                    let mut got = vec![0; 5000];
                    file.read_exact_at(&mut got, offset as u64).expect("reads");
                    assert!(got == large[offset..offset + 5000], "at {offset}");
                }
            });
        }
    });
    far.fixture.assert_same(&target);
    let mut asked = fill.asked.lock().expect("is sound").clone();
    asked.sort_by_key(|range| range.start);
    let overlaps = asked.windows(2).filter(|two| two[0].end > two[1].start).count();
    assert_eq!(overlaps, 0, "no byte is fetched twice");
    assert!(fill.at_once_max.load(SeqCst) > 4, "several fetches run at once");
    drop(placed);
    drop(lazy);
}

/// Plays the role of a filler: `STATE DATA SOURCE DELAY_MS [METADATA [TARGET PLACES [rescue]]]`. It
/// fills until it is killed.
///
/// - Without METADATA it takes over an existing mount.
/// - With METADATA alone it makes a detached mount, which repairs existing mounts. A gate starts it
///   like that.
/// - With TARGET it mounts there first. With a further word, its gate starts a new filler if it is
///   killed.
pub(crate) fn fill_and_wait(arguments: &[String]) {
    let [state, data, source, delay_ms, more @ ..] = arguments else { panic!("{arguments:?}") };
    let pids = File::options().append(true).create(true).open(Path::new(data).with_extension("pids"));
    pids.and_then(|mut file| writeln!(file, "{}", larder_sys::process_id())).expect("notes");
    let mut rescue = Vec::new();
    if let [metadata, _, _, _] = more {
        let words = ["role-fill", state, data, source, delay_ms, metadata].map(OsString::from);
        rescue = [vec!["/".into(), std::env::current_exe().expect("is known").into()], words.to_vec()].concat();
    }
    let size_bytes = fs::metadata(source).expect("is there").len();
    let fill = FromFile::new(Path::new(source), Duration::from_millis(delay_ms.parse().expect("is a number")));
    let background = if matches!(more, [_] | [_, _, _, _]) { 2 } else { 0 };
    let options = Options { workers: 2, background, rescue, ..options() };
    let lazy = Lazy::begin(Path::new(state), Path::new(data), size_bytes, fill, &options).expect("begins");
    let mut nowhere = None;
    if let [metadata] = more {
        nowhere = Some(lazy.mount(Path::new(metadata)).expect("mounts"));
    }
    if let [metadata, target, places, ..] = more {
        let layer = lazy.mount(Path::new(metadata)).expect("mounts");
        let image = Image::Erofs { metadata: metadata.into(), data: Some(data.into()) };
        let asked = Ask { layer: Some(&layer), lease: Lease::Kept, ..ask(&image, Path::new(target), Backend::Lazy) };
        Places::open(Path::new(places)).expect("opens").mount(&asked).expect("mounts").leave();
    }
    // If a gate has started this filler, nothing reads this line. `println!` panics on errors.
    let _ = writeln!(io::stdout(), "fills");
    std::thread::sleep(Duration::from_secs(120));
    drop(nowhere);
}

/// Plays the role of a gate, as `larderd` runs it.
pub(crate) fn be_gate(arguments: &[String]) {
    let socket = io::stdin().as_fd().try_clone_to_owned().expect("is open");
    larder_mount::lazy::gate(socket, arguments.iter().map(OsString::from).collect()).expect("is a gate");
}

fn somebody(far: &Far, delay_ms: u32, target: Option<&Path>) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("is known"));
    command.arg("role-fill").args([&far.state(), &far.data, &far.source]).arg(delay_ms.to_string());
    if let Some(target) = target {
        command.arg(&far.metadata).arg(target).arg(far.fixture.path("places"));
    }
    let mut child = command.stdout(Stdio::piped()).spawn().expect("starts");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("is piped")).read_line(&mut line).expect("reads");
    assert_eq!(line, "fills\n");
    child
}

/// Reads the whole tree from many threads. Returns how many files could not be read. Panics if a
/// file has wrong bytes.
fn read_all(far: &Far, target: &Path) -> usize {
    let failed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for reader in 0..8 {
            let failed = &failed;
            scope.spawn(move || {
                let names = (0..40).map(|number| format!("deep/er/file{}", (number + reader * 5) % 40));
                for name in names.chain(["large".to_owned(), "sparse".to_owned()]) {
                    match fs::read(target.join(&name)) {
                        Ok(got) => assert!(got == fs::read(far.fixture.tree().join(&name)).expect("reads"), "{name}"),
                        Err(error) if error.raw_os_error() == Some(5) => drop(failed.fetch_add(1, SeqCst)),
                        Err(error) => panic!("{name}: {error}"),
                    }
                }
            });
        }
    });
    failed.load(SeqCst)
}

fn a_filler_that_is_killed_shows_no_zeros() {
    let Some(far) = far() else { return };
    let (before, target) = (mounts(), far.fixture.make("target"));
    let mut filler = somebody(&far, 30, Some(&target));
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| read_all(&far, &target));
        for round in 0..6 {
            std::thread::sleep(Duration::from_millis(20 + round * 10));
            // On a busy machine the later rounds may come too late.
            let is_complete = far.allocated_bytes() >= LARGE_BYTES as u64;
            assert!(round > 0 || !is_complete, "the data file is not complete yet");
            if is_complete {
                break;
            }
            filler.kill().expect("dies");
            filler.wait().expect("died");
            // Reads wait meanwhile.
            std::thread::sleep(Duration::from_millis(20));
            filler = somebody(&far, 30, None);
        }
        assert_eq!(reading.join().expect("all bytes are right"), 0, "the waiting reads succeeded");
    });
    far.fixture.assert_same(&target);
    filler.kill().expect("dies");
    filler.wait().expect("died");
    far.places().unmount(&target).expect("unmounts");
    assert_eq!(mounts(), before);
    until_gate_ends(&far);
}

fn gate_of(far: &Far) -> Option<u32> {
    gate_in(&far.state())
}

/// The process ID of the gate whose socket is in this directory.
pub(crate) fn gate_in(state: &Path) -> Option<u32> {
    let program = std::env::current_exe().expect("is known");
    let socket = state.join("gate2.sock");
    let sockets = fs::read_to_string("/proc/net/unix").expect("is there");
    let line = sockets.lines().find(|line| line.ends_with(&*socket.to_string_lossy()))?;
    let inode = line.split_whitespace().nth(6)?;
    let pids =
        fs::read_dir("/proc").expect("is there").filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program)).find(|pid| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let holds = |entry: io::Result<fs::DirEntry>| {
            let link = entry.ok().and_then(|entry| fs::read_link(entry.path()).ok());
            link.is_some_and(|link| link.to_string_lossy() == format!("socket:[{inode}]"))
        };
        words.split(|byte| *byte == 0).nth(1) == Some(b"role-gate")
            && fs::read_dir(format!("/proc/{pid}/fd")).is_ok_and(|mut fds| fds.any(holds))
    })
}

fn a_gate_that_is_killed_shows_no_zeros() {
    let Some(far) = far() else { return };
    let target = far.fixture.make("target");
    let fill = FromFile::new(&far.source, Duration::from_millis(30));
    let lazy = far.begin(&fill, &Options { workers: 2, ..options() });
    let placed = lazy.mount(&far.metadata).expect("mounts").place(&target).expect("is placed");
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| read_all(&far, &target));
        let mut killed = None;
        for round in 0..3 {
            std::thread::sleep(Duration::from_millis(40));
            // On a busy machine the later rounds may come too late.
            let is_new_or_late = || lazy.is_complete() || gate_of(&far).is_some_and(|gate| Some(gate) != killed);
            until("there is a gate", is_new_or_late);
            assert!(round > 0 || !lazy.is_complete(), "the data file is not complete yet");
            let Some(gate) = gate_of(&far).filter(|gate| !lazy.is_complete() && Some(*gate) != killed) else { break };
            killed = Some(gate);
            let gate = gate.to_string();
            assert!(Command::new("kill").args(["-KILL", &gate]).status().expect("runs").success());
        }
        assert_eq!(reading.join().expect("all bytes are right"), 0, "the waiting reads succeeded");
    });
    far.fixture.assert_same(&target);
    drop((placed, lazy));
    until_gate_ends(&far);
}

fn what_was_touched_comes_first_the_next_time() {
    let Some(far) = far() else { return };
    let target = far.fixture.make("target");
    let fill = FromFile::new(&far.source, Duration::ZERO);
    let lazy = far.begin(&fill, &Options { trace: true, ..options() });
    let placed = lazy.mount(&far.metadata).expect("mounts").place(&target).expect("is placed");
    for name in ["deep/er/file30", "deep/er/file3"] {
        fs::read(target.join(name)).expect("reads");
    }
    let mut last = [0; 10];
    File::open(target.join("large")).expect("opens").read_exact_at(&mut last, LARGE_BYTES as u64 - 10).expect("reads");
    let trace = lazy.trace();
    assert!(!trace.ranges.is_empty() && trace.ranges.iter().all(|range| range.end <= far.size_bytes));
    placed.take_away().expect("unmounts");
    drop(lazy);
    until_gate_ends(&far);
    // As on another host: without data and state.
    fs::remove_file(&far.data).expect("removes");
    fs::remove_dir_all(far.state()).expect("removes");
    let order = Trace::decode(&trace.encode()).expect("is one").ranges;
    let fill = FromFile::new(&far.source, Duration::ZERO);
    let lazy = far.begin(&fill, &Options { order: order.clone(), background: 1, workers: 1, ..options() });
    until("all data is fetched", || lazy.is_complete());
    let asked = fill.asked.lock().expect("is sound").clone();
    assert_eq!(asked[0].start, order[0].start / PIECE_BYTES * PIECE_BYTES);
    let first: u64 = order.iter().map(|range| range.end - range.start).sum();
    let mut seen = 0;
    for range in &asked {
        let is_wanted = |wanted: &Range<u64>| wanted.start < range.end && range.start < wanted.end;
        assert!(seen >= first || order.iter().any(is_wanted), "{range:?} of {order:?}");
        seen += range.end - range.start;
    }
    assert_eq!(seen, far.size_bytes, "each byte is fetched exactly once");
}

fn all_of_it_at_once() {
    let Some(far) = far() else { return };
    let target = far.fixture.make("target");
    let fill = FromFile::new(&far.source, Duration::ZERO);
    fill.fails.store(true, SeqCst);
    assert!(fill_whole(&far.state(), &far.data, far.size_bytes, &*fill, 4).is_err());
    fill.fails.store(false, SeqCst);
    for _ in 0..2 {
        fill.asked.lock().expect("is sound").clear();
        fill_whole(&far.state(), &far.data, far.size_bytes, &*fill, 4).expect("fills");
    }
    assert!(fill.asked.lock().expect("is sound").is_empty(), "nothing is fetched the second time");
    assert!(fs::read(&far.data).expect("reads") == fs::read(&far.source).expect("reads"));
    let stay = far.places().mount(&ask(&far.image(), &target, Backend::Mount)).expect("mounts");
    far.fixture.assert_same(&target);
    stay.end().expect("unmounts");
    assert!(far.begin(&fill, &options()).is_complete(), "the lazy filler finds a complete file");
}

fn all_of_it_for_several_at_once() {
    let Some(far) = far() else { return };
    let fill = FromFile::new(&far.source, Duration::from_millis(20));
    let each_once = |fill: &FromFile| {
        let mut asked = fill.asked.lock().expect("is sound").clone();
        asked.sort_by_key(|piece| piece.start);
        assert!(asked.windows(2).all(|two| two[0].end <= two[1].start), "{asked:?}");
    };
    let all_there = || assert!(fs::read(&far.data).expect("reads") == fs::read(&far.source).expect("reads"));
    let whole = || fill_whole(&far.state(), &far.data, far.size_bytes, &*fill, 2).expect("fills");
    std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(whole))));
    each_once(&fill);
    all_there();
    // The note that the file is complete does not hold for a new file.
    fs::remove_file(&far.data).expect("removes");
    fill.asked.lock().expect("is sound").clear();
    // This waits for a filler that runs while the file is read, even if the filler goes on tracing.
    let lazy = far.begin(&fill, &Options { background: 2, trace: true, ..options() });
    assert!(!lazy.is_complete());
    whole();
    assert!(lazy.is_complete());
    each_once(&fill);
    lazy.finish();
    drop(lazy);
    until_gate_ends(&far);
    all_there();
}

fn a_gate_ends_with_the_last_reader() {
    let Some(far) = far() else { return };
    let target = far.fixture.make("target");
    let fill = FromFile::new(&far.source, Duration::ZERO);
    let lazy = far.begin(&fill, &options());
    let again = Lazy::begin(&far.state(), &far.data, far.size_bytes, Arc::clone(&fill) as Arc<dyn Fill>, &options());
    assert!(matches!(again, Err(MountError::Path { .. })), "only one process fills at a time");
    let placed = lazy.mount(&far.metadata).expect("mounts").place(&target).expect("is placed");
    let file = File::open(target.join("large")).expect("opens");
    placed.take_away().expect("unmounts");
    // The mount is detached now, but a file of it is open.
    let mut some = [0; 100];
    file.read_exact_at(&mut some, 1_000_000).expect("reads");
    assert!(some == bytes(99, LARGE_BYTES)[1_000_000..1_000_100]);
    assert!(gate_of(&far).is_some());
    drop(lazy);
    std::thread::sleep(Duration::from_millis(50));
    assert!(gate_of(&far).is_some(), "the open file could still be read");
    drop(file);
    until_gate_ends(&far);
}

fn who_comes_after_the_last_reader_can_mount() {
    let Some(far) = far() else { return };
    for round in 0..20 {
        let fill = FromFile::new(&far.source, Duration::ZERO);
        let lazy = far.begin(&fill, &options());
        let layer = lazy.mount(&far.metadata).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(!lazy.is_complete());
        drop(layer);
        drop(lazy);
        // Often the gate has not ended yet, or is just about to.
        std::thread::sleep(Duration::from_millis(round % 4));
    }
    until_gate_ends(&far);
}

/// The exit codes of an attacker.
const REFUSED: i32 = 7;
const LET_IN: i32 = 8;

/// Plays an attacker that has the user of filler and gate, but may not mount: `HOW PATH SIZE`.
///
/// - `fill` connects to the gate as a filler does, and ends with `REFUSED` or `LET_IN`.
/// - `gate` listens in place of a gate, and passes what a gate would pass.
pub(crate) fn attack(arguments: &[String]) {
    let [how, path, size_bytes] = arguments else { panic!("{arguments:?}") };
    let (path, size_bytes) = (Path::new(path), size_bytes.parse().expect("is a number"));
    if larder_sys::effective_user() == 0 && std::env::var_os("LARDER_TEST_KEEPS_RIGHTS").is_none() {
        larder_sys::give_up_rights(None).expect("gives up");
    }
    let mut passed = Vec::new();
    if how == "fill" {
        let channel = Channel::connect(path, PATIENCE).expect("connects");
        let got = channel.receive(&mut [0; 64], &mut passed, usize::MAX);
        let is_refused = matches!(got, Ok(0) | Err(_)) && passed.is_empty();
        std::process::exit(if is_refused { REFUSED } else { LET_IN });
    }
    fs::remove_file(path).expect("removes");
    let door = Door::open(path).expect("listens");
    println!("listens");
    let (_held, woken) = larder_sys::pipe().expect("makes");
    let null = File::open("/dev/null").expect("opens");
    let until = Instant::now() + 4 * PATIENCE;
    while Instant::now() < until {
        door.wait(PATIENCE, woken.as_fd()).expect("waits");
        if let Some(channel) = door.accept().expect("accepts") {
            let hello = [2u64, size_bytes, 4096].map(u64::to_le_bytes).concat();
            let _ = channel.send(&hello, &[null.as_fd(), null.as_fd()]);
        }
    }
}

/// Returns the command of an attacker. In a user namespace of its own it has all rights, but none in
/// ours.
fn attacker(how: &str, far: &Far, has_namespace: bool) -> Command {
    let program = std::env::current_exe().expect("is known");
    let mut command = Command::new(if has_namespace { Path::new("unshare") } else { &program });
    if has_namespace {
        command.args(["--user", "--map-root-user"]).arg(&program).env("LARDER_TEST_KEEPS_RIGHTS", "1");
    }
    command.args(["role-attack", how]).arg(far.state().join("gate2.sock")).arg(far.size_bytes.to_string());
    command
}

fn a_process_that_may_not_mount_cannot_fill() {
    let Some(far) = far() else { return };
    let target = far.fixture.make("target");
    let attack = |has_namespace| attacker("fill", &far, has_namespace).status().expect("runs").code();
    let has_namespaces = Command::new("unshare").args(["--user", "--map-root-user", "true"]).status();
    let has_namespaces = has_namespaces.is_ok_and(|status| status.success());
    if !has_namespaces {
        println!("    skipped in part: a process cannot have a user namespace of its own");
    }
    let mut filler = somebody(&far, 5, Some(&target));
    for is_alone in [false, true] {
        if is_alone {
            filler.kill().expect("dies");
            filler.wait().expect("died");
        }
        assert_eq!(attack(false), Some(REFUSED), "is alone: {is_alone}");
        assert!(!has_namespaces || attack(true) == Some(REFUSED), "is alone: {is_alone}");
        if !is_alone {
            // The filler was not sent away.
            assert!(fs::read(target.join("deep/er/file7")).expect("reads") == bytes(7, 100 + 7 * 311));
        }
    }
    filler = somebody(&far, 5, None);
    far.fixture.assert_same(&target);
    far.places().unmount(&target).expect("unmounts");
    filler.kill().expect("dies");
    filler.wait().expect("died");
    until_gate_ends(&far);
}

fn a_process_that_may_not_mount_is_no_gate() {
    let Some(far) = far() else { return };
    let target = far.fixture.make("target");
    fs::create_dir_all(far.state()).expect("makes");
    fs::write(far.state().join("gate2.sock"), "").expect("writes");
    let mut attacking = attacker("gate", &far, false).stdout(Stdio::piped()).spawn().expect("starts");
    let mut line = String::new();
    BufReader::new(attacking.stdout.as_mut().expect("is piped")).read_line(&mut line).expect("reads");
    assert_eq!(line, "listens\n");
    let mut filler = somebody(&far, 5, Some(&target));
    far.fixture.assert_same(&target);
    far.places().unmount(&target).expect("unmounts");
    for one in [&mut filler, &mut attacking] {
        one.kill().expect("dies");
        one.wait().expect("died");
    }
    until_gate_ends(&far);
}
