//! The handle of a send.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank, RegionId};
use onesided_fabric::{Call, Drive, Fabric, Limit, Segment, SegmentKey, Wait, limited};
use onesided_layouts::Cursor;

use crate::engine::{Direct, Engine, Listed, QUEUED_MAX};
use crate::offered::OfferedSlice;
use crate::progress::{Progress, Registered};
use crate::rules::Choice;
use crate::shaped::CHUNK;
use crate::{Error, Messages, Protocol, Source, Tag};

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

/// What a send takes its message from.
pub(crate) enum Content<'m, 'c, F: Fabric> {
    Slice(&'m [u8]),
    /// The elements of a shape in memory, which are packed at once.
    Shape(Cursor<'c>, &'c [u8]),
    /// The first bytes of it.
    Registered(&'c Registered<F>),
}

impl<'m, F: Fabric> Content<'m, '_, F> {
    /// Copies the next bytes, which are those from an offset on.
    fn read(&mut self, progress: &Progress<F>, at: u64, into: &mut [u8]) -> Result<(), Fault> {
        match self {
            Self::Slice(bytes) => into.copy_from_slice(&bytes[at as usize..][..into.len()]),
            Self::Shape(cursor, memory) => _ = cursor.pack(memory, into),
            Self::Registered(memory) => return memory.read(progress, at, into),
        }
        Ok(())
    }

    /// Offers a slice, if it is to be.
    fn offer(&self, progress: &'m Progress<F>, to: Rank, choice: &Choice) -> Option<Offered<'m, F>> {
        let Self::Slice(bytes) = self else { return None };
        let len = bytes.len() as u64;
        match choice.protocol(len) {
            Protocol::Offered if choice.is_tried(len) => OfferedSlice::publish_try(progress, bytes, to).ok(),
            Protocol::Offered => OfferedSlice::publish(progress, bytes, to).ok().map(|slice| (slice, None)),
            _ => None,
        }
    }

    /// Memory with the message, and how it moves from there. A message to this rank itself is copied, as
    /// its send is over at once.
    fn register(
        mut self,
        messages: &Messages<F>,
        to: Rank,
        (bytes, by): (u64, Protocol),
    ) -> Result<(Registered<F>, Protocol), Fault> {
        let progress = messages.progress();
        let is_own = to == progress.fabric.rank();
        let memory = match self {
            Self::Registered(memory) if !is_own => Arc::clone(memory),
            _ => messages.memory_for(by, bytes)?,
        };
        match &mut self {
            Self::Registered(from) if is_own => progress.copy_own(from, &memory, bytes)?,
            Self::Registered(_) => {}
            Self::Slice(bytes) => memory.write(progress, 0, bytes)?,
            Self::Shape(cursor, from) => {
                let mut chunk = [0; CHUNK];
                for at in (0..bytes).step_by(CHUNK) {
                    let packed = cursor.pack(from, &mut chunk);
                    memory.write(progress, at, &chunk[..packed])?;
                }
            }
        }
        let by = match by {
            _ if memory.is_plain() => Protocol::Copy,
            _ if !memory.is_whole() && !is_own => Protocol::Pipeline,
            by => by,
        };
        Ok((memory, by))
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
    /// Starts a send of what is to go to a rank of the fabric, or says why there is none.
    #[inline]
    pub(crate) fn start(
        messages: &'m Messages<F>,
        what: What,
        content: Result<(Rank, Content<'m, '_, F>), Box<Error>>,
        synchronous: bool,
    ) -> Self {
        let started = content
            .and_then(|(to, content)| Self::post(messages, (messages.context(), to), content, (what, synchronous)));
        Self::begun(messages, what, started)
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
        let what = |bytes: &[u8], to, tag| What { to, tag, bytes: bytes.len() as u64 };
        let mut requests = Vec::with_capacity(all.len());
        while requests.len() < all.len() {
            let rank_of = |rank| messages.world().fabric_rank(rank);
            progress.send_eager_all(context, &all[requests.len()..], rank_of, |rank, send| {
                let (bytes, to, tag) = all[requests.len()];
                let pending = send.map(|send| Pending { progress, to: rank, send: send as u32, offered: None });
                requests.push(Self::started(messages, what(bytes, to, tag), Ok(pending)));
            });
            if let Some((bytes, to, tag)) = all.get(requests.len()) {
                requests.push(Self::start(messages, what(bytes, *to, *tag), messages.slice(*to, bytes), false));
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

    /// Starts a send in a context of the communicator.
    #[inline]
    pub(crate) fn post(
        messages: &'m Messages<F>,
        (context, to): (u32, Rank),
        mut content: Content<'m, '_, F>,
        (what, synchronous): (What, bool),
    ) -> Started<'m, F> {
        if !synchronous
            && what.bytes <= messages.progress().rules.eager() as u64
            && let Some(started) = Self::eager(messages, (context, to), &mut content, what)
        {
            return started;
        }
        Self::announce(messages, (context, to), content, (what, synchronous))
    }

    /// Sends the message as a packet, if it fits one that can leave now or may wait.
    #[inline]
    fn eager(
        messages: &'m Messages<F>,
        (context, to): (u32, Rank),
        content: &mut Content<'_, '_, F>,
        what: What,
    ) -> Option<Started<'m, F>> {
        let progress = messages.progress();
        let sent = match content {
            Content::Slice(bytes) => progress.send_eager(to, (context, what.tag.0), bytes),
            packed => {
                let most = progress.eager_max(to).min(QUEUED_MAX); // it may wait, as it is packed once
                let mut bytes = vec![0; usize::try_from(what.bytes).ok().filter(|len| *len <= most)?];
                if let Err(fault) = packed.read(progress, 0, &mut bytes) {
                    return Some(Err(Box::new(what.failed(fault))));
                }
                progress.send_eager(to, (context, what.tag.0), &bytes)
            }
        };
        let send = sent.ok()?;
        Some(Ok(send.map(|send| Pending { progress, to, send: send as u32, offered: None })))
    }

    /// Announces the message, to be moved when there is a receive: its slice, or memory that has it.
    fn announce(
        messages: &'m Messages<F>,
        (context, to): (u32, Rank),
        content: Content<'m, '_, F>,
        (what, synchronous): (What, bool),
    ) -> Started<'m, F> {
        let (progress, choice) = (messages.progress(), messages.choose(to));
        let announce = || {
            let mut offered = content.offer(progress, to, &choice);
            let (memory, by) = match &offered {
                Some((slice, _)) => (slice.memory(), Protocol::Offered),
                None => content.register(messages, to, (what.bytes, choice.otherwise))?,
            };
            let key = match by {
                Protocol::Pipeline | Protocol::Copy => {
                    SegmentKey { rank: progress.fabric.rank(), region: RegionId(0), len: 0, address: 0, rkey: 0 }
                }
                _ => memory.segment().key(),
            };
            let key = SegmentKey { len: what.bytes, ..key };
            let send = progress.with(|engine| {
                let send = engine.send_rendezvous(to, (context, what.tag.0), (key, by), Arc::clone(&memory));
                if synchronous {
                    engine.make_synchronous(send);
                }
                if let Some((_, copy @ Some(_))) = &mut offered {
                    engine.moved(send, copy.take());
                }
                send
            });
            if by == Protocol::Pipeline {
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
