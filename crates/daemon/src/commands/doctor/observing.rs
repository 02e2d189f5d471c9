//! Checks whether a tool can be observed here: the kernel features that this needs, and one real
//! run.

use larder_lookup::find;
use larder_observe::{KernelObserver, Observer, PreloadObserver, Program, inspect_program};
use larder_spawn::{Command, Destinations};
use larder_sys::ChildEnd;

use super::check::{Check, note, ok, problem};
use crate::surroundings::{Surroundings, nobody};

pub(super) fn checks(around: &Surroundings) -> Vec<Check> {
    vec![proc_is_there(), memory_files(), calls(), preload(around), kernel()]
}

fn proc_is_there() -> Check {
    match std::fs::read_link("/proc/self/exe") {
        Ok(_) => ok("/proc", "mounted"),
        Err(error) => {
            problem("/proc", format!("{error}: no tool can be observed without it: mount it in this container"))
        }
    }
}

fn memory_files() -> Check {
    match larder_sys::memory_file("larder-doctor", true) {
        Ok(_) => ok("memory files", "can be created (memfd)"),
        Err(error) => {
            problem("memory files", format!("{error}: no tool can be observed without them: allow memfd_create"))
        }
    }
}

/// Names the system calls that are refused here and that larder can do without.
fn calls() -> Check {
    const WHAT: &str = "system calls";
    match larder_sys::refused_calls() {
        none if none.is_empty() => ok(WHAT, "all that larder uses are allowed"),
        refused => note(
            WHAT,
            format!(
                "refused here: {}. larder works without them; docs/platforms.md says how, and what is lost",
                refused.join(", ")
            ),
        ),
    }
}

/// Checks what the kernel observer needs.
fn kernel() -> Check {
    const WHAT: &str = "kernel asks";
    match KernelObserver::try_out() {
        Ok(()) => ok(WHAT, "larder can intercept system calls and read the memory of processes"),
        Err(error) => note(
            WHAT,
            format!(
                "{error}: static programs and most whole commands are not cached, and parts of compilers are identified by path"
            ),
        ),
    }
}

/// Runs `true`, which every system has, as a compiler would be run.
fn preload(around: &Surroundings) -> Check {
    const WHAT: &str = "preload";
    let path = Some(&b"/bin:/usr/bin:/run/current-system/sw/bin"[..]);
    let Some(tool) = find(b"true", path, &nobody(), false) else {
        return note(WHAT, "not tested: there is no /bin/true");
    };
    if inspect_program(&tool.path).0 == Program::NotPreloadable {
        return note(WHAT, "not tested: /bin/true is not a dynamically linked program for this machine");
    }
    let observer = match PreloadObserver::new() {
        Ok(observer) => observer,
        Err(error) => {
            return problem(WHAT, format!("cannot be set up ({error}): /proc and memfd_create must be allowed"));
        }
    };
    let command = Command::new(tool.path, vec![b"true".to_vec()], around.block());
    match observer.run(&command, &Destinations::now(), None) {
        Err(error) => problem(WHAT, format!("an observed program cannot be started: {error}")),
        Ok(observed) if observed.finished.end != ChildEnd::Exited(0) => {
            let how = format!("{:?}", observed.finished.end);
            problem(WHAT, format!("/bin/true fails when it is observed ({how}): set LARDER_DISABLE=1, and report this"))
        }
        Ok(observed) if observed.trace.incomplete || observed.trace.iter().next().is_none() => problem(
            WHAT,
            "an observed program ran, but no access was recorded: is LD_PRELOAD ignored or filtered here?",
        ),
        Ok(observed) => {
            ok(WHAT, format!("an observed run of /bin/true was recorded ({} events)", observed.trace.iter().count()))
        }
    }
}
