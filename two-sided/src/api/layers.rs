//! Messages without the interface above the engine: for a benchmark of the layers.

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};

use crate::api::destination::Room;
use crate::api::receive::{PostedReceive, Received};
use crate::api::taken::Taken;
use crate::engine::Direct;
use crate::engine::matching::Pattern;
use crate::{Messages, Source};

#[doc(hidden)]
impl<F: Fabric> Messages<F> {
    /// Sends an eager message to a rank of the fabric, without a handle.
    ///
    /// # Errors
    /// `TooLong`.
    #[inline]
    pub fn send_by_engine(&self, to: Rank, bytes: &[u8]) -> Result<(), Fault> {
        let sent = self.progress().send_eager(to, (self.context(), 0), bytes, None);
        if let Some(send) = sent.map_err(|_| Fault::new(FaultKind::TooLong))? {
            self.progress().with(|engine| engine.detach(send)); // it waits for room or credit
        }
        Ok(())
    }

    /// Receives an eager message into a slice that it fits into.
    ///
    /// # Errors
    /// The rank is lost; `TooLong`.
    #[inline]
    pub async fn receive_by_engine(&self, from: Rank, into: &mut [u8]) -> Result<usize, Fault> {
        let (progress, pattern) =
            (self.progress(), Pattern { context: self.context(), source: Some(from.0), tag: Some(0) });
        let wait = || self.wait(Source::Rank(from.0), "a benchmark".into());
        let begun = progress.receive_into(pattern, &mut Direct::into(&mut *into));
        let received = match PostedReceive::begun(progress, pattern, begun) {
            Ok(received) => received,
            Err(mut posted) => posted.landed(Some(&mut *into), |engine| engine.lost(from), wait).await?,
        };
        match received {
            Received::Landed(landed) => Ok(landed.len as usize),
            Received::Held(held) => {
                let received = Taken::new(self, held).receive(&mut Room::of(into)).await;
                received.map(|status| status.bytes as usize).map_err(|_| Fault::new(FaultKind::TooLong))
            }
        }
    }
}
