//! What a compiler left, which is to be written again for another place.

use larder_relocate::{Places, Rule, Writer, can_be_relocated, hides_its_text, holds_a_root, relocate};

const HERE: [&[u8]; 2] = [b"/w/a", b"/w/a/in"];
/// One that is longer, one that is shorter, one that keeps the roots nested.
const THERE: [[&[u8]; 2]; 3] =
    [[b"/some/where/else", b"/some/where/else/in"], [b"/b", b"/b/in"], [b"/some/where", b"/else/where"]];

/// A byte for the rule, and the rest. What is relocated comes back as it was, and what is in its place stays.
pub(crate) fn relocated(data: &[u8]) {
    let Some((rule, bytes)) = data.split_first() else { return };
    let rule = match rule % 5 {
        0 => Rule::Text,
        1 => Rule::Depfile(Writer::Gcc),
        2 => Rule::Depfile(Writer::Clang),
        3 => Rule::Object,
        _ => Rule::ObjectInAnyOrder,
    };
    holds_a_root(bytes, &HERE);
    hides_its_text(bytes);
    if can_be_relocated(rule, bytes, &HERE) {
        assert!(
            relocate(rule, bytes, &Places { from: &HERE, to: &HERE }).as_deref() == Some(bytes),
            "changed in its place"
        );
    }
    for to in &THERE {
        if let Some(there) = relocate(rule, bytes, &Places { from: &HERE, to }) {
            let back = relocate(rule, &there, &Places { from: to, to: &HERE });
            assert!(back.as_deref() == Some(bytes), "does not come back");
        }
    }
}
