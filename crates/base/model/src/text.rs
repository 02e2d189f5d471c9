//! Text as bytes.

/// Returns true if the byte can be part of a word for a preprocessor: of an identifier or a number.
pub fn is_in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns the word that stands at the start of `text`, which is empty if none does.
pub fn leading_word(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| !is_in_word(*byte)).unwrap_or(text.len());
    &text[..end]
}

/// Returns the word that stands at the end of `text`, which is empty if none does.
pub fn trailing_word(text: &[u8]) -> &[u8] {
    let start = text.iter().rposition(|byte| !is_in_word(*byte)).map_or(0, |last| last + 1);
    &text[start..]
}

/// Returns true if `part` is a part of `text`.
pub fn contains(text: &[u8], part: impl AsRef<[u8]>) -> bool {
    memchr::memmem::find(text, part.as_ref()).is_some()
}

/// Returns true if one of `parts` is a part of `text`.
pub fn contains_any(text: &[u8], parts: &[impl AsRef<[u8]>]) -> bool {
    parts.iter().any(|part| contains(text, part))
}
