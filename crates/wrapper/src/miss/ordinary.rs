//! Whether a run ended as it will the next time.

use larder_model::Unrecorded;
use larder_spawn::{Finished, Written};
use larder_sys::ChildEnd;

use super::NotRecorded;

/// Only an ordinary exit is recorded, and only when nothing that might not happen again had a part in it.
pub(super) fn exit_code(finished: &Finished) -> Result<u8, NotRecorded> {
    let because = |why| Err(NotRecorded::Because(why, Vec::new()));
    let ChildEnd::Exited(code) = finished.end else { return because(Unrecorded::Signal) };
    if finished.outlived {
        return because(Unrecorded::Outlives);
    }
    if finished.disturbed {
        return because(Unrecorded::Signal);
    }
    if code != 0
        && let Some(why) = extraordinary(code, &finished.written)
    {
        return because(why);
    }
    Ok(code)
}

/// Signs in a failed run's messages that it would not fail so again: an internal error, a shortage, a killed child.
fn extraordinary(code: u8, written: &Written) -> Option<Unrecorded> {
    const SIGNS: &[(&str, Unrecorded)] = &[
        ("internal compiler error", Unrecorded::InternalError),
        ("PLEASE submit a bug report", Unrecorded::InternalError),
        ("signal terminated program", Unrecorded::Signal),
        ("terminated with signal", Unrecorded::Signal),
        ("due to signal", Unrecorded::Signal),
        ("No space left on device", Unrecorded::Shortage),
        ("Cannot allocate memory", Unrecorded::Shortage),
        ("memory exhausted", Unrecorded::Shortage),
        ("out of memory", Unrecorded::Shortage),
        ("Too many open files", Unrecorded::Shortage),
        ("Resource temporarily unavailable", Unrecorded::Shortage),
        ("Disk quota exceeded", Unrecorded::Shortage),
        ("Input/output error", Unrecorded::Shortage),
    ];
    if code >= 128 {
        return Some(Unrecorded::Signal);
    }
    let texts: [&[u8]; 2] = match written {
        Written::Apart { stdout, stderr } => [stdout, stderr],
        Written::Together(both) => [both, b""],
    };
    let holds = |sign: &str| texts.iter().any(|text| text.windows(sign.len()).any(|w| w == sign.as_bytes()));
    SIGNS.iter().find(|(sign, _)| holds(sign)).map(|(_, why)| *why)
}
