//! Searches what a run left for root paths.
//!
//! Unaware of: whether a result that holds one can be used elsewhere.

use larder_compiler::Family;
use larder_model::Rewrite;
use larder_relocate::{can_be_relocated, hides_its_text, holds_a_root, holds_a_root_in_parts};

use crate::facts::{CommandFacts, Content, Outcome, Output, OutputKind, RunFacts};
use crate::rewrites::rule;

/// Which outputs and messages hold a root path.
pub(crate) struct Holding {
    pub(crate) outputs: Vec<bool>,
    pub(crate) messages: Vec<bool>,
}

impl Holding {
    pub(crate) fn any(&self) -> bool {
        self.outputs.iter().chain(&self.messages).any(|holds| *holds)
    }
}

impl RunFacts<'_> {
    pub(crate) fn holding(&self, outcome: &Outcome) -> Holding {
        let output = |output: &Output| match output.kind {
            OutputKind::File(content) => self.holds_us(content),
            OutputKind::Link(target) => self.bytes_hold_us(target),
            OutputKind::Other => false,
        };
        Holding {
            outputs: outcome.outputs.iter().map(output).collect(),
            messages: outcome.messages.iter().map(|content| self.holds_us(*content)).collect(),
        }
    }

    pub(crate) fn holds_us(&self, content: &dyn Content) -> bool {
        content.bytes().is_none_or(|bytes| self.bytes_hold_us(&bytes) || hides_its_text(&bytes))
    }

    pub(crate) fn bytes_hold_us(&self, bytes: &[u8]) -> bool {
        let CommandFacts { family, action, roots, .. } = self.command;
        // rustc names the working directory, and crates that it reads name theirs. Such a directory may
        // be above the target directory, but was not derived from its path: the key has the one, and the
        // contents of the crates the other. See `crate_of_rust` for sources and macros.
        match family == Family::Rustc && roots.is_outside(&action.cwd) {
            true => holds_a_root_in_parts(bytes, &self.roots()),
            false => holds_a_root(bytes, &self.roots()),
        }
    }

    pub(crate) fn rule_for(&self, content: &dyn Content, rules: &[Rewrite]) -> Option<Rewrite> {
        let bytes = content.bytes()?;
        let roots = self.roots();
        rules.iter().copied().find(|rewrite| rule(*rewrite).is_some_and(|rule| can_be_relocated(rule, &bytes, &roots)))
    }
}
