//! Signals to memory that has no words here, and the wait for them.
//!
//! The element is put as any other, by a copy of the kernel where that is the way: such a copy is bytes. So its owner looks at
//! it only between signals: each origin counts those that it has begun and those that are done, in words of the owner's hidden
//! region, and who finds as many begun after its look as were done before it has seen no half of one.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use fabric::Fabric;
use fabric::remote_memory::{Fault, FaultKind, Notify, Patience};

use super::Layout;
use crate::window::{Inner, Target};

/// What a wait has seen.
type Told = Arc<Mutex<Option<Result<u64, Fault>>>>;

impl<F: Fabric> Inner<F> {
    /// Puts a word of a part that has none here, and wakes its owner. Memory without words is reached by operations that are
    /// done when they return.
    pub(crate) fn signal_wordless(&self, target: &Target<F>, offset: u64, value: u64) -> Result<(), Fault> {
        let (fabric, layout, me) = (self.fabric(), Layout::new(self.world.size()), self.world.rank());
        let word = |at| fabric.word_in(&target.locks, at);
        let (begun, done, rung) = (word(layout.begun(me))?, word(layout.done(me))?, word(layout.rung(me))?);
        drop(fabric.fetch_add(begun, 1));
        drop(fabric.flush(target.fabric_rank())); // before any byte of it
        let put = fabric.put(&target.data, offset, &value.to_ne_bytes());
        target.count(fabric.path(&target.data));
        // Of release order; also if it failed, so that nobody waits for what will not come.
        drop(fabric.fetch_add(done, 1));
        drop(fabric.write(rung, 1, Notify::Yes));
        put
    }

    /// Waits until a word of one's own part, which has none, is what the predicate asks for.
    pub(crate) async fn wait_wordless<'f>(
        &'f self,
        offset: u64,
        predicate: impl Fn(u64) -> bool + Send + Unpin + 'f,
        patience: Option<Patience>,
    ) -> Result<u64, Fault> {
        self.wait_seeing(move || self.between_signals(offset), predicate, patience).await
    }

    /// The same of a word that peers reach by a card, and that no reference of this rank's may point to, because the memory
    /// can be given back.
    pub(crate) async fn wait_lent<'f>(
        &'f self,
        offset: u64,
        predicate: impl Fn(u64) -> bool + Send + Unpin + 'f,
        patience: Option<Patience>,
    ) -> Result<u64, Fault> {
        let look = move || {
            let mut word = [0; 8];
            self.fabric().read_own(&self.own, offset, &mut word)?; // in one piece: the card writes it so
            fence(Ordering::Acquire);
            Ok(Some(u64::from_ne_bytes(word)))
        };
        self.wait_seeing(look, predicate, patience).await
    }

    /// Waits until a look at memory sees what the predicate asks for.
    async fn wait_seeing<'f>(
        &'f self,
        look: impl Fn() -> Result<Option<u64>, Fault> + Send + Unpin + 'f,
        predicate: impl Fn(u64) -> bool + Send + Unpin + 'f,
        patience: Option<Patience>,
    ) -> Result<u64, Fault> {
        let (fabric, told) = (self.fabric(), Told::default());
        let tell = Arc::clone(&told);
        // A signal rings the doorbell, and whatever rings it has every wait looked at.
        let look = move |_| match look() {
            Ok(Some(word)) if !predicate(word) => false,
            Ok(None) => false,
            seen => {
                *tell.lock().unwrap_or_else(PoisonError::into_inner) = seen.transpose();
                true
            }
        };
        let own = fabric.word_in(&self.own_locks, Layout::new(self.world.size()).closed())?;
        match patience {
            Some(patience) => fabric.wait_until(own, look, patience).await?,
            None => self.world.wait_until(own, look).await?,
        };
        let told = told.lock().unwrap_or_else(PoisonError::into_inner).take();
        told.unwrap_or(Err(Fault::new(FaultKind::Unknown)))
    }

    /// One's own word, if no signal may have been in the middle of it.
    fn between_signals(&self, offset: u64) -> Result<Option<u64>, Fault> {
        let (fabric, layout) = (self.fabric(), Layout::new(self.world.size()));
        // Nobody waits for a signal that its origin has not lived to give.
        let sum = |at: fn(Layout, u32) -> u64| {
            let mut sum = 0_u64;
            for origin in (0..self.world.size()).filter(|origin| self.world.is_alive(*origin)) {
                sum = sum.wrapping_add(fabric.load(fabric.word_in(&self.own_locks, at(layout, origin))?)?);
            }
            Ok::<_, Fault>(sum)
        };
        let done = sum(Layout::done)?; // of acquire order
        let mut word = [0; 8];
        fabric.read_own(&self.own, offset, &mut word)?;
        drop(fabric.flush(fabric.rank())); // before the next look
        // No origin has begun fewer than it has done, so the sums are the same only if all are.
        Ok((sum(Layout::begun)? == done).then_some(u64::from_ne_bytes(word)))
    }
}
