//! Runs programs of every kind through `larder run`: linked in different ways, in several
//! languages, and with functions of libc replaced. With any observer they must end as they end
//! without larder, and larder either records and answers them, or refuses with a reason.
#![cfg(target_os = "linux")]

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use larder_testkit::{Place, Tree, has, is_root, probe_skip};

/// How often each command runs, from the same files. In the first runs larder learns how its
/// programs can be observed.
const RUNS: usize = 5;
/// The exit code of a program that fails.
const FAILED: i32 = 3;

/// Returns a C program that reads `in`, writes it to `out` in capitals, prints a line to both
/// streams, and ends with the exit code `CODE`. `before` is put in front of it, and `inside` at the
/// beginning of `main`.
fn c(before: &str, inside: &str) -> String {
    format!(
        "#define _GNU_SOURCE\n{before}\n#include <ctype.h>\n#include <stdio.h>\n#include <stdlib.h>\n\
         int main(void) {{ {inside}\n\
         char *text = malloc(4096); FILE *in = fopen(\"in\", \"r\"), *out = fopen(\"out\", \"w\");\n\
         if (!in || !out) {{ perror(\"open\"); return 9; }}\n\
         size_t count = fread(text, 1, 4096, in); for (size_t i = 0; i < count; i++) text[i] = toupper(text[i]);\n\
         fwrite(text, 1, count, out); fclose(in); if (fclose(out)) return 8; free(text);\n\
         printf(\"%zu bytes\\n\", count); fprintf(stderr, \"done\\n\"); return CODE; }}\n"
    )
}

/// The outcome that the runs must have. Their results must always equal those without larder.
#[derive(Clone, Copy, PartialEq)]
enum Expect {
    /// The last run hits.
    Hit,
    /// The last run hits if the program succeeds. Only the kernel observer sees the program, and it
    /// does not see whether a call failed. So a failed run may be due to a shortage, and is not
    /// recorded.
    HitIfDone,
    /// The runs may hit or miss, but a miss has a reason.
    Any,
}

/// Runs `argv` without larder and through `larder run`, for two contents of `in`. Adds each
/// difference to `wrong`.
fn check(place: &Place, what: &str, argv: &[&str], expect: Expect, wrong: &mut String) {
    check_with_code(place, what, argv, FAILED, expect, wrong);
}

/// Does what [`check`] does, for a plain run that ends with `code`.
fn check_with_code(place: &Place, what: &str, argv: &[&str], code: i32, expect: Expect, wrong: &mut String) {
    let work = place.path("work");
    for text in ["one\n", "two, longer\n"] {
        place.put("in", text);
        let before = Tree::of(&work);
        let plain = (place.run(argv).run(), Tree::of(&work));
        if plain.0.code != Some(code) {
            let _ = writeln!(wrong, "{what}: the plain run: {:?}", plain.0);
        }
        before.put_back(&work);
        let mut found = Vec::new();
        for _ in 0..RUNS {
            let (ran, outcome) = place.counted(place.larder(&[&["run", "--"][..], argv].concat()));
            let tree = Tree::of(&work);
            if ran != plain.0 || tree != plain.1 {
                let difference = tree.difference(&plain.1);
                let _ = writeln!(wrong, "{what} ({outcome}): {ran:?} instead of {:?}; {difference:?}", plain.0);
            }
            found.push(outcome);
            before.put_back(&work);
        }
        eprintln!("{what}: {found:?}");
        let is_refused = |one: &String| ["miss", "hit"].contains(&one.as_str()) || one.starts_with("miss:");
        let hits = found.last().is_some_and(|last| last == "hit");
        let as_expected = match expect {
            Expect::Hit => hits,
            Expect::HitIfDone => hits == (code == 0),
            Expect::Any => true,
        };
        if !found.iter().all(|one| is_refused(one) || one.starts_with("bypass:")) || !as_expected {
            let _ = writeln!(wrong, "{what}: {found:?}");
        }
    }
}

/// Compiles a C program that ends with `code`, and returns its path, or `None` if these flags do
/// not work here.
fn compiled(place: &Place, what: &str, compiler: &str, text: &str, code: i32, flags: &[&str]) -> Option<String> {
    let source = place.path("program.c");
    std::fs::write(&source, text).expect("cannot write the file");
    let program = place.text("bin/program");
    let source = source.to_str().expect("not UTF-8");
    let code = format!("-DCODE={code}");
    let made = has(compiler)
        && place.run(&[&[compiler, &code, "-w", "-O1", "-o", &program, source], flags].concat()).run().code == Some(0);
    if !made {
        eprintln!("skipped: {what}: {compiler} {flags:?} does not work here");
    }
    made.then_some(program)
}

/// C code that replaces `open` by one that makes the system call itself.
const OWN_OPEN: &str = "#include <fcntl.h>\n#include <stdarg.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n\
    int open(const char *path, int flags, ...) { va_list rest; va_start(rest, flags); int mode = va_arg(rest, int); va_end(rest);\n\
    return syscall(SYS_openat, AT_FDCWD, path, flags, mode); }\n\
    int open64(const char *path, int flags, ...) { return open(path, flags, 0666); }\n";

/// C code that makes system calls by its own instructions, without libc.
const OWN_CALLS: &str = "#include <fcntl.h>\n#include <sys/syscall.h>\n\
    #if defined(__x86_64__)\n\
    static long ask(long n, long a, long b, long c, long d) { long r; register long r10 __asm__(\"r10\") = d;\n\
    __asm__ volatile(\"syscall\" : \"=a\"(r) : \"a\"(n), \"D\"(a), \"S\"(b), \"d\"(c), \"r\"(r10) : \"rcx\", \"r11\", \"memory\"); return r; }\n\
    #else\n\
    static long ask(long n, long a, long b, long c, long d) { register long x8 __asm__(\"x8\") = n; register long x0 __asm__(\"x0\") = a;\n\
    register long x1 __asm__(\"x1\") = b; register long x2 __asm__(\"x2\") = c; register long x3 __asm__(\"x3\") = d;\n\
    __asm__ volatile(\"svc 0\" : \"+r\"(x0) : \"r\"(x8), \"r\"(x1), \"r\"(x2), \"r\"(x3) : \"memory\"); return x0; }\n\
    #endif\n";

/// C code of an allocator on a mapping that only grows.
const OWN_MALLOC: &str = "#include <stddef.h>\n#include <string.h>\n#include <sys/mman.h>\n\
    static char *at, *end;\n\
    void *malloc(size_t n) { n = (n + 31) & ~15ul; if (!at || at + n > end) { size_t room = n > 1 << 20 ? n + 4096 : 1 << 20;\n\
    at = mmap(0, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); if (at == MAP_FAILED) return 0; end = at + room; }\n\
    char *made = at + 16; ((size_t *)at)[0] = n - 16; at += n; return made; }\n\
    void free(void *p) { (void)p; }\n\
    void *calloc(size_t a, size_t b) { void *p = malloc(a * b); return p ? memset(p, 0, a * b) : p; }\n\
    void *realloc(void *p, size_t n) { void *q = malloc(n); if (p && q) { size_t had = ((size_t *)p)[-2]; memcpy(q, p, had < n ? had : n); } return q; }\n\
    void *memalign(size_t a, size_t n) { size_t p = (size_t)malloc(n + a); return (void *)((p + a - 1) / a * a); }\n\
    void *aligned_alloc(size_t a, size_t n) { return memalign(a, n); }\n\
    int posix_memalign(void **p, size_t a, size_t n) { *p = memalign(a, n); return 0; }\n";

#[test]
fn programs_of_c() {
    let mut wrong = String::new();
    let plain = c("", "");
    let by_name = c("#include <dlfcn.h>", "if (!dlopen(\"libm.so.6\", RTLD_NOW)) return 7;");
    let by_path = c("#include <dlfcn.h>\n#include <link.h>", "dlopen(\"/nonexistent/x.so\", RTLD_NOW);");
    let asks = c(OWN_CALLS, "ask(SYS_openat, AT_FDCWD, (long)\"in\", O_RDONLY, 0);");
    let own_malloc = c(OWN_MALLOC, "");
    let own_open = c(OWN_OPEN, "int fd = open(\"in\", O_RDONLY); if (fd < 0) return 6; close(fd);");
    let threads = c(
        "#include <pthread.h>\n#include <unistd.h>\nstatic void *work(void *p) { return access(\"in\", R_OK) ? p : 0; }",
        "pthread_t t; void *r; pthread_create(&t, 0, work, \"\"); pthread_join(t, &r); if (r) return 5;",
    );
    let vforks = c(
        "#include <sys/wait.h>\n#include <unistd.h>",
        "int s; if (!vfork()) { execl(\"/bin/true\", \"true\", (char *)0); _exit(4); } wait(&s); if (s) return 4;",
    );
    use Expect::{Any, Hit, HitIfDone};
    for (what, compiler, text, flags, expect) in [
        ("dynamic", "gcc", &plain, &[][..], Hit),
        ("dynamic, not at any address", "gcc", &plain, &["-no-pie"], Hit),
        ("dynamic, all bound at once", "gcc", &plain, &["-Wl,-z,now"], Hit),
        ("with libdl, by name", "gcc", &by_name, &["-Wl,--no-as-needed", "-ldl"], Any),
        ("with libdl, by path", "gcc", &by_path, &["-Wl,--no-as-needed", "-ldl"], Hit),
        ("static", "gcc", &plain, &["-static"], HitIfDone),
        ("static, at any address", "gcc", &plain, &["-static-pie"], HitIfDone),
        ("of musl", "musl-gcc", &plain, &[], Hit),
        ("of musl, static", "musl-gcc", &plain, &["-static"], HitIfDone),
        ("with a malloc of its own", "gcc", &own_malloc, &[], Hit),
        ("with a malloc of its own, static", "gcc", &own_malloc, &["-static", "-Wl,-z,muldefs"], HitIfDone),
        ("with an open of its own", "gcc", &own_open, &[], Any),
        ("that asks the kernel itself", "gcc", &asks, &[], Hit),
        ("with threads", "gcc", &threads, &["-pthread"], Hit),
        ("that starts another by vfork", "gcc", &vforks, &[], Hit),
        ("with a sanitizer", "gcc", &plain, &["-fsanitize=address"], Any),
    ] {
        for code in [0, FAILED] {
            let place = Place::new();
            if let Some(program) = compiled(&place, what, compiler, text, code, flags) {
                check_with_code(&place, what, &[&program], code, expect, &mut wrong);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn a_program_with_rights_of_its_own() {
    probe_skip!(is_root(), "only root can make programs that run as root");
    let mut wrong = String::new();
    let place = Place::new();
    let text = c("#include <unistd.h>", "if (geteuid()) return 5;");
    if let Some(program) = compiled(&place, "set-user-id", "gcc", &text, FAILED, &[]) {
        place.run(&["chmod", "u+s", &program]).run().quiet();
        check(&place, "set-user-id", &[&program], Expect::Any, &mut wrong);
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Runs a toolchain with the environment of the test itself. Returns false, and prints why, if the
/// toolchain is missing or fails.
fn builds(place: &Place, what: &str, argv: &[&str]) -> bool {
    let mut command = Command::new(argv[0]);
    command.args(&argv[1..]).current_dir(place.path("home")).env("GOCACHE", place.path("tmp/go")).env("GOFLAGS", "");
    let made = command.output();
    let done = made.as_ref().is_ok_and(|output| output.status.success());
    if !done {
        let said = made.map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
        eprintln!("skipped: {what}: {argv:?} does not work here: {said:?}");
    }
    done
}

#[test]
fn programs_of_go() {
    let text = "package main\nimport (\"bytes\"; \"fmt\"; \"os\")\nfunc main() {\n text, err := os.ReadFile(\"in\")\n\
        if err != nil { panic(err) }\n if err := os.WriteFile(\"out\", bytes.ToUpper(text), 0o644); err != nil { panic(err) }\n\
        fmt.Println(len(text), \"bytes\"); fmt.Fprintln(os.Stderr, \"done\"); os.Exit(3)\n}\n";
    let installed = Path::new("/usr/local/go/bin/go");
    let go = if installed.exists() { installed.to_str().expect("not UTF-8") } else { "go" };
    let mut wrong = String::new();
    let place = Place::new();
    std::fs::write(place.path("home/main.go"), text).expect("cannot write the file");
    let program = place.text("bin/program");
    if builds(&place, "Go", &[go, "build", "-o", &program, "main.go"]) {
        check(&place, "Go", &[&program], Expect::Any, &mut wrong);
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn programs_of_rust() {
    let text = "fn main() {\n let text = std::fs::read_to_string(\"in\").unwrap();\n\
        let words: std::collections::HashMap<&str, usize> = text.split_whitespace().map(|word| (word, word.len())).collect();\n\
        assert!(!words.is_empty());\n std::fs::write(\"out\", text.to_uppercase()).unwrap();\n\
        println!(\"{} bytes\", text.len());\n eprintln!(\"done\");\n std::process::exit(3);\n}\n";
    let mut wrong = String::new();
    for (what, flags) in [
        ("Rust", &[][..]),
        ("Rust, static", &["-C", "target-feature=+crt-static"]),
        ("Rust, of musl", &["--target", "x86_64-unknown-linux-musl"]),
    ] {
        let place = Place::new();
        std::fs::write(place.path("home/main.rs"), text).expect("cannot write the file");
        let program = place.text("bin/program");
        if builds(&place, what, &[&["rustc", "-o", &program, "main.rs"], flags].concat()) {
            check(&place, what, &[&program], Expect::Any, &mut wrong);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn programs_of_java() {
    probe_skip!(has("java") && has("javac"), "java is not installed");
    let text = "import java.nio.file.*;\npublic class Main { public static void main(String[] a) throws Exception {\n\
        String text = Files.readString(Path.of(\"in\")); Files.writeString(Path.of(\"out\"), text.toUpperCase());\n\
        System.out.println(text.length() + \" bytes\"); System.err.println(\"done\"); System.exit(3); } }\n";
    let mut wrong = String::new();
    let place = Place::new();
    std::fs::write(place.path("home/Main.java"), text).expect("cannot write the file");
    let classes = place.text("bin");
    if builds(&place, "Java", &["javac", "-d", &classes, "Main.java"]) {
        check(&place, "Java", &["java", "-cp", &classes, "Main"], Expect::Any, &mut wrong);
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn scripts() {
    let mut wrong = String::new();
    for (interpreter, expect, text) in [
        ("sh", Expect::Hit, "tr a-z A-Z < in > out; echo \"$(wc -c < in) bytes\"; echo done >&2; exit 3"),
        (
            "perl",
            Expect::Any,
            "open(I, 'in'); $_ = join '', <I>; open(O, '>out'); print O uc; print length, qq( bytes\\n); print STDERR qq(done\\n); exit 3",
        ),
        (
            "/usr/bin/python3",
            Expect::Any,
            "import sys\ntext = open('in').read()\nopen('out', 'w').write(text.upper())\nprint(len(text), 'bytes')\nprint('done', file=sys.stderr)\nsys.exit(3)",
        ),
        (
            "node",
            Expect::Any,
            "const fs = require('fs'); const text = fs.readFileSync('in', 'utf8'); fs.writeFileSync('out', text.toUpperCase()); console.log(text.length, 'bytes'); console.error('done'); process.exit(3)",
        ),
    ] {
        if !has(interpreter.trim_start_matches("/usr/bin/")) {
            eprintln!("skipped: {interpreter} is not installed");
            continue;
        }
        let place = Place::new();
        place.put("script", text);
        check(&place, interpreter, &[interpreter, "script"], expect, &mut wrong);
    }
    assert!(wrong.is_empty(), "{wrong}");
}
