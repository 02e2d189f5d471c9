//! `larder image`: saves and provides directories under keys.
//!
//! | file | does |
//! |---|---|
//! | `key.rs` | expands the templates of keys |
//! | `find.rs` | exact key, fallback or miss, in the store and on the remotes |
//! | `save.rs`, `restore.rs`, `mount.rs` | these subcommands |
//! | `archive.rs` | `import`, `export` |
//! | `attach.rs` | mounts existing squashfs files |
//! | `run.rs` | mounts for one command, even without privileges |
//! | `broker.rs`, `supply.rs` | mounting for others, and where a broker gets images from |
//! | `fetched.rs`, `fetcher.rs` | images for a broker of root, and the process without rights that fetches them |
//! | `fetch_request.rs` | what the two say to each other |
//! | `locate.rs` | finds an image for another program that asks a broker for it |
//! | `serve.rs` | the FUSE server of a mounted image |
//! | `trace.rs` | which parts of an image jobs read, stored with it |
//! | `show.rs` | `list`, `show`, `drop` |
//! | `remote_images.rs` | the client of remotes |
//! | `bar.rs` | the progress bar |
//! | `presets.rs` | keys, paths and install commands of package managers |
//! | `paths.rs` | paths of the command line, and names inside an image |
//! | `end.rs` | exit codes, errors, the growth of the store |
//! | `broker_socket.rs` | the socket of the broker that mounts for this user |
//!
//! Unaware of: how an image is made (`larder-image`).

mod archive;
mod attach;
mod bar;
mod broker;
mod broker_socket;
mod end;
mod fetch_request;
mod fetched;
mod fetcher;
mod find;
mod key;
mod locate;
mod mount;
mod paths;
mod presets;
mod remote_images;
mod restore;
mod run;
mod save;
mod serve;
mod show;
mod supply;
mod trace;

pub(super) use broker_socket::SOCKET as BROKER_SOCKET;
pub(super) use run::own_mounts;

use std::io::Write;

use anyhow::Result;

use super::FINE;
use crate::cli::{Images, ImagesWord};
use crate::surroundings::Surroundings;

/// Runs the subcommand.
pub(crate) fn run(around: &Surroundings, options: &Images, out: &mut dyn Write) -> Result<u8> {
    // A broker decodes no records. Its fetchers do this.
    if !matches!(options.word, ImagesWord::Broker(_) | ImagesWord::Fetch(_) | ImagesWord::Serve(_)) {
        find::drop_untrusted(around);
    }
    match &options.word {
        ImagesWord::Save(options) => save::run(around, options, out),
        ImagesWord::Mount(options) => mount::run(around, options, out),
        ImagesWord::Run(options) => run::run(around, options),
        ImagesWord::Unmount(options) => mount::unmount(around, options, out),
        ImagesWord::Broker(options) => broker::run(around, options),
        ImagesWord::Fetch(options) => fetcher::run(around, options),
        ImagesWord::Serve(options) => serve::run(around, options),
        ImagesWord::Locate(options) => locate::run(around, options, out),
        ImagesWord::Restore(options) => restore::run(around, options, out),
        ImagesWord::Attach(options) => attach::run(around, options, out),
        ImagesWord::Import(options) => archive::import(around, options, out),
        ImagesWord::Export(options) => archive::export(around, options, out),
        ImagesWord::List(options) => show::list(around, options, out),
        ImagesWord::Show(options) => show::show(around, options, out),
        ImagesWord::Drop(options) => show::forget(around, options, out),
        ImagesWord::Preset(preset) => presets::run(around, preset, out),
    }
}
