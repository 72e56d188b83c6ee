//! Settings of the environment: one of some words, or a number.

use std::ffi::OsString;
use std::ops::RangeBounds;
use std::str::FromStr;

use crate::Error;

/// Which of the words the variable has; without it the first one counts.
///
/// # Errors
/// [`Error::Join`]: it has another one.
pub fn chosen<const N: usize>(name: &str, words: [&str; N]) -> Result<usize, Error> {
    parse_word(name, std::env::var_os(name), words)
}

fn parse_word<const N: usize>(name: &str, value: Option<OsString>, words: [&str; N]) -> Result<usize, Error> {
    let Some(value) = value else { return Ok(0) };
    let chosen = words.iter().position(|word| value == *word);
    chosen.ok_or_else(|| Error::Join { what: format!("{name} is none of: {}", words.join(", ")), source: None })
}

/// The number that the variable has, if it is set. `which`: those that it may be.
///
/// # Errors
/// [`Error::Join`]: it is another one, or none.
pub fn number<T: FromStr + PartialOrd>(
    name: &str,
    within: impl RangeBounds<T>,
    which: &str,
) -> Result<Option<T>, Error> {
    parse_number(name, std::env::var_os(name), within, which)
}

pub(crate) fn parse_number<T: FromStr + PartialOrd>(
    name: &str,
    value: Option<OsString>,
    within: impl RangeBounds<T>,
    which: &str,
) -> Result<Option<T>, Error> {
    let Some(value) = value else { return Ok(None) };
    let number = value.to_str().and_then(|value| value.parse().ok()).filter(|number| within.contains(number));
    let wrong = || Error::Join { what: format!("{name} is no number {which}"), source: None };
    number.map(Some).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_checked() {
        for (value, expected) in [(None, 0), (Some("rc"), 0), (Some("ud"), 1)] {
            assert_eq!(parse_word("CHANNEL", value.map(OsString::from), ["rc", "ud"]).unwrap(), expected);
        }
        for wrong in ["", "UD", "xrc"] {
            let error = parse_word("CHANNEL", Some(wrong.into()), ["rc", "ud"]).unwrap_err();
            assert!(error.to_string().contains("CHANNEL is none of: rc, ud"), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_number_is_checked() {
        let rails = |value: Option<&str>| parse_number("RAILS", value.map(OsString::from), 1..=3, "from 1 to 3");
        assert_eq!((rails(None).unwrap(), rails(Some("3")).unwrap()), (None, Some(3)));
        for wrong in ["", "0", "4", "-1", "many", "1.5"] {
            let error = rails(Some(wrong)).unwrap_err();
            assert!(error.to_string().contains("RAILS is no number from 1 to 3"), "{wrong}: {error}");
        }
        let seconds = |value: &str| parse_number("AFTER", Some(value.into()), 0.1..=1e6, "of seconds");
        assert_eq!(seconds("0.25").unwrap(), Some(0.25));
        for wrong in ["", "x", "0", "-1", "NaN", "inf", "0.05", "1e7"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
