//! What can be typed about images.
//!
//! Unaware of: what is done then.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// What `image` takes.
#[derive(Args)]
pub(crate) struct Images {
    #[command(subcommand)]
    pub(crate) word: ImagesWord,
}

/// What is to be done with them.
#[derive(Subcommand)]
pub(crate) enum ImagesWord {
    /// Save paths under a key, in place of what was there; only what is new is sent
    Save(ImageSave),
    /// Mount an image's paths, to be written to; what is written goes with the mount
    Mount(ImageMount),
    /// Run a command for which alone an image's paths are mounted; needs no rights
    Run(ImageRun),
    /// Take mounts away, and what was written to them
    Unmount(ImageUnmount),
    /// Put an image's paths in place, as they were
    Restore(ImageRestore),
    /// Save what is in an archive, as made by tar, zip or mksquashfs, under a key
    Import(ImageImport),
    /// Mount a squashfs file that others made, to be written to; what is written goes with the mount
    Attach(ImageAttach),
    /// Write an image as an archive that others can read
    Export(ImageExport),
    /// List the images of the store, the newest first
    List(ImageList),
    /// Say what an image holds, and where it is
    Show(ImageShow),
    /// Forget keys in the store; remotes keep what they have
    Drop(ImageDrop),
    /// Mount for jobs that may not; `mount` starts one where it may
    #[command(hide = true)]
    Broker(ImageBroker),
    /// Answer for an image that is mounted by `lazy-fuse`; larderd starts it
    #[command(hide = true)]
    Serve(ImageServe),
}

/// Which way bytes may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// Only have what others saved
    Pull,
    /// Only save
    Push,
    /// Both
    Both,
}

/// Options of `image save`.
#[derive(Args)]
pub(crate) struct ImageSave {
    /// Under which key; see `larder help image`
    #[arg(long)]
    pub(crate) key: String,
    /// With `pull` nothing is saved
    #[arg(long, value_enum, default_value_t = Policy::Both)]
    pub(crate) policy: Policy,
    /// Let trouble with the cache be exit code 1
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Files or directories
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

/// Which image is wanted, of the words that have one again.
#[derive(Args, Clone)]
pub(crate) struct ImageWanted {
    /// Which key; see `larder help image`
    #[arg(long)]
    pub(crate) key: String,
    /// Where that is not there, the newest whose key begins so; may be given several times, the first that there is one
    /// for wins
    #[arg(long, value_name = "BEGINNING")]
    pub(crate) fallback: Vec<String>,
}

/// Options of `image restore`.
#[derive(Args)]
pub(crate) struct ImageRestore {
    #[command(flatten)]
    pub(crate) wanted: ImageWanted,
    /// With `push` nothing is restored, with `pull` nothing is saved
    #[arg(long, value_enum, default_value_t = Policy::Both)]
    pub(crate) policy: Policy,
    /// Replace what is there, once all that comes in its place is
    #[arg(long)]
    pub(crate) replace: bool,
    /// Where the key is not there, run this by `sh -c` (after a fallback was restored), and save the paths under the
    /// key
    #[arg(long, value_name = "RUN", requires = "paths")]
    pub(crate) if_missing: Option<String>,
    /// Without PATH: also outside of the working directory, and in a `.git`
    #[arg(long)]
    pub(crate) anywhere: bool,
    /// Keep set-user-id, set-group-id and capabilities of what is unpacked; a mount has none
    #[arg(long)]
    pub(crate) keep_rights: bool,
    /// Let trouble with the cache be exit code 1
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Which of the saved paths; without, all; an image of one path goes to any path
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

/// By which way an image is to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Via {
    /// Mounted, its files' bytes fetched when they are first touched
    Lazy,
    /// Mounted, once all of it is here
    Mount,
    /// The same as `lazy` by larder's own FUSE server, which needs no rights where a command runs among mounts of its own
    LazyFuse,
    /// Mounted as a squashfs file, which is made by `mksquashfs` first
    Squashfs,
    /// The same by squashfuse, which needs no rights where a command runs among mounts of its own
    Fuse,
    /// As `restore` does
    Unpack,
}

/// Options of `image mount`.
#[derive(Args)]
pub(crate) struct ImageMount {
    /// By this way or not at all; without, the first of these that works here
    #[arg(long, value_enum)]
    pub(crate) via: Option<Via>,
    /// Until this process ends, instead of until it is unmounted
    #[arg(long = "for", value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub(crate) process: Option<u32>,
    #[command(flatten)]
    pub(crate) how: ImageRestore,
}

/// Options of `image run`.
#[derive(Args)]
pub(crate) struct ImageRun {
    #[command(flatten)]
    pub(crate) wanted: ImageWanted,
    /// With `push` nothing is mounted, with `pull` nothing is saved
    #[arg(long, value_enum, default_value_t = Policy::Both)]
    pub(crate) policy: Policy,
    /// By this way or not at all; without, the first that works here: lazy, mount, fuse, unpack
    #[arg(long, value_enum)]
    pub(crate) via: Option<Via>,
    /// Where the key is not there, run this by `sh -c` first, and save the paths under the key; its output goes to
    /// standard error, it reads nothing, and a fallback is not put in place for it
    #[arg(long, value_name = "RUN", requires = "paths")]
    pub(crate) if_missing: Option<String>,
    /// Let trouble with the cache be exit code 1; the command does not run then
    #[arg(long)]
    pub(crate) strict: bool,
    /// Replace what is there, where it can only be unpacked; a mount covers it
    #[arg(long)]
    pub(crate) replace: bool,
    /// Without PATH: also outside of the working directory, and in a `.git`
    #[arg(long)]
    pub(crate) anywhere: bool,
    /// What was found is to be mounted now
    #[arg(long, hide = true)]
    pub(crate) inside: bool,
    /// Which of the saved paths; without, all; an image of one path goes to any path
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// What is run; its exit code is that of this
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Options of `image unmount`.
#[derive(Args)]
pub(crate) struct ImageUnmount {
    /// Let trouble be exit code 1
    #[arg(long)]
    pub(crate) strict: bool,
    /// Where images are mounted
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

/// Options of `image serve`.
#[derive(Args)]
pub(crate) struct ImageServe {
    /// The store whose images are served
    #[arg(long, value_name = "DIR")]
    pub(crate) store: PathBuf,
}

/// Options of `image broker`.
#[derive(Args)]
pub(crate) struct ImageBroker {
    /// Listen here instead of in the store
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Serve only this user; may be given several times
    #[arg(long, value_name = "NUMBER")]
    pub(crate) user: Vec<u32>,
    /// Where everybody sees it, mount only on and below this directory; may be given several times
    #[arg(long, value_name = "DIR")]
    pub(crate) target: Vec<PathBuf>,
    /// Mount so many images for one user at most; 0 for any number
    #[arg(long, value_name = "NUMBER", default_value_t = 256)]
    pub(crate) mounts_max: usize,
    /// End when nothing was mounted for so many seconds; 0 to stay
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub(crate) idle: u64,
}

/// Options of `image import`.
#[derive(Args)]
pub(crate) struct ImageImport {
    /// Under which key; see `larder help image`
    #[arg(long)]
    pub(crate) key: String,
    /// All of the archive is one path of this name; without, each name at its top is a path
    #[arg(long, value_name = "NAME")]
    pub(crate) r#as: Option<PathBuf>,
    /// Keep set-user-id, set-group-id and capabilities
    #[arg(long)]
    pub(crate) keep_rights: bool,
    /// Let trouble with the cache be exit code 1; an archive that cannot be read always is
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// A file that ends in .tar, .tar.zst, .tar.lz4, .tar.gz, .zip or .squashfs
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// By which way a file that others made is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ViaFile {
    /// By squashfuse, which needs no rights where a command runs among mounts of its own
    Fuse,
    /// By the kernel, for root; it believes what is in the file
    Squashfs,
}

/// Options of `image attach`.
#[derive(Args)]
pub(crate) struct ImageAttach {
    /// By this way
    #[arg(long, value_enum, default_value_t = ViaFile::Fuse)]
    pub(crate) via: ViaFile,
    /// As mksquashfs makes it
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// An empty directory, or a name for one
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Mount it for this command and what it starts, and for nobody else; without, until `unmount`
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Options of `image export`.
#[derive(Args)]
pub(crate) struct ImageExport {
    #[command(flatten)]
    pub(crate) wanted: ImageWanted,
    /// Let trouble with the cache be exit code 1; a file that cannot be written always is
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// A file that ends in .tar, .tar.zst, .tar.lz4, .tar.gz, .zip or .squashfs; it is replaced
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Which of the saved paths; without, all
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

/// Options of `image list`.
#[derive(Args)]
pub(crate) struct ImageList {
    /// What is mounted instead: where, from which image, by which way
    #[arg(long)]
    pub(crate) mounted: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Only keys that begin so
    #[arg(value_name = "BEGINNING")]
    pub(crate) prefix: Option<String>,
}

/// Options of `image show`.
#[derive(Args)]
pub(crate) struct ImageShow {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Which
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
}

/// Options of `image drop`.
#[derive(Args)]
pub(crate) struct ImageDrop {
    /// Which
    #[arg(required = true, value_name = "KEY")]
    pub(crate) keys: Vec<String>,
}
