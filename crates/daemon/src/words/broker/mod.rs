//! `larderd broker`: mounting images for jobs that may not, by the superuser's own store.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | its socket, its state, when it ends |
//! | `supply.rs` | images of its store, and of remotes |

mod supply;

use std::fs;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use larder_mount::broker::{Broker, Policy};
use larder_sys::Door;

use super::PROBLEM;
use crate::cli::{BrokerOptions, BrokerWord};
use crate::say;
use crate::serve::given_socket;
use crate::surroundings::Surroundings;
use crate::units;

/// Do what was asked for.
pub(crate) fn run(around: &Surroundings, options: &BrokerOptions, out: &mut dyn Write) -> Result<u8> {
    match &options.word {
        Some(BrokerWord::Install(install)) => units::install_broker(around, options, install, out),
        None => serve(around, options),
    }
}

/// Serve until it is ended; what it mounted for processes that live stays.
fn serve(around: &Surroundings, options: &BrokerOptions) -> Result<u8> {
    if larder_sys::effective_user() != 0 {
        bail!("only the superuser can mount for others: see `larder broker install --print`");
    }
    let door = match given_socket()? {
        Some(socket) => Door::given(socket)?,
        None => door(&options.socket)?,
    };
    larder_sys::raise_descriptor_limit();
    larder_sys::keep_to_ourselves();
    std::env::set_current_dir("/")?;
    let store = around.store()?;
    let policy =
        Policy { users: options.user.clone(), targets: options.target.clone(), mounts_max: options.mounts_max };
    let gate = vec![std::env::current_exe().context("the file of larderd cannot be found")?.into(), "gate".into()];
    let supply = Box::new(supply::Images::open(around, &store)?);
    let says = Box::new(|what: &str| say::tell(&say::one_line(what)));
    let broker = Broker::new(&options.state, supply, policy, gate, says)?;
    // Nobody closes it: the process is ended.
    let (woken, _wake) = larder_sys::pipe()?;
    broker.serve(&door, woken.as_fd());
    Ok(PROBLEM)
}

/// Listen where everybody may connect: who it is the kernel says.
fn door(socket: &Path) -> Result<Door> {
    let what = || format!("{} cannot be listened at", socket.display());
    if let Some(directory) = socket.parent() {
        fs::create_dir_all(directory).with_context(what)?;
    }
    if std::os::unix::net::UnixStream::connect(socket).is_ok() {
        bail!("{}: a broker listens already", socket.display());
    }
    let _ = fs::remove_file(socket);
    let door = Door::open(socket).with_context(what)?;
    fs::set_permissions(socket, fs::Permissions::from_mode(0o666)).with_context(what)?;
    Ok(door)
}
