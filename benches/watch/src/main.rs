//! What it would cost to look at no file and to ask a watcher instead, and what a watcher does not see.
//!
//! `cargo run --release -p larder-watch` answers one question after the other in a thread that first asks inotify, as a
//! daemon that keeps a watch would have to: an answer from before the question says nothing of what happened in
//! between. Then it changes a watched file by `write` and through a mapping, as linkers do, and counts what inotify and
//! `stat` tell of that. Last, it holds files by leases, which the kernel breaks before anybody can write to them, and
//! says what that saves and what it costs those who write.

use anyhow::Result;

#[cfg(target_os = "linux")]
fn main() -> Result<()> {
    watch::run()
}

#[cfg(not(target_os = "linux"))]
fn main() -> Result<()> {
    anyhow::bail!("inotify is Linux's")
}

#[cfg(target_os = "linux")]
mod watch {
    use anyhow::{Context, Result};
    use larder_samples::cpu_of_process;
    use nix::sys::signal::{SigSet, Signal};
    use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
    use rustix::fs::{AtFlags, StatxFlags};
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    use std::fs::{self, File};
    use std::io::{Read, Write};
    use std::mem::MaybeUninit;
    use std::os::fd::{AsFd, AsRawFd, OwnedFd};
    use std::os::unix::fs::{FileExt, MetadataExt};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    const ROUNDS: usize = 2000;
    const CHANGES: usize = 1000;
    /// Longer than a tick of any kernel's clock.
    const TICKS: Duration = Duration::from_millis(20);
    const FILE_BYTES: usize = 4096;
    /// As many as the C compile of `bench hit` includes.
    const HEADERS: usize = 225;
    const LOOKS: usize = 200;

    pub(crate) fn run() -> Result<()> {
        let dir = std::env::current_dir()?.join(format!("larder-watch-{}", std::process::id()));
        fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        // How the kernel tells of a lease. Blocked in every thread, so that one can wait for it.
        let told = SigSet::from(Signal::SIGIO);
        told.thread_block()?;
        let done = asking(&dir).and_then(|()| seeing(&dir)).and_then(|()| holding(&dir, told));
        fs::remove_dir_all(&dir)?;
        done
    }

    /// Both sides are in this process, so its CPU time is that of both.
    fn asking(dir: &Path) -> Result<()> {
        let path = dir.join("socket");
        let listener = UnixListener::bind(&path)?;
        let watched = watched(dir)?;
        std::thread::spawn(move || -> Result<()> {
            for question in listener.incoming() {
                let mut question = question?;
                question.read_exact(&mut [0; 64])?;
                events(&watched);
                question.write_all(b"1")?;
            }
            Ok(())
        });
        let mut wall_us = Vec::new();
        let before = cpu_of_process();
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let mut stream = UnixStream::connect(&path)?;
            stream.write_all(&[0; 64])?;
            stream.read_exact(&mut [0])?;
            wall_us.push(start.elapsed().as_secs_f64() * 1e6);
        }
        let each_us = (cpu_of_process() - before).as_secs_f64() * 1e6 / ROUNDS as f64;
        println!("asking: CPU of both sides {each_us:.1} µs, wall {:.1} µs, median", median(wall_us.into_iter()));
        Ok(())
    }

    fn seeing(dir: &Path) -> Result<()> {
        let path = dir.join("header.h");
        fs::write(&path, [b' '; FILE_BYTES])?;
        let watched = watched(dir)?;
        let file = File::options().read(true).write(true).open(&path)?;
        let written = (0..CHANGES).filter(|_| file.write_at(b"x", 0).is_ok() && events(&watched)).count();
        println!("of {CHANGES} writes inotify saw {written}");
        std::thread::sleep(TICKS);
        let before = fs::metadata(&path)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        #[allow(unsafe_code, reason = "a mapping is one of the ways to change a file")]
        // SAFETY: a new mapping, kept until the process ends; nobody cuts the file.
        let start = unsafe { mmap(std::ptr::null_mut(), FILE_BYTES, access, MapFlags::SHARED, &file, 0)? }.cast::<u8>();
        let store = |byte: usize| {
            #[allow(unsafe_code, reason = "as above")]
            // SAFETY: the first byte of the mapping, by nobody else's reference.
            unsafe {
                start.write_volatile(byte as u8)
            };
            events(&watched)
        };
        let stored = (0..CHANGES).filter(|byte| store(*byte)).count();
        let after = fs::metadata(&path)?;
        let is_told = (before.ctime(), before.ctime_nsec()) != (after.ctime(), after.ctime_nsec());
        println!("of {CHANGES} stores through a mapping inotify saw {stored}; stat tells of them: {is_told}");
        drop(file);
        let is_leased = lease(&File::open(&path)?, libc::F_RDLCK).is_ok();
        println!("a lease while the mapping is there: {}", if is_leased { "given" } else { "refused" });
        Ok(())
    }

    /// A read lease (`fcntl(2)`, `F_SETLEASE`) of each file: who opens one for writing is held until its holder was told
    /// and lets go, so a holder's word about contents is never late.
    fn holding(dir: &Path, told: SigSet) -> Result<()> {
        let dir = dir.join("held");
        fs::create_dir(&dir)?;
        let names: Vec<String> = (0..HEADERS).map(|at| format!("{at}.h")).collect();
        names.iter().try_for_each(|name| fs::write(dir.join(name), [b' '; FILE_BYTES]))?;
        let directory = File::open(&dir)?;
        let look = |name: &String| {
            rustix::fs::statx(&directory, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS).is_ok()
        };
        let looks_us = median((0..LOOKS).map(|_| timed_us(|| names.iter().all(look))));
        let open = |name| File::open(dir.join(name));
        let start = Instant::now();
        let held = names.iter().map(open).collect::<std::io::Result<Vec<File>>>()?;
        held.iter().try_for_each(|file| lease(file, libc::F_RDLCK))?;
        let leases_us = start.elapsed().as_secs_f64() * 1e6;
        println!("leases of {HEADERS} files: {leases_us:.0} µs to take; they save {looks_us:.0} µs of looks");
        drop(held);

        let file = Arc::new(open(&names[0])?);
        let holder = Arc::clone(&file);
        std::thread::spawn(move || -> Result<()> {
            loop {
                told.wait()?;
                lease(&holder, libc::F_UNLCK)?;
            }
        });
        let write = || File::options().write(true).open(dir.join(&names[0])).is_ok();
        let free_us = median((0..CHANGES).map(|_| timed_us(write)));
        let mut held_us = Vec::new();
        for _ in 0..CHANGES {
            lease(&file, libc::F_RDLCK)?;
            held_us.push(timed_us(write));
        }
        let held_us = median(held_us.into_iter());
        let seconds = fs::read_to_string("/proc/sys/fs/lease-break-time")?;
        println!(
            "opening one to write: {free_us:.1} µs, with a lease {held_us:.1} µs, and up to {} s while its holder does not answer",
            seconds.trim()
        );
        Ok(())
    }

    fn lease(file: &File, kind: libc::c_int) -> std::io::Result<()> {
        #[allow(unsafe_code, reason = "no crate has this call")]
        // SAFETY: two numbers, and a descriptor that is open.
        let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) };
        if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }

    fn timed_us(what: impl FnOnce() -> bool) -> f64 {
        let start = Instant::now();
        assert!(what(), "a file of this program's own cannot be had");
        start.elapsed().as_secs_f64() * 1e6
    }

    fn median(of: impl Iterator<Item = f64>) -> f64 {
        let mut sorted: Vec<f64> = of.collect();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }

    fn watched(dir: &Path) -> Result<OwnedFd> {
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let changes =
            WatchFlags::MODIFY | WatchFlags::ATTRIB | WatchFlags::MOVE | WatchFlags::CREATE | WatchFlags::DELETE;
        inotify::add_watch(&watch, dir, changes)?;
        Ok(watch)
    }

    /// Whether there are any; afterwards there are none.
    fn events(watch: impl AsFd) -> bool {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(watch, &mut buffer);
        let mut found = false;
        while reader.next().is_ok() {
            found = true;
        }
        found
    }
}
