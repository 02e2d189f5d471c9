//! A second barrier for a confined process, by Landlock: even if it could leave its root directory,
//! it could only write to its own directories. It also reaches no process through an abstract
//! socket or a signal, and accepts no connections over TCP.
//!
//! Unaware of: the root directory, users and system calls.

use std::io;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    Scope,
};

/// The newest rights that are known here (Linux 6.12). An older kernel restricts what it knows, and
/// one without Landlock nothing.
const RIGHTS: ABI = ABI::V6;

/// Restricts this process for good. It reads and executes everything that it sees, and writes only
/// to `writable` and `/dev/null`. The process must have one thread.
pub(crate) fn restrict<'a>(writable: impl Iterator<Item = &'a Path>) -> io::Result<()> {
    restricted(writable).map_err(io::Error::other)
}

fn restricted<'a>(writable: impl Iterator<Item = &'a Path>) -> Result<(), RulesetError> {
    let (read, all) = (AccessFs::from_read(RIGHTS), AccessFs::from_all(RIGHTS));
    let kinds = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeSock | AccessFs::MakeFifo;
    // A path that is gone gets no rule, so nothing is allowed there.
    let rule = |path: &Path, rights| PathFd::new(path).ok().map(|place| Ok(PathBeneath::new(place, rights)));
    let rules = [rule(Path::new("/"), read), rule(Path::new("/dev/null"), AccessFs::from_file(RIGHTS))];
    let rules = rules.into_iter().chain(writable.map(|path| rule(path, all & !kinds))).flatten();
    let rules = rules.collect::<Vec<Result<PathBeneath<PathFd>, RulesetError>>>();
    let made = Ruleset::default().handle_access(all)?.handle_access(AccessNet::BindTcp)?;
    let made = made.scope(Scope::AbstractUnixSocket | Scope::Signal)?.create()?.add_rules(rules)?;
    made.restrict_self().map(drop)
}
