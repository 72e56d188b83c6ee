//! What a rank writes to the ranks after it in a barrier.

use onesided_remote_memory::{Collective, Fault, FaultKind, Rank};

/// A rank's arrival in a barrier. As a word: `number 60 bits | collective 4 bits`, with a highest
/// bit of 0; after a mismatch `1 | number 7 bits | rank 24, other rank 24, their collectives 4 and 4
/// bits`; the same with twice the same collective if the two have lost their connection. A peer is at
/// most one barrier ahead, so that few bits of the number suffice then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    number: u64,
    collective: u8,
    /// Two ranks that are in different collectives, or in one and without a connection.
    mismatch: Option<[(Rank, u8); 2]>,
}

const MISMATCH: u64 = 1 << 63;
const NUMBER: u64 = 0x7f;

impl Arrival {
    pub(crate) const fn new(number: u64, collective: Collective) -> Self {
        Self { number, collective: collective as u8, mismatch: None }
    }

    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn to_word(self) -> u64 {
        match self.mismatch {
            None => self.number << 4 | u64::from(self.collective),
            Some([(rank, collective), (other, others)]) => {
                let ranks = u64::from(rank.0) << 32 | u64::from(other.0) << 8;
                MISMATCH | (self.number & NUMBER) << 56 | ranks | u64::from(collective) << 4 | u64::from(others)
            }
        }
    }

    /// Whether the word is of a rank that has come to the barrier of this number.
    pub(crate) const fn has_come(word: u64, number: u64) -> bool {
        word & MISMATCH != 0 || word >> 4 >= number
    }

    /// This rank cannot hear another one any more.
    pub(crate) const fn lose(&mut self, me: Rank, other: Rank) {
        self.mismatch = Some([(me, self.collective), (other, self.collective)]);
    }

    /// Takes in the word of a rank that has come, `[that rank, this one]`. A word of a later barrier
    /// says that this one passed there; one of an earlier barrier that failed, that the rank does not
    /// come to this one.
    pub(crate) fn hear(&mut self, word: u64, [from, me]: [Rank; 2]) {
        let theirs = |shift: u32| (word >> shift) as u8 & 0xf;
        let rank = |shift: u32| Rank((word >> shift) as u32 & 0xff_ffff);
        let is_mismatch = word & MISMATCH != 0;
        self.mismatch = self.mismatch.or(match is_mismatch {
            true if word >> 56 & NUMBER != (self.number + 1) & NUMBER => {
                Some([(rank(32), theirs(4)), (rank(8), theirs(0))])
            }
            false if word >> 4 == self.number && theirs(0) != self.collective => {
                Some([(from, theirs(0)), (me, self.collective)])
            }
            _ => None,
        });
    }

    /// The outcome of the barrier.
    ///
    /// # Errors
    /// `OutOfStep`, with a rank that is in another collective than this one; `ConnectionLost`, with one
    /// of the two.
    pub(crate) fn outcome(&self) -> Result<(), Fault> {
        let Some(pair) = self.mismatch else { return Ok(()) };
        if pair[0].1 == pair[1].1 {
            return Err(Fault::of(FaultKind::ConnectionLost, pair[0].0));
        }
        let other = pair.into_iter().find(|(_, collective)| *collective != self.collective);
        let (rank, theirs) = other.unwrap_or(pair[0]);
        Err(Fault::out_of_step(rank, [theirs, self.collective]))
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

    /// A rank that has lost another one comes no more, and those that hear of it pass that on.
    #[test]
    fn a_loss_is_passed_on_in_its_barrier_and_the_next() {
        let (lost, ranks) = (Fault::of(FaultKind::ConnectionLost, Rank(5)), [Rank(5), Rank(1)]);
        for number in [126_u64, 127, 128, 1 << 40] {
            let mut loses = Arrival::new(number, Collective::Fence);
            loses.lose(Rank(5), Rank(6));
            for (late, outcome) in [(number - 1, Ok(())), (number, Err(lost)), (number + 1, Err(lost))] {
                assert!(Arrival::has_come(loses.to_word(), late));
                let mut hears = Arrival::new(late, Collective::Fence);
                hears.hear(loses.to_word(), ranks);
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
