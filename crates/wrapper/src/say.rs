//! Messages on standard error. Names of files and programs come from checkouts, so control characters
//! are replaced: a name could otherwise change what a terminal shows.

use std::io::Write as _;

/// Prints a line that begins with `larder: `.
pub(crate) fn say(text: &str) {
    // Standard error may be closed meanwhile.
    let _ = writeln!(std::io::stderr(), "larder: {}", text.replace(char::is_control, "?"));
}
