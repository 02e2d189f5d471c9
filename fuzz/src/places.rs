//! Relocation: outputs of a compiler are rewritten for another checkout.

use larder_relocate::{Places, Rule, Writer, can_be_relocated, hides_its_text, holds_a_root, relocate};

const HERE: [&[u8]; 2] = [b"/w/a", b"/w/a/in"];
/// Roots that are longer, roots that are shorter, and roots that are not nested.
const THERE: [[&[u8]; 2]; 3] =
    [[b"/some/where/else", b"/some/where/else/in"], [b"/b", b"/b/in"], [b"/some/where", b"/else/where"]];

/// The first byte selects the rule, and the rest is the output. Relocating there and back must give
/// the same bytes, and so must relocating to the same roots.
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
            "relocation to the same roots changes the bytes"
        );
    }
    for to in &THERE {
        if let Some(there) = relocate(rule, bytes, &Places { from: &HERE, to }) {
            let back = relocate(rule, &there, &Places { from: to, to: &HERE });
            assert!(back.as_deref() == Some(bytes), "relocation there and back changes the bytes");
        }
    }
}
