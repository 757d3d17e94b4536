//! Sizes in bytes as people write them: `64M`, `1GiB`, `1048576`.

use std::fmt;
use std::str::FromStr;

/// 1,024 bytes.
pub const KIB: u64 = 1 << 10;
/// 1,024 KiB.
pub const MIB: u64 = 1 << 20;
/// 1,024 MiB.
pub const GIB: u64 = 1 << 30;
/// 1,024 GiB.
pub const TIB: u64 = 1 << 40;

/// A number of bytes; written with the units `K`, `M`, `G`, `T`, all powers of 1,024, with or without `B` or `iB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

/// A text that is no size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a size: write bytes or a unit, as in 1048576, 512K, 64M or 2GiB")]
pub struct ParseByteSizeError(String);

impl FromStr for ByteSize {
    type Err = ParseByteSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ParseByteSizeError(text.to_owned());
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = text[..digits].parse().map_err(|_| refuse())?;
        let unit = match text[digits..].trim_start().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" | "kib" => KIB,
            "m" | "mb" | "mib" => MIB,
            "g" | "gb" | "gib" => GIB,
            "t" | "tb" | "tib" => TIB,
            _ => return Err(refuse()),
        };
        number.checked_mul(unit).map(ByteSize).ok_or_else(refuse)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, name) in [(TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")] {
            if self.0 >= unit {
                return if self.0.is_multiple_of(unit) {
                    write!(f, "{} {name}", self.0 / unit)
                } else {
                    #[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
                    let value = self.0 as f64 / unit as f64;
                    write!(f, "{value:.1} {name}")
                };
            }
        }
        write!(f, "{} B", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        for (text, bytes) in
            [("0", 0), ("1048576", MIB), ("512K", 512 * KIB), ("2GiB", 2 * GIB), ("3 mb", 3 * MIB), ("7b", 7)]
        {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_an_example() {
        for text in ["", "M", "-1", "1.5G", "1X", "99999999999T"] {
            let error = text.parse::<ByteSize>().unwrap_err();
            assert!(error.to_string().contains("64M"), "{error}");
        }
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit() {
        assert_eq!(ByteSize(0).to_string(), "0 B");
        assert_eq!(ByteSize(MIB).to_string(), "1 MiB");
        assert_eq!(ByteSize(3 * GIB / 2).to_string(), "1.5 GiB");
    }
}
