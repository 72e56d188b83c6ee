//! Counts of a rank, or of a job, as a table: rows of a channel.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use crate::REPORT;

/// The variable with which a rank writes its statistics to standard error when it ends.
pub const STATISTICS: &str = "ONESIDED_STATISTICS";

/// What begins a line of them.
const LINE: &str = "statistics: ";

/// Statistics of messages: of each channel what it carried, and what became of it.
///
/// ```
/// use onesided_job::Statistics;
///
/// let mut rank = Statistics::default();
/// rank.count("lane", "eager", 64, [3, 24]);
/// let mut job = Statistics::default();
/// for line in rank.lines().iter().chain(&rank.lines()) {
///     assert!(job.take(line.as_bytes()));
/// }
/// assert!(job.to_string().lines().any(|row| row.split_whitespace().eq(["lane", "eager", "<=", "64", "6", "48"])));
/// assert_eq!(job.to_json(), r#"[{"channel":"lane","what":"eager","at_most":64,"count":6,"bytes":48}]"#);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics(BTreeMap<(String, String, u64), [u64; 2]>);

impl Statistics {
    /// The `at_most` of messages that are longer than those of all other rows.
    pub const LONGER: u64 = u64::MAX;
    /// The `at_most` of what has no length.
    pub const NONE: u64 = 0;

    /// Adds to a row of a channel: how many there were of `what`, of at most so many bytes each, and their
    /// bytes. The two names have no white space.
    pub fn count(&mut self, channel: &str, what: &str, at_most: u64, counts: [u64; 2]) {
        let row = self.0.entry((channel.to_owned(), what.to_owned(), at_most)).or_default();
        *row = std::array::from_fn(|at| row[at].saturating_add(counts[at]));
    }

    /// The lines by which a rank reports them.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let line = |((channel, what, at_most), [count, bytes]): (&(String, String, u64), &[u64; 2])| {
            format!("{REPORT}{LINE}{channel} {what} {at_most} {count} {bytes}\n")
        };
        self.0.iter().map(line).collect()
    }

    /// Adds a line of a rank's standard error, if it is one of them.
    pub fn take(&mut self, line: &[u8]) -> bool {
        let line = std::str::from_utf8(line).ok().and_then(|line| line.strip_prefix(REPORT)?.strip_prefix(LINE));
        let words: Vec<_> = line.unwrap_or_default().split_whitespace().collect();
        let [channel, what, numbers @ ..] = &words[..] else { return false };
        let numbers: Option<Vec<u64>> = numbers.iter().map(|number| number.parse().ok()).collect();
        let Some([at_most, count, bytes]) = numbers.as_deref() else { return false };
        self.count(channel, what, *at_most, [*count, *bytes]);
        true
    }

    /// An array of the rows; `at_most` is `null` where there is no length.
    #[must_use]
    pub fn to_json(&self) -> String {
        let rows = self.0.iter().map(|((channel, what, at_most), [count, bytes])| {
            let at_most = match *at_most {
                Self::NONE | Self::LONGER => "null".to_owned(),
                at_most => at_most.to_string(),
            };
            format!(r#"{{"channel":{channel:?},"what":{what:?},"at_most":{at_most},"count":{count},"bytes":{bytes}}}"#)
        });
        format!("[{}]", rows.collect::<Vec<_>>().join(","))
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:12} {:12} {:>10} {:>12} {:>16}", "channel", "what", "each", "count", "bytes")?;
        for ((channel, what, at_most), [count, bytes]) in &self.0 {
            let mut each = String::new();
            match *at_most {
                Self::NONE => {}
                Self::LONGER => each.push_str("longer"),
                at_most => write!(each, "<= {at_most}")?,
            }
            write!(f, "\n{channel:12} {what:12} {each:>10} {count:>12} {bytes:>16}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_lines_are_none_of_them() {
        let mut statistics = Statistics::default();
        for line in
            ["", "onesided: statistics: ", "onesided: statistics: lane eager 64 1", "statistics: lane eager 64 1 2"]
        {
            assert!(!statistics.take(line.as_bytes()), "{line}");
        }
        assert!(!statistics.take(b"onesided: statistics: lane eager 64 1 -2"));
        assert_eq!(statistics, Statistics::default());
    }

    #[test]
    fn rows_are_in_the_order_of_lengths() {
        let mut statistics = Statistics::default();
        for at_most in [Statistics::LONGER, 4096, 64] {
            statistics.count("lane", "eager", at_most, [1, u64::MAX]);
            statistics.count("lane", "eager", at_most, [1, 1]);
        }
        let table = statistics.to_string();
        let places = ["<= 64", "<= 4096", "longer"].map(|each| table.find(each).unwrap());
        assert!(places.is_sorted() && table.contains(&u64::MAX.to_string()), "{table}");
    }
}
