//! Who observes a tool: the cheapest observer that is complete for it, or the one that was asked for; and what was
//! judged of the programs that it starts.

use larder_compiler::{Family, Stage, environment_of_libc, is_compiler_part};
use larder_model::{Bypass, Digest, Judgement, Observer, Writer};
use larder_observe::{DepfilePlan, Program, judge};
use larder_store::Store;

use crate::request::{FromDisk, file_name};
use crate::{Abilities, Place, Request};

/// The observer for a request.
pub enum Choice {
    /// The preloaded library.
    Preload,
    /// The kernel.
    Kernel,
    /// Both at once: the kernel judges what the library sees.
    Both,
    /// The preloaded library, and samples of the programs that are not known yet, by which it is judged.
    Samples,
    /// The dependency file, by this plan.
    Depfile(Box<DepfilePlan>),
}

impl Choice {
    /// Which observer it is.
    pub fn name(&self) -> Observer {
        match self {
            Choice::Preload | Choice::Both | Choice::Samples => Observer::Preload,
            Choice::Kernel => Observer::Kernel,
            Choice::Depfile(_) => Observer::Depfile,
        }
    }
}

/// Chooses for `request` among the observers that work here; `forced` is what the settings ask for.
pub fn choose_observer(
    request: &Request,
    place: &Place,
    store: &Store,
    forced: Option<Observer>,
    abilities: &Abilities,
) -> Result<Choice, Bypass> {
    // The log would be mapped into each process of the tool.
    let limited = larder_sys::address_space_is_limited();
    let preload_works = || match judge(&request.command.program).0 {
        Program::Dynamic { loader } => abilities.preload(&loader),
        Program::NotPreloadable => false,
    };
    match forced {
        Some(Observer::Preload) if limited => Err(Bypass::Limited),
        Some(Observer::Preload) => {
            let preload = preloadable(request, &known(request, place, store), abilities);
            preload.filter(|_| preload_works()).ok_or(Bypass::CannotObserve)
        }
        Some(Observer::Kernel) if abilities.kernel() => Ok(Choice::Kernel),
        Some(Observer::Kernel) => Err(Bypass::CannotObserve),
        Some(Observer::Depfile) => depfile(request, place).ok_or(Bypass::CannotObserve),
        None => {
            let nobody = if limited { Bypass::Limited } else { Bypass::CannotObserve };
            let known = known(request, place, store);
            if known.judgement == Some(Judgement::Unreported) {
                return Err(nobody);
            }
            let preload = if limited { None } else { preloadable(request, &known, abilities) };
            let preload = preload.filter(|_| preload_works());
            let kernel = || abilities.kernel().then_some(Choice::Kernel);
            preload.or_else(kernel).or_else(|| depfile(request, place)).ok_or(nobody)
        }
    }
}

/// What is known of how to observe a request.
struct Known {
    judgement: Option<Judgement>,
    /// A whole command: it may start programs that were never seen, which may be gone at its end.
    is_whole_command: bool,
}

fn known(request: &Request, place: &Place, store: &Store) -> Known {
    let key = command_key(request, place);
    let own = key.as_ref().and_then(|key| store.judgement(key));
    let is_whole_command = key.is_some();
    let judgement = match own {
        // The guess is about the program alone.
        None if is_whole_command => store.judgement(&tool_key(request, place)).filter(|of| *of != Judgement::Again),
        None => store.judgement(&tool_key(request, place)),
        own => own,
    };
    Known { judgement, is_whole_command }
}

/// A tool that can be preloaded into is so once the kernel saw the same: of a whole command in samples, of any other in
/// a whole run. Where the kernel cannot be asked, known parts of compilers are believed by their names.
fn preloadable(request: &Request, known: &Known, abilities: &Abilities) -> Option<Choice> {
    let may_ask = || abilities.kernel();
    match known.judgement {
        Some(Judgement::Disbelieved | Judgement::Unreported) => None,
        Some(Judgement::Believed(_)) | None if known.is_whole_command && may_ask() => Some(Choice::Samples),
        Some(Judgement::Believed(_)) => Some(Choice::Preload),
        Some(Judgement::Again | Judgement::Changes(_)) | None if may_ask() => Some(Choice::Both),
        _ if is_compiler_part(file_name(&request.command.program)) => Some(Choice::Preload),
        _ => None,
    }
}

/// Where the judgement of a tool, with the programs that it started when it was seen last, is kept: for each stage and
/// language of a compiler, which are other programs. Of a whole command that has no judgement of its own yet it says
/// whether the program itself is one that the library sees.
pub fn tool_key(request: &Request, place: &Place) -> Digest {
    let kind = match (request.family, request.invocation.stage) {
        (Family::Command, _) => return key(b'C', &request.action.tool, place),
        (_, Stage::Early) => b'E',
        (_, Stage::Object) => b'O',
        (_, Stage::End) => b'T',
    };
    let name = file_name(&request.invocation.source);
    let ending = name.iter().rposition(|&b| b == b'.').map_or(&b""[..], |dot| &name[dot..]);
    key(kind, &Digest::of(&[&request.action.tool.0, ending].concat()), place)
}

/// Where the judgement of a whole command, with the programs that it started, is kept: what one starts says nothing of
/// what the same shell or `make` starts elsewhere.
pub fn command_key(request: &Request, place: &Place) -> Option<Digest> {
    (request.family == Family::Command).then(|| key(b'W', &request.weak, place))
}

/// Where it is kept which files a whole command changes in place.
pub fn changes_key(request: &Request, place: &Place) -> Option<Digest> {
    (request.family == Family::Command).then(|| key(b'I', &request.weak, place))
}

/// Where the judgement of a program with this content is kept.
pub fn program_key(content: &Digest, place: &Place) -> Digest {
    key(b'P', content, place)
}

/// Where the judgement of a program is kept that the command itself may have made at this path: built elsewhere it has
/// other content, and is the same program.
pub fn made_program_key(request: &Request, path: &[u8], place: &Place) -> Digest {
    let mut encoded = Vec::new();
    request.roots.encode_path(path, &mut encoded);
    key(b'M', &Digest::of(&[&request.weak.0, &encoded[..]].concat()), place)
}

/// What loader and libc do unseen depends on the variables that they read.
fn key(kind: u8, content: &Digest, place: &Place) -> Digest {
    let mut w = Writer::default();
    w.u8(kind);
    w.digest(content);
    for variable in environment_of_libc(&place.environment) {
        w.bytes(&variable.name);
        w.bytes(&variable.value);
    }
    Digest::of(&w.bytes)
}

fn depfile(request: &Request, place: &Place) -> Option<Choice> {
    let is_set = |name: &[u8]| place.variable(name).is_some();
    let arguments = &request.command.argv[1..];
    let shape = larder_compiler::provable(request.family, arguments, &FromDisk(&place.cwd), &is_set).ok()?;
    Some(Choice::Depfile(Box::new(DepfilePlan {
        clang: shape.clang,
        cxx: shape.cxx,
        cwd: place.cwd.clone(),
        source: shape.source,
        object: shape.object,
        depfile: shape.depfile,
        search_flags: shape.search_flags,
        directories: shape.directories,
        forced: shape.forced,
        definitions: shape.definitions,
    })))
}
