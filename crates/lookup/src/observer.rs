//! Who observes a tool: the cheapest observer that is complete for it, or the one that was asked for.

use larder_model::{Bypass, Observer};
use larder_observe::{DepfilePlan, Program, judge};

use crate::request::FromDisk;
use crate::{Place, Request};

/// The observer for a request.
pub enum Choice {
    /// The preloaded library.
    Preload,
    /// The dependency file, by this plan.
    Depfile(Box<DepfilePlan>),
}

impl Choice {
    /// Which observer it is.
    pub fn name(&self) -> Observer {
        match self {
            Choice::Preload => Observer::Preload,
            Choice::Depfile(_) => Observer::Depfile,
        }
    }
}

/// Choose for `request`; `forced` is what the settings ask for.
pub fn choose_observer(request: &Request, place: &Place, forced: Option<Observer>) -> Result<Choice, Bypass> {
    let dynamic = judge(&request.command.program).0 == Program::Dynamic;
    match forced {
        // The log would be mapped into each process of the tool.
        None | Some(Observer::Preload) if larder_sys::address_space_is_limited() => Err(Bypass::Limited),
        None | Some(Observer::Preload) if dynamic => Ok(Choice::Preload),
        None | Some(Observer::Depfile) => depfile(request, place).ok_or(Bypass::CannotObserve),
        Some(Observer::Preload | Observer::Kernel) => Err(Bypass::CannotObserve),
    }
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
