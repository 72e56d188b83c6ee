//! Backoff: how long to pause between two attempts on a lock.

use std::time::Duration;

use crate::{Kept, LockContext, Owner};

/// A table of intervals, filled once when a lock is configured, so that an iteration of a contended
/// loop costs a table look-up: no clock, no floating point. Each owner scales the intervals by its
/// own pseudo-random factors between 0.5 and 1.5.
///
/// The default suits shared memory: 64 ns, doubling up to 16 us. Over a network an attempt costs a
/// round trip, so the first interval should be a round trip there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    nanos: [u32; Self::STEPS],
}

impl Backoff {
    /// The number of intervals. Later attempts pause by the last one.
    pub const STEPS: usize = 16;

    pub(crate) const DEFAULT: Self = {
        let (mut nanos, mut step) = ([1 << 14; Self::STEPS], 0);
        while step < 8 {
            nanos[step] = 1 << (6 + step);
            step += 1;
        }
        Self { nanos }
    };

    /// The first [`STEPS`](Self::STEPS) of these intervals. The last one is repeated if there are
    /// fewer; without any, this is [`disabled`](Self::disabled). Intervals are limited to
    /// `u32::MAX` nanoseconds (4.3 s). The last one is zero, or 64 ns at least: a [shorter
    /// pause](onesided_remote_memory::RemoteMemory::pause) need not let other tasks of its thread run.
    ///
    /// From the `backoff` crate, which reads a clock at each step and therefore only fills the
    /// table:
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use backoff::ExponentialBackoffBuilder;
    /// use backoff::backoff::Backoff as _;
    ///
    /// let mut intervals = ExponentialBackoffBuilder::new()
    ///     .with_initial_interval(Duration::from_nanos(64))
    ///     .with_multiplier(2.0)
    ///     .with_max_interval(Duration::from_nanos(16_384))
    ///     .with_randomization_factor(0.0) // each owner adds its own
    ///     .with_max_elapsed_time(None)
    ///     .build();
    /// let backoff = onesided_lock_algos::Backoff::new(std::iter::from_fn(|| intervals.next_backoff()));
    /// assert_eq!(backoff, onesided_lock_algos::Backoff::default());
    /// ```
    pub fn new(intervals: impl IntoIterator<Item = Duration>) -> Self {
        let mut intervals = intervals.into_iter();
        let mut last = 0;
        let mut nanos = std::array::from_fn(|_| {
            if let Some(interval) = intervals.next() {
                last = u32::try_from(interval.as_nanos()).unwrap_or(u32::MAX);
            }
            last
        });
        if last > 0 {
            nanos[Self::STEPS - 1] = last.max(64);
        }
        Self { nanos }
    }

    /// No backoff: every attempt follows the previous one immediately (the other curve of
    /// jiang-2004, figure 4).
    #[must_use]
    pub const fn disabled() -> Self {
        Self { nanos: [0; Self::STEPS] }
    }

    /// The pauses of one acquire.
    pub(crate) const fn pauses(&self, owner: Owner) -> Pauses<'_> {
        let (table, random) = (&self.nanos, owner.to_bits());
        Pauses { table, step: 0, cap: BackoffCap::ALL, taken: 0, longest: 0, short: 0, random }
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The longest pause of a rank's acquires, as an index into the table of its [`Backoff`]. With many
/// waiters the attempts disturb each other, and with few the lock stays idle during a long pause,
/// so no fixed table suits both. The cap adapts: it moves with the share of attempts that fail, as
/// the truncated backoff of Ren et al. (SMART, ASPLOS 2024) does.
///
/// A rank keeps the cap from one acquire to the next ([`Kept::BackoffCap`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BackoffCap(pub(crate) u8);

impl BackoffCap {
    /// The whole table.
    const ALL: Self = Self(Backoff::STEPS as u8 - 1);
    /// An acquire with fewer failed attempts lowers the cap.
    const FEW: u8 = 2;
    /// This many failed attempts at the longest pause raise the cap.
    const MANY: u8 = 5;

    /// The cap that the rank kept last.
    pub(crate) fn of<'m>(context: impl LockContext<'m>) -> Self {
        context.kept(Kept::BackoffCap).map_or(Self::ALL, Self)
    }
}

/// How many pauses of the first interval an owner that is next takes before each longer one: with the looks
/// between them they last about as long as a switch between two processes. On a host with more ranks than cores the
/// owners behind it yield their cores, and the next one keeps its own: the one before it may be about to
/// release on another core. 4 ranks on two cores handed a ticket lock over at 1.8 times the rate, 8 at 1.5
/// times.
const SHORT_PAUSES: u8 = 32;
/// Of a table whose first interval is longer, in nanoseconds, they come once: an attempt takes a network then,
/// and the time between two attempts is to grow.
const NETWORK: u64 = 1_000;

/// See [`Backoff::pauses`].
#[derive(Debug)]
pub(crate) struct Pauses<'b> {
    table: &'b [u32; Backoff::STEPS],
    step: u8,
    cap: BackoffCap,
    /// Pauses so far, and those at the cap: as many as matter.
    taken: u8,
    longest: u8,
    /// Those of the first interval so far, as the next owner.
    short: u8,
    random: u64,
}

impl Pauses<'_> {
    /// The same up to this cap, unless that proves too short.
    pub(crate) fn within(self, cap: BackoffCap) -> Self {
        Self { cap: BackoffCap(cap.0.min(BackoffCap::ALL.0)), ..self }
    }

    /// The cap for the next acquire.
    pub(crate) const fn backoff_cap(&self) -> BackoffCap {
        if self.taken < BackoffCap::FEW { BackoffCap(self.cap.0.saturating_sub(1)) } else { self.cap }
    }

    /// The next pause in nanoseconds.
    pub(crate) fn next_nanos(&mut self) -> u64 {
        self.taken = self.taken.saturating_add(1);
        if self.step >= self.cap.0 {
            self.longest = self.longest.saturating_add(1);
            if self.longest > BackoffCap::MANY && self.cap != BackoffCap::ALL {
                (self.cap, self.longest) = (BackoffCap(self.cap.0 + 1), 1);
            }
        }
        let nanos = u64::from(self.table[usize::from(self.step.min(self.cap.0))]);
        self.step = (self.step + 1).min(BackoffCap::ALL.0);
        self.randomized(nanos)
    }

    /// The interval by a factor between 0.5 and 1.5.
    const fn randomized(&mut self, nanos: u64) -> u64 {
        nanos / 2 + ((nanos * self.next_random()) >> 32)
    }

    /// The next pause behind `others` owners: the first interval for each but the last, which may
    /// release at any time, and the next interval for that one; an owner that is next has [`SHORT_PAUSES`]
    /// before each, or before the first one.
    pub(crate) fn next_behind(&mut self, others: u64) -> u64 {
        let first = u64::from(self.table[0]);
        if others <= 1 && self.short < SHORT_PAUSES {
            self.short += 1;
            return self.randomized(first);
        }
        if first < NETWORK {
            self.short = 0;
        }
        first.saturating_mul(others.saturating_sub(1)).saturating_add(self.next_nanos())
    }

    /// Restarts the table.
    pub(crate) const fn restart(&mut self) {
        (self.step, self.short) = (0, 0);
    }

    /// 32 bits, seeded by the owner, so that ranks do not retry in lockstep and a simulated run can
    /// be repeated.
    const fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(GOLDEN);
        mixed(self.random) >> 32
    }
}

/// 2<sup>64</sup> by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
pub(crate) const fn mixed(value: u64) -> u64 {
    let mixed = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use onesided_remote_memory::Rank;

    use super::*;

    fn first_pauses(backoff: Backoff, rank: u32) -> Vec<u64> {
        let mut pauses = backoff.pauses(Owner { rank: Rank(rank), slot: 0, generation: 0 });
        std::iter::repeat_with(|| pauses.next_nanos()).take(2 * Backoff::STEPS).collect()
    }

    #[test]
    fn pauses_follow_the_table_within_half_an_interval() {
        let table = Backoff::new([100, 200, 400].map(Duration::from_nanos));
        for rank in 0..1000 {
            let pauses = first_pauses(table, rank);
            assert!((50..150).contains(&pauses[0]) && (100..300).contains(&pauses[1]), "{pauses:?}");
            assert!(pauses[2..].iter().all(|nanos| (200..600).contains(nanos)), "{pauses:?}");
        }
    }

    #[test]
    fn pauses_grow_with_those_ahead() {
        for first in [100, NETWORK] {
            let table = Backoff::new([1, 2, 10].map(|times| Duration::from_nanos(times * first)));
            let mut pauses = table.pauses(Owner { rank: Rank(7), slot: 0, generation: 0 });
            let within = |nanos, of: [f64; 2]| (of[0]..of[1]).contains(&(nanos as f64 / first as f64));
            for _ in 0..1000 {
                pauses.restart();
                let nanos: Vec<_> = [3, 3, 30].into_iter().map(|others| pauses.next_behind(others)).collect();
                assert!(within(nanos[0], [2.5, 3.5]) && within(nanos[1], [3.0, 5.0]), "{nanos:?}");
                assert!(within(nanos[2], [34.0, 44.0]), "{nanos:?}");
                assert!((0..SHORT_PAUSES).all(|_| within(pauses.next_behind(1), [0.5, 1.5])));
                assert!(within(pauses.next_behind(1), [5.0, 15.0]));
                assert_eq!(within(pauses.next_behind(1), [0.5, 1.5]), first < NETWORK);
                assert_eq!(pauses.next_behind(u64::MAX), u64::MAX);
            }
        }
    }

    #[test]
    fn pauses_reach_as_far_as_it_takes() {
        let table = Backoff::new((0..16).map(|power| Duration::from_nanos(1 << (power + 4))));
        let owner = Owner { rank: Rank(7), slot: 0, generation: 0 };
        let after = |cap, pauses: u32| {
            let mut under_way = table.pauses(owner).within(cap);
            let nanos: Vec<_> = (0..pauses).map(|_| under_way.next_nanos()).collect();
            (under_way.backoff_cap(), nanos)
        };
        // With a cap, an acquire that succeeds early lowers it, and one that waits long raises it
        // at once.
        assert_eq!(after(BackoffCap(3), 1).0, BackoffCap(2));
        assert_eq!(after(BackoffCap(0), 0).0, BackoffCap(0));
        assert_eq!(after(BackoffCap(3), 8).0, BackoffCap(3));
        let (cap, nanos) = after(BackoffCap(0), 5 * 16 + 1);
        assert_eq!(cap, BackoffCap::ALL);
        assert!(nanos[..5].iter().all(|nanos| *nanos < 24) && nanos[80] >= 1 << 18, "{nanos:?}");
        assert_eq!(after(BackoffCap(200), 100).0, BackoffCap::ALL);
        // Without a cap the whole table is used.
        assert_eq!(after(BackoffCap::ALL, 5).1, first_pauses(table, 7)[..5]);
    }

    #[test]
    fn a_wait_may_have_any_number_of_pauses() {
        let table = Backoff::default();
        let mut pauses = table.pauses(Owner { rank: Rank(7), slot: 0, generation: 0 });
        (pauses.taken, pauses.longest, pauses.step) = (u8::MAX, u8::MAX, BackoffCap::ALL.0);
        assert!((8_192..24_576).contains(&pauses.next_nanos()));
        assert_eq!(pauses.backoff_cap(), BackoffCap::ALL);
    }

    #[test]
    fn owners_differ_and_repeat_themselves() {
        let pauses = [1, 2, 1].map(|rank| first_pauses(Backoff::default(), rank));
        assert_ne!(pauses[0], pauses[1]);
        assert_eq!(pauses[0], pauses[2]);
    }

    #[test]
    fn tables_are_cut_and_continued() {
        assert_eq!(Backoff::new([]), Backoff::disabled());
        assert_eq!(Backoff::new([Duration::ZERO]), Backoff::disabled());
        assert_eq!(Backoff::new([Duration::from_nanos(1)]).nanos[Backoff::STEPS - 2..], [1, 64]);
        assert_eq!(first_pauses(Backoff::disabled(), 7), [0; 2 * Backoff::STEPS]);
        let longest = Backoff::new(std::iter::repeat(Duration::MAX));
        assert!(first_pauses(longest, 7).iter().all(|nanos| *nanos >= u64::from(u32::MAX / 2)));
    }
}
