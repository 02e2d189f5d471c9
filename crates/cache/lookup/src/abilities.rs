//! Finds out which observers work on this system by trying each once. The store keeps the answers
//! until the system reboots.
//!
//! Unaware of: which observer a request needs.

use std::cell::OnceCell;

use larder_model::{Digest, Judgement, Writer};
use larder_observe::{KernelObserver, PreloadObserver};

use crate::Place;

/// Which observers work here. Each is tried when it is first asked for.
pub struct Abilities<'a> {
    place: &'a Place,
    known: &'a dyn Fn(&Digest) -> Option<Judgement>,
    keep: &'a dyn Fn(&Digest, &Judgement),
    kernel: OnceCell<bool>,
    samples: OnceCell<bool>,
}

impl<'a> Abilities<'a> {
    /// Makes the rules for a command: `known` reads a verdict by its key, and `keep` stores one.
    pub fn new(
        place: &'a Place,
        known: &'a dyn Fn(&Digest) -> Option<Judgement>,
        keep: &'a dyn Fn(&Digest, &Judgement),
    ) -> Abilities<'a> {
        Abilities { place, known, keep, kernel: OnceCell::new(), samples: OnceCell::new() }
    }

    /// Returns true if the kernel observer works for this user.
    pub fn kernel(&self) -> bool {
        *self.kernel.get_or_init(|| {
            let user = larder_sys::effective_user().to_le_bytes();
            self.try_once(b'K', &user, &|| KernelObserver::try_out().is_ok())
        })
    }

    /// Returns true if single processes of a whole command can be sampled. Sampling needs `ptrace`
    /// but no seccomp user notifications. So it works beside another seccomp listener and on Linux
    /// 5.4, where the kernel observer does not.
    pub fn samples(&self) -> bool {
        *self.samples.get_or_init(|| {
            let user = larder_sys::effective_user().to_le_bytes();
            self.try_once(b'S', &user, &|| larder_sys::try_following().is_ok())
        })
    }

    /// Returns true if the preloaded library works in programs that `loader` loads.
    pub fn preload(&self, loader: &[u8]) -> bool {
        // The loader stands for libc, because both are files of one package and change together.
        let Ok(stat) = larder_sys::stat(loader) else { return false };
        let library_path = self.place.variable(b"LD_LIBRARY_PATH");
        let mut which = Writer::default();
        which.bytes(loader);
        [stat.device, stat.inode, stat.size_bytes, stat.modified_ns as u64]
            .into_iter()
            .for_each(|part| which.number(part));
        which.bytes(library_path.unwrap_or_default());
        self.try_once(b'L', &which.bytes, &|| PreloadObserver::try_out(loader, library_path).is_ok())
    }

    /// Returns the answer that this build of larder kept since the last boot. If there is none,
    /// calls `works` and keeps its answer. A failure is kept as an answer once two tries failed.
    fn try_once(&self, kind: u8, what: &[u8], works: &dyn Fn() -> bool) -> bool {
        let Ok(boot) = larder_sys::boot_id() else { return works() };
        let mut which = Writer::default();
        which.u8(kind);
        which.bytes(boot.as_bytes());
        // A container and its host have the same boot id and may share a store.
        which.bytes(&larder_sys::sandbox());
        which.bytes(PreloadObserver::LIBRARY_ID);
        which.bytes(what);
        let key = Digest::of(&which.bytes);
        match (self.known)(&key) {
            Some(Judgement::Believed(_)) => true,
            Some(Judgement::Disbelieved) => false,
            known => {
                let works = works();
                // A test also fails if the machine runs short of something for a moment, so it needs to fail twice.
                let failed = if known.is_some() { Judgement::Disbelieved } else { Judgement::Again };
                let judgement = if works { Judgement::Believed(Vec::new()) } else { failed };
                (self.keep)(&key, &judgement);
                works
            }
        }
    }
}
