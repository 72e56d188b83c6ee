//! Small messages: sends into the shared receive queue of their receiver.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use remote_memory::{Fault, FaultKind, Mailbox, Message, Notify, Patience, Port, Rank, RemoteMemory};

use crate::Drive;
use crate::ends::Ends;
use crate::ports::Taken;
use crate::verbs::Verbs;
use crate::verbs::queue::Order;
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
}

impl Future for VerbsSend<'_> {
    type Output = Result<(), Fault>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { fabric, to, port, notify, .. } = *self;
        let message = match &self.message {
            Ok(message) => message,
            Err(fault) => return Poll::Ready(Err(*fault)),
        };
        if let Err(fault) = fabric.ended(Patience::on(to)) {
            return Poll::Ready(Err(fault));
        }
        // What came may have come from others.
        if !fabric.0.has_room(to) && (fabric.progress() == 0 || !fabric.0.has_room(to)) {
            fabric.0.endpoint.pend(cx, u64::MAX);
            return Poll::Pending;
        }
        let bytes = message.bytes();
        Poll::Ready(fabric.0.take_slot(bytes.len()).map(|room| {
            room.piece.write(bytes);
            let verb = Verb::Send { immediate: u32::from(port.0), solicited: notify == Notify::Yes };
            fabric.0.post_and_forget(to, Order::new(verb, &room, bytes.len()));
        }))
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
            let taken = self.fabric.0.ports.pop(self.port).transpose()?;
            Some(taken.map(|Taken { message, made_room }| {
                if made_room {
                    self.fabric.progress(); // posts the receives that were held back
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
            return Poll::Ready(look_again().unwrap_or(Err(fault))); // what came before the end counts
        }
        self.fabric.0.endpoint.pend(cx, self.patience.deadline);
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
        VerbsSend { fabric: self, to, port, message: checked(), notify }
    }

    fn recv<'f>(&'f self, port: Port, patience: Patience) -> VerbsRecv<'f> {
        VerbsRecv { fabric: self, port, patience }
    }
}
