//! Chooses the observer for a tool: the cheapest one that sees everything the tool does, or the one
//! that the settings ask for. Also makes the keys under which verdicts are stored. A verdict
//! (`Judgement`) says whether the preloaded library sees all that a program does; it comes from a
//! run that the kernel observer watched as well.

use larder_compiler::{Family, Stage, depfile_plan, environment_of_libc, is_compiler_part, load_plugins};
use larder_model::path::{ending, file_name, is_in, without_slashes};
use larder_model::{Bypass, DepfilePlan, Digest, Judgement, Observer, Writer};
use larder_observe::{Program, inspect_program};
use larder_store::{StatCache, Store};

use crate::request::FromDisk;
use crate::{Abilities, Place, Request, rust};

/// The observer for a request.
pub enum Choice {
    /// The preloaded library.
    Preload,
    /// The kernel observer.
    Kernel,
    /// Both at once, so that the kernel observer's trace shows whether the library misses anything.
    Both,
    /// The preloaded library, and the kernel observer for some processes of each program that has
    /// no verdict yet.
    Samples,
    /// The depfile that the compiler writes, by this plan.
    Depfile(Box<DepfilePlan>),
}

impl Choice {
    /// Returns the observer that goes into the record.
    pub fn name(&self) -> Observer {
        match self {
            Choice::Preload | Choice::Both | Choice::Samples => Observer::Preload,
            Choice::Kernel => Observer::Kernel,
            Choice::Depfile(_) => Observer::Depfile,
        }
    }
}

/// Chooses the observer for `request` among those that work here. `forced` is the setting.
pub fn choose_observer(
    request: &Request,
    place: &Place,
    (store, stat_cache): (&Store, &StatCache),
    forced: Option<Observer>,
    abilities: &Abilities,
) -> Result<Choice, Bypass> {
    // The library's log would not fit, because it is mapped into each process of the tool.
    let limited = larder_sys::address_space_is_limited();
    let preload_works = || match inspect_program(&request.command.program).0 {
        Program::Dynamic { loader } => abilities.preload(&loader),
        Program::NotPreloadable => false,
    };
    match forced {
        Some(Observer::Preload) if limited => Err(Bypass::Limited),
        Some(Observer::Preload) => {
            let preload = preloadable(request, &known(request, place, store, stat_cache), abilities);
            preload.filter(|_| preload_works()).ok_or(Bypass::CannotObserve)
        }
        Some(Observer::Kernel) if abilities.kernel() && !only_preload(request) => Ok(Choice::Kernel),
        Some(Observer::Kernel) => Err(Bypass::CannotObserve),
        Some(Observer::Depfile) => depfile(request, place).ok_or(Bypass::CannotObserve),
        None => {
            let nobody = if limited { Bypass::Limited } else { Bypass::CannotObserve };
            let known = known(request, place, store, stat_cache);
            if known.judgement == Some(Judgement::Unreported) {
                return Err(nobody);
            }
            let preload = if limited { None } else { preloadable(request, &known, abilities) };
            let preload = preload.filter(|_| preload_works());
            let kernel = || (abilities.kernel() && !only_preload(request)).then_some(Choice::Kernel);
            preload.or_else(kernel).or_else(|| depfile(request, place)).ok_or(nobody)
        }
    }
}

/// What the store knows about observing a request.
struct StoredVerdict {
    judgement: Option<Judgement>,
    /// True for a command of `larder run`. It may start programs that have no verdict and are
    /// deleted by its end.
    is_whole_command: bool,
}

fn known(request: &Request, place: &Place, store: &Store, stat_cache: &StatCache) -> StoredVerdict {
    let key = command_key(request, place);
    let own = key.as_ref().and_then(|key| store.judgement(key));
    let is_whole_command = key.is_some();
    let judgement = match own {
        // This verdict is about the program alone, so `Again` (a program that it started has no
        // verdict) does not apply.
        None if is_whole_command => store.judgement(&tool_key(request, place)).filter(|of| *of != Judgement::Again),
        None => store.judgement(&tool_key(request, place)),
        own => own,
    };
    let has_new_plugin = || plugins(request, place, stat_cache).any(|key| store.judgement(&key).is_none());
    let starts_unjudged = || request.family == Family::Rustc && has_new_plugin() || is_open(request, place, store);
    let judgement = match judgement {
        Some(Judgement::Believed(_)) if starts_unjudged() => Some(Judgement::Again),
        judgement => judgement,
    };
    StoredVerdict { judgement, is_whole_command }
}

/// Returns true if the command's last run started a program that had no verdict and still has none.
fn is_open(request: &Request, place: &Place, store: &Store) -> bool {
    let started = match open_key(request, place).and_then(|key| store.judgement(&key)) {
        Some(Judgement::Open(program)) => program,
        _ => return false,
    };
    !matches!(store.judgement(&started), Some(Judgement::Believed(_) | Judgement::Disbelieved))
}

/// Returns the keys of the verdicts on the procedural macros that a command line of rustc names.
fn plugins<'r>(request: &'r Request, place: &'r Place, stat_cache: &'r StatCache) -> impl Iterator<Item = Digest> + 'r {
    let externs = rust::named(&request.action.argv).externs;
    let paths = externs.into_iter().filter(|path| path.ends_with(b".so")).map(|path| request.absolute(path));
    paths.filter_map(move |path| Some(program_key(&stat_cache.content_of(&path)?, request, place)))
}

/// Returns true if only the preloaded library tells what is needed to know: which code in the
/// process asked for the clock, random numbers or mtimes.
fn only_preload(request: &Request) -> bool {
    let loads_plugins = || load_plugins(&request.action.argv[1..], &FromDisk(&request.action.cwd));
    request.family == Family::Rustc || request.family.is_gcc_or_clang() && loads_plugins()
}

/// Returns how to use the preloaded library for this tool, or `None` if it cannot be trusted.
///
/// The library is trusted after the kernel observer has seen the same: in samples for a whole
/// command, in a complete run for any other tool. If the kernel observer does not work, known parts
/// of compilers are trusted by their names.
fn preloadable(request: &Request, known: &StoredVerdict, abilities: &Abilities) -> Option<Choice> {
    let may_ask = || abilities.kernel();
    let may_sample = || known.is_whole_command && (abilities.kernel() || abilities.samples());
    match known.judgement {
        Some(Judgement::Disbelieved | Judgement::Unreported) => None,
        Some(Judgement::Believed(_)) | None if may_sample() => Some(Choice::Samples),
        Some(Judgement::Believed(_)) => Some(Choice::Preload),
        Some(Judgement::Again | Judgement::Changes(_) | Judgement::Open(_)) | None if may_ask() => Some(Choice::Both),
        // The kernel observer cannot watch a whole run here, but `ptrace` can sample single
        // processes.
        _ if may_sample() => Some(Choice::Samples),
        _ if request.family == Family::Rustc => None,
        _ if is_compiler_part(file_name(&request.command.program)) => Some(Choice::Preload),
        _ => None,
    }
}

/// Returns the key for the verdict on a tool together with the programs that it started when last
/// seen. A compiler has one for each stage and source language, because each starts other programs.
///
/// For a command of `larder run` that has no verdict of its own yet, this verdict is about the
/// program alone.
pub fn tool_key(request: &Request, place: &Place) -> Digest {
    let kind = match (request.family, request.invocation.stage) {
        (Family::Command, _) => return key(b'C', &request.action.tool, request, place),
        (_, Stage::Early) => b'E',
        (_, Stage::Object) => b'O',
        (_, Stage::End) => b'T',
    };
    let ending = ending(&request.invocation.source);
    key(kind, &Digest::of(&[&request.action.tool.0, ending].concat()), request, place)
}

/// Returns the key for the verdict on a whole command together with the programs that it starts.
/// `None` for any other request. The key covers the arguments, because the same shell or `make`
/// starts other programs in other commands.
pub fn command_key(request: &Request, place: &Place) -> Option<Digest> {
    (request.family == Family::Command).then(|| key(b'W', &request.weak, request, place))
}

/// Returns the key under which a command remembers the program that left its last run without a
/// verdict. Other commands of the tool need not start that program. For example, only crates that
/// use the macros of `num_enum` start cargo. `None` for a whole command, which has a verdict of its
/// own under [`command_key`].
pub fn open_key(request: &Request, place: &Place) -> Option<Digest> {
    (request.family != Family::Command).then(|| key(b'N', &request.weak, request, place))
}

/// Returns the key for the list of files that a whole command changes in place.
pub fn changes_key(request: &Request, place: &Place) -> Option<Digest> {
    (request.family == Family::Command).then(|| key(b'I', &request.weak, request, place))
}

/// Returns the key for the verdict on a program with this content.
pub fn program_key(content: &Digest, request: &Request, place: &Place) -> Digest {
    key(b'P', content, request, place)
}

/// Returns the key for the verdict on a program at `path` that the command itself may have built.
/// The key is by path and not by content: in another checkout the program has other bytes and is
/// still the same program.
pub fn made_program_key(request: &Request, path: &[u8], place: &Place) -> Digest {
    let encoded = request.roots.encoded_path(path);
    key(b'M', &Digest::of(&[&request.weak.0, &encoded[..]].concat()), request, place)
}

/// Makes a key. It includes the variables that the loader and libc read, because these decide what
/// they do unseen by the library. Roots are replaced in them: cargo, for example, names the target
/// directory in `LD_LIBRARY_PATH`.
fn key(kind: u8, content: &Digest, request: &Request, place: &Place) -> Digest {
    let mut w = Writer::default();
    w.u8(kind);
    w.digest(content);
    for variable in environment_of_libc(&place.environment) {
        w.bytes(&variable.name);
        w.bytes(&request.roots.encode_text(&variable.value));
    }
    Digest::of(&w.bytes)
}

/// Returns the path of an unseen access as a verdict has it. If the path lies in a directory that a
/// variable in the key names, roots are replaced in it as they are in the variable.
pub fn unseen_path(path: &[u8], request: &Request, place: &Place) -> Vec<u8> {
    let variables = environment_of_libc(&place.environment);
    let mut named = variables.iter().flat_map(|variable| variable.value.split(|byte| matches!(byte, b':' | b';')));
    let is_named = named.any(|directory| directory.starts_with(b"/") && is_in(path, without_slashes(directory)));
    if is_named { request.roots.encoded_path(path) } else { path.to_vec() }
}

fn depfile(request: &Request, place: &Place) -> Option<Choice> {
    let is_set = |name: &[u8]| place.variable(name).is_some();
    let arguments = &request.command.argv[1..];
    let plan = depfile_plan(request.family, &place.cwd, arguments, &FromDisk(&place.cwd), &is_set);
    Some(Choice::Depfile(Box::new(plan.ok()?)))
}
