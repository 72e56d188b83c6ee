//! Resolving indeterminate operations.
//!
//! A fabric fails an operation with `Unknown` if it left and no reply came: it may have taken
//! effect, or not. Such an operation is not repeated blindly, but *resolved*:
//!
//! - a read has no effect, and is repeated;
//! - a write of a word that no other rank writes meanwhile is repeated;
//! - a compare-swap is resolved by reading the word, if the value that it writes is unique and
//!   stays there until its owner removes it;
//! - a fetch-add, and a compare-swap that only counts, cannot be resolved. The lock is put under
//!   recovery, as after a death (see [`crate::recovery`]): all waiters leave, holders release, and
//!   when no owner is announced, no owner is left in the word.

use onesided_remote_memory::{Fault, Notify, RemoteMemory};

/// The poll interval of a waiter, in nanoseconds.
pub(crate) const LOOK: u64 = 10_000_000;

/// The failure-detection timeout, in nanoseconds: how long the end of a rank may take to become
/// known after an operation on its memory has failed, and how long an indeterminate operation is
/// retried.
pub(crate) const NEWS: u64 = 8_000_000_000;

/// The retry budget of one operation.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    until: Option<u64>,
}

impl Tries {
    /// Whether the budget is used up. It starts at the first call.
    pub(crate) fn last<M: RemoteMemory>(&mut self, memory: &M) -> bool {
        let now = memory.now();
        now >= *self.until.get_or_insert(now.saturating_add(NEWS))
    }

    /// Permits a retry of an indeterminate operation, immediately the first time.
    ///
    /// # Errors
    /// The fault itself, if it is another one or the budget is used up.
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

/// Reads a word, and retries until the outcome is known.
pub(crate) async fn read<'m, M: RemoteMemory>(memory: &'m M, word: M::Word<'m>) -> Result<u64, Fault> {
    let mut tries = Tries::default();
    loop {
        match memory.read(word).await {
            Err(fault) => tries.again(memory, word, fault).await?,
            found => return found,
        }
    }
}

/// Writes a word that no other rank writes meanwhile, and retries until the outcome is known.
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

/// Resolves the result of a compare-swap from `found` to `new`. `took_effect` decides by the
/// current value of the word; if it cannot, the result is that value as an error.
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

/// Swaps a word, which was `found`, for its successor by `frozen`, until there is none. Returns the
/// current word.
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
