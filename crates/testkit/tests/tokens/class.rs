//! How tools are scheduled, as they see it themselves.

use larder_testkit::{Place, Ran, is_root, write_program};

use crate::support::{compile, sources, start, wrapped};

const SAYS: &str = "nice > 0.o; cat /proc/self/oom_score_adj >> 0.o; \
    sed 's/.*) //' /proc/self/stat | cut -d' ' -f39 >> 0.o; ionice 2>/dev/null | cut -d: -f1 >> 0.o; exit 3";

fn place() -> Place {
    let place = Place::new();
    place.tool("work/mycc", SAYS);
    sources(&place, 1);
    place
}

/// Returns what a tool of this class sees: niceness, oom_score_adj, scheduling policy (5 is
/// SCHED_IDLE) and I/O class.
fn seen(place: &Place, class: &str, variables: &[(&str, &str)], before: &[&str]) -> Vec<String> {
    place.remove(&["0.o"]);
    // Without tokens, because larder might find a busy machine too busy for the class.
    let mut run = wrapped(place, &compile("mycc", 0), "2")
        .env("LARDER_CLASS", class)
        .env("LARDER_RECACHE", "1")
        .env("LARDER_TOKENS", "0");
    run = variables.iter().fold(run, |run, (name, value)| run.env(name, value));
    if !before.is_empty() {
        let program = run.command.get_program().to_owned();
        let words: Vec<_> = run.command.get_args().map(ToOwned::to_owned).collect();
        let environment: Vec<_> =
            run.command.get_envs().map(|(n, v)| (n.to_owned(), v.map(ToOwned::to_owned))).collect();
        let mut command = std::process::Command::new(before[0]);
        command.args(&before[1..]).arg(program).args(words).current_dir(place.path("work")).env_clear();
        command.envs(environment.into_iter().filter_map(|(name, value)| Some((name, value?))));
        run.command = command;
    }
    Ran::of(start(run)).ends(3);
    String::from_utf8(place.read("0.o")).expect("not UTF-8").lines().map(str::to_owned).collect()
}

fn inherited() -> (i32, i32) {
    let nice = Ran::of(
        std::process::Command::new("nice")
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("cannot start the command"),
    );
    let score = std::fs::read_to_string("/proc/self/oom_score_adj").expect("cannot read the file");
    (nice.stdout.trim().parse().expect("not a number"), score.trim().parse().expect("not a number"))
}

/// The ways in which a tool is started: as a child, under a seccomp filter, and by replacing
/// larder.
const WAYS: [&[(&str, &str)]; 3] =
    [&[], &[("LARDER_OBSERVER", "kernel")], &[("LARDER_READ_ONLY", "1"), ("LARDER_RECACHE", "0")]];

#[test]
fn each_class_by_each_way() {
    let place = place();
    let (nice, score) = inherited();
    let lowered = |at_least: i32| nice.max(at_least).to_string();
    let more = (score + 300).min(1000).to_string();
    for way in WAYS {
        let plain = seen(&place, "inherit", way, &[]);
        assert_eq!(plain[..3], [nice.to_string(), score.to_string(), "0".into()], "{way:?}");
        let utility = seen(&place, "utility", way, &[]);
        assert_eq!(utility[..3], [lowered(10), more.clone(), "0".into()], "{way:?}");
        let background = seen(&place, "background", way, &[]);
        assert_eq!(background[..3], [lowered(10), more.clone(), "5".into()], "{way:?}");
        if let Some(class) = background.get(3) {
            assert_eq!(class, "idle", "{way:?}");
        }
    }
}

/// A build with a higher niceness than its class keeps it.
#[test]
fn never_more_than_inherited() {
    let place = place();
    for class in ["inherit", "utility", "background"] {
        assert_eq!(seen(&place, class, &[], &["nice", "-n", "19"])[0], "19", "{class}");
    }
}

/// The wrapper of a whole command is not lowered, and neither is the command.
#[test]
fn a_whole_command_is_as_the_build() {
    let place = place();
    place.tool("work/all", SAYS);
    place.settle();
    let words: Vec<String> = ["run", "--", "./all"].map(str::to_owned).into();
    Ran::of(start(wrapped(&place, &words, "2").env("LARDER_CLASS", "background"))).ends(3);
    let text = String::from_utf8(place.read("0.o")).expect("not UTF-8");
    assert_eq!(text.lines().next(), Some(inherited().0.to_string().as_str()));
}

#[test]
fn a_tool_that_cannot_be_started_is_said_so() {
    let place = place();
    write_program(place.path("work/broken-cc"), "#!/nonexistent/interpreter\n");
    let plain = place.run(&["sh", "-c", "./broken-cc -c 0.c -o 0.o"]).run().code;
    for class in ["inherit", "utility"] {
        let ran = Ran::of(start(wrapped(&place, &compile("broken-cc", 0), "2").env("LARDER_CLASS", class)));
        assert_eq!(ran.code, plain, "{class}: {ran:?}");
    }
}

#[test]
fn a_cgroup_that_was_delegated() {
    larder_testkit::probe_skip!(is_root(), "only root can make a cgroup here");
    let group = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"].iter().find_map(|top| {
        let path = std::path::Path::new(top).join(format!("larder-test-{}", std::process::id()));
        std::fs::create_dir(&path).ok()?;
        let has = path.join("cgroup.procs").exists();
        if has { Some(path) } else { None }
    });
    larder_testkit::probe_skip!(group.is_some(), "no cgroup can be made");
    let group = group.expect("the test was not skipped");
    let place = place();
    place.tool("work/mycc", "cat /proc/self/cgroup > 0.o; exit 3");
    place.settle();
    let text = |class: &str| {
        seen(&place, class, &[("LARDER_CLASS_CGROUP", group.to_str().expect("not UTF-8"))], &[]).join("\n")
    };
    let name = group.file_name().expect("no file name").to_str().expect("not UTF-8").to_owned();
    let (utility, background) = (text("utility"), text("background"));
    crate::support::until(|| std::fs::remove_dir(&group).is_ok());
    assert!(background.contains(&name) && !utility.contains(&name), "{background}");
}

/// Huge pages are off by default. The setting is not part of any key, and the caller's own tunables
/// are kept.
#[test]
fn compilers_ask_for_huge_pages_where_that_is_set() {
    let place = Place::new();
    place.tool("work/mycc", "echo \"$GLIBC_TUNABLES, $MALLOC_CONF\" > 0.o");
    sources(&place, 1);
    let seen = |variables: &[(&str, &str)]| {
        place.remove(&["0.o"]);
        let run = wrapped(&place, &compile("mycc", 0), "2");
        Ran::of(start(variables.iter().fold(run, |run, (name, value)| run.env(name, value)))).ends(0);
        String::from_utf8(place.read("0.o")).expect("not UTF-8")
    };
    assert_eq!(seen(&[]), ", \n");
    assert_eq!(seen(&[("LARDER_HUGE_PAGES", "1")]), ", \n", "a hit, because the setting is not part of the key");
    let asked = "glibc.malloc.hugetlb=1, thp:always\n";
    assert_eq!(seen(&[("LARDER_HUGE_PAGES", "1"), ("LARDER_RECACHE", "1")]), asked);
    assert_eq!(seen(&[]), asked, "a hit");
    let own = [("LARDER_HUGE_PAGES", "1"), ("MALLOC_CONF", "thp:never"), ("LARDER_TOKENS", "0")];
    assert_eq!(seen(&own), "glibc.malloc.hugetlb=1, thp:never\n");
}
