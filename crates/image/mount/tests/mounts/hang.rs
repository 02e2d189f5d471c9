//! A file system that can be told not to answer. A process that looks up a path in it then waits in
//! the kernel.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, ReplyAttr, ReplyDirectory, ReplyEntry,
    Request,
};
use larder_sys::{MountAttributes, MountValue, new_mount, open_place, place_mount};

/// True if lookups are answered, and the condition variable that the other lookups wait on.
type Gate = Arc<(Mutex<bool>, Condvar)>;

/// A file system with a directory `d` that belongs to a user. It can be told to hang. It is
/// unmounted when this is dropped, with all mounts below it.
pub(crate) struct Hanging {
    gate: Gate,
    path: std::path::PathBuf,
}

struct Names {
    gate: Gate,
    user: u32,
}

impl Hanging {
    /// Mounts the file system on `path`.
    pub(crate) fn on(path: &Path, user: u32) -> std::io::Result<Hanging> {
        let device = File::options().read(true).write(true).open("/dev/fuse")?;
        let number = device.as_raw_fd().to_string();
        let text = |text: &'static str| MountValue::Text(text.as_bytes());
        let options = [
            ("source", text("hanging")),
            ("fd", MountValue::Text(number.as_bytes())),
            ("rootmode", text("40000")),
            ("user_id", text("0")),
            ("group_id", text("0")),
            ("allow_other", MountValue::Flag),
        ];
        let mount = new_mount("fuse", &options, MountAttributes::default());
        let mount = mount.map_err(|refused| refused.error)?;
        let gate = Gate::new((Mutex::new(true), Condvar::new()));
        let names = Names { gate: Arc::clone(&gate), user };
        let session = fuser::Session::from_fd(names, device.into(), fuser::SessionACL::All, fuser::Config::default())?;
        std::thread::spawn(move || session.run());
        place_mount(&mount, open_place(path)?)?;
        Ok(Hanging { gate, path: path.to_owned() })
    }

    /// Sets whether lookups are answered from now on.
    pub(crate) fn answer(&self, answers: bool) {
        *self.gate.0.lock().expect("is sound") = answers;
        self.gate.1.notify_all();
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        self.answer(true);
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

impl Names {
    fn attributes(&self, number: u64) -> FileAttr {
        FileAttr {
            ino: INodeNo(number),
            size: 0,
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: FileType::Directory,
            perm: 0o755,
            nlink: 2,
            uid: self.user,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Names {
    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut answers = self.gate.0.lock().expect("is sound");
        while !*answers {
            answers = self.gate.1.wait(answers).expect("is sound");
        }
        match name.to_str() {
            // A lifetime of zero: the kernel may not cache the answer, so it asks each time.
            Some("d") => reply.entry(&Duration::ZERO, &self.attributes(2), Generation(0)),
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, number: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        let INodeNo(number) = number;
        reply.attr(&Duration::ZERO, &self.attributes(number));
    }

    fn readdir(&self, _request: &Request, _: INodeNo, _: FileHandle, _offset: u64, reply: ReplyDirectory) {
        reply.ok();
    }
}
