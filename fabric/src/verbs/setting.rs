//! Settings of the environment that choose one of two words.

use std::ffi::OsString;

use onesided_job::Error;

/// Whether the variable has the second word; without it the first one counts.
///
/// # Errors
/// [`Error::Join`]: it has another one.
pub(super) fn is_second(name: &str, words: [&str; 2]) -> Result<bool, Error> {
    parse(name, words, std::env::var_os(name))
}

fn parse(name: &str, words: [&str; 2], value: Option<OsString>) -> Result<bool, Error> {
    let Some(value) = value else { return Ok(false) };
    let chosen = words.iter().position(|word| value == *word);
    let [first, second] = words;
    chosen
        .map(|at| at == 1)
        .ok_or(Error::Join { what: format!("{name} is neither {first} nor {second}"), source: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_checked() {
        for (value, expected) in [(None, false), (Some("rc"), false), (Some("ud"), true)] {
            assert_eq!(parse("CHANNEL", ["rc", "ud"], value.map(OsString::from)).unwrap(), expected);
        }
        for wrong in ["", "UD", "xrc"] {
            let error = parse("CHANNEL", ["rc", "ud"], Some(wrong.into())).unwrap_err();
            assert!(error.to_string().contains("CHANNEL is neither rc nor ud"), "{wrong}: {error}");
        }
    }
}
