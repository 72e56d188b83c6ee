//! Locks and operations without contention.

mod computing_target;
mod operations;
mod transfers;

use crate::bench::prelude::*;

pub(super) static METRIC: LockMetric = LockMetric {
    name: "overhead",
    help: "Time of acquire and release, together and apart, and of small operations; the same while the target computes",
    jobs: &[(
        Suite { steps: |effort| 4 * effort.runs() as u64, ..Suite::new("uncontended", Program::Plain(run)) },
        Ranks::Default(&[2]),
    )],
    descriptions: &[
        Description::of("exclusive lock + unlock", &[Shown::new(Quantity::Latency, "lock, unlock").key()]),
        Description::of("exclusive lock + unlock over messages", &[Shown::new(Quantity::Latency, "over messages")]),
        Description::of("shared lock + unlock", &[Shown::new(Quantity::Latency, "shared")]),
        Description::of("exclusive lock + unlock, own part", &[Shown::new(Quantity::Latency, "own part")]),
        Description::of("shared lock + unlock, own part", &[Shown::new(Quantity::Latency, "own part, shared")]),
        Description::of("lock + put 8 B + unlock", &[Shown::new(Quantity::Latency, "lock, put, unlock").key()]),
        Description::of("exclusive lock: acquire", &[Shown::new(Quantity::Latency, "acquire")]),
        Description::of("exclusive lock: release", &[Shown::new(Quantity::Latency, "release")]),
        Description::of("shared lock: acquire", &[Shown::new(Quantity::Latency, "acquire shared")]),
        Description::of("shared lock: release", &[Shown::new(Quantity::Latency, "release shared")]),
        Description::of(
            "first lock + put 8 B + unlock, target computes",
            &[Shown::new(Quantity::Latency, "first, target computes")],
        ),
        Description::of(
            "lock + put 8 B + unlock, target computes",
            &[Shown::new(Quantity::Latency, "then, target computes")],
        ),
        Description::of("put 8 B + flush", &[Shown::new(Quantity::Latency, "put").key()]),
        Description::of("get 8 B + flush", &[Shown::new(Quantity::Latency, "get").key()]),
        Description::of("fetch_and_op, sum", &[Shown::new(Quantity::Latency, "fetch_and_op").key()]),
        Description::of("compare_and_swap", &[Shown::new(Quantity::Latency, "compare_and_swap").key()]),
        Description::of("put + flush, 1 MiB", &[Shown::new(Quantity::Bandwidth, "put 1 MiB").key()]),
        Description::of("get, 1 MiB", &[Shown::new(Quantity::Bandwidth, "get 1 MiB").key()]),
        Description::named(Name::StartsWith("put + flush, "), &[Shown::new(Quantity::Bandwidth, "put")]),
        Description::named(Name::StartsWith("get, "), &[Shown::new(Quantity::Bandwidth, "get")]),
    ],
};

fn run(rank: &BenchRank, effort: Effort) -> Result<(), Failure> {
    operations::run(rank, effort)?;
    computing_target::run(rank, effort)?;
    transfers::run(rank, effort)
}
