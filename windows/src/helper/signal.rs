//! Signals to memory that has no words here, and the wait for them.
//!
//! The element is put as any other, by a copy of the kernel where that is the path: such a copy is
//! not atomic. So its owner reads it only between signals: each origin counts the signals that it
//! has started and those that it has finished, in words of the owner's hidden region, and writes
//! each signal's offset before it. An origin's signals are sequential. If, after the owner's read,
//! no origin has started a signal that was not finished before the read, or only one to another
//! offset, the owner has not seen half of a signal. Whether the origin lives does not matter: a
//! signal that it left half written stays so, and does not block waits for other words.

use std::cell::RefCell;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex};

use onesided_fabric::remote_memory::{Fault, FaultKind, Notify, Patience};
use onesided_fabric::{Fabric, Segment, lock};

use super::{BEGUN, DONE, DOORBELL, SIGNALLED};
use crate::window::inner::Inner;
use crate::window::target::Target;

/// The result of a wait.
type Outcome = Arc<Mutex<Option<Result<u64, Fault>>>>;

impl<F: Fabric> Inner<F> {
    /// Puts a word to window memory that has none here, and wakes its owner. Operations on memory
    /// without words complete when they return.
    pub(crate) fn signal_wordless(&self, target: &Target<F>, offset: u64, value: u64) -> Result<(), Fault> {
        let (fabric, layout, me) = (self.fabric(), self.request_layout(), self.world.rank());
        let word = |at| fabric.word_in(&target.locks, at);
        let (begun, done, doorbell) =
            (word(layout.at(me, BEGUN))?, word(layout.at(me, DONE))?, word(layout.at(me, DOORBELL))?);
        let last_tag = word(layout.at(me, SIGNALLED))?;
        let mut signals = self.helper_requests.signals(target.rank)?; // one signal at a time
        *signals = signals.wrapping_add(1);
        drop(fabric.write(last_tag, tag(*signals, offset), Notify::No));
        drop(fabric.fetch_add(begun, 1));
        drop(fabric.flush(target.fabric_rank())); // before any byte of the signal
        let put = fabric.put(&target.data, offset, &value.to_ne_bytes());
        target.count(target.data.path());
        // Of release order; even after a failure, so that no wait blocks on it.
        drop(fabric.fetch_add(done, 1));
        drop(fabric.write(doorbell, 1, Notify::Yes));
        put
    }

    /// Waits until a word of this rank's own window memory, which has no words, satisfies the
    /// predicate.
    pub(crate) async fn wait_wordless<'f>(
        &'f self,
        offset: u64,
        predicate: impl Fn(u64) -> bool + Send + Unpin + 'f,
        patience: Option<Patience>,
    ) -> Result<u64, Fault> {
        let done = RefCell::new(Vec::with_capacity(self.world.size() as usize));
        self.wait_seeing(move || self.between_signals(offset, &mut done.borrow_mut()), predicate, patience).await
    }

    /// The same for a word that peers access by a card, and that no reference of this rank may
    /// point to, because the memory can be taken back.
    pub(crate) async fn wait_user_memory<'f>(
        &'f self,
        offset: u64,
        predicate: impl Fn(u64) -> bool + Send + Unpin + 'f,
        patience: Option<Patience>,
    ) -> Result<u64, Fault> {
        let look = move || {
            let mut word = [0; 8];
            self.fabric().read_direct(&self.memory.own, offset, &mut word)?; // a single access, as the card's write is
            fence(Ordering::Acquire);
            Ok(Some(u64::from_ne_bytes(word)))
        };
        self.wait_seeing(look, predicate, patience).await
    }

    /// Waits until a read of memory satisfies the predicate.
    async fn wait_seeing<'f>(
        &'f self,
        look: impl Fn() -> Result<Option<u64>, Fault> + Send + Unpin + 'f,
        predicate: impl Fn(u64) -> bool + Send + Unpin + 'f,
        patience: Option<Patience>,
    ) -> Result<u64, Fault> {
        let (fabric, seen) = (self.fabric(), Outcome::default());
        let outcome = Arc::clone(&seen);
        // A signal rings the doorbell, and every ring makes each wait poll.
        let look = move |_| match look() {
            Ok(Some(word)) if !predicate(word) => false,
            Ok(None) => false,
            seen => {
                *lock(&outcome) = seen.transpose();
                true
            }
        };
        let own = fabric.word_in(&self.memory.hidden, self.request_layout().closed())?;
        match patience {
            Some(patience) => fabric.wait_until(own, look, patience).await?,
            None => self.world.wait_until(own, look).await?,
        };
        let seen = lock(&seen).take();
        seen.unwrap_or(Err(Fault::new(FaultKind::Unknown)))
    }

    /// This rank's own word, if no signal may have been in the middle of it.
    fn between_signals(&self, offset: u64, done: &mut Vec<u64>) -> Result<Option<u64>, Fault> {
        let (fabric, layout, size) = (self.fabric(), self.request_layout(), self.world.size());
        let load = |at| fabric.load(fabric.word_in(&self.memory.hidden, at)?); // of acquire order
        let word = || {
            let mut word = [0; 8];
            fabric.read_direct(&self.memory.own, offset, &mut word)?;
            drop(fabric.flush(fabric.rank())); // before the next load
            Ok(u64::from_ne_bytes(word))
        };
        let begun = |origin| Ok((load(layout.at(origin, BEGUN))?, load(layout.at(origin, SIGNALLED))?));
        look_between((size, offset), done, |origin| load(layout.at(origin, DONE)), word, begun)
    }
}

/// The number of bits of a tag for the word's index.
const OFFSET_BITS: u32 = 40;

/// The low bits of a signal's number, and its word.
const fn tag(number: u64, offset: u64) -> u64 {
    number << OFFSET_BITS | (offset / 8) & ((1 << OFFSET_BITS) - 1)
}

/// Reads a word that origins signal to, among others: how many signals each has finished, then the
/// word, then how many each has started and the tag of the last one. `None` if one of them may have
/// been in the middle of the word.
///
/// Signals that were finished before the read are in the word as a whole. Where exactly one more
/// has started since, it affects this word only if its tag says so; a tag of another number belongs
/// to the next signal, whose tag is written before it is counted.
fn look_between<E>(
    (origins, offset): (u32, u64),
    before: &mut Vec<u64>,
    done: impl Fn(u32) -> Result<u64, E>,
    word: impl FnOnce() -> Result<u64, E>,
    begun: impl Fn(u32) -> Result<(u64, u64), E>,
) -> Result<Option<u64>, E> {
    before.clear();
    for origin in 0..origins {
        before.push(done(origin)?);
    }
    let word = word()?;
    for (origin, done) in (0..).zip(before.iter()) {
        let (begun, last_tag) = begun(origin)?;
        let next = done.wrapping_add(1);
        let elsewhere =
            begun == next && last_tag >> OFFSET_BITS == tag(next, 0) >> OFFSET_BITS && last_tag != tag(next, offset);
        if begun != *done && !elsewhere {
            return Ok(None);
        }
    }
    Ok(Some(word))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// An origin that puts a word as two halves, one by one, and may stop or die at any point.
    #[derive(Clone, Default)]
    struct Origin {
        /// The words and values of its signals.
        signals: Vec<(usize, u64)>,
        step: usize,
        begun: u64,
        done: u64,
        last_tag: u64,
        dead: bool,
    }

    impl Origin {
        fn of(signals: &[(usize, u64)]) -> Self {
            Self { signals: signals.to_vec(), ..Self::default() }
        }

        fn step(&mut self, words: &mut [[u64; 2]]) {
            let Some((at, value)) = self.signals.get(self.step / 5).copied().filter(|_| !self.dead) else { return };
            match self.step % 5 {
                0 => self.last_tag = tag(self.begun + 1, 8 * at as u64),
                1 => self.begun += 1,
                2 => words[at][0] = value,
                3 => words[at][1] = value,
                _ => self.done += 1,
            }
            self.step += 1;
        }
    }

    /// Words that two origins signal to, and a schedule: what happens before each of the owner's
    /// reads.
    struct Model {
        origins: Vec<Origin>,
        words: Vec<[u64; 2]>,
        /// The choices of this run, 0 beyond its end, and the number of options of each.
        choices: Vec<(usize, usize)>,
        at: usize,
    }

    impl Model {
        fn choose(&mut self, options: usize) -> usize {
            if self.at == self.choices.len() {
                self.choices.push((0, options));
            }
            self.at += 1;
            self.choices[self.at - 1].0
        }

        /// Advances each origin by some steps, or kills it.
        fn pass(&mut self) {
            for origin in 0..self.origins.len() {
                let left = 5 * self.origins[origin].signals.len() - self.origins[origin].step;
                let count = if self.origins[origin].dead { 0 } else { self.choose(left + 1) };
                (0..count).for_each(|_| self.origins[origin].step(&mut self.words));
                if origin == 0 && !self.origins[0].dead {
                    self.origins[0].dead = self.choose(2) == 1;
                }
            }
        }
    }

    /// Runs every schedule of these origins with one read of word 0, which must not see half of a
    /// signal. Returns the number of schedules, and of those that saw a half.
    fn explore(
        origins: &[Origin],
        look: impl Fn(&RefCell<Model>) -> Option<u64>,
        halves: impl Fn(u64) -> bool,
    ) -> (usize, usize) {
        let (mut choices, mut runs, mut torn) = (Vec::new(), 0, 0);
        loop {
            let model = RefCell::new(Model { origins: origins.to_vec(), words: vec![[0; 2]; 2], choices, at: 0 });
            let seen = look(&model);
            runs += 1;
            torn += usize::from(seen.is_some_and(&halves));
            choices = model.into_inner().choices;
            // The next in the order of the choices.
            while choices.last().is_some_and(|(choice, options)| choice + 1 == *options) {
                choices.pop();
            }
            match choices.last_mut() {
                Some((choice, _)) => *choice += 1,
                None => return (runs, torn),
            }
        }
    }

    /// The word as a number, a decimal digit for each half.
    fn word(model: &RefCell<Model>) -> u64 {
        let mut model = model.borrow_mut();
        model.pass();
        let [first, second] = model.words[0];
        10 * first + second
    }

    fn is_half(seen: u64) -> bool {
        seen / 10 != seen % 10
    }

    fn look_now(model: &RefCell<Model>) -> Option<u64> {
        let done = |origin: u32| {
            let mut model = model.borrow_mut();
            model.pass();
            Ok::<_, Infallible>(model.origins[origin as usize].done)
        };
        let begun = |origin: u32| {
            let mut model = model.borrow_mut();
            model.pass();
            let begun = model.origins[origin as usize].begun;
            model.pass();
            Ok((begun, model.origins[origin as usize].last_tag))
        };
        let Ok(seen) = look_between((2, 0), &mut Vec::new(), done, || Ok(word(model)), begun);
        seen
    }

    /// The former algorithm: sums over the origins that were alive when the sums were made.
    fn look_by_sums(model: &RefCell<Model>) -> Option<u64> {
        let sum = |count: fn(&Origin) -> u64| {
            (0..2).fold(0, |sum, origin| {
                let mut model = model.borrow_mut();
                model.pass();
                let origin = &model.origins[origin];
                sum + if origin.dead { 0 } else { count(origin) }
            })
        };
        let done = sum(|origin| origin.done);
        let seen = word(model);
        (sum(|origin| origin.begun) == done).then_some(seen)
    }

    #[test]
    fn no_half_of_a_signal_is_seen_whoever_dies() {
        for origins in [
            [Origin::of(&[(0, 1)]), Origin::of(&[(1, 2)])],
            [Origin::of(&[(0, 1)]), Origin::of(&[(0, 2)])],
            [Origin::of(&[(1, 2), (0, 1)]), Origin::default()],
            [Origin::of(&[(0, 1), (1, 2)]), Origin::default()],
        ] {
            let (runs, torn) = explore(&origins, look_now, is_half);
            assert!(runs > 1_000, "{runs}");
            assert_eq!(torn, 0);
            assert!(explore(&origins, look_by_sums, is_half).1 > 0, "sums miss those that die");
        }
    }

    /// An origin that stops or dies in the middle of a signal to another word blocks only reads of
    /// that word.
    #[test]
    fn an_origin_that_stops_holds_up_only_who_waits_for_its_word() {
        for steps in 2..5 {
            let mut words = [[0; 2]; 2];
            let mut origin = Origin::of(&[(1, 2)]);
            (0..steps).for_each(|_| origin.step(&mut words));
            let look = |at: u64| {
                let begun = |_| Ok::<_, Infallible>((origin.begun, origin.last_tag));
                look_between((1, 8 * at), &mut Vec::new(), |_| Ok(origin.done), || Ok(7), begun).unwrap()
            };
            assert_eq!((look(0), look(1)), (Some(7), None), "{steps}");
        }
    }

    /// A tag matches only the very signal that is in progress, however often origins have
    /// signalled.
    #[test]
    fn a_tag_is_of_its_number() {
        for done in [0, 6, (1 << 24) - 2, (1 << 24) - 1, u64::MAX] {
            let look = |begun: u64, last_tag: u64| {
                let begun = |_| Ok::<_, Infallible>((begun, last_tag));
                look_between((1, 16), &mut Vec::new(), |_| Ok(done), || Ok(7), begun).unwrap().is_some()
            };
            let next = done.wrapping_add(1);
            assert!(look(done, tag(done, 16)) && look(done, tag(next, 16)));
            assert!(look(next, tag(next, 8)) && !look(next, tag(next, 16)));
            assert!(!look(next, tag(next.wrapping_add(1), 8)) && !look(next.wrapping_add(1), tag(next, 8)));
        }
    }
}
