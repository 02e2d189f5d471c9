//! The cells of the matrix: a distribution, a kernel, and the checks that run there.

/// The root directory of a distribution, as debootstrap makes it.
pub(super) struct Root {
    /// Debian's name of the release.
    pub(super) suite: &'static str,
    /// Other versions of compilers, besides `ESSENTIAL`, with spaces between them. A version that the release does not have
    /// is left out.
    pub(super) compilers: &'static str,
}

/// The packages that every root must have, as an argument of debootstrap.
pub(super) const ESSENTIAL: &str = "gcc,g++,make,libc6-dev,python3,ca-certificates,procps";

/// The packages that checks use if the release has them: other compilers and linkers, tools of the
/// torture suite, tools to mount images, and Java to run a program.
pub(super) const WANTED: &str = "\
     clang lld mold musl-tools git strace bison flex protobuf-compiler squashfs-tools squashfuse fuse3 \
     fuse-overlayfs erofs-utils util-linux kmod default-jre-headless";

/// Where the processes of a cell run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Where {
    /// In the root, on this machine's kernel.
    Here,
    /// In QEMU with this root, on the newest of Debian's kernels of this series. The empty text
    /// means all series.
    Kernel(&'static str),
}

/// A column of the table.
pub(super) struct Cell {
    pub(super) name: &'static str,
    pub(super) root: &'static Root,
    pub(super) place: Where,
    /// Parts of `inside.sh`, with spaces between them.
    pub(super) parts: &'static str,
    /// The runs of the torture suite, each as `NAME|WORDS`.
    pub(super) torture: &'static [&'static str],
}

const JESSIE: Root = Root { suite: "jessie", compilers: "" };
const STRETCH: Root = Root { suite: "stretch", compilers: "" };
const BUSTER: Root = Root { suite: "buster", compilers: "" };
const BULLSEYE: Root = Root { suite: "bullseye", compilers: "gcc-9 g++-9 clang-13" };
const BOOKWORM: Root = Root { suite: "bookworm", compilers: "gcc-11 g++-11 clang-16" };
const TRIXIE: Root = Root { suite: "trixie", compilers: "gcc-13 g++-13 clang-17" };
const SID: Root = Root { suite: "sid", compilers: "gcc-11 g++-11 gcc-15 g++-15 clang-23" };

/// All parts, for a machine that runs programs at full speed.
const ALL: &str = "\
     versions doctor u:doctor observers u:two_observers compilers programs:auto programs:kernel \
     u:programs:auto refused sandbox u:sandbox record u:record run_make images u:images torture";

/// The parts that depend on the kernel, for an emulated machine, which is ten to twenty times
/// slower.
const OF_KERNELS: &str = "\
     versions doctor u:doctor observers_gcc u:two_observers programs:auto u:programs:auto sandbox u:sandbox \
     record u:record run_make images u:images torture settings";

/// Takes about 40 minutes on two idle processors.
const TORTURE: &[&str] = &[
    " auto|",
    " kernel|--observer kernel",
    " preload, each case with one compiler|--observer preload --quick",
    " depfile, each case with one compiler|--observer depfile --quick",
];

/// Some cases of each kind. One case runs per processor, because each command may take a minute and
/// no more.
const TORTURE_SHARE: &[&str] = &[
    " auto, a share|--quick --jobs 2 --only ^A/shadow-I/ --only ^A/has-include/ --only ^A/import-edited --only ^A/tool-inner \
     --only ^B/build-parent --only ^C/dep-MD/ --only ^C/umask-077 --only ^C/signal-TERM --only ^F/run-list-cp-r \
     --only ^F/ar-new --only ^F/python-module$ --only ^G/compile-script-asks-date",
    " kernel, a share|--observer kernel --quick --jobs 2 --only ^A/shadow-I/ --only ^C/dep-MD/ --only ^C/signal-TERM \
     --only ^F/ar-new$",
];

/// The part of the project that is built on an emulated machine: 9 of its 13 commands. One is for
/// C++ and takes longest.
pub(super) const TARGETS_EMULATED: &str = "libtext.so libtext.a whole.o main.o";

/// The cells in the order of the table's columns.
pub(super) const CELLS: &[Cell] = &[
    here("jessie", &JESSIE),
    here("stretch", &STRETCH),
    here("buster", &BUSTER),
    here("bullseye", &BULLSEYE),
    here("bookworm", &BOOKWORM),
    here("trixie", &TRIXIE),
    here("sid", &SID),
    kernel("bullseye-5.10", &BULLSEYE, "5.10"),
    kernel("linux-5.10", &BOOKWORM, "5.10"),
    kernel("linux-6.1", &BOOKWORM, "6.1"),
    kernel("linux-6.12", &BOOKWORM, "6.12"),
    kernel("linux-6.17", &BOOKWORM, "6.17"),
    kernel("linux-newest", &BOOKWORM, ""),
];

/// The cell of `--short`: the oldest glibc, with as few packages as possible.
pub(super) const SHORT: Cell = Cell {
    name: "short",
    root: &BULLSEYE,
    place: Where::Here,
    parts: "versions doctor short_project torture",
    torture: &[" auto, a few cases|--quick --only ^A/shadow-I --only ^C/dep-MD/ --only ^F/ar-new"],
};

/// What no cell tries, for the end of the page.
pub(super) const NOT_TRIED: &[&str] = &[
    "Linux 5.4 itself, and other kernels between those of the columns: Debian's mirrors do not have them. What 5.4 lacks is tried by \
     refusing calls (rows `refused`), except that it does not know `SECCOMP_USER_NOTIF_FLAG_CONTINUE`.",
    "Kernels and packages of Ubuntu, Fedora, RHEL, Alpine and Arch.",
    "A root with glibc 2.17 or 2.28 (CentOS 7, RHEL 8) unless the mirror still has Debian's `jessie`, `stretch` or `buster`, whose glibc \
     is 2.19, 2.24 and 2.28. No package of PyPI, npm or Maven was found that holds such a libc with its loader and a compiler for it.",
    "A root in which musl is the system's libc. Programs linked with musl, dynamic and static, are in the rows `programs`, compiles by \
     `musl-gcc` in the rows `musl-gcc`.",
    "SELinux and AppArmor in force. gVisor, whose kernel is a program of its own.",
    "Compiles of Go, Rust and Java in a cell: no root has their compilers. Programs in these languages are in the rows `programs`.",
    "aarch64: `cargo xtask test --arch aarch64` is the place for it.",
    "Times. A machine in QEMU is emulated without KVM; the milliseconds in the rows of images say which way is slower, and no more.",
];

const fn here(name: &'static str, root: &'static Root) -> Cell {
    Cell { name, root, place: Where::Here, parts: ALL, torture: TORTURE }
}

const fn kernel(name: &'static str, root: &'static Root, series: &'static str) -> Cell {
    Cell { name, root, place: Where::Kernel(series), parts: OF_KERNELS, torture: TORTURE_SHARE }
}
