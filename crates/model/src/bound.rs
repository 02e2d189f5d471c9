//! Where a result can serve: in every place of the same build, or only where it was made, and why.

/// Why a result serves only the place where it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// An output holds the place's path, and there is no rule by which the tool would have written another.
    Output,
    /// A message does.
    Message,
    /// An argument names the place, and what the tool makes of it is not known.
    Argument,
    /// A flag has the tool turn names into numbers, or into bytes that cannot be searched.
    Flag,
    /// The preprocessed text names the place, or asks for the name of a file.
    Text,
    /// An input holds the place's path, and what the tool makes of it is not known.
    Input,
    /// The command is no compile of one source: it can serve elsewhere once it was seen to give the same in two places.
    SeenOnce,
    /// Processes of the command may have named something by their numbers, or used random numbers, which are others in
    /// each run: it serves nowhere until it was seen to give the same with other numbers.
    Chance,
    /// The command was seen to give the same in two places whose paths are as long as each other: it serves in such
    /// places. What binds it is how long they are ([`lengths`]).
    AsLong,
}

/// How long the paths of a place are: decimal, a space between two, the first root first.
pub fn lengths<'r>(roots: impl Iterator<Item = &'r [u8]>) -> Vec<u8> {
    roots.map(|root| root.len().to_string()).collect::<Vec<_>>().join(" ").into_bytes()
}

impl Bound {
    const ALL: [Bound; 9] = [
        Bound::Output,
        Bound::Message,
        Bound::Argument,
        Bound::Flag,
        Bound::Text,
        Bound::Input,
        Bound::SeenOnce,
        Bound::Chance,
        Bound::AsLong,
    ];

    /// As a record holds it.
    pub fn code(self) -> u8 {
        Bound::ALL.iter().position(|bound| *bound == self).unwrap_or_default() as u8 + 1
    }

    /// The other way.
    pub fn from_code(code: u8) -> Option<Bound> {
        Bound::ALL.get(usize::from(code).wrapping_sub(1)).copied()
    }

    /// Whether the result serves in the place where it was made.
    pub fn serves_at_home(self) -> bool {
        self != Bound::Chance
    }

    /// Whether the worst that it could do elsewhere is to name the place where it was made.
    pub fn is_only_a_path(self) -> bool {
        !matches!(self, Bound::Flag | Bound::SeenOnce | Bound::Chance | Bound::AsLong)
    }

    /// What people read, about a result that was made in another place.
    pub fn reason(self) -> &'static str {
        match self {
            Bound::Output => {
                "an output holds the path of the place where it was made, or a name that only that run had"
            }
            Bound::Message => {
                "a message holds the path of the place where it was made, or a name that only that run had"
            }
            Bound::Argument => "an argument names the place, and the result may hold what was made of it",
            Bound::Flag => "a flag turns file names into numbers or into compressed bytes",
            Bound::Text => "the preprocessed text names the place, or asks for the name of a file",
            Bound::Input => "an input holds the path of the place, and the result may hold what was made of it",
            Bound::SeenOnce => "such a command serves elsewhere once it gave the same in two places",
            Bound::Chance => {
                "the numbers of its processes, or random ones, may be in it: it serves once it gave the same with others"
            }
            Bound::AsLong => {
                "bytes long are the paths that it serves for: it gave the same in two places with such, and may \
                 elsewhere once it gave the same in places with others"
            }
        }
    }

    /// What lifts it, where something does.
    pub fn remedy(self) -> Option<&'static str> {
        match self {
            Bound::Output | Bound::Text => Some("-ffile-prefix-map=DIRECTORY=. with the directory of the build"),
            Bound::Message => Some("relative paths on the command line"),
            Bound::Argument => Some("relative paths on the command line"),
            Bound::Flag | Bound::Input | Bound::SeenOnce | Bound::Chance | Bound::AsLong => None,
        }
    }
}

/// By which rules bytes that hold the path of a place are written again for another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rewrite {
    /// They hold none.
    #[default]
    None,
    /// Paths stand in it as they are.
    Text,
    /// As gcc writes dependencies for make.
    GccDepfile,
    /// As clang does.
    ClangDepfile,
    /// An object file with debug information.
    Object,
    /// In the strings of a pickle of Python's.
    Pickle,
    /// Paths stand in it, in whatever surroundings: logs, which people read, and what was seen so in two places.
    LooseText,
    /// What ninja keeps of dependencies.
    NinjaDependencies,
    /// Anything, for a place whose paths are as long.
    AsLong,
    /// autoconf's `config.status`.
    ConfigStatus,
}

impl Rewrite {
    const ALL: [Rewrite; 10] = [
        Rewrite::None,
        Rewrite::Text,
        Rewrite::GccDepfile,
        Rewrite::ClangDepfile,
        Rewrite::Object,
        Rewrite::Pickle,
        Rewrite::LooseText,
        Rewrite::NinjaDependencies,
        Rewrite::AsLong,
        Rewrite::ConfigStatus,
    ];

    /// As a record holds it.
    pub fn code(self) -> u8 {
        Rewrite::ALL.iter().position(|rewrite| *rewrite == self).unwrap_or_default() as u8
    }

    /// The other way.
    pub fn from_code(code: u8) -> Option<Rewrite> {
        Rewrite::ALL.get(usize::from(code)).copied()
    }
}
