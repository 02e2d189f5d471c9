//! Whether a tool can be observed here: what it takes, and one real run.

use larder_lookup::find;
use larder_observe::{KernelObserver, Observer, PreloadObserver, Program, judge};
use larder_spawn::{Command, Destinations};
use larder_sys::ChildEnd;

use super::{Check, note, ok, problem};
use crate::surroundings::{Surroundings, nobody};

pub(super) fn checks(around: &Surroundings) -> Vec<Check> {
    vec![proc_is_there(), memory_files(), preload(around), kernel()]
}

fn proc_is_there() -> Check {
    match std::fs::read_link("/proc/self/exe") {
        Ok(_) => ok("/proc", "there"),
        Err(error) => {
            problem("/proc", format!("{error}: nothing can be observed without it: mount it in this container"))
        }
    }
}

fn memory_files() -> Check {
    match larder_sys::memory_file("larder-doctor", true) {
        Ok(_) => ok("memory files", "can be made (memfd)"),
        Err(error) => {
            problem("memory files", format!("{error}: nothing can be observed without them: allow memfd_create"))
        }
    }
}

/// Tries what the kernel observer needs.
fn kernel() -> Check {
    const WHAT: &str = "kernel asks";
    match KernelObserver::try_out() {
        Ok(()) => ok(WHAT, "larder is asked about system calls, and can look into processes"),
        Err(error) => note(
            WHAT,
            format!(
                "{error}: static programs and most whole commands are not cached, and parts of compilers are known by name"
            ),
        ),
    }
}

/// Run `true`, which everybody has, as a compiler would be run.
fn preload(around: &Surroundings) -> Check {
    const WHAT: &str = "preload";
    let path = Some(&b"/bin:/usr/bin:/run/current-system/sw/bin"[..]);
    let Some(tool) = find(b"true", path, &nobody(), false) else {
        return note(WHAT, "not tried: there is no /bin/true");
    };
    if judge(&tool.path).0 == Program::NotPreloadable {
        return note(WHAT, "not tried: /bin/true is no dynamically linked program of this machine");
    }
    let observer = match PreloadObserver::new() {
        Ok(observer) => observer,
        Err(error) => {
            return problem(WHAT, format!("cannot be set up ({error}): /proc and memfd_create must be allowed"));
        }
    };
    let environment = around.environment.iter().map(|(name, value)| [name, &b"="[..], value].concat()).collect();
    let command = Command::new(tool.path, vec![b"true".to_vec()], environment);
    match observer.run(&command, &Destinations::now(), None) {
        Err(error) => problem(WHAT, format!("an observed program cannot be started: {error}")),
        Ok(observed) if observed.finished.end != ChildEnd::Exited(0) => {
            let how = format!("{:?}", observed.finished.end);
            problem(WHAT, format!("/bin/true fails when it is observed ({how}): set LARDER_DISABLE=1, and report this"))
        }
        Ok(observed) if observed.trace.incomplete || observed.trace.iter().next().is_none() => {
            problem(WHAT, "an observed program ran, and nothing was seen: is LD_PRELOAD ignored or filtered here?")
        }
        Ok(observed) => {
            ok(WHAT, format!("an observed run of /bin/true was seen ({} events)", observed.trace.iter().count()))
        }
    }
}
