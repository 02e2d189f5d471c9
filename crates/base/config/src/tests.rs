//! Tests of `load`: each setting from each source, precedence, bad values, what a project may not
//! set.

use std::cell::Cell;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::{
    FILE_BYTES_MAX, Loaded, OTHER_VARIABLES, Position, SETTINGS, Settings, Source, Surroundings, load, problems_digest,
};

const SYSTEM: &str = "/etc/larder/larder.toml";
const WRAPPER: &str = "/opt/larder/bin/larder.toml";
const USER: &str = "/home/u/.config/larder/larder.toml";
const PROJECT: &str = "/home/p/larder.toml";
/// In the order of reading.
const FILES: [&str; 4] = [SYSTEM, WRAPPER, USER, PROJECT];

fn pairs(env: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    env.iter().map(|(name, value)| (name.into(), value.into())).collect()
}

fn load_with(env: &[(OsString, OsString)], read: &dyn Fn(&Path) -> io::Result<Vec<u8>>) -> Loaded {
    load(&Surroundings {
        env,
        read,
        home: &|| Some(PathBuf::from("/database/u")),
        wrapper_dir: Some(Path::new("/opt/larder/bin")),
        cwd: Some(Path::new("/home/p")),
    })
}

fn loaded(env: &[(&str, &str)], files: &[(&str, &str)]) -> Loaded {
    load_with(&pairs(env), &|path| {
        let file = files.iter().find(|(name, _)| Path::new(name) == path);
        file.map(|(_, text)| text.as_bytes().to_vec()).ok_or(io::ErrorKind::NotFound.into())
    })
}

fn source_text(source: &Source) -> String {
    match source {
        Source::Default => "default".to_owned(),
        Source::PasswordDatabase => "passwd".to_owned(),
        Source::Environment(name) => (*name).to_owned(),
        Source::File { path, line } => format!("{}:{line}", path.display()),
    }
}

/// With `HOME=/home/u`, expects these lines `key = value (source)`, and one problem for each of
/// these parts of a message.
fn check(env: &[(&str, &str)], files: &[(&str, &str)], expected: &[&str], problems: &[&str]) {
    let env: Vec<_> = [("HOME", "/home/u")].iter().chain(env).copied().collect();
    let loaded = loaded(&env, files);
    let lines: Vec<String> =
        loaded.values().iter().map(|v| format!("{} = {} ({})", v.name, v.shown, source_text(&v.source))).collect();
    for line in expected {
        assert!(lines.iter().any(|found| found == line), "{line}, {env:?}, {files:?}: {lines:#?}");
    }
    let texts: Vec<String> = loaded.problems.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), problems.len(), "{env:?}, {files:?}: {texts:#?}");
    for (text, piece) in texts.iter().zip(problems) {
        assert!(text.contains(piece), "{piece:?} is not in {text:?}");
    }
}

const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const KEY_IN_FILE: &str = "['00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff']";

/// For each setting: text for a file, text for the environment, and how both are shown.
const SAMPLES: [(&str, &str, &str, &str); SETTINGS.len()] = [
    ("class", "'utility'", "UTILITY", "utility"),
    ("class_cgroup", "'/c'", "/c", "/c"),
    ("debug_paths", "'exact'", "Exact", "exact"),
    ("dir", "'/f'", "/f", "/f"),
    ("disable", "true", "yes", "true"),
    ("handover", "'trusted'", "Trusted", "trusted"),
    ("huge_pages", "true", "on", "true"),
    ("image_max_days", "7", "7", "7"),
    ("image_max_size", "'2 GB'", "2GB", "2 GB"),
    ("jobs", "7", "7", "7"),
    ("log", "'/l'", "/l", "/l"),
    ("max_size", "'500 MB'", "500MB", "500 MB"),
    ("observer", "'kernel'", "KERNEL", "kernel"),
    ("policy", "'ephemeral'", "EPHEMERAL", "ephemeral"),
    ("quiet", "true", "1", "true"),
    ("read_only", "true", "1", "true"),
    ("recache", "true", "On", "true"),
    ("record_commit_prefix", "'[x]'", "[x]", "[x]"),
    ("record_dir", "'/r'", "/r", "/r"),
    (
        "remote",
        "['redis://a', 's3://u:p@b?endpoint=c']",
        "redis://a, s3://u:p@b?endpoint=c",
        "redis://a,s3://***@b?endpoint=c",
    ),
    ("remote_handover", "'unsigned'", "Unsigned", "unsigned"),
    ("remote_namespace", "'team/app'", "team/app", "team/app"),
    ("remote_rw_mode", "'read-only'", "READ_ONLY", "read_only"),
    ("remote_sign_with", "'/k'", "/k", "/k"),
    ("remote_trust", KEY_IN_FILE, KEY, KEY),
    ("roots", "'/a:/b'", "auto:/a:/b", "auto:/a:/b"),
    ("rust_build_scripts", "true", "on", "true"),
    ("rust_paths", "'remap'", "Remap", "remap"),
    ("tokens", "false", "off", "false"),
    ("tokens_file", "'/t'", "/t", "/t"),
    ("verify", "7", "7", "7"),
    ("wait", "false", "off", "false"),
];

#[test]
fn the_table_is_sorted_and_says_the_defaults() {
    assert_eq!(SETTINGS[crate::load::DIR].key, "dir");
    assert!(SETTINGS.is_sorted_by_key(|setting| setting.key));
    for (setting, sample) in SETTINGS.iter().zip(SAMPLES) {
        assert_eq!(setting.key, sample.0);
        assert_eq!(setting.variable, format!("LARDER_{}", setting.key.to_uppercase()));
        assert!(setting.help.ends_with('.'));
        // The defaults of these two say where the directories are searched.
        if !matches!(setting.key, "dir" | "record_dir") {
            assert_eq!(setting.shown(&Settings::default()), setting.default);
        }
    }
}

#[test]
fn each_setting_from_each_source() {
    for (at, (key, in_file, in_environment, shown)) in SAMPLES.into_iter().enumerate() {
        let variable = SETTINGS[at].variable;
        check(&[(variable, in_environment)], &[], &[&format!("{key} = {shown} ({variable})")], &[]);
        for file in FILES {
            let text = format!("# first\n{key} = {in_file}\n");
            if file != PROJECT || SETTINGS[at].project_may_set {
                check(&[], &[(file, &text)], &[&format!("{key} = {shown} ({file}:2)")], &[]);
            } else {
                check(&[], &[(file, &text)], &[], &[&format!("{PROJECT}:2: a project's own file cannot set {key}")]);
            }
        }
    }
}

#[test]
fn later_wins() {
    let observers = ["'auto'", "'kernel'", "'depfile'", "'preload'"].map(|name| format!("observer = {name}"));
    let files: Vec<_> = FILES.into_iter().zip(observers.iter().map(String::as_str)).collect();
    check(&[], &files[..1], &[&format!("observer = auto ({SYSTEM}:1)")], &[]);
    check(&[], &files[..2], &[&format!("observer = kernel ({WRAPPER}:1)")], &[]);
    check(&[], &files[..3], &[&format!("observer = depfile ({USER}:1)")], &[]);
    check(&[], &files, &[&format!("observer = preload ({PROJECT}:1)")], &[]);
    check(&[("LARDER_OBSERVER", "auto")], &files, &["observer = auto (LARDER_OBSERVER)"], &[]);
    check(&[("LARDER_OBSERVER", "")], &files, &[&format!("observer = preload ({PROJECT}:1)")], &[]);
    check(&[("LARDER_DISABLE", "")], &[(USER, "disable = true")], &["disable = false (LARDER_DISABLE)"], &[]);
    check(&[("LARDER_DISABLE", "1"), ("LARDER_DISABLE", "0")], &[], &["disable = true (LARDER_DISABLE)"], &[]);
}

#[test]
fn bad_values_are_ignored_and_said() {
    let default = ["max_size = 10 GiB (default)", "disable = false (default)", "observer = auto (default)"];
    check(&[("LARDER_MAX_SIZE", "50X")], &[], &default, &["LARDER_MAX_SIZE: max_size cannot be \"50X\""]);
    check(&[("LARDER_DISABLE", "maybe")], &[], &default, &["LARDER_DISABLE: disable cannot be \"maybe\""]);
    check(&[("LARDER_OBSERVER", "eyes")], &[], &default, &["write one of auto, depfile, kernel, preload"]);
    check(
        &[("LARDER_MAX_SIZE", "x")],
        &[(USER, "max_size = '1G'")],
        &[&format!("max_size = 1 GiB ({USER}:1)")],
        &["\"x\""],
    );
    check(&[("LARDER_DIR", "$HOME/x")], &[], &["dir = /home/u/.cache/larder (HOME)"], &["variables are not expanded"]);
    check(&[("LARDER_REMOTE_TRUST", "abc")], &[], &["remote_trust = none (default)"], &["64 hexadecimal digits"]);
    // A setting about trust was given and not understood, so no remote is used.
    let remote = ("LARDER_REMOTE", "file:///r");
    for (bad, said) in [
        (("LARDER_REMOTE_TRUST", "abc"), "no remote is used until this is corrected"),
        (("LARDER_REMOTE_RW_MODE", "readonly"), "no remote is used until this is corrected"),
    ] {
        check(&[remote, bad], &[], &["remote = none (LARDER_REMOTE)"], &[said]);
    }
    check(&[remote], &[(USER, "remote_trsut = ['x']")], &["remote = none (LARDER_REMOTE)"], &["remote_trust"]);
    for text in ["[remote]\ntrsut = ['x']", "[log]\nremote_trust = ['x']"] {
        check(&[remote], &[(USER, text)], &["remote = none (LARDER_REMOTE)"], &["did you mean remote_trust?"]);
    }
    check(
        &[remote],
        &[(USER, "[remote.main]\ntrust = ['x']")],
        &["remote = none (LARDER_REMOTE)"],
        &["no remote is used until this is corrected"],
    );
    check(&[remote], &[(USER, "remote_trust = ")], &["remote = none (LARDER_REMOTE)"], &["is not TOML"]);
    assert!(loaded(&[remote, ("LARDER_REMOTE_TRSUT", "x")], &[]).settings.remote.is_empty());
    assert!(!loaded(&[remote, ("LARDER_NONSENSE", "x")], &[]).settings.remote.is_empty());
    let none = ["remote = none (default)"];
    check(&[("LARDER_REMOTE", "redis//:s3cret@h")], &[], &none, &["has no scheme: write one such as"]);
    check(&[("LARDER_REMOTE", "file:///a,ftp://u:s3cret@h")], &[], &none, &["its scheme \"ftp\" is not one of"]);
    check(&[], &[(USER, "remote = ['file:///a b']")], &none, &["contains a blank: write it as %20"]);
    check(&[], &[(USER, "remote = [1]")], &none, &["write URLs in quotes"]);
    for text in ["s3cret", "x://u:s3cret@h", "http://u:s3cret@h/ b"] {
        let loaded = loaded(&[("LARDER_REMOTE", text)], &[]);
        assert!(!loaded.problems[0].to_string().contains("s3cret") || text == "s3cret", "{:?}", loaded.problems);
    }
    for (text, piece) in [
        ("max_size = 10", "max_size cannot be 10, which is ignored: without a unit this means bytes"),
        ("max_size = 1.5", "a fraction without quotes"),
        ("max_size = -1", "a number outside 0 to 2^64 - 1"),
        ("max_size = true", "max_size cannot be true"),
        ("disable = 'perhaps'", "write true or false"),
        ("disable = [true]", "disable cannot be an array"),
        ("observer = {}", "observer cannot be a table"),
        ("dir = 5", "write a path in quotes"),
        ("dir = ''", "write a path"),
        ("dir = \"/a\\u0000b\"", "write a path"),
        ("max-size = '1G'", "\"max-size\" is not a setting and is ignored: did you mean max_size?"),
        ("store.dir = '/x'", "\"store.dir\" is not a setting and is ignored: did you mean dir?"),
        ("[[store]]\ndir = '/x'", "\"[[store]]\" is not a setting and is ignored: see larder config --help"),
        ("dir.x = '/x'", "\"dir.x\" is not a setting"),
    ] {
        check(&[], &[(USER, text)], &default, &[piece]);
        check(&[], &[(USER, text)], &["dir = /home/u/.cache/larder (HOME)"], &[&format!("{USER}:1: ")]);
    }
    // The keys of a table can also be written as dotted keys.
    for text in ["\nrecord.commit_prefix = '[x]'", "[record]\ncommit_prefix = '[x]'"] {
        check(&[], &[(USER, text)], &[&format!("record_commit_prefix = [x] ({USER}:2)")], &[]);
    }
    check(&[], &[(USER, "nonsense = 1\nrecache = true")], &[&format!("recache = true ({USER}:2)")], &["nonsense"]);
}

#[test]
fn files_that_cannot_be_used() {
    check(
        &[],
        &[(USER, "recache = true\nlog = ")],
        &["recache = false (default)"],
        &[&format!("{USER}:2: the file is ignored")],
    );
    check(&[], &[(USER, "recache = true\nrecache = true")], &["recache = false (default)"], &["twice"]);
    check(&[], &[(SYSTEM, "x"), (USER, "recache = true")], &[&format!("recache = true ({USER}:1)")], &[SYSTEM]);
    check(&[], &[(USER, &"#".repeat(FILE_BYTES_MAX + 1))], &[], &["larger than"]);
    check(&[], &[(USER, &"#".repeat(FILE_BYTES_MAX))], &[], &[]);
    let with = |error: io::ErrorKind| load_with(&[], &|_| Err(error.into()));
    assert_eq!(with(io::ErrorKind::NotFound).problems, []);
    assert_eq!(with(io::ErrorKind::NotADirectory).problems, []);
    assert_eq!(with(io::ErrorKind::PermissionDenied).problems.len(), 4);
    assert!(with(io::ErrorKind::IsADirectory).files.iter().all(|file| file.found));
    let bytes = load_with(&[], &|_| Ok(b"\n\xff".to_vec()));
    assert_eq!(bytes.problems[0].place, Position::Line(PathBuf::from(SYSTEM), 2));
    let many: String = (0..1000).map(|n| format!("unknown{n} = 1\n")).collect();
    let many = loaded(&[], &[(SYSTEM, &many)]).problems;
    assert_eq!((many.len(), many[20].to_string()), (21, format!("{SYSTEM}: and 980 more lines with problems")));
    assert_ne!(problems_digest(&many), problems_digest(&many[..20]));
}

#[test]
fn a_named_file_is_the_only_one() {
    let files = [(USER, "recache = true"), ("/c.toml", "log = 'l'"), ("/home/p/c.toml", "dir = '/d'")];
    check(&[("LARDER_CONFIG", "/c.toml")], &files, &["recache = false (default)", "log = /l (/c.toml:1)"], &[]);
    check(&[("LARDER_CONFIG", "c.toml")], &files, &["dir = /d (/home/p/c.toml:1)"], &[]);
    check(&[("LARDER_CONFIG", "")], &files, &[&format!("recache = true ({USER}:1)")], &[]);
    check(&[("LARDER_CONFIG", "/none")], &files, &["recache = false (default)"], &["/none: this file cannot be read"]);
    check(&[("LARDER_CONFIG", PROJECT)], &[(PROJECT, "dir = '/d'")], &[&format!("dir = /d ({PROJECT}:1)")], &[]);
}

#[test]
fn a_project_only_switches_on() {
    check(
        &[],
        &[(USER, "read_only = true"), (PROJECT, "read_only = false")],
        &[&format!("read_only = true ({USER}:1)")],
        &["off again"],
    );
    check(&[], &[(PROJECT, "read_only = false")], &[&format!("read_only = false ({PROJECT}:1)")], &[]);
    check(&[("LARDER_DISABLE", "0")], &[(PROJECT, "disable = true")], &["disable = false (LARDER_DISABLE)"], &[]);
    // The user's file keeps its rights if the working directory contains it.
    let files = [("/home/u/.config/larder/larder.toml", "dir = '/d'")];
    let found = load(&Surroundings {
        env: &pairs(&[("HOME", "/home/u")]),
        read: &|path| {
            if path == Path::new(files[0].0) { Ok(files[0].1.into()) } else { Err(io::ErrorKind::NotFound.into()) }
        },
        home: &|| None,
        wrapper_dir: None,
        cwd: Some(Path::new("/home/u/.config/larder")),
    });
    assert_eq!((found.settings.dir, found.problems, found.files.len()), (Some("/d".into()), vec![], 2));
}

#[test]
fn paths() {
    check(&[("LARDER_DIR", "x/./y")], &[], &["dir = /home/p/x/y (LARDER_DIR)"], &[]);
    check(&[("LARDER_LOG", "~/l")], &[], &["log = /home/u/l (LARDER_LOG)"], &[]);
    check(
        &[("LARDER_DIR", "")],
        &[(USER, "dir = '../d'")],
        &[&format!("dir = /home/u/.config/larder/../d ({USER}:1)")],
        &[],
    );
    check(&[], &[(WRAPPER, "dir = '~'")], &[&format!("dir = /home/u ({WRAPPER}:1)")], &[]);
    let odd = OsString::from_vec(b"/\xff".to_vec());
    let found =
        load_with(&[("LARDER_DIR".into(), odd.clone()), ("LARDER_MAX_SIZE".into(), odd.clone())], &|_| Ok(vec![]));
    assert_eq!((found.settings.dir, found.problems.len()), (Some(odd.into()), 1));
    let nowhere = |variable| {
        let read = |_: &Path| Err(io::ErrorKind::NotFound.into());
        load(&Surroundings { env: &pairs(&[variable]), read: &read, home: &|| None, wrapper_dir: None, cwd: None })
    };
    assert_eq!(nowhere(("LARDER_DIR", "relative")).problems.len(), 1);
    assert_eq!(nowhere(("LARDER_DIR", "~/x")).problems.len(), 1);
    assert_eq!(nowhere(("X", "")).settings.dir, None);
    assert!(nowhere(("X", "")).values().iter().any(|value| (value.name, &value.shown[..]) == ("dir", "none")));
}

#[test]
fn the_place_of_the_store_and_when_the_database_is_asked() {
    let check = |env: &[(&str, &str)], dir: &str, source: &str, expect_asked: u32| {
        let asked = Cell::new(0);
        let found = load(&Surroundings {
            env: &pairs(env),
            read: &|_| Err(io::ErrorKind::NotFound.into()),
            home: &|| {
                asked.set(asked.get() + 1);
                Some(PathBuf::from("/database/u"))
            },
            wrapper_dir: None,
            cwd: None,
        });
        let values = found.values();
        let value = values.iter().find(|value| value.name == "dir").expect("there is such a setting");
        assert_eq!(
            (value.shown.as_str(), source_text(&value.source).as_str(), asked.get()),
            (dir, source, expect_asked),
            "{env:?}"
        );
        assert_eq!(found.problems, [], "{env:?}");
    };
    check(&[("HOME", "/h")], "/h/.cache/larder", "HOME", 0);
    check(&[("HOME", "/dev/null/home")], "/dev/null/home/.cache/larder", "HOME", 0);
    check(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/c")], "/c/larder", "XDG_CACHE_HOME", 0);
    check(&[("HOME", "/h"), ("XDG_CACHE_HOME", "c")], "/h/.cache/larder", "HOME", 0);
    check(&[("XDG_CONFIG_HOME", "/x"), ("XDG_CACHE_HOME", "/c")], "/c/larder", "XDG_CACHE_HOME", 0);
    check(&[("XDG_CONFIG_HOME", "/x"), ("LARDER_DIR", "/d")], "/d", "LARDER_DIR", 0);
    check(&[("LARDER_CONFIG", "")], "/database/u/.cache/larder", "passwd", 1);
    check(&[("HOME", "")], "/database/u/.cache/larder", "passwd", 1);
    check(&[], "/database/u/.cache/larder", "passwd", 1);
}

#[test]
fn unknown_variables_are_notes() {
    let found =
        loaded(&[("LARDER_MAXSIZE", "1"), ("LARDER_PRELOAD_LOG", "x"), ("LARDER_ZZZZZZ", ""), ("LANG", "C")], &[]);
    let notes: Vec<String> = found.notes.iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        [
            "LARDER_MAXSIZE: larder knows no such variable: did you mean LARDER_MAX_SIZE?",
            "LARDER_ZZZZZZ: larder knows no such variable: see larder config --help",
        ]
    );
    assert_eq!(found.problems, []);
}

#[test]
fn the_reference_lists_every_setting() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/settings.md"));
    let page = page.expect("cannot read docs/settings.md").replace('`', "");
    let (_, rest) = page.split_once("\n## All settings\n").expect("docs/settings.md has no section All settings");
    let (table, others) = rest.split_once("\n## ").expect("docs/settings.md has no other section");
    let rows: Vec<&str> = table.lines().filter(|line| line.contains("| LARDER_")).collect();
    for (setting, row) in SETTINGS.iter().zip(&rows) {
        let may = if setting.project_may_set { "yes" } else { "no" };
        let expect = format!("| {} | {} | {} | {may} | ", setting.key, setting.variable, setting.default);
        assert!(row.starts_with(&expect), "docs/settings.md has this row:\n{row}\nIt should begin with:\n{expect}");
    }
    assert_eq!(rows.len(), SETTINGS.len(), "docs/settings.md must have one row for each setting, in the same order");
    for (variable, _) in OTHER_VARIABLES {
        assert!(others.contains(&format!("| {variable} |")), "docs/settings.md has no row for {variable}");
    }
}

/// Parts of configuration files, for the test below.
const PIECES: &str =
    "dir disable max_size observer = \n \r \" ' \'\'\' \"\"\" [ ] { } . , # true 10G \\u00 1979-05-27 \u{feff} \0";

/// Returns a generator of numbers that are the same in every run (xorshift).
fn numbers() -> impl FnMut() -> usize {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as usize
    }
}

#[test]
fn any_bytes_are_survived() {
    let pieces: Vec<&str> = PIECES.split(' ').collect();
    let mut random = numbers();
    for round in 0..20_000 {
        let mut bytes = Vec::new();
        for _ in 0..random() % 24 {
            match round % 3 {
                0 => bytes.push(random() as u8),
                1 => bytes.extend(pieces[random() % pieces.len()].bytes()),
                _ => bytes.extend(format!("{} = {}\n", pieces[random() % 4], pieces[random() % pieces.len()]).bytes()),
            }
        }
        for problem in load_with(&[], &|_| Ok(bytes.clone())).problems {
            assert!(!problem.to_string().chars().any(char::is_control), "{bytes:?}");
        }
    }
}
