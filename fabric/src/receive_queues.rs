//! Receive queues: the messages that have arrived, by port.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use onesided_remote_memory::{Fault, FaultKind, Message, Port};

/// The maximum number of messages waiting at one port. A sender then waits as for a full ring.
pub(crate) const PORT_LIMIT: usize = 1 << 16;

/// A receive queue for each port.
#[derive(Debug, Default)]
pub(crate) struct ReceiveQueues([PortQueue; Port::COUNT]);

#[derive(Debug, Default)]
struct PortQueue {
    /// The queue's length, readable without the lock. Relaxed: a reader that must not miss a change
    /// has armed its doorbell before the load, or holds the lock of the drain.
    len: AtomicUsize,
    queue: Mutex<VecDeque<Message>>,
}

/// The oldest message of a port.
pub(crate) struct Taken {
    pub(crate) message: Message,
    /// Whether the port was full. Messages of other ports may have been held back then, and their
    /// receivers have to poll.
    pub(crate) made_room: bool,
}

impl ReceiveQueues {
    fn port(&self, port: Port) -> Result<&PortQueue, Fault> {
        self.0.get(usize::from(port.0)).ok_or(Fault::new(FaultKind::Protocol).with_detail(u32::from(port.0)))
    }

    /// Whether the port can accept a message.
    pub(crate) fn has_room(&self, port: Port) -> bool {
        self.port(port).is_ok_and(|queue| queue.len.load(Ordering::Relaxed) < PORT_LIMIT)
    }

    /// Queues a message.
    pub(crate) fn push(&self, port: Port, message: Message) -> Result<(), Fault> {
        let port = self.port(port)?;
        let mut queue = port.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back(message);
        port.len.store(queue.len(), Ordering::Relaxed);
        Ok(())
    }

    /// Removes the oldest message of a port.
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
