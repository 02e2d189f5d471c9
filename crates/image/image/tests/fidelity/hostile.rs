//! Hostile archives and trees, which try to use all memory or disk. Each is read by a separate
//! process, whose peak memory is checked.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use larder_image::{Format, Progress, unpack, unpack_tree};
use larder_testkit::{has, probe_skip};

const MIB: u64 = 1 << 20;
/// The memory of a process that has read nothing yet, with a margin, in MiB.
const BASE_MIB: u64 = 32;
/// Tells the process which file to read, and how many bytes it may unpack.
const FILE: &str = "LARDER_TEST_HOSTILE";
const ROOM: &str = "LARDER_TEST_ROOM";

/// The message of a process, and its peak memory in MiB.
struct Seen {
    said: String,
    peak_mib: u64,
}

/// Not a test by itself: reads the file that another test names, and prints the result.
#[test]
fn reads_what_it_is_told() {
    let Some(file) = std::env::var_os(FILE).map(PathBuf::from) else { return };
    let room = std::env::var(ROOM).expect("is said").parse().expect("is a number");
    let said = match Format::of(&file) {
        Ok(format) => {
            let beside = file.parent().expect("has one");
            let unpacked = unpack(&file, format, Some(b"x"), beside, room, &Progress::default());
            unpacked.map_or_else(|error| error.to_string(), |_| "fine".to_owned())
        }
        Err(_) => {
            let packed = fs::read(&file).expect("is there");
            unpack_tree(packed).map_or_else(|error| error.to_string(), |tree| format!("{} names", tree.nodes.len()))
        }
    };
    let status = fs::read_to_string("/proc/self/status").expect("exists");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("has the line");
    println!("\nPEAK{peak}\nSAID {said}");
}

fn reader(file: &Path, room: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("is known"));
    command.args(["--exact", "hostile::reads_what_it_is_told", "--nocapture"]);
    command.env(FILE, file).env(ROOM, room.to_string());
    command
}

fn read(command: &mut Command) -> Seen {
    let done = command.output().expect("starts");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let after = |begin: &str| text.lines().find_map(|line| line.strip_prefix(begin)).map(str::trim).map(str::to_owned);
    let (Some(peak), Some(said)) = (after("PEAK"), after("SAID")) else {
        panic!("it ended with {}: {text}{}", done.status, String::from_utf8_lossy(&done.stderr));
    };
    let peak: u64 = peak.trim_end_matches(" kB").parse().expect("is a number");
    Seen { said, peak_mib: peak / 1024 }
}

/// Reads a file of at most `kib_max` KiB. It must be refused with the message `why`, and use at
/// most `mib_max` MiB.
#[track_caller]
fn refused(file: &Path, kib_max: u64, why: &str, mib_max: u64) {
    let kib = fs::metadata(file).expect("is there").len() / 1024;
    assert!(kib <= kib_max, "{} has {kib} KiB", file.display());
    let Seen { said, peak_mib } = read(&mut reader(file, 8 * MIB));
    println!("{}: {kib} KiB, {peak_mib} MiB: {said}", file.file_name().expect("has one").display());
    assert!(said.contains(why), "{}: {said}", file.display());
    assert!(said.len() < 2000, "{} bytes are said", said.len());
    assert!(peak_mib <= mib_max + BASE_MIB, "{}: {peak_mib} MiB", file.display());
    let left = fs::read_dir(file.parent().expect("has one")).expect("lists").map(|entry| entry.expect("reads"));
    assert!(!left.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with(".larder-")));
}

/// Returns the header of a tar entry.
fn header(kind: tar::EntryType, name: &str, size: u64) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.set_path(name).expect("fits");
    header.set_entry_type(kind);
    header.set_mode(0o755);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header.set_cksum();
    header.as_bytes().to_vec()
}

fn gzip(path: &Path) -> GzEncoder<File> {
    GzEncoder::new(File::create(path).expect("makes"), Compression::fast())
}

/// Writes `size` bytes, and zeros up to the end of the block.
fn fill(to: &mut impl Write, byte: u8, size: u64) {
    io::copy(&mut io::repeat(byte).take(size), to).expect("writes");
    io::copy(&mut io::repeat(0).take(size.next_multiple_of(512) - size), to).expect("writes");
}

/// Returns the beginning of an extended header `LENGTH KEY=VALUE` whose value has `value_bytes`
/// bytes, and its length.
fn begin_of_keyword(key: &str, value_bytes: u64) -> (String, u64) {
    let rest = key.len() as u64 + value_bytes + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() as u64 {
        length = rest + length.to_string().len() as u64;
    }
    (format!("{length} {key}="), length)
}

#[test]
fn headers_of_a_tar_are_not_held_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    const LONG: u64 = 12 * MIB;
    for (name, kind) in [("name.tar.gz", tar::EntryType::GNULongName), ("link.tar.gz", tar::EntryType::GNULongLink)] {
        let path = dir.path().join(name);
        let mut to = gzip(&path);
        to.write_all(&header(kind, "././@LongLink", LONG)).expect("writes");
        fill(&mut to, b'a', LONG);
        to.write_all(&header(tar::EntryType::Regular, "a", 0)).expect("writes");
        fill(&mut to, 0, 1024);
        to.finish().expect("ends");
        refused(&path, 4096, "more than 8 MiB of headers", 24);
    }
    let path = dir.path().join("pax.tar.gz");
    let mut to = gzip(&path);
    let (begin, length) = begin_of_keyword("path", LONG);
    to.write_all(&header(tar::EntryType::XHeader, "extended", length)).expect("writes");
    to.write_all(begin.as_bytes()).expect("writes");
    fill(&mut to, b'a', length - begin.len() as u64);
    to.write_all(&header(tar::EntryType::Regular, "a", 0)).expect("writes");
    to.finish().expect("ends");
    refused(&path, 4096, "more than 8 MiB of headers", 24);
    // A directory that claims to have content: it is skipped in pieces.
    let path = dir.path().join("skip.tar.gz");
    let mut to = gzip(&path);
    to.write_all(&header(tar::EntryType::Directory, "d/", LONG)).expect("writes");
    fill(&mut to, 0, LONG);
    fill(&mut to, 0, 1024);
    to.finish().expect("ends");
    let Seen { said, peak_mib } = read(&mut reader(&path, 64 * MIB));
    assert!(peak_mib <= 16 + BASE_MIB, "{peak_mib} MiB: {said}");
}

#[test]
fn what_unpacks_to_more_than_the_store_may_have() {
    const LARGE: u64 = 12 * MIB;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("zeros.tar.gz");
    let mut to = gzip(&path);
    to.write_all(&header(tar::EntryType::Regular, "a", LARGE)).expect("writes");
    fill(&mut to, 0, LARGE);
    fill(&mut to, 0, 1024);
    to.finish().expect("ends");
    refused(&path, 8192, "max_size", 16);
    // Many empty entries.
    let path = dir.path().join("names.tar.gz");
    let mut to = gzip(&path);
    for number in 0..20_000 {
        to.write_all(&header(tar::EntryType::Fifo, &format!("f{number}"), 0)).expect("writes");
    }
    to.finish().expect("ends");
    let Seen { said, peak_mib } = read(&mut reader(&path, MIB));
    assert!(said.contains("max_size"), "{said}");
    assert!(peak_mib <= 16 + BASE_MIB, "{peak_mib} MiB");

    let path = dir.path().join("zeros.zip");
    let mut writer = zip::ZipWriter::new(File::create(&path).expect("makes"));
    writer.start_file("a", zip::write::SimpleFileOptions::default()).expect("begins");
    io::copy(&mut io::repeat(0).take(LARGE), &mut writer).expect("writes");
    writer.finish().expect("ends");
    refused(&path, 8192, "max_size", 16);
    // A zip that claims to have many names.
    let mut bytes = fs::read(&path).expect("reads");
    let end = bytes.len() - 22;
    bytes[end + 8..end + 12].copy_from_slice(&[0xff, 0xff, 0xff, 0xff]);
    let path = dir.path().join("many.zip");
    fs::write(&path, bytes).expect("writes");
    let Seen { said, peak_mib } = read(&mut reader(&path, 64 * MIB));
    assert!(said.contains("cannot be read") && peak_mib <= 16 + BASE_MIB, "{peak_mib} MiB: {said}");

    probe_skip!(has("mksquashfs") && has("unsquashfs"), "no squashfs-tools");
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).expect("makes");
    File::create(tree.join("a")).and_then(|file| file.set_len(1 << 30)).expect("makes");
    let path = dir.path().join("zeros.squashfs");
    let made = Command::new("mksquashfs").arg(&tree).arg(&path).args(["-quiet", "-no-progress"]).output();
    assert!(made.expect("starts").status.success());
    refused(&path, 64, "max_size", 16);
    // A small squashfs file is unpacked.
    fs::write(tree.join("a"), b"bytes").expect("writes");
    let small = dir.path().join("small.squashfs");
    let made = Command::new("mksquashfs").arg(&tree).arg(&small).args(["-quiet", "-no-progress"]).output();
    assert!(made.expect("starts").status.success());
    assert_eq!(read(&mut reader(&small, MIB)).said, "fine");
}

#[test]
fn an_unsquashfs_that_can_be_led_out_is_not_run() {
    let dir = tempfile::tempdir().expect("a directory");
    let (bin, file) = (dir.path().join("bin"), dir.path().join("a.squashfs"));
    fs::create_dir(&bin).expect("makes");
    fs::write(&file, b"hsqs").expect("writes");
    for (says, expect) in [("unsquashfs version 4.5 (2021/07/22)", "is 4.5.0"), ("?", "does not say")] {
        let program = bin.join("unsquashfs");
        let script =
            format!("#!/bin/sh\nif [ \"$1\" = -version ]; then echo '{says}'; else : >\"${{0%/*}}/was-run\"; fi\n");
        larder_testkit::write_program(&program, script);
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        let Seen { said, .. } = read(reader(&file, MIB).env("PATH", path));
        assert!(said.contains(expect) && said.contains("newer squashfs-tools"), "{said}");
        assert!(!bin.join("was-run").exists());
    }
}

/// Appends a number in the encoding of trees.
fn number(mut value: u64, to: &mut Vec<u8>) {
    while value > 127 {
        to.push(value as u8 & 127 | 128);
        value >>= 7;
    }
    to.push(value as u8);
}

#[test]
fn trees_take_memory_in_proportion_to_their_bytes() {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, zstd::bulk::compress(bytes, 3).expect("packs")).expect("writes");
        path
    };
    let version = larder_model::IMAGE_VERSION;
    // A tree that claims to be too large, in the header of its Zstandard frame.
    let zeros = dir.path().join("zeros");
    let frame = [&[0x28, 0xb5, 0x2f, 0xfd, 0xe0][..], &(600u64 << 20).to_le_bytes(), &[3, 0, 0, 0]].concat();
    fs::write(&zeros, frame).expect("writes");
    refused(&zeros, 64, "tree", 16);
    // Empty sets of attributes, one byte each.
    let mut sets = vec![version, 1, 0, 0];
    number(15 << 20, &mut sets);
    sets.resize(16 << 20, 0);
    refused(&write("sets", &sets), 8, "tree", 16 + 12 * 16 + 64);
    // Empty attributes, each of which takes two vectors.
    let mut attributes = vec![version, 1, 0, 0];
    number(60_000, &mut attributes);
    attributes.push(0);
    let one: Vec<u8> = [vec![128, 2], [1, b'a', 0].repeat(256)].concat();
    while attributes.len() + one.len() < 16 << 20 {
        attributes.extend_from_slice(&one);
    }
    attributes.resize(16 << 20, 0);
    refused(&write("attributes", &attributes), 64, "tree", 16 + 12 * 16 + 64);
    // A tree that claims to have as many names as bytes.
    let mut names = vec![version, 1, 0, 0, 1, 0];
    number(15 << 20, &mut names);
    names.resize(16 << 20, 0);
    refused(&write("names", &names), 8, "tree", 16 + 12 * 16 + 64);
    // One large set for many names, which a mount would write for each name.
    let mut large = vec![version, 1, 0, 0, 2, 0];
    number(4, &mut large);
    for letter in b"abcd" {
        large.extend_from_slice(&[1, *letter]);
        number(65_535, &mut large);
        large.resize(large.len() + 65_535, 0);
    }
    let count = 100_000;
    number(count + 1, &mut large);
    large.extend_from_slice(&[3, 0, 0, 0, 0, 0]);
    number(count, &mut large);
    for name in 0..count {
        large.push(6);
        large.extend_from_slice(format!("{name:06}").as_bytes());
        large.extend_from_slice(&[5, 0, 0, 1, 0, 0]);
    }
    refused(&write("large-set", &large), 1024, "tree", 16 + 12 * 16 + 64);
    // A valid tree, which shows that the others are refused for what they claim.
    let mut right = vec![version, 1, 0, 0, 1, 0];
    number(count + 1, &mut right);
    right.extend_from_slice(&[3, 0, 0, 0, 0, 0]);
    number(count, &mut right);
    for name in 0..count {
        right.push(6);
        right.extend_from_slice(format!("{name:06}").as_bytes());
        right.extend_from_slice(&[5, 0, 0, 0, 0, 0]);
    }
    let right = write("right", &right);
    assert_eq!(read(&mut reader(&right, 0)).said, "100001 names");
    probe_skip!(has("prlimit"), "no prlimit");
    // Missing memory must be an error, and not abort the process.
    let mut limited = Command::new("prlimit");
    let sets = dir.path().join("sets");
    limited.arg("--as=160000000").arg(std::env::current_exe().expect("is known"));
    limited.args(["--exact", "hostile::reads_what_it_is_told", "--nocapture"]).env(FILE, sets).env(ROOM, "0");
    let Seen { said, .. } = read(&mut limited);
    assert!(said.contains("tree"), "{said}");
}
