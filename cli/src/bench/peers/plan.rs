//! The measures of a run.

use clap::ValueEnum;

use crate::bench::collectives::LOOPS;
use crate::bench::effort::Effort;
use crate::bench::messages::window;
use crate::bench::overlap::{COMPUTES, compared};
use crate::bench::results::quantity::Quantity;

/// One line of the results.
#[derive(Debug, Clone)]
pub(crate) struct Measure {
    /// The benchmark's name.
    pub(crate) benchmark: &'static str,
    /// Measures of a group are drawn together.
    pub(crate) group: &'static str,
    /// The name of the probe that the ranks run.
    pub(crate) probe: &'static str,
    /// The name of the limit's probe.
    pub(crate) limit: Option<&'static str>,
    pub(crate) size: u64,
    /// Whether the size is part of the result.
    pub(crate) sized: bool,
    pub(crate) argument: u64,
    pub(crate) quantity: Quantity,
    /// How many operations an iteration does.
    pub(crate) operations: u64,
    pub(crate) repeat: Repeat,
}

/// How often a measure is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// As many iterations as fit into a batch.
    Batches,
    /// The same number of iterations for all programs: as many as fit into a batch of the fastest.
    Alike,
    /// A few batches of so many iterations.
    Times(u64),
    /// Once a run.
    Once,
    /// Once a run, a throughput run of so many milliseconds with all ranks at one lock.
    Throughput(u64),
}

pub(crate) const LOCKS: &str = "Locks";
pub(crate) const SMALL: &str = "Operations of 8 B";
pub(crate) const TRANSFERS: &str = "Bandwidth";
pub(crate) const WINDOWS: &str = "Windows";
pub(crate) const BUSY: &str = "First lock + put + unlock after 10 ms";
pub(crate) const CONTENDED: &str = "Contended locks";
pub(crate) const ONE_WAY: &str = "Half a round trip";
pub(crate) const STREAMS: &str = "Streams";
pub(crate) const RATES: &str = "Messages a second";
pub(crate) const COLLECTIVES: &str = "Collectives";
/// Groups of overlap, by progress mode.
pub(crate) const OVERLAP: [&str; 4] =
    ["Progress mode polling", "Progress mode interrupt", "Progress mode thread", "Progress mode hybrid"];

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Suite {
    /// Locks, one-sided operations, windows
    Windows,
    /// Messages between two processes
    Messages,
    /// Collectives of 2 and of 4 processes
    Collectives,
    /// Messages between two processes that compute
    Overlap,
}

/// Operations before one flush in probes of many operations.
pub(crate) const MANY: u64 = 64;

// Flags of what is timed in addition to a window's allocation: each rank's writes to all pages of
// its window memory, and the deallocation.
pub(crate) const TOUCH: u64 = 1;
pub(crate) const FREE: u64 = 2;

/// The measures of jobs with so many ranks, in order.
pub(crate) fn measures(ranks: u32, effort: Effort) -> Vec<Measure> {
    let mut all = Vec::new();
    if ranks == 2 {
        all.extend(uncontended(effort));
    }
    let throughput = Repeat::Throughput(effort.contending().as_millis() as u64);
    let contended = Measure {
        repeat: throughput,
        quantity: Quantity::Acquisitions,
        ..one("lock + unlock, contended", CONTENDED, "contend")
    };
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
        quantity: Quantity::Latency,
        operations: 1,
        repeat: Repeat::Batches,
    }
}

#[rustfmt::skip] // a table
fn uncontended(effort: Effort) -> Vec<Measure> {
    let against = |limit, measure| Measure { limit: Some(limit), ..measure };
    let many = |measure| Measure { quantity: Quantity::MessageRate, operations: MANY, ..measure };
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
        let transfer = |measure| Measure { size, sized: true, quantity: Quantity::Bandwidth, ..measure };
        all.push(against("bare_put", transfer(one("put + flush", TRANSFERS, "put"))));
        all.push(against("bare_get", transfer(one("get + flush", TRANSFERS, "get"))));
    }
    for size in [4 << 10, 1 << 20, 16 << 20] {
        let window = |measure| Measure { size, sized: true, repeat: Repeat::Times(3), ..measure };
        for (benchmark, argument) in [
            ("allocate",                  0),
            ("allocate, touch all",       TOUCH),
            ("allocate, free",            FREE),
            ("allocate, touch all, free", TOUCH | FREE),
        ] {
            all.push(Measure { argument, ..window(one(benchmark, WINDOWS, "allocate")) });
        }
    }
    let first = |benchmark, argument| Measure { argument, repeat: Repeat::Once, ..one(benchmark, BUSY, "first_lock") };
    all.push(first("target waits in a barrier", 0));
    let computing = effort.computing().as_millis() as u64;
    let computes = match effort {
        Effort::Full => "target computes for 400 ms",
        Effort::Quick | Effort::Trial => "target computes for 100 ms",
    };
    all.push(first(computes, computing));
    all
}

/// The measures of two ranks over a card that perftest's programs correspond to. An echo's value is
/// half a round trip.
#[rustfmt::skip] // a table
pub(crate) fn over_cards() -> Vec<Measure> {
    let echo = |measure| Measure { operations: 2, ..measure };
    let many = |measure| Measure { quantity: Quantity::MessageRate, operations: MANY, ..measure };
    let pieces = Measure { size: 64 << 10, sized: true, ..one("64 puts + flush", TRANSFERS, "put_many") };
    let long = |measure| Measure { size: 1 << 20, sized: true, ..measure };
    let long_stream = |measure| {
        let many = window(1 << 20) as u64;
        long(Measure { quantity: Quantity::Bandwidth, operations: many, argument: many, ..measure })
    };
    vec![
        echo(one("signal, one way",       SMALL, "signal_echo")),
        echo(one("message, one way",      SMALL, "ping_pong")),
        many(one("64 messages + answer",  SMALL, "stream")),
        Measure { quantity: Quantity::Bandwidth, operations: MANY, ..pieces },
        long(echo(one("buffer, one way, read",     ONE_WAY, "ping_pong_read"))),
        long(echo(one("buffer, one way, written",  ONE_WAY, "ping_pong_written"))),
        long_stream(one("stream, read",            STREAMS, "stream")),
        long_stream(one("stream, written",         STREAMS, "stream_written")),
    ]
}

/// The measures of messages between two ranks.
pub(crate) fn messages() -> Vec<Measure> {
    let of = |benchmark, group, probe, size: u64| {
        let many = window(size as usize) as u64;
        let measure = Measure { size, sized: true, argument: many, operations: many, ..one(benchmark, group, probe) };
        Measure { repeat: Repeat::Alike, ..measure }
    };
    let sizes = [8, 64, 512, 2 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20];
    let ping_pong = |size| {
        let limit = Some(if size == 8 { "bare_store_ping_pong" } else { "bare_ping_pong" });
        Measure { limit, operations: 2, ..of("ping-pong", ONE_WAY, "ping_pong", size) }
    };
    let stream = |size| {
        let stream = of("stream", STREAMS, "stream", size);
        Measure { limit: Some("bare_stream"), quantity: Quantity::Bandwidth, ..stream }
    };
    let rate = |benchmark, probe| {
        let limit = Some("bare_stream");
        Measure { limit, quantity: Quantity::MessageRate, ..of(benchmark, RATES, probe, 8) }
    };
    let rates = [rate("stream", "stream"), rate("all unexpected", "unexpected")];
    sizes.map(ping_pong).into_iter().chain(sizes[1..].iter().map(|size| stream(*size))).chain(rates).collect()
}

/// The measures of collectives.
pub(crate) fn collectives() -> Vec<Measure> {
    let of = |name, size: Option<u64>| {
        let measure = Measure { size: size.unwrap_or(0), sized: size.is_some(), ..one(name, COLLECTIVES, name) };
        Measure { repeat: Repeat::Alike, ..measure }
    };
    let sizes = |sizes: &[usize]| match sizes {
        [] => vec![None],
        sizes => sizes.iter().map(|size| Some(*size as u64)).collect(),
    };
    LOOPS.iter().flat_map(|one| sizes(one.sizes).into_iter().map(|size| of(one.name, size))).collect()
}

/// The measures of messages between two ranks that compute, in each progress mode. MPI has none,
/// and is measured beside each.
pub(crate) fn overlap() -> Vec<Measure> {
    let of = |group, (benchmark, computes, argument)| {
        let measure = Measure { size: 1 << 20, sized: true, argument, ..one(benchmark, group, "overlap") };
        let quantity = if computes { Quantity::Overlap } else { Quantity::Latency };
        Measure { quantity, repeat: Repeat::Times(1), ..measure }
    };
    let modes = OVERLAP.iter().enumerate();
    modes.flat_map(|(mode, group)| compared(mode).map(move |measure| of(*group, measure))).collect()
}

impl Measure {
    /// Whether the result depends on the lock.
    pub(crate) fn depends_on_lock(&self) -> bool {
        matches!(self.group, LOCKS | BUSY | CONTENDED)
    }

    /// The batches of a run.
    pub(crate) const fn batches(&self, effort: Effort) -> usize {
        match (self.repeat, effort) {
            (Repeat::Once | Repeat::Throughput(_), _) | (_, Effort::Trial) => 1,
            (Repeat::Times(_), Effort::Full) => 5,
            (Repeat::Times(_), Effort::Quick) => 2,
            (Repeat::Batches | Repeat::Alike, Effort::Full) => 15,
            (Repeat::Batches | Repeat::Alike, Effort::Quick) => 5,
        }
    }

    /// The nanoseconds of one iteration, as the measure's quantity.
    pub(crate) fn value(&self, nanos: f64) -> f64 {
        let nanos = nanos / self.operations as f64;
        match self.quantity {
            Quantity::Bandwidth => self.size as f64 / nanos,
            Quantity::MessageRate => 1e9 / nanos,
            Quantity::Overlap => COMPUTES.as_nanos() as f64 / nanos,
            _ => nanos,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::overlap::WAYS;

    #[test]
    fn rates_count_every_operation() {
        let all = measures(2, Effort::Full);
        let of = |probe, size| all.iter().find(|measure| measure.probe == probe && measure.size == size).unwrap();
        assert_eq!(of("put_many", 8).value(640.0), 1e8, "64 puts in 640 ns");
        assert_eq!(of("put", 8).value(20.0), 20.0);
        assert_eq!(of("get", 1 << 20).value(1e5), 10.48576);
    }

    #[test]
    fn messages_are_counted_by_their_windows() {
        let all = messages();
        let of = |probe, size| all.iter().find(|measure| measure.probe == probe && measure.size == size).unwrap();
        assert_eq!(of("ping_pong", 8).value(500.0), 250.0, "there and back");
        assert_eq!(of("stream", 512).value(64.0 * 51.2), 10.0);
        assert_eq!(of("stream", 1 << 20).value(16.0 * 65536.0), 16.0, "a window of 16");
        assert_eq!(of("unexpected", 8).value(6400.0), 1e7);
        assert!(all.iter().all(|measure| measure.limit.is_some()));
    }

    #[test]
    fn a_mode_has_a_group_and_a_rank_that_computes_its_overlap() {
        let all = overlap();
        for (way, group) in WAYS.iter().zip(OVERLAP) {
            assert_eq!(group, format!("Progress mode {way}"));
            let of: Vec<_> = all.iter().filter(|measure| measure.group == group).collect();
            let is_held = |measure: &Measure| measure.benchmark.starts_with("sender held");
            assert_eq!((of.len(), of.iter().filter(|measure| is_held(measure)).count()), (7, 2), "{of:?}");
            // 1.8 ms of 3.6 ms.
            let value = |measure: &Measure| if is_held(measure) { 3.6e6 } else { 0.5 };
            assert!(of.iter().all(|measure| measure.value(3.6e6) == value(measure)), "{of:?}");
        }
    }

    #[test]
    fn more_ranks_only_contend() {
        for ranks in [4, 8] {
            let all = measures(ranks, Effort::Quick);
            assert!(all.len() == 1 && matches!(all[0].repeat, Repeat::Throughput(60)), "{all:?}");
        }
    }
}
