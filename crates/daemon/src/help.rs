//! The parts of `--help` that clap does not generate: examples, how to use the wrapper, variables
//! and keys of the configuration.
//!
//! Unaware of: how help is laid out.

use std::fmt::Write;

use larder_config::{OTHER_VARIABLES, SETTINGS, Setting, ValueKind};

pub(crate) const USAGE: &str = "larder COMPILER ARGUMENT...
       larder run -- COMMAND ARGUMENT...
       larder SUBCOMMAND [OPTION]...";

pub(crate) const STATS: &str = "\
With --json: the integers hit, miss, bypass, fallback, saved_us, store_bytes and limit_bytes, the objects today and
families, and the objects bypass_reasons, fallback_reasons and unrecorded_reasons, which map a reason's code to its
count. If the store cannot be used, all counts are zero, standard error has a message, and the exit code is 0.

Examples:
  larder stats                     a table
  larder stats --zero && make && larder stats
  larder stats --json --zero       print the counts, then start again from zero
  larder stats --watch             what a running build gets from the store
  larder stats --last-build        the last build that `larder record` recorded
  larder stats --last-build --markdown >> \"$GITHUB_STEP_SUMMARY\"
  larder -- stats                  not this subcommand: the tool called stats";

pub(crate) const EXPLAIN: &str = "\
The command is not run. Nothing is changed except the stat cache (content digests by inode, size and mtime). It matters
whether output goes to a terminal, because gcc prints other messages to one. Use --no-terminal for a build that ran
without a terminal.

Examples:
  larder explain -- gcc -O2 -c x.c -o x.o
  larder explain gcc -c x.c                  the same without --
  larder explain x.o                         why the command that wrote x.o was a hit or not
  larder explain --last                      the same for the last command in this directory
  larder explain --verbose -- gcc -c x.c     with details, and every fact that is checked
  larder explain --json -- g++ -c x.cc | jq .outcome
  larder explain --last-build                why commands of the last recorded build were not hits";

pub(crate) const INIT: &str = "\
Recognises cargo, CMake, make, autotools, Meson, Bazel, npm, pnpm and CI files in the working directory. Shows every
change as a diff and asks once. Nothing is replaced, only added, so --undo also works if you edited a file since.

Examples:
  larder init                      everything that is found here
  larder init --print              only look
  larder init make --yes           links with compilers' names, first in PATH
  larder init cargo --user         rustc-wrapper in your own configuration, for all projects
  larder init --undo               take it back";

pub(crate) const DOCTOR: &str = "\
Each line is ok, note (worth knowing) or problem (larder does not work, or not as it should). The exit code is 1 if
there is a problem.

Examples:
  larder doctor
  larder doctor --json | jq '.checks[] | select(.state != \"ok\")'";

pub(crate) const EVICT: &str = "\
A store above its limit is reduced to 90 % of the limit; with --max-size it is reduced to exactly that size.
Sizes: 10G and 10GiB are 2^30 bytes each, 10GB is 10^9.

Examples:
  larder evict
  larder evict --max-size 2G       even if the configured limit is larger, or there is none
  larder evict --older-than 14d    entries that were not used for 14 days
  larder evict --images --max-size 20G --older-than 14d
  larder evict --max-size 0        everything except what a build is writing right now";

pub(crate) const FSCK: &str = "\
Reads the whole store, which takes a while. The exit code is 1 if something is damaged, even if it was repaired. Damaged
entries are never used, with or without fsck, because a hit verifies what it reads.

Examples:
  larder fsck
  larder fsck --repair";

pub(crate) const CLEAR: &str = "\
Removes records, blobs and the stat cache. The counters stay; `larder stats --zero` resets them. Running builds are not
disturbed.

Example:
  larder clear";

pub(crate) const DAEMON: &str = "\
A build in a sandbox that can only read the store (Bazel's sandbox, a container) gets hits and sends its new records to
larderd, which must run outside of the sandbox. Builds that can write to the store need no larderd. `larder doctor` says
whether larderd can be reached.

Examples:
  larder daemon start              exits after an hour without work
  larder daemon start --idle 60
  larder daemon status
  larder daemon stop
  larder daemon install            for systemd, which then starts it on demand
  larder daemon install --print";

pub(crate) const REMOTE: &str = "\
Remotes are set with LARDER_REMOTE or `remote` in larder.toml, as URLs, the nearest first. larderd downloads and uploads
in the background and is started when it is needed. A build never waits for uploads, and for a download only as long as
that is expected to be faster than running the tool.

Examples:
  LARDER_REMOTE=redis://cache.example.org:6379 larder remote check
  larder remote flush              at the end of a CI job
  larder remote flush --timeout 60
  larder remote push               uploads everything in the store
  larder remote pull               downloads what builds of this commit used on other machines";

pub(crate) const RECORD: &str = "\
A record holds the command and its context (commits, machine, load, settings, compilers), every process with its times,
memory and page faults, and what larder did for each command and why. A single run is traced, which slows it a little.
Several runs are timed without tracing, and an additional run is traced. The exit code is that of the command. See
docs/record.md.

Examples:
  larder record -- make -j8
  larder record -n 8 --prepare 'make clean' --name plain -- make -j8
  larder record -n 20 --ab a.toml b.toml --prepare 'make clean' -- make -j8
  larder record --attach out/trace.json -- ./build.sh
  larder record list
  larder record show last
  larder record export last --as perfetto -o build.pftrace";

pub(crate) const COMPARE: &str = "\
A record is given by its name, its path, or as `last`. The two sides of one session (`larder record --ab`) are compared
in pairs. If machine, tools or project differ, there is no verdict, unless --expect names the difference. Confidence
intervals are 99 %.

Examples:
  larder compare plain cached
  larder compare tuned-a tuned-b --margin 0.5
  larder compare before after --expect project --markdown";

pub(crate) const REPORT: &str = "\
Writes one file that works without a network: verdicts, a timeline of every process, tables, a flame graph, the context,
and with --against a comparison.

Examples:
  larder report last
  larder report cached -o page.html --against plain";

pub(crate) const IMAGE: &str = "\
A key is text that can contain {{os}}, {{arch}}, {{env NAME}} and {{hash FILE...}}; a fallback is a prefix of keys.
Images are saved in the store and, if remotes are configured, on them. Exit codes of `restore`: 0 exact, 10 fallback,
11 miss. If the cache has a problem, a message is printed and the image counts as a miss or is not saved; with --strict,
the exit code is then 1.

Examples:
  larder image save --key 'deps-{{os}}-{{arch}}-{{hash package-lock.json}}' node_modules
  larder image restore --key 'deps-{{os}}-{{arch}}-{{hash package-lock.json}}' --fallback 'deps-{{os}}-{{arch}}-' node_modules
  larder image restore --key 'deps-{{hash package-lock.json}}' --replace --if-missing 'npm ci' node_modules
  larder image mount --key KEY node_modules       and larder image unmount node_modules
  larder image run --key KEY node_modules -- npm test
  larder image npm                 keeps node_modules by package-lock.json; also pnpm, yarn, pip, uv, poetry, cargo, go, ...
  larder image npm -- npm test     mounted for one command
  larder image list                with --mounted: the mounts and their images
  larder image show KEY            exit code 11 if there is no such image
  larder image drop KEY
  larder image attach deps.squashfs node_modules -- npm test
  larder image import --key KEY deps.tar.zst
  larder image export --key KEY deps.squashfs";

pub(crate) const SERVE: &str = "\
Stays in the foreground. Errors are logged to daemon.log in the store's directory.

Example:
  larderd serve --idle 60";

pub(crate) const RUN: &str = "\
The command is cached as a whole, including all its child processes, by everything that it was observed to rely on. Its
result is reused in another checkout after two checkouts gave the same result. Its child processes may use larder too.

Examples:
  larder run -- ./configure --prefix=/usr/local </dev/null
  larder run -- make -j8
  larder run --no-input build.stamp --no-env JOBS -- sh build.sh";

pub(crate) const COMPLETIONS: &str = "\
Examples:
  larder completions bash > ~/.local/share/bash-completion/completions/larder
  larder completions zsh  > ~/.zfunc/_larder
  larder completions fish > ~/.config/fish/completions/larder.fish";

pub(crate) const MAN: &str = "\
Examples:
  larder man | man -l -
  larder man explain | man -l -
  larder man image save | man -l -
  larder man --dir ~/.local/share/man/man1";

pub(crate) const CONFIG: &str = "\
Sources, where a later one overrides an earlier one: the default, /etc/larder/larder.toml, larder.toml beside the larder
program, ~/.config/larder/larder.toml, larder.toml in the working directory (a project's own file, which cannot set
paths or sizes), the environment. Builds ignore invalid settings with one warning; this command lists them and exits
with code 1.

A larder.toml:
  max_size = \"20 GiB\"
  log = \"~/larder.log\"

Examples:
  larder config
  LARDER_MAX_SIZE=5G larder config
  larder config --json | jq .settings";

/// Returns the text below the short help.
pub(crate) fn top_short() -> String {
    "Try:\n  larder gcc -c x.c                larder stats                larder explain -- gcc -c x.c\n\
     `larder help` says how to put larder in front of a build, and which variables and keys there are."
        .to_owned()
}

/// Returns the text below the long help: how to use the wrapper, and every setting.
pub(crate) fn top_long() -> String {
    let mut text = WRAPPER.to_owned();
    let _ = write!(text, "\n\nEnvironment variables and the keys of larder.toml with the same meaning:\n");
    for setting in SETTINGS {
        let name = format!("{}, {}", setting.variable, setting.key);
        let _ = writeln!(
            text,
            "  {name:<30}  {}\n{:34}Default: {}.{}",
            setting.help,
            "",
            setting.default,
            choices(setting)
        );
    }
    let _ = writeln!(text, "\nOther environment variables:");
    for (name, what) in OTHER_VARIABLES {
        let _ = writeln!(text, "  {name:<30}  {what}");
    }
    let _ = write!(text, "\n{ALIASES}");
    text
}

fn choices(setting: &Setting) -> String {
    match setting.kind() {
        ValueKind::Choice(words) => format!(" One of {}.", words.join(", ")),
        ValueKind::Number
        | ValueKind::Path
        | ValueKind::Paths
        | ValueKind::Size
        | ValueKind::Switch
        | ValueKind::Text
        | ValueKind::Urls
        | ValueKind::Keys => String::new(),
    }
}

const WRAPPER: &str = "\
In front of a compiler:
  larder gcc -c x.c                        one command
  make CC='larder gcc' CXX='larder g++'    every command of a build
  CC='larder gcc' ./configure
  CC='larder gcc' CXX='larder g++' cmake ...     caches CMake's own checks as well. Without them:
  cmake -DCMAKE_C_COMPILER_LAUNCHER=larder -DCMAKE_CXX_COMPILER_LAUNCHER=larder ...
  RUSTC_WRAPPER=larder cargo build         every crate
  larder init                              writes such lines for the build tools of a project

As a symbolic link with the compiler's name. Put its directory first in PATH; larder finds the real compiler after it:
  ln -s \"$(command -v larder)\" ~/bin/gcc    also g++ cc c++ clang clang++, gcc-12, x86_64-linux-gnu-gcc, ...

Any command, and a tool that has the name of a subcommand:
  larder run -- COMMAND
  larder -- stats --json

`larder doctor` checks all of this.";

const ALIASES: &str = "\
Options with the meaning that they have in ccache and sccache:
  -s, --show-stats                stats
  -z, --zero-stats                stats --zero
  -C, --clear                     clear
  -c, --cleanup                   evict
      --evict-older-than AGE      evict --older-than AGE
  -p, --show-config               config";
