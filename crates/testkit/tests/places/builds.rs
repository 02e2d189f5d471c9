//! Builds by real build systems in two Git worktrees, in two directories with unusual names, and in
//! a build directory that was moved.

use larder_testkit::{has, probe_skip};

use crate::two::Case;

/// The fewest commands that must hit in the second directory.
mod least_hits {
    pub(super) const CMAKE_WORKTREES: u64 = 10;
    pub(super) const MESON_WORKTREES: u64 = 23;
    pub(super) const CMAKE_CHECKS: u64 = 29;
    pub(super) const MESON_CHECKS: u64 = 22;
    pub(super) const AUTOTOOLS_WORKTREES: u64 = 24;
    pub(super) const CMAKE_ODD_NAMES: u64 = 4;
    pub(super) const AUTOTOOLS_MOVED: u64 = 0;
    pub(super) const MAKE_MOVED: u64 = 3;
    pub(super) const MANY_PROBES: u64 = 130;
    pub(super) const MANY_LINKS: u64 = 200;
}

const LIB_H: &str = "#ifndef LIB_H\n#define LIB_H\nint one(int a);\nint two(int a);\n#endif\n";
const ONE_C: &str = "#include \"lib.h\"\nint one(int a) { return a + 1; }\n";
const TWO_C: &str = "#include <string.h>\n#include \"lib.h\"\n\
    int two(int a) { return (int)strlen(__FILE__) > 0 ? a + 2 : 0; }\n";
const MAIN_C: &str = "#include <assert.h>\n#include <stdio.h>\n#include \"lib.h\"\n\
    int main(void) { assert(one(1) == 2); return printf(\"%d\\n\", two(one(0))) < 0; }\n";
const MORE_CC: &str = "#include <vector>\nextern \"C\" {\n#include \"lib.h\"\n}\n\
    int more(const std::vector<int>& all) { int sum = 0; for (int a : all) sum += one(a); return sum; }\n";

const CMAKE: &[(&str, &str)] = &[
    (
        "main/CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.13)\nproject(p C CXX)\nadd_library(lib src/one.c src/two.c src/more.cc)\n\
         target_include_directories(lib PUBLIC include)\nadd_executable(p src/main.c)\ntarget_link_libraries(p lib)\n",
    ),
    ("main/include/lib.h", LIB_H),
    ("main/src/one.c", ONE_C),
    ("main/src/two.c", TWO_C),
    ("main/src/main.c", MAIN_C),
    ("main/src/more.cc", MORE_CC),
];

const MESON: &[(&str, &str)] = &[
    (
        "main/meson.build",
        "project('p', 'c', 'cpp')\ninc = include_directories('include')\n\
         lib = static_library('lib', 'src/one.c', 'src/two.c', 'src/more.cc', include_directories: inc)\n\
         executable('p', 'src/main.c', include_directories: inc, link_with: lib)\n",
    ),
    CMAKE[1],
    CMAKE[2],
    CMAKE[3],
    CMAKE[4],
    CMAKE[5],
];

const AUTOTOOLS: &[(&str, &str)] = &[
    (
        "main/configure.ac",
        "AC_INIT([p], [1])\nAC_CONFIG_SRCDIR([src/one.c])\nAC_CONFIG_HEADERS([config.h])\nAC_PROG_CC\n\
         AC_CHECK_HEADERS([string.h no-such-header.h])\nAC_CHECK_FUNCS([strlen no_such_function])\n\
         AC_DEFINE_UNQUOTED([BUILT_IN], [\"$ac_pwd\"], [Names the place.])\nAC_CONFIG_FILES([Makefile])\nAC_OUTPUT\n",
    ),
    (
        "main/Makefile.in",
        "srcdir = @srcdir@\nVPATH = @srcdir@/src\nCC = @CC@\n\
         CFLAGS = @CFLAGS@ -I. -I$(srcdir)/include -include config.h -MD\nOBJECTS = one.o two.o main.o\n\
         p: $(OBJECTS)\n\t$(CC) -o $@ $(OBJECTS)\n.c.o:\n\t$(CC) $(CFLAGS) -c -o $@ $<\n\
         clean:\n\trm -f p $(OBJECTS) *.d\n",
    ),
    CMAKE[1],
    CMAKE[2],
    CMAKE[3],
    CMAKE[4],
];

/// Makes a Git repository with two worktrees. The files of a checkout are new, so time must pass
/// before they are built.
const COMMIT: &str = "git -C main init -q; git -C main add .\n\
    git -C main -c user.name=a -c user.email=a@b commit -qm a\n\
    git -C main worktree add -q ../first; git -C main worktree add -q ../the-second-tree; sleep 0.1\n";

/// More probes than larder keeps results for one command.
const PROBES: usize = 100;
const NINJA_LEAVES: &[&str] = &[".ninja_log", ".ninja_deps"];
const CMAKE_LEAVES: &[&str] =
    &[".ninja_log", ".ninja_deps", "CMakeOutput.log", "CMakeError.log", "CMakeConfigureLog.yaml"];
const MESON_LEAVES: &[&str] = &[".ninja_log", ".ninja_deps", "meson-logs", "meson-private", "meson-info"];
const AUTOTOOLS_LEAVES: &[&str] = &["config.log"];

#[test]
fn cmake_in_two_worktrees() {
    probe_skip!(has("cmake") && has("ninja") && has("git"), "cmake, ninja or git is not installed");
    let build = |tree: &str| {
        format!("cmake -G Ninja -S {tree} -B {tree}/build >/dev/null; cmake --build {tree}/build >/dev/null")
    };
    Case {
        name: "CMake, two worktrees",
        files: CMAKE,
        first: &(COMMIT.to_owned() + &build("first")),
        second: &build("the-second-tree"),
        compared: "the-second-tree/build",
        left_out: CMAKE_LEAVES,
        least_hits: least_hits::CMAKE_WORKTREES,
    }
    .check();
}

#[test]
fn meson_in_two_worktrees() {
    probe_skip!(has("meson") && has("ninja") && has("git"), "meson, ninja or git is not installed");
    let build = |tree: &str| format!("meson setup {tree}/build {tree} >/dev/null; ninja -C {tree}/build >/dev/null");
    Case {
        name: "Meson, two worktrees",
        files: MESON,
        first: &(COMMIT.to_owned() + &build("first")),
        second: &build("the-second-tree"),
        compared: "the-second-tree/build",
        left_out: MESON_LEAVES,
        least_hits: least_hits::MESON_WORKTREES,
    }
    .check();
}

#[test]
fn autotools_in_two_worktrees() {
    probe_skip!(has("autoconf") && has("make") && has("git"), "autoconf, make or git is not installed");
    let build =
        |tree: &str| format!("(cd {tree}; autoreconf -i; mkdir out; cd out; ../configure; make) >/dev/null 2>&1");
    Case {
        name: "autotools out of tree, two worktrees",
        files: AUTOTOOLS,
        first: &(COMMIT.to_owned() + &build("first")),
        second: &build("the-second-tree"),
        compared: "the-second-tree/out",
        left_out: AUTOTOOLS_LEAVES,
        least_hits: least_hits::AUTOTOOLS_WORKTREES,
    }
    .check();
}

/// Random names of directories and programs must not cause a miss.
#[test]
fn checks_of_cmake() {
    probe_skip!(has("cmake") && has("make"), "cmake or make is not installed");
    let lists = "cmake_minimum_required(VERSION 3.13)\nproject(p C)\ninclude(CheckIncludeFile)\ninclude(CheckSymbolExists)\n\
        include(CheckFunctionExists)\ninclude(CheckCSourceRuns)\ninclude(CheckTypeSize)\ninclude(CheckCCompilerFlag)\n\
        check_include_file(stdio.h HAS_STDIO)\ncheck_include_file(not-there.h HAS_NOT)\n\
        check_symbol_exists(puts stdio.h HAS_PUTS)\ncheck_function_exists(not_there HAS_NOT_THERE)\n\
        check_c_source_runs(\"int main(void) { return 0; }\" RUNS)\ncheck_type_size(long SIZEOF_LONG)\n\
        check_c_compiler_flag(-Wall HAS_WALL)\ncheck_c_compiler_flag(-Wnot-there HAS_NOT_WARNING)\n\
        set(CMAKE_REQUIRED_INCLUDES ${CMAKE_SOURCE_DIR}/include)\ncheck_include_file(lib.h HAS_LIB)\n\
        try_run(RAN COMPILED ${CMAKE_BINARY_DIR} ${CMAKE_SOURCE_DIR}/src/try.c)\n\
        file(WRITE ${CMAKE_BINARY_DIR}/found.txt \"${HAS_NOT} ${HAS_PUTS} ${SIZEOF_LONG} ${HAS_LIB} ${RAN}\")\n\
        add_library(lib src/one.c)\ntarget_include_directories(lib PUBLIC include)\n";
    let files = [&[("main/CMakeLists.txt", lists), ("main/src/try.c", "int main(void) { return 3; }\n")], &CMAKE[1..3]];
    let build = |tree: &str| {
        format!("cp -a main {tree}; cmake -S {tree} -B {tree}/out >/dev/null; make -C {tree}/out >/dev/null")
    };
    Case {
        name: "CMake, checks",
        files: &files.concat(),
        first: &build("first"),
        second: &("mkdir the; ".to_owned() + &build("the/second-tree")),
        compared: "the/second-tree/out",
        left_out: CMAKE_LEAVES,
        least_hits: least_hits::CMAKE_CHECKS,
    }
    .check();
}

#[test]
fn checks_of_meson() {
    probe_skip!(has("meson") && has("ninja"), "meson or ninja is not installed");
    let lists = "project('p', 'c')\ncc = meson.get_compiler('c')\nforeach h : ['stdio.h', 'not-there.h', 'poll.h']\n  cc.has_header(h)\n\
        endforeach\nforeach f : ['memmem', 'strdup', 'not_there']\n  cc.has_function(f)\nendforeach\ncc.links('int main(void) { return not_there(); }')\n\
        cc.run('int main(void) { return 0; }')\ncc.sizeof('long')\ncc.compute_int('sizeof(int) * 3', low: 0, high: 100)\n\
        cc.has_argument('-Wall')\ncc.has_argument('-Wnot-there')\ncc.find_library('m')\n\
        static_library('lib', 'src/one.c', include_directories: include_directories('include'))\n";
    let build = |tree: &str| {
        format!("cp -a main {tree}; meson setup {tree}/out {tree} >/dev/null; ninja -C {tree}/out >/dev/null")
    };
    Case {
        name: "Meson, checks",
        files: &[&[("main/meson.build", lists)], &CMAKE[1..3]].concat(),
        first: &build("first"),
        second: &("mkdir the; ".to_owned() + &build("the/second-tree")),
        compared: "the/second-tree/out",
        left_out: MESON_LEAVES,
        least_hits: least_hits::MESON_CHECKS,
    }
    .check();
}

#[test]
fn cmake_in_directories_of_odd_names() {
    probe_skip!(has("cmake") && has("ninja"), "cmake or ninja is not installed");
    let build = |tree: &str| {
        format!(
            "cp -a main '{tree}'; cmake -G Ninja -S '{tree}' -B '{tree} build' >/dev/null; cmake --build '{tree} build' >/dev/null"
        )
    };
    Case {
        name: "CMake, a place with a space, and one whose path begins with the first's",
        files: CMAKE,
        first: &build("a b"),
        second: &build("a b/c"),
        compared: "a b/c build",
        left_out: CMAKE_LEAVES,
        least_hits: least_hits::CMAKE_ODD_NAMES,
    }
    .check();
}

#[test]
fn an_autotools_build_directory_that_was_moved() {
    probe_skip!(has("autoconf") && has("make"), "autoconf or make is not installed");
    Case {
        name: "autotools, build directory moved",
        files: AUTOTOOLS,
        first: "(cd main; autoreconf -i; mkdir ../out-1; cd ../out-1; ../main/configure; make) >/dev/null 2>&1",
        second: "mv out-1 moved; make -C moved clean >/dev/null; make -C moved >/dev/null",
        compared: "moved",
        left_out: AUTOTOOLS_LEAVES,
        least_hits: least_hits::AUTOTOOLS_MOVED,
    }
    .check();
}

#[test]
fn a_source_and_build_directory_that_was_moved() {
    probe_skip!(has("make"), "make is not installed");
    let makefile = "CFLAGS = -O2 -g -Iinclude -MD\nVPATH = src\nOBJECTS = one.o two.o main.o\n\
        p: $(OBJECTS)\n\t$(CC) -o $@ $(OBJECTS)\nclean:\n\trm -f p *.o *.d\n";
    let files = [&[("main/Makefile", makefile)], &CMAKE[1..5]].concat();
    Case {
        name: "make, everything moved",
        files: &files,
        first: "make -C main >/dev/null",
        second: "mkdir -p further/down; mv main further/down/moved; cd further/down/moved; make clean >/dev/null; make >/dev/null",
        compared: "further/down/moved",
        left_out: NINJA_LEAVES,
        least_hits: least_hits::MAKE_MOVED,
    }
    .check();
}

/// All probes of one `./configure` have the same command line, but the content of the source
/// differs each time.
#[test]
fn more_probes_than_a_few() {
    probe_skip!(has("autoconf") && has("make"), "autoconf or make is not installed");
    let probes = (0..PROBES).map(|at| format!("no_such_name_{at}")).collect::<Vec<_>>().join(", ");
    let script = AUTOTOOLS[0].1.replace("AC_CHECK_FUNCS", &format!("AC_CHECK_DECLS([{probes}])\nAC_CHECK_FUNCS"));
    let files = [&[("main/configure.ac", script.as_str())], &AUTOTOOLS[1..]].concat();
    let build = "mkdir out; (cd out; ../main/configure; make) >/dev/null 2>&1";
    Case {
        name: "autotools, more probes than a few, in the same place",
        files: &files,
        first: &format!("(cd main; autoreconf -i >/dev/null 2>&1); {build}; rm -r out; sleep 0.1"),
        second: build,
        compared: "out",
        left_out: AUTOTOOLS_LEAVES,
        least_hits: least_hits::MANY_PROBES,
    }
    .check();
}

/// All link checks of CMake have the same command line and the same object name, but the content of
/// the object differs each time.
#[test]
fn more_links_of_one_name_than_a_few() {
    let files = [("probe", "")];
    let build = |tree: &str| {
        format!(
            "mkdir {tree}; cd {tree}; for i in $(seq {PROBES}); do echo \"int main(void) {{ return $i; }}\" >p.c; \
             $CC -c p.c; $CC p.o -o p; mv p p-$i; done"
        )
    };
    Case {
        name: "links, more of one name than a few",
        files: &files,
        first: &build("one"),
        second: &build("two"),
        compared: "two",
        left_out: NINJA_LEAVES,
        least_hits: least_hits::MANY_LINKS,
    }
    .check();
}
