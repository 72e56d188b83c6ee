//! A wait of a rank, as a line of text: ranks print it, and the launcher reads it.

use std::fmt;
use std::time::Duration;

use onesided_remote_memory::Rank;

/// What each line of a rank's report begins with.
pub const REPORT: &str = "onesided: ";

/// What a rank waits for. Ranks are those of the whole job.
///
/// Shown as `rank 1 waits for ranks 0, 2 since 10 s: a barrier`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The rank that waits.
    pub rank: Rank,
    /// The ranks that it waits for, as far as that is known.
    pub awaited: Vec<Rank>,
    /// How long at least, in whole seconds where it is shown.
    pub since: Option<Duration>,
    /// The operation.
    pub what: String,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, awaited, since, what } = self;
        write!(f, "{rank} waits")?;
        match &awaited[..] {
            [] => {}
            [one] => write!(f, " for {one}")?,
            [first, others @ ..] => {
                write!(f, " for ranks {}", first.0)?;
                others.iter().try_for_each(|rank| write!(f, ", {}", rank.0))?;
            }
        }
        if let Some(since) = since {
            write!(f, " since {} s", since.as_secs())?;
        }
        write!(f, ": {what}")
    }
}

impl Wait {
    /// Reads what [`Display`](fmt::Display) shows. `None`: the line is something else.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let (rank, rest) = line.strip_prefix("rank ")?.split_once(" waits")?;
        let (head, what) = rest.split_once(": ")?;
        let (awaited, since) = match head.split_once(" since ") {
            Some((awaited, since)) => (awaited, Some(since.strip_suffix(" s")?.parse().ok()?)),
            None => (head, None),
        };
        let awaited = match awaited.strip_prefix(" for rank") {
            Some(awaited) => {
                let ranks = awaited.strip_prefix("s ").or_else(|| awaited.strip_prefix(' '))?;
                ranks.split(", ").map(|rank| rank.parse().ok().map(Rank)).collect::<Option<_>>()?
            }
            None => awaited.is_empty().then(Vec::new)?,
        };
        let rank = Rank(rank.parse().ok()?);
        Some(Self { rank, awaited, since: since.map(Duration::from_secs), what: what.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_is_shown() {
        for awaited in [vec![], vec![Rank(3)], vec![Rank(0), Rank(12)]] {
            for since in [None, Some(Duration::from_secs(10))] {
                let what = "a receive with tag 1 from rank 0: since 3 s".to_owned();
                let wait = Wait { rank: Rank(1), awaited: awaited.clone(), since, what };
                assert_eq!(Wait::parse(&wait.to_string()), Some(wait));
            }
        }
        for other in
            ["", "rank 1", "rank x waits: a", "rank 1 waits for rank : a", "rank 1 waits for y: a", "rank 1 waits"]
        {
            assert_eq!(Wait::parse(other), None, "{other}");
        }
    }
}
