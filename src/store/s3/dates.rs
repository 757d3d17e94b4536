//! The two ways S3 writes a moment: ISO 8601 in XML, and the fixed form of HTTP's `Date` and `Last-Modified`.
//!
//! Both readers are lenient about what stores vary and answer `None` for the rest; neither allocates.

use time::{Date, Month};

use crate::model::UnixMillis;

const SECONDS_PER_DAY: i64 = 86_400;

/// Reads `2009-10-12T17:50:30.000Z`: with any number of fraction digits or none, with `Z`, an offset or neither.
pub(super) fn parse_iso8601(text: &[u8]) -> Option<UnixMillis> {
    let text = text.trim_ascii();
    if text.len() < 19 || text[4] != b'-' || text[7] != b'-' || !matches!(text[10], b'T' | b't' | b' ') {
        return None;
    }
    if text[13] != b':' || text[16] != b':' {
        return None;
    }
    let days = days_since_1970(number(&text[..4])?, number(&text[5..7])?, number(&text[8..10])?)?;
    let seconds = seconds_of_day(&text[11..13], &text[14..16], &text[17..19])?;
    let mut rest = &text[19..];
    let mut millis = 0;
    if let [b'.' | b',', fraction @ ..] = rest {
        let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let missing = std::iter::repeat(&b'0');
        for digit in fraction[..digits].iter().chain(missing).take(3) {
            millis = millis * 10 + i64::from(digit - b'0');
        }
        rest = &fraction[digits..];
    }
    let offset_seconds = match rest {
        [] | [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), offset @ ..] => {
            let (hours, minutes) = match offset.len() {
                5 if offset[2] == b':' => (&offset[..2], &offset[3..]),
                4 => (&offset[..2], &offset[2..]),
                _ => return None,
            };
            let seconds = number(hours)? * 3600 + number(minutes)? * 60;
            if *sign == b'-' { -seconds } else { seconds }
        }
        _ => return None,
    };
    Some(UnixMillis((days * SECONDS_PER_DAY + seconds - offset_seconds) * 1000 + millis))
}

/// Reads `Sun, 06 Nov 1994 08:49:37 GMT` as seconds since 1970.
pub(super) fn parse_http_date(text: &str) -> Option<i64> {
    const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let text = text.trim().as_bytes();
    if text.len() != 29 || !text.ends_with(b" GMT") || text[19] != b':' || text[22] != b':' {
        return None;
    }
    let month = MONTHS.chunks_exact(3).position(|name| name == &text[8..11])?;
    let days = days_since_1970(number(&text[12..16])?, i64::try_from(month).ok()? + 1, number(&text[5..7])?)?;
    Some(days * SECONDS_PER_DAY + seconds_of_day(&text[17..19], &text[20..22], &text[23..25])?)
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0_i64, |value, byte| byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0')))
}

fn seconds_of_day(hours: &[u8], minutes: &[u8], seconds: &[u8]) -> Option<i64> {
    let (hours, minutes, seconds) = (number(hours)?, number(minutes)?, number(seconds)?);
    // 60 is a leap second; 24:00:00 is allowed by ISO 8601.
    (hours <= 24 && minutes < 60 && seconds <= 60).then_some(hours * 3600 + minutes * 60 + seconds)
}

fn days_since_1970(year: i64, month: i64, day: i64) -> Option<i64> {
    const JULIAN_DAY_OF_1970: i64 = 2_440_588;
    let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
    let date = Date::from_calendar_date(i32::try_from(year).ok()?, month, u8::try_from(day).ok()?).ok()?;
    Some(i64::from(date.to_julian_day()) - JULIAN_DAY_OF_1970)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xml_dates_are_read_in_every_form_that_stores_write() {
        for (text, millis) in [
            ("2009-10-12T17:50:30.000Z", 1_255_369_830_000),
            ("2009-10-12T17:50:30Z", 1_255_369_830_000),
            ("2009-10-12T17:50:30", 1_255_369_830_000),
            (" 2009-10-12T17:50:30.5Z ", 1_255_369_830_500),
            ("2009-10-12T17:50:30.123456789Z", 1_255_369_830_123),
            ("2009-10-12T19:50:30.000+02:00", 1_255_369_830_000),
            ("2009-10-12T15:50:30.000-0200", 1_255_369_830_000),
            ("1969-12-31T23:59:59.000Z", -1000),
            ("0001-01-01T00:00:00Z", -62_135_596_800_000),
            ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ] {
            assert_eq!(parse_iso8601(text.as_bytes()), Some(UnixMillis(millis)), "{text}");
        }
        for text in
            ["", "never", "2009-10-12", "2009-13-12T17:50:30Z", "2009-10-12T17:50:30Zulu", "2009-10-12T99:50:30Z"]
        {
            assert_eq!(parse_iso8601(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn http_dates_are_read() {
        assert_eq!(parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        for text in ["", "Sun, 06 Nov 1994 08:49:37", "Sun, 06 Abc 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT"]
        {
            assert_eq!(parse_http_date(text), None, "{text}");
        }
    }
}
