//! What a rank writes to the ranks after it in a barrier.

use onesided_remote_memory::{Collective, Fault, FaultKind, Rank};

/// A rank's arrival in a barrier. As a word: `number 60 bits | collective 4 bits`, with a highest
/// bit of 0; of a rank that will not signal the others in that barrier `1 | number 7 bits | rank 24, other
/// rank 24, their collectives 4 and 4 bits`, or with the kind of a fault in place of the other rank, and
/// collectives of 0. A peer is at most one barrier ahead, so that few bits of the number suffice then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    number: u64,
    collective: u8,
    /// Why no rank passes the barrier.
    failed: Option<Failed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failed {
    /// Two ranks are in different collectives.
    OutOfStep([(Rank, u8); 2]),
    /// A rank does not come.
    Fault(Rank, u8),
}

const FAILED: u64 = 1 << 63;
const NUMBER: u64 = 0x7f;

impl Failed {
    const fn to_word(self) -> u64 {
        match self {
            Self::OutOfStep([(rank, collective), (other, others)]) => {
                (rank.0 as u64) << 32 | (other.0 as u64) << 8 | (collective as u64) << 4 | others as u64
            }
            Self::Fault(rank, kind) => (rank.0 as u64) << 32 | (kind as u64) << 8,
        }
    }

    fn from_word(word: u64) -> Self {
        let rank = |shift: u32| Rank((word >> shift) as u32 & 0xff_ffff);
        match word as u8 {
            0 => Self::Fault(rank(32), (word >> 8) as u8),
            both => Self::OutOfStep([(rank(32), both >> 4), (rank(8), both & 0xf)]),
        }
    }
}

impl Arrival {
    pub(crate) const fn new(number: u64, collective: Collective) -> Self {
        Self { number, collective: collective as u8, failed: None }
    }

    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    pub(crate) const fn to_word(self) -> u64 {
        match self.failed {
            None => self.number << 4 | self.collective as u64,
            Some(failed) => FAILED | (self.number & NUMBER) << 56 | failed.to_word(),
        }
    }

    /// Whether the word is of a rank that has come to the barrier of this number.
    pub(crate) const fn has_come(word: u64, number: u64) -> bool {
        word & FAILED != 0 || word >> 4 >= number
    }

    /// This rank fails. The others are told of the rank that has ended, or else of this one.
    pub(crate) fn fail(&mut self, me: Rank, fault: Fault) {
        let (rank, kind) = match (fault.kind(), fault.rank()) {
            (kind @ (FaultKind::PeerDied | FaultKind::PeerLeft | FaultKind::PeerNeverJoined), Some(rank)) => {
                (rank, kind)
            }
            (FaultKind::Unknown, _) => (me, FaultKind::ConnectionLost),
            (kind, _) => (me, kind),
        };
        self.failed = self.failed.or(Some(Failed::Fault(rank, kind as u8)));
    }

    /// Takes in the word of a rank that has come, `[that rank, this one]`. A word of a later barrier
    /// says that this one passed there; one of an earlier barrier that failed, that the rank does not
    /// come to this one.
    pub(crate) fn hear(&mut self, word: u64, [from, me]: [Rank; 2]) {
        let theirs = word as u8 & 0xf;
        if word & FAILED == 0 && word >> 4 == self.number && theirs != self.collective {
            self.failed = Some(Failed::OutOfStep([(from, theirs), (me, self.collective)]));
        }
        self.hear_failure(word);
    }

    /// Takes in the word of a rank, if it has failed in this barrier or before.
    pub(crate) fn hear_failure(&mut self, word: u64) {
        if word & FAILED != 0 && word >> 56 & NUMBER != (self.number + 1) & NUMBER {
            self.failed = Some(Failed::from_word(word));
        }
    }

    /// The outcome of the barrier, as far as this rank has heard.
    ///
    /// # Errors
    /// `OutOfStep`, with a rank that is in another collective than this one; the fault of a rank that
    /// does not come.
    pub(crate) fn outcome(&self) -> Result<(), Fault> {
        match self.failed {
            None => Ok(()),
            Some(Failed::Fault(rank, kind)) => {
                let kind = Fault::from_bits(u64::from(kind) << 56).map_or(FaultKind::Protocol, Fault::kind);
                Err(Fault::of(kind, rank))
            }
            Some(Failed::OutOfStep(pair)) => {
                let other = pair.into_iter().find(|(_, collective)| *collective != self.collective);
                let (rank, theirs) = other.unwrap_or(pair[0]);
                Err(Fault::out_of_step(rank, [theirs, self.collective]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All rounds of a barrier in turn: each rank hears the rank before it.
    fn outcomes(collectives: &[Collective]) -> Vec<Result<(), Fault>> {
        let size = collectives.len();
        let mut all: Vec<_> = collectives.iter().map(|collective| Arrival::new(7, *collective)).collect();
        let mut distance = 1;
        while distance < size {
            let words: Vec<_> = all.iter().map(|arrival| arrival.to_word()).collect();
            for (rank, arrival) in all.iter_mut().enumerate() {
                let from = (rank + size - distance) % size;
                assert!(Arrival::has_come(words[from], 7));
                arrival.hear(words[from], [Rank(from as u32), Rank(rank as u32)]);
            }
            distance *= 2;
        }
        all.iter().map(Arrival::outcome).collect()
    }

    #[test]
    fn every_rank_learns_of_every_mismatch() {
        for size in 1..=9 {
            assert!(outcomes(&vec![Collective::Fence; size]).iter().all(Result::is_ok));
            for odd in (0..size).filter(|_| size > 1) {
                let mut collectives = vec![Collective::Barrier; size];
                collectives[odd] = Collective::Fence;
                for (rank, outcome) in outcomes(&collectives).into_iter().enumerate() {
                    let fault = outcome.unwrap_err();
                    let named = fault.rank().unwrap().0 as usize;
                    assert_ne!(collectives[named], collectives[rank], "{odd} of {size}");
                    let both = [collectives[named] as u8, collectives[rank] as u8];
                    assert_eq!(fault, Fault::out_of_step(Rank(named as u32), both));
                }
            }
        }
    }

    /// A rank that fails comes no more, and those that hear of it pass that on.
    #[test]
    fn a_failure_is_passed_on_in_its_barrier_and_the_next() {
        let (me, other, ranks) = (Rank(5), Rank(6), [Rank(5), Rank(1)]);
        let told = [
            (Fault::of(FaultKind::ConnectionLost, other), Fault::of(FaultKind::ConnectionLost, me)),
            (Fault::of(FaultKind::Unknown, other).with_detail(9), Fault::of(FaultKind::ConnectionLost, me)),
            (Fault::new(FaultKind::NoMemory), Fault::of(FaultKind::NoMemory, me)),
            (Fault::of(FaultKind::PeerLeft, other), Fault::of(FaultKind::PeerLeft, other)),
            (Fault::of(FaultKind::PeerNeverJoined, Rank(0)), Fault::of(FaultKind::PeerNeverJoined, Rank(0))),
        ];
        for (at, (fault, told)) in (0..4).flat_map(|at| told.map(|told| (at, told))) {
            let number = [126, 127, 128, 1 << 40][at];
            let mut fails = Arrival::new(number, Collective::Fence);
            fails.fail(me, fault);
            for (late, outcome) in [(number - 1, Ok(())), (number, Err(told)), (number + 1, Err(told))] {
                assert!(Arrival::has_come(fails.to_word(), late));
                let mut hears = Arrival::new(late, Collective::Fence);
                hears.hear(fails.to_word(), ranks);
                assert_eq!(hears.outcome(), outcome);
                let mut after = Arrival::new(late, Collective::Fence);
                after.hear(hears.to_word(), [Rank(1), Rank(2)]);
                assert_eq!(after.outcome(), outcome);
            }
        }
    }

    #[test]
    fn a_word_of_the_next_barrier_says_that_this_one_passed() {
        let ranks = [Rank(0), Rank(1)];
        let mut arrival = Arrival::new(200, Collective::Barrier);
        let mut next = Arrival::new(201, Collective::Fence);
        assert!(!Arrival::has_come(Arrival::new(199, Collective::Fence).to_word(), 200));
        arrival.hear(next.to_word(), ranks);
        next.hear(Arrival::new(201, Collective::Split).to_word(), ranks);
        assert!(next.outcome().is_err() && Arrival::has_come(next.to_word(), 200));
        arrival.hear(next.to_word(), ranks);
        assert_eq!(arrival.outcome(), Ok(()));
    }
}
