//! Command-line options of `image`.
//!
//! Unaware of: what the subcommands do.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use larder_mount::Backend;

/// Arguments of `image`.
#[derive(Args)]
pub(crate) struct Images {
    #[command(subcommand)]
    pub(crate) word: ImagesWord,
}

/// Subcommands of `image`.
#[derive(Subcommand)]
pub(crate) enum ImagesWord {
    /// Save paths under a key, replacing any earlier image of that key; only new contents are
    /// uploaded
    Save(ImageSave),
    /// Mount an image's paths writable; writes are lost when the mount ends
    Mount(ImageMount),
    /// Run a command that alone sees an image's paths mounted; needs no privileges
    Run(ImageRun),
    /// Unmount images, discarding what was written to the mounts
    Unmount(ImageUnmount),
    /// Unpack an image's paths as they were saved
    Restore(ImageRestore),
    /// Save the contents of an archive made by tar, zip or mksquashfs under a key
    Import(ImageImport),
    /// Mount a squashfs file from elsewhere, writable; writes are lost when the mount ends
    Attach(ImageAttach),
    /// Write an image as an archive that other programs can read
    Export(ImageExport),
    /// List the images of the store, the newest first
    List(ImageList),
    /// Show what an image holds and where it is stored
    Show(ImageShow),
    /// Remove keys from the store; remotes keep their copies
    Drop(ImageDrop),
    #[command(flatten)]
    Preset(Preset),
    /// Mount images for jobs without the rights to do so; `mount` starts a broker if it is allowed
    /// to
    #[command(hide = true)]
    Broker(ImageBroker),
    /// Find an image for a program that asks a broker for it; larder-csi starts it
    #[command(hide = true)]
    Locate(ImageLocate),
    /// Fetch an image for a broker, without rights; larderd starts it
    #[command(hide = true)]
    Fetch(ImageFetch),
    /// Serve an image that is mounted by `lazy-fuse`; larderd starts it
    #[command(hide = true)]
    Serve(ImageServe),
}

/// Subcommands that know the lock files, paths and install command of a package manager.
#[derive(Subcommand)]
pub(crate) enum Preset {
    /// Keep `node_modules` of npm, by package-lock.json
    Npm(ImagePreset),
    /// Keep `node_modules` of pnpm, by pnpm-lock.yaml
    Pnpm(ImagePreset),
    /// Keep `node_modules` of yarn, or what Plug'n'Play uses, by yarn.lock
    Yarn(ImagePreset),
    /// Keep a virtual environment `.venv` of pip, by requirements.txt
    Pip(ImagePreset),
    /// Keep the virtual environment `.venv` of uv, by uv.lock
    Uv(ImagePreset),
    /// Keep a virtual environment `.venv` of poetry, by poetry.lock
    Poetry(ImagePreset),
    /// Keep the crates that cargo downloaded, by Cargo.lock
    Cargo(ImagePreset),
    /// Keep the modules that go downloaded, by go.sum
    Go(ImagePreset),
    /// Keep Gradle's caches, by the build scripts
    Gradle(ImagePreset),
    /// Keep Maven's local repository, by pom.xml
    Maven(ImagePreset),
    /// Keep the gems of bundler in vendor/bundle, by Gemfile.lock
    Bundler(ImagePreset),
    /// Keep `vendor` of composer, by composer.lock
    Composer(ImagePreset),
}

/// Options of the subcommands for package managers.
#[derive(Args)]
pub(crate) struct ImagePreset {
    /// Run this with `sh -c` if the key does not exist, instead of the usual command
    #[arg(long, value_name = "RUN")]
    pub(crate) install: Option<String>,
    /// Add this text to the key, for example to begin anew
    #[arg(long, value_name = "TEXT")]
    pub(crate) key_suffix: Option<String>,
    /// With `push` nothing is restored, with `pull` nothing is saved
    #[arg(long, value_enum, default_value_t = Policy::Both)]
    pub(crate) policy: Policy,
    /// Replace a cache of the whole account, such as `~/.m2/repository`, if it exists; what lies in
    /// the project is always replaced
    #[arg(long)]
    pub(crate) replace: bool,
    /// With COMMAND: use only this method to provide the files
    #[arg(long, value_parser = backend(), requires = "command")]
    pub(crate) via: Option<Backend>,
    /// Exit with code 1 if the cache has a problem
    #[arg(long)]
    pub(crate) strict: bool,
    /// Only print the command `larder image restore` or `larder image run` that this stands for
    #[arg(long)]
    pub(crate) print: bool,
    /// Run this with the files mounted, as `image run` does; without it, unpack the files
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// The allowed directions of transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// Only use images that others saved
    Pull,
    /// Only save images
    Push,
    /// Use and save images
    Both,
}

/// Options of `image save`.
#[derive(Args)]
pub(crate) struct ImageSave {
    /// The key; see `larder help image`
    #[arg(long)]
    pub(crate) key: String,
    /// With `pull` nothing is saved
    #[arg(long, value_enum, default_value_t = Policy::Both)]
    pub(crate) policy: Policy,
    /// Exit with code 1 if the cache has a problem
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Files or directories
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

/// The image that a subcommand asks for.
#[derive(Args, Clone)]
pub(crate) struct ImageWanted {
    /// The key; see `larder help image`
    #[arg(long)]
    pub(crate) key: String,
    /// If the key does not exist, take the newest image whose key starts with this; may be
    /// repeated, the first prefix with an image is taken
    #[arg(long, value_name = "BEGINNING")]
    pub(crate) fallback: Vec<String>,
}

/// Options of `image locate`.
#[derive(Args)]
pub(crate) struct ImageLocate {
    #[command(flatten)]
    pub(crate) wanted: ImageWanted,
    /// The saved path that is wanted; may be left out if the image has a single path
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<PathBuf>,
}

/// Options of `image restore`.
#[derive(Args)]
pub(crate) struct ImageRestore {
    #[command(flatten)]
    pub(crate) wanted: ImageWanted,
    /// With `push` nothing is restored, with `pull` nothing is saved
    #[arg(long, value_enum, default_value_t = Policy::Both)]
    pub(crate) policy: Policy,
    /// Replace what exists at the paths, after the new contents are complete
    #[arg(long)]
    pub(crate) replace: bool,
    /// If the key does not exist, run this with `sh -c` (after a fallback was restored), and save
    /// the paths under the key
    #[arg(long, value_name = "RUN", requires = "paths")]
    pub(crate) if_missing: Option<String>,
    /// Without PATH: also restore paths outside of the working directory or in a `.git`
    #[arg(long)]
    pub(crate) anywhere: bool,
    /// Keep set-user-id bits, set-group-id bits and capabilities when unpacking; mounts never have
    /// them
    #[arg(long)]
    pub(crate) keep_rights: bool,
    /// Exit with code 1 if the cache has a problem
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// The saved paths to take, by default all; an image of a single path can go to any path
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

/// Parses the name of a mount method. The help lists the methods.
fn backend() -> impl TypedValueParser<Value = Backend> {
    let value = |backend: Backend| {
        PossibleValue::new(backend.word()).help(match backend {
            Backend::Lazy => "Mounted; the contents of a file are fetched on first access",
            Backend::Mount => "Mounted after the whole image was fetched",
            Backend::LazyFuse => {
                "Like `lazy`, with larder's own FUSE server; needs no privileges if a command runs in its own mount \
                 namespace"
            }
            Backend::Squashfs => "Mounted as a squashfs file, which `mksquashfs` makes first",
            Backend::Fuse => {
                "Like `squashfs`, with squashfuse; needs no privileges if a command runs in its own mount namespace"
            }
            Backend::Unpack => "Unpacked, as `restore` does",
        })
    };
    PossibleValuesParser::new(Backend::ALL.map(value)).try_map(|word| word.parse::<Backend>())
}

/// Options of `image mount`.
#[derive(Args)]
pub(crate) struct ImageMount {
    /// Use only this method; by default, the first of the list that works here
    #[arg(long, value_parser = backend())]
    pub(crate) via: Option<Backend>,
    /// Unmount when this process ends, instead of at `unmount`
    #[arg(long = "for", value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub(crate) process: Option<u32>,
    #[command(flatten)]
    pub(crate) how: ImageRestore,
}

/// Options of `image run`.
#[derive(Args, Clone)]
pub(crate) struct ImageRun {
    #[command(flatten)]
    pub(crate) wanted: ImageWanted,
    /// With `push` nothing is mounted, with `pull` nothing is saved
    #[arg(long, value_enum, default_value_t = Policy::Both)]
    pub(crate) policy: Policy,
    /// Use only this method; by default, the first that works here of lazy, mount, fuse, unpack
    #[arg(long, value_parser = backend())]
    pub(crate) via: Option<Backend>,
    /// If the key does not exist, run this with `sh -c` first, and save the paths under the key;
    /// its output goes to standard error, its input is empty, and no fallback is restored before it
    #[arg(long, value_name = "RUN", requires = "paths")]
    pub(crate) if_missing: Option<String>,
    /// If the cache has a problem, exit with code 1 and do not run the command
    #[arg(long)]
    pub(crate) strict: bool,
    /// Replace what exists at the paths if the image can only be unpacked; a mount covers it
    /// instead
    #[arg(long)]
    pub(crate) replace: bool,
    /// Without PATH: also use paths outside of the working directory or in a `.git`
    #[arg(long)]
    pub(crate) anywhere: bool,
    /// Mount the image that was found; internal
    #[arg(long, hide = true)]
    pub(crate) inside: bool,
    /// The saved paths to take, by default all; an image of a single path can go to any path
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// The command to run; its exit code is returned
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Options of `image unmount`.
#[derive(Args)]
pub(crate) struct ImageUnmount {
    /// Exit with code 1 if there is a problem
    #[arg(long)]
    pub(crate) strict: bool,
    /// The paths on which images are mounted
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

/// The memory that a process without rights may use, in MiB. The largest tree takes 6 GiB.
pub(crate) const FETCHER_MEMORY_MIB: u64 = 7 << 10;

/// The limits that larderd sets for a process without rights.
#[derive(Args, Clone, Copy)]
pub(crate) struct Limits {
    /// The limit of its memory, in MiB
    #[arg(long = "memory", value_name = "MIB", default_value_t = FETCHER_MEMORY_MIB)]
    pub(crate) memory_mib: u64,
    /// Stay user 0, without its rights, if files cannot be shown with another owner
    #[arg(long = "user-0")]
    pub(crate) may_keep_user: bool,
}

/// Options of `image fetch`.
#[derive(Args)]
pub(crate) struct ImageFetch {
    /// The store of the broker
    #[arg(long, value_name = "DIR")]
    pub(crate) store: PathBuf,
    #[command(flatten)]
    pub(crate) limits: Limits,
    /// Evict instead, and write the images of which only files for mounts are left to standard
    /// output
    #[arg(long)]
    pub(crate) evict: bool,
    /// The image, as a job asked the broker for it
    #[arg(value_name = "NAME", default_value = "")]
    pub(crate) name: String,
}

/// Options of `image serve`.
#[derive(Args)]
pub(crate) struct ImageServe {
    /// The store whose images are served
    #[arg(long, value_name = "DIR")]
    pub(crate) store: PathBuf,
    /// Give up all rights before anything is read
    #[arg(long)]
    pub(crate) confined: bool,
    #[command(flatten)]
    pub(crate) limits: Limits,
}

/// Options of `image broker`.
#[derive(Args)]
pub(crate) struct ImageBroker {
    /// Listen on this socket instead of the one in the store
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Serve only this user ID; may be repeated
    #[arg(long, value_name = "NUMBER")]
    pub(crate) user: Vec<u32>,
    /// Mount only on and below this directory if the mount is visible machine-wide; may be repeated
    #[arg(long, value_name = "DIR")]
    pub(crate) target: Vec<PathBuf>,
    /// The largest number of mounts for one user; 0 for no limit
    #[arg(long, value_name = "NUMBER", default_value_t = larder_mount::broker::MOUNTS_MAX)]
    pub(crate) mounts_max: usize,
    /// The memory that each process may use which fetches and decodes an image, in MiB
    #[arg(long, value_name = "MIB", default_value_t = FETCHER_MEMORY_MIB)]
    pub(crate) fetcher_memory: u64,
    /// Let these processes stay user 0, without its rights, if the kernel or the store's file system
    /// has no ID-mapped mounts
    #[arg(long)]
    pub(crate) fetcher_user_0: bool,
    /// Exit after this many seconds without any mount; 0 to stay
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub(crate) idle: u64,
}

/// Options of `image import`.
#[derive(Args)]
pub(crate) struct ImageImport {
    /// The key; see `larder help image`
    #[arg(long)]
    pub(crate) key: String,
    /// Save the whole archive as one path of this name; by default, each top-level name is a path
    #[arg(long, value_name = "NAME")]
    pub(crate) r#as: Option<PathBuf>,
    /// Keep set-user-id, set-group-id and capabilities
    #[arg(long)]
    pub(crate) keep_rights: bool,
    /// Exit with code 1 if the cache has a problem; an unreadable archive always does
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// A file whose name ends in .tar, .tar.zst, .tar.lz4, .tar.gz, .zip or .squashfs
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// The method by which a squashfs file from elsewhere is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ViaFile {
    /// With squashfuse, which needs no privileges if a command runs in its own mount namespace
    Fuse,
    /// With the kernel's squashfs, for root; the kernel trusts the contents of the file
    Squashfs,
}

/// Options of `image attach`.
#[derive(Args)]
pub(crate) struct ImageAttach {
    /// The mount method
    #[arg(long, value_enum, default_value_t = ViaFile::Fuse)]
    pub(crate) via: ViaFile,
    /// A squashfs file, as made by mksquashfs
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// An empty directory, or a path at which one is created
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Mount it only for this command and its children; without a command, until `unmount`
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Options of `image export`.
#[derive(Args)]
pub(crate) struct ImageExport {
    #[command(flatten)]
    pub(crate) wanted: ImageWanted,
    /// Exit with code 1 if the cache has a problem; a file that cannot be written always does
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// A file whose name ends in .tar, .tar.zst, .tar.lz4, .tar.gz, .zip or .squashfs; it is
    /// replaced
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The saved paths to take; by default all
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

/// Options of `image list`.
#[derive(Args)]
pub(crate) struct ImageList {
    /// List mounts instead: the path, the image and the mount method of each
    #[arg(long)]
    pub(crate) mounted: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// List only keys that start with this
    #[arg(value_name = "BEGINNING")]
    pub(crate) prefix: Option<String>,
}

/// Options of `image show`.
#[derive(Args)]
pub(crate) struct ImageShow {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// The key
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
}

/// Options of `image drop`.
#[derive(Args)]
pub(crate) struct ImageDrop {
    /// The keys
    #[arg(required = true, value_name = "KEY")]
    pub(crate) keys: Vec<String>,
}
