//! Execution: works out which program the kernel will start for an `execve`, and writes the events
//! for it.
//!
//! Unaware of: how notifications arrive and are answered.
use std::fs::File;
use std::io::{self, Read};

use larder_sys::{FileType, Notification, Opening, Stat};

use super::calls::At;
use super::pending::{Expected, Pending};
use super::process::{Caller, Trouble};
use super::watch::{DROP_CLASS, DROP_UNREADABLE, DROP_UNSUPPORTED, Watch, bare, looked};
use crate::elf::loader_of;
use crate::event::{ARGUMENT_END, ARGUMENTS_BYTES_MAX, Event, EventKind};

const DROP_SUID: u32 = 2;
const INTERPRETERS_MAX: usize = 5;
/// How many bytes of a file the kernel reads to see what it is.
const HEAD_BYTES: usize = 256;
const EXECUTE: u8 = 1;
const SPECIAL_BITS: u32 = 0o6000;

/// The foreseen outcome of executing a file.
#[derive(Debug)]
enum Verdict {
    /// This program begins, with this dynamic loader.
    Begins { image: Vec<u8>, stat: Stat, loader: Option<Vec<u8>> },
    /// The call fails with this errno.
    Fails(i32),
    /// The program begins, and cannot be followed for this reason (`LARDER_DROP_*` in
    /// `preload/log.h`).
    Drops(u32),
}

impl Watch {
    pub(super) fn execute(&mut self, caller: Caller, call: &Notification, at: At, flags: i32) -> Result<(), Trouble> {
        let path = match (caller.path(call, at)?, at.dir) {
            (Some(path), _) => path,
            (None, Some(dir)) if flags & libc::AT_EMPTY_PATH != 0 => {
                caller.descriptor(call.arguments[usize::from(dir)] as i32)?
            }
            (None, _) => return Ok(()),
        };
        let words = if at.dir.is_some() { call.arguments[2] } else { call.arguments[1] };
        self.hidden_clock_is_gone(caller.process);
        let mut interpreters = Vec::new();
        let verdict = foresee(caller, &path, &mut interpreters)?;
        // The first execution starts the tool itself. Our caller knows whether that worked, so it
        // needs no `Exec` or `ExecFailed` event.
        let first = self.not_begun == Some(caller.process);
        if !first {
            self.announce(caller, &path, &interpreters, &verdict);
        }
        match verdict {
            Verdict::Drops(reason) => self.drop_event(caller, reason, &path),
            Verdict::Fails(error) if !first => self.fails(caller, path, error),
            Verdict::Fails(_) => {}
            Verdict::Begins { image, stat, loader } => {
                let mut arguments = Vec::new();
                if !interpreters.is_empty() {
                    arguments.extend(path);
                    arguments.push(ARGUMENT_END);
                }
                add_arguments(caller, words, &mut arguments);
                self.begins(caller, &image, stat, loader, arguments);
            }
        }
        Ok(())
    }

    fn announce(&mut self, caller: Caller, path: &[u8], interpreters: &[Vec<u8>], verdict: &Verdict) {
        for interpreter in interpreters {
            let found = larder_sys::stat(&caller.seen_from_here(interpreter));
            self.events.push(Event { path: interpreter.clone(), ..looked(caller, EventKind::Stat, &found) });
        }
        if !matches!(verdict, Verdict::Drops(_)) {
            let found = larder_sys::stat(&caller.seen_from_here(path));
            let path2 = interpreters.last().cloned().unwrap_or_default();
            self.events.push(Event { path: path.to_vec(), path2, ..looked(caller, EventKind::Exec, &found) });
        }
    }

    fn fails(&mut self, caller: Caller, path: Vec<u8>, error: i32) {
        // The file exists but has no format that we know. It may begin after all, because the
        // kernel can be taught other formats (`binfmt_misc`). So check that the process keeps its
        // program.
        if error != libc::ENOENT
            && let Ok(stat) = caller.image()
        {
            self.expect_image(caller, &path, &stat);
        }
        self.events.push(Event { path, error, ..bare(caller, EventKind::ExecFailed) });
    }

    fn begins(&mut self, caller: Caller, image: &[u8], stat: Stat, loader: Option<Vec<u8>>, arguments: Vec<u8>) {
        self.not_begun = self.not_begun.filter(|pid| *pid != caller.process);
        if stat.file_id() == self.wrapper {
            if !self.wrapper_reports {
                self.drop_event(caller, DROP_UNSUPPORTED, image);
            }
            self.wrappers.insert(caller.process);
        } else {
            self.wrappers.remove(&caller.process);
        }
        self.expect_image(caller, image, &stat);
        let real = real_path(image).unwrap_or_else(|_| image.to_vec());
        // The parent's pid is needed because a parent may have opened files for its child. For
        // example, a shell opens `FILE` for `< FILE` before it calls `vfork`.
        let extra = caller.parent().unwrap_or_default();
        self.events.push(Event { path: real, path2: arguments, extra, ..looked(caller, EventKind::Start, &Ok(stat)) });
        if let Some(loader) = loader {
            let found = larder_sys::stat(&loader);
            self.events.push(Event { path: loader, ..looked(caller, EventKind::Object, &found) });
        }
        self.clock_is_hidden(caller);
    }

    /// Handles a process that makes its first observed call. It was forked, so it runs its parent's
    /// program, unless it or its parent has executed another program meanwhile.
    pub(super) fn appears(&mut self, caller: Caller) {
        let Some(parent) = caller.parent() else { return };
        if self.wrappers.contains(&parent) {
            self.wrappers.insert(caller.process);
        } else {
            self.wrappers.remove(&caller.process);
        }
        let parents = Caller { thread: parent, process: parent }.image();
        let same = |stat: Stat| parents.as_ref().is_ok_and(|p| p.file_id() == stat.file_id());
        if caller.image().is_ok_and(same) {
            self.events.push(Event { extra: parent, mode: parent, ..bare(caller, EventKind::Forked) });
        }
    }

    fn expect_image(&mut self, caller: Caller, path: &[u8], stat: &Stat) {
        let expected = Expected::Runs { image: stat.file_id() };
        self.pending.push(Pending { caller, path: path.to_vec(), expected });
    }
}

/// Appends the arguments at `address`, without the first, in the form of an [`EventKind::Start`] event.
fn add_arguments(caller: Caller, address: u64, to: &mut Vec<u8>) {
    const WORDS_MAX: u64 = 4096;
    for word in 1..WORDS_MAX {
        let Ok([at]) = caller.numbers(address + word * 8) else { return };
        if at == 0 || to.len() >= ARGUMENTS_BYTES_MAX {
            break;
        }
        match caller.text(at) {
            Ok(text) => to.extend(text),
            // The argument is too long to be read. Filling `to` up marks the arguments as
            // incomplete.
            Err(_) => to.resize(ARGUMENTS_BYTES_MAX, b'?'),
        }
        to.push(ARGUMENT_END);
    }
    to.truncate(ARGUMENTS_BYTES_MAX);
}

fn real_path(path: &[u8]) -> io::Result<Vec<u8>> {
    larder_sys::real_path_of(&larder_sys::open(path, Opening::Read)?)
}

/// Works out what executing `path` will do. The paths of the interpreters of scripts on the way are
/// appended to `interpreters`.
fn foresee(caller: Caller, path: &[u8], interpreters: &mut Vec<Vec<u8>>) -> Result<Verdict, Trouble> {
    let mut path = caller.seen_from_here(path).into_owned();
    loop {
        let stat = match larder_sys::stat(&path) {
            Ok(stat) => stat,
            Err(error) => return Ok(Verdict::Fails(error.raw_os_error().unwrap_or(libc::EIO))),
        };
        if stat.kind != FileType::File || larder_sys::may_access(&path, EXECUTE, true).is_err() {
            return Ok(Verdict::Fails(libc::EACCES));
        }
        let Ok(mut file) = larder_sys::open(&path, Opening::Read) else { return Ok(Verdict::Drops(DROP_UNREADABLE)) };
        let mut head = Vec::with_capacity(HEAD_BYTES);
        if (&mut file).take(HEAD_BYTES as u64).read_to_end(&mut head).is_err() {
            return Ok(Verdict::Drops(DROP_UNREADABLE));
        }
        let Some(line) = head.strip_prefix(b"#!") else { return Ok(foresee_binary(&path, &file, &head, stat)) };
        let Some(interpreter) = interpreter_of(line) else { return Ok(Verdict::Fails(libc::ENOEXEC)) };
        if interpreters.len() >= INTERPRETERS_MAX {
            return Ok(Verdict::Fails(libc::ELOOP));
        }
        path = caller.absolute(interpreter)?;
        interpreters.push(path.clone());
    }
}

fn interpreter_of(line: &[u8]) -> Option<&[u8]> {
    let line = line.split(|&b| b == b'\n').next()?;
    line.split(|b| b" \t\0".contains(b)).find(|word| !word.is_empty())
}

fn foresee_binary(path: &[u8], file: &File, head: &[u8], stat: Stat) -> Verdict {
    if !head.starts_with(b"\x7fELF") {
        return Verdict::Fails(libc::ENOEXEC);
    }
    if stat.mode & SPECIAL_BITS != 0 {
        return Verdict::Drops(DROP_SUID);
    }
    match loader_of(file) {
        None => Verdict::Drops(DROP_CLASS),
        Some(Some(loader)) if larder_sys::stat(&loader).is_err() => Verdict::Fails(libc::ENOENT),
        Some(loader) => Verdict::Begins { image: path.to_vec(), stat, loader },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_scripts() {
        let own = Caller { thread: std::process::id(), process: std::process::id() };
        let foreseen = |path: &str| {
            let mut interpreters = Vec::new();
            let verdict = foresee(own, path.as_bytes(), &mut interpreters).expect("this process can be read");
            (verdict, interpreters)
        };
        assert!(matches!(foreseen("/nonexistent/x").0, Verdict::Fails(libc::ENOENT)));
        assert!(matches!(foreseen("/etc/passwd").0, Verdict::Fails(libc::EACCES)));
        assert!(matches!(foreseen("/").0, Verdict::Fails(libc::EACCES)));
        assert!(matches!(foreseen("/bin/sh").0, Verdict::Begins { loader: Some(_), .. }));
        let script = std::env::temp_dir().join(format!("larder-start-{}", std::process::id()));
        std::fs::write(&script, "#! /bin/sh -e\n").expect("writes");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&script, mode).expect("sets");
        let (verdict, interpreters) = foreseen(script.to_str().expect("is text"));
        assert!(matches!(verdict, Verdict::Begins { .. }));
        assert_eq!(interpreters, [b"/bin/sh"]);
        std::fs::remove_file(script).expect("removes");
    }
}
