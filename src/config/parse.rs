//! How single values are read. Each error says what would be accepted.

use std::path::PathBuf;
use std::time::Duration;

use crate::model::ByteSize;

/// `true` or `false`; also what other tools write for them.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err("write true or false".to_owned()),
    }
}

/// Any text but an empty one.
pub(super) fn text(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("it must not be empty".to_owned()) } else { Ok(text.to_owned()) }
}

/// A path.
pub(super) fn path(given: &str) -> Result<PathBuf, String> {
    text(given).map(PathBuf::from)
}

/// Permission bits in octal, up to 0777.
pub(super) fn mode(text: &str) -> Result<u16, String> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    let octal = !digits.is_empty() && digits.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    octal
        .then(|| u16::from_str_radix(digits, 8).ok())
        .flatten()
        .filter(|&mode| mode <= 0o777)
        .ok_or_else(|| "write octal permission bits from 000 to 777, as in 022".to_owned())
}

/// A user or group id.
pub(super) fn id(text: &str) -> Result<u32, String> {
    // The last one means "no user" to the kernel.
    text.parse().ok().filter(|&id| id != u32::MAX).ok_or_else(|| "write a number from 0 to 4294967294".to_owned())
}

/// A whole number from `least` to `most`.
pub(super) fn count(text: &str, least: u32, most: u32) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|count| (least..=most).contains(count))
        .ok_or_else(|| format!("write a number from {least} to {most}"))
}

/// `count` for those who count in `usize`.
pub(super) fn size(text: &str, least: u32, most: u32) -> Result<usize, String> {
    count(text, least, most).and_then(|count| usize::try_from(count).map_err(|error| error.to_string()))
}

/// A number of bytes, at least `least`.
pub(super) fn bytes(text: &str, least: ByteSize) -> Result<ByteSize, String> {
    let size: ByteSize =
        text.parse().map_err(|_| "write bytes or a unit, as in 1048576, 512K, 64M or 2GiB".to_owned())?;
    if size < least { Err(format!("it must be at least {least}")) } else { Ok(size) }
}

/// A time span with its unit: `500ms`, `30s`, `5m`, `1h`, `1.5s`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let refuse = || "write a number and a unit, as in 500ms, 30s, 5m or 1h".to_owned();
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let number: f64 = text[..digits].parse().map_err(|_| refuse())?;
    let unit_seconds = match text[digits..].trim_start() {
        "ms" => 0.001,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "" if number == 0.0 => 1.0,
        _ => return Err(refuse()),
    };
    // Rounded to a microsecond: a decimal fraction of a second is not exact in binary.
    let micros = (number * unit_seconds * 1e6).round();
    // A year is for ever; more than that would only overflow deadlines.
    if micros > 366.0 * 86_400.0 * 1e6 {
        return Err("it must be at most a year".to_owned());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to a year in microseconds")]
    Ok(Duration::from_micros(micros as u64))
}

/// One of a table's words.
pub(super) fn choice<T: Copy>(text: &str, table: &[(&str, T)]) -> Result<T, String> {
    let found = table.iter().find(|(word, _)| word.eq_ignore_ascii_case(text)).map(|&(_, value)| value);
    found.ok_or_else(|| {
        let words: Vec<&str> = table.iter().map(|&(word, _)| word).collect();
        format!("write one of {}", words.join(", "))
    })
}

/// An address of the store: `http`, `https`, or a bare host; never with a password in it.
pub(super) fn endpoint(text: &str) -> Result<String, String> {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest),
        None => ("https".to_owned(), text),
    };
    if scheme != "http" && scheme != "https" {
        return Err(format!("{scheme} is not spoken: write http:// or https:// and the host"));
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err("credentials do not belong in an address: use the environment or a profile".to_owned());
    }
    if authority.is_empty() || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("write the address of a server, as in https://s3.example.com:9000".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MIB;

    #[test]
    fn booleans_are_words_of_other_tools_too() {
        for text in ["true", "TRUE", "1", "yes", "on"] {
            assert_eq!(boolean(text), Ok(true), "{text}");
        }
        for text in ["false", "0", "no", "off"] {
            assert_eq!(boolean(text), Ok(false), "{text}");
        }
        assert_eq!(boolean(""), Err("write true or false".to_owned()));
        assert!(boolean("maybe").is_err());
    }

    #[test]
    fn modes_are_octal_whether_or_not_they_look_it() {
        for (text, mode_bits) in [("022", 0o22), ("22", 0o22), ("0o755", 0o755), ("0", 0), ("0777", 0o777)] {
            assert_eq!(mode(text), Ok(mode_bits), "{text}");
        }
        for text in ["", "8", "1777", "-1", "+7", "0x12", "u=rw", "77777777"] {
            assert!(mode(text).unwrap_err().contains("022"), "{text}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        for (text, expected) in [
            ("500ms", Duration::from_millis(500)),
            ("30s", Duration::from_secs(30)),
            ("5m", Duration::from_secs(300)),
            ("1h", Duration::from_secs(3600)),
            ("1.5s", Duration::from_millis(1500)),
            ("0.1ms", Duration::from_micros(100)),
            ("10 s", Duration::from_secs(10)),
            ("0", Duration::ZERO),
        ] {
            assert_eq!(duration(text), Ok(expected), "{text}");
        }
        for text in ["", "5", "s", "5d", "-5s", "1..5s", "inf", "5 s s"] {
            assert!(duration(text).unwrap_err().contains("500ms"), "{text}");
        }
        assert_eq!(duration("99999999h"), Err("it must be at most a year".to_owned()));
    }

    #[test]
    fn counts_and_ids_stay_in_their_range() {
        assert_eq!(count("3", 1, 3), Ok(3));
        for text in ["0", "4", "", "-1", "2.0", "99999999999"] {
            assert_eq!(count(text, 1, 3), Err("write a number from 1 to 3".to_owned()), "{text}");
        }
        assert_eq!(id("0"), Ok(0));
        assert!(id("4294967295").is_err());
        assert!(id("root").is_err());
    }

    #[test]
    fn sizes_have_a_floor() {
        assert_eq!(bytes("64M", ByteSize(MIB)), Ok(ByteSize(64 * MIB)));
        assert_eq!(bytes("1K", ByteSize(MIB)), Err("it must be at least 1 MiB".to_owned()));
        assert!(bytes("much", ByteSize(0)).unwrap_err().contains("512K"));
    }

    #[test]
    fn endpoints_keep_their_form_and_never_hold_a_password() {
        for good in [
            "https://s3.example.com",
            "http://127.0.0.1:9000/",
            "http://[::1]:9000",
            "https://host:443/path/",
            "oss-cn-hangzhou-internal.aliyuncs.com",
            "localhost:9000",
        ] {
            assert_eq!(endpoint(good).as_deref(), Ok(good));
        }
        for (bad, says) in [
            ("", "write the address"),
            ("https://", "write the address"),
            ("http:// host", "write the address"),
            ("ftp://host", "ftp is not spoken"),
            ("https://key:secret@host", "credentials do not belong"),
            ("key:secret@host", "credentials do not belong"),
        ] {
            let error = endpoint(bad).unwrap_err();
            assert!(error.contains(says), "{bad}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
