//! Settings of the environment: one of some words, or a number.

use std::ffi::OsString;

use onesided_job::Error;

/// Which of the words the variable has; without it the first one counts.
///
/// # Errors
/// [`Error::Join`]: it has another one.
pub(super) fn chosen<const N: usize>(name: &str, words: [&str; N]) -> Result<usize, Error> {
    parse(name, words, std::env::var_os(name))
}

fn parse<const N: usize>(name: &str, words: [&str; N], value: Option<OsString>) -> Result<usize, Error> {
    let Some(value) = value else { return Ok(0) };
    let chosen = words.iter().position(|word| value == *word);
    chosen.ok_or_else(|| Error::Join { what: format!("{name} is none of: {}", words.join(", ")), source: None })
}

/// The number that the variable has, if it is set.
///
/// # Errors
/// [`Error::Join`]: it has none of at least 1.
pub(super) fn number(name: &str) -> Result<Option<u32>, Error> {
    parse_number(name, std::env::var_os(name))
}

fn parse_number(name: &str, value: Option<OsString>) -> Result<Option<u32>, Error> {
    let Some(value) = value else { return Ok(None) };
    let number = value.to_str().and_then(|value| value.parse().ok()).filter(|number| *number > 0);
    let wrong = || Error::Join { what: format!("{name} is no number of at least 1"), source: None };
    number.map(Some).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_checked() {
        for (value, expected) in [(None, 0), (Some("rc"), 0), (Some("ud"), 1)] {
            assert_eq!(parse("CHANNEL", ["rc", "ud"], value.map(OsString::from)).unwrap(), expected);
        }
        for wrong in ["", "UD", "xrc"] {
            let error = parse("CHANNEL", ["rc", "ud"], Some(wrong.into())).unwrap_err();
            assert!(error.to_string().contains("CHANNEL is none of: rc, ud"), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_number_is_checked() {
        let parse = |value: Option<&str>| parse_number("LIMIT", value.map(OsString::from));
        assert_eq!((parse(None).unwrap(), parse(Some("7")).unwrap()), (None, Some(7)));
        for wrong in ["", "0", "-1", "many"] {
            assert!(parse(Some(wrong)).unwrap_err().to_string().contains("LIMIT"), "{wrong}");
        }
    }
}
