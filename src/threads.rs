//! Ranks as threads.

use std::sync::{Mutex, PoisonError};

use crate::{Result, World};

/// Runs `ranks` threads, each a rank of one world, and returns their results by rank. Meant for
/// tests, examples and small programs. `ONESIDED_FABRIC` names the fabric; the default is shared
/// memory. [`fabric::threads`](crate::fabric::threads) does so for functions that return something else.
///
/// ```
/// let sums = onesided::threads(4, |world| {
///     world.barrier().wait()?;
///     Ok(world.rank() + world.size())
/// })?;
/// assert_eq!(sums, [4, 5, 6, 7]);
/// # Ok::<(), onesided::Error>(())
/// ```
///
/// # Errors
/// The first error that a rank returned; the others may have failed because that rank left. If no thread
/// was started: [`Error::World`](crate::Error::World), no memory for the job segment, no threads, or what
/// the fabric reports.
///
/// # Panics
/// If a rank panics. The other ranks see it as dead; the panic resumes after all have ended.
pub fn threads<T: Send>(ranks: u32, run: impl Fn(World) -> Result<T> + Sync) -> Result<Vec<T>> {
    let first = Mutex::new(None);
    let all = crate::fabric::threads(ranks, |world| {
        let held = world.clone(); // it has not left before its error is kept
        let outcome = run(world).map_err(|error| {
            first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        });
        drop(held);
        outcome.ok()
    })?;
    match first.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(all.into_iter().flatten().collect()),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Error, Messages, Tag};

    #[test]
    fn the_first_error_is_told_and_not_what_follows_from_it() {
        for first in 0..3 {
            let ended = super::threads(3, |world| {
                let messages = Messages::new(&world).wait()?;
                if world.rank() == first {
                    messages.send(&[1_u8], 7, Tag(0)).wait()?; // there is no such rank
                }
                messages.recv::<u8>(first, Tag(0)).wait()?;
                Ok(())
            });
            let Err(Error::Message(error)) = ended else { panic!("{ended:?}") };
            assert!(error.to_string().contains("rank 7"), "{error}");
        }
    }
}
