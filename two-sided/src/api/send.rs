//! The handle of a send.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank, RegionId};
use onesided_fabric::{Call, Channel, Drive, Fabric, Limit, Segment, SegmentKey, Wait, debug, display, limited};
use onesided_layouts::{Cursor, Shape};

use crate::api::rules::{Choice, Features};
use crate::api::shaped::{self, CHUNK};
use crate::driver::offered::OfferedSlice;
use crate::driver::progress::{Progress, Registered};
use crate::engine::source::has_size;
use crate::engine::{Direct, Engine, Listed, QUEUED_MAX};
use crate::{Buffer, Error, Messages, Payload, Protocol, Source, Tag};

/// Why an eager message is announced all the same.
const NO_ROOM: &str = "its packet cannot leave now";

/// A send that is under way, and what it gives back when it is over. See [`Messages::send`].
#[must_use = "the failure of a send is reported by its handle alone"]
pub struct SendRequest<'m, F: Fabric, R = ()> {
    messages: &'m Messages<F>,
    limit: Limit<'m, F>,
    what: What,
    /// The send, if the engine has it.
    send: Option<u32>,
    call: Call<'m, (Started<'m, F>, R), Result<R, Error>>,
}

/// A send of a buffer that is under way. See [`Messages::send_buffer`].
pub type SendBuffer<'m, T, F> = SendRequest<'m, F, Buffer<T, F>>;

/// The send as errors tell of it.
#[derive(Clone, Copy)]
pub(crate) struct What {
    pub(crate) to: u32,
    pub(crate) tag: Tag,
    pub(crate) bytes: u64,
}

display!([] What, |this| "a send of {} bytes with {} to rank {}", this.bytes, this.tag, this.to);

impl What {
    #[inline]
    pub(crate) fn of<F: Fabric>(content: &Result<Content<'_, '_, F>, Box<Error>>, to: u32, tag: Tag) -> Self {
        Self { to, tag, bytes: content.as_ref().map_or(0, Content::len) }
    }

    const fn failed(self, fault: Fault) -> Error {
        let Self { to, tag, bytes } = self;
        Error::Send { to, tag, bytes, fault, has_left: None }
    }
}

/// What a send takes its message from.
pub(crate) enum Content<'m, 'c, F: Fabric> {
    Slice(&'m [u8]),
    /// The elements of a shape in memory, which are packed at once; and their length in bytes.
    Shape(Cursor<'c>, &'c [u8], u64),
    /// So many first bytes of it.
    Registered(&'c Registered<F>, u64),
}

impl<'m, 'c, F: Fabric> Content<'m, 'c, F> {
    #[inline]
    pub(crate) fn of<T: Payload>(elements: &'m [T]) -> Self {
        const { has_size::<T>() }
        Self::Slice(bytemuck::cast_slice(elements))
    }

    /// The elements that a shape selects.
    pub(crate) fn shaped<T: Payload>(elements: &'m [T], shape: Shape<'c>) -> Result<Self, Box<Error>>
    where
        'm: 'c,
    {
        if let Some(run) = shape.contiguous().and_then(|run| elements.get(run)) {
            return Ok(Self::of(run));
        }
        const { has_size::<T>() }
        let (element, bytes) = (size_of::<T>(), bytemuck::cast_slice(elements));
        let cursor = shaped::cursor("send_shaped", shape, (element, bytes.len()))?;
        Ok(Self::Shape(cursor, bytes, shaped::bytes(shape, element) as u64))
    }

    /// The message's length in bytes.
    #[inline]
    fn len(&self) -> u64 {
        match self {
            Self::Slice(bytes) => bytes.len() as u64,
            Self::Shape(.., len) | Self::Registered(_, len) => *len,
        }
    }

    /// Copies the next bytes, which are those from an offset on.
    fn read(&mut self, progress: &Progress<F>, at: u64, into: &mut [u8]) -> Result<(), Fault> {
        match self {
            Self::Slice(bytes) => into.copy_from_slice(&bytes[at as usize..][..into.len()]),
            Self::Shape(cursor, memory, _) => _ = cursor.pack(memory, into),
            Self::Registered(memory, _) => return memory.read(progress, at, into),
        }
        Ok(())
    }

    /// How it goes by the rules.
    fn choose(&self, messages: &Messages<F>, to: Rank, eager: Result<(), &'static str>) -> Choice {
        let is_registered = matches!(self, Self::Registered(..));
        let offered = if let Self::Slice(_) = self { Ok(()) } else { Err("it is no slice") };
        let features = Features { messages, to, bytes: self.len(), is_registered, eager, offered };
        messages.progress().rules.with(|chain| features.choose(chain))
    }

    /// Offers a slice, if it is to be.
    fn offer(&self, progress: &'m Progress<F>, to: Rank, choice: &Choice) -> Option<Offered<'m, F>> {
        match (self, choice.by) {
            (Self::Slice(bytes), Protocol::Offered) if choice.is_tried => {
                OfferedSlice::publish_try(progress, bytes, to).ok()
            }
            (Self::Slice(bytes), Protocol::Offered) => {
                OfferedSlice::publish(progress, bytes, to).ok().map(|slice| (slice, None))
            }
            _ => None,
        }
    }

    /// Memory with the message, and how it moves from there. A message to this rank itself is copied, as
    /// its send is over at once.
    fn register(mut self, messages: &Messages<F>, to: Rank, by: Protocol) -> Result<(Registered<F>, Protocol), Fault> {
        let (progress, bytes) = (messages.progress(), self.len());
        let is_own = to == progress.fabric.rank();
        let memory = match self {
            Self::Registered(memory, _) if !is_own => Arc::clone(memory),
            _ => {
                let memory = messages.memory_for(by, bytes)?;
                match &mut self {
                    Self::Slice(bytes) => memory.write(progress, 0, bytes)?,
                    packed => {
                        let mut chunk = [0; CHUNK];
                        for at in (0..bytes).step_by(CHUNK) {
                            let chunk = &mut chunk[..(bytes - at).min(CHUNK as u64) as usize];
                            packed.read(progress, at, chunk)?;
                            memory.write(progress, at, chunk)?;
                        }
                    }
                }
                memory
            }
        };
        let by = match by {
            _ if memory.is_plain() => Protocol::Copy,
            _ if !memory.is_whole() && !is_own => Protocol::Pipeline,
            by => by,
        };
        Ok((memory, by))
    }

    /// Starts a send in a context of the communicator.
    #[inline]
    pub(crate) fn post(
        mut self,
        messages: &'m Messages<F>,
        (context, to): (u32, Rank),
        (what, synchronous): (What, bool),
    ) -> Started<'m, F> {
        let mut eager = if synchronous { Err("it is synchronous") } else { Ok(()) };
        if !synchronous && messages.progress().rules.are_eager(what.bytes) {
            if let Some(started) = self.eager(messages, (context, to), what, None) {
                return started;
            }
            eager = Err(NO_ROOM);
        }
        self.post_by_rules(messages, (context, to), (what, synchronous), eager)
    }

    /// The same by the rules: `eager` says why it is not.
    #[inline(never)] // apart from the path of short messages
    fn post_by_rules(
        mut self,
        messages: &'m Messages<F>,
        (context, to): (u32, Rank),
        (what, synchronous): (What, bool),
        eager: Result<(), &'static str>,
    ) -> Started<'m, F> {
        let mut choice = self.choose(messages, to, eager);
        if choice.counts && eager != Err(NO_ROOM) {
            messages.progress().count(to); // else its packet has counted
        }
        if choice.by.is_eager() {
            if let Some(started) = self.eager(messages, (context, to), what, choice.by.channel()) {
                return started;
            }
            choice = self.choose(messages, to, Err(NO_ROOM));
        }
        self.announce(messages, (context, to), (what, synchronous), choice)
    }

    /// Sends the message as a packet, if it fits one that can leave now or may wait; over a channel if one is
    /// named.
    #[inline]
    fn eager(
        &mut self,
        messages: &'m Messages<F>,
        (context, to): (u32, Rank),
        what: What,
        over: Option<Channel>,
    ) -> Option<Started<'m, F>> {
        let progress = messages.progress();
        let sent = match self {
            Self::Slice(bytes) => progress.send_eager(to, (context, what.tag.0), bytes, over),
            packed => {
                let most = progress.packet_room(to).min(QUEUED_MAX); // it may wait, as it is packed once
                let mut bytes = vec![0; usize::try_from(what.bytes).ok().filter(|len| *len <= most)?];
                if let Err(fault) = packed.read(progress, 0, &mut bytes) {
                    return Some(Err(Box::new(what.failed(fault))));
                }
                progress.send_eager(to, (context, what.tag.0), &bytes, over)
            }
        };
        let send = sent.ok()?;
        Some(Ok(send.map(|send| Pending::eager(progress, to, send))))
    }

    /// Announces the message, to be moved when there is a receive: its slice, or memory that has it.
    fn announce(
        self,
        messages: &'m Messages<F>,
        (context, to): (u32, Rank),
        (what, synchronous): (What, bool),
        choice: Choice,
    ) -> Started<'m, F> {
        let progress = messages.progress();
        let announce = || {
            let mut offered = self.offer(progress, to, &choice);
            let (memory, by) = match &offered {
                Some((slice, _)) => (slice.memory(), Protocol::Offered),
                None if choice.by == Protocol::Offered => self.register(messages, to, messages.rendezvous())?,
                None => self.register(messages, to, choice.by)?,
            };
            let key = match by {
                Protocol::Pipeline | Protocol::UdZcopy | Protocol::Copy => {
                    SegmentKey { rank: progress.fabric.rank(), region: RegionId(0), len: 0, address: 0, rkey: 0 }
                }
                _ => memory.segment()?.key(),
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

impl<'m, F: Fabric> Pending<'m, F> {
    pub(crate) const fn eager(progress: &'m Progress<F>, to: Rank, send: usize) -> Self {
        Self { progress, to, send: send as u32, offered: None }
    }

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
    /// Starts a send to a rank, which is looked up or was. The handle is made in its place where the message
    /// is on its way: a move would wait for the stores of its parts.
    #[inline]
    pub(crate) fn start(
        messages: &'m Messages<F>,
        rank: Result<Rank, Box<Error>>,
        content: Result<Content<'m, '_, F>, Box<Error>>,
        (to, tag, synchronous): (u32, Tag, bool),
    ) -> Self {
        let what = What::of(&content, to, tag);
        let started =
            content.and_then(|content| content.post(messages, (messages.context(), rank?), (what, synchronous)));
        match started {
            Ok(None) => Self::begun(messages, what, Ok(None), ()),
            started => Self::begun(messages, what, started, ()),
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
                let pending = send.map(|send| Pending::eager(progress, rank, send));
                requests.push(Self::begun(messages, what(bytes, to, tag), Ok(pending), ()));
            });
            if let Some((bytes, to, tag)) = all.get(requests.len()) {
                let (rank, content) = (messages.rank("send", *to), Ok(Content::Slice(bytes)));
                requests.push(Self::start(messages, rank, content, (*to, *tag, false)));
            }
        }
        requests
    }
}

impl<'m, R: Send + 'm, F: Fabric> SendRequest<'m, F, R> {
    #[inline]
    pub(crate) fn begun(messages: &'m Messages<F>, what: What, started: Started<'m, F>, returned: R) -> Self {
        let send = started.as_ref().ok().and_then(|started| Some(started.as_ref()?.send));
        Self { messages, limit: Limit::NONE, what, send, call: Call::NotStarted((started, returned)) }
    }

    /// The error of the deadline.
    #[cold]
    fn late(&self) -> Error {
        let What { to, tag, bytes } = self.what;
        let progress = self.messages.progress();
        let has_left = self.send.map(|send| progress.with(|engine| engine.has_left(send as usize)));
        Error::Send { to, tag, bytes, fault: Fault::new(FaultKind::TimedOut), has_left }
    }

    async fn run(messages: &'m Messages<F>, what: What, (started, returned): (Started<'m, F>, R)) -> Result<R, Error> {
        if let Some(pending) = started.map_err(|error| *error)? {
            let wait = || messages.wait(Source::Rank(what.to), what.to_string());
            let sent: Result<(), Fault> = pending.sent(|_| None, wait).await;
            sent.map_err(|fault| what.failed(messages.world().translate(fault)))?;
        }
        Ok(returned)
    }

    /// The first sends whose messages are on their way.
    fn wait_first(sends: &mut Vec<Self>) -> Vec<Result<R, Error>> {
        let has_left = |send: &&Self| matches!(send.call, Call::NotStarted((Ok(None), _)));
        let count = sends.iter().take_while(has_left).count();
        let returned =
            |send: Self| if let Call::NotStarted((_, returned)) = send.call { Some(Ok(returned)) } else { None };
        sends.drain(..count).filter_map(returned).collect()
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
        if let Call::NotStarted((Ok(None), ())) = self.call {
            std::mem::forget(self); // as in `Receive::wait`
            return Ok(());
        }
        self.block()
    }
}

impl<T: Payload, F: Fabric> SendBuffer<'_, T, F> {
    /// Blocks until the receiver has read the buffer, and returns it.
    ///
    /// # Errors
    /// As of [`Messages::send_buffer`].
    pub fn wait(self) -> Result<Buffer<T, F>, Error>
    where
        F: Drive,
    {
        self.block()
    }
}

limited! {
    ['m, R: Send + 'm, F], SendRequest<'m, F, R>, R, Error, |send| send.messages.world().fabric(),
    |begun| Self::run(send.messages, send.what, begun), late send.late(), first Self::wait_first;
    /// Sets a deadline, counted from the next wait or poll. The message may be received after it.
    deadline
}

debug!([F: Fabric, R] SendRequest<'_, F, R>, |this| "{}, {:?}", this.what, this.call);
