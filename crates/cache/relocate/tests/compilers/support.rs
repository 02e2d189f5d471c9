//! Compiles equal sources in two places with real compilers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A place of a build: its directory, and the directory of its sources.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) base: PathBuf,
    pub(crate) sources: PathBuf,
}

impl Place {
    /// Makes a place with its sources below the directory of the build.
    pub(crate) fn whole(base: &Path) -> Place {
        Place { base: base.into(), sources: base.join("src") }
    }

    /// Creates the directories and sources.
    pub(crate) fn fill(&self) {
        for dir in [&self.base.join("build"), &self.base.join("inc"), &self.sources] {
            fs::create_dir_all(dir).expect("a directory");
        }
        fs::write(self.base.join("inc/inner.h"), "static inline int inner(int a) { return a * 3; }\n")
            .expect("a header");
        for (name, text) in SOURCES {
            fs::write(self.sources.join(name), text).expect("a source");
        }
    }

    /// Returns the path by which a command in `build` names a source.
    pub(crate) fn source(&self, name: &str, is_absolute: bool) -> PathBuf {
        if is_absolute { self.sources.join(name) } else { Path::new("../src").join(name) }
    }

    /// Compiles a source in `build`. Returns `None` if the command fails.
    pub(crate) fn compile(&self, compiler: &str, flags: &[&str], source: &str, is_absolute: bool) -> Option<Vec<u8>> {
        let output = Command::new(compiler)
            .args(flags)
            .arg("-I")
            .arg(if is_absolute { self.base.join("inc") } else { "../inc".into() })
            .args(["-c", "-o", "x.o"])
            .arg(self.source(source, is_absolute))
            .current_dir(self.base.join("build"))
            .output();
        let output = output.expect("a compiler");
        if !output.status.success() {
            println!("{compiler} {flags:?} {source}: {}", String::from_utf8_lossy(&output.stderr));
            return None;
        }
        Some(fs::read(self.base.join("build/x.o")).expect("an object"))
    }
}

/// Returns true if the program exists, and prints a line if it does not.
pub(crate) fn is_there(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok();
    if !is_there {
        println!("skipped: there is no {program}");
    }
    is_there
}

/// Sources that produce varied debug information.
pub(crate) const SOURCES: [(&str, &str); 8] = [
    ("one.h", "#define ONE(a) ((a) + 1)\nstruct one { int a; struct one *next; };\n"),
    ("small.c", "int small(int a) { return a + 1; }\n"),
    (
        "data.c",
        "#include \"one.h\"\nstruct one table[3] = { { 1, table + 1 } };\nconst char *const words[] = { \"a\", \"bc\" };\n",
    ),
    (
        "list.c",
        "#include <stdio.h>\n#include <string.h>\n#include <stdlib.h>\n#include \"one.h\"\n#include \"inner.h\"\n\
         static int length(const struct one *l) { int n = 0; for (; l; l = l->next) n++; return n; }\n\
         int sum(const struct one *l) { int s = 0; while (l) { s += inner(l->a); l = l->next; } return s + length(l); }\n\
         void show(struct one *l, FILE *out) { fprintf(out, \"%d %s\\n\", ONE(sum(l)), strerror(3)); free(l); }\n",
    ),
    (
        "math.c",
        "#include <math.h>\n#include <stdint.h>\n#include <pthread.h>\n#include <sys/stat.h>\n#include \"inner.h\"\n\
         static double cube(double x) { return x * x * x; }\nstatic __thread uint64_t count;\n\
         double length(const double *v, int n) { double s = 0; for (int i = 0; i < n; i++) s += cube(v[i]); count++; \
         return sqrt(s) + inner(n); }\nlong size(const char *p) { struct stat s; return stat(p, &s) ? -1 : s.st_size; }\n",
    ),
    (
        "plain.cc",
        "#include \"one.h\"\nnamespace outer { template <class T> struct box { T t; explicit box(T x) : t(x) {} virtual ~box() {} \
         T get() const { return t; } }; }\nint get(int a) { outer::box<int> b(a); \
         auto l = [&](int k) { return k + b.get(); }; return l(3); }\nnamespace { struct hidden { int z; } it; }\n\
         int hidden_z() { return it.z; }\n",
    ),
    (
        "stl.cc",
        "#include <algorithm>\n#include <map>\n#include <memory>\n#include <string>\n#include <vector>\n#include \"inner.h\"\n\
         struct shape { virtual ~shape() = default; virtual double area() const = 0; };\n\
         struct square : shape { double side; double area() const override { return side * side; } };\n\
         std::map<std::string, std::vector<std::unique_ptr<shape>>> all;\n\
         double sum(const std::string &name) { double s = inner(1); for (auto &one : all[name]) s += one->area(); return s; }\n\
         void order(std::vector<std::string> &v) { std::sort(v.begin(), v.end(), [](auto &a, auto &b) { return a < b; }); }\n",
    ),
    ("file.c", "const char *file(void) { return __FILE__; }\n"),
];
