//! Small messages: sends into the receiver's shared receive queue.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use onesided_remote_memory::{Fault, FaultKind, Mailbox, Message, Notify, Patience, Port, Rank, RemoteMemory};

use crate::Drive;
use crate::peer_status::PeerStatus;
use crate::receive_queues::Taken;
use crate::verbs::Verbs;
use crate::verbs::queue::WorkRequest;
use crate::verbs::raw::Verb;

/// See [`Mailbox::send`].
#[derive(Debug)]
#[must_use = "nothing is sent before it is awaited"]
pub struct VerbsSend<'f> {
    fabric: &'f Verbs,
    to: Rank,
    port: Port,
    message: Result<Message, Fault>,
    notify: Notify,
    /// The deadline, set when there was no space.
    until: Option<u64>,
}

impl VerbsSend<'_> {
    /// Sends if there is space now.
    fn try_now(&self, message: &Message) -> Result<bool, Fault> {
        let inner = &*self.fabric.0;
        // Messages that arrived may be from other ranks.
        if !inner.has_room(self.to) && (inner.progress() == 0 || !inner.has_room(self.to)) {
            return Ok(false);
        }
        let bytes = message.bytes();
        let taken = inner.take_slot(bytes.len())?;
        taken.buffer.write(bytes);
        let verb = Verb::Send { immediate: u32::from(self.port.0), solicited: self.notify == Notify::Yes };
        let posted = inner.try_post(self.to, WorkRequest::new(verb, &taken, bytes.len()));
        if posted {
            inner.forget(self.to, taken.slot);
        } else {
            inner.buffers.free(taken.slot); // another thread took the space
        }
        Ok(posted)
    }
}

impl Future for VerbsSend<'_> {
    type Output = Result<(), Fault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (fabric, to) = (self.fabric, self.to);
        if fabric.0.is_cutting(to) {
            fabric.0.endpoint.register_waker(cx, u64::MAX); // the end of the cut wakes it
            return Poll::Pending;
        }
        let sent = match &self.message {
            Ok(message) => fabric.ended(Patience::on(to)).and_then(|()| self.try_now(message)),
            Err(fault) => Err(*fault),
        };
        match sent {
            Ok(true) => return Poll::Ready(Ok(())),
            Ok(false) => {}
            Err(fault) => return Poll::Ready(Err(fault)),
        }
        let now = fabric.now();
        let until = *self.until.get_or_insert(now.saturating_add(fabric.0.full_after.nanos()));
        if now >= until {
            return Poll::Ready(Err(Fault::of(FaultKind::Full, to)));
        }
        fabric.0.turn();
        fabric.0.endpoint.register_waker(cx, until);
        Poll::Pending
    }
}

/// See [`Mailbox::recv`].
#[derive(Debug)]
#[must_use = "nothing is received before it is awaited"]
pub struct VerbsRecv<'f> {
    fabric: &'f Verbs,
    port: Port,
    patience: Patience,
}

impl Future for VerbsRecv<'_> {
    type Output = Result<Message, Fault>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let look = || {
            let taken = self.fabric.0.receive_queues.pop(self.port).transpose()?;
            Some(taken.map(|Taken { message, made_room }| {
                if made_room {
                    self.fabric.progress(); // reposts the receives that were held back
                }
                message
            }))
        };
        let look_again = || {
            self.fabric.progress();
            look()
        };
        if let Some(found) = look().or_else(look_again) {
            return Poll::Ready(found);
        }
        if let Err(fault) = self.fabric.wait_on(self.patience) {
            return Poll::Ready(look_again().unwrap_or(Err(fault))); // a message before the end counts
        }
        self.fabric.0.endpoint.register_waker(cx, self.patience.deadline);
        Poll::Pending
    }
}

impl Mailbox for Verbs {
    type Send<'f> = VerbsSend<'f>;
    type Recv<'f> = VerbsRecv<'f>;

    fn send<'f>(&'f self, to: Rank, port: Port, bytes: &[u8], notify: Notify) -> VerbsSend<'f> {
        let checked = || {
            self.0.peer(to)?;
            if usize::from(port.0) >= Port::COUNT {
                return Err(Fault::new(FaultKind::Protocol).with_detail(u32::from(port.0)));
            }
            Message::new(self.rank(), bytes)
        };
        VerbsSend { fabric: self, to, port, message: checked(), notify, until: None }
    }

    fn recv<'f>(&'f self, port: Port, patience: Patience) -> VerbsRecv<'f> {
        VerbsRecv { fabric: self, port, patience }
    }
}
