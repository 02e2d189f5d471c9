//! Depfiles of real compilers, made in two places, with file names of random length and unusual
//! characters.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_relocate::{Places, Rule, Writer, relocate};

use crate::support::is_there;

/// Pairs of directories: shorter, longer, equally long, nested in each other, and with characters
/// that are quoted.
const PLACES: [(&str, &str); 7] = [
    ("a", "bb"),
    ("a-place-with-quite-a-long-name/and/some/depth", "b"),
    ("one", "two"),
    ("x/y", "x/y/z/w/v/u"),
    ("plain", "with blank"),
    ("with # sharp", "with $ dollar and blank"),
    ("c", "an-absurdly-long-name-that-is-longer-than-a-line-of-a-depfile-may-be-so-that-it-stands-alone"),
];

/// Random numbers from a seed, so that a failure can be repeated.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    fn name(&mut self) -> String {
        const LETTERS: [&str; 9] = ["a", "b", "_", "-", ".", "$", "#", " ", "longer-piece"];
        let body: String = (0..self.below(12)).map(|_| LETTERS[self.below(LETTERS.len())]).collect();
        format!("n{}{body}.h", self.below(1000))
    }
}

/// The headers of a round, and the options that not every compile has.
struct Round {
    headers: Vec<String>,
    options: Vec<&'static str>,
}

fn round(numbers: &mut Numbers) -> Round {
    const OPTIONS: [&[&str]; 6] =
        [&[], &["-MP"], &["-MT", "a-target"], &["-MQ", "q $ t"], &["-MT", "one", "-MT", "two"], &["-MMD"]];
    let headers = (0..=numbers.below(9)).map(|_| numbers.name()).collect();
    Round { headers, options: OPTIONS[numbers.below(OPTIONS.len())].to_vec() }
}

fn depfile(compiler: &str, place: &Path, round: &Round) -> Vec<u8> {
    fs::create_dir_all(place.join("in clude")).expect("a directory");
    let mut source = String::from("#include <stddef.h>\n");
    for header in &round.headers {
        fs::write(place.join("in clude").join(header), "").expect("a header");
        source.push_str(&format!("#include \"{header}\"\n"));
    }
    fs::write(place.join("x.c"), source).expect("a source");
    let status = Command::new(compiler)
        .args(["-MD", "-MF", "x.d"])
        .args(&round.options)
        .arg("-I")
        .arg(place.join("in clude"))
        .args(["-c", "-o"])
        .arg(place.join("x.o"))
        .arg(place.join("x.c"))
        .current_dir(place)
        .status();
    assert!(status.expect("a compiler").success(), "{compiler} {:?}", round.options);
    fs::read(place.join("x.d")).expect("a depfile")
}

fn check(compiler: &str, writer: Writer) {
    if !is_there(compiler) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let base = dir.path().canonicalize().expect("a directory");
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let (mut equal, mut refused) = (0, 0);
    for number in 0..5 {
        for (from, to) in PLACES {
            let round = round(&mut numbers);
            let place = |name: &str| -> PathBuf { base.join(number.to_string()).join(name) };
            let (from, to) = (place(from), place(to));
            let (here, there) = (depfile(compiler, &from, &round), depfile(compiler, &to, &round));
            let places = Places { from: &[from.as_os_str().as_bytes()], to: &[to.as_os_str().as_bytes()] };
            match relocate(Rule::Depfile(writer), &here, &places) {
                Some(made) => {
                    assert_eq!(String::from_utf8_lossy(&made), String::from_utf8_lossy(&there), "{compiler}");
                    equal += 1;
                }
                None => {
                    println!("refused: {:?}\n{}", round.options, String::from_utf8_lossy(&here));
                    refused += 1;
                }
            }
        }
    }
    println!("{compiler}: {equal} equal, {refused} refused, 0 different");
    assert!(equal > 10 * refused, "{compiler}: {refused} refused");
}

#[test]
fn depfiles_of_gcc() {
    check("gcc", Writer::Gcc);
}

#[test]
fn depfiles_of_clang() {
    check("clang", Writer::Clang);
}
