//! What is measured.

use crate::bench::report::Metric;
use crate::bench::worker::Effort;

/// One line of the results.
#[derive(Debug, Clone)]
pub(crate) struct Measure {
    /// As people read it.
    pub(crate) benchmark: &'static str,
    /// Whatever is drawn together.
    pub(crate) group: &'static str,
    /// What the ranks know it as.
    pub(crate) probe: &'static str,
    /// What they know the limit as.
    pub(crate) limit: Option<&'static str>,
    pub(crate) size: u64,
    /// Whether the size is said.
    pub(crate) sized: bool,
    pub(crate) argument: u64,
    pub(crate) metric: Metric,
    /// How many operations are done each time.
    pub(crate) operations: u64,
    pub(crate) how: How,
}

/// How often it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// As often as a batch has room for.
    Batches,
    /// So often a batch, in a few batches.
    Times(u64),
    /// Once a run.
    Once,
    /// All ranks at one lock, once a run, for so many milliseconds.
    Contest(u64),
}

pub(crate) const LOCKS: &str = "Locks";
pub(crate) const SMALL: &str = "Operations of 8 B";
pub(crate) const TRANSFERS: &str = "Bandwidth";
pub(crate) const WINDOWS: &str = "Windows";
pub(crate) const BUSY: &str = "First lock + put + unlock after 10 ms";
pub(crate) const CONTESTS: &str = "Contended locks";

/// How many operations go before one flush in a row of many.
pub(crate) const MANY: u64 = 64;

// What is timed of a window beside its allocation: that every rank writes to each page of its part, that it is freed.
pub(crate) const TOUCH: u64 = 1;
pub(crate) const FREE: u64 = 2;

/// What jobs of so many ranks are asked, in order.
pub(crate) fn measures(ranks: u32, effort: Effort) -> Vec<Measure> {
    let mut all = Vec::new();
    if ranks == 2 {
        all.extend(uncontended(effort));
    }
    let contest = How::Contest(effort.contending().as_millis() as u64);
    let contended =
        Measure { how: contest, metric: Metric::Acquisitions, ..one("lock + unlock, contended", CONTESTS, "contend") };
    all.push(Measure { limit: Some("bare_contend"), ..contended });
    all
}

fn one(benchmark: &'static str, group: &'static str, probe: &'static str) -> Measure {
    Measure {
        benchmark,
        group,
        probe,
        limit: None,
        size: 8,
        sized: false,
        argument: 0,
        metric: Metric::Latency,
        operations: 1,
        how: How::Batches,
    }
}

#[rustfmt::skip] // a table
fn uncontended(effort: Effort) -> Vec<Measure> {
    let against = |limit, measure| Measure { limit: Some(limit), ..measure };
    let many = |measure| Measure { metric: Metric::MessageRate, operations: MANY, ..measure };
    let mut all = vec![
        against("bare_lock",   one("lock + unlock",              LOCKS, "lock_unlock")),
        against("bare_lock",   one("lock + put 8 B + unlock",    LOCKS, "lock_put_unlock")),
        against("bare_put",    one("put + flush",                SMALL, "put")),
        against("bare_get",    one("get + flush",                SMALL, "get")),
        against("bare_fetch",  one("fetch_and_op + flush",       SMALL, "fetch_and_op")),
        against("bare_swap",   one("compare_and_swap + flush",   SMALL, "compare_and_swap")),
        against("bare_fetch",  one("accumulate + flush",         SMALL, "accumulate")),
        against("bare_puts",   many(one("64 puts + flush",       SMALL, "put_many"))),
        against("bare_gets",   many(one("64 gets + flush",       SMALL, "get_many"))),
    ];
    for size in [64 << 10, 1 << 20, 4 << 20] {
        let transfer = |measure| Measure { size, sized: true, metric: Metric::Bandwidth, ..measure };
        all.push(against("bare_put", transfer(one("put + flush", TRANSFERS, "put"))));
        all.push(against("bare_get", transfer(one("get + flush", TRANSFERS, "get"))));
    }
    for size in [4 << 10, 1 << 20, 16 << 20] {
        let window = |measure| Measure { size, sized: true, how: How::Times(3), ..measure };
        for (benchmark, argument) in [
            ("allocate",                  0),
            ("allocate, touch all",       TOUCH),
            ("allocate, free",            FREE),
            ("allocate, touch all, free", TOUCH | FREE),
        ] {
            all.push(Measure { argument, ..window(one(benchmark, WINDOWS, "allocate")) });
        }
    }
    let first = |benchmark, argument| Measure { argument, how: How::Once, ..one(benchmark, BUSY, "first_lock") };
    all.push(first("target waits in a barrier", 0));
    let computing = effort.computing().as_millis() as u64;
    let computes = match effort {
        Effort::Full => "target computes for 400 ms",
        Effort::Quick => "target computes for 100 ms",
    };
    all.push(first(computes, computing));
    all
}

/// What two ranks do over a card, beside what a card's own tools do; an echo's value is that of one way.
#[rustfmt::skip] // a table
pub(crate) fn over_cards() -> Vec<Measure> {
    let echo = |measure| Measure { operations: 2, ..measure };
    let many = |measure| Measure { metric: Metric::MessageRate, operations: MANY, ..measure };
    let pieces = Measure { size: 64 << 10, sized: true, ..one("64 puts + flush", TRANSFERS, "put_many") };
    vec![
        echo(one("signal, one way",       SMALL, "signal_echo")),
        echo(one("message, one way",      SMALL, "message_echo")),
        many(one("64 messages + answer",  SMALL, "message_many")),
        Measure { metric: Metric::Bandwidth, operations: MANY, ..pieces },
    ]
}

impl Measure {
    /// Whether it is a lock's doing.
    pub(crate) fn is_of_locks(&self) -> bool {
        matches!(self.group, LOCKS | BUSY | CONTESTS)
    }

    /// Batches of a run.
    pub(crate) const fn batches(&self, effort: Effort) -> usize {
        match (self.how, effort) {
            (How::Once | How::Contest(_), _) => 1,
            (How::Times(_), Effort::Full) => 5,
            (How::Times(_), Effort::Quick) => 2,
            (How::Batches, Effort::Full) => 15,
            (How::Batches, Effort::Quick) => 5,
        }
    }

    /// One time's nanoseconds, told as the metric.
    pub(crate) fn value(&self, nanos: f64) -> f64 {
        let nanos = nanos / self.operations as f64;
        match self.metric {
            Metric::Bandwidth => self.size as f64 / nanos,
            Metric::MessageRate => 1e9 / nanos,
            _ => nanos,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_count_every_operation() {
        let all = measures(2, Effort::Full);
        let of = |probe, size| all.iter().find(|measure| measure.probe == probe && measure.size == size).unwrap();
        assert_eq!(of("put_many", 8).value(640.0), 1e8, "64 puts in 640 ns");
        assert_eq!(of("put", 8).value(20.0), 20.0);
        assert_eq!(of("get", 1 << 20).value(1e5), 10.48576);
    }

    #[test]
    fn more_ranks_only_contend() {
        for ranks in [4, 8] {
            let all = measures(ranks, Effort::Quick);
            assert!(all.len() == 1 && matches!(all[0].how, How::Contest(60)), "{all:?}");
        }
    }
}
