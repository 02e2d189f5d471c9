"""Does what programs do to the files of a directory, and prints a line for each result.

It runs in a plain directory and in a mounted image with the same content. Both must print the same.
`images_alike/main.rs` makes the content and compares.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import select
import struct

LIBC = ctypes.CDLL(None, use_errno=True)
PAGE = mmap.PAGESIZE


def said(name, act):
    """Prints what `act` returns, or the name of its error."""
    try:
        result = act()
    except OSError as error:
        result = errno.errorcode.get(error.errno, error.errno)
    print(f"{name}: {result}")


def read(path):
    with open(path, "rb") as file:
        return file.read()


def append(path, text):
    with open(path, "a") as file:
        file.write(text)


def inode(path):
    found = os.lstat(path)
    return (found.st_dev, found.st_ino)


def renamed_directory():
    os.rename("dir", "other")
    return os.path.exists("dir"), sorted(os.listdir("other")), read("other/inner/file")


def renamed_again():
    os.makedirs("deep/er")
    os.rename("other", "deep/er/dir")
    return read("deep/er/dir/inner/file"), sorted(os.listdir("deep/er"))


def old_name_is_free():
    os.mkdir("dir")
    return os.listdir("dir")


def exchanged():
    # renameat2(2) with RENAME_EXCHANGE.
    if LIBC.renameat2(-100, b"swap-a", -100, b"swap-b", 2) != 0:
        raise OSError(ctypes.get_errno(), "renameat2")
    return os.listdir("swap-a"), os.listdir("swap-b")


def hard_links():
    append("link-a", "more\n")
    return read("link-b"), os.lstat("link-a").st_nlink, inode("link-a") == inode("link-b")


def hard_link_made():
    os.link("plain", "link-new")
    append("link-new", "more\n")
    return read("plain"), os.lstat("plain").st_nlink, inode("plain") == inode("link-new")


def inode_stays(path, act):
    before = inode(path)
    act()
    return before == inode(path)


def one_device():
    """A program that must not leave a file system compares device numbers, as `find -xdev` does."""
    return all(inode(path)[0] == inode(".")[0] for path in ("plain", "link-a", "deep", "swap-a/in-b", "symlink"))


def listed_inodes():
    """readdir(3) gives the numbers that stat(2) gives."""
    with os.scandir(".") as entries:
        return all(entry.inode() == os.lstat(entry.path).st_ino for entry in entries)


def direct():
    """Reads and writes past the page cache."""
    descriptor = os.open("pages", os.O_RDWR | os.O_DIRECT)
    block = mmap.mmap(-1, PAGE)
    got = os.preadv(descriptor, [block], 0)
    first = bytes(block[:4])
    block[:4] = b"mine"
    put = os.pwritev(descriptor, [block], PAGE)
    os.close(descriptor)
    return got, first, put, read("pages")[PAGE:PAGE + 4]


def mapped_private():
    with open("mapped", "r+b") as file, mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE) as memory:
        memory[:4] = b"mine"
        return bytes(memory[:8]), read("mapped")[:8]


def mapped_shared():
    with open("mapped", "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[:4] = b"mine"
        memory.flush()
        file.seek(4)
        file.write(b"file")
        file.flush()
        return bytes(memory[:8]), read("mapped")[:8]


def mapped_before_it_is_written():
    """A mapping for reading, made before somebody else opens the file for writing."""
    with open("mapped-early", "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as memory:
        before = bytes(memory[:4])
        with open("mapped-early", "r+b") as other:
            other.write(b"mine")
        file.seek(0)
        return before, bytes(memory[:4]), file.read(4)


def descriptor_before_it_is_written():
    with open("early", "rb") as file:
        append("early", "more\n")
        return file.read()


def allocated():
    descriptor = os.open("pages", os.O_RDWR)
    os.posix_fallocate(descriptor, 0, 8 * PAGE)
    size = os.fstat(descriptor).st_size
    # fallocate(2) with FALLOC_FL_PUNCH_HOLE and FALLOC_FL_KEEP_SIZE.
    if LIBC.fallocate(descriptor, 3, ctypes.c_long(0), ctypes.c_long(PAGE)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")
    os.close(descriptor)
    return size, read("pages")[:4], read("pages")[PAGE:PAGE + 4]


def copied_by_range():
    source, target = os.open("pages", os.O_RDONLY), os.open("range", os.O_WRONLY | os.O_CREAT)
    count = os.copy_file_range(source, target, PAGE, PAGE)
    os.close(source)
    os.close(target)
    return count, read("range")[:4]


def unnamed_file():
    descriptor = os.open(".", os.O_TMPFILE | os.O_RDWR)
    os.write(descriptor, b"unnamed")
    # With `src_dir_fd` Python calls linkat(2) with AT_SYMLINK_FOLLOW.
    os.link(f"/proc/self/fd/{descriptor}", "named", src_dir_fd=descriptor)
    os.close(descriptor)
    return read("named")


def locked():
    with open("plain", "r+") as one, open("plain", "r+") as two:
        fcntl.flock(one, fcntl.LOCK_EX)
        try:
            fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return "excluded"
        return "both"


def watched(path, act):
    """The events of inotify(7) while `act` runs: masks and names."""
    watcher = LIBC.inotify_init()
    # IN_MODIFY, IN_ATTRIB, IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE.
    if LIBC.inotify_add_watch(watcher, path.encode(), 0x2 | 0x4 | 0x40 | 0x80 | 0x100 | 0x200) < 0:
        raise OSError(ctypes.get_errno(), "inotify_add_watch")
    act()
    events = []
    while select.select([watcher], [], [], 0.2)[0]:
        data = os.read(watcher, 65536)
        while data:
            _, mask, _, length = struct.unpack("iIII", data[:16])
            events.append((hex(mask), data[16:16 + length].rstrip(b"\0").decode()))
            data = data[16 + length:]
    os.close(watcher)
    return events


def in_watched_directory():
    append("watched/old", "more\n")
    os.chmod("watched/old", 0o600)
    append("watched/new", "new\n")
    os.rename("watched/old", "watched/renamed")
    os.unlink("watched/gone")


def replaced():
    """A directory is removed and made again, and shows nothing of what was there."""
    os.unlink("again/file")
    os.rmdir("again")
    os.mkdir("again")
    return os.listdir("again")


def attributes():
    os.setxattr("plain", "user.note", b"mine")
    return os.getxattr("plain", "user.note"), os.listxattr("plain")


said("a directory is renamed", renamed_directory)
said("it is renamed again, into a new directory", renamed_again)
said("a directory gets its old name", old_name_is_free)
said("two directories are exchanged", exchanged)
said("a file with two hard links is written", hard_links)
said("a file gets a hard link and is written", hard_link_made)
said("the inode number stays if a file is written", lambda: inode_stays("kept", lambda: append("kept", "more\n")))
said("the inode number stays if a mode changes", lambda: inode_stays("moded", lambda: os.chmod("moded", 0o600)))
said("the inode number of a directory stays", lambda: inode_stays("dir-kept", lambda: append("dir-kept/new", "x")))
said("all is on one device", one_device)
said("listed and looked up inode numbers are equal", listed_inodes)
said("O_DIRECT", direct)
said("a private mapping", mapped_private)
said("a shared mapping", mapped_shared)
said("a mapping made before the file is first written", mapped_before_it_is_written)
said("a descriptor opened before the file is first written", descriptor_before_it_is_written)
said("fallocate", allocated)
said("copy_file_range", copied_by_range)
said("O_TMPFILE", unnamed_file)
said("flock", locked)
said("inotify of a directory", lambda: watched("watched", in_watched_directory))
said("inotify of a file", lambda: watched("watched-file", lambda: append("watched-file", "more\n")))
said("a directory is made again", replaced)
said("extended attributes", attributes)
