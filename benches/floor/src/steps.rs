//! The steps of a plan, each by the system calls that larder makes for it.

use std::ffi::CStr;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::OwnedFd;

use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{self, AtFlags, CWD, FallocateFlags, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::{self, Errno};

use crate::plan::{Plan, Stamp};

/// No record of the benchmark's cases is larger: a page is touched only where the plan is.
const PLAN_BYTES_MAX: usize = 1 << 20;
/// The largest step of a copy by reading and writing.
const STEP_BYTES_MAX: usize = 1 << 20;
/// No case looks into more, and a process may have so many files open.
const DIRECTORIES_MAX: usize = 512;
const LINK_BYTES_MAX: usize = 4096;
/// `STATX_MNT_ID_UNIQUE`, which larder asks for too.
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;

/// What did not go as planned.
pub(crate) struct Failure<'a> {
    pub(crate) what: &'static str,
    pub(crate) name: &'a CStr,
}

const DAMAGED: Failure<'static> = Failure { what: "not a plan", name: c"" };

/// Read the plan at `path` and do what it says.
pub(crate) fn follow(path: &CStr) -> Result<(), Failure<'static>> {
    // Zero pages until they are read into; a plan is a small part of it.
    let buffer: &'static mut [MaybeUninit<u8>] = buffer();
    let unread = Failure { what: "cannot read the plan", name: c"" };
    let Ok(bytes) = read_plan(path, buffer) else { return Err(unread) };
    let mut plan = Plan(bytes);
    // Left open until the process ends, which closes all of them at once.
    let mut opened = [const { None::<ManuallyDrop<OwnedFd>> }; DIRECTORIES_MAX];
    let (mut count, mut current) = (0, 0);
    loop {
        let directory = opened[current].as_deref();
        match plan.byte().ok_or(DAMAGED)? {
            b'D' => {
                let made = open_directory(&mut plan, directory)?;
                *opened.get_mut(count).ok_or(DAMAGED)? = Some(ManuallyDrop::new(made));
                (count, current) = (count + 1, count);
            }
            b'U' => {
                current = plan.u32().filter(|&number| (number as usize) < count).ok_or(DAMAGED)? as usize;
            }
            b'S' => look(&mut plan, directory)?,
            b'L' => read_link(&mut plan, directory.ok_or(DAMAGED)?)?,
            b'I' => write_bytes(&mut plan)?,
            b'C' => copy(&mut plan)?,
            b'E' => return Ok(()),
            _ => return Err(DAMAGED),
        }
    }
}

fn buffer() -> &'static mut [MaybeUninit<u8>] {
    use std::sync::atomic::{AtomicBool, Ordering};
    struct Block(std::cell::UnsafeCell<[MaybeUninit<u8>; PLAN_BYTES_MAX]>);
    #[allow(unsafe_code, reason = "a buffer that costs no system call and no page before it is touched")]
    // SAFETY: handed out once, below.
    unsafe impl Sync for Block {}
    static BLOCK: Block = Block(std::cell::UnsafeCell::new([MaybeUninit::uninit(); PLAN_BYTES_MAX]));
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::Relaxed) {
        return &mut [];
    }
    #[allow(unsafe_code, reason = "as above")]
    // SAFETY: nobody else has it, since it is handed out once.
    unsafe {
        &mut *BLOCK.0.get()
    }
}

fn read_plan(path: &CStr, buffer: &'static mut [MaybeUninit<u8>]) -> io::Result<&'static [u8]> {
    let file = fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    // Files of this size come whole; a plan that does not has no end and is refused as damaged.
    let (read, _) = io::read(&file, buffer)?;
    Ok(read)
}

fn open_directory(plan: &mut Plan<'static>, current: Option<&OwnedFd>) -> Result<OwnedFd, Failure<'static>> {
    let (inside, refuse_links) = (plan.byte().ok_or(DAMAGED)? == 1, plan.byte().ok_or(DAMAGED)? == 1);
    let from = if inside { current.ok_or(DAMAGED)?.as_fd() } else { CWD };
    let path = plan.text().ok_or(DAMAGED)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = if refuse_links { ResolveFlags::NO_SYMLINKS } else { ResolveFlags::empty() };
    fs::openat2(from, path, flags, Mode::empty(), resolve)
        .map_err(|_| Failure { what: "cannot open the directory", name: path })
}

fn look(plan: &mut Plan<'static>, directory: Option<&OwnedFd>) -> Result<(), Failure<'static>> {
    let (inside, follow, expect) =
        (plan.byte().ok_or(DAMAGED)?, plan.byte().ok_or(DAMAGED)?, plan.byte().ok_or(DAMAGED)?);
    let stamp = if expect == 2 { Some(plan.stamp().ok_or(DAMAGED)?) } else { None };
    let name = plan.text().ok_or(DAMAGED)?;
    let dir: BorrowedFd<'_> = if inside == 1 { directory.ok_or(DAMAGED)?.as_fd() } else { CWD };
    let mut flags = AtFlags::NO_AUTOMOUNT;
    flags.set(AtFlags::SYMLINK_NOFOLLOW, follow == 0);
    flags.set(AtFlags::EMPTY_PATH, name.is_empty());
    let mask = StatxFlags::BASIC_STATS | StatxFlags::from_bits_retain(STATX_MNT_ID_UNIQUE);
    let as_before = match (fs::statx(dir, name, flags, mask), expect) {
        (Err(Errno::NOENT), 0) | (Ok(_), 1) => true,
        (Ok(found), 2) => Some(stamp_of(&found)) == stamp,
        _ => false,
    };
    if as_before { Ok(()) } else { Err(Failure { what: "is not as it was", name }) }
}

fn stamp_of(found: &Statx) -> Stamp {
    let ns = |time: fs::StatxTimestamp| {
        (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(u64::from(time.tv_nsec))
    };
    [found.stx_ino, found.stx_size, ns(found.stx_mtime), ns(found.stx_ctime)]
}

fn read_link(plan: &mut Plan<'static>, directory: &OwnedFd) -> Result<(), Failure<'static>> {
    let (name, target) = (plan.text().ok_or(DAMAGED)?, plan.text().ok_or(DAMAGED)?);
    let mut buffer = [const { MaybeUninit::<u8>::uninit() }; LINK_BYTES_MAX];
    match fs::readlinkat_raw(directory, name, &mut buffer[..]) {
        Ok((found, _)) if found == target.to_bytes() => Ok(()),
        _ => Err(Failure { what: "is another link", name }),
    }
}

fn create(mode: u32, path: &'static CStr) -> Result<OwnedFd, Failure<'static>> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    fs::open(path, flags, Mode::from_raw_mode(mode)).map_err(|_| Failure { what: "cannot be made", name: path })
}

fn write_bytes(plan: &mut Plan<'static>) -> Result<(), Failure<'static>> {
    let (mode, path) = (plan.u32().ok_or(DAMAGED)?, plan.text().ok_or(DAMAGED)?);
    let size_bytes = plan.u64().ok_or(DAMAGED)?;
    let bytes = plan.bytes(size_bytes as usize).ok_or(DAMAGED)?;
    let file = create(mode, path)?;
    match io::write(&file, bytes) {
        Ok(written) if written == bytes.len() => Ok(()),
        _ => Err(Failure { what: "cannot be written", name: path }),
    }
}

fn copy(plan: &mut Plan<'static>) -> Result<(), Failure<'static>> {
    let (how, mode) = (plan.byte().ok_or(DAMAGED)?, plan.u32().ok_or(DAMAGED)?);
    let path = plan.text().ok_or(DAMAGED)?;
    let (size_bytes, step_bytes) = (plan.u64().ok_or(DAMAGED)?, plan.u64().ok_or(DAMAGED)?);
    let blob = plan.text().ok_or(DAMAGED)?;
    let from = fs::open(blob, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|_| Failure { what: "cannot be opened", name: blob })?;
    let to = create(mode, path)?;
    match move_bytes(how, &from, &to, size_bytes, step_bytes as usize) {
        Ok(done) if done == size_bytes => Ok(()),
        _ => Err(Failure { what: "cannot be copied", name: path }),
    }
}

/// `how`: 1 copy_file_range, 2 read and write with a buffer of `step`, 3 FICLONE, 4 sendfile; 16 more: the space is
/// reserved first. Returns how many bytes there were.
fn move_bytes(how: u8, from: &OwnedFd, to: &OwnedFd, size_bytes: u64, step: usize) -> io::Result<u64> {
    const RESERVED: u8 = 16;
    if how & RESERVED != 0 {
        fs::fallocate(to, FallocateFlags::empty(), 0, size_bytes)?;
    }
    let how = how & !RESERVED;
    if how == 3 {
        return fs::ioctl_ficlone(to, from).map(|()| size_bytes);
    }
    let mut buffer = match how {
        2 => Vec::with_capacity(step.min(STEP_BYTES_MAX)),
        _ => Vec::new(),
    };
    let mut done = 0;
    while done < size_bytes {
        let rest = (size_bytes - done) as usize;
        let moved = match how {
            1 => fs::copy_file_range(from, None, to, None, rest)?,
            2 => {
                buffer.clear();
                io::read(from, rustix::buffer::spare_capacity(&mut buffer))?;
                io::write(to, &buffer)?
            }
            _ => fs::sendfile(to, from, None, rest)?,
        };
        if moved == 0 {
            break;
        }
        done += moved as u64;
    }
    Ok(done)
}
