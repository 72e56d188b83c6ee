//! Messages of shared memory, by the rings of the job segment.

use std::sync::PoisonError;

use onesided_remote_memory::{Fault, FaultKind, Mailbox, Message, Notify, Patience, Port, Rank};

use crate::fabric::check_rank;
use crate::shm::Shm;
use crate::shm::board_ring::BoardRing;
use crate::shm::waits::{ShmRecv, ShmSend};

impl Shm {
    /// Takes in what has arrived from all peers.
    pub(super) fn take_in(&self) -> Result<(), Fault> {
        // Waits for another thread that is at it: what that one takes in may be for us.
        let mut inbox = self.0.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        for (from, reader) in (0..).map(Rank).zip(inbox.iter_mut()) {
            let ring = BoardRing::new(self.board(), from, self.me());
            while let Some(port) = reader.peek(&ring) {
                if usize::from(port.0) < Port::COUNT && !self.0.ports.has_room(port) {
                    break;
                }
                let message = reader.take(&ring, from)?;
                self.0.ports.push(port, message).map_err(|_| Fault::of(FaultKind::Protocol, from))?;
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
