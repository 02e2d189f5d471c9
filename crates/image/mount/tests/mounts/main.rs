//! Tests with real mounts, in a mount namespace of this process, so that nothing of them is visible
//! outside. There is a main function instead of the usual test harness, because some tests start
//! this program again in another role: as a gate, a filler, a broker or a job.
//!
//! `cargo test -p larder-mount --test mounts [NAME]`. Without the right to mount, everything is
//! skipped with a reason.

#[cfg(target_os = "linux")]
mod backends;
#[cfg(target_os = "linux")]
mod broker;
#[cfg(target_os = "linux")]
mod confined;
#[cfg(target_os = "linux")]
mod fixture;
#[cfg(target_os = "linux")]
mod hang;
#[cfg(target_os = "linux")]
mod killed;
#[cfg(target_os = "linux")]
mod lazy;
#[cfg(target_os = "linux")]
mod older;
#[cfg(target_os = "linux")]
mod served;
#[cfg(target_os = "linux")]
mod state;

#[cfg(target_os = "linux")]
fn main() {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next();
    if let Some(role) = first.as_deref().and_then(|name| name.strip_prefix("role-")) {
        return roles(role, arguments.collect());
    }
    if let Err(error) = larder_sys::own_mounts() {
        eprintln!("skipped: this process cannot have a mount namespace of its own: {error}");
        return;
    }
    let tests = [
        backends::TESTS,
        state::TESTS,
        lazy::TESTS,
        killed::TESTS,
        served::TESTS,
        broker::TESTS,
        older::TESTS,
        confined::TESTS,
    ]
    .concat();
    let wanted = first.filter(|name| !name.starts_with('-'));
    run(tests.into_iter().filter(|(name, _)| wanted.as_ref().is_none_or(|wanted| name.contains(wanted.as_str()))));
}

/// Runs the tests to their end, and panics if one of them failed.
#[cfg(target_os = "linux")]
fn run(tests: impl Iterator<Item = fixture::Test>) {
    let mut failed = Vec::new();
    for (name, test) in tests {
        let began = std::time::Instant::now();
        let done = std::panic::catch_unwind(test);
        println!("{} {name} {} ms", if done.is_ok() { "ok    " } else { "FAILED" }, began.elapsed().as_millis());
        failed.extend(done.is_err().then_some(name));
    }
    assert!(failed.is_empty(), "failed: {failed:?}");
}

/// Runs the role that a test has started this program for.
#[cfg(target_os = "linux")]
fn roles(role: &str, arguments: Vec<String>) {
    match role {
        "ask" => broker::ask_and_wait(&arguments),
        "place" => broker::place_and_wait(&arguments),
        "unmount" => broker::unmount(&arguments),
        "list" => broker::list(&arguments),
        "nest" => broker::nest(&arguments),
        "drip" => broker::drip(&arguments),
        "broker" => broker::be_broker(&arguments),
        "confined" => confined::try_everything(&arguments),
        "gate" => lazy::be_gate(&arguments),
        "fill" => lazy::fill_and_wait(&arguments),
        "attack" => lazy::attack(&arguments),
        "serve" => served::be_server(),
        "serve-and-wait" => served::serve_and_wait(&arguments),
        "mount" => state::mount_and_wait(&arguments),
        "rungs" => older::tell_rungs(),
        "tests" => older::run_groups(&arguments),
        _ => panic!("no such role: {role}"),
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("skipped: mounting is only supported on Linux");
}
