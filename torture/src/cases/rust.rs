//! rustc as a compiler: what a crate or a procedural macro may read, where the target directory is, and
//! in which directories rustc searches crates.

use std::process::Command;
use std::sync::LazyLock;

use crate::case::{Case, case};
use crate::change::{all, dir, nothing, put, rm, sh, swap};
use crate::machine::Need;
use crate::spawn::output;

/// The directory of the toolchain's programs, not of rustup's proxies. They are not on the suite's
/// `PATH`.
pub(super) static BIN: LazyLock<String> = LazyLock::new(|| {
    let output = output(Command::new("rustc").args(["--print", "sysroot"])).ok();
    let sysroot = output.and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    format!("{}/bin", sysroot.trim())
});
/// rustc's path, for as long as the suite runs.
pub(super) static RUSTC: LazyLock<&'static str> =
    LazyLock::new(|| Box::leak(format!("{}/rustc", *BIN).into_boxed_str()));

/// A crate without the crate `core`, which no target has that a file describes.
const BARE: &str = "#![feature(no_core, lang_items)]\n#![no_core]\n#![allow(internal_features)]\n\
    #[lang = \"pointee_sized\"] pub trait P {}\n#[lang = \"meta_sized\"] pub trait M: P {}\n\
    #[lang = \"sized\"] pub trait S: M {}\npub fn f() -> u32 { 4 }\n";

pub(super) const LIB: &str = "pub fn f() -> u32 { 4 }\n";
pub(super) const LIB2: &str = "pub fn f() -> u32 { 5 }\n";

pub(super) fn crate_case(name: &str) -> Case {
    case(format!("R/{name}")).needs(Need::Program(*RUSTC))
}

/// Returns a command line of rustc for `x.rs`.
fn rustc(arguments: &str) -> String {
    format!("{} --crate-name x x.rs {arguments}", *RUSTC)
}

/// Writes a procedural macro that expands to the text that `body` computes, and compiles it.
pub(super) fn macro_of(body: &str) -> crate::change::Change {
    let text = format!(
        "use proc_macro::TokenStream;\n#[proc_macro] pub fn m(_: TokenStream) -> TokenStream {{\n\
         let v = {{ {body} }}; format!(\"{{:?}}\", v.to_string()).parse().unwrap() }}\n"
    );
    all([
        put("m.rs", text),
        sh(format!(
            "{} --edition 2021 --extern proc_macro --crate-type proc-macro --crate-name m m.rs -o libm.so",
            *RUSTC
        )),
    ])
}

fn with_macro(name: &str, body: &str) -> Case {
    crate_case(&format!("macro-{name}"))
        .setup(macro_of(body))
        .file("x.rs", "pub fn v() -> String { m::m!().to_string() }\n")
        .cmd(&rustc("--edition 2021 --crate-type lib --extern m=libm.so --emit metadata,link"))
}

#[rustfmt::skip]
pub(super) fn cases() -> Vec<Case> {
    let all_kinds = "--emit dep-info,metadata,link";
    let with_lib = || crate_case("dependency").file("d.rs", LIB)
        .setup(sh(format!("{} --crate-type lib --crate-name d d.rs", *RUSTC)))
        .file("x.rs", "pub fn g() -> u32 { d::f() }\n");
    let mut cases = vec![
        crate_case("edited").file("x.rs", LIB).cmd(&rustc(&format!("--crate-type lib {all_kinds}"))).twice()
            .changes("edited", put("x.rs", LIB2)).back("back", put("x.rs", LIB)).over(),
        crate_case("same-time").file("x.rs", LIB).cmd(&rustc("--crate-type lib")).twice()
            .changes("same size and time", swap("x.rs", LIB2)),
        crate_case("module-appears").file("x.rs", "mod a;\n").file("a/mod.rs", "").cmd(&rustc("--crate-type lib")).twice()
            .then("two files for one module", put("a.rs", "")).back("back", rm("a.rs")),
        crate_case("module-missing").file("x.rs", "mod a;\n").cmd(&rustc("--crate-type lib")).twice()
            .changes("appears", put("a.rs", "")),
        crate_case("include-str").file("x.rs", "pub const A: &str = include_str!(\"a.txt\");\n").file("a.txt", "1")
            .cmd(&rustc(&format!("--crate-type lib {all_kinds}"))).twice().changes("edited", put("a.txt", "2"))
            .then("gone", rm("a.txt")),
        crate_case("option-env").file("x.rs", "pub const A: Option<&str> = option_env!(\"A_VARIABLE\");\n")
            .cmd(&rustc(&format!("--crate-type lib {all_kinds}"))).twice()
            .env("A_VARIABLE", "1").changes("set", nothing()).env("A_VARIABLE", "2").changes("changed", nothing())
            .without("A_VARIABLE").back("unset", nothing()),
        crate_case("env-missing").file("x.rs", "pub const A: &str = env!(\"A_VARIABLE\");\n")
            .cmd(&rustc("--crate-type lib")).twice().env("A_VARIABLE", "1").changes("set", nothing()),
        crate_case("fails").file("x.rs", "pub fn f() -> u32 { \"\" }\n").cmd(&rustc("--crate-type lib")).twice()
            .changes("mended", put("x.rs", LIB)),
        crate_case("warns").file("x.rs", "pub fn f() { let a = 1; }\n").cmd(&rustc("--crate-type lib")).twice()
            .cmd(&rustc("--crate-type lib -D warnings")).changes("denied", nothing())
            .cmd(&rustc("--crate-type lib --cap-lints allow")).changes("capped", nothing())
            .cmd(&rustc("--crate-type lib --error-format=json --json=artifacts,diagnostic-rendered-ansi"))
            .changes("as JSON", nothing()),
        with_lib().cmd(&rustc("--edition 2021 --crate-type lib --extern d=libd.rlib")).twice()
            .changes("other content", all([put("d.rs", LIB2), sh(format!("{} --crate-type lib --crate-name d d.rs", *RUSTC))])),
        crate_case("dependency-missing").file("x.rs", "extern crate d;\n").dir("l").cmd(&rustc("--crate-type lib -L l")).twice()
            .then("appears", all([put("d.rs", LIB), sh(format!("{} --crate-type lib --crate-name d d.rs --out-dir l", *RUSTC))])),
        crate_case("native-library").file("x.rs", "#[link(name = \"n\", kind = \"static\")] extern \"C\" { pub fn n() -> i32; }\n")
            .setup(sh("mkdir -p l1 l2; echo 'int n(void){return 1;}' > n.c; gcc -c n.c; ar rcsD l2/libn.a n.o; rm n.?"))
            .cmd(&rustc("--crate-type lib -L native=l1 -L native=l2")).twice()
            .changes("appears earlier", sh("echo 'int n(void){return 2;}' > n.c; gcc -c n.c; ar rcsD l1/libn.a n.o; rm n.?")),
        crate_case("linker").mask(r"rustc\w{6}", "a temporary directory").file("x.rs", "fn main() {}\n").setup(sh("printf '#!/bin/sh\\nexec cc \"$@\"\\n' > ld.sh; chmod 755 ld.sh"))
            .cmd(&rustc("-C linker=./ld.sh")).twice().may_miss()
            .then("changed", sh("printf '#!/bin/sh\\nexec cc -Wl,--strip-all \"$@\"\\n' > ld.sh")),
        crate_case("out-dir").file("x.rs", LIB).dir("o").cmd(&rustc("--crate-type lib --out-dir o")).twice().over(),
        crate_case("target-cpu").file("x.rs", LIB).cmd(&rustc("--crate-type lib -C target-cpu=native")).twice(),
        crate_case("emit-to-paths").file("x.rs", LIB).dir("o")
            .cmd(&rustc("--crate-type lib --emit dep-info=o/d,metadata=o/m,link=o/l,asm=o/a")).twice().over(),
        crate_case("emit-to-stdout").file("x.rs", LIB).cmd(&rustc("--crate-type lib --emit asm=-")).twice().may_miss(),
        crate_case("output-to-stdout").file("x.rs", LIB).cmd(&rustc("--crate-type lib --emit mir -o -")).twice().may_miss(),
        crate_case("metadata-then-link").file("x.rs", LIB).cmd(&rustc("--crate-type lib --emit metadata")).twice()
            .cmd(&rustc("--crate-type lib --emit metadata,link")).then("link as well", nothing()).again(),
        crate_case("names-in-source").file("x.rs", "#![crate_name = \"other\"]\n#![crate_type = \"rlib\"]\npub fn f() {}\n")
            .cmd(&format!("{} x.rs", *RUSTC)).twice().may_miss().then("another name", sh("sed -i s/other/third/ x.rs")),
        crate_case("edition").file("x.rs", "pub fn f() { let async = 1; let _ = async; }\n").cmd(&rustc("--crate-type lib --edition 2015")).twice()
            .cmd(&rustc("--crate-type lib --edition 2018")).changes("another edition", nothing()),
        crate_case("coverage").file("x.rs", "pub fn f() -> u32 { 4 }\nfn main() { f(); }\n").cmd(&rustc("-C instrument-coverage")).twice(),
        crate_case("profile-use").file("x.rs", LIB).file("p.profdata", "no profile").cmd(&rustc("--crate-type lib -C profile-use=p.profdata")).twice().may_miss()
            .then("gone", rm("p.profdata")),
        crate_case("random-build-id").file("x.rs", "fn main() {}\n").loose("x", "a random identifier")
            .cmd(&rustc("-C link-arg=-Wl,--build-id=uuid")).cold().fresh().then("again", nothing()).fresh(),
        crate_case("found-by-linker").file("x.rs", "#[link(name = \"n\")] unsafe extern \"C\" { fn n() -> i32; }\nfn main() { unsafe { std::process::exit(n()) } }\n")
            .setup(sh("mkdir l; echo 'int n(void){return 1;}' > n.c; gcc -c n.c; ar rcsD l/libn.a n.o; rm n.?"))
            .cmd(&rustc("--edition 2024 -C link-arg=-Ll")).twice().may_miss()
            .then("changed", sh("echo 'int n(void){return 2;}' > n.c; gcc -c n.c; rm l/libn.a; ar rcsD l/libn.a n.o; rm n.?"))
            .then("a shared one", sh("echo 'int n(void){return 3;}' > n.c; gcc -shared n.c -o l/libn.so; rm n.c")),
        // A linker that cannot be observed is no reason to give up crates that need none.
        crate_case("mold").program("mold").file("x.rs", "fn main() {}\n").cmd(&rustc("-C link-arg=-fuse-ld=mold")).twice().may_miss()
            .again().may_miss().again().may_miss().cmd(&rustc("--crate-type lib")).then("a library", nothing()).again(),
        crate_case("lld").program("ld.lld").file("x.rs", "fn main() {}\n").cmd(&rustc("-C link-arg=-fuse-ld=lld")).twice().may_miss().again().may_miss(),
        crate_case("linker-plugin").program("clang").program("ld.lld").file("x.rs", "fn main() {}\n")
            .mask(r"rustc\w{6}", "a temporary directory").cmd(&rustc("-C linker-plugin-lto -C linker=clang -C link-arg=-fuse-ld=lld")).repeats()
            .may_miss(),
        crate_case("lto-thin").file("x.rs", "fn main() {}\n").cmd(&rustc("-C lto=thin -C opt-level=1")).twice(),
        crate_case("shared-kinds").file("x.rs", "#[unsafe(no_mangle)] pub extern \"C\" fn f() {}\n")
            .cmd(&rustc("--edition 2024 --crate-type cdylib,staticlib,dylib,rlib")).twice().changes("edited", put("x.rs", "#[unsafe(no_mangle)] pub extern \"C\" fn g() {}\n")),
        // Such targets are unstable. The variable lets a stable rustc take them.
        crate_case("target-of-a-file").env("RUSTC_BOOTSTRAP", "1").file("x.rs", BARE)
            .setup(sh(format!("RUSTC_BOOTSTRAP=1 {} -Zunstable-options --print target-spec-json --target x86_64-unknown-linux-gnu > t.json", *RUSTC)))
            .cmd(&rustc("-Zunstable-options --target t.json --crate-type lib")).twice()
            .changes("another processor", sh("sed -i 's/\"cpu\": \"x86-64\"/\"cpu\": \"x86-64-v3\"/' t.json")),
        crate_case("cfg").file("x.rs", "#[cfg(feature = \"a\")] pub fn a() {}\n").cmd(&rustc("--crate-type lib --cfg feature=\"a\"")).twice()
            .cmd(&rustc("--crate-type lib --cfg feature=\"b\"")).changes("another feature", nothing()),
        crate_case("emit").file("x.rs", LIB).cmd(&rustc("--crate-type lib --emit asm,llvm-ir,mir,obj")).twice(),
        crate_case("file-macro").file("x.rs", "pub const F: &str = file!();\n").dir("o")
            .cmd(&format!("{} --crate-name x {{root}}/x.rs --crate-type lib", *RUSTC)).twice(),
        crate_case("remapped").file("x.rs", "pub const F: &str = file!();\n")
            .cmd(&format!("{} --crate-name x {{root}}/x.rs --crate-type lib --remap-path-prefix {{root}}=/w", *RUSTC)).twice(),
        with_macro("variable", "std::env::var(\"A_VARIABLE\").unwrap_or_default()").twice()
            .env("A_VARIABLE", "1").changes("set", nothing()).without("A_VARIABLE").back("unset", nothing()),
        with_macro("all-variables", "std::env::vars().filter(|(name, _)| name.starts_with(\"A_\")).count()").twice().may_miss()
            .env("A_VARIABLE", "1").then("set", nothing()).without("A_VARIABLE").then("unset", nothing()),
        with_macro("file", "std::fs::read_to_string(\"data\").unwrap_or_default()").twice()
            .changes("appears", put("data", "1")).changes("edited", put("data", "2")).back("goes", rm("data")),
        with_macro("directory", "let mut names: Vec<_> = std::fs::read_dir(\"data\").unwrap().map(|e| e.unwrap().file_name()).collect(); names.sort(); format!(\"{names:?}\")")
            .file("data/a", "").twice().changes("one more", put("data/b", "")).back("one less", rm("data/b")),
        with_macro("link", "std::fs::read_link(\"link\").map_or_else(|_| String::new(), |to| to.display().to_string())").twice()
            .changes("appears", sh("ln -sfn a link")).changes("changed", sh("ln -sfn b link")),
        with_macro("clock", "std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() / 1_000_000_000_000_000_000_000")
            .cold().fresh().then("again", nothing()).fresh(),
        with_macro("own-process", "std::fs::read(\"/proc/self/maps\").is_ok()").cold().fresh().then("again", nothing()).fresh(),
        with_macro("own-arguments", "std::fs::read(\"/proc/self/cmdline\").unwrap().len()").cold().fresh().then("again", nothing()).fresh(),
        with_macro("descriptors", "std::fs::read_dir(\"/proc/self/fd\").is_ok()").cold().fresh().then("again", nothing()).fresh(),
        with_macro("descriptor", "std::fs::read_link(\"/dev/fd/0\").is_ok()").cold().fresh().then("again", nothing()).fresh(),
        with_macro("terminal", "std::fs::File::open(\"/dev/tty\").is_ok() && false").cold().fresh().then("again", nothing()).fresh(),
        with_macro("child", "String::from_utf8(std::process::Command::new(\"cat\").arg(\"data\").output().unwrap().stdout).unwrap()")
            .file("data", "1").twice().may_miss().then("edited", put("data", "2")),
        with_macro("writes", "std::fs::write(\"made\", \"1\").is_ok()").repeats().may_miss(),
        with_macro("status", "std::fs::metadata(\"data\").map_or(0, |d| d.len())").file("data", "1").twice()
            .changes("longer", put("data", "22")).back("as it was", put("data", "1")).may_miss(),
        with_macro("time-of-a-file", "std::fs::metadata(\"data\").unwrap().modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()")
            .file("data", "1").setup(sh("touch -d @1000000000 data")).twice().then("touched", sh("touch -d @1100000000 data"))
            .then("as it was", sh("touch -d @1000000000 data")),
        with_macro("time-of-a-link", "std::fs::symlink_metadata(\"data\").unwrap().modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()")
            .file("data", "1").setup(sh("touch -d @1000000000 data")).twice().then("touched", sh("touch -d @1100000000 data")),
        with_macro("order", "std::fs::read_dir(\"d\").unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect::<String>()")
            .setup(sh("mkdir d; for n in a b c d e f g h; do :> d/$n; done")).twice().may_miss()
            .then("other order", sh("rm -r d; mkdir d; for n in h g f e d c b a; do :> d/$n; done")),
        with_macro("kinds", "std::fs::read_dir(\"d\").unwrap().filter(|e| e.as_ref().unwrap().file_type().unwrap().is_dir()).count()")
            .file("d/a", "").twice().may_miss().then("a directory", sh("rm d/a; mkdir d/a")),
        with_macro("child-clock", "std::process::Command::new(\"date\").arg(\"+%C\").output().unwrap().stdout.len()")
            .cold().fresh().then("again", nothing()).fresh(),
        with_macro("space", "extern \"C\" { fn statvfs(path: *const u8, to: *mut [u64; 32]) -> i32; } let mut to = [0u64; 32]; unsafe { statvfs(c\".\".as_ptr().cast(), &mut to) }")
            .cold().fresh().then("again", nothing()).fresh(),
        with_macro("user", "extern \"C\" { fn getuid() -> u32; } unsafe { getuid() }").cold().fresh().then("again", nothing()).fresh(),
        with_macro("local-socket", "std::os::unix::net::UnixStream::connect(\"socket\").is_ok()").repeats().may_miss(),
        with_macro("edits", "let _ = std::fs::write(\"later\", \"2\"); 1").file("later", "1")
            .file("x.rs", "pub fn v() -> String { m::m!().to_string() }\npub const L: &str = include_str!(\"later\");\n")
            .repeats().may_miss().then("once more", nothing()).may_miss(),
        with_macro("changes", "1").twice().changes("another macro", macro_of("2")),
    ];
    cases.extend(searched());
    cases.extend(target_directories());
    cases.extend(nested_target_directories());
    cases
}

/// Searches crates in directories, and links in vain.
#[rustfmt::skip]
fn searched() -> Vec<Case> {
    let chain = |behind: &str| sh(format!(
        "mkdir -p d e; echo 'pub fn a() -> u32 {{ 4 }}' > a.rs; echo 'pub fn b() -> u32 {{ a::a() }}' > b.rs\n\
         {0} --edition 2021 --crate-type lib -C extra-filename={behind} a.rs -o d/liba{behind}.rlib\n\
         {0} --edition 2021 --crate-type lib -C extra-filename={behind} b.rs -o d/libb{behind}.rlib --extern a=d/liba{behind}.rlib", *RUSTC));
    let user = |name: &str, behind: &str| crate_case(&format!("search-{name}")).setup(chain(behind))
        .file("x.rs", "pub fn x() -> u32 { b::b() }\n");
    let cargos = "-0123456789abcdef";
    let copy = |from: &str, to: &str| sh(format!("cp {from} {to}"));
    let by_path = |behind: &str| rustc(&format!("--edition 2021 --crate-type lib --extern b=d/libb{behind}.rlib -L dependency=d -L dependency=e"));
    vec![
        user("names-of-cargo", cargos).cmd(&by_path(cargos)).twice()
            .back("unrelated crate", copy(&format!("d/liba{cargos}.rlib"), &format!("d/libz{cargos}.rlib")))
            .then("same name elsewhere", copy(&format!("d/libb{cargos}.rlib"), &format!("e/liba{cargos}.rlib"))),
        user("other-names", "").cmd(&by_path("")).twice()
            .then("second candidate", copy("d/libb.rlib", "d/liba-2.rlib")).then("third", copy("d/liba.rlib", "d/liba-3.rlib")),
        user("without-a-path", cargos).cmd(&rustc("--edition 2021 --crate-type lib --extern b -L d")).twice()
            .then("second candidate", copy(&format!("d/liba{cargos}.rlib"), "d/libb-2.rlib"))
            .then("the same twice", copy(&format!("d/libb{cargos}.rlib"), "d/libb-3.rlib")),
        crate_case("link-fails").mask(r"rustc\w{6}", "a temporary directory")
            .file("x.rs", "unsafe extern \"C\" { fn is_nowhere(); }\nfn main() { unsafe { is_nowhere() } }\n")
            .cmd(&rustc("--edition 2024")).cold().fresh().then("again", nothing()).fresh(),
    ]
}

/// Compiles into one target directory and then into another.
#[rustfmt::skip]
fn target_directories() -> Vec<Case> {
    let target = |name: &str, at: &str| format!(
        "$WRAP {} --crate-name x x.rs --crate-type lib --emit dep-info,metadata,link --error-format=json --json=artifacts \
         --out-dir $PWD/{at}/debug/deps -L dependency=$PWD/{at}/debug/deps -C incremental=$PWD/{at}/inc{name}; \
         end=$?; rm -rf {at}/inc{name}; exit $end", *RUSTC);
    let made = || all([put("t/CACHEDIR.TAG", ""), put("u/CACHEDIR.TAG", ""), dir("t/debug/deps"), dir("u/debug/deps"),
        put("t/out/g.rs", "pub fn g() {}\n"), put("u/out/g.rs", "pub fn g() {}\n")]);
    let random = (r"\.[0-9a-z]{7}\.rcgu\.o", "rustc's own random names of members");
    vec![
        crate_case("target-plain").file("x.rs", LIB).setup(made()).mask(random.0, random.1).loose("*.rlib", random.1)
            .sh(target("", "t")).twice().sh(target("", "u")).then("elsewhere", nothing()).hits(),
        crate_case("target-included").file("x.rs", "include!(concat!(env!(\"OUT\"), \"/g.rs\"));\n").setup(made())
            .loose("*.rlib", random.1).sh(format!("export OUT=$PWD/t/out; {}", target("", "t"))).twice()
            .sh(format!("export OUT=$PWD/u/out; {}", target("", "u"))).then("elsewhere", nothing())
            .changes("edited", put("u/out/g.rs", "pub fn g() -> u8 { 1 }\n")),
    ]
}

/// Compiles into target directories inside of the working directory, which is above their paths, and
/// into one whose path has `..` in it.
#[rustfmt::skip]
fn nested_target_directories() -> Vec<Case> {
    let target = |at: &str, more: &str| format!(
        "cd w; $WRAP {} --edition 2021 --crate-name x x.rs --crate-type lib -g --emit dep-info,metadata,link --out-dir {at}/debug/deps {more}", *RUSTC);
    let places = ["$PWD/t", "$PWD/a/longer/t", "$PWD/../t", "$PWD/l/../../t", "../t"];
    let made = || all([sh("mkdir -p w/t/debug/deps w/a/longer/t/debug/deps t/debug/deps w/sub; ln -s sub w/l"),
        put("w/t/CACHEDIR.TAG", ""), put("w/a/longer/t/CACHEDIR.TAG", ""), put("t/CACHEDIR.TAG", "")]);
    let in_each = |case: Case, more: &str| {
        let first = case.sh(target(places[0], more)).twice().may_miss();
        places[1..].iter().fold(first, |case, at| case.sh(target(at, more)).then(at, nothing()))
    };
    let own = "use std::ffi::*; unsafe extern \"C\" { fn dladdr(address: *const c_void, info: *mut [*const c_char; 4]) -> c_int; } \
        static HERE: u8 = 0; let mut info = [std::ptr::null(); 4]; unsafe { dladdr(&raw const HERE as *const c_void, &mut info); } \
        let path = unsafe { CStr::from_ptr(info[0]) }.to_str().unwrap().to_owned();";
    let argument = "std::env::args().find(|word| word.ends_with(\"/deps\")).unwrap()";
    let above = |path: &str| format!("std::path::Path::new(&{path}).ancestors().nth(3).unwrap().display().to_string()");
    let with = |name: &str, body: &str| crate_case(&format!("nested-target-{name}")).setup(macro_of(body)).setup(made())
        .setup(sh("for t in w/t w/a/longer/t t; do cp -p libm.so $t/debug/deps; done"))
        .file("w/x.rs", "pub fn v() -> String { m::m!().to_string() }\n");
    vec![
        in_each(crate_case("nested-target").setup(made()).file("w/x.rs", LIB), ""),
        in_each(crate_case("nested-target-split").setup(made()).file("w/x.rs", LIB), "-C split-debuginfo=unpacked"),
        in_each(with("argument", &above(argument)), "--extern m=../libm.so"),
        with("own-path", &format!("{own} {}", above("path"))).sh(target(places[0], "--extern m=t/debug/deps/libm.so")).twice().may_miss()
            .sh(target(places[1], "--extern m=a/longer/t/debug/deps/libm.so")).then("another", nothing()),
        with("looks", "std::path::Path::new(\"t/flag\").exists()").sh(target(places[0], "--extern m=../libm.so")).twice().may_miss()
            .sh(target(places[1], "--extern m=../libm.so")).then("another", put("w/t/flag", "")),
        crate_case("nested-target-includes").setup(made()).file("w/x.rs", "pub const N: &[u8] = include_bytes!(\"t/debug/n.so\");\n")
            .setup(sh("for t in w/t w/a/longer/t; do echo 1 > $t/debug/n.so; done")).sh(target(places[0], "")).twice().may_miss()
            .sh(target(places[1], "")).then("another", put("w/t/debug/n.so", "2\n")),
    ]
}
