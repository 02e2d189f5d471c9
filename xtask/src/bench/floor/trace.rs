//! What a hit did, read from strace's output: the looks of its check, and the outputs that it made.

use anyhow::{Context, Result, bail, ensure};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// One system call as strace prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    name: String,
    arguments: String,
    /// The number after the equals sign: negative for an error.
    result: i64,
    /// The error's name.
    error: Option<String>,
}

/// One step of a hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// From the current directory or by its whole path; it is the current one from then on.
    Open {
        inside: bool,
        name: String,
        refuse_links: bool,
    },
    /// The directory that was opened as this one, from 0, is current again.
    Use(u32),
    Look {
        inside: bool,
        follow: bool,
        name: String,
        path: PathBuf,
        there: bool,
    },
    Link {
        name: String,
        path: PathBuf,
    },
    Output {
        path: PathBuf,
        mode: u32,
        how: How,
    },
}

/// How an output's bytes came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// From the record: so many bytes.
    Record { size_bytes: u64 },
    /// From a blob, by the call of this number in the plan, with a buffer of `step_bytes` where it has one.
    Blob { from: PathBuf, call: u8, size_bytes: u64, step_bytes: u64 },
}

/// Added to a call's number: the space was reserved before.
const RESERVED: u8 = 0x10;

/// All steps of a hit, and the size of the record that it read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Steps {
    pub(crate) all: Vec<Step>,
    pub(crate) record_bytes: u64,
}

/// How much work a hit is: what must be the same for a comparison to be fair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Directories that it opened, or looked at by their path.
    pub(crate) directories: u64,
    /// Looks at names that are there.
    pub(crate) files: u64,
    /// Looks at open directories.
    pub(crate) themselves: u64,
    /// Looks at names that are not there.
    pub(crate) missing: u64,
    pub(crate) links: u64,
    pub(crate) outputs: u64,
    pub(crate) output_bytes: u64,
}

impl Work {
    pub(crate) fn of(steps: &Steps) -> Self {
        let mut work = Self::default();
        for step in &steps.all {
            match step {
                Step::Use(_) => {}
                Step::Open { .. } => work.directories += 1,
                Step::Look { there: false, .. } => work.missing += 1,
                Step::Look { inside: false, .. } => work.directories += 1,
                Step::Look { name, .. } if name.is_empty() => work.themselves += 1,
                Step::Look { .. } => work.files += 1,
                Step::Link { .. } => work.links += 1,
                Step::Output { how, .. } => {
                    work.outputs += 1;
                    work.output_bytes += how.size_bytes();
                }
            }
        }
        work
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} directories ({} of them for their stamp), {} files, {} missing names, {} links, {} outputs of {} bytes",
            self.directories, self.themselves, self.files, self.missing, self.links, self.outputs, self.output_bytes
        )
    }
}

impl How {
    pub(crate) fn size_bytes(&self) -> u64 {
        match self {
            Self::Record { size_bytes } | Self::Blob { size_bytes, .. } => *size_bytes,
        }
    }
}

/// The calls in strace's output, in order. Unfinished ones do not occur: a hit is one thread.
pub(crate) fn calls(text: &str) -> Result<Vec<Call>> {
    let lines = text.lines().filter(|line| line.contains(") ") && line.contains('='));
    lines.map(|line| call(line).with_context(|| format!("strace printed: {line}"))).collect()
}

fn call(line: &str) -> Option<Call> {
    let (_, line) = line.trim_start().split_once(' ')?;
    let (name, rest) = line.trim_start().split_once('(')?;
    let (arguments, result) = rest.rsplit_once(") ")?;
    let (arguments, result) = match result.trim_start().strip_prefix("= ") {
        Some(result) => (arguments, result),
        // The error's explanation is in parentheses as well.
        None => rest.rsplit_once(" = ").map(|(arguments, result)| (arguments.trim_end(), result))?,
    };
    let mut words = result.split(' ');
    let value = words.next()?;
    let result = value.parse().unwrap_or(-1);
    let error = words.next().filter(|_| result < 0).map(ToOwned::to_owned);
    Some(Call { name: name.to_owned(), arguments: arguments.trim_end_matches(')').to_owned(), result, error })
}

impl Call {
    /// The quoted texts among the arguments.
    fn texts(&self) -> Vec<&str> {
        self.arguments.split('"').skip(1).step_by(2).collect()
    }

    /// The path or name that it is about.
    fn name_in_it(&self) -> &str {
        self.texts().first().copied().unwrap_or_default()
    }

    /// The descriptor at this place among the arguments; `None` where it is no number.
    fn descriptor(&self, at: usize) -> Option<i64> {
        self.arguments.split(", ").nth(at)?.parse().ok()
    }

    fn opens(&self) -> bool {
        matches!(self.name.as_str(), "open" | "openat" | "creat" | "openat2")
    }

    fn is_made(&self) -> bool {
        self.opens() && self.arguments.contains("O_CREAT")
    }
}

/// The steps of the hit whose calls these are; its store is below `store`, and it made `outputs`.
pub(crate) fn steps(calls: &[Call], store: &Path, outputs: &[PathBuf]) -> Result<Steps> {
    let is_output = |call: &Call| outputs.iter().any(|output| output == Path::new(call.name_in_it()));
    let is_stored = |call: &Call| Path::new(call.name_in_it()).starts_with(store);
    let first = calls.iter().position(|call| call.is_made() && is_output(call)).context("the trace makes no output")?;
    let mut of_store = HashSet::new();
    let mut looks = Vec::new();
    for call in &calls[..first] {
        if call.opens() && call.result >= 0 {
            if is_stored(call) {
                of_store.insert(call.result)
            } else {
                of_store.remove(&call.result)
            };
        }
        let opened = call.name == "openat2" && call.result >= 0;
        let looked = matches!(call.name.as_str(), "statx" | "readlinkat")
            && !call.descriptor(0).is_some_and(|descriptor| of_store.contains(&descriptor));
        looks.push((opened || looked) && !is_stored(call) && !is_output(call));
    }
    let opens_record = |at: &usize| {
        let call = &calls[*at];
        call.opens() && call.result >= 0 && is_stored(call) && looks[*at..].contains(&true)
    };
    let record = (0..first).rfind(opens_record).context("the trace reads no record")?;
    let size = |path: &Path| {
        fs::metadata(path).map(|meta| meta.len()).with_context(|| format!("cannot look at {}", path.display()))
    };
    let mut steps = Steps { all: Vec::new(), record_bytes: size(Path::new(calls[record].name_in_it()))? };
    let mut walk = Walk::default();
    for (call, is_look) in calls.iter().zip(looks).skip(record + 1) {
        if is_look {
            walk.look(call, &mut steps.all)?;
        } else if call.opens() && call.result >= 0 && is_stored(call) {
            walk.blobs.insert(call.result, PathBuf::from(call.name_in_it()));
        }
    }
    walk.outputs(&calls[first..], outputs, store, &mut steps.all)?;
    ensure!(
        outputs
            .iter()
            .all(|output| steps.all.iter().any(|step| matches!(step, Step::Output { path, .. } if path == output))),
        "the trace does not show how each output was made"
    );
    Ok(steps)
}

/// What is open while a trace is walked through.
#[derive(Default)]
struct Walk {
    /// By descriptor: as which one it was opened, and its path.
    directories: HashMap<i64, (u32, PathBuf)>,
    opened: u32,
    /// The number of the one that the last step was about.
    current: Option<u32>,
    blobs: HashMap<i64, PathBuf>,
}

impl Walk {
    fn look(&mut self, call: &Call, steps: &mut Vec<Step>) -> Result<()> {
        let name = call.name_in_it().to_owned();
        ensure!(!name.contains('\\'), "a name with special characters is in the trace: {name}");
        let descriptor = call.descriptor(0);
        let path = match descriptor {
            None => PathBuf::from(&name),
            Some(fd) => {
                let known = self.directories.get(&fd);
                let (number, dir) = known.context("the trace looks into a directory that it did not open")?;
                if self.current != Some(*number) {
                    steps.push(Step::Use(*number));
                    self.current = Some(*number);
                }
                dir.join(&name)
            }
        };
        let inside = descriptor.is_some();
        if call.name == "openat2" {
            self.directories.insert(call.result, (self.opened, path));
            self.current = Some(self.opened);
            self.opened += 1;
            let refuse_links = call.arguments.contains("RESOLVE_NO_SYMLINKS");
            steps.push(Step::Open { inside, name, refuse_links });
            return Ok(());
        }
        let there = match (call.result, call.error.as_deref()) {
            (0.., _) => true,
            (_, Some("ENOENT")) => false,
            (_, error) => bail!("a look ended with {error:?}: {}", call.arguments),
        };
        let follow = !call.arguments.contains("AT_SYMLINK_NOFOLLOW");
        steps.push(match call.name.as_str() {
            "readlinkat" => Step::Link { name, path },
            _ => Step::Look { inside, follow, name, path, there },
        });
        Ok(())
    }

    /// Outputs are made one after the other, each of bytes from the record or of a blob.
    fn outputs(&mut self, calls: &[Call], outputs: &[PathBuf], store: &Path, steps: &mut Vec<Step>) -> Result<()> {
        let mut making: Option<(i64, PathBuf, u32)> = None;
        let mut read: Option<(PathBuf, u64)> = None;
        let mut reserved = 0;
        for call in calls {
            let path = PathBuf::from(call.name_in_it());
            if call.opens() && call.result >= 0 {
                if call.is_made() && outputs.contains(&path) {
                    let mode = call.arguments.rsplit(", ").next().and_then(|mode| u32::from_str_radix(mode, 8).ok());
                    making = Some((call.result, path, mode.context("an output is made without a mode")?));
                    reserved = 0;
                } else if path.starts_with(store) {
                    self.blobs.insert(call.result, path);
                }
                continue;
            }
            let Some((to, output, mode)) = &making else { continue };
            let blob_at = |at| call.descriptor(at).and_then(|fd| self.blobs.get(&fd)).cloned();
            let moved = call.result.unsigned_abs();
            let how = match call.name.as_str() {
                "fallocate" => {
                    reserved = if call.descriptor(0) == Some(*to) && call.result == 0 { RESERVED } else { reserved };
                    continue;
                }
                "read" if call.result > 0 => {
                    read = blob_at(0).map(|blob| (blob, moved.next_power_of_two()));
                    continue;
                }
                "write" if call.descriptor(0) == Some(*to) => match read.take() {
                    None => How::Record { size_bytes: moved },
                    Some((from, step_bytes)) => How::Blob { from, call: 2, size_bytes: 0, step_bytes },
                },
                "copy_file_range" if call.descriptor(2) == Some(*to) => copied(blob_at(0), 1)?,
                "ioctl" if call.descriptor(0) == Some(*to) && call.arguments.contains("FICLONE") => {
                    copied(blob_at(2), 3)?
                }
                "sendfile" if call.descriptor(0) == Some(*to) => copied(blob_at(1), 4)?,
                _ => continue,
            };
            if call.result < 0 || (call.result == 0 && call.name != "ioctl") || made_already(steps, output) {
                continue;
            }
            let how = match how {
                How::Blob { from, call, step_bytes, .. } => {
                    let size_bytes = fs::metadata(&from).with_context(|| format!("no {}", from.display()))?.len();
                    How::Blob { from, call: call | reserved, size_bytes, step_bytes }
                }
                record => record,
            };
            steps.push(Step::Output { path: output.clone(), mode: *mode, how });
        }
        Ok(())
    }
}

fn copied(blob: Option<PathBuf>, call: u8) -> Result<How> {
    let from = blob.context("an output is copied from what is no blob")?;
    Ok(How::Blob { from, call, size_bytes: 0, step_bytes: 0 })
}

fn made_already(steps: &[Step], output: &Path) -> bool {
    steps.iter().any(|step| matches!(step, Step::Output { path, .. } if path == output))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = r#"7 execve("/bin/larder", ["/bin/larder"], 0x7ffe /* 3 vars */) = 0
7 openat2(AT_FDCWD, "/w", {flags=O_RDONLY|O_CLOEXEC|O_PATH|O_DIRECTORY, resolve=0}, 24) = 3
7 statx(3, ".git", AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS|0x4000, 0x7ffd) = -1 ENOENT (No such file or directory)
7 close(3)                          = 0
7 open("STORE/record", O_RDONLY|O_CLOEXEC) = 3
7 statx(3, "", AT_EMPTY_PATH, STATX_BASIC_STATS|0x4000, {stx_mode=S_IFREG|0600, ...}) = 0
7 read(3, "\4\226q"..., 12591) = 12590
7 close(3)                          = 0
7 openat2(AT_FDCWD, "/w", {flags=O_RDONLY|O_CLOEXEC|O_PATH|O_DIRECTORY, resolve=RESOLVE_NO_SYMLINKS}, 24) = 3
7 statx(3, "", AT_EMPTY_PATH, STATX_BASIC_STATS|0x4000, {stx_mode=S_IFDIR|0755, ...}) = 0
7 statx(3, "x.h", AT_SYMLINK_NOFOLLOW|AT_NO_AUTOMOUNT, STATX_BASIC_STATS|0x4000, 0x7ffd) = -1 ENOENT (No such file or directory)
7 statx(3, "x.c", AT_SYMLINK_NOFOLLOW|AT_NO_AUTOMOUNT, STATX_BASIC_STATS|0x4000, {stx_mode=S_IFREG|0644, ...}) = 0
7 statx(AT_FDCWD, "/lib", AT_NO_AUTOMOUNT, STATX_BASIC_STATS|0x4000, {stx_mode=S_IFDIR|0755, ...}) = 0
7 openat2(AT_FDCWD, "/usr/bin", {flags=O_RDONLY|O_CLOEXEC|O_PATH|O_DIRECTORY, resolve=0}, 24) = 4
7 readlinkat(4, "gcc", "gcc-12", 256) = 6
7 openat2(3, "inc", {flags=O_RDONLY|O_CLOEXEC|O_PATH|O_DIRECTORY, resolve=0}, 24) = 5
7 statx(3, "y.h", AT_SYMLINK_NOFOLLOW|AT_NO_AUTOMOUNT, STATX_BASIC_STATS|0x4000, {stx_mode=S_IFREG|0644, ...}) = 0
7 statx(AT_FDCWD, "/w/x.o", AT_SYMLINK_NOFOLLOW|AT_NO_AUTOMOUNT, STATX_BASIC_STATS|0x4000, 0x7ffd) = -1 ENOENT (No such file or directory)
7 open("/w/x.d", O_WRONLY|O_CREAT|O_EXCL|O_LARGEFILE|O_CLOEXEC, 0666) = 5
7 write(5, "x.o: x.c"..., 2716) = 2716
7 close(5)                          = 0
7 +++ exited with 0 +++
"#;

    #[test]
    fn a_trace_becomes_steps() {
        let store = std::env::temp_dir().join(format!("xtask-trace-{}", std::process::id()));
        fs::create_dir_all(&store).expect("can be made");
        fs::write(store.join("record"), b"four").expect("can be written");
        let calls = calls(&TRACE.replace("STORE", &store.to_string_lossy())).expect("is strace's output");
        let unmade = steps(&calls, &store, &["/w/x.d".into(), "/w/x.o".into()]).expect_err("x.o is not made");
        assert!(unmade.to_string().contains("each output"), "{unmade}");
        let steps = super::steps(&calls, &store, &["/w/x.d".into()]).expect("all is there");
        assert_eq!(steps.record_bytes, 4);
        fs::remove_dir_all(&store).expect("removable");
        let work = Work::of(&steps);
        // The look at the destination of an output that the trace does not make counts as one at a missing name.
        let expected =
            Work { directories: 4, files: 2, themselves: 1, missing: 2, links: 1, outputs: 1, output_bytes: 2716 };
        assert_eq!(work, expected);
        let made = Step::Output { path: "/w/x.d".into(), mode: 0o666, how: How::Record { size_bytes: 2716 } };
        assert_eq!(steps.all.last(), Some(&made));
        assert_eq!(steps.all.first(), Some(&Step::Open { inside: false, name: "/w".into(), refuse_links: true }));
        let inside = Step::Open { inside: true, name: "inc".into(), refuse_links: false };
        let at = steps.all.iter().position(|step| *step == inside).expect("it is opened");
        assert_eq!((&steps.all[at - 1], &steps.all[at + 1]), (&Step::Use(0), &Step::Use(0)));
    }

    #[test]
    fn errors_are_read() {
        let line = r#"7 statx(3, "a b", 0, 0, 0x7ffd) = -1 ENOENT (No such file or directory)"#;
        let call = call(line).expect("is a call");
        assert_eq!((call.result, call.error.as_deref(), call.name_in_it()), (-1, Some("ENOENT"), "a b"));
        assert_eq!(call.descriptor(0), Some(3));
    }
}
