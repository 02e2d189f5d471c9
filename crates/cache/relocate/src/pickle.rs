//! Paths in the strings of a pickle, the format in which Python stores objects. Meson stores the
//! state of a build in it.
//!
//! The layout is that of `Lib/pickletools.py` of Python, protocols 2 to 5. It is a sequence of
//! opcodes, each with its argument. A string follows its length. From protocol 4 on, opcodes are
//! grouped in frames that state their length. Only strings and these lengths change; numbers that
//! refer to objects count the objects, so they stay.
//!
//! Unaware of: what the objects are, and whether anything in them was derived from a path. The
//! caller has compared two pickles.

use crate::names::Names;
use crate::roots::Map;
use crate::text;

const PROTO: u8 = 0x80;
const FRAME: u8 = 0x95;
const STOP: u8 = b'.';
const STRING: u8 = b'X';
const SHORT_STRING: u8 = 0x8c;
const LONG_STRING: u8 = 0x8d;
/// The size of a frame's opcode and length, in bytes.
const FRAME_BYTES: usize = 9;
/// The length of the longest string with a short form, in bytes.
const SHORT_BYTES_MAX: usize = 255;
/// The first protocol with short strings.
const SHORT_SINCE: u8 = 4;

/// The argument that follows an opcode.
enum Argument {
    /// This many bytes.
    Bytes(usize),
    /// A length field of this many bytes, and then as many bytes as it states.
    Counted(usize),
    /// This many lines.
    Lines(usize),
}

fn argument(opcode: u8) -> Option<Argument> {
    Some(match opcode {
        b'K' | b'h' | b'q' | 0x82 | PROTO => Argument::Bytes(1),
        b'M' | 0x83 => Argument::Bytes(2),
        b'J' | b'j' | b'r' | 0x84 => Argument::Bytes(4),
        b'G' | FRAME => Argument::Bytes(8),
        b'U' | b'C' | 0x8a | SHORT_STRING => Argument::Counted(1),
        b'T' | b'B' | 0x8b | STRING => Argument::Counted(4),
        0x8e | 0x96 | LONG_STRING => Argument::Counted(8),
        b'I' | b'g' | b'p' | b'L' | b'S' | b'V' | b'F' | b'P' => Argument::Lines(1),
        b'c' | b'i' => Argument::Lines(2),
        b'N' | b']' | b'a' | b'e' | b'l' | b')' | b't' | b'}' | b'd' | b's' | b'u' | b'0' | b'2' | b'(' | b'1' => {
            Argument::Bytes(0)
        }
        b'R' | b'b' | b'o' | STOP | b'Q' | 0x81 | 0x85..=0x89 | 0x8f..=0x94 | 0x97 | 0x98 => Argument::Bytes(0),
        _ => return None,
    })
}

/// An opcode with its argument.
struct Operation<'a> {
    opcode: u8,
    whole: &'a [u8],
    /// The bytes after a length field, if the argument has one.
    counted: Option<&'a [u8]>,
}

/// An iterator over all opcodes. The last one must end the bytes.
struct Steps<'a> {
    rest: &'a [u8],
    ended: bool,
}

impl<'a> Steps<'a> {
    fn of(bytes: &'a [u8]) -> Steps<'a> {
        Steps { rest: bytes, ended: false }
    }

    /// Returns the next opcode, `Some(None)` after the last, and `None` if the bytes are not a
    /// pickle.
    fn next(&mut self) -> Option<Option<Operation<'a>>> {
        if self.ended {
            return self.rest.is_empty().then_some(None);
        }
        let (bytes, opcode) = (self.rest, *self.rest.first()?);
        let (size, counted) = match argument(opcode)? {
            Argument::Bytes(count) => (1 + count, None),
            Argument::Lines(count) => {
                let ends = bytes.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
                (ends.take(count).last()?, None)
            }
            Argument::Counted(count) => {
                let mut length = [0; 8];
                length[..count].copy_from_slice(bytes.get(1..1 + count)?);
                let size = (1 + count).checked_add(usize::try_from(u64::from_le_bytes(length)).ok()?)?;
                (size, Some(bytes.get(1 + count..size)?))
            }
        };
        self.ended = opcode == STOP;
        self.rest = bytes.get(size..)?;
        Some(Some(Operation { opcode, whole: &bytes[..size], counted }))
    }
}

fn is_string(opcode: u8) -> bool {
    matches!(opcode, STRING | SHORT_STRING | LONG_STRING)
}

/// Returns the pickle with the roots in its strings replaced.
pub(crate) fn relocate(bytes: &[u8], map: &Map<'_>) -> Option<Vec<u8>> {
    rewrite(bytes, &|text| map.stands_in(text), &|text| text::relocate_loosely(text, map))
}

/// Returns the pickle with the ephemeral names in its strings replaced.
pub(crate) fn relocate_names(bytes: &[u8], names: &Names<'_>) -> Option<Vec<u8>> {
    rewrite(bytes, &|text| names.stand_in(text), &|text| names.replace(text))
}

/// Replaces each string for which `holds` returns true by what `again` returns. Returns `None` if
/// an argument that is not a string contains what is to be replaced.
fn rewrite(bytes: &[u8], holds: &dyn Fn(&[u8]) -> bool, again: &dyn Fn(&[u8]) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let mut steps = Steps::of(bytes);
    let (mut out, mut protocol) = (Vec::with_capacity(bytes.len()), 0);
    // The start of the frame in the output, and its end in the input.
    let mut frame: Option<(usize, usize)> = None;
    while let Some(step) = steps.next()? {
        let read = bytes.len() - steps.rest.len();
        match step.opcode {
            PROTO => protocol = step.whole[1],
            FRAME if frame.is_none() => {
                let length = u64::from_le_bytes(step.whole[1..FRAME_BYTES].try_into().ok()?);
                frame = Some((out.len(), read.checked_add(usize::try_from(length).ok()?)?));
            }
            FRAME => return None,
            _ => {}
        }
        match step.counted {
            Some(text) if is_string(step.opcode) && holds(text) => string(&again(text)?, protocol, &mut out)?,
            Some(text) if is_string(step.opcode) => {
                // Python must have written the string in this form, because relocating back must
                // give the same bytes.
                let at = out.len();
                string(text, protocol, &mut out)?;
                if out[at..] != *step.whole {
                    return None;
                }
            }
            _ if holds(step.whole) => return None,
            _ => out.extend_from_slice(step.whole),
        }
        if let Some((begin, end)) = frame {
            if read > end {
                return None;
            }
            if read == end {
                let length = (out.len() - begin - FRAME_BYTES) as u64;
                out[begin + 1..begin + FRAME_BYTES].copy_from_slice(&length.to_le_bytes());
                frame = None;
            }
        }
    }
    frame.is_none().then_some(out)
}

fn string(text: &[u8], protocol: u8, out: &mut Vec<u8>) -> Option<()> {
    match u32::try_from(text.len()).ok()? {
        length if text.len() <= SHORT_BYTES_MAX && protocol >= SHORT_SINCE => out.extend([SHORT_STRING, length as u8]),
        length => {
            out.push(STRING);
            out.extend(length.to_le_bytes());
        }
    }
    out.extend_from_slice(text);
    Some(())
}

/// Returns the strings of a pickle, split at colons and sorted. The result is equal for two pickles
/// that differ only in the order of hash tables. Random UUIDs are left out, and names of temporary
/// files are replaced by `tmp`. Returns `None` if the bytes are not a pickle.
pub fn pickled_words(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut steps, mut words) = (Steps::of(bytes), Vec::new());
    while let Some(step) = steps.next()? {
        if let Some(text) = step.counted.filter(|_| is_string(step.opcode)) {
            words.extend(text.split(|byte| *byte == b':').filter(|word| !is_uuid(word)).map(without_temporary_names));
        }
    }
    words.sort_unstable();
    Some(words)
}

/// Returns a pickle as a text without lengths, so that nothing in it depends on the length of a path.
///
/// Strings are in quotes. Two such texts are equal if and only if the pickles have the same opcodes
/// with the same arguments, except for these lengths. Returns `None` if the bytes are not a pickle.
pub fn unmeasured(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.first() != Some(&PROTO) {
        return None;
    }
    let (mut steps, mut out) = (Steps::of(bytes), Vec::with_capacity(bytes.len()));
    while let Some(step) = steps.next()? {
        match step.counted.filter(|_| is_string(step.opcode)) {
            Some(text) => {
                out.push(b'"');
                escape(text, &mut out);
                out.push(b'"');
            }
            None if step.opcode == FRAME => out.push(FRAME),
            None => escape(step.whole, &mut out),
        }
    }
    Some(out)
}

fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', *byte]),
            // A text has no zeros.
            0 => out.extend(b"\\0"),
            _ => out.push(*byte),
        }
    }
}

fn without_temporary_names(word: &[u8]) -> Vec<u8> {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let mut shown = Vec::with_capacity(word.len());
    for name in word.chunk_by(|a, b| is_part(a) == is_part(b)) {
        shown.extend_from_slice(if is_temporary(name) { b"tmp" } else { name });
    }
    shown
}

/// Returns true for a name that Python's `tempfile` makes (`tmp` and eight letters, digits or `_`),
/// or that gcc makes (`cc` and six).
fn is_temporary(name: &[u8]) -> bool {
    let lower = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_';
    let is_made_of = |begins: &[u8], count, is_one: &dyn Fn(&u8) -> bool| {
        name.strip_prefix(begins).is_some_and(|rest| rest.len() == count && rest.iter().all(is_one))
    };
    is_made_of(b"tmp", 8, &lower) || is_made_of(b"cc", 6, &u8::is_ascii_alphanumeric)
}

/// Returns true for hexadecimal digits in the groups `8-4-4-4-12`.
fn is_uuid(word: &[u8]) -> bool {
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
    word.split(|byte| *byte == b'-').map(<[u8]>::len).eq(GROUPS)
        && word.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-')
}

#[cfg(test)]
mod tests {
    use crate::{Places, Rule, can_be_relocated, pickled_words, relocate, unmeasured};

    /// `pickle.dumps({"p": "/w/a/x", "q": ["/w/ab", "/w/a"], "n": 7}, protocol=4)` of Python 3.11.
    const FOURTH: &[u8] =
        b"\x80\x04\x95/\0\0\0\0\0\0\0}\x94(\x8c\x01p\x94\x8c\x06/w/a/x\x94\x8c\x01q\x94]\x94(\x8c\x05/w/ab\x94\
        \x8c\x04/w/a\x94e\x8c\x01n\x94K\x07u.";
    /// This object with protocol 2.
    const SECOND: &[u8] =
        b"\x80\x02}q\0(X\x01\0\0\0pq\x01X\x06\0\0\0/w/a/xq\x02X\x01\0\0\0qq\x03]q\x04(X\x05\0\0\0/w/abq\x05\
        X\x04\0\0\0/w/aq\x06eX\x01\0\0\0nq\x07K\x07u.";

    fn to<'a>(bytes: &[u8], there: &'a [&'a [u8]]) -> Option<Vec<u8>> {
        relocate(Rule::Pickle, bytes, &Places { from: &[b"/w/a"], to: there })
    }

    #[test]
    fn strings_and_the_lengths_around_them_change() {
        let there = to(FOURTH, &[b"/elsewhere"]).expect("is valid");
        let expect: &[u8] =
            b"\x80\x04\x95;\0\0\0\0\0\0\0}\x94(\x8c\x01p\x94\x8c\x0c/elsewhere/x\x94\x8c\x01q\x94]\x94(\
            \x8c\x05/w/ab\x94\x8c\x0a/elsewhere\x94e\x8c\x01n\x94K\x07u.";
        assert_eq!(there, expect);
        let back = relocate(Rule::Pickle, &there, &Places { from: &[b"/elsewhere"], to: &[b"/w/a"] });
        assert_eq!(back.as_deref(), Some(FOURTH));
        assert!(to(SECOND, &[b"/elsewhere"]).expect("is valid").windows(16).any(|w| w == b"X\x0c\0\0\0/elsewhere/"));
        assert!(
            can_be_relocated(Rule::Pickle, FOURTH, &[b"/w/a"]) && can_be_relocated(Rule::Pickle, SECOND, &[b"/w/a"])
        );
    }

    #[test]
    fn a_text_without_lengths() {
        let text = |bytes: &[u8]| String::from_utf8_lossy(&unmeasured(bytes).expect("is no pickle")).into_owned();
        let root = [b"/", [b'r'; 300].as_slice()].concat();
        for there in [&b"/elsewhere"[..], &root] {
            let moved = to(FOURTH, &[there]).expect("is valid");
            assert_eq!(text(&moved).replace(&*String::from_utf8_lossy(there), "/w/a"), text(FOURTH));
        }
        // What separates strings and arguments can be told from what is in them.
        let pairs: [[&[u8]; 2]; 3] = [
            [b"\x80\x04\x8c\x03a\"b.", b"\x80\x04\x8c\x03a\\b."],
            [b"\x80\x04\x8c\x01aK\0.", b"\x80\x04\x8c\x01aK0."],
            [b"\x80\x04\x8c\x02aK\x8c\0.", b"\x80\x04\x8c\x01aK\x8c."],
        ];
        for [one, other] in pairs {
            assert_ne!(unmeasured(one), unmeasured(other), "{one:?}");
            assert!(unmeasured(one).is_some_and(|text| !text.contains(&0)), "{one:?}");
        }
        assert_eq!([unmeasured(b"/w/a."), unmeasured(&FOURTH[..9])], [None, None]);
    }

    #[test]
    fn a_string_may_become_long() {
        let root = [b"/", [b'r'; 300].as_slice()].concat();
        let there = to(FOURTH, &[&root]).expect("is valid");
        assert!(there.windows(5).any(|w| w == b"X\x2f\x01\0\0"), "303 bytes with `/x`");
        assert_eq!(relocate(Rule::Pickle, &there, &Places { from: &[&root], to: &[b"/w/a"] }).as_deref(), Some(FOURTH));
    }

    #[test]
    fn what_is_no_pickle_or_holds_it_elsewhere_is_refused() {
        for cut in 0..FOURTH.len() {
            assert!(to(&FOURTH[..cut], &[b"/b"]).is_none(), "cut at {cut}");
        }
        assert!(to(&[FOURTH, b"."].concat(), &[b"/b"]).is_none());
        // The path in a bytes object, and in an opcode that takes lines.
        assert!(to(b"\x80\x04C\x06/w/a/x.", &[b"/b"]).is_none());
        assert!(to(b"\x80\x02c/w/a\nx\n.", &[b"/b"]).is_none());
        // Python would have written this string in its short form.
        assert!(to(b"\x80\x04X\x01\0\0\0p.", &[b"/b"]).is_none());
        assert!(to(b"/w/a is text", &[b"/b"]).is_none());
    }

    #[test]
    fn words_are_those_of_any_order() {
        let words = pickled_words(FOURTH).expect("is a pickle");
        assert_eq!(words, [&b"/w/a"[..], b"/w/a/x", b"/w/ab", b"n", b"p", b"q"]);
        let paths = |text: &str| [b"\x80\x04\x8c", &[text.len() as u8][..], text.as_bytes(), b"."].concat();
        let (one, other) =
            (paths("/a:/b:6BF7C1D2-8C14-4C3E-9E33-0123456789AB"), paths("/b:00000000-8c14-4c3e-9e33-0123456789ab:/a"));
        assert_eq!(pickled_words(&one), pickled_words(&other));
        assert_ne!(pickled_words(&one), pickled_words(&paths("/a:/c")));
        assert_eq!(pickled_words(&paths("/a/tmpab12_xyz/o")), pickled_words(&paths("/a/tmp12345678/o")));
        assert_eq!(pickled_words(&paths("ld /tmp/ccaB3dEf.o x")), pickled_words(&paths("ld /tmp/cc123456.o x")));
    }
}
