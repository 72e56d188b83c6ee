//! Settings of the environment that choose one of some words.

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
}
