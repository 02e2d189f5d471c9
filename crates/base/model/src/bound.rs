//! Bound: whether a result can be reused in every place of the same build (another checkout,
//! another container), or only where it was made, and why. Rewrite: how the path of a place is
//! replaced in a result.
//!
//! Unaware of: how a bound is found out (`wrapper`), how bytes are rewritten (`relocate`).

crate::listed! {
    /// Why a result may not be reused in every place.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Bound {
        /// An output contains the path of the place, and no rule is known by which the tool would
        /// have written another path.
        Output,
        /// A message contains the path of the place, and no rule is known by which the tool would
        /// have written another path.
        Message,
        /// An argument contains the path of the place, and larder does not know what the tool does
        /// with it.
        Argument,
        /// A flag makes the tool turn paths into numbers, or into bytes that cannot be searched.
        /// For example, `--coverage` writes checksums of paths.
        Flag,
        /// The preprocessed text contains the path of the place or expands `__FILE__`.
        Text,
        /// An input contains the path of the place, and larder does not know what the tool does
        /// with it.
        Input,
        /// The command is not a compile of one source. The result can be reused elsewhere once the
        /// command gave the same result in two places.
        SeenOnce,
        /// Processes of the command may have put process IDs or random numbers into the result.
        /// These differ in each run. So the result is not reused, not even in the same place, until
        /// a run with others gave the same result.
        Chance,
        /// The command gave the same result in two places whose paths have the same lengths. So the
        /// result is reused in places with paths of these lengths ([`lengths`]).
        AsLong,
        /// The crate asks for a variable that contains the path of the place, which here is cargo's
        /// target directory. rustc may put its value into the hash of the crate.
        Variable,
        /// The crate includes a file of the place, which here is cargo's target directory. rustc
        /// puts its path into the hash of the crate.
        Source,
    }
}

/// Returns the lengths of the paths of a place, in bytes: decimal numbers separated by a space, in
/// the order of `roots`.
pub fn lengths<'r>(roots: impl Iterator<Item = &'r [u8]>) -> Vec<u8> {
    roots.map(|root| root.len().to_string()).collect::<Vec<_>>().join(" ").into_bytes()
}

impl Bound {
    /// Returns the number that stands for this bound in a record. It is never 0.
    pub fn code(self) -> u8 {
        self as u8 + 1
    }

    /// Reverses [`Bound::code`]. Returns `None` for an unknown number.
    pub fn from_code(code: u8) -> Option<Bound> {
        Bound::ALL.get(usize::from(code).wrapping_sub(1)).copied()
    }

    /// Returns true if the result is reused in the place where it was made.
    pub fn serves_at_home(self) -> bool {
        self != Bound::Chance
    }

    /// Returns true if reusing the result elsewhere could do no more harm than to show the path of
    /// the place where it was made.
    pub fn is_only_a_path(self) -> bool {
        !matches!(self, Bound::Flag | Bound::SeenOnce | Bound::Chance | Bound::AsLong | Bound::Variable | Bound::Source)
    }

    /// The reason for users, about a result that was made in another place. It is a sentence, or
    /// one without its subject, "the result".
    pub fn reason(self) -> &'static str {
        match self {
            Bound::Output => {
                "an output contains the path of the place where it was made, or a name that only that run had"
            }
            Bound::Message => {
                "a message contains the path of the place where it was made, or a name that only that run had"
            }
            Bound::Argument => "an argument contains the path of the place, and the result may depend on it",
            Bound::Flag => "a flag makes the tool turn paths into numbers or compressed bytes",
            Bound::Text => "the preprocessed text contains the path of the place, or expands __FILE__",
            Bound::Input => "an input contains the path of the place, and the result may depend on it",
            Bound::SeenOnce => "the result of such a command is reused elsewhere once two places gave the same result",
            Bound::Chance => {
                "may contain process IDs or random numbers; it is reused once a run with others gave the same"
            }
            Bound::AsLong => {
                "is reused only in places whose paths have these lengths in bytes, until places with \
                 paths of other lengths gave the same result"
            }
            Bound::Variable => "the crate asks for a variable with the path of the target directory",
            Bound::Source => "the crate includes a file of the target directory, and rustc hashes its path",
        }
    }

    /// What the user can do to make the result portable, if there is something.
    pub fn remedy(self) -> Option<&'static str> {
        match self {
            Bound::Variable | Bound::Source => Some("rust_paths = \"remap\""),
            Bound::Output | Bound::Text => Some("-ffile-prefix-map=DIRECTORY=. with the directory of the build"),
            Bound::Message => Some("relative paths on the command line"),
            Bound::Argument => Some("relative paths on the command line"),
            Bound::Flag | Bound::Input | Bound::SeenOnce | Bound::Chance | Bound::AsLong => None,
        }
    }
}

crate::listed! {
    /// How bytes that contain the path of a place are rewritten for another place.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Rewrite {
        /// They contain no such path.
        #[default]
        None,
        /// Paths are in plain text and are replaced as they are.
        Text,
        /// A dependency file for make, as gcc writes it.
        GccDepfile,
        /// A dependency file for make, as clang writes it.
        ClangDepfile,
        /// An object file with debug information.
        Object,
        /// A pickle of Python, in whose strings paths are replaced.
        Pickle,
        /// Paths are replaced wherever they appear, whatever is around them: for logs, which people
        /// read, and for files for which two places showed that this is right.
        LooseText,
        /// ninja's dependency log.
        NinjaDependencies,
        /// Any bytes, but only for a place whose paths have the same lengths.
        AsLong,
        /// `config.status` of autoconf.
        ConfigStatus,
    }
}

/// What the inputs contain that could bring the path of this place into a result. Of each kind only
/// the first input is kept, except for `rooted`.
#[derive(Clone, Debug, Default)]
pub struct Carried {
    /// All texts that contain the path of this place in a way that can be replaced.
    pub rooted: Vec<Vec<u8>>,
    /// The first of these in which it is outside of a preprocessor line.
    pub loose: Option<Vec<u8>>,
    /// The first input that contains the path in a way that cannot be replaced.
    pub fixed: Option<Vec<u8>>,
    /// The first input that may use `__FILE__` or something similar.
    pub names_files: Option<Vec<u8>>,
    /// The first input that may make a compiler compare mtimes.
    pub compares_dates: Option<Vec<u8>>,
    /// True if object files count by the form that they have in every place.
    pub objects: bool,
}
