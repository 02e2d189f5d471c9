//! Tests of the plugin with real mounts, in a mount namespace of this process, so that nothing of
//! them is visible outside.
//!
//! `cargo test -p larder-csi --test node [NAME]`. Without the right to mount, everything is skipped
//! with a reason.

#[cfg(target_os = "linux")]
mod controller;
#[cfg(target_os = "linux")]
mod fixture;
#[cfg(target_os = "linux")]
mod killed;
#[cfg(target_os = "linux")]
mod sanity;
#[cfg(target_os = "linux")]
mod volumes;

#[cfg(target_os = "linux")]
fn main() {
    let wanted = std::env::args().nth(1).filter(|name| !name.starts_with('-'));
    if !larder_testkit::is_root() || !larder_testkit::can_mount() {
        return eprintln!("skipped: only root with the right to mount can be a node");
    }
    if let Err(error) = larder_sys::own_mounts() {
        return eprintln!("skipped: this process cannot have a mount namespace of its own: {error}");
    }
    let tests = [volumes::TESTS, killed::TESTS, sanity::TESTS].concat();
    let mut failed = Vec::new();
    for (name, test) in
        tests.into_iter().filter(|(name, _)| wanted.as_ref().is_none_or(|wanted| name.contains(wanted.as_str())))
    {
        let began = std::time::Instant::now();
        let done = std::panic::catch_unwind(test);
        println!("{} {name} {} ms", if done.is_ok() { "ok    " } else { "FAILED" }, began.elapsed().as_millis());
        failed.extend(done.is_err().then_some(name));
    }
    assert!(failed.is_empty(), "failed: {failed:?}");
}

#[cfg(not(target_os = "linux"))]
fn main() {}
