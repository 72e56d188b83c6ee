//! The shared mode of the queue lock: a count of readers beside the queue.

use onesided_remote_memory::{Fault, FaultKind, RemoteMemory};

use super::home::Home;
use super::node::clean;
use super::{Queue, Turn, Waiter};
use crate::recovery::{Boxed, Suspicion, announce};
use crate::{LockContext, Mode};

impl<'m, P: LockContext<'m>> Waiter<'m, '_, P> {
    /// Waits, as the exclusive owner that is first in the queue, until no reader is left.
    pub(super) async fn readers_gone(&mut self, mut home: Home) -> Result<Turn, Fault> {
        let mut suspicion = Suspicion::default();
        loop {
            let lock = &self.queue.0;
            if !home.has_readers() {
                return Ok(Turn::Mine(Mode::Exclusive));
            }
            suspicion.seen(home.readers());
            match suspicion.check(lock, home, home.readers()).await {
                Ok(now) => home = now.unwrap_or(home),
                Err(fault) => return self.queue.pass_on(home, fault).await,
            }
            if home.is(Home::RECOVERING) {
                return Ok(Turn::Lost(home));
            }
            if (self.intent)().is_over() {
                return self.queue.pass_on(home, Fault::new(FaultKind::Closed)).await;
            }
            lock.memory.pause(lock.home, self.pauses.next_nanos()).await;
            home = lock.look().await?;
        }
    }
}

impl<'m, P: LockContext<'m>> Queue<'m, P> {
    /// Ends at the head of the queue: the successor waits for the readers as well.
    fn pass_on(&self, home: Home, why: Fault) -> Boxed<'_, Result<Turn, Fault>> {
        Box::pin(async move {
            self.hand_over(home, Mode::Shared, true).await?;
            clean(self.0.memory, self.0.context)?;
            Err(why)
        })
    }

    /// Adds a reader that is first in the queue to the count, and hands over. Boxed: in the future
    /// of every waiter it would be the largest.
    pub(super) fn read(&self) -> Boxed<'_, Result<Turn, Fault>> {
        Box::pin(async move {
            announce(self.0.memory, self.0.context)?;
            let before = self.0.memory.fetch_add(self.0.home, Home::READER).await?;
            self.hand_over(Home(before).joined(), Mode::Shared, false).await?;
            clean(self.0.memory, self.0.context)?;
            Ok(Turn::Mine(Mode::Shared))
        })
    }
}
