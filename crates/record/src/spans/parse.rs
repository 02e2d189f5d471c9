//! Recognises the format of a report by its content.

use std::io::Read;

use flate2::read::MultiGzDecoder;

use super::parsed::Parsed;
use super::{cargo, chrome, make, ninja};

/// Unpacks gzip. Other content is returned as it is.
pub(super) fn unpacked(bytes: Vec<u8>, bytes_max: u64) -> Result<Vec<u8>, String> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes);
    }
    let mut plain = Vec::new();
    let read = MultiGzDecoder::new(&bytes[..]).take(bytes_max + 1).read_to_end(&mut plain);
    read.map_err(|error| format!("not complete: {error}"))?;
    if plain.len() as u64 > bytes_max {
        return Err(format!("larger than {bytes_max} bytes unpacked"));
    }
    Ok(plain)
}

/// Parses a report that was written after `since_ns` (nanoseconds since 1970). Returns `None` if its
/// format is not known.
pub(super) fn any(bytes: &[u8], since_ns: u64) -> Result<Option<Parsed>, String> {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    let json = |error: serde_json::Error| error.to_string();
    match first {
        Some(b'{' | b'[') => chrome::parse(bytes).map_err(json),
        Some(b'<') => cargo::parse(bytes).map_err(json),
        _ if bytes.starts_with(ninja::START) => Ok(Some(ninja::parse(bytes, since_ns))),
        _ => Ok(make::parse(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn gzip_is_unpacked_up_to_a_limit() {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
        packed.write_all(&[b' '; 10_000]).expect("packs");
        let packed = packed.finish().expect("packs");
        assert_eq!(unpacked(packed.clone(), 10_000).map(|plain| plain.len()), Ok(10_000));
        assert!(unpacked(packed.clone(), 9_999).is_err_and(|why| why.contains("larger")));
        assert!(unpacked(packed[..packed.len() / 2].to_vec(), 10_000).is_err());
        assert_eq!(unpacked(b"plain".to_vec(), 1), Ok(b"plain".to_vec()));
    }

    #[test]
    fn other_content_is_no_report() {
        for text in ["", "text", "{}", "[]", "<html>", "{\"a\":1}", "[{}]"] {
            assert_eq!(any(text.as_bytes(), 0), Ok(None), "{text}");
        }
        assert!(any(&b"[".repeat(100_000), 0).is_err(), "it is nested too deeply");
    }
}
