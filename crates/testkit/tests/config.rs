//! Configuration: where files are searched, and that a faulty file warns once and disturbs no
//! build.
#![cfg(target_os = "linux")]

use std::path::PathBuf;

use larder_testkit::{Counters, Place, Ran, Run, copy_program, larder};

/// A place with a copy of larder, so that a file can be put beside it, and a small tool.
struct Installed {
    place: Place,
    larder: PathBuf,
}

impl Installed {
    fn new() -> Installed {
        let place = Place::new();
        std::fs::create_dir(place.path("opt")).expect("cannot create the directory");
        for name in ["larder", "larderd"] {
            copy_program(larder().with_file_name(name), place.path("opt").join(name));
        }
        place.tool("work/mycc", "cat x.c > x.o");
        place.put("x.c", "int a;\n");
        let larder = place.path("opt/larder");
        Installed { place, larder }
    }

    fn run(&self, argv: &[&str]) -> Run {
        self.place.settle();
        let larder = self.larder.to_str().expect("not UTF-8");
        self.place.run(&[&[larder], argv].concat())
    }

    fn compile(&self) -> Run {
        self.run(&["./mycc", "-c", "x.c", "-o", "x.o"])
    }

    fn file(&self, relative: &str, text: &str) -> String {
        let path = self.place.path(relative);
        std::fs::create_dir_all(path.parent().expect("no parent directory")).expect("cannot create the directory");
        std::fs::write(&path, text).expect("cannot write the file");
        path.to_str().expect("not UTF-8").to_owned()
    }

    fn value(&self, key: &str, change: impl Fn(Run) -> Run) -> String {
        let ran = change(self.run(&["config"])).run();
        let mut lines = ran.stdout.lines().map(str::trim).filter(|line| line.starts_with(key));
        lines.next().unwrap_or_else(|| panic!("{key}: {ran:?}")).to_owned()
    }
}

#[test]
fn a_file_beside_the_wrappers_real_file() {
    let installed = Installed::new();
    let elsewhere = installed.place.path("beside");
    let path = installed.file("opt/larder.toml", &format!("dir = {elsewhere:?}\nmax_size = \"3GiB\"\n"));
    let bare = |run: Run| run.without("LARDER_DIR").without("HOME");
    assert!(installed.value("max_size", bare).contains(&format!("{path}:2")));
    bare(installed.compile()).run().quiet();
    assert!(elsewhere.is_dir(), "the store must be where the file says");
    // If larder is called through a link, the file beside the real wrapper is used, not one beside
    // the link.
    std::os::unix::fs::symlink(&installed.larder, installed.place.path("bin/larder")).expect("cannot create the link");
    installed.file("bin/larder.toml", "max_size = \"1GiB\"\n");
    let linked = installed.place.text("bin/larder");
    let ran = bare(installed.place.run(&[&*linked, "config"])).run();
    assert!(ran.clone().ends(0).stdout.contains(&format!("{path}:2")), "{ran:?}");
    let stats = bare(installed.run(&["stats", "--json"])).run().quiet();
    assert_eq!(Counters::parse(&stats).get("miss"), 1);
}

#[test]
fn the_later_source_wins() {
    let installed = Installed::new();
    let same = |run: Run| run;
    assert!(installed.value("max_size", same).contains("default"));
    let steps = [("opt/larder.toml", "2GiB"), ("home/.config/larder/larder.toml", "3GiB")];
    for (file, size) in steps {
        let path = installed.file(file, &format!("max_size = \"{size}\"\n"));
        let value = installed.value("max_size", same);
        assert!(value.contains(&path), "{value}");
    }
    let config_home = installed.place.path("xdg");
    let path = installed.file("xdg/larder/larder.toml", "max_size = \"4GiB\"\n");
    assert!(installed.value("max_size", |run| run.env("XDG_CONFIG_HOME", &config_home)).contains(&path));
    let value = installed.value("max_size", |run| run.env("LARDER_MAX_SIZE", "5GiB"));
    assert!(value.contains("LARDER_MAX_SIZE"), "{value}");
    let path = installed.file("named.toml", "max_size = \"6GiB\"\n");
    assert!(installed.value("max_size", |run| run.env("LARDER_CONFIG", &path)).contains(&path));
}

#[test]
fn a_projects_own_file_sets_little() {
    let installed = Installed::new();
    let path = installed.file("work/larder.toml", "recache = true\ndir = \"/nonexistent\"\nlog = \"/nonexistent\"\n");
    let ran = installed.run(&["config"]).run().ends(1);
    for line in [2, 3] {
        assert!(ran.stdout.contains(&format!("{path}:{line}")), "{ran:?}");
    }
    assert!(installed.value("recache", |run| run).contains("true"));
    assert!(installed.value("dir", |run| run).contains("LARDER_DIR"));
    // A project's file can only switch larder off, never on.
    installed.file("work/larder.toml", "disable = false\n");
    installed.file("opt/larder.toml", "disable = true\n");
    assert!(installed.value("disable", |run| run).contains("true"));
}

/// Asserts that both compiles give the tool's result, that only the first one warns, and that
/// `larder config` names the place of the fault.
#[track_caller]
fn warns_once(installed: &Installed, piece: &str, change: impl Fn(Run) -> Run) {
    let compile = || {
        installed.place.remove(&["x.o"]);
        let ran = change(installed.compile()).run().ends(0);
        assert_eq!((ran.stdout.as_str(), installed.place.read("x.o")), ("", installed.place.read("x.c")), "{piece}");
        ran.stderr
    };
    let first = compile();
    assert!(first.starts_with("larder: warning: ") && first.contains(piece), "{piece}: {first:?}");
    assert_eq!(compile(), "", "{piece}: the second compile");
    let Ran { code, stdout, .. } = change(installed.run(&["config"])).run();
    assert!(code == Some(1) && stdout.contains(piece), "{piece}: {stdout}");
}

#[test]
fn what_is_wrong_warns_once_and_is_ignored() {
    let text = "disable = \"maybe\"\n";
    for (file, text, at) in [
        ("opt/larder.toml", "\n\nmax_size = \"much\"\n", ":3"),
        ("opt/larder.toml", "max_sise = 5\n", ":1"),
        ("opt/larder.toml", "dir = [1, 2]\n", ":1"),
        ("opt/larder.toml", "this is no TOML\n", ":1"),
        ("opt/larder.toml", "disable = true # and then\n\u{0}\n", ":2"),
        ("home/.config/larder/larder.toml", text, ":1"),
        ("work/larder.toml", "log = \"x\"\n", ":1"),
    ] {
        let installed = Installed::new();
        let path = installed.file(file, text);
        warns_once(&installed, &format!("{path}{at}"), |run| run);
    }
    for (name, value) in [
        ("LARDER_MAX_SIZE", "10 bananas"),
        ("LARDER_DISABLE", "perhaps"),
        ("LARDER_OBSERVER", "sharp"),
        ("LARDER_CONFIG", "/nonexistent/larder.toml"),
    ] {
        let piece = if name == "LARDER_CONFIG" { value } else { name };
        warns_once(&Installed::new(), piece, |run| run.env(name, value));
    }
}

#[test]
fn another_fault_warns_anew() {
    let installed = Installed::new();
    installed.file("opt/larder.toml", "max_size = \"much\"\n");
    warns_once(&installed, "much", |run| run);
    installed.file("opt/larder.toml", "max_size = \"more\"\n");
    warns_once(&installed, "more", |run| run);
}

#[test]
fn files_that_cannot_be_read() {
    let installed = Installed::new();
    let path = installed.place.text("opt/larder.toml");
    std::fs::create_dir(&path).expect("cannot create the directory");
    warns_once(&installed, &path, |run| run);
    let installed = Installed::new();
    let path = installed.file("opt/larder.toml", &"# comment\n".repeat(200_000));
    warns_once(&installed, &path, |run| run);
    // No process writes to this FIFO, and larder must not wait for one.
    let installed = Installed::new();
    installed.place.run(&["mkfifo", &installed.place.text("opt/larder.toml")]).run().quiet();
    installed.compile().run().ends(0);
}

#[test]
fn a_good_file_says_nothing() {
    let installed = Installed::new();
    installed.file("opt/larder.toml", "# nothing much\nmax_size = \"1GiB\"\nrecache = false\nobserver = \"auto\"\n");
    assert_eq!(installed.compile().run().quiet(), "");
    installed.run(&["config"]).run().ends(0);
}

#[test]
fn the_log_says_what_became_of_it() {
    let installed = Installed::new();
    let log = installed.place.path("log");
    for _ in 0..2 {
        installed.compile().env("LARDER_LOG", &log).run().quiet();
    }
    installed.run(&["./mycc", "-ftime-report"]).env("LARDER_LOG", &log).run();
    let text = std::fs::read_to_string(&log).expect("cannot read the file");
    let words: Vec<bool> =
        text.lines().zip(["miss", "hit", "bypass"]).map(|(line, word)| line.contains(&format!(" {word}"))).collect();
    assert_eq!(words, [true; 3], "{text}");
}
