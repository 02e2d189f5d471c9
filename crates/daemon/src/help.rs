//! What help says beyond words and options: examples, how the wrapper is used, variables and keys.
//!
//! Unaware of: how help is laid out.

use std::fmt::Write;

use larder_config::{Kind, OTHER_VARIABLES, SETTINGS, Setting};

pub(crate) const USAGE: &str = "larder COMPILER ARGUMENT...
       larder run -- COMMAND ARGUMENT...
       larder WORD [OPTION]...";

pub(crate) const STATS: &str = "\
With --json: integers hit, miss, bypass, fallback, store_bytes and limit_bytes, and the objects bypass_reasons,
fallback_reasons and unrecorded_reasons, each from a reason's code to its count. A store that cannot be used gives
zeros, a message on standard error, and exit code 0.

Examples:
  larder stats                     a table
  larder stats --zero && make && larder stats
  larder stats --json --zero       print the counts, then start again from zero
  larder stats --last-build        the last build that `larder record` recorded
  larder stats --last-build --markdown >> \"$GITHUB_STEP_SUMMARY\"
  larder -- stats                  not this word: the tool called stats";

pub(crate) const EXPLAIN: &str = "\
The command is not run, and nothing is changed but stamps (what is known of files by their times). A terminal counts:
gcc writes other messages to one. Whoever explains a build that ran without one says --no-terminal.

Examples:
  larder explain -- gcc -O2 -c x.c -o x.o
  larder explain gcc -c x.c                  the same without --
  larder explain --verbose -- gcc -c x.c     with every fact that is checked
  larder explain --json -- g++ -c x.cc | jq .outcome
  larder explain --last-build                why commands of the last recorded build were no hits";

pub(crate) const DOCTOR: &str = "\
Each line is ok, note (worth knowing) or problem (larder does not work, or not as it should). The exit code is 1 when
there is a problem.

Examples:
  larder doctor
  larder doctor --json | jq '.checks[] | select(.state != \"ok\")'";

pub(crate) const EVICT: &str = "\
A store that is over its limit is brought to 90 % of it; with --max-size it is brought to exactly that size.
Sizes: 10G and 10GiB are 2^30 bytes each, 10GB is 10^9.

Examples:
  larder evict
  larder evict --max-size 2G       also where the limit is larger, or there is none
  larder evict --older-than 14d    what was not used for so long
  larder evict --images --max-size 20G --older-than 14d
  larder evict --max-size 0        everything that no build is writing at this moment";

pub(crate) const FSCK: &str = "\
Reads everything, and so takes a while. The exit code is 1 when something is wrong, also when it was repaired. What is
damaged is never used in any case: a hit checks what it reads.

Examples:
  larder fsck
  larder fsck --repair";

pub(crate) const CLEAR: &str = "\
Records, blobs and stamps go; the counters stay (`larder stats --zero`). Builds that run meanwhile go on.

Example:
  larder clear";

pub(crate) const DAEMON: &str = "\
A sandbox that may only read the store (Bazel's, a container's) gets hits, and hands what it recorded to larderd, which
must run outside of it. Builds that can write to the store need no larderd. `larder doctor` says whether it is reached.

Examples:
  larder daemon start              until nobody came for an hour
  larder daemon start --idle 60
  larder daemon status
  larder daemon stop
  larder daemon install            for systemd, which then starts it on demand
  larder daemon install --print";

pub(crate) const REMOTE: &str = "\
Remotes are set by LARDER_REMOTE or `remote` in larder.toml, as URLs, the nearest first. larderd, which is started when
it is needed, fetches and sends in the background; a build waits for neither longer than it pays.

Examples:
  LARDER_REMOTE=redis://cache.example.org:6379 larder remote check
  larder remote flush              at the end of a CI job
  larder remote flush --timeout 60
  larder remote push               everything that is in the store
  larder remote pull               what this commit's builds used elsewhere";

pub(crate) const RECORD: &str = "\
A record holds what was run and around what: commits, machine, load, settings, compilers; every process with its times,
memory and faults; what larder made of each command and why. A single run is followed, which slows it a little; of
several the times are taken without that, and one more is followed. The exit code is that of the command. More is in
docs/record.md.

Examples:
  larder record -- make -j8
  larder record -n 8 --prepare 'make clean' --name plain -- make -j8
  larder record -n 20 --ab a.toml b.toml --prepare 'make clean' -- make -j8
  larder record list
  larder record show last
  larder record export last --as perfetto -o build.pftrace";

pub(crate) const COMPARE: &str = "\
Records are named by their names, by paths, or as `last`. Of two sides of one session (`larder record --ab`) pairs are
compared. Where machine, tools or project differ there is no verdict, unless that is expected. Intervals are of 99 %.

Examples:
  larder compare plain cached
  larder compare tuned-a tuned-b --margin 0.5
  larder compare before after --expect project --markdown";

pub(crate) const REPORT: &str = "\
One file that works without a network: verdicts, a timeline of every process, tables, a flame graph, the context, and
with --against a comparison.

Examples:
  larder report last
  larder report cached -o page.html --against plain";

pub(crate) const IMAGE: &str = "\
A key is text with {{os}}, {{arch}}, {{env NAME}} and {{hash FILE...}} in it; a fallback is the beginning of keys. What was
saved is in the store, and on the remotes where there are some. Exit codes of `restore`: 0 exact, 10 fallback, 11 miss. Trouble
with the cache is said, and is a miss, or nothing saved: with --strict it is exit code 1.

Examples:
  larder image save --key 'deps-{{os}}-{{arch}}-{{hash package-lock.json}}' node_modules
  larder image restore --key 'deps-{{os}}-{{arch}}-{{hash package-lock.json}}' --fallback 'deps-{{os}}-{{arch}}-' node_modules
  larder image restore --key 'deps-{{hash package-lock.json}}' --replace --if-missing 'npm ci' node_modules
  larder image mount --key KEY node_modules       and larder image unmount node_modules
  larder image run --key KEY node_modules -- npm test
  larder image list                --mounted: what is mounted, and where
  larder image show KEY            also whether it is there at all: exit code 11 when not
  larder image drop KEY
  larder image attach deps.squashfs node_modules -- npm test
  larder image import --key KEY deps.tar.zst
  larder image export --key KEY deps.squashfs";

pub(crate) const SERVE: &str = "\
Stays in the foreground. What goes wrong is in daemon.log in the store's directory.

Example:
  larderd serve --idle 60";

pub(crate) const RUN: &str = "\
The command is answered as a whole, with all that it starts, from what it was seen to rely on. It serves in another
place once it gave the same in two. What it starts may be behind larder too.

Examples:
  larder run -- ./configure --prefix=/usr/local </dev/null
  larder run -- make -j8
  larder run --no-input build.stamp --env JOBS -- sh build.sh";

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
Later wins: the default, /etc/larder/larder.toml, larder.toml beside the larder program, ~/.config/larder/larder.toml,
larder.toml in the working directory (a project's own file, which cannot set paths or sizes), the environment. What is
wrong is ignored, with one warning; here it is listed, and the exit code is 1.

A larder.toml:
  max_size = \"20 GiB\"
  log = \"~/larder.log\"

Examples:
  larder config
  LARDER_MAX_SIZE=5G larder config
  larder config --json | jq .settings";

/// Below the short help.
pub(crate) fn top_short() -> String {
    "Try:\n  larder gcc -c x.c                larder stats                larder explain -- gcc -c x.c\n\
     `larder help` says how to put larder in front of a build, and which variables and keys there are."
        .to_owned()
}

/// Below the long help: how the wrapper is used, and every setting.
pub(crate) fn top_long() -> String {
    let mut text = WRAPPER.to_owned();
    let _ = write!(text, "\n\nEnvironment variables, and the same as keys of larder.toml:\n");
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
        Kind::Choice(words) => format!(" One of {}.", words.join(", ")),
        Kind::Number | Kind::Path | Kind::Paths | Kind::Size | Kind::Switch | Kind::Text | Kind::Urls | Kind::Keys => {
            String::new()
        }
    }
}

const WRAPPER: &str = "\
In front of a compiler:
  larder gcc -c x.c                        one command
  make CC='larder gcc' CXX='larder g++'    every command of a build
  CC='larder gcc' CXX='larder g++' cmake ...     also sees CMake's own checks; as launchers, it does not:
  cmake -DCMAKE_C_COMPILER_LAUNCHER=larder -DCMAKE_CXX_COMPILER_LAUNCHER=larder ...
  CC='larder gcc' ./configure

As a masquerading link, which finds the real compiler further along PATH; put its directory first:
  ln -s \"$(command -v larder)\" ~/bin/gcc    also g++ cc c++ clang clang++, gcc-12, x86_64-linux-gnu-gcc, ...

Any command, and a tool whose name is one of the words:
  larder run -- COMMAND
  larder -- stats --json

`larder doctor` checks all of this.";

const ALIASES: &str = "\
Options known from ccache and sccache:
  -s, --show-stats                stats
  -z, --zero-stats                stats --zero
  -C, --clear                     clear
  -c, --cleanup                   evict
      --evict-older-than AGE      evict --older-than AGE
  -p, --show-config               config";
