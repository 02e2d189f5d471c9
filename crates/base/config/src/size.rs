//! Parses and prints sizes.
//!
//! ```text
//! size   := number [ blanks ] [ unit ]        number := digits [ "." digits ] unit   := "B" |
//! letter | letter "B" | letter "iB"      letter := K | M | G | T      (in any case)
//! ```
//!
//! `K` and `KiB` are 1024, `KB` is 1000. A number without a unit is in bytes.
//!
//! Unaware of: what a size limits.

use std::error::Error;
use std::fmt;

/// The maximum number of digits after the point. Further digits could not change a size below 2^64
/// bytes in any unit.
const FRACTION_DIGITS_MAX: usize = 18;

/// A number below this many bytes is refused if it has no unit, because the unit was probably
/// forgotten.
const BARE_BYTES_MIN: u64 = 1 << 20;

/// The reason why a text is not a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotASize {
    /// It does not follow the grammar.
    Grammar,
    /// It is a small number without a unit.
    UnitMissing,
    /// It is 2^64 bytes or more.
    TooLarge,
}

impl fmt::Display for NotASize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotASize::Grammar => "write a size such as 10G, 10GiB or 500 MB; 0 is no limit",
            NotASize::UnitMissing => "without a unit this means bytes: write a unit, as in 10G",
            NotASize::TooLarge => "it is too large: write a size such as 10G, or 0 for no limit",
        })
    }
}

impl Error for NotASize {}

/// Returns the number of bytes for a text such as `10G`.
pub fn parse_size(text: &str) -> Result<u64, NotASize> {
    let text = text.trim();
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    let (whole, fraction) = number.split_once('.').map_or((number, None), |(whole, rest)| (whole, Some(rest)));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
    if !digits(whole) || !fraction.is_none_or(|part| digits(part) && part.len() <= FRACTION_DIGITS_MAX) {
        return Err(NotASize::Grammar);
    }
    let unit = unit.trim_start();
    let unit_bytes = unit_bytes(unit).ok_or(NotASize::Grammar)?;
    if unit_bytes == 1 && fraction.is_some() {
        return Err(NotASize::UnitMissing);
    }
    let whole: u128 = whole.parse::<u64>().map_err(|_| NotASize::TooLarge)?.into();
    let part =
        fraction.map_or(0, |f| f.parse::<u128>().unwrap_or(0) * u128::from(unit_bytes) / 10u128.pow(f.len() as u32));
    let bytes = u64::try_from(whole * u128::from(unit_bytes) + part).map_err(|_| NotASize::TooLarge)?;
    match bytes {
        1..BARE_BYTES_MIN if unit.is_empty() => Err(NotASize::UnitMissing),
        _ => Ok(bytes),
    }
}

/// Returns a text for exactly `size_bytes`, in the largest unit that gives a whole number: `10
/// GiB`, `500 MB`, `0`.
pub fn show_size(size_bytes: u64) -> String {
    const UNITS: [&str; 8] = ["TiB", "TB", "GiB", "GB", "MiB", "MB", "KiB", "KB"];
    let whole = |unit: &'static str| Some((unit, unit_bytes(unit).filter(|bytes| size_bytes.is_multiple_of(*bytes))?));
    match UNITS.into_iter().find_map(whole) {
        _ if size_bytes == 0 => "0".to_owned(),
        Some((unit, bytes)) => format!("{} {unit}", size_bytes / bytes),
        None => format!("{size_bytes} B"),
    }
}

/// Returns the number of bytes in one `unit`.
fn unit_bytes(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    let (base, letter): (u64, &str) = match unit.as_str() {
        "" | "b" => return Some(1),
        unit if unit.ends_with("ib") => (1024, &unit[..unit.len() - 2]),
        unit if unit.ends_with('b') => (1000, &unit[..unit.len() - 1]),
        unit => (1024, unit),
    };
    let power = ["k", "m", "g", "t"].iter().position(|known| *known == letter)?;
    Some(base.pow(power as u32 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        use NotASize::{Grammar, TooLarge, UnitMissing};
        let check = |text: &str, expected: Result<u64, NotASize>| assert_eq!(parse_size(text), expected, "{text:?}");
        check("0", Ok(0));
        check("0G", Ok(0));
        check("10G", Ok(10 << 30));
        check("10GiB", Ok(10 << 30));
        check(" 10 gib ", Ok(10 << 30));
        check("500 MB", Ok(500_000_000));
        check("500MB", Ok(500_000_000));
        check("1.5G", Ok(3 << 29));
        check("0.5kb", Ok(500));
        check("100K", Ok(100 << 10));
        check("2T", Ok(2 << 40));
        check("7 B", Ok(7));
        check("1048576", Ok(1 << 20));
        check("16777215T", Ok(16_777_215 << 40));
        check("10", Err(UnitMissing));
        check("1.5", Err(UnitMissing));
        check("16777216T", Err(TooLarge));
        check("99999999999999999999", Err(TooLarge));
        for text in [
            "", "G", "-1", "+1", "1e9", "10 X", "10 GiBs", "1.G", ".5G", "1..5G", "1.5.5G", "ten", "10iB", "1,5G", "٣G",
        ] {
            check(text, Err(Grammar));
        }
        check(&format!("1.{}G", "0".repeat(19)), Err(Grammar));
    }

    #[test]
    fn shown_sizes_parse_to_themselves() {
        let check = |bytes: u64, expected: &str| {
            assert_eq!(show_size(bytes), expected);
            assert_eq!(parse_size(expected), Ok(bytes));
        };
        check(0, "0");
        check(10 << 30, "10 GiB");
        check(500_000_000, "500 MB");
        check(3 << 29, "1536 MiB");
        check(1_000_000_000_000, "1 TB");
        check(7, "7 B");
        check(u64::MAX, "18446744073709551615 B");
    }
}
