//! Generates the sources that hits and misses are measured with. They are the same on every
//! machine, except for the system's headers.

use crate::files;
use anyhow::Result;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// One compile: a source, its headers, and the command.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// The working directory, which contains the sources and outputs.
    pub(crate) dir: PathBuf,
    pub(crate) compiler: &'static str,
    pub(crate) arguments: Vec<String>,
    /// True if there are headers in the working directory.
    pub(crate) has_own_headers: bool,
}

/// The outputs of a compile, in its directory.
pub(crate) const OUTPUTS: &[&str] = &["main.o", "main.d"];

impl Case {
    /// Returns the outputs of the last compile.
    pub(crate) fn outputs(&self) -> Result<Vec<Vec<u8>>> {
        OUTPUTS.iter().map(|name| files::bytes(self.dir.join(name))).collect()
    }
}

/// The header directories on the include path, and the number of headers in each of their folders.
/// The first directory has most headers. The compiler looks in vain in each directory before the
/// correct one.
const ROOTS: &[(&str, usize)] = &[("include", 31), ("generated", 3)];
const FOLDERS: &[&str] = &["core", "io", "math", "net", "text"];
/// The number of functions in the C source, an ordinary small file.
const FUNCTIONS: usize = 20;

/// Returns a case with about 220 headers: two of the system with their includes, and 170 of a
/// project.
pub(crate) fn c(parent: &Path) -> Result<Case> {
    let dir = parent.join("c");
    let mut includes = String::from("#include <stdio.h>\n#include <stdlib.h>\n");
    for (root, headers) in ROOTS {
        for folder in FOLDERS {
            let folder = format!("{folder}_{root}");
            writeln!(includes, "#include <{folder}/h0.h>")?;
            for index in 0..*headers {
                files::write(
                    dir.join(root).join(&folder).join(format!("h{index}.h")),
                    header(&folder, index, *headers),
                )?;
            }
        }
    }
    let functions: String = (0..FUNCTIONS).map(function).collect();
    files::write(dir.join("main.c"), format!("{includes}\n{functions}"))?;
    let arguments = arguments(&["-Iinclude", "-Igenerated", "-O2"], "main.c");
    Ok(Case { name: "C", dir, compiler: "gcc", arguments, has_own_headers: true })
}

/// Returns a case with about 240 headers of the C++ library and an object of 1.5 MB.
pub(crate) fn cpp(parent: &Path) -> Result<Case> {
    let dir = parent.join("cpp");
    files::write(dir.join("main.cc"), CPP)?;
    let arguments = arguments(&["-std=c++17", "-O0"], "main.cc");
    Ok(Case { name: "C++", dir, compiler: "g++", arguments, has_own_headers: false })
}

/// Returns compiles of C and C++ that take about 10 ms, 60 ms and, unless `quick`, 2 s. Each has
/// the number `RUN` in its object, which the command must define.
pub(crate) fn of_sizes(parent: &Path, quick: bool) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for size in SIZES.iter().filter(|size| !quick || !size.is_long) {
        let dir = parent.join(size.name.replace([',', ' '], ""));
        let is_c = size.compiler == "gcc";
        let functions: String = (0..size.functions).map(|at| plain_function(at, is_c)).collect();
        let rest = if size.with_cpp { CPP } else { "" };
        let number = if is_c { "const int run = RUN;" } else { "extern const int run;\nconst int run = RUN;" };
        let source = if is_c { "main.c" } else { "main.cc" };
        let includes: String = size.includes.iter().map(|name| format!("#include <{name}>\n")).collect();
        files::write(dir.join(source), format!("{includes}{number}\n{functions}{rest}"))?;
        let arguments = arguments(&[if size.with_cpp { "-std=c++17" } else { "-O2" }], source);
        cases.push(Case { name: size.name, dir, compiler: size.compiler, arguments, has_own_headers: false });
    }
    Ok(cases)
}

/// A compile that takes a certain time, on a machine of 2026.
struct Size {
    name: &'static str,
    compiler: &'static str,
    includes: &'static [&'static str],
    functions: usize,
    with_cpp: bool,
    is_long: bool,
}

const SIZES: &[Size] = &[
    Size { name: "C, 10 ms", compiler: "gcc", includes: &[], functions: 0, with_cpp: false, is_long: false },
    Size {
        name: "C, 60 ms",
        compiler: "gcc",
        includes: &["stdio.h", "string.h"],
        functions: 8,
        with_cpp: false,
        is_long: false,
    },
    Size {
        name: "C, 2 s",
        compiler: "gcc",
        includes: &["stdio.h", "string.h"],
        functions: 350,
        with_cpp: false,
        is_long: true,
    },
    Size { name: "C++, 10 ms", compiler: "g++", includes: &[], functions: 0, with_cpp: false, is_long: false },
    Size {
        name: "C++, 60 ms",
        compiler: "g++",
        includes: &["utility", "cstdio"],
        functions: 6,
        with_cpp: false,
        is_long: false,
    },
    Size { name: "C++, 2 s", compiler: "g++", includes: &[], functions: 0, with_cpp: true, is_long: true },
];

/// Returns a function with loops and branches that the compiler can optimise.
fn plain_function(index: usize, is_c: bool) -> String {
    let linkage = if is_c { "" } else { "extern \"C\" " };
    format!(
        "{linkage}int work_{index}(int n, const int *values)\n{{\n    int sum = {index};\n    for (int i = 0; i < n; \
         i++) {{\n        \
         if (values[i] % {} == 0) printf(\"%d\\n\", values[i]);\n        sum += values[i] ^ {index};\n    }}\n    return sum;\n}}\n",
        index + 2
    )
}

/// Returns the number of headers that the compile read, from its depfile.
pub(crate) fn headers(case: &Case) -> Result<usize> {
    let text = files::read(case.dir.join("main.d"))?;
    let words = text.split_whitespace().filter(|&word| word != "\\" && !word.ends_with(':'));
    Ok(words.count().saturating_sub(1))
}

fn arguments(own: &[&str], source: &str) -> Vec<String> {
    let common = ["-c", source, "-o", "main.o", "-MD", "-MF", "main.d"];
    own.iter().chain(&common).map(|&word| word.to_owned()).collect()
}

/// Returns a header that includes the next one of its folder.
fn header(folder: &str, index: usize, headers: usize) -> String {
    let next = if index + 1 < headers { format!("#include \"h{}.h\"\n", index + 1) } else { String::new() };
    let name = format!("{folder}_{index}");
    format!(
        "#ifndef H_{name}\n#define H_{name}\n{next}\
         struct s_{name} {{ int count; double weight; const char *label; struct s_{name} *next; }};\n\
         static inline int f_{name}(const struct s_{name} *s) {{ return s->count * {index} + (int)s->weight; }}\n#endif\n"
    )
}

fn function(index: usize) -> String {
    format!(
        "int work_{index}(int n, const char **names)\n{{\n    struct s_core_include_0 s = {{ n, n * 0.5, names[0], 0 \
         }};\n    \
         for (int i = 0; i < n; i++) {{\n        if (i % {} == 0) printf(\"%d %s\\n\", f_core_include_0(&s), names[i]);\n        \
         s.count += i ^ {index};\n    }}\n    return s.count;\n}}\n",
        index + 2
    )
}

const CPP: &str = r#"#include <algorithm>
#include <iostream>
#include <map>
#include <regex>
#include <string>
#include <vector>

template <int N>
struct Table {
    std::map<std::string, std::vector<int>> rows;

    std::size_t find(const std::string& text)
    {
        static const std::regex pattern("([a-z]+)(" + std::to_string(N) + ")([0-9]+)");
        std::smatch match;
        if (std::regex_search(text, match, pattern)) rows[match[1]].push_back(N);
        for (auto& [name, values] : rows) {
            std::sort(values.begin(), values.end());
            std::cout << name << values.size();
        }
        return rows.size();
    }
};

int main(int, char** names)
{
    return static_cast<int>(Table<1>().find(names[0]) + Table<2>().find(names[0]));
}
"#;
