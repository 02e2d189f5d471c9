//! How the contents of a result are rewritten for another checkout.
//!
//! Unaware of: when a content is rewritten.

use larder_model::Rewrite;
use larder_relocate::{Rule, Writer};

/// How each content of a result is rewritten for another checkout.
#[derive(Debug)]
pub struct Rewrites {
    /// The messages: standard output and standard error, or both in the first one.
    pub messages: [Rewrite; 2],
    /// The outputs, in their order.
    pub outputs: Vec<Rewrite>,
}

impl Rewrites {
    /// Returns the rewrites of a result with this many outputs, none of which is rewritten.
    pub fn none(outputs: usize) -> Rewrites {
        Rewrites { messages: [Rewrite::None; 2], outputs: vec![Rewrite::None; outputs] }
    }
}

/// Returns the rule of `larder-relocate` for a kind of rewrite. Returns `None` if nothing is rewritten,
/// or if that takes more than the content itself ([`Rewrite::RuleHashes`]).
pub fn rule(rewrite: Rewrite) -> Option<Rule> {
    match rewrite {
        Rewrite::None | Rewrite::RuleHashes => None,
        Rewrite::Text => Some(Rule::Text),
        Rewrite::GccDepfile => Some(Rule::Depfile(Writer::Gcc)),
        Rewrite::ClangDepfile => Some(Rule::Depfile(Writer::Clang)),
        Rewrite::Object => Some(Rule::Object),
        Rewrite::Pickle => Some(Rule::Pickle),
        Rewrite::LooseText => Some(Rule::LooseText),
        Rewrite::NinjaDependencies => Some(Rule::NinjaDependencies),
        Rewrite::AsLong => Some(Rule::AsLong),
        Rewrite::ConfigStatus => Some(Rule::ConfigStatus),
    }
}
