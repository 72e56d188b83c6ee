//! The handle of a send.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};
use onesided_fabric::{Call, Drive, Fabric, Limit, Segment, SegmentKey, limited};

use crate::engine::Direct;
use crate::offered::OfferedSlice;
use crate::progress::{Progress, TooLong};
use crate::{Error, Messages, Tag};

/// A send that is under way. See [`Messages::send`].
#[must_use = "the failure of a send is reported by its handle alone"]
pub struct SendRequest<'m, F: Fabric> {
    messages: &'m Messages<F>,
    limit: Limit<'m, F>,
    what: What,
    call: Call<'m, Started<'m, F>, Result<(), Error>>,
}

/// The send as errors tell of it.
#[derive(Clone, Copy)]
struct What {
    to: u32,
    tag: Tag,
    bytes: u64,
}

impl What {
    const fn failed(self, fault: Fault) -> Error {
        let Self { to, tag, bytes } = self;
        Error::Send { to, tag, bytes, fault }
    }
}

/// A send that the engine has, until this is dropped.
struct Pending<'m, F: Fabric> {
    progress: &'m Progress<F>,
    to: Rank,
    send: usize,
    offered: Option<OfferedSlice<'m, F>>,
}

/// `None`: the message is on its way. The error is boxed, to keep the handle small.
type Started<'m, F> = Result<Option<Pending<'m, F>>, Box<Error>>;

impl<F: Fabric> Drop for Pending<'_, F> {
    fn drop(&mut self) {
        self.withdraw();
        self.progress.with(|engine| engine.detach(self.send));
    }
}

impl<F: Fabric> Pending<'_, F> {
    /// Gives the slice back. The message goes on.
    fn withdraw(&mut self) {
        if let Some(copy) = self.offered.take().and_then(|slice| slice.withdraw(self.progress)) {
            self.progress.with(|engine| engine.moved(self.send, copy));
        }
    }
}

impl<'m, F: Fabric> SendRequest<'m, F> {
    pub(crate) fn start(messages: &'m Messages<F>, bytes: &'m [u8], (to, tag): (u32, Tag), synchronous: bool) -> Self {
        let what = What { to, tag, bytes: bytes.len() as u64 };
        let call = Call::NotStarted(Self::post(messages, bytes, what, synchronous));
        Self { messages, limit: Limit::NONE, what, call }
    }

    fn post(messages: &'m Messages<F>, bytes: &'m [u8], what: What, synchronous: bool) -> Started<'m, F> {
        let (progress, context, tag) = (messages.progress(), messages.context(), what.tag.0);
        let to = messages.rank("send", what.to)?;
        let eager = if synchronous { Err(TooLong) } else { progress.send_eager(to, (context, tag), bytes) };
        match eager {
            Ok(send) => Ok(send.map(|send| Pending { progress, to, send, offered: None })),
            Err(TooLong) => Self::announce(messages, bytes, what, to, synchronous).map(Some),
        }
    }

    /// Announces the slice, or a copy of it in registered memory, to be read by the receiver.
    fn announce(
        messages: &'m Messages<F>,
        bytes: &'m [u8],
        what: What,
        to: Rank,
        synchronous: bool,
    ) -> Result<Pending<'m, F>, Box<Error>> {
        let (progress, envelope) = (messages.progress(), (messages.context(), what.tag.0));
        let announce = || {
            let is_offered = messages.is_offered(to, bytes.len());
            let (offered, (memory, key)) = match is_offered {
                true => {
                    let slice = OfferedSlice::publish(progress, bytes, to)?;
                    let announcement = slice.announcement();
                    (Some(slice), announcement)
                }
                false => {
                    let memory = progress.memory(what.bytes)?;
                    progress.fabric.write_own(&memory, 0, bytes)?;
                    let key = SegmentKey { len: what.bytes, ..memory.key() };
                    (None, (memory, key))
                }
            };
            let send = progress.with(|engine| {
                let send = engine.send_rendezvous(to, envelope, (key, is_offered), memory);
                if synchronous {
                    engine.make_synchronous(send);
                }
                send
            });
            Ok(Pending { progress, to, send, offered })
        };
        announce().map_err(|fault| Box::new(what.failed(messages.world().translate(fault))))
    }

    /// Sets a deadline, counted from the next wait or poll. The message may be received after it.
    pub const fn deadline(mut self, after: Duration) -> Self {
        self.limit.said = Some(after);
        self
    }

    async fn run(messages: &'m Messages<F>, what: What, started: Started<'m, F>) -> Result<(), Error> {
        let Some(mut pending) = started.map_err(|error| *error)? else { return Ok(()) };
        let (progress, send) = (pending.progress, pending.send);
        let mut sent =
            pin!(progress.until(pending.to, Direct::none(), |engine, _, waker| engine.sent(send, waker), |_| None,));
        let sent = poll_fn(|cx| {
            if pending.offered.as_ref().is_some_and(|slice| slice.help(&progress.fabric).is_err()) {
                pending.withdraw();
            }
            sent.as_mut().poll(cx)
        });
        sent.await.map_err(|fault| what.failed(messages.world().translate(fault)))
    }
}

impl<F: Fabric> SendRequest<'_, F> {
    /// Blocks until the message is on its way, or was read if it is longer than a packet.
    ///
    /// # Errors
    /// As of [`Messages::send`].
    #[inline]
    pub fn wait(self) -> Result<(), Error>
    where
        F: Drive,
    {
        match self.call {
            Call::NotStarted(Ok(None)) => Ok(()),
            _ => self.block(),
        }
    }
}

limited! {
    ['m, F], SendRequest<'m, F>, (), Error, |send| send.messages.world().fabric(),
    |started| Self::run(send.messages, send.what, started), late send.what.failed(Fault::new(FaultKind::TimedOut))
}

impl<F: Fabric> fmt::Debug for SendRequest<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let What { to, tag, bytes } = self.what;
        write!(f, "send of {bytes} bytes with {tag} to rank {to}, {:?}", self.call)
    }
}
