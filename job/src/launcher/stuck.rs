//! The page of a stuck job: who waits for whom, from the lines that its ranks print.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::{Duration, Instant};

use onesided_remote_memory::Rank;

use crate::{REPORT, Wait};

/// How long the other ranks may take after the first has reported: they look at different times.
const COLLECT: Duration = Duration::from_secs(3);
/// The most lines of a page that tell of one kind of thing.
const LINES: usize = 100;

/// The reports since the last page.
#[derive(Debug)]
pub(super) struct Stuck {
    size: u32,
    /// The lines of each rank, its waits first.
    lines: BTreeMap<(Rank, bool), BTreeSet<String>>,
    edges: BTreeMap<Rank, BTreeSet<Rank>>,
    due: Option<Instant>,
}

impl Stuck {
    pub(super) const fn new(size: u32) -> Self {
        Self { size, lines: BTreeMap::new(), edges: BTreeMap::new(), due: None }
    }

    /// Takes a line of a rank's standard error, if it belongs to a report.
    pub(super) fn take(&mut self, line: &[u8], now: Instant) -> bool {
        let Some(line) = std::str::from_utf8(line).ok().and_then(|line| line.strip_prefix(REPORT)) else {
            return false;
        };
        let line = line.trim_end();
        let key = match Wait::parse(line) {
            Some(wait) => {
                self.edges.entry(wait.rank).or_default().extend(wait.awaited);
                (wait.rank, false)
            }
            None => {
                let rank = line.strip_prefix("rank ").and_then(|line| line.split_once(" has ")?.0.parse().ok());
                let Some(rank) = rank else { return false };
                (Rank(rank), true)
            }
        };
        self.lines.entry(key).or_default().insert(line.to_owned());
        self.due.get_or_insert(now + COLLECT);
        true
    }

    /// How long until the page is due.
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        self.due.map(|due| due.saturating_duration_since(now))
    }

    /// The page, if it is due. The next one begins anew.
    pub(super) fn page(&mut self, now: Instant) -> Option<String> {
        self.due.filter(|due| *due <= now)?;
        self.last_page()
    }

    /// The page, if there were reports since the last one.
    pub(super) fn last_page(&mut self) -> Option<String> {
        self.due?;
        let page = self.to_page();
        *self = Self::new(self.size);
        Some(page)
    }

    fn to_page(&self) -> String {
        let mut page = String::new();
        let waiting = self.edges.len();
        let _ = writeln!(page, "{REPORT}the job may be stuck: {waiting} of its {} ranks wait", self.size);
        let lines: Vec<_> = self.lines.values().flatten().collect();
        for line in lines.iter().take(LINES) {
            let _ = writeln!(page, "  {line}");
        }
        if lines.len() > LINES {
            let _ = writeln!(page, "  and {} lines more", lines.len() - LINES);
        }
        let awaited: BTreeSet<_> = self.edges.values().flatten().collect();
        let outside: Vec<_> = awaited.into_iter().filter(|rank| !self.edges.contains_key(rank)).collect();
        for rank in outside.iter().take(LINES) {
            let _ =
                writeln!(page, "  {rank} is waited for, and waits for nothing of onesided: it computes, or has ended");
        }
        for circle in self.circles().iter().take(LINES) {
            let ranks: Vec<_> = circle.iter().chain(circle.first()).map(|rank| rank.0.to_string()).collect();
            let _ = writeln!(page, "  a circle, none can go on: ranks {}", ranks.join(" -> "));
        }
        page
    }

    /// Ranks that wait for one another in a circle, each from its lowest rank on. A rank that waits
    /// for several is followed to one that is in a circle with it.
    fn circles(&self) -> BTreeSet<Vec<Rank>> {
        self.edges.keys().filter_map(|rank| self.circle(*rank)).collect()
    }

    /// The shortest circle with a rank, if this is its lowest.
    fn circle(&self, start: Rank) -> Option<Vec<Rank>> {
        let mut from = BTreeMap::from([(start, start)]);
        let mut level = vec![start];
        while !level.is_empty() {
            let mut next = Vec::new();
            for rank in level {
                for awaited in self.edges.get(&rank).into_iter().flatten() {
                    if *awaited == start {
                        let mut circle = vec![rank];
                        while circle.last() != Some(&start) {
                            circle.push(from[circle.last()?]);
                        }
                        circle.reverse();
                        return (circle.iter().min() == Some(&start)).then_some(circle);
                    }
                    if let std::collections::btree_map::Entry::Vacant(new) = from.entry(*awaited) {
                        new.insert(rank);
                        next.push(*awaited);
                    }
                }
            }
            level = next;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(lines: &[&str]) -> String {
        let (mut stuck, now) = (Stuck::new(5), Instant::now());
        assert!(stuck.page(now + COLLECT).is_none());
        for line in lines {
            assert!(stuck.take(format!("{REPORT}{line}\n").as_bytes(), now), "{line}");
        }
        assert!(stuck.page(now).is_none() && stuck.left(now) == Some(COLLECT));
        let page = stuck.page(now + COLLECT).unwrap();
        assert!(stuck.page(now + 2 * COLLECT).is_none());
        page
    }

    #[test]
    fn circles_are_marked_and_those_outside_named() {
        let page = page(&[
            "rank 1 waits for rank 2 since 10 s: a lock",
            "rank 2 waits for ranks 3, 4 since 10 s: a barrier",
            "rank 3 waits for rank 1 since 11 s: a message",
            "rank 0 waits for rank 0 since 11 s: a lock that it has itself",
            "rank 3 has 2 receives posted",
        ]);
        assert!(page.contains("4 of its 5 ranks wait\n"), "{page}");
        assert!(page.contains("ranks 1 -> 2 -> 3 -> 1\n") && page.contains("ranks 0 -> 0\n"), "{page}");
        assert_eq!(page.matches("circle").count(), 2, "{page}");
        assert!(page.contains("rank 4 is waited for, and waits for nothing"), "{page}");
        assert!(page.contains("  rank 3 has 2 receives posted\n"), "{page}");
    }

    #[test]
    fn a_wait_without_a_circle_shows_none() {
        let page = page(&["rank 1 waits since 10 s: a signal", "rank 2 waits for rank 1 since 10 s: a lock"]);
        assert!(!page.contains("circle") && !page.contains("is waited for"), "{page}");
    }

    #[test]
    fn other_lines_stay() {
        let mut stuck = Stuck::new(2);
        for line in ["", "onesided: error", "rank 1 waits: x", "onesided: rank 1 is here", "onesided: rank y has z"] {
            assert!(!stuck.take(line.as_bytes(), Instant::now()), "{line}");
        }
    }
}
