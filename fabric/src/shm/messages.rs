//! Messages of shared memory, by the rings of the job segment.

use std::sync::PoisonError;

use onesided_remote_memory::{Fault, FaultKind, Mailbox, Message, Notify, Patience, Port, Rank};

use crate::fabric::check_rank;
use crate::shm::Shm;
use crate::shm::segment_ring::SegmentRing;
use crate::shm::waits::{ShmRecv, ShmSend};

impl Shm {
    /// Drains what has arrived from all peers.
    pub(super) fn drain(&self) -> Result<(), Fault> {
        // Waits for another thread's drain, which may contain messages for this one.
        let mut inbox = self.0.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        for (from, reader) in (0..).map(Rank).zip(inbox.iter_mut()) {
            let ring = SegmentRing::new(self.job_segment(), from, self.me());
            while let Some(port) = reader.peek(&ring) {
                if usize::from(port.0) < Port::COUNT && !self.0.receive_queues.has_room(port) {
                    break;
                }
                let message = reader.take(&ring, from)?;
                self.0.receive_queues.push(port, message).map_err(|_| Fault::of(FaultKind::Protocol, from))?;
            }
        }
        Ok(())
    }
}

impl Mailbox for Shm {
    type Send<'f> = ShmSend<'f>;
    type Recv<'f> = ShmRecv<'f>;

    fn send<'f>(&'f self, to: Rank, port: Port, bytes: &[u8], notify: Notify) -> ShmSend<'f> {
        let message = check_rank(self, to).and_then(|()| {
            if usize::from(port.0) >= Port::COUNT {
                return Err(Fault::new(FaultKind::Protocol).with_detail(u32::from(port.0)));
            }
            Message::new(self.me(), bytes)
        });
        let mut send = ShmSend { shm: self, to, port, notify, message, sent: false, until: None };
        send.try_now();
        send
    }

    fn recv(&self, port: Port, patience: Patience) -> ShmRecv<'_> {
        ShmRecv { shm: self, port, patience }
    }
}
