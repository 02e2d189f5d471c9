//! A record on disk: a directory, or its contents in one compressed file. Only this module knows
//! the file names.
//!
//! ```text
//! NAME/
//!   record.json            the header: command and options, written first
//!   context.json           the context of the measurement
//!   project.diff           uncommitted changes
//!   reproduce.sh           a script that repeats the recording
//!   runs/1/run.json        how the run began and ended
//!         /events.jsonl    events of processes, as they happen
//!         /actions.jsonl   lines from wrappers, as they are written
//!         /load.jsonl      the load, one line per second
//!         /output.txt      the command's output, if it is kept
//!         /stacks.folded   sampled stacks; stacks.txt says how they were sampled
//!         /spans.jsonl     spans from the reports of build tools
//!         /attached/       files that the user attached
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::RecordError;
use crate::schema::{Action, Context, Event, FORMAT, Header, Load, Run, Span};

const HEADER: &str = "record.json";
const CONTEXT: &str = "context.json";
const DIFF: &str = "project.diff";
const REPRODUCE: &str = "reproduce.sh";
const RUN: &str = "run.json";
const EVENTS: &str = "events.jsonl";
const ACTIONS: &str = "actions.jsonl";
const LOAD: &str = "load.jsonl";
const OUTPUT: &str = "output.txt";
const STACKS: &str = "stacks.folded";
const STACKS_COMMAND: &str = "stacks.txt";
const SPANS: &str = "spans.jsonl";
const ATTACHED: &str = "attached";
/// The suffix of a packed record.
pub const PACKED: &str = ".tar.zst";
/// The largest unpacked size, in bytes, because a packed record is read into memory. A build of
/// 100,000 processes has about 100 MB.
const UNPACKED_BYTES_MAX: u64 = 4 << 30;

type Result<T> = std::result::Result<T, RecordError>;

/// A record that is being made.
pub struct Writing {
    top: PathBuf,
}

/// The files of one run of a record that is being made.
pub struct RunFiles {
    directory: PathBuf,
}

/// The contents of a record.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// The path from which it was read.
    pub path: PathBuf,
    /// The header: command and options.
    pub header: Header,
    /// The context. It is the default if the record was cut off before it was written.
    pub context: Context,
    /// The runs, in order.
    pub runs: Vec<RecordedRun>,
}

/// One run of a record.
#[derive(Clone, Debug, Default)]
pub struct RecordedRun {
    /// How the run began and ended.
    pub run: Run,
    /// The events of its processes.
    pub events: Vec<Event>,
    /// The lines that wrappers wrote.
    pub actions: Vec<Action>,
    /// The load, one line per second.
    pub load: Vec<Load>,
    /// Sampled stacks, one `frame;frame count` per line; empty if none were sampled.
    pub stacks: String,
    /// The spans from reports of build tools.
    pub spans: Vec<Span>,
    /// The number of unreadable lines, for example the last line of a record that was cut off.
    pub damaged_lines: usize,
}

impl Writing {
    /// Creates a private directory in `records` with this name. If the name is taken, a number is
    /// appended.
    pub fn create(records: &Path, name: &str) -> Result<Writing> {
        let mut private = fs::DirBuilder::new();
        private.mode(0o700);
        private.recursive(true).create(records).map_err(RecordError::io(records))?;
        private.recursive(false);
        for number in 1.. {
            let name = if number == 1 { name.to_owned() } else { format!("{name}-{number}") };
            if records.join(format!("{name}{PACKED}")).exists() {
                continue;
            }
            let top = records.join(name);
            match private.create(&top) {
                Ok(()) => return Ok(Writing { top }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(RecordError::io(top)(error)),
            }
        }
        unreachable!("numbers do not end")
    }

    /// Returns the path of the directory.
    pub fn top(&self) -> &Path {
        &self.top
    }

    /// Returns the name, with the number if one was appended.
    pub fn name(&self) -> String {
        self.top.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Removes the directory, because nothing was recorded.
    pub fn discard(self) -> Result<()> {
        larder_sys::remove_tree(&self.top).map_err(RecordError::io(self.top))
    }

    /// Writes the header.
    pub fn header(&self, header: &Header) -> Result<()> {
        put_json(&self.top.join(HEADER), header)
    }

    /// Writes the context and the uncommitted changes.
    pub fn context(&self, context: &Context, diff: &[u8]) -> Result<()> {
        if !diff.is_empty() {
            put(&self.top.join(DIFF), diff)?;
        }
        put_json(&self.top.join(CONTEXT), context)
    }

    /// Writes the script that repeats the recording.
    pub fn reproduce(&self, script: &str) -> Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let path = self.top.join(REPRODUCE);
        put(&path, script.as_bytes())?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(RecordError::io(path))
    }

    /// Creates the directory of a run, and returns its files.
    pub fn run(&self, number: u32) -> Result<RunFiles> {
        let directory = self.top.join("runs").join(number.to_string());
        fs::create_dir_all(&directory).map_err(RecordError::io(&directory))?;
        Ok(RunFiles { directory })
    }
}

impl RunFiles {
    /// Writes how the run began, or how it ended.
    pub fn run(&self, run: &Run) -> Result<()> {
        put_json(&self.directory.join(RUN), run)
    }

    /// Returns the file to which wrappers append their lines.
    pub fn actions(&self) -> PathBuf {
        self.directory.join(ACTIONS)
    }

    /// Returns the file for sampled stacks.
    pub fn stacks(&self) -> PathBuf {
        self.directory.join(STACKS)
    }

    /// Returns the file that says how stacks were sampled.
    pub fn stacks_command(&self) -> PathBuf {
        self.directory.join(STACKS_COMMAND)
    }

    /// Returns the file for the profiler's own data, which is removed afterwards.
    pub fn scratch(&self) -> PathBuf {
        self.directory.join("perf.data")
    }

    pub(crate) fn events_path(&self) -> PathBuf {
        self.directory.join(EVENTS)
    }

    pub(crate) fn events(&self) -> Result<File> {
        create(&self.events_path())
    }

    pub(crate) fn load(&self) -> Result<File> {
        create(&self.directory.join(LOAD))
    }

    pub(crate) fn output(&self) -> Result<File> {
        create(&self.directory.join(OUTPUT))
    }

    /// Returns the file with the command's output if it is kept.
    pub(crate) fn kept_output(&self) -> Option<PathBuf> {
        Some(self.directory.join(OUTPUT)).filter(|path| path.is_file())
    }

    /// Returns the events that were written, or none if the run is not traced.
    pub(crate) fn events_so_far(&self) -> Vec<Event> {
        lines(&fs::read(self.events_path()).unwrap_or_default(), &mut 0)
    }

    /// Writes the spans, if there are any.
    pub(crate) fn spans(&self, spans: &[Span]) -> Result<()> {
        if spans.is_empty() {
            return Ok(());
        }
        let path = self.directory.join(SPANS);
        let mut bytes = Vec::new();
        for span in spans {
            serde_json::to_writer(&mut bytes, span).map_err(|error| RecordError::io(&path)(error.into()))?;
            bytes.push(b'\n');
        }
        put(&path, &bytes)
    }

    /// Copies a file of at most `bytes_max` into the record. If its name is taken, a number is put
    /// in front.
    pub(crate) fn attach(&self, path: &Path, bytes_max: u64) -> io::Result<()> {
        let about = fs::metadata(path)?;
        if !about.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        if about.len() > bytes_max {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {bytes_max} bytes")));
        }
        let directory = self.directory.join(ATTACHED);
        fs::create_dir_all(&directory)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let names = std::iter::once(name.clone()).chain((2..).map(|number| format!("{number}-{name}")));
        for name in names {
            match File::create_new(directory.join(name)) {
                Ok(mut to) => return io::copy(&mut File::open(path)?.take(bytes_max), &mut to).map(|_| ()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        unreachable!("numbers do not end")
    }

    /// Rewrites the command's output, each line replaced by `shown`, which removes secrets.
    pub(crate) fn redact_output(&self, shown: impl Fn(&[u8]) -> Vec<u8>) -> Result<()> {
        let (path, new) = (self.directory.join(OUTPUT), self.directory.join(OUTPUT).with_extension("new"));
        let redact = || -> io::Result<()> {
            let (lines, mut to) = (io::BufReader::new(File::open(&path)?), io::BufWriter::new(File::create(&new)?));
            for line in lines.split(b'\n') {
                to.write_all(&shown(&line?))?;
                to.write_all(b"\n")?;
            }
            to.flush()?;
            fs::rename(&new, &path)
        };
        redact().map_err(RecordError::io(&path))
    }
}

fn create(path: &Path) -> Result<File> {
    File::create(path).map_err(RecordError::io(path))
}

fn put_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(|error| RecordError::io(path)(error.into()))?;
    bytes.push(b'\n');
    put(path, &bytes)
}

/// Writes a file atomically and synced, so that it is complete or missing even after a crash of the
/// machine.
fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    let new = path.with_extension("new");
    let written = File::create(&new).and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_data()));
    written.and_then(|()| fs::rename(&new, path)).map_err(RecordError::io(path))
}

impl Record {
    /// Reads a record: a directory or a packed file.
    pub fn open(path: &Path) -> Result<Record> {
        let (files, is_whole) = if path.is_file() { unpacked(path)? } else { (files_of(path)?, true) };
        let header: Header = match files.get(HEADER) {
            Some(bytes) => json(&path.join(HEADER), bytes)?,
            None => return Err(RecordError::NoRecord { path: path.to_owned() }),
        };
        if header.format > FORMAT {
            return Err(RecordError::Newer { path: path.to_owned(), found: header.format });
        }
        let mut context = Context::default();
        if let Some(bytes) = files.get(CONTEXT) {
            match json(&path.join(CONTEXT), bytes) {
                Ok(read) => context = read,
                Err(error) => context.missing.push(error.to_string()),
            }
        }
        if !is_whole {
            context.missing.push("the end of the packed record, which was cut off".to_owned());
        }
        let numbers = files.keys().filter_map(|name| name.strip_prefix("runs/")?.split_once('/'));
        let mut numbers: Vec<u32> = numbers.filter_map(|(number, _)| number.parse().ok()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let runs = numbers.into_iter().map(|number| read_run(number, &files)).collect();
        Ok(Record { path: path.to_owned(), header, context, runs })
    }

    /// Returns the runs whose times can be compared: those that ended without interruption and were
    /// not traced, or the traced ones if there are no others.
    pub fn timed(&self) -> Vec<&RecordedRun> {
        let ended = || self.runs.iter().filter(|run| run.run.end.as_ref().is_some_and(|end| !end.interrupted));
        let plain: Vec<_> = ended().filter(|run| !run.run.traced).collect();
        if plain.is_empty() { ended().collect() } else { plain }
    }

    /// Returns the run that explains the record: the last traced one, else the last one.
    pub fn explaining(&self) -> Option<&RecordedRun> {
        self.runs.iter().rfind(|run| !run.events.is_empty()).or(self.runs.last())
    }
}

fn read_run(number: u32, files: &BTreeMap<String, Vec<u8>>) -> RecordedRun {
    let name = |file: &str| format!("runs/{number}/{file}");
    let bytes = |file: &str| files.get(&name(file)).map(Vec::as_slice).unwrap_or_default();
    let mut damaged_lines = 0;
    let run = serde_json::from_slice(bytes(RUN)).unwrap_or_else(|_| {
        damaged_lines += 1;
        Run { number, ..Run::default() }
    });
    RecordedRun {
        run,
        events: lines(bytes(EVENTS), &mut damaged_lines),
        actions: lines(bytes(ACTIONS), &mut damaged_lines),
        load: lines(bytes(LOAD), &mut damaged_lines),
        stacks: String::from_utf8_lossy(bytes(STACKS)).into_owned(),
        spans: lines(bytes(SPANS), &mut damaged_lines),
        damaged_lines,
    }
}

fn json<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| RecordError::Damaged {
        path: path.to_owned(),
        line: error.line(),
        error,
    })
}

/// Parses one value per line. A damaged line is skipped and counted.
fn lines<T: DeserializeOwned>(bytes: &[u8], damaged: &mut usize) -> Vec<T> {
    let mut found = Vec::new();
    for line in bytes.split(|&b| b == b'\n').filter(|line| !line.is_empty()) {
        match serde_json::from_slice(line) {
            Ok(value) => found.push(value),
            Err(_) => *damaged += 1,
        }
    }
    found
}

/// Reads all files of a record's directory except output and attached files, by their relative
/// names.
fn files_of(top: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for name in names(top)? {
        let path = top.join(&name);
        if !name.ends_with(OUTPUT) && !is_attached(&name) {
            files.insert(name, fs::read(&path).map_err(RecordError::io(&path))?);
        }
    }
    Ok(files)
}

fn is_attached(name: &str) -> bool {
    name.split('/').nth(2) == Some(ATTACHED)
}

/// Returns the names of a record's files, sorted.
fn names(top: &Path) -> Result<Vec<String>> {
    let mut names: Vec<String> = [HEADER, CONTEXT, DIFF, REPRODUCE]
        .into_iter()
        .filter(|name| top.join(name).is_file())
        .map(Into::into)
        .collect();
    for run in fs::read_dir(top.join("runs")).into_iter().flatten().flatten() {
        let number = run.file_name().to_string_lossy().into_owned();
        for file in [RUN, EVENTS, ACTIONS, LOAD, OUTPUT, STACKS, STACKS_COMMAND, SPANS] {
            if run.path().join(file).is_file() {
                names.push(format!("runs/{number}/{file}"));
            }
        }
        let attached = fs::read_dir(run.path().join(ATTACHED)).into_iter().flatten().flatten();
        names.extend(attached.map(|file| format!("runs/{number}/{ATTACHED}/{}", file.file_name().to_string_lossy())));
    }
    names.sort();
    Ok(names)
}

/// Returns the files of a packed record by their names, and whether it was complete. Of an
/// incomplete one, the files before the damage are returned.
fn unpacked(path: &Path) -> Result<(BTreeMap<String, Vec<u8>>, bool)> {
    let file = File::open(path).map_err(RecordError::io(path))?;
    let damaged = |error: String| RecordError::io(path)(io::Error::new(io::ErrorKind::InvalidData, error));
    let plain = ruzstd::decoding::StreamingDecoder::new(io::BufReader::new(file))
        .map_err(|error| damaged(format!("not a packed record: {error}")))?;
    let mut archive = tar::Archive::new(plain.take(UNPACKED_BYTES_MAX + 1));
    let (mut files, mut size_bytes) = (BTreeMap::new(), 0);
    for entry in archive.entries().map_err(RecordError::io(path))? {
        let mut entry = match entry {
            Ok(entry) => entry,
            Err(_) if files.contains_key(HEADER) => return Ok((files, false)),
            Err(error) => return Err(RecordError::io(path)(error)),
        };
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        // The first component is the record's name.
        let Some((_, name)) = name.split_once('/') else { continue };
        let (name, mut bytes) = (name.to_owned(), Vec::new());
        // The part of the last file that exists is used, because it is read line by line.
        let is_whole = entry.read_to_end(&mut bytes).is_ok();
        size_bytes += bytes.len() as u64;
        if size_bytes > UNPACKED_BYTES_MAX {
            return Err(RecordError::TooLarge { path: path.to_owned(), limit_bytes: UNPACKED_BYTES_MAX });
        }
        if !is_attached(&name) {
            files.insert(name, bytes);
        }
        if !is_whole {
            return Ok((files, false));
        }
    }
    Ok((files, true))
}

/// Packs the record in the directory `top` into the file `to`.
pub fn pack(top: &Path, to: &Path) -> Result<()> {
    let name = top.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_else(|| "record".into());
    let mut archive = tar::Builder::new(Vec::new());
    let mut files = names(top)?;
    // The most important files come first, because of a file that is cut off only the beginning can
    // be read.
    files.sort_by_key(|name| (name.starts_with("runs/"), is_attached(name), !name.ends_with(RUN)));
    for file in files {
        let path = top.join(&file);
        let put = archive.append_path_with_name(&path, format!("{name}/{file}"));
        put.map_err(RecordError::io(path))?;
    }
    let plain = archive.into_inner().map_err(RecordError::io(to))?;
    let new = to.with_extension("new");
    let written = File::create(&new).and_then(|mut file| {
        let packed = ruzstd::encoding::compress_to_vec(&plain[..], ruzstd::encoding::CompressionLevel::Fastest);
        file.write_all(&packed)
    });
    written.and_then(|()| fs::rename(&new, to)).map_err(RecordError::io(to))
}

/// A record in a list, with what can be read quickly.
pub struct Listed {
    /// Its path.
    pub path: PathBuf,
    /// The header.
    pub header: Header,
    /// How its runs began and ended, in order.
    pub runs: Vec<Run>,
}

/// Lists the records in a directory, the oldest first. Anything else is skipped.
pub fn list(records: &Path) -> Vec<Listed> {
    let paths = fs::read_dir(records).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<_> = paths.filter_map(listed).collect();
    // Records that were begun in the same second are sorted by when the header was written.
    let written = |path: &Path| {
        let file = if path.is_dir() { path.join(HEADER) } else { path.to_owned() };
        fs::metadata(file).and_then(|about| about.modified()).ok()
    };
    found.sort_by_cached_key(|one| (one.header.began_s, written(&one.path), one.path.clone()));
    found
}

fn listed(path: PathBuf) -> Option<Listed> {
    if !path.is_dir() {
        let record = path.to_string_lossy().ends_with(PACKED).then(|| Record::open(&path).ok())??;
        let runs = record.runs.into_iter().map(|run| run.run).collect();
        return Some(Listed { path, header: record.header, runs });
    }
    let header = serde_json::from_slice(&fs::read(path.join(HEADER)).ok()?).ok()?;
    let names = names(&path).unwrap_or_default();
    let read = |name: &String| serde_json::from_slice(&fs::read(path.join(name)).ok()?).ok();
    let of_run = names.iter().filter(|name| name.ends_with(RUN));
    let mut runs: Vec<Run> = of_run.map(|name| read(name).unwrap_or_default()).collect();
    runs.sort_by_key(|run| run.number);
    Some(Listed { path, header, runs })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(top: &Path) -> Writing {
        let writing = Writing::create(top, "x").expect("makes");
        let header = Header { format: FORMAT, name: "x".into(), command: vec!["make".into()], ..Header::default() };
        writing.header(&header).expect("writes");
        writing.context(&Context::default(), b"+x\n").expect("writes");
        writing.reproduce("#!/bin/sh\n").expect("writes");
        let files = writing.run(1).expect("makes");
        files.run(&Run { number: 1, traced: true, ..Run::default() }).expect("writes");
        let mut events = files.events().expect("makes");
        let fork = Event::Fork { t: 1, parent: 2, pid: 3 };
        serde_json::to_writer(&mut events, &fork).expect("writes");
        // Ends in the middle of a line.
        events.write_all(b"\n{\"e\":\"exit\",\"t\":").expect("writes");
        writing
    }

    #[test]
    fn what_was_cut_off_is_read() {
        let place = tempfile::tempdir().expect("a directory");
        let writing = made(place.path());
        let record = Record::open(writing.top()).expect("reads");
        assert_eq!(record.runs[0].events, [Event::Fork { t: 1, parent: 2, pid: 3 }]);
        assert_eq!((record.runs[0].damaged_lines, record.runs[0].run.end.is_none()), (1, true));
        let found = list(place.path());
        assert_eq!((found.len(), found[0].runs.len(), found[0].runs[0].end.is_none()), (1, 1, true));
    }

    #[test]
    fn packed_and_read_again() {
        let place = tempfile::tempdir().expect("a directory");
        let writing = made(place.path());
        let file = place.path().join("x.tar.zst");
        pack(writing.top(), &file).expect("packs");
        let (plain, packed) = (Record::open(writing.top()).expect("reads"), Record::open(&file).expect("reads"));
        assert_eq!((&plain.header, plain.runs[0].events.len()), (&packed.header, packed.runs[0].events.len()));
        // Of a file that is cut off, everything before the cut is read.
        let lines: Vec<u64> = (0..100_000).map(|at: u64| at.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        let text = lines.iter().map(|number| format!("{{\"t\":{number}}}\n")).collect::<String>();
        fs::write(writing.top().join("runs/1").join(LOAD), text).expect("writes");
        pack(writing.top(), &file).expect("packs");
        let whole = fs::read(&file).expect("reads");
        fs::write(&file, &whole[..whole.len() / 2]).expect("writes");
        let cut = Record::open(&file).expect("reads");
        assert_eq!((cut.header, cut.runs[0].events.len()), (plain.header, 1));
        assert!(cut.context.missing.iter().any(|what| what.contains("cut off")), "{:?}", cut.context.missing);
        fs::write(&file, b"nonsense").expect("writes");
        assert!(Record::open(&file).is_err_and(|error| error.to_string().contains("not a packed record")));
    }

    #[test]
    fn names_that_are_taken_get_a_number() {
        let place = tempfile::tempdir().expect("a directory");
        let (one, two) = (made(place.path()), made(place.path()));
        assert!(one.top().ends_with("x") && two.top().ends_with("x-2"));
        let nothing = Record::open(&place.path().join("y"));
        assert!(nothing.is_err_and(|error| error.to_string().contains("no record.json")));
    }

    #[test]
    fn a_newer_format_is_not_guessed_at() {
        let place = tempfile::tempdir().expect("a directory");
        let writing = Writing::create(place.path(), "x").expect("makes");
        writing.header(&Header { format: FORMAT + 1, ..Header::default() }).expect("writes");
        assert!(Record::open(writing.top()).is_err_and(|error| error.to_string().contains("newer larder")));
    }
}
