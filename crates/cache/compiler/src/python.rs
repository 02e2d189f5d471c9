//! Python: its standard library, and what the texts of a command say about random numbers.
//!
//! Many modules of the standard library draw random numbers or read the clock when they are
//! imported. For example, `import tempfile` seeds a generator, and `import logging` notes the time.
//!
//! Unaware of: which modules a program imported.

use larder_model::path::{file_name, parent};
use larder_model::{contains, contains_any, is_in_word};
use memchr::memmem;

/// Returns true if a path is the directory of the standard library of the Python at `program`, or
/// is in it. For example, that is `/usr/lib/python3.11` for `/usr/bin/python3.11`.
pub fn is_standard_library(program: &[u8], path: &[u8]) -> bool {
    let of_program = || {
        let prefix = parent(program)?.strip_suffix(b"/bin")?;
        let rest = path.strip_prefix(prefix)?;
        let rest = rest.strip_prefix(b"/lib/").or_else(|| rest.strip_prefix(b"/lib64/"))?;
        let rest = rest.strip_prefix(file_name(program))?;
        Some(rest.is_empty() || rest.starts_with(b"/") && !contains_any(rest, &["/site-packages", "/dist-packages"]))
    };
    file_name(program).starts_with(b"python3.") && of_program() == Some(true)
}

/// Returns the path of the source of compiled Python code: `d/x.py` for
/// `d/__pycache__/x.cpython-311.pyc`.
pub fn source_of_bytecode(path: &[u8]) -> Option<Vec<u8>> {
    let name = file_name(path).strip_suffix(b".pyc")?;
    let module = &name[..memchr::memrchr(b'.', name)?];
    let directory = parent(path)?.strip_suffix(b"__pycache__")?;
    Some([directory, module, b".py"].concat())
}

/// Returns true if a module reads the clock once when it is imported, and gives the time to a name
/// of its own. `logging` does so with the line `_startTime = time.time()`. Any other use of the time
/// by `logging` reads the clock again.
pub fn reads_clock_at_import(source: &[u8]) -> bool {
    let reads = |line: &&[u8]| {
        let calls = [&b" = time.time()"[..], b" = time.time_ns()"];
        let name = calls.iter().find_map(|call| line.trim_ascii_end().strip_suffix(*call));
        name.is_some_and(|name| name.starts_with(b"_") && name.iter().all(|byte| is_in_word(*byte)))
    };
    source.split(|byte| *byte == b'\n').filter(reads).count() == 1
}

/// Returns true if Python code draws random numbers that may be from a small range, such as
/// `random.choice("ab")`. Two runs may then have the same result by chance.
///
/// Modules of the standard library draw numbers that are too large for that, such as names of
/// temporary files. `import random` alone draws only the seed. Code that seeds the generator with a
/// constant gets the same numbers in each run.
pub fn draws_numbers(text: &[u8]) -> bool {
    const FUNCTIONS: &[&str] = &["SystemRandom", "getrandom", "urandom", "uuid1", "uuid4"];
    const MODULES: &[&str] = &["random", "secrets"];
    // An archive of modules, such as a `.pyz`. A first line for the kernel may precede it.
    if contains(text, "PK\x03\x04") {
        return true;
    }
    if !contains_any(text, FUNCTIONS) && !contains_any(text, MODULES) {
        return false;
    }
    // Compiled code begins with a number and these two bytes.
    let is_compiled = text.get(2..4) == Some(b"\r\n");
    let mut words = text.split(|byte| !is_in_word(*byte));
    is_compiled
        || words.any(|word| FUNCTIONS.iter().any(|function| function.as_bytes() == word))
        || contains(text, ".seed()")
        || MODULES.iter().any(|module| uses_module(text, module.as_bytes()))
}

/// If one of these precedes the name of a module, the code takes something from the module or passes
/// it on.
const GIVEN_BY: &[&str] = &["=", "-m", "return", "from"];

/// Returns true if a text uses what is in this module, or gives the module away. To import the
/// module as a whole is no use, nor is a word of a comment.
fn uses_module(text: &[u8], module: &[u8]) -> bool {
    let seeded_at = if module == b"random" { seeded_at(text) } else { None };
    memmem::find_iter(text, module).any(|at| {
        let is_seeded = seeded_at.is_some_and(|seeded_at| at >= seeded_at);
        let (before, rest) = (&text[..at], &text[at + module.len()..]);
        let is_letter = |byte: Option<&u8>| byte.is_some_and(|byte| is_in_word(*byte));
        if is_letter(before.last()) || is_letter(rest.first()) {
            return false;
        }
        // A method of an object that the text made elsewhere, as in `numbers.random()`.
        if before.ends_with(b".") && rest.starts_with(b"(") {
            return false;
        }
        if rest.starts_with(b".") && is_letter(rest.get(1)) {
            let seeds_anew = rest.starts_with(b".seed(") && !is_constant(rest, b".seed(");
            return (!is_seeded || seeds_anew) && !is_constant(rest, b".Random(");
        }
        let is_named = rest.trim_ascii_start().starts_with(b"as ");
        let statement = &before[memchr::memrchr2(b'\n', b';', before).map_or(0, |end| end + 1)..];
        if statement.trim_ascii_start().starts_with(b"import ") {
            return is_named;
        }
        let is_apart = before.last().is_none_or(u8::is_ascii_whitespace) && !matches!(rest, [b')' | b']', ..]);
        let before = before.trim_ascii_end();
        let is_listed = before.ends_with(b",") && rest.starts_with(b",");
        is_named || !is_apart || is_listed || GIVEN_BY.iter().any(|end| before.ends_with(end.as_bytes()))
    })
}

/// Returns where a text seeds the generator of the module `random` first. Numbers that are drawn
/// before that differ in each run.
fn seeded_at(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    for line in text.split(|byte| *byte == b'\n') {
        if seeds(line) {
            return Some(at);
        }
        at += line.len() + 1;
    }
    None
}

/// Returns true for a line that seeds the generator of the module `random` with a constant, and
/// that no condition precedes.
fn seeds(line: &[u8]) -> bool {
    line.strip_prefix(b"random").is_some_and(|rest| is_constant(rest, b".seed("))
}

/// Returns true if a text begins with this call, and its only argument is a number or a string.
fn is_constant(text: &[u8], call: &[u8]) -> bool {
    let Some(rest) = text.strip_prefix(call) else { return false };
    let end = memchr::memchr2(b')', b'\n', rest).unwrap_or(0);
    let argument = &rest[..end];
    let is_number = argument.first().is_some_and(u8::is_ascii_digit) && argument.iter().all(|byte| is_in_word(*byte));
    let is_string = |quote: u8| {
        argument.len() > 1
            && [argument[0], argument[end - 1]] == [quote; 2]
            && !contains(&argument[1..end - 1], std::str::from_utf8(&[quote]).unwrap_or_default())
    };
    rest.get(end) == Some(&b')') && (is_number || is_string(b'"') || is_string(b'\''))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_belongs_to_the_program() {
        let check =
            |path: &str, expect| assert_eq!(is_standard_library(b"/usr/bin/python3.11", path.as_bytes()), expect);
        check("/usr/lib/python3.11", true);
        check("/usr/lib/python3.11/logging/__init__.py", true);
        check("/usr/lib64/python3.11/os.py", true);
        check("/usr/lib/python3.11/site-packages/x.py", false);
        check("/usr/lib/python3/dist-packages/x.py", false);
        check("/usr/lib/python3.110/x.py", false);
        check("/usr/local/lib/python3.11/dist-packages/x.py", false);
        check("/w/lib/python3.11/x.py", false);
        assert!(is_standard_library(b"/opt/p/bin/python3.9", b"/opt/p/lib/python3.9/os.py"));
        assert!(!is_standard_library(b"/w/bin/gen", b"/w/lib/gen/os.py"));
    }

    #[test]
    fn sources_of_bytecode() {
        let source = |path: &str| source_of_bytecode(path.as_bytes());
        assert_eq!(source("/l/logging/__pycache__/__init__.cpython-311.pyc"), Some(b"/l/logging/__init__.py".to_vec()));
        assert_eq!([source("/l/x.py"), source("/l/x.pyc"), source("/l/x.cpython-311.pyc")], [None, None, None]);
    }

    #[test]
    fn the_clock_at_import() {
        for (source, expect) in [
            ("import time\n_startTime = time.time()\n", true),
            ("_startTime = time.time_ns()\r\n", true),
            ("    _startTime = time.time()\n", false),
            ("YEAR = time.time()\n", false),
            ("_a = time.time()\n_b = time.time()\n", false),
            ("_year = time.localtime(time.time())[0]\n", false),
        ] {
            assert_eq!(reads_clock_at_import(source.as_bytes()), expect, "{source}");
        }
    }

    #[test]
    fn numbers_that_two_runs_may_share() {
        for text in [
            "import random\nprint(random.choice('ab'))",
            "from random import choice\n",
            "    from secrets import randbelow\n",
            "import random as r\n",
            "r = random\nr.random()",
            "getattr(random, 'choice')",
            "importlib.import_module('random')",
            "__import__(\"secrets\")",
            "os.urandom(1)",
            "uuid.uuid4()",
            "import random, os; random.seed(1)\nx = random.random()",
            "if x:\n    random.seed(1)\nrandom.random()",
            "random.seed(x)\nrandom.random()",
            "x = random.choice('ab')\nrandom.seed(1)",
            "random.seed(1)\nrandom.seed()\nrandom.random()",
            "random.seed(1)\nrandom.seed(x)\nrandom.random()",
            "random.seed()\nrandom.random()",
            "random.seed(1)\nsecrets.choice(x)",
            "r = random.Random(7)\nr.seed()\nr.random()",
            "random.Random(x).random()",
            "random.seed('a' + str(x) + 'b')\nrandom.random()",
            "python3 -m random a b",
            "import random; print(random.choice('ab'))",
            "python3 -c 'from random import *; print(choice(x))'",
            "python3 -c 'import random as r'",
            "from numpy.random import default_rng\ndefault_rng().random()",
            "numpy.random.random()",
            "f(1, random)",
            "f(1, random, 2)",
            "xx\r\n\x06random",
            "#!/usr/bin/python3\nPK\x03\x04",
        ] {
            assert!(draws_numbers(text.as_bytes()), "{text}");
        }
        for text in [
            "import random\nimport os, secrets\n",
            "import os,random, sys",
            "python3 -c 'import random; x()'",
            "# in a random order, at random.\nimport tempfile",
            "random.seed(42)\nprint(random.choice('ab'))",
            "random.seed('x')\nrandom.shuffle(a)",
            "r = random.Random(7)\nr.choice('ab')",
            "print(random.Random(7).random())",
            "randomise = uuid.uuid5(x, 'y')",
            "from tempfile import mkdtemp",
        ] {
            assert!(!draws_numbers(text.as_bytes()), "{text}");
        }
    }
}
