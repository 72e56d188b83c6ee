//! What became of an operation of which nobody knows.
//!
//! A fabric fails an operation with `Unknown` if it left and was not answered: it may have taken effect, or not. So it is not
//! repeated blindly, but *settled*:
//!
//! - a read has no effect, and is repeated;
//! - so is a write of a word that nobody else writes meanwhile;
//! - of a compare-swap the word itself tells, if what it writes is nobody else's and stays there until its owner takes it away;
//! - of what a fetch-add did, and of a compare-swap that only counts, nobody can tell any more. Then the lock is frozen, and
//!   set right as after a death (see [`crate::recovery`]): all who wait leave, those who hold it release, and when nobody
//!   counts any more, whatever the word says is of nobody.

use onesided_remote_memory::{Fault, Notify, RemoteMemory};

/// How often who waits for news looks, in nanoseconds.
pub(crate) const LOOK: u64 = 10_000_000;

/// How long the news of a rank's end may take after an operation on its memory has failed, and for how long an operation is
/// tried again whose outcome nobody knows, in nanoseconds.
pub(crate) const NEWS: u64 = 8_000_000_000;

/// Tries of one operation.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    until: Option<u64>,
}

impl Tries {
    /// Whether there is time for another try, which is counted from the first question.
    pub(crate) fn last<M: RemoteMemory>(&mut self, memory: &M) -> bool {
        let now = memory.now();
        now >= *self.until.get_or_insert(now.saturating_add(NEWS))
    }

    /// Lets an operation of which nobody knows be tried again: the first time at once.
    ///
    /// # Errors
    /// The fault itself, if it is another one or the time is over.
    pub(crate) async fn again<'m, M: RemoteMemory>(
        &mut self,
        memory: &'m M,
        word: M::Word<'m>,
        fault: Fault,
    ) -> Result<(), Fault> {
        let first = self.until.is_none();
        if !fault.is_unknown() || self.last(memory) {
            return Err(fault);
        }
        if !first {
            memory.pause(word, LOOK).await;
        }
        Ok(())
    }
}

/// Reads a word, until somebody answers.
pub(crate) async fn read<'m, M: RemoteMemory>(memory: &'m M, word: M::Word<'m>) -> Result<u64, Fault> {
    let mut tries = Tries::default();
    loop {
        match memory.read(word).await {
            Err(fault) => tries.again(memory, word, fault).await?,
            found => return found,
        }
    }
}

/// Writes a word that nobody else writes meanwhile, until somebody answers.
pub(crate) async fn write<'m, M: RemoteMemory>(
    memory: &'m M,
    word: M::Word<'m>,
    value: u64,
    notify: Notify,
) -> Result<(), Fault> {
    let mut tries = Tries::default();
    loop {
        match memory.write(word, value, notify).await {
            Err(fault) => tries.again(memory, word, fault).await?,
            Ok(_) => return Ok(()),
        }
    }
}

/// What a compare-swap from `found` to `new` found that ended so. `took_effect` tells that by the word as it is now, as far as it
/// can: where it cannot, this gives that word as an error.
pub(crate) async fn swapped<'m, M: RemoteMemory>(
    memory: &'m M,
    word: M::Word<'m>,
    (found, new): (u64, u64),
    mut outcome: Result<u64, Fault>,
    took_effect: impl Fn(u64) -> Option<bool>,
) -> Result<Result<u64, u64>, Fault> {
    let mut tries = Tries::default();
    loop {
        match outcome {
            Ok(before) => return Ok(Ok(before)),
            Err(fault) => tries.again(memory, word, fault).await?,
        }
        let now = read(memory, word).await?;
        match took_effect(now) {
            Some(true) => return Ok(Ok(found)),
            Some(false) if now != found => return Ok(Ok(now)),
            Some(false) => outcome = memory.compare_swap(word, found, new).await,
            None => return Ok(Err(now)),
        }
    }
}

/// Swaps a word, which was `found`, for what `frozen` makes of it, until that is nothing. Gives the word as it is then.
pub(crate) async fn freeze<'m, M: RemoteMemory>(
    memory: &'m M,
    word: M::Word<'m>,
    mut found: u64,
    frozen: impl Fn(u64) -> Option<u64>,
) -> Result<u64, Fault> {
    let mut tries = Tries::default();
    while let Some(new) = frozen(found) {
        found = match memory.compare_swap(word, found, new).await {
            Ok(now) if now == found => new,
            Ok(now) => now,
            Err(fault) => {
                tries.again(memory, word, fault).await?;
                read(memory, word).await?
            }
        };
    }
    Ok(found)
}
