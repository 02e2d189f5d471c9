//! Selects the environment variables that are part of the key before the tool has run.
//!
//! A variable that is not selected still counts: if the tool calls `getenv` for it, that call
//! becomes an observation. The lists contain:
//! - what libc and the dynamic loader read without an observable `getenv`,
//! - what the compilers of a family always ask for, so that the weak fingerprint separates such
//!   builds early,
//! - for scripts, which read the environment without `getenv`: all variables except those known to
//!   differ between two equal builds.
//!
//! `PWD` is never selected. The Action contains it separately, if it names the working directory by
//! another path.
//!
//! Unaware of: what a value means.

use crate::Family;
use larder_model::Variable;

/// Returns the variables to key, sorted by name. `all` is the whole environment as (name, value).
pub fn environment(family: Family, all: &[(Vec<u8>, Vec<u8>)]) -> Vec<Variable> {
    selected(all, |name| is_keyed(family, name) || name == b"PATH")
}

fn selected(all: &[(Vec<u8>, Vec<u8>)], is_wanted: impl Fn(&[u8]) -> bool) -> Vec<Variable> {
    let wanted = all.iter().filter(|(name, _)| is_wanted(name));
    let mut variables: Vec<_> =
        wanted.map(|(name, value)| Variable { name: name.clone(), value: value.clone() }).collect();
    variables.sort_by(|a, b| a.name.cmp(&b.name));
    variables
}

/// Returns true if the variable makes clang print how long each program ran, or counts that hold
/// times.
pub fn variable_asks_for_statistics(name: &[u8]) -> bool {
    within(name, &["CC_PRINT_INTERNAL_STAT*", "CC_PRINT_PROC_STAT*"])
}

/// Returns true if the key of an unknown tool leaves this variable out. The exception is `_`:
/// callers search texts for these names, and `_` occurs in most texts.
pub fn is_left_out(name: &[u8]) -> bool {
    within(name, LEFT_OUT) && name != b"_"
}

/// Returns true if the variable holds directories in which programs look for files. The key of a
/// whole command leaves these out, because most of them concern no program that runs. They count if
/// a text names them, if a program asks for them, or if a program runs that is not known.
pub fn is_search_path(name: &[u8]) -> bool {
    SEARCH_PATHS.iter().any(|path| path.as_bytes() == name)
}

/// Returns true for a variable by which a CI service describes a job, and for the host's name, which
/// Docker makes up for each container. The key of a whole command leaves these out. They count if a
/// text names them, if a program asks for them, or if a program runs that is not known.
pub fn is_of_job(name: &[u8]) -> bool {
    name.first().is_some_and(u8::is_ascii_uppercase) && (within(name, SERVICES) || differs_between_jobs(name))
}

/// Returns true for a variable of a CI service that has another value in each job or commit. The
/// others say for example which event started the job, or the branch.
pub fn differs_between_jobs(name: &[u8]) -> bool {
    within(name, DIFFER_BETWEEN_JOBS)
}

/// Returns true if a variable for which [`is_of_job`] is true may begin with this.
pub(crate) fn begins_name_of_job(start: &[u8]) -> bool {
    let may_begin = |entry: &&str| match entry.strip_suffix('*') {
        Some(prefix) => start.starts_with(prefix.as_bytes()) || prefix.as_bytes().starts_with(start),
        None => entry.as_bytes().starts_with(start),
    };
    SERVICES.iter().chain(DIFFER_BETWEEN_JOBS).any(may_begin)
}

/// Returns the names for which [`is_search_path`] is true.
pub fn search_paths() -> impl Iterator<Item = &'static [u8]> {
    SEARCH_PATHS.iter().map(|name| name.as_bytes())
}

/// Returns true if the key of a compiler has this variable, which is a search path. A nested
/// wrapper does not report that its compiler asked for it.
pub fn is_search_path_of_compilers(name: &[u8]) -> bool {
    name != b"PATH" && is_search_path(name) && (within(name, GCC) || within(name, CLANG))
}

/// Returns the variables that the loader and libc read without an observable `getenv`, except
/// `PATH`, sorted by name.
pub fn environment_of_libc(all: &[(Vec<u8>, Vec<u8>)]) -> Vec<Variable> {
    selected(all, |name| within(name, LIBC) && name != b"PATH")
}

/// Returns true if no observation is needed when the tool asks for this variable: it is in the key,
/// or it cannot affect the result.
pub fn getenv_is_covered(family: Family, name: &[u8]) -> bool {
    let is_reachless =
        || within(name, CANNOT_REACH_RESULT) || family == Family::Rustc && within(name, CANNOT_REACH_CRATE);
    !family.keys_whole_environment() && is_reachless() || is_keyed(family, name)
}

/// Returns true if gcc and clang use this variable for terminals only.
///
/// gcc asks for `TERM` before it checks for a terminal. If neither standard output nor standard
/// error is a terminal, the answer needs no observation.
pub fn matters_on_terminal_only(family: Family, name: &[u8]) -> bool {
    !family.keys_whole_environment() && within(name, FOR_TERMINALS)
}

fn is_keyed(family: Family, name: &[u8]) -> bool {
    match family {
        Family::Gcc => within(name, LIBC) || within(name, GCC),
        Family::Clang => within(name, LIBC) || within(name, CLANG),
        Family::Binutils => within(name, LIBC) || within(name, BINUTILS),
        Family::Rustc => within(name, LIBC),
        Family::Generic => !within(name, LEFT_OUT),
        Family::Command => !within(name, LEFT_OUT) && !is_search_path(name) && !is_of_job(name),
    }
}

/// Returns true if `list` contains the name, or contains a prefix of it followed by `*`.
fn within(name: &[u8], list: &[&str]) -> bool {
    list.iter().any(|entry| match entry.strip_suffix('*') {
        Some(start) => name.starts_with(start.as_bytes()),
        None => name == entry.as_bytes(),
    })
}

/// Variables that are read without an observable `getenv`: by the loader, by libc for messages and
/// times, and by libc's argument parser. `GLIBC_TUNABLES` and `MALLOC_*` are not on the list,
/// because they choose how memory is managed, not what a tool computes.
const LIBC: &[&str] = &[
    "CHARSET",
    "GCONV_PATH",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "LD_*",
    "LOCPATH",
    "NLSPATH",
    "OUTPUT_CHARSET",
    "PATH",
    "POSIXLY_CORRECT",
    "SOURCE_DATE_EPOCH",
    "TEXTDOMAINDIR",
    "TZ",
    "TZDIR",
];

const GCC: &[&str] = &[
    "COLLECT_*",
    "COMPILER_PATH",
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "C_INCLUDE_PATH",
    "DEPENDENCIES_OUTPUT",
    "GCC_COLORS",
    "GCC_COMPARE_DEBUG",
    "GCC_EXEC_PREFIX",
    "GCC_EXTRA_DIAGNOSTIC_OUTPUT",
    "GCC_URLS",
    "LIBRARY_PATH",
    "LPATH",
    "OBJCPLUS_INCLUDE_PATH",
    "OBJC_INCLUDE_PATH",
    "SUNPRO_DEPENDENCIES",
    "TERM_URLS",
];

const CLANG: &[&str] = &[
    "CCC_ADD_ARGS",
    "CCC_OVERRIDE_OPTIONS",
    "CC_LOG_DIAGNOSTICS*",
    "CC_PRINT_*",
    "CLANG_*",
    "COMPILER_PATH",
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "C_INCLUDE_PATH",
    "DEPENDENCIES_OUTPUT",
    "GCC_EXEC_PREFIX",
    "IPHONEOS_DEPLOYMENT_TARGET",
    "LIBRARY_PATH",
    "LLVM_OVERRIDE_PRODUCER",
    "MACOSX_DEPLOYMENT_TARGET",
    "OBJCPLUS_INCLUDE_PATH",
    "OBJC_INCLUDE_PATH",
    "RC_DEBUG_*",
    "SDKROOT",
    "SUNPRO_DEPENDENCIES",
    "TVOS_DEPLOYMENT_TARGET",
    "WATCHOS_DEPLOYMENT_TARGET",
];

const BINUTILS: &[&str] = &["COLLECT_NO_DEMANGLE", "GNUTARGET", "LDEMULATION", "LD_RUN_PATH", "POSIXLY_CORRECT"];

/// Lists of directories, which programs ask for by `getenv` and then search. The loader's own, such
/// as `LD_LIBRARY_PATH`, are not here.
const SEARCH_PATHS: &[&str] = &[
    "ACLOCAL_PATH",
    "CLASSPATH",
    "CMAKE_PREFIX_PATH",
    "COMPILER_PATH",
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "C_INCLUDE_PATH",
    "GOPATH",
    "INFOPATH",
    "LIBRARY_PATH",
    "LPATH",
    "MANPATH",
    "NODE_PATH",
    "OBJCPLUS_INCLUDE_PATH",
    "OBJC_INCLUDE_PATH",
    "PATH",
    "PERL5LIB",
    "PKG_CONFIG_LIBDIR",
    "PKG_CONFIG_PATH",
    "PYTHONPATH",
    "RUBYLIB",
    "XDG_CONFIG_DIRS",
    "XDG_DATA_DIRS",
];

/// Variables that gcc and clang ask for without any effect on the result: the directory of
/// temporary files, whose names are random anyway, settings of make, and `PWD`, which the Action
/// contains.
const CANNOT_REACH_RESULT: &[&str] = &["MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PWD", "TEMP", "TEMPDIR", "TMP", "TMPDIR"];

/// Variables that rustc itself asks for without any effect on the result: cargo's job server. A
/// procedural macro that asks for one makes it an observation
/// ([`larder_model::Habit::runs_code_of_builds`]).
const CANNOT_REACH_CRATE: &[&str] = &["CARGO_MAKEFLAGS"];

/// Does not include `COLUMNS`: `gcc --help=` wraps lines at that width even if the output is not a
/// terminal.
const FOR_TERMINALS: &[&str] = &["COLORTERM", "LINES", "TERM"];

/// Variables that the key of an unknown tool leaves out, because they differ between two equal
/// builds, or between two commands of one build.
const LEFT_OUT: &[&str] = &[
    // The working directory is in the key. The previous directory, the depth of shells and the last
    // command are history.
    "PWD",
    "OLDPWD",
    "SHLVL",
    "_",
    // make's own bookkeeping: file descriptors of pipes, levels, `-j`.
    "MAKEFLAGS",
    "MFLAGS",
    "MAKELEVEL",
    "MAKE_TERMOUT",
    "MAKE_TERMERR",
    "CARGO_MAKEFLAGS",
    "NINJA_STATUS",
    // Settings of caches, including larder. They decide which program does the work, not what the
    // result is.
    "LARDER_*",
    "CCACHE_*",
    "SCCACHE_*",
    // The login session: user, remote host, sockets.
    "DBUS_*",
    "GPG_*",
    "SSH_*",
    "XDG_SESSION_*",
    "TMUX",
    "TMUX_PANE",
    "STY",
    "WINDOWID",
    "TERM_SESSION_ID",
    // systemd's identifier of one start of a service.
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "SYSTEMD_EXEC_PID",
];

/// Variables of CI services, from their documentation: GitHub Actions, GitLab, Jenkins, Buildkite,
/// CircleCI, Azure Pipelines, Travis, Drone, Woodpecker, Bitbucket, AppVeyor, Cirrus, Semaphore and
/// TeamCity. `CI` itself is no such variable, because it is the same in all jobs.
const SERVICES: &[&str] = &[
    "ACTIONS_*",
    "AGENT_*",
    "APPVEYOR_*",
    "BITBUCKET_*",
    "BUILDKITE_*",
    "CHANGE_*",
    "CIRCLE_*",
    "CIRRUS_*",
    "CI_*",
    "DRONE_*",
    "GITHUB_*",
    "GITLAB_*",
    "HUDSON_*",
    "JENKINS_*",
    "JOB_*",
    "RUNNER_*",
    "SEMAPHORE_*",
    "SYSTEM_*",
    "TEAMCITY_*",
    "TRAVIS_*",
];

/// The variables of the same services that differ in each job or commit.
const DIFFER_BETWEEN_JOBS: &[&str] = &[
    "ACTIONS_*",
    "APPVEYOR_BUILD_*",
    "APPVEYOR_JOB_ID",
    "APPVEYOR_REPO_COMMIT*",
    "BITBUCKET_BUILD_NUMBER",
    "BITBUCKET_COMMIT",
    "BITBUCKET_PIPELINE_UUID",
    "BITBUCKET_STEP_*",
    "BUILDKITE_AGENT_*",
    "BUILDKITE_BUILD_*",
    "BUILDKITE_COMMIT",
    "BUILDKITE_JOB_ID",
    "BUILDKITE_MESSAGE",
    "BUILDKITE_STEP_ID",
    "BUILD_BUILDID",
    "BUILD_BUILDNUMBER",
    "BUILD_BUILDURI",
    "BUILD_DISPLAY_NAME",
    "BUILD_ID",
    "BUILD_NUMBER",
    "BUILD_SOURCEVERSION*",
    "BUILD_TAG",
    "BUILD_URL",
    "BUILD_VCS_NUMBER*",
    "CIRCLE_BUILD_*",
    "CIRCLE_PIPELINE_ID",
    "CIRCLE_SHA1",
    "CIRCLE_WORKFLOW_ID",
    "CIRCLE_WORKFLOW_JOB_ID",
    "CIRRUS_BUILD_ID",
    "CIRRUS_CHANGE_IN_REPO",
    "CIRRUS_TASK_ID",
    "CI_BUILD_*",
    "CI_COMMIT_AUTHOR",
    "CI_COMMIT_BEFORE_SHA",
    "CI_COMMIT_DESCRIPTION",
    "CI_COMMIT_MESSAGE",
    "CI_COMMIT_SHA",
    "CI_COMMIT_SHORT_SHA",
    "CI_COMMIT_TIMESTAMP",
    "CI_COMMIT_TITLE",
    "CI_CONCURRENT_*",
    "CI_DEPENDENCY_PROXY_PASSWORD",
    "CI_JOB_ID",
    "CI_JOB_JWT*",
    "CI_JOB_STARTED_AT",
    "CI_JOB_TOKEN",
    "CI_JOB_URL",
    "CI_PIPELINE_CREATED_AT",
    "CI_PIPELINE_ID",
    "CI_PIPELINE_IID",
    "CI_PIPELINE_NUMBER",
    "CI_PIPELINE_URL",
    "CI_REGISTRY_PASSWORD",
    "CI_RUNNER_*",
    "CI_STEP_*",
    "DRONE_BUILD_*",
    "DRONE_COMMIT*",
    "DRONE_STAGE_*",
    "DRONE_STEP_*",
    "EXECUTOR_NUMBER",
    "GITHUB_ACTION",
    "GITHUB_ENV",
    "GITHUB_OUTPUT",
    "GITHUB_PATH",
    "GITHUB_RUN_*",
    "GITHUB_SHA",
    "GITHUB_STATE",
    "GITHUB_STEP_SUMMARY",
    "GITHUB_TOKEN",
    "GITHUB_WORKFLOW_SHA",
    "GIT_COMMIT",
    "GIT_PREVIOUS_*",
    "HOSTNAME",
    "JENKINS_NODE_COOKIE",
    "JENKINS_SERVER_COOKIE",
    "NODE_NAME",
    "RUNNER_NAME",
    "RUNNER_TRACKING_ID",
    "SEMAPHORE_GIT_SHA",
    "SEMAPHORE_JOB_ID",
    "SEMAPHORE_WORKFLOW_ID",
    "SYSTEM_ACCESSTOKEN",
    "SYSTEM_JOBID",
    "SYSTEM_PLANID",
    "SYSTEM_TASKINSTANCEID",
    "SYSTEM_TIMELINEID",
    "TRAVIS_BUILD_ID",
    "TRAVIS_BUILD_NUMBER",
    "TRAVIS_COMMIT*",
    "TRAVIS_JOB_ID",
    "TRAVIS_JOB_NUMBER",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn names(family: Family, all: &[&str]) -> Vec<String> {
        let all: Vec<_> = all.iter().map(|name| (name.as_bytes().to_vec(), b"v".to_vec())).collect();
        let keyed = environment(family, &all);
        keyed.iter().map(|variable| String::from_utf8_lossy(&variable.name).into_owned()).collect()
    }

    const ALL: &[&str] = &[
        "TERM",
        "PATH",
        "LC_ALL",
        "LANG",
        "HOME",
        "PWD",
        "CPATH",
        "CCC_OVERRIDE_OPTIONS",
        "LD_PRELOAD",
        "TMPDIR",
        "LARDER_DIR",
        "MAKEFLAGS",
        "SHLVL",
        "_",
        "GCC_COLORS",
        "SSH_TTY",
        "COLLECT_GCC",
        "FOO",
        "SOURCE_DATE_EPOCH",
    ];

    #[test]
    fn lists() {
        let gcc = ["COLLECT_GCC", "CPATH", "GCC_COLORS", "LANG", "LC_ALL", "LD_PRELOAD", "PATH", "SOURCE_DATE_EPOCH"];
        assert_eq!(names(Family::Gcc, ALL), gcc);
        let clang = ["CCC_OVERRIDE_OPTIONS", "CPATH", "LANG", "LC_ALL", "LD_PRELOAD", "PATH", "SOURCE_DATE_EPOCH"];
        assert_eq!(names(Family::Clang, ALL), clang);
        let generic = [
            "CCC_OVERRIDE_OPTIONS",
            "COLLECT_GCC",
            "CPATH",
            "FOO",
            "GCC_COLORS",
            "HOME",
            "LANG",
            "LC_ALL",
            "LD_PRELOAD",
            "PATH",
            "SOURCE_DATE_EPOCH",
            "TERM",
            "TMPDIR",
        ];
        assert_eq!(names(Family::Generic, ALL), generic);
        let command: Vec<&str> = generic.into_iter().filter(|name| *name != "CPATH").collect();
        assert_eq!(names(Family::Command, ALL), command);
    }

    #[test]
    fn coverage() {
        let check = |family, name: &str, expect| {
            assert_eq!(getenv_is_covered(family, name.as_bytes()), expect, "{family:?} {name}");
        };
        for family in [Family::Gcc, Family::Clang] {
            for name in ["PATH", "LC_MESSAGES", "TMPDIR", "TEMP", "PWD", "CPATH"] {
                check(family, name, true);
            }
            for name in ["TERM", "HOME", "LARDER_DIR", "FOO", "", "PATHS", "GCC_ROOT"] {
                check(family, name, false);
            }
        }
        check(Family::Generic, "FOO", true);
        check(Family::Generic, "TMPDIR", true);
        check(Family::Generic, "PYTHONPATH", true);
        for name in ["PATH", "PYTHONPATH", "CPATH"] {
            check(Family::Command, name, false);
        }
        assert!(is_search_path_of_compilers(b"CPATH") && !is_search_path_of_compilers(b"PATH"));
        for name in ["PWD", "MAKEFLAGS", "LARDER_DIR", "CCACHE_DIR", "SSH_TTY"] {
            check(Family::Generic, name, false);
        }
    }

    #[test]
    fn terminals() {
        assert!(matters_on_terminal_only(Family::Gcc, b"TERM"));
        assert!(!matters_on_terminal_only(Family::Generic, b"TERM"));
        assert!(!matters_on_terminal_only(Family::Gcc, b"PATH"));
        assert!(!matters_on_terminal_only(Family::Gcc, b"COLUMNS"));
    }
}
