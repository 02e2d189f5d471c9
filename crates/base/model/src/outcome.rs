//! The four outcomes of an invocation, and the reasons that are counted and shown.
//!
//! Each reason has a code for machines and a sentence for users. The order of a table is the order
//! of its counters on disk, so new rows are only ever added at the end.
//!
//! Unaware of: how a reason is found out, where it is counted.

crate::listed! {
    /// Which observer watched a recorded run.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Observer {
        /// A library that is loaded into each process of the tool.
        Preload,
        /// The kernel, which reports system calls (seccomp user notification).
        Kernel,
        /// No observer: the inputs are worked out from the compiler's dependency file and its
        /// search directories.
        Depfile,
    }
}

impl Observer {
    /// Returns the name in `LARDER_OBSERVER` and in messages.
    pub fn name(self) -> &'static str {
        match self {
            Observer::Preload => "preload",
            Observer::Kernel => "kernel",
            Observer::Depfile => "depfile",
        }
    }
}

/// Declares an enum whose values have a code and a sentence.
macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident { $($variant:ident, $code:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $(#[doc = $text] $variant,)* }

        impl $name {
            /// All values, in the order of their counters.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// Returns the name for machines. It never changes.
            pub fn code(self) -> &'static str {
                match self { $($name::$variant => $code,)* }
            }

            /// Returns the sentence for users.
            pub fn sentence(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            /// Returns the index of its counter.
            pub fn index(self) -> usize {
                self as usize
            }
        }
    };
}

reasons! {
    /// Why larder does not cache a command. The tool runs untouched.
    Bypass {
        UnknownTool, "unknown-tool", "larder does not know this tool (`larder run -- COMMAND` caches any command)";
        Disabled, "disabled", "larder is switched off (LARDER_DISABLE)";
        StandardInput, "standard-input", "may read standard input, which is a socket, a pipe that stays open or holds too much, or a terminal with something typed";
        OutputToStdout, "output-to-stdout", "an argument names a standard stream, or an output stream is a device, has no reader, or is an input too";
        TooHard, "too-hard", "an option whose effects are not reproducible (modules, precompiled headers, -ftime-report, -Z time-passes …)";
        ResponseFile, "response-file", "a response file (@file) cannot be read or is nested too deep";
        ClosedDescriptor, "closed-descriptor", "standard input, output or error is closed";
        CannotObserve, "cannot-observe", "the tool cannot be observed here";
        Session, "session", "rustc has a session of this crate (-C incremental), with which it compiles only what changed";
        Limited, "limited", "the size of files or of memory is limited (ulimit -f, -v)";
        OpenDescriptor, "open-descriptor", "a descriptor other than the standard three is open, and the command may use it";
        Query, "query", "a question to the compiler, such as -vV or --print, which it answers at once";
    }
}

reasons! {
    /// A problem of larder's own. The tool runs anyway, and the problem is counted.
    Fallback {
        NoStore, "no-store", "no directory for the store is known: set LARDER_DIR";
        StoreUnusable, "store-unusable", "the store cannot be opened";
        StoreUnwritable, "store-unwritable", "the store cannot be written";
        StoreFull, "store-full", "the file system of the store is full";
        StoreUnsafe, "store-unsafe", "the store belongs to another user, or other users can write to it";
        Damaged, "damaged", "an entry of the store is damaged";
        BlobMissing, "blob-missing", "an entry needs a blob that is gone";
        Materialise, "materialise", "an output could not be put in place";
        ObserverFailed, "observer-failed", "the observer could not be started";
        Verify, "verify", "the tool ran again and its result differed from the recorded one (LARDER_VERIFY)";
        HalfPlaced, "half-placed", "an output could not be put in place after others had been, so the command failed";
    }
}

reasons! {
    /// Why the result of a miss was not recorded.
    Unrecorded {
        Signal, "signal", "the tool, or a process it started, died by a signal";
        InternalError, "internal-error", "the compiler reported an internal error";
        Shortage, "shortage", "memory, disk space, descriptors or processes ran short";
        InputChanged, "input-changed", "an input is as new as the run, or changed while it ran";
        Clock, "clock", "the result depends on the time (__DATE__, __TIME__, __TIMESTAMP__ or the clock)";
        Network, "network", "the tool used the network";
        Device, "device", "the tool used a device, /proc or /sys in a way that varies";
        NotObserved, "not-observed", "a program that cannot be observed was started (static, set-user-id, sanitized …)";
        Outlives, "outlives", "a process outlives the command";
        UpdatesFile, "updates-file", "the tool changed an existing file in place, renamed or linked one";
        OutputSpecial, "output-special", "an output is not a file, link or directory, or is set-user-id or set-group-id";
        OutputElsewhere, "output-elsewhere", "the tool wrote outside the working directory and its named outputs";
        WriteFailed, "write-failed", "the tool could not write an output";
        Random, "random", "the result may depend on random numbers or on a process ID";
        Incomplete, "incomplete", "the observer lost events";
        TooLarge, "too-large", "the outputs are larger than the store may become";
        ReadOnly, "read-only", "larder may only read the store (LARDER_READ_ONLY)";
        OutputLost, "output-lost", "an output was gone or changed before it could be kept";
        Unprovable, "unprovable", "the dependency file does not prove which files were used, or the run failed and only the kernel observed it";
        ComparesTimes, "compares-times", "the tool compares or stores the times of files that it changes";
        Unjudged, "unjudged", "a program ran that is not known to be observed completely; the next run of this tool will tell";
        NoDaemon, "no-daemon", "the store cannot be written, and no larderd listens (`larder daemon start`)";
        Interrupted, "interrupted", "a signal may have made a system call fail because the run was observed";
        Suspect, "suspect", "the tool failed in a way that its being observed could have caused";
        Refused, "refused", "a system call was refused here (by a seccomp profile or an old kernel), and the command reported it";
        Terminal, "terminal", "the command read from the terminal, or changed its settings";
    }
}

/// What happened to an invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The result came from the store.
    Hit,
    /// The tool ran. Its result was recorded, or was not for this reason.
    Miss(Option<Unrecorded>),
    /// The tool ran untouched, for this reason.
    Bypass(Bypass),
    /// The tool ran because larder had this problem.
    Fallback(Fallback),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_in_order() {
        fn check(codes: Vec<(&str, usize)>) {
            for (at, (code, index)) in codes.iter().enumerate() {
                assert_eq!(*index, at, "{code}");
                assert_eq!(codes.iter().filter(|(c, _)| c == code).count(), 1, "{code}");
            }
        }
        check(Bypass::ALL.iter().map(|r| (r.code(), r.index())).collect());
        check(Fallback::ALL.iter().map(|r| (r.code(), r.index())).collect());
        check(Unrecorded::ALL.iter().map(|r| (r.code(), r.index())).collect());
    }
}
