//! How long a post waits for space at a target that accepts nothing.

use std::ffi::OsString;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onesided_job::Error;

/// After how many seconds a post fails while its target accepts nothing.
pub const FULL_AFTER: &str = "ONESIDED_FULL_AFTER";
/// The default.
const MINUTE: Duration = Duration::from_secs(60);

/// The timeout of one endpoint.
#[derive(Debug)]
pub(crate) struct FullAfter(AtomicU64);

impl FullAfter {
    /// Reads the environment.
    ///
    /// # Errors
    /// [`Error::Join`]: the value is not a number of seconds, or is less than 0.1.
    pub(crate) fn read() -> Result<Self, Error> {
        parse(std::env::var_os(FULL_AFTER)).map(|after| Self(AtomicU64::new(after.as_nanos() as u64)))
    }

    pub(crate) fn nanos(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, after: Duration) {
        self.0.store(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

fn parse(value: Option<OsString>) -> Result<Duration, Error> {
    let Some(value) = value else { return Ok(MINUTE) };
    let seconds = value.to_str().and_then(|value| value.parse::<f64>().ok());
    let seconds = seconds.filter(|seconds| (0.1..=1e6).contains(seconds));
    let wrong =
        || Error::Join { what: format!("{FULL_AFTER} is not a number of seconds, 0.1 to 1000000"), source: None };
    seconds.map(Duration::from_secs_f64).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_checked() {
        assert_eq!(parse(None).unwrap(), MINUTE);
        assert_eq!(parse(Some("0.25".into())).unwrap(), Duration::from_millis(250));
        for wrong in ["", "x", "0", "-1", "NaN", "inf", "0.05", "1e7"] {
            assert!(parse(Some(wrong.into())).unwrap_err().to_string().contains(FULL_AFTER), "{wrong}");
        }
    }
}
