//! Tests of help, usage errors, aliases, completions and man pages.

use crate::place::Here;

const WORDS: [(&str, &[&str]); 15] = [
    ("stats", &["--json", "--zero", "--watch", "--last-build"]),
    ("explain", &["--json", "--verbose", "--no-terminal", "--last", "--last-build"]),
    ("init", &["--print", "--yes", "--undo", "--user"]),
    ("doctor", &["--json"]),
    ("config", &["--json", "max_size"]),
    ("evict", &["--max-size", "--background"]),
    ("fsck", &["--repair"]),
    ("clear", &["counters"]),
    ("daemon", &["start", "stop", "status", "install"]),
    ("record", &["--runs", "--ab", "--prepare", "--trace", "show", "list", "export"]),
    ("compare", &["--margin", "--expect", "--anyway", "--markdown"]),
    ("report", &["--output", "--against"]),
    ("run", &["larder run -- "]),
    ("completions", &["bash", "zsh", "fish"]),
    ("man", &["--dir"]),
];

#[test]
fn each_word_has_help_that_mentions_its_options_and_an_example() {
    let here = Here::new();
    for (word, options) in WORDS {
        let long = here.larder(&[word, "--help"]).ends(0).says("Example");
        assert_eq!(long.out, here.larder(&["help", word]).ends(0).out);
        for option in options {
            assert!(long.out.contains(option), "{word}: {option}");
        }
    }
}

#[test]
fn the_whole_help_says_how_to_use_the_wrapper_and_lists_every_setting() {
    let here = Here::new();
    for typed in [&["help"][..], &["--help"], &[], &["--"]] {
        let ran = here.larder(typed).ends(0).says("CMAKE_C_COMPILER_LAUNCHER").says("larder -- stats").says("ln -s");
        for setting in larder_config::SETTINGS {
            assert!(ran.out.contains(setting.variable) && ran.out.contains(setting.help), "{}", setting.key);
        }
        assert!(WORDS.iter().all(|(word, _)| ran.out.contains(word)));
        let longest = ran.out.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(120), "{longest:?}");
    }
    here.larder(&["-h"]).ends(0).says("stats").says("larder help");
    here.larder(&["--version"]).ends(0).says(env!("CARGO_PKG_VERSION"));
    assert_eq!(here.larder(&["-V"]).ends(0).out, here.larder(&["version"]).ends(0).out);
}

#[test]
fn usage_errors_are_one_line_and_exit_2() {
    let here = Here::new();
    here.larder(&["stats", "--jsn"]).ends(2).complains("--json");
    here.larder(&["fsk"]).ends(2).complains("fsck");
    here.larder(&["explain"]).ends(2).complains("see `larder help explain`");
    here.larder(&["evict", "--max-size", "10"]).ends(2).complains("write a unit");
    here.larder(&["--nonsense"]).ends(2).complains("see `larder help`");
    here.larder(&["--start-server"]).ends(2).complains("no server");
    for typed in [&["-M", "5G"][..], &["-M5G"], &["--max-size=5G"]] {
        here.larder(typed).ends(2).complains("LARDER_MAX_SIZE");
    }
    here.larder(&["--get-config", "max_size"]).ends(2).complains("larder config");
    here.larder(&["remote"]).ends(2).complains("one of check, push, pull, flush follows: see `larder help remote`");
    here.larder(&["man", "nonsense"]).ends(1).complains("see `larder help`");
}

#[test]
fn what_people_type_for_other_caches() {
    let here = Here::new();
    let stats = here.larder(&["stats"]).ends(0).out;
    for typed in [&["-s"][..], &["--show-stats"], &["-sv"], &["-svv"], &["-s", "-v"]] {
        assert_eq!(here.larder(typed).ends(0).out, stats, "{typed:?}");
    }
    here.larder(&["-z"]).ends(0).says("set to zero");
    here.larder(&["--zero-stats"]).ends(0).says("set to zero");
    here.larder(&["-C", "-z"]).ends(0).says("clear").says("set to zero");
    here.larder(&["--cleanup"]).ends(0).says("evict");
    here.larder(&["-p"]).ends(0).says("max_size");
    assert_eq!(here.larder(&["-s", "--json"]).ends(0).json()["hit"], 0);
}

#[test]
fn completions_and_man_pages() {
    let here = Here::new();
    for shell in ["bash", "zsh", "fish"] {
        here.larder(&["completions", shell]).ends(0).says("larder").says("explain");
    }
    here.larder(&["man"]).ends(0).says(".TH larder 1").says("LARDER_DIR").says(".SH NOTES").says(".SH SUBCOMMANDS");
    for (word, _) in WORDS {
        here.larder(&["man", word]).ends(0).says(&format!(".TH larder-{word} 1"));
    }
    here.larder(&["man", "remote"]).ends(0).says("larder\\-remote\\-flush(1)");
    here.larder(&["man", "remote", "flush"]).ends(0).says(".TH larder-remote-flush 1").says("timeout");
    here.larder(&["man", "remote", "nonsense"]).ends(1).complains("remote nonsense");
    let written = here.larder(&["man", "--dir", "pages"]).ends(0);
    for page in ["larder.1", "larder-explain.1", "larder-version.1", "larder-image-save.1", "larder-remote-flush.1"] {
        assert!(written.out.contains(page) && here.path("work/pages").join(page).is_file(), "{page}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let here = Here::new();
    for word in [&["help"][..], &["completions", "bash"], &["man"], &["config"], &["stats", "--json"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = here.command(word).stdout(writer).output().expect("larderd runs");
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{word:?}");
    }
}
