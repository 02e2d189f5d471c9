//! How the static program is laid out, which a hit pays for by page faults (docs/performance.md). What the linker script
//! asks for is lost without a word where a name in it is no longer right.
#![cfg(target_os = "linux")]

use larder_testkit::larder;
use object::elf::{PT_GNU_RELRO, PT_LOAD};
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSection};

/// The functions of which a hit executes something are three times as large as what it executes.
const HOT_BYTES_MAX: u64 = 700 << 10;
const HOT_BYTES_MIN: u64 = 200 << 10;

#[test]
fn hot_functions_are_side_by_side_and_segments_few() {
    let bytes = std::fs::read(larder()).expect("the program can be read");
    let program = ElfFile64::<Endianness>::parse(&*bytes).expect("is an ELF file");
    if program.section_by_name(".interp").is_some() {
        println!("skipped: this larder is not the static one");
        return;
    }
    let size = |name| program.section_by_name(name).map_or(0, |section| section.size());
    assert!((HOT_BYTES_MIN..HOT_BYTES_MAX).contains(&size(".hot")), ".hot has {} bytes", size(".hot"));
    assert!((HOT_BYTES_MIN..HOT_BYTES_MAX).contains(&size(".warm")), ".warm has {} bytes", size(".warm"));
    assert!(size(".arena") > 1 << 20 && size(".bss") < 64 << 10, ".arena {}, .bss {}", size(".arena"), size(".bss"));
    let count = |kind| program.elf_program_headers().iter().filter(|it| it.p_type(Endianness::Little) == kind).count();
    assert_eq!((count(PT_LOAD), count(PT_GNU_RELRO)), (2, 0));
}
