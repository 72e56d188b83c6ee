//! How many packets may be on their way, and how long an answer may take.

/// The fewest packets on their way.
pub(super) const SMALLEST: u32 = 2;
/// The most packets on their way, and the most that a receiver keeps of one sender.
pub(super) const LARGEST: u32 = 256;
/// The first window.
pub(super) const FIRST: u32 = 32;

/// A window with additive increase (RFC 5681: slow start up to a threshold, from there one packet more
/// for each window that arrived). The decrease is by half of the share of packets that were lost, in
/// the manner of DCTCP (RFC 8257, section 3.3): packets are lost one by one where a wire or a switch
/// errs, and in masses where a receiver cannot follow.
#[derive(Debug)]
pub(super) struct Window {
    size: u32,
    threshold: u32,
    /// Packets that arrived since the last increase.
    arrived: u32,
    /// The same since the last decrease, at most a window.
    kept: u32,
    /// Packets lost since the last decrease.
    lost: u32,
}

impl Window {
    pub(super) const fn new() -> Self {
        Self { size: FIRST, threshold: LARGEST, arrived: 0, kept: 0, lost: 0 }
    }

    pub(super) const fn size(&self) -> u32 {
        self.size
    }

    pub(super) fn grow(&mut self, arrived: u32) {
        self.kept = (self.kept + arrived).min(LARGEST);
        if self.size < self.threshold {
            self.size = (self.size + arrived).min(self.threshold);
            return;
        }
        self.arrived += arrived;
        if self.arrived >= self.size {
            self.arrived = 0;
            self.size = (self.size + 1).min(LARGEST);
        }
    }

    /// A packet was lost.
    pub(super) fn lose(&mut self) {
        self.lost += 1;
    }

    /// Some were lost in a window that was not reduced.
    pub(super) fn reduce(&mut self) {
        let (lost, all) = (u64::from(self.lost), u64::from(self.lost) + u64::from(self.kept));
        let less = (u64::from(self.size) * lost).div_ceil(2 * all) as u32;
        self.go_on_with(self.size - less);
    }

    /// All that is on its way counts as lost.
    pub(super) fn restart(&mut self) {
        self.go_on_with(self.size / 2);
        self.size = SMALLEST;
    }

    fn go_on_with(&mut self, size: u32) {
        let size = size.max(SMALLEST);
        *self = Self { size, threshold: size, arrived: 0, kept: 0, lost: 0 };
    }
}

/// The timeout by the smoothed round-trip time (RFC 6298), in nanoseconds.
#[derive(Debug)]
pub(super) struct RoundTrip {
    smoothed: u64,
    variation: u64,
}

const SHORTEST: u64 = 100_000;
pub(super) const LONGEST: u64 = 10_000_000;
/// How long an acknowledgement waits at least.
const DELAY: u64 = 50_000;
/// Before the first measurement; also how long an acknowledgement waits at most.
const UNKNOWN: u64 = 1_000_000;

impl RoundTrip {
    pub(super) const fn new() -> Self {
        Self { smoothed: UNKNOWN, variation: 0 }
    }

    pub(super) fn measure(&mut self, nanos: u64) {
        let nanos = nanos.min(LONGEST);
        (self.smoothed, self.variation) = match (self.smoothed, self.variation) {
            (UNKNOWN, 0) => (nanos, nanos / 2),
            (smoothed, variation) => ((7 * smoothed + nanos) / 8, (3 * variation + smoothed.abs_diff(nanos)) / 4),
        };
    }

    /// How long an acknowledgement waits for a packet to ride on: as long as the network takes,
    /// which is half of what is measured with it.
    pub(super) fn delay(&self) -> u64 {
        if self.smoothed == UNKNOWN { DELAY } else { (self.smoothed / 2).clamp(DELAY, UNKNOWN) }
    }

    /// After a number of timeouts without an answer.
    pub(super) fn timeout(&self, unanswered: u32) -> u64 {
        let timeout = (self.smoothed + 4 * self.variation).max(SHORTEST);
        timeout.saturating_mul(1 << unanswered.min(10)).min(LONGEST)
    }
}
