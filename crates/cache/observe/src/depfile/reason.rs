//! Why a run cannot be proved, as a message.

/// A message that says why a run cannot be proved.
pub(super) type Reason = String;

/// Converts a path to text for a message.
pub(super) fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
