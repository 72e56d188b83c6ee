//! The shared mode of the queue lock: a count of readers beside the queue.

use onesided_remote_memory::{Fault, FaultKind, RemoteMemory};

use super::home::Home;
use super::node::clean;
use super::{Queue, Turn};
use crate::recovery::{Suspicion, announce};
use crate::{IntentFn, LockContext, LockUse, Mode};

impl<'m, M: RemoteMemory, P: LockContext<'m, M>> Queue<'m, M, P> {
    /// Waits, as the exclusive owner that is first in the queue, until no reader is left.
    pub(super) async fn readers_gone(
        &self,
        mut pause: impl FnMut() -> u64 + Send,
        mut home: Home,
        intent: IntentFn<'_>,
    ) -> Result<Turn, Fault> {
        let LockUse { memory, context, .. } = self.0;
        let mut suspicion = Suspicion::default();
        loop {
            if !home.has_readers() {
                return Ok(Turn::Mine(Mode::Exclusive));
            }
            suspicion.seen(home.readers());
            if suspicion.suspects(memory, context, home.readers()).await {
                home = self.start_recovery_if(home, None).await?;
            }
            if home.is(Home::RECOVERING) {
                return Ok(Turn::Lost(home));
            }
            if intent().is_over() {
                // The successor waits for the readers as well.
                self.hand_over(home, Mode::Shared, true).await?;
                clean(memory, context)?;
                return Err(Fault::new(FaultKind::Closed));
            }
            memory.pause(self.0.home, pause()).await;
            home = self.0.look().await?;
        }
    }

    /// Adds a reader that is first in the queue to the count, and hands over.
    pub(super) async fn read(&self) -> Result<Turn, Fault> {
        announce(self.0.memory, self.0.context)?;
        let before = self.0.memory.fetch_add(self.0.home, Home::READER).await?;
        self.hand_over(Home(before).joined(), Mode::Shared, false).await?;
        clean(self.0.memory, self.0.context)?;
        Ok(Turn::Mine(Mode::Shared))
    }
}
