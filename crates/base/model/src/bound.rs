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
        /// The command gave the same result in two places, and a name that both of their paths have
        /// is in it, such as `project` of `/a/project` and `/b/project`. So the result is reused in
        /// places whose paths have it as well ([`Shared`]).
        AsNamed,
    }
}

/// Returns the lengths of the paths of a place, in bytes: decimal numbers separated by a space, in
/// the order of `roots`.
pub fn lengths<'r>(roots: impl Iterator<Item = &'r [u8]>) -> Vec<u8> {
    roots.map(|root| root.len().to_string()).collect::<Vec<_>>().join(" ").into_bytes()
}

/// Describes how the paths of two places are alike.
#[derive(Debug, PartialEq, Eq)]
pub struct Shared<'r> {
    /// The directories that both begin with, such as `/home/me`, or empty.
    pub start: &'r [u8],
    /// How many names follow in each, or 0 if the numbers differ. If they are equal, the start may
    /// be the directory at this distance above the path, which is another one elsewhere. And a
    /// relative path such as `../../usr` may lead to the start.
    pub names_below: usize,
    /// The names that both end with, such as `project/src`, or empty.
    pub end: &'r [u8],
}

impl<'r> Shared<'r> {
    /// Compares two different paths. Of equal ones it returns nothing, because such a path does not
    /// depend on the place.
    pub fn of(one: &'r [u8], other: &[u8]) -> Shared<'r> {
        if one == other {
            return Shared { start: b"", names_below: 0, end: b"" };
        }
        let cuts = |at: &usize| one[*at] == b'/';
        let starts = |at: &usize| other.strip_prefix(&one[..*at]).is_some_and(|rest| rest.starts_with(b"/"));
        let ends = |at: &usize| other.ends_with(&one[*at..]);
        let start = (0..one.len()).rev().filter(cuts).find(starts).unwrap_or(0);
        let end = (0..one.len()).filter(cuts).find(ends).map_or(one.len(), |at| at + 1);
        let names_below = names(&one[start..]);
        let is_as_deep = names(&other[start..]) == names_below;
        Shared { start: &one[..start], names_below: if is_as_deep { names_below } else { 0 }, end: &one[end..] }
    }

    fn is_of(&self, path: &[u8]) -> bool {
        let is_as_deep = |rest: &[u8]| self.names_below == 0 || names(rest) == self.names_below;
        let is_any = self.start.is_empty() && self.names_below == 0;
        let has_start =
            is_any || path.strip_prefix(self.start).is_some_and(|rest| rest.starts_with(b"/") && is_as_deep(rest));
        let has_end = self.end.is_empty() || path.strip_suffix(self.end).is_some_and(|rest| rest.ends_with(b"/"));
        has_start && has_end
    }
}

/// Returns the number of names in a path that begins with a slash.
pub fn names(path: &[u8]) -> usize {
    path.iter().filter(|byte| **byte == b'/').count()
}

/// Returns the description of the places in which a result is reused: those whose paths have these
/// parts, and these lengths if they are not empty. It has fields that end with a zero byte.
pub fn alike(lengths: &[u8], shared: &[Shared]) -> Vec<u8> {
    let mut description = [lengths, b"\0"].concat();
    for Shared { start, names_below, end } in shared {
        let number = names_below.to_string();
        for field in [start, number.as_bytes(), end] {
            description.extend_from_slice(field);
            description.push(0);
        }
    }
    description
}

/// Returns true if a place with these paths is one of those that [`alike`] describes.
pub fn is_alike<'r>(description: &[u8], roots: impl Iterator<Item = &'r [u8]> + Clone) -> bool {
    let Some(description) = description.strip_suffix(b"\0") else { return false };
    let mut fields = description.split(|&byte| byte == 0);
    let own = fields.next().unwrap_or_default();
    let parts: Vec<&[u8]> = fields.collect();
    let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse().ok();
    let mut shared =
        parts.chunks_exact(3).map(|part| Some(Shared { start: part[0], names_below: number(part[1])?, end: part[2] }));
    (own.is_empty() || own == lengths(roots.clone()))
        && parts.len() == 3 * roots.clone().count()
        && roots.zip(&mut shared).all(|(root, shared)| shared.is_some_and(|shared| shared.is_of(root)))
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
        !matches!(
            self,
            Bound::Flag
                | Bound::SeenOnce
                | Bound::Chance
                | Bound::AsLong
                | Bound::AsNamed
                | Bound::Variable
                | Bound::Source
        )
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
            Bound::AsNamed => {
                "may depend on a name that the paths of two places had in common; it is reused only in \
                 places whose paths have it, until places without it gave the same result"
            }
            Bound::Variable => "the crate asks for a variable with the path of the target directory",
            Bound::Source => {
                "the crate uses a file of the target directory that its command line does not name, and its \
                 path may be in a hash"
            }
        }
    }

    /// What the user can do to make the result portable, if there is something.
    pub fn remedy(self) -> Option<&'static str> {
        match self {
            Bound::Output | Bound::Text => Some("-ffile-prefix-map=DIRECTORY=. with the directory of the build"),
            Bound::Message => Some("relative paths on the command line"),
            Bound::Argument => Some("relative paths on the command line"),
            Bound::Flag
            | Bound::Input
            | Bound::SeenOnce
            | Bound::Chance
            | Bound::AsLong
            | Bound::AsNamed
            | Bound::Variable
            | Bound::Source => None,
        }
    }

    /// Returns a remedy that makes the result of rustc portable, or `None` if there is none. `is_remapped`
    /// is true with the setting `rust_paths = "remap"`.
    pub fn remedy_of_crate(self, is_remapped: bool) -> Option<&'static str> {
        match self {
            Bound::Flag | Bound::SeenOnce | Bound::Chance | Bound::AsLong | Bound::AsNamed => None,
            _ if is_remapped => Some("the same path of the target directory"),
            _ => Some("rust_paths = \"remap\", or the same path of the target directory"),
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
        /// `CMakeRuleHashes.txt`: hashes of commands that the files `build.make` of the same result
        /// hold.
        RuleHashes,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_paths_share() {
        let check = |one: &'static str, other: &str, start: &str, names_below, end: &str| {
            let expected = Shared { start: start.as_bytes(), names_below, end: end.as_bytes() };
            assert_eq!(Shared::of(one.as_bytes(), other.as_bytes()), expected, "{one} {other}");
        };
        check("/a/p", "/b/p", "", 2, "p");
        check("/a/p", "/b/c/p", "", 0, "p");
        check("/h/me/p", "/h/me/q", "/h/me", 1, "");
        check("/h/me/p", "/h/me/q/r", "/h/me", 0, "");
        check("/h/me/a/p/s", "/h/me/b/p/s", "/h/me", 3, "p/s");
        check("/h/ab", "/h/abc", "/h", 1, "");
        check("/h/xp", "/h/p", "/h", 1, "");
        check("/h", "/h/x/h", "", 0, "h");
        check("/h/p", "/h/p", "", 0, "");
    }

    #[test]
    fn which_places_are_alike() {
        let any = || Shared { start: b"", names_below: 0, end: b"" };
        let check = |lengths: &[u8], first: Shared, roots: &[&str], expect| {
            let roots = roots.iter().map(|root| root.as_bytes());
            assert_eq!(is_alike(&alike(lengths, &[first, any()]), roots), expect);
        };
        let shared = |names_below| Shared { start: b"/h", names_below, end: b"p" };
        let as_deep = || Shared { start: b"", names_below: 2, end: b"" };
        check(b"", shared(0), &["/h/p", "name"], true);
        check(b"", as_deep(), &["/h/a", "/x"], true);
        check(b"", as_deep(), &["/h/a/p", "/x"], false);
        check(b"", shared(0), &["/h/a/p", "/x"], true);
        check(b"", shared(0), &["/h/p", "/x"], true);
        check(b"", shared(1), &["/h/p", "/x"], true);
        check(b"", shared(1), &["/h/a/p", "/x"], false);
        check(b"", shared(0), &["/h/xp", "/x"], false);
        check(b"", shared(0), &["/ha/p", "/x"], false);
        check(b"", shared(0), &["/h/p"], false);
        check(b"4 2", shared(0), &["/h/p", "/x"], true);
        check(b"4 3", shared(0), &["/h/p", "/x"], false);
        assert!(!is_alike(b"", [].into_iter()));
    }
}
