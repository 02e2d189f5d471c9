//! `cargo xtask test --arch aarch64`: runs a share of the tests on an emulated aarch64 machine.
//!
//! Tests of libraries that need only files of the kernel run in user emulation
//! (`qemu-aarch64-static`). It has no seccomp notification, no ptrace and no real `/proc/cpuinfo`,
//! so all others run in a virtual machine with Debian's kernel. Under emulation a compile takes
//! seconds. The share is chosen so that it ends within a quarter of an hour.

use crate::arch::Arch;
use crate::debian::{self, Archive, Kernel};
use crate::place::Place;
use crate::qemu::{self, Boot};
use crate::table::Table;
use crate::{binaries, files, run, setup};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Debian's release in the machine.
const SUITE: &str = "bookworm";
/// Increase it when the disk must be made again.
const DISK_VERSION: &str = "1";
const DISK_BYTES: u64 = 4 << 30;
/// The packages in the machine: compilers, and tools of the tests. clang is left out, because a
/// compile takes minutes under emulation.
const PACKAGES: &str = "gcc,g++,make,libc6-dev,musl-tools,strace,python3-minimal,git,procps,util-linux,zlib1g-dev";
/// The series of Debian's kernel.
const KERNEL: &str = "6.1";
const PROCESSORS: u32 = 2;
const MEMORY_MIB: u32 = 2048;
/// The time limit for the machine.
const LIMIT: Duration = Duration::from_secs(60 * 60);

/// A test program.
struct Row {
    package: &'static str,
    /// The name of the test, or of the library for its unit tests.
    test: &'static str,
    /// Tests that do not run, as parts of their names.
    leave_out: &'static [&'static str],
}

const fn row(package: &'static str, test: &'static str) -> Row {
    Row { package, test, leave_out: &[] }
}

/// The tests that run in user emulation, as arguments of cargo.
const IN_USER_EMULATION: &str = "-p larder-model -p larder-compiler -p larder-config -p larder-ipc -p larder-relocate --lib \
     --test golden --test golden_image";

const IN_MACHINE: &[Row] = &[
    row("larder-sys", "larder_sys"),
    // Simulations of queues take minutes under emulation, and do not depend on the machine.
    Row { leave_out: &["tokens::lines"], ..row("larder-spawn", "larder_spawn") },
    row("larder-observe", "larder_observe"),
    row("larder-observe", "known"),
    // What is left out compiles dozens of times, and does not depend on the machine.
    Row {
        leave_out: &["variables", "values_of_the_action", "a_scripts_whole_environment"],
        ..row("larder-testkit", "keying")
    },
    row("larder-testkit", "observing"),
    Row {
        leave_out: &["compiles_hit", "failures_and_warnings", "every_stage", "each_change"],
        ..row("larder-testkit", "hits")
    },
    row("larder-testkit", "masquerade"),
    row("larder-observe", "kernel"),
    row("larder-observe", "depfile"),
    row("larder-store", "larder_store"),
];

/// The torture cases for each observer, as a pattern: one of each kind that may depend on the machine.
const TORTURE: &[(&str, &str)] = &[
    ("preload", "A/shadow-CPATH/gcc|C/dep-MD-MG/gcc|F/link-map/gcc|G/stat"),
    ("kernel", "A/shadow-CPATH/gcc|C/dep-MD-MG/gcc|F/link-map/gcc|G/stat"),
    (
        "auto",
        "A/shadow-I/gcc|A/edit-in-a-tick/gcc|B/absolute-g3/gcc|B/relative-split-dwarf/gcc|C/dep-MD/gcc\
         |C/with-march-native/gcc|C/existing-larger-link/gcc|D/store-flip-first/gcc|D/killed-at-any-time/gcc|E/run/gcc\
         |E/math/gcc|F/link-objects/gcc|F/ar-new-D|G/date|G/personality|G/compile-march-native-Q/gcc",
    ),
];

/// The result of one test program.
struct Outcome {
    name: String,
    ran_in: &'static str,
    counts: Counts,
    seconds: u64,
    /// The file with its output.
    log: PathBuf,
    is_failure: bool,
}

/// The counts of a test program, with the tests that were skipped because something is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

/// Runs all test programs, or those whose names contain a text of `only`. Returns `true` if every
/// test passed.
pub(crate) fn test(place: &Place, only: &[String]) -> Result<bool> {
    setup::for_machines(place)?;
    binaries::build_for(place, Arch::Aarch64)?;
    let guest = Guest::find(place)?;
    let logs = place.own("aarch64")?.join("logs");
    files::fresh(&logs)?;
    let mut outcomes = in_machine(place, only, &guest, &logs)?;
    if is_wanted("user emulation", only) {
        outcomes.push(in_user_emulation(place, &logs)?);
    }
    Ok(print(&outcomes))
}

/// Prints a row for each program, and the log paths of those that failed. Returns `true` if none
/// failed.
fn print(outcomes: &[Outcome]) -> bool {
    let mut table = Table::new(2);
    for Outcome { name, ran_in, counts, seconds, .. } in outcomes {
        table.add([
            ("tests", name.clone()),
            ("ran in", (*ran_in).to_owned()),
            ("passed", counts.passed.to_string()),
            ("failed", counts.failed.to_string()),
            ("skipped", counts.skipped.to_string()),
            ("s", seconds.to_string()),
        ]);
    }
    println!("\n{table}\n");
    for outcome in outcomes.iter().filter(|outcome| outcome.is_failure) {
        println!("FAILED {}: {}", outcome.name, outcome.log.display());
    }
    let sum = |count: fn(&Counts) -> u64| outcomes.iter().map(|outcome| count(&outcome.counts)).sum::<u64>();
    println!("{} passed, {} failed, {} skipped", sum(|c| c.passed), sum(|c| c.failed), sum(|c| c.skipped));
    outcomes.iter().all(|outcome| !outcome.is_failure)
}

/// A test program that cargo built.
#[derive(Debug)]
struct Built {
    package: String,
    /// The directory of the package, which is the working directory of the tests.
    dir: PathBuf,
    test: String,
    program: PathBuf,
}

/// Builds the tests of packages for aarch64.
fn built_tests(place: &Place, packages: &BTreeSet<&str>) -> Result<Vec<Built>> {
    let mut command = place.cargo();
    command.args(["test", "--locked", "--no-run", "--message-format=json-render-diagnostics"]);
    command.args(["--target", Arch::Aarch64.static_target(), "--lib", "--tests"]);
    for package in packages {
        command.args(["--package", package]);
    }
    let output = command.stderr(std::process::Stdio::inherit()).output().context("cargo cannot be started")?;
    ensure!(output.status.success(), "the tests do not build for aarch64");
    let built: Vec<Built> = String::from_utf8_lossy(&output.stdout).lines().filter_map(of_message).collect();
    ensure!(!built.is_empty(), "cargo named no program of tests");
    Ok(built)
}

/// Returns the test program in a message of cargo, if there is one.
fn of_message(line: &str) -> Option<Built> {
    let message: Value = serde_json::from_str(line).ok()?;
    let program = message["executable"].as_str()?;
    let test = message["target"]["name"].as_str()?;
    let dir = Path::new(message["manifest_path"].as_str()?).parent()?;
    if message["profile"]["test"] != true {
        return None;
    }
    // "path+file:///…/crates/base/model#larder-model@0.1.0"
    let package = message["package_id"].as_str()?.rsplit(['#', '/']).next()?.split('@').next()?;
    Some(Built { package: package.into(), dir: dir.into(), test: test.into(), program: program.into() })
}

/// Builds the test programs of these rows, and returns each with its row.
fn built_rows(place: &Place, rows: &'static [Row], only: &[String]) -> Result<Vec<(&'static Row, Built)>> {
    let rows: Vec<_> = rows.iter().filter(|row| is_wanted(&format!("{} {}", row.package, row.test), only)).collect();
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let packages: BTreeSet<&str> = rows.iter().map(|row| row.package).collect();
    let mut built = built_tests(place, &packages)?;
    let mut found = |row: &'static Row| {
        let at = built.iter().position(|built| built.package == row.package && built.test == row.test);
        let at = at.with_context(|| format!("{} has no tests {}", row.package, row.test))?;
        Ok((row, built.swap_remove(at)))
    };
    rows.into_iter().map(&mut found).collect()
}

fn is_wanted(name: &str, only: &[String]) -> bool {
    only.is_empty() || only.iter().any(|part| name.contains(part))
}

/// Runs tests by `qemu-aarch64-static`.
fn in_user_emulation(place: &Place, logs: &Path) -> Result<Outcome> {
    println!("── user emulation");
    let (log, start) = (logs.join("user-emulation"), Instant::now());
    let mut command = place.cargo();
    command.args(["test", "--locked", "--no-fail-fast", "--target", Arch::Aarch64.static_target()]);
    command.args(IN_USER_EMULATION.split_whitespace()).args(["--", "--nocapture"]);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUNNER", "qemu-aarch64-static");
    run::to_log(&mut command, &log)?;
    let (status, _) = run::measured(&mut command)?;
    let text = files::bytes(&log)?;
    Ok(Outcome {
        name: "libraries without system calls".to_owned(),
        ran_in: "user emulation",
        counts: counts(&String::from_utf8_lossy(&text)),
        seconds: start.elapsed().as_secs(),
        log,
        is_failure: !status.success(),
    })
}

/// Sums up the `test result:` lines, and counts the tests that were skipped.
fn counts(text: &str) -> Counts {
    let mut counts = Counts::default();
    for line in text.lines() {
        // The line of a skipped test may follow "test name ... ", which the harness printed before
        // it.
        counts.skipped += u64::from(line.contains("skipped: "));
        let Some(result) = line.strip_prefix("test result: ") else { continue };
        let number = |word: &str| {
            let before = result.split("; ").find_map(|part| part.trim_end_matches(';').strip_suffix(word));
            before.and_then(|text| text.trim().rsplit(' ').next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        counts.passed += number(" passed");
        counts.failed += number(" failed");
    }
    counts
}

fn in_machine(place: &Place, only: &[String], guest: &Guest, logs: &Path) -> Result<Vec<Outcome>> {
    let built = built_rows(place, IN_MACHINE, only)?;
    let host = place.own("aarch64")?.join("host");
    files::fresh(&host)?;
    let share = Share { repo: &place.repo, host: &host };
    for program in ["larder", "larderd"] {
        share.copy(&place.target.join(Arch::Aarch64.directory()).join(program), &format!("bin/{program}"))?;
    }
    let words = ["build", "--locked", "--target", Arch::Aarch64.static_target(), "--package", "larder-torture"];
    run::shown_to_user(place.cargo().args(words)).context("the torture suite does not build for aarch64")?;
    let suite = place.target.join(Arch::Aarch64.static_target()).join("debug/larder-torture");
    share.copy(&suite, "bin/larder-torture")?;
    let mut script = share.begin()?;
    let mut names = Vec::new();
    for (observer, cases) in TORTURE {
        let name = format!("torture-{observer}");
        if !is_wanted(&name, only) {
            continue;
        }
        // Without the option larder chooses an observer.
        let option = if *observer == "auto" { String::new() } else { format!("--observer {observer}") };
        let suite = "larder-torture --bin /opt/larder/larder --verbose";
        script += &format!("one {name} /tmp {suite} {option} --only '^({cases})$'\n");
        names.push((name, format!("torture, observer {observer}")));
    }
    for (Row { package, test, leave_out }, built) in built {
        let name = format!("{package}-{test}");
        share.copy(&built.program, &format!("tests/{name}"))?;
        let skip: String = leave_out.iter().map(|part| format!(" --skip {part}")).collect();
        let dir = built.dir.display();
        script += &format!("one {name} {dir} /host/tests/{name} --nocapture --test-threads={PROCESSORS}{skip}\n");
        names.push((name, format!("{package} {test}")));
    }
    if names.is_empty() {
        return Ok(Vec::new());
    }
    println!("── a machine with Debian's kernel {KERNEL}");
    let own = place.own("aarch64")?;
    let boot = Boot {
        machine: &qemu::AARCH64,
        kernel: &guest.kernel,
        busybox: &guest.busybox,
        root: &guest.disk,
        shared: &host,
        script: &script,
        memory_mib: MEMORY_MIB,
        processors: PROCESSORS,
        limit: LIMIT,
        work: &own.join("machine"),
        log: &logs.join("machine"),
    };
    match qemu::boot(&boot, |line| println!("{line}"))?.code {
        Ok(0) => {}
        Ok(code) => bail!("the script in the machine ended with {code}"),
        Err(why) => bail!("the machine {why}"),
    }
    names.into_iter().map(|(name, shown)| outcome_of(&host, logs, &name, shown)).collect()
}

/// Reads the output, exit code and duration of one program that the machine left.
fn outcome_of(host: &Path, logs: &Path, name: &str, shown: String) -> Result<Outcome> {
    let read = |end: &str| {
        let path = host.join("results").join(format!("{name}.{end}"));
        let bytes = files::bytes(&path).context("the machine left no result")?;
        anyhow::Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let (text, end) = (read("log")?, read("end")?);
    let mut numbers = end.split_whitespace().map(|number| number.parse::<u64>().unwrap_or(u64::MAX));
    let (Some(code), Some(seconds)) = (numbers.next(), numbers.next()) else {
        bail!("{name}: no exit code and duration, but {end:?}")
    };
    let log = logs.join(name);
    files::write(&log, &text)?;
    let counts = if name.starts_with("torture-") { torture_counts(&text) } else { counts(&text) };
    Ok(Outcome { name: shown, ran_in: "machine", counts, seconds, log, is_failure: code != 0 })
}

/// The directory that the machine sees at `/host`.
struct Share<'a> {
    repo: &'a Path,
    host: &'a Path,
}

impl Share<'_> {
    fn copy(&self, from: &Path, to: &str) -> Result<()> {
        let to = self.host.join(to);
        files::copy(from, &to)?;
        Ok(())
    }

    /// Copies the files of the repository there whose paths are compiled into tests. Returns the
    /// beginning of the script.
    fn begin(&self) -> Result<String> {
        let tracked = run::output(Command::new("git").arg("-C").arg(self.repo).args(["ls-files", "crates"]))?;
        for file in tracked
            .lines()
            .filter(|file| file.contains("/tests/") || file.contains("/preload/") || file.ends_with("/Cargo.toml"))
        {
            self.copy(&self.repo.join(file), &format!("repo/{file}"))?;
        }
        let results = self.host.join("results");
        files::make(&results)?;
        Ok(BEGIN.replace("REPO", &self.repo.display().to_string()))
    }
}

/// The beginning of the script. The output of a program goes to the disk first, because each write
/// to the shared directory is slow.
const BEGIN: &str = r#"mkdir -p 'REPO' /opt && cp -a /host/repo/. 'REPO' && cp -a /host/bin /opt/larder || exit 1
export LARDER_BIN=/opt/larder/larder PATH=/opt/larder:$PATH
one() {
    name=$1; dir=$2; shift 2
    start=$(date +%s)
    mkdir -p "$dir"
    (cd "$dir" && exec timeout --kill-after=5 900 "$@") > /tmp/log-of-one 2>&1
    code=$?
    seconds=$(($(date +%s) - start))
    cp /tmp/log-of-one "/host/results/$name.log"
    echo "$code $seconds" > "/host/results/$name.end"
    echo "$name ended with $code after $seconds s"
}
"#;

/// Reads `larder: N cases, …` and `N wrong, …`. Cases that were not wrong passed.
fn torture_counts(text: &str) -> Counts {
    let first_number = |line: &str| line.split(' ').next().and_then(|word| word.parse::<u64>().ok());
    let cases = text.lines().find_map(|line| first_number(line.strip_prefix("larder: ")?)).unwrap_or(0);
    let wrong = text.lines().filter(|line| line.contains(" wrong, ")).find_map(first_number).unwrap_or(0);
    let skipped = text.lines().filter(|line| line.starts_with("skipped   ")).count() as u64;
    Counts { passed: cases.saturating_sub(wrong), failed: wrong, skipped }
}

/// The kernel, busybox and disk of a machine.
struct Guest {
    kernel: Kernel,
    busybox: PathBuf,
    disk: PathBuf,
}

impl Guest {
    /// Makes or downloads what is missing.
    fn find(place: &Place) -> Result<Guest> {
        let archive = Archive::new("arm64", &place.own("aarch64")?.join("debian"));
        let disk = place.lasting()?.join(format!("debian-{SUITE}-arm64-{DISK_VERSION}.ext4"));
        if !disk.exists() {
            ensure!(
                nix::unistd::geteuid().is_root(),
                "{} is not there, and only root can make it: run `sudo -E cargo xtask test --arch aarch64` once",
                disk.display()
            );
            println!("── a disk with Debian {SUITE} for arm64");
            let work = place.own("aarch64")?.join("disk");
            files::fresh(&work)?;
            let unfinished = make_disk(&work)?;
            // It is copied, because it may be on another file system. `cp` keeps holes.
            run::output(Command::new("cp").arg("--sparse=always").arg(&unfinished).arg(&disk))?;
            files::remove(&work)?;
        }
        let busybox = archive.file("busybox-static", "bin/busybox")?;
        Ok(Guest { kernel: archive.kernel(KERNEL)?, busybox, disk })
    }
}

/// Makes a disk in `dir`, and returns its file.
///
/// Packages are only unpacked. To configure them, their scripts would have to run on an aarch64
/// machine, which takes a quarter of an hour under emulation. `BY_HAND` makes what the tests need
/// of the results of these scripts.
fn make_disk(dir: &Path) -> Result<PathBuf> {
    let root = dir.join("root");
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--foreign", "--arch=arm64", "--variant=minbase"]);
    debootstrap.arg(format!("--include={PACKAGES}")).arg(SUITE).arg(&root).arg(debian::mirror()?);
    run::logged(&mut debootstrap, &dir.join("debootstrap.log"), || ())?;
    // If debootstrap cannot mount there, it makes a link to this machine's `/proc`.
    let proc = root.join("proc");
    if proc.is_symlink() {
        fs::remove_file(&proc).and_then(|()| fs::create_dir(&proc)).context("cannot make /proc")?;
    }
    let archives = root.join("var/cache/apt/archives");
    for archive in files::list(&archives)? {
        if archive.extension().is_some_and(|extension| extension == "deb") {
            let words =
                ["-c", r#"dpkg-deb --fsys-tarfile "$0" | tar --extract --keep-directory-symlink --directory "$1""#];
            let mut unpack = Command::new("bash");
            unpack.args(["-o", "pipefail"]).args(words).arg(&archive).arg(&root);
            run::output(&mut unpack).with_context(|| format!("cannot unpack {}", archive.display()))?;
            fs::remove_file(&archive).context("cannot remove a package")?;
        }
    }
    let mut by_hand = Command::new("bash");
    by_hand.args(["-e", "-u", "-c", BY_HAND]).current_dir(&root);
    run::output(&mut by_hand).context("cannot make the files that the packages' scripts would have made")?;
    let disk = dir.join("disk.ext4");
    let file = fs::File::create(&disk).and_then(|file| file.set_len(DISK_BYTES));
    file.with_context(|| format!("cannot make {}", disk.display()))?;
    let mut format = Command::new("mkfs.ext4");
    run::output(format.args(["-q", "-E", "lazy_itable_init=1", "-d"]).arg(&root).arg(&disk))?;
    Ok(disk)
}

/// Runs in the root directory of the new disk.
const BY_HAND: &str = r#"
cp usr/share/base-passwd/passwd.master etc/passwd
cp usr/share/base-passwd/group.master etc/group
echo 'u:x:1000:1000::/home/u:/bin/bash' >> etc/passwd
echo 'u:x:1000:' >> etc/group
mkdir -p home/u
chown 1000:1000 home/u
echo machine > etc/hostname
echo '127.0.0.1 localhost machine' > etc/hosts
ln -sf gcc usr/bin/cc
ln -sf g++ usr/bin/c++
ln -sf mawk usr/bin/awk
ln -sf which.debianutils usr/bin/which
qemu-aarch64-static usr/sbin/ldconfig -r .
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_of_tests_say_is_summed() {
        let text = "running 3 tests\ntest a ... skipped: clang is not installed\nok\ntest b ... ok\n\n\
                    test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 4 filtered out; finished in 0.24s\n\
                    test result: FAILED. 3 passed; 12 failed; 0 ignored; 0 measured; 0 filtered out; finished in 9.00s\n";
        assert_eq!(counts(text), Counts { passed: 5, failed: 12, skipped: 1 });
        assert_eq!(counts("killed"), Counts::default());
    }

    #[test]
    fn what_the_torture_suite_says_is_counted() {
        let text = "skipped   A-clang: no clang\n  0.10 s  A-x: cold\nlarder: 61 cases, 210 steps, 300 s\n\
                    2 wrong, 130 of 131 expected hits; 1 known misses, 0 not known\n";
        assert_eq!(torture_counts(text), Counts { passed: 59, failed: 2, skipped: 1 });
    }

    #[test]
    fn programs_are_found_in_cargos_messages() {
        let message = r#"{"reason":"compiler-artifact","package_id":"path+file:///r/crates/base/sys#larder-sys@0.1.0",
            "manifest_path":"/r/crates/base/sys/Cargo.toml","target":{"kind":["lib"],"name":"larder_sys"},
            "profile":{"test":true},"executable":"/r/target/x"}"#;
        let built = of_message(message).expect("names one");
        assert_eq!((built.package.as_str(), built.test.as_str()), ("larder-sys", "larder_sys"));
        assert_eq!(
            (built.dir.as_path(), built.program.as_path()),
            (Path::new("/r/crates/base/sys"), Path::new("/r/target/x"))
        );
        assert!(of_message(&message.replace("\"/r/target/x\"", "null")).is_none());
        assert!(of_message(&message.replace("\"test\":true", "\"test\":false")).is_none());
        assert!(of_message("no message").is_none());
    }
}
