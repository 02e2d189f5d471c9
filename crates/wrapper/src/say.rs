//! Messages on standard error. Names of files and programs come from checkouts, so control characters
//! are replaced: a name could otherwise change what a terminal shows.

/// Prints a line that begins with `larder: `.
pub(crate) fn say(text: &str) {
    eprintln!("larder: {}", text.replace(char::is_control, "?"));
}
