//! A table that only grows, so that references into it stay valid.

use std::sync::OnceLock;

/// Values by number, each made once and kept. The buckets double in size and never move.
#[derive(Debug)]
pub(crate) struct OnceTable<T> {
    buckets: [OnceLock<Box<[OnceLock<T>]>>; 32],
}

impl<T> Default for OnceTable<T> {
    fn default() -> Self {
        Self { buckets: [const { OnceLock::new() }; 32] }
    }
}

impl<T> OnceTable<T> {
    /// The value of a number, made now if it is missing. Of several concurrent makers, one value
    /// stays.
    pub(crate) fn get_or_try_init<E>(&self, number: u32, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        // Number n lies in bucket log2(n + 1), which has 2^bucket slots.
        let position = u64::from(number) + 1;
        let bucket = position.ilog2().min(31);
        let size = 1_u64 << bucket;
        let slot = (position - size) as usize;
        let bucket = &self.buckets[bucket as usize];
        if let Some(value) = bucket.get().and_then(|slots| slots.get(slot)?.get()) {
            return Ok(value);
        }
        // Made before its bucket is allocated: a failure must not cost a bucket.
        let value = make()?;
        let slots = bucket.get_or_init(|| (0..size.max(position - size + 1)).map(|_| OnceLock::new()).collect());
        Ok(slots[slot].get_or_init(|| value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_was_made_first() {
        let table = OnceTable::default();
        for number in (0..70).chain([1000, 100_000]) {
            assert_eq!(table.get_or_try_init(number, || Ok::<_, ()>(number)), Ok(&number));
            assert_eq!(table.get_or_try_init(number, || Ok::<_, ()>(0)), Ok(&number));
        }
        assert_eq!(table.get_or_try_init(3000, || Err(())), Err(()));
        assert_eq!(table.get_or_try_init(u32::MAX, || Err(())), Err(()));
        assert_eq!(table.get_or_try_init(3000, || Ok::<_, ()>(1)), Ok(&1));
    }
}
