//! Points in time as the records hold them: ISO 8601 in UTC with three digits of milliseconds.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// The last millisecond that has a year of four digits.
const MAX_MS: i64 = 253_402_300_799_999;

/// Milliseconds since 1970 in UTC, from 0 to the end of the year 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(i64);

impl Time {
    /// The earliest.
    pub const ZERO: Self = Self(0);
    /// The latest.
    pub const MAX: Self = Self(MAX_MS);

    /// From milliseconds since 1970, held to the bounds.
    #[must_use]
    pub const fn from_ms(ms: i64) -> Self {
        if ms < 0 {
            Self(0)
        } else if ms > MAX_MS {
            Self::MAX
        } else {
            Self(ms)
        }
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub const fn ms(self) -> i64 {
        self.0
    }

    /// Later by so many milliseconds, held to the bounds.
    #[must_use]
    pub const fn plus_ms(self, ms: i64) -> Self {
        Self::from_ms(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this; negative when it is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> i64 {
        self.0 - earlier.0
    }

    /// The exact form of the records and nothing else: `2030-01-02T03:04:05.000Z`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        // A record has several, and a start reads thousands of records.
        let bytes: &[u8; 24] = text.as_bytes().try_into().ok()?;
        let form = b"0000-00-00T00:00:00.000Z";
        let fits = |(byte, form): (&u8, &u8)| match form {
            b'0' => byte.is_ascii_digit(),
            _ => byte == form,
        };
        if !bytes.iter().zip(form).all(fits) {
            return None;
        }
        let number = |from: usize, to: usize| {
            let digits = bytes[from..to].iter();
            digits.fold(0_i32, |number, digit| number * 10 + i32::from(digit - b'0'))
        };
        let small = |from: usize| i8::try_from(number(from, from + 2)).ok();
        // No leap second and no 24:00.
        let civil = DateTime::new(
            i16::try_from(number(0, 4)).ok()?,
            small(5)?,
            small(8)?,
            small(11)?,
            small(14)?,
            small(17)?,
            number(20, 23) * 1_000_000,
        );
        Self::of(TimeZone::UTC.to_timestamp(civil.ok()?).ok()?)
    }

    /// What a service may send as a deadline: a date, or a date with a time, with an offset or
    /// without (which is UTC), or the form of a mail header. Longer than 64 bytes is refused.
    #[must_use]
    pub fn parse_lenient(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.is_empty() || text.len() > 64 {
            return None;
        }
        if let Some(time) = Self::parse_timestamp(text) {
            return Some(time);
        }
        if let Ok(zoned) = jiff::fmt::rfc2822::parse(text) {
            return Self::of(zoned.timestamp());
        }
        let civil = text
            .parse::<DateTime>()
            .ok()
            .or_else(|| text.parse::<Date>().ok().map(|date| date.at(0, 0, 0, 0)))?;
        Self::of(TimeZone::UTC.to_timestamp(civil).ok()?)
    }

    fn parse_timestamp(text: &str) -> Option<Self> {
        Self::of(text.parse().ok()?)
    }

    fn of(timestamp: Timestamp) -> Option<Self> {
        let ms = timestamp.as_millisecond();
        (0..=MAX_MS).contains(&ms).then_some(Self(ms))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Within the bounds there is always such a timestamp.
        let timestamp = Timestamp::from_millisecond(self.0).unwrap_or_default();
        write!(f, "{timestamp:.3}")
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl serde::de::Visitor<'_> for Text {
            type Value = Time;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time such as 2030-01-02T03:04:05.000Z")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Time, E> {
                Time::parse(text)
                    .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_exact_form_is_read_from_a_record() {
        assert_eq!(
            Time::parse("2030-01-02T03:04:05.000Z").map(Time::ms),
            Some(1_893_553_445_000)
        );
        for text in [
            "2030-01-02T03:04:05Z",
            "2030-01-02T03:04:05.000+00:00",
            "2030-01-02 03:04:05.000Z",
            "2030-01-02T24:00:00.000Z",
            "2030-02-30T03:04:05.000Z",
            "2030-01-02T03:04:60.000Z",
            "1969-12-31T23:59:59.999Z",
            "+02030-01-02T03:04:05.00Z",
            "",
        ] {
            assert_eq!(Time::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_deadline_may_come_in_several_forms() {
        let same = Time::parse("2030-01-02T03:04:05.000Z");
        for text in [
            "2030-01-02T03:04:05Z",
            "2030-01-02T03:04:05",
            "2030-01-02T04:04:05+01:00",
            "2030-01-02T03:04:05.0004Z",
            " 2030-01-02T03:04:05.000Z ",
            "Wed, 02 Jan 2030 03:04:05 GMT",
        ] {
            assert_eq!(Time::parse_lenient(text), same, "{text}");
        }
        assert_eq!(
            Time::parse_lenient("2030-01-02").map(|time| time.to_string()),
            Some("2030-01-02T00:00:00.000Z".to_owned())
        );
        for text in ["", "soon", "2030", "10000-01-01T00:00:00Z", "1e9"] {
            assert_eq!(Time::parse_lenient(text), None, "{text}");
        }
        let long = format!("2030-01-02T03:04:05.{}Z", "0".repeat(64));
        assert_eq!(Time::parse_lenient(&long), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(ms in 0..=MAX_MS) {
            let time = Time::from_ms(ms);
            prop_assert_eq!(Time::parse(&time.to_string()), Some(time));
        }

        #[test]
        fn text_has_the_order_of_time(a in 0..=MAX_MS, b in 0..=MAX_MS) {
            let (x, y) = (Time::from_ms(a), Time::from_ms(b));
            prop_assert_eq!(x.cmp(&y), x.to_string().cmp(&y.to_string()));
        }
    }
}
