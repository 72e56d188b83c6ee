//! Which datagram of a message came in which receive (UD-ZCopy: koop-2008, section 3.2).
//!
//! A receive is posted for each datagram, in their order, into the place of that datagram. A card uses receives in the
//! order of arrival, so all that follow a lost datagram arrive one place too early. Each says its number as immediate data.

use crate::{ChannelCounts, Missing};

/// How long what is late is waited for after the last datagram, in nanoseconds.
const LATE: u64 = 1_000_000;

/// Where the datagrams of a message lie in it: all have as many bytes, but the last one.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    len: u64,
    unit: u32,
}

impl Places {
    /// Of a message of so many bytes in datagrams of `unit` bytes, of which there are fewer than 2<sup>32</sup>.
    #[must_use]
    pub const fn new(len: u64, unit: u32) -> Self {
        Self { len, unit }
    }

    /// How many datagrams there are.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.len.div_ceil(self.unit as u64) as u32
    }

    /// The offset and the length of a datagram. `None`: there is none of this number.
    #[must_use]
    pub fn of(self, number: u32) -> Option<(u64, u32)> {
        let at = u64::from(number) * u64::from(self.unit);
        let left = self.len.checked_sub(at).filter(|left| *left > 0)?;
        Some((at, left.min(self.unit.into()) as u32))
    }

    /// All of them, in order.
    pub fn all(self) -> impl Iterator<Item = (u64, u32)> {
        (0..).map_while(move |number| self.of(number))
    }
}

/// The datagrams of a message, by the receives that they came in.
#[derive(Debug)]
pub struct Placement {
    places: Places,
    /// Of each receive the number of its datagram.
    slots: Vec<Option<u32>>,
    has_come: Vec<bool>,
    /// How many receives were used, and those when it was last asked.
    used: u32,
    seen: u32,
    /// Until when late datagrams are waited for.
    until: Option<u64>,
}

impl Placement {
    /// Of a message with these datagrams, none of which has come.
    #[must_use]
    pub fn new(places: Places) -> Self {
        let count = places.count() as usize;
        Self { places, slots: vec![None; count], has_come: vec![false; count], used: 0, seen: 0, until: None }
    }

    /// The places of the datagrams.
    #[must_use]
    pub const fn places(&self) -> Places {
        self.places
    }

    /// A datagram of so many bytes came in a receive, and says that it is `number`. One that came before, or has another
    /// length, does not count; its receive is used all the same.
    pub fn arrived(&mut self, slot: u32, number: Option<u32>, len: u32) {
        self.used += 1;
        let is_whole = |number: &u32| self.places.of(*number).is_some_and(|(_, whole)| whole == len);
        let Some(number) = number.filter(is_whole) else { return };
        if let Some(at) = self.slots.get_mut(slot as usize)
            && !std::mem::replace(&mut self.has_come[number as usize], true)
        {
            *at = Some(number);
        }
    }

    /// How many receives were used.
    #[must_use]
    pub const fn used(&self) -> u32 {
        self.used
    }

    /// How many of them since [that was asked](Self::waits).
    #[must_use]
    pub const fn used_since(&self) -> u32 {
        self.used - self.seen
    }

    /// Whether all receives were used.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.used >= self.places.count()
    }

    /// Until when late datagrams are waited for, once their sender has said that all have left. `None`: no more.
    pub fn waits(&mut self, now: u64) -> Option<u64> {
        if self.is_full() {
            return None;
        }
        if self.used_since() > 0 || self.until.is_none() {
            (self.seen, self.until) = (self.used, Some(now.saturating_add(LATE)));
        }
        self.until.filter(|until| now < *until)
    }

    /// Moves what is in another one's place, by reads and writes of memory from an offset on. What is missing then, and
    /// the counts of what landed, was moved and is missing.
    ///
    /// # Errors
    /// Those of the reads and writes.
    pub fn settle<E>(
        &self,
        read: impl Fn(u64, &mut [u8]) -> Result<(), E>,
        write: impl Fn(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(Missing, ChannelCounts), E> {
        let (moves, missing) = self.end();
        let longest = if moves.is_empty() { 0 } else { self.places.unit as usize };
        let (mut bytes, mut apart) = (vec![0; longest], vec![0; longest]);
        for (from, to) in &moves {
            match (self.places.of(*from), self.places.of(*to)) {
                (Some((from, len)), None) => read(from, &mut apart[..len as usize])?,
                (None, Some((to, len))) => write(to, &apart[..len as usize])?,
                (Some((from, _)), Some((to, len))) => {
                    let bytes = &mut bytes[..len as usize];
                    read(from, bytes)?;
                    write(to, bytes)?;
                }
                (None, None) => {}
            }
        }
        let (count, lost) = (self.places.count(), missing.datagrams.len() as u64);
        // One that was apart meanwhile is moved twice.
        let moved = moves.iter().filter(|(_, to)| *to < count).count() as u64;
        let landed = u64::from(count) - lost - moved;
        Ok((missing, ChannelCounts { landed, moved, missing: lost, ..ChannelCounts::default() }))
    }

    /// What is to be moved, from the place of one datagram to that of another, in this order; and what is missing. The
    /// number behind the last one is a place apart, for one of those that are in one another's places.
    fn end(&self) -> (Vec<(u32, u32)>, Missing) {
        let (apart, mut moves) = (self.places.count(), Vec::new());
        // Of each number the place that it is to leave.
        let mut found = vec![None; self.slots.len() + 1];
        for (slot, number) in (0..).zip(&self.slots) {
            if let Some(number) = number.filter(|number| *number != slot) {
                found[number as usize] = Some(slot);
            }
        }
        // What goes to a free place leaves the next one free.
        for place in (0..apart).filter(|place| self.slots[*place as usize].is_none()) {
            follow(place, &mut found, &mut moves);
        }
        for place in 0..apart {
            if let (Some(_), Some(number)) = (found[place as usize], self.slots[place as usize]) {
                moves.push((place, apart));
                found[number as usize] = Some(apart);
                follow(place, &mut found, &mut moves);
            }
        }
        let missing = (0..).zip(&self.has_come).filter(|(_, has_come)| !**has_come).map(|(number, _)| number);
        (moves, Missing { unit: self.places.unit, datagrams: missing.collect() })
    }
}

/// Fills a free place, and the one that this leaves.
fn follow(mut place: u32, found: &mut [Option<u32>], moves: &mut Vec<(u32, u32)>) {
    while let Some(from) = found[place as usize].take() {
        moves.push((from, place));
        place = from;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use proptest::prelude::*;

    use super::*;

    const UNIT: usize = 4;

    fn message(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at as u8).wrapping_mul(37) | 1).collect()
    }

    fn placement(len: u64) -> Placement {
        Placement::new(Places::new(len, UNIT as u32))
    }

    /// Memory after datagrams came in this order; `None`: one that is nonsense. And what is missing.
    fn received(len: usize, order: &[Option<u32>]) -> (Vec<u8>, Missing) {
        let (whole, mut memory) = (message(len), vec![0; len]);
        let mut placement = placement(len as u64);
        let places: Vec<_> = placement.places().all().collect();
        for ((slot, (at, room)), number) in (0..).zip(&places).zip(order) {
            let bytes = match number.and_then(|number| placement.places().of(number)) {
                Some((at, len)) => &whole[at as usize..][..len as usize],
                None => &[0xee; UNIT],
            };
            // A card refuses what is longer than its receive.
            match bytes.len() <= *room as usize {
                true => memory[*at as usize..][..bytes.len()].copy_from_slice(bytes),
                false => {
                    placement.arrived(slot, None, 0);
                    continue;
                }
            }
            placement.arrived(slot, *number, bytes.len() as u32);
        }
        let memory = RefCell::new(memory);
        let read = |at: u64, into: &mut [u8]| {
            into.copy_from_slice(&memory.borrow()[at as usize..][..into.len()]);
            Ok::<_, ()>(())
        };
        let write = |at: u64, from: &[u8]| {
            memory.borrow_mut()[at as usize..][..from.len()].copy_from_slice(from);
            Ok(())
        };
        let (missing, counts) = placement.settle(read, write).unwrap();
        let all = [counts.landed, counts.moved, counts.missing].iter().sum::<u64>();
        assert_eq!((all, counts.missing), (places.len() as u64, missing.datagrams.len() as u64), "{counts:?}");
        (memory.into_inner(), missing)
    }

    #[test]
    fn what_comes_in_order_is_in_its_place() {
        let mut placement = placement(9);
        for (number, len) in [(0, 4), (1, 4), (2, 1)] {
            assert!(!placement.is_full());
            placement.arrived(number, Some(number), len);
        }
        assert!(placement.is_full());
        assert_eq!(placement.end(), (vec![], Missing { unit: 4, datagrams: vec![] }));
    }

    #[test]
    fn late_datagrams_are_waited_for_until_none_comes() {
        let mut placement = placement(9);
        assert_eq!(placement.waits(5), Some(5 + LATE));
        assert_eq!(placement.waits(4 + LATE), Some(5 + LATE));
        placement.arrived(0, Some(0), 4);
        assert_eq!(placement.waits(4 + LATE), Some(4 + 2 * LATE));
        assert_eq!(placement.waits(4 + 2 * LATE), None);
        for number in [1, 2] {
            placement.arrived(number, Some(number), if number == 2 { 1 } else { 4 });
        }
        assert_eq!(placement.waits(0), None);
    }

    #[test]
    fn what_follows_a_hole_is_moved() {
        let mut placement = placement(16);
        for (slot, number) in [(0, 0), (1, 2), (2, 3)] {
            placement.arrived(slot, Some(number), 4);
        }
        assert!(!placement.is_full());
        assert_eq!(placement.end(), (vec![(2, 3), (1, 2)], Missing { unit: 4, datagrams: vec![1] }));
    }

    #[test]
    fn what_overtook_others_is_moved() {
        let mut placement = placement(16);
        for (slot, number) in [(0, 2), (1, 1), (2, 3), (3, 0)] {
            placement.arrived(slot, Some(number), 4);
        }
        let moves = vec![(0, 4), (3, 0), (2, 3), (4, 2)];
        assert_eq!(placement.end(), (moves, Missing { unit: 4, datagrams: vec![] }));
    }

    #[test]
    fn what_no_message_has_does_not_count() {
        for (number, len) in [(Some(2), 4), (Some(u32::MAX), 4), (None, 4), (Some(0), 3), (Some(1), 4), (Some(1), 0)] {
            let mut placement = placement(7);
            placement.arrived(0, number, len);
            placement.arrived(9, Some(0), 4); // there is no such receive
            placement.arrived(1, Some(1), 3);
            let (moves, missing) = placement.end();
            assert_eq!((moves.len(), missing.datagrams), (0, vec![0]), "{number:?} of {len} bytes");
        }
    }

    proptest! {
        /// Lost, doubled and overtaken datagrams, and nonsense: what is not missing is in its place.
        #[test]
        fn all_that_is_not_missing_is_in_its_place(
            len in 1..80_usize,
            order in prop::collection::vec(prop::option::weighted(0.9, 0..22_u32), 0..22),
        ) {
            let (memory, missing) = received(len, &order);
            let whole = message(len);
            for (number, (is, should)) in (0..).zip(memory.chunks(UNIT).zip(whole.chunks(UNIT))) {
                prop_assert!(missing.datagrams.contains(&number) || is == should, "{} of {:?}", number, order);
            }
            let came = |number: &u32| order[..order.len().min(len.div_ceil(UNIT))].contains(&Some(*number));
            let lost = missing.datagrams.iter().filter(|number| came(number)).count();
            prop_assert!(lost <= 1, "{:?} of {:?}", missing, order); // one may not have fitted the last receive
        }
    }
}
