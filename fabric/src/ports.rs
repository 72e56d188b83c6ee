//! The messages that have arrived, by port.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use onesided_remote_memory::{Fault, FaultKind, Message, Port};

/// The most messages that wait at one port; a sender then waits as for a full ring.
pub(crate) const PORT_LIMIT: usize = 1 << 16;

/// A queue for each port.
#[derive(Debug, Default)]
pub(crate) struct Ports([PortQueue; Port::COUNT]);

#[derive(Debug, Default)]
struct PortQueue {
    /// The queue's length, for who only asks. Relaxed: whoever may not miss a change has armed its doorbell before it
    /// looks here, or has the lock of those who take messages in.
    len: AtomicUsize,
    queue: Mutex<VecDeque<Message>>,
}

/// The oldest message of a port.
pub(crate) struct Taken {
    pub(crate) message: Message,
    /// Whether the port was full: then messages may be held back that others wait for, and they have to look.
    pub(crate) made_room: bool,
}

impl Ports {
    fn port(&self, port: Port) -> Result<&PortQueue, Fault> {
        self.0.get(usize::from(port.0)).ok_or(Fault::new(FaultKind::Protocol).with_detail(u32::from(port.0)))
    }

    /// Whether a message for this port could be taken in.
    pub(crate) fn has_room(&self, port: Port) -> bool {
        self.port(port).is_ok_and(|queue| queue.len.load(Ordering::Relaxed) < PORT_LIMIT)
    }

    /// Takes a message in.
    pub(crate) fn push(&self, port: Port, message: Message) -> Result<(), Fault> {
        let port = self.port(port)?;
        let mut queue = port.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back(message);
        port.len.store(queue.len(), Ordering::Relaxed);
        Ok(())
    }

    /// Takes the oldest message of a port out.
    pub(crate) fn pop(&self, port: Port) -> Result<Option<Taken>, Fault> {
        let port = self.port(port)?;
        if port.len.load(Ordering::Relaxed) == 0 {
            return Ok(None);
        }
        let mut queue = port.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let made_room = queue.len() >= PORT_LIMIT;
        let message = queue.pop_front();
        port.len.store(queue.len(), Ordering::Relaxed);
        Ok(message.map(|message| Taken { message, made_room }))
    }
}
