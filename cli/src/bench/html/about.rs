//! What a plot shows, in a sentence, for somebody who sees it for the first time.

use crate::bench::json::Row;

/// Whether the results of a benchmark are drawn as they were before there were several locks.
pub(super) fn is_plain(row: &Row) -> bool {
    !matches!(
        row.metric,
        "p50"
            | "p99"
            | "p99.9"
            | "p99 of the rank served worst"
            | "longest bypass"
            | "p99.9 bypass"
            | "operations"
            | "cpu"
    )
}

/// The heading of the curves that tell most.
pub(super) fn heading(row: &Row) -> Option<&'static str> {
    Some(match (row.benchmark.as_str(), row.metric) {
        ("lock + unlock, contended", "acquisitions") => "Contended: acquisitions a second",
        ("lock + unlock, contended", "smallest/largest share") => "Contended: smallest over largest share",
        ("wait for a contended lock", "p99") => "Contended: wait, 99 of 100 at most",
        ("lock + unlock: operations of all ranks", _) => "Contended: operations an acquisition",
        ("lock + unlock, some to read", _) => "Some to read: acquisitions a second",
        ("lock + work + unlock + work", _) => "With work: acquisitions a second",
        ("lock + unlock, target computes in threads", _) => "Target computes: lock + unlock",
        ("lock + unlock, a window for each origin", _) => "A window for each origin: lock + unlock",
        ("simulated contended lock", "acquisitions") => "Simulated: acquisitions a second",
        ("simulated contended lock", "p99") => "Simulated: wait, 99 of 100 at most",
        ("simulated contended lock", "jain") => "Simulated: Jain's index of fairness",
        ("simulated contended lock", "operations") => "Simulated: operations an acquisition",
        _ => return None,
    })
}

/// Of a benchmark at several points.
pub(super) fn sentence(row: &Row) -> String {
    let what = match row.benchmark.as_str() {
        "lock + unlock, contended" => "All ranks acquire and release the lock of one rank as often as they can.",
        "lock + unlock, contended, beside a mutex" => {
            "The same as the contended lock, beside the C library's shared mutex."
        }
        "lock: release to acquired" => {
            "Two ranks take turns; the time from the release by one to the other's having the lock."
        }
        "lock + unlock, a window for each origin" => {
            "Each origin acquires and releases a lock of its own at one target, which sleeps."
        }
        "lock + unlock: operations of all ranks" => {
            "Reads, writes and atomics that leave for one acquisition and its release, by all ranks."
        }
        "lock + unlock: operations of all ranks, atomics" => "Of these operations the compare-swaps and fetch-adds.",
        "lock + unlock, target computes in threads" => {
            "One rank at the lock of another that computes in so many threads."
        }
        "lock + unlock, pairs of origin and target" => {
            "Pairs of an origin and its target at once: each core has one of both."
        }
        "wait for a contended lock" => {
            "All ranks acquire the lock of one rank as often as they can; from asking to having it."
        }
        "lock + unlock, some to read" => {
            "All ranks at one lock, which so many acquire to read; each holds it for 0.5 µs."
        }
        "lock + work + unlock + work" => "All ranks at one lock: work under it, and as much work before the next time.",
        "simulated lock + unlock, a window for each origin" => {
            "Each origin at a window of its own, at one target, a modelled microsecond away."
        }
        "simulated lock + unlock: operations of all ranks" => {
            "Reads, writes and atomics that leave for one acquisition, when so many contend."
        }
        what if what.starts_with("simulated contended lock") => {
            "Origins at one lock of another rank, a modelled microsecond away."
        }
        what if what.ends_with("Zipf-distributed locks") => {
            "Many locks, the n-th wanted 1 / n to the power of the skew as often as the first; 0 is even."
        }
        _ => "",
    };
    [what, better(row.metric)].join(" ").trim().to_owned()
}

/// Which way of a metric is the better one.
pub(super) fn better(metric: &str) -> &'static str {
    match metric {
        "latency" | "p50" | "p99" | "p99.9" => "Lower is better.",
        "p99 of the rank served worst" => {
            "Of its own waits; the other percentiles are mostly of those who are served often. Lower is better."
        }
        "acquisitions" | "bandwidth" | "message rate" => "Higher is better.",
        "smallest/largest share" => "The smallest rank's acquisitions over the largest's: 1 is fair.",
        "jain" => "Jain's index of fairness: 1 is fair.",
        "longest bypass" => "How many others had the lock, at most, between somebody's asking and having.",
        "p99.9 bypass" => "How many others had the lock between asking and having, of all but one in a thousand.",
        "operations" => "Fewer is better.",
        "cpu" => "Of a core's time. Less is better.",
        _ => "",
    }
}
