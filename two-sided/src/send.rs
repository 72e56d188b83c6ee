//! The handle of a send.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank, RegionId};
use onesided_fabric::{Call, Drive, Fabric, Limit, Segment, SegmentKey, Wait, limited};
use onesided_layouts::{Cursor, Shape};

use crate::engine::{Direct, Engine, Listed, QUEUED_MAX, TooLong};
use crate::offered::OfferedSlice;
use crate::progress::{Progress, Registered};
use crate::rules::Way;
use crate::shaped::{self, CHUNK};
use crate::wire::By;
use crate::{Error, Messages, Source, Tag};

/// A send that is under way. See [`Messages::send`].
#[must_use = "the failure of a send is reported by its handle alone"]
pub struct SendRequest<'m, F: Fabric> {
    messages: &'m Messages<F>,
    limit: Limit<'m, F>,
    what: What,
    /// The send, if the engine has it.
    send: Option<u32>,
    call: Call<'m, Started<'m, F>, Result<(), Error>>,
}

/// The send as errors tell of it.
#[derive(Clone, Copy)]
pub(crate) struct What {
    pub(crate) to: u32,
    pub(crate) tag: Tag,
    pub(crate) bytes: u64,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { to, tag, bytes } = self;
        write!(f, "a send of {bytes} bytes with {tag} to rank {to}")
    }
}

impl What {
    const fn failed(self, fault: Fault) -> Error {
        let Self { to, tag, bytes } = self;
        Error::Send { to, tag, bytes, fault, has_left: None }
    }
}

/// A send that the engine has, until this is dropped.
pub(crate) struct Pending<'m, F: Fabric> {
    progress: &'m Progress<F>,
    to: Rank,
    send: u32,
    /// Boxed, to keep the handle small.
    offered: Option<Box<OfferedSlice<'m, F>>>,
}

/// A slice that is offered, and where its copy is if it is read there.
type Offered<'m, F> = (OfferedSlice<'m, F>, Option<Registered<F>>);

/// `None`: the message is on its way. The error is boxed, to keep the handle small.
pub(crate) type Started<'m, F> = Result<Option<Pending<'m, F>>, Box<Error>>;

impl<F: Fabric> Drop for Pending<'_, F> {
    fn drop(&mut self) {
        self.withdraw();
        self.progress.with(|engine| engine.detach(self.send as usize));
    }
}

impl<F: Fabric> Pending<'_, F> {
    /// Waits until the message is on its way or was read. `failed` as of [`Progress::until`].
    pub(crate) async fn sent<E: From<Fault>>(
        mut self,
        failed: impl Fn(&Engine<Registered<F>>) -> Option<E>,
        wait: impl Fn() -> Wait,
    ) -> Result<(), E> {
        let (progress, send) = (self.progress, self.send as usize);
        let mut sent = pin!(progress.until(
            self.to,
            Direct::none(),
            |engine, _, waker| Some(engine.sent(send, waker)?.map_err(E::from)),
            |engine| failed(engine).map(Err),
            || Some(wait()),
        ));
        let sent = poll_fn(|cx| {
            if self.offered.as_ref().is_some_and(|slice| slice.help(&progress.fabric).is_err()) {
                self.withdraw();
            }
            sent.as_mut().poll(cx)
        })
        .await;
        if let (Ok(()), Some(slice)) = (&sent, &self.offered) {
            slice.learn(progress);
        }
        sent
    }

    /// Gives the slice back. The message goes on.
    fn withdraw(&mut self) {
        if let Some(copy) = self.offered.take().and_then(|slice| slice.withdraw(self.progress)) {
            self.progress.with(|engine| engine.moved(self.send as usize, copy));
        }
    }
}

impl<'m, F: Fabric> SendRequest<'m, F> {
    #[inline]
    pub(crate) fn start(messages: &'m Messages<F>, bytes: &'m [u8], (to, tag): (u32, Tag), synchronous: bool) -> Self {
        let what = What { to, tag, bytes: bytes.len() as u64 };
        Self::begun(messages, what, Self::post(messages, messages.context(), bytes, (what, synchronous)))
    }

    /// Starts a send to a rank that was looked up before.
    #[inline]
    pub(crate) fn start_to(messages: &'m Messages<F>, rank: Rank, bytes: &'m [u8], (to, tag): (u32, Tag)) -> Self {
        let what = What { to, tag, bytes: bytes.len() as u64 };
        Self::begun(messages, what, Self::post_to(messages, (messages.context(), rank), bytes, (what, false)))
    }

    /// The handle, made in its place where the message is on its way: a move would wait for the
    /// stores of its parts.
    #[inline]
    fn begun(messages: &'m Messages<F>, what: What, started: Started<'m, F>) -> Self {
        match started {
            Ok(None) => Self::started(messages, what, Ok(None)),
            started => Self::started(messages, what, started),
        }
    }

    /// Starts sends in their order: eager ones next to one another with one lock.
    pub(crate) fn start_all(messages: &'m Messages<F>, all: &[Listed<'m>]) -> Vec<Self> {
        let (progress, context) = (messages.progress(), messages.context());
        let mut requests = Vec::with_capacity(all.len());
        while requests.len() < all.len() {
            let rank_of = |rank| messages.world().fabric_rank(rank);
            progress.send_eager_all(context, &all[requests.len()..], rank_of, |rank, send| {
                let (bytes, to, tag) = all[requests.len()];
                let pending = send.map(|send| Pending { progress, to: rank, send: send as u32, offered: None });
                requests.push(Self::started(messages, What { to, tag, bytes: bytes.len() as u64 }, Ok(pending)));
            });
            if let Some((bytes, to, tag)) = all.get(requests.len()) {
                requests.push(Self::start(messages, bytes, (*to, *tag), false));
            }
        }
        requests
    }

    #[inline]
    fn started(messages: &'m Messages<F>, what: What, started: Started<'m, F>) -> Self {
        let send = started.as_ref().ok().and_then(|started| Some(started.as_ref()?.send));
        Self { messages, limit: Limit::NONE, what, send, call: Call::NotStarted(started) }
    }

    /// The error of the deadline.
    #[cold]
    fn late(&self) -> Error {
        let What { to, tag, bytes } = self.what;
        let progress = self.messages.progress();
        let has_left = self.send.map(|send| progress.with(|engine| engine.has_left(send as usize)));
        Error::Send { to, tag, bytes, fault: Fault::new(FaultKind::TimedOut), has_left }
    }

    /// Sends the elements of a shape in memory. They are packed at once.
    pub(crate) fn start_shaped(
        messages: &'m Messages<F>,
        (memory, element): (&[u8], usize),
        shape: Shape<'_>,
        (to, tag): (u32, Tag),
        synchronous: bool,
    ) -> Self {
        let what = What { to, tag, bytes: shaped::bytes(shape, element) as u64 };
        let started = shaped::cursor("send_shaped", shape, (element, memory.len()))
            .and_then(|cursor| Self::post_packed(messages, (cursor, memory), what, synchronous));
        Self::started(messages, what, started)
    }

    /// Sends the first bytes of registered memory. A message to this rank itself is copied, as its
    /// send is over at once.
    pub(crate) fn start_registered(
        messages: &'m Messages<F>,
        memory: &Registered<F>,
        (bytes, to, tag): (u64, u32, Tag),
    ) -> Self {
        let what = What { to, tag, bytes };
        Self::started(messages, what, Self::post_registered(messages, memory, what))
    }

    fn post_registered(messages: &'m Messages<F>, memory: &Registered<F>, what: What) -> Started<'m, F> {
        let to = messages.rank("send", what.to)?;
        let read = |bytes: &mut [u8]| memory.read(messages.progress(), 0, bytes);
        if let Some(started) = Self::eager_by(messages, (what, to), read) {
            return started;
        }
        Self::announce(messages, messages.context(), (what, to), false, |progress| {
            if to != progress.fabric.rank() {
                return Ok((Arc::clone(memory), None));
            }
            let copy = messages.memory_for(Some(to), what.bytes)?;
            progress.copy_own(memory, &copy, what.bytes)?;
            Ok((copy, None))
        })
    }

    /// Starts a send in a context of the communicator.
    #[inline]
    pub(crate) fn post(
        messages: &'m Messages<F>,
        context: u32,
        bytes: &'m [u8],
        (what, synchronous): (What, bool),
    ) -> Started<'m, F> {
        let to = messages.rank("send", what.to)?;
        Self::post_to(messages, (context, to), bytes, (what, synchronous))
    }

    #[inline]
    fn post_to(
        messages: &'m Messages<F>,
        (context, to): (u32, Rank),
        bytes: &'m [u8],
        (what, synchronous): (What, bool),
    ) -> Started<'m, F> {
        if !synchronous
            && bytes.len() <= messages.progress().rules.eager()
            && let Ok(started) = Self::eager(messages, context, bytes, (what, to))
        {
            return Ok(started);
        }
        Self::announce_slice(messages, context, bytes, (what, to), synchronous)
    }

    fn announce_slice(
        messages: &'m Messages<F>,
        context: u32,
        bytes: &'m [u8],
        (what, to): (What, Rank),
        synchronous: bool,
    ) -> Started<'m, F> {
        Self::announce(messages, context, (what, to), synchronous, |progress| {
            let offered = match messages.way(to, bytes.len()) {
                Some(Way::Copy) => None,
                Some(Way::Slice) => OfferedSlice::publish(progress, bytes, to).ok().map(|slice| (slice, None)),
                None => OfferedSlice::publish_try(progress, bytes, to).ok(),
            };
            if let Some(offered) = offered {
                return Ok((offered.0.memory(), Some(offered)));
            }
            let memory = messages.memory_for(Some(to), what.bytes)?;
            memory.write(progress, 0, bytes)?;
            Ok((memory, None))
        })
    }

    /// A message for a packet is packed into a vector, a longer one into registered memory.
    fn post_packed(
        messages: &'m Messages<F>,
        (mut cursor, memory): (Cursor<'_>, &[u8]),
        what: What,
        synchronous: bool,
    ) -> Started<'m, F> {
        let to = messages.rank("send", what.to)?;
        let pack = |bytes: &mut [u8]| {
            cursor.pack(memory, bytes);
            Ok(())
        };
        if !synchronous && let Some(started) = Self::eager_by(messages, (what, to), pack) {
            return started;
        }
        Self::announce(messages, messages.context(), (what, to), synchronous, |progress| {
            let (copy, mut chunk) = (messages.memory_for(Some(to), what.bytes)?, [0; CHUNK]);
            for at in (0..what.bytes).step_by(CHUNK) {
                let packed = cursor.pack(memory, &mut chunk);
                copy.write(progress, at, &chunk[..packed])?;
            }
            Ok((copy, None))
        })
    }

    /// Sends what `write` writes, if it fits a packet that may wait.
    fn eager_by(
        messages: &'m Messages<F>,
        (what, to): (What, Rank),
        write: impl FnOnce(&mut [u8]) -> Result<(), Fault>,
    ) -> Option<Started<'m, F>> {
        let len =
            usize::try_from(what.bytes).ok().filter(|len| *len <= messages.progress().eager_max(to).min(QUEUED_MAX))?;
        let mut bytes = vec![0; len];
        if let Err(fault) = write(&mut bytes) {
            return Some(Err(Box::new(what.failed(fault))));
        }
        match Self::eager(messages, messages.context(), &bytes, (what, to)) {
            Ok(sent) => Some(Ok(sent)),
            Err(TooLong) => unreachable!("it may wait"),
        }
    }

    /// `Ok(None)`: the message is on its way.
    #[inline]
    fn eager(
        messages: &'m Messages<F>,
        context: u32,
        bytes: &[u8],
        (what, to): (What, Rank),
    ) -> Result<Option<Pending<'m, F>>, TooLong> {
        let progress = messages.progress();
        let send = progress.send_eager(to, (context, what.tag.0), bytes)?;
        Ok(send.map(|send| Pending { progress, to, send: send as u32, offered: None }))
    }

    /// Announces what `publish` returns, to be moved when there is a receive: memory with a copy of the
    /// message, or where its slice is.
    fn announce(
        messages: &'m Messages<F>,
        context: u32,
        (what, to): (What, Rank),
        synchronous: bool,
        publish: impl FnOnce(&'m Progress<F>) -> Result<(Registered<F>, Option<Offered<'m, F>>), Fault>,
    ) -> Started<'m, F> {
        let (progress, envelope) = (messages.progress(), (context, what.tag.0));
        let announce = || {
            let (memory, mut offered) = publish(progress)?;
            let by = match offered {
                Some(_) => By::Offered,
                None => messages.moved_by(to, &memory),
            };
            let key = match by {
                By::Pipeline | By::Copy => {
                    SegmentKey { rank: progress.fabric.rank(), region: RegionId(0), len: 0, address: 0, rkey: 0 }
                }
                By::Read | By::Offered | By::Write => memory.segment().key(),
            };
            let key = SegmentKey { len: what.bytes, ..key };
            let send = progress.with(|engine| {
                let send = engine.send_rendezvous(to, envelope, (key, by), Arc::clone(&memory));
                if synchronous {
                    engine.make_synchronous(send);
                }
                if let Some((_, copy @ Some(_))) = &mut offered {
                    engine.moved(send, copy.take());
                }
                send
            });
            if by == By::Pipeline {
                memory.prepare(progress, 0); // while the receiver does
            }
            Ok(Some(Pending { progress, to, send: send as u32, offered: offered.map(|(slice, _)| Box::new(slice)) }))
        };
        announce().map_err(|fault| Box::new(what.failed(messages.world().translate(fault))))
    }

    /// Sets a deadline, counted from the next wait or poll. The message may be received after it.
    pub const fn deadline(mut self, after: Duration) -> Self {
        self.limit.said = Some(after);
        self
    }

    async fn run(messages: &'m Messages<F>, what: What, started: Started<'m, F>) -> Result<(), Error> {
        let Some(pending) = started.map_err(|error| *error)? else { return Ok(()) };
        let wait = || messages.wait(Source::Rank(what.to), what.to_string());
        let sent: Result<(), Fault> = pending.sent(|_| None, wait).await;
        sent.map_err(|fault| what.failed(messages.world().translate(fault)))
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
        if let Call::NotStarted(Ok(None)) = self.call {
            std::mem::forget(self); // as in `RecvInto::wait`
            return Ok(());
        }
        self.block()
    }

    /// The first sends whose messages are on their way.
    fn wait_first(sends: &mut Vec<Self>) -> Vec<Result<(), Error>> {
        let count = sends.iter().take_while(|send| matches!(send.call, Call::NotStarted(Ok(None)))).count();
        sends.drain(..count).map(|_| Ok(())).collect()
    }
}

limited! {
    ['m, F], SendRequest<'m, F>, (), Error, |send| send.messages.world().fabric(),
    |started| Self::run(send.messages, send.what, started), late send.late(), first Self::wait_first
}

impl<F: Fabric> fmt::Debug for SendRequest<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {:?}", self.what, self.call)
    }
}
