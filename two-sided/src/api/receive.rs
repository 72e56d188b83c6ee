//! The handle of a receive.

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};
use onesided_fabric::{Call, Drive, Fabric, Limit, Wait, block_longer, debug, limited};

use crate::api::destination::{AllOf, Destination, Room};
use crate::api::taken::Taken;
use crate::driver::progress::{Progress, Registered};
use crate::engine::matching::Pattern;
use crate::engine::{Direct, Engine, Held, Landed, Posting};
use crate::{Buffer, Error, Messages, Source, Tags};

/// A receive of a message of any length. See [`Messages::recv`].
pub type Recv<'m, T, F> = Receive<'m, AllOf<T>, F>;

/// A receive into a slice. See [`Messages::recv_into`].
pub type RecvInto<'m, F> = Receive<'m, Room<'m>, F>;

/// A receive into a buffer. See [`Messages::recv_buffer`].
pub type RecvBuffer<'m, T, F> = Receive<'m, Buffer<T, F>, F>;

/// A receive: a [`Recv`], a [`RecvInto`] or a [`RecvBuffer`].
#[must_use = "dropping the handle cancels the receive"]
pub struct Receive<'m, D: Destination<F>, F: Fabric> {
    messages: &'m Messages<F>,
    limit: Limit<'m, F>,
    source: (Source, Tags),
    call: Call<'m, Begun<'m, D, F>, Result<D::Output, Error>>,
}

/// A receive that has begun, and where its message goes.
struct Begun<'m, D: Destination<F>, F: Fabric> {
    start: Start<'m, F>,
    into: D,
}

/// A receive, its message, or why there is none. The error is boxed, to keep the handle small.
enum Start<'m, F: Fabric> {
    Failed(Box<Error>),
    Posted(PostedReceive<'m, F>),
    Taken(Taken<'m, F>),
    /// The message had come, and is in the slice of the destination until it is taken or given back.
    Landed {
        progress: &'m Progress<F>,
        landed: Landed,
        is_over: bool,
    },
}

impl<D: Destination<F>, F: Fabric> Drop for Begun<'_, D, F> {
    fn drop(&mut self) {
        if let Start::Landed { progress, landed, is_over: false } = &self.start {
            progress.with(|engine| engine.give_back_landed(*landed, self.into.slice().unwrap_or_default()));
        }
    }
}

/// A receive that the engine has, until it is taken or this is dropped.
pub(crate) struct PostedReceive<'m, F: Fabric> {
    progress: &'m Progress<F>,
    watch: Rank,
    /// [`TAKEN`], or the receive.
    receive: u32,
}

const TAKEN: u32 = u32::MAX;

impl<F: Fabric> Drop for PostedReceive<'_, F> {
    fn drop(&mut self) {
        if self.receive != TAKEN {
            self.progress.with(|engine| engine.cancel(self.receive as usize));
        }
    }
}

impl<'m, F: Fabric> PostedReceive<'m, F> {
    #[inline]
    pub(crate) fn of(progress: &'m Progress<F>, pattern: Pattern, receive: usize) -> Self {
        let watch = pattern.source.map_or(progress.fabric.rank(), Rank);
        Self { progress, watch, receive: receive as u32 }
    }

    /// A receive without a handle, or its message.
    #[inline]
    pub(crate) fn begun(progress: &'m Progress<F>, pattern: Pattern, posting: Posting) -> Result<Received, Self> {
        match posting {
            Posting::Landed(landed) => Ok(Received::Landed(landed)),
            Posting::Held(held) => Ok(Received::Held(held)),
            Posting::Posted(receive) => Err(Self::of(progress, pattern, receive)),
        }
    }

    /// Polls for the message, as a thread does that blocks: it is over if an eager one has come to `into`.
    #[inline]
    pub(crate) fn land(&mut self, into: &mut [u8], land: Land<F>) -> Option<Landed> {
        let receive = self.receive as usize;
        let landed = land(self.progress, receive, &mut Direct::posted(receive, Some(into)))?;
        self.receive = TAKEN;
        Some(landed)
    }

    /// Waits for the message. An eager one that comes now is in `into`, if there is a slice.
    /// `failed` as of [`Progress::until`].
    pub(crate) fn landed<'a, E: From<Fault> + 'a>(
        &'a mut self,
        into: Option<&'a mut [u8]>,
        failed: impl Fn(&Engine<Registered<F>>) -> Option<E> + 'a,
        wait: impl Fn() -> Wait + 'a,
    ) -> impl Future<Output = Result<Received, E>> + 'a {
        let receive = self.receive as usize;
        self.progress.until(
            self.watch,
            Direct::posted(receive, into),
            move |engine, direct, waker| {
                let outcome = match direct.landed.take() {
                    Some(landed) => Ok(Received::Landed(landed)),
                    None => engine.received(receive, waker)?.map(Received::Held).map_err(E::from),
                };
                self.receive = TAKEN;
                Some(outcome)
            },
            // A message that it has matched is not lost with another rank.
            move |engine| failed(engine).filter(|_| engine.is_posted(receive)).map(Err),
            move || Some(wait()),
        )
    }
}

/// [`Progress::land`].
pub(crate) type Land<F> = fn(&Progress<F>, usize, &mut Direct<'_>) -> Option<Landed>;

/// The message of a receive.
pub(crate) enum Received {
    Held(Held),
    /// It is in the memory of the receive.
    Landed(Landed),
}

impl<'m, D: Destination<F> + 'm, F: Fabric> Receive<'m, D, F> {
    #[inline]
    pub(crate) fn start(
        messages: &'m Messages<F>,
        into: D,
        source: (Source, Tags),
        pattern: Result<Pattern, Box<Error>>,
    ) -> Self {
        let memory = into.memory();
        Self::post(messages, into, source, pattern, |pattern, direct| {
            D::post(messages.progress(), pattern, direct, memory)
        })
    }

    #[inline]
    fn post(
        messages: &'m Messages<F>,
        mut into: D,
        source: (Source, Tags),
        pattern: Result<Pattern, Box<Error>>,
        post: impl FnOnce(Pattern, &mut Direct<'_>) -> Posting,
    ) -> Self {
        // Each handle is made in its place: a move would wait for the stores of its parts.
        let begun = |start, into| Self::begun(messages, source, start, into);
        let pattern = match pattern {
            Err(error) => return begun(Start::Failed(error), into),
            Ok(pattern) => pattern,
        };
        let progress = messages.progress();
        match post(pattern, &mut Direct::into(into.slice().unwrap_or_default())) {
            Posting::Landed(landed) => begun(Start::Landed { progress, landed, is_over: false }, into),
            Posting::Posted(receive) => begun(Start::Posted(PostedReceive::of(progress, pattern, receive)), into),
            Posting::Held(held) => begun(Start::Taken(Taken::new(messages, held)), into),
        }
    }

    #[inline]
    fn begun(messages: &'m Messages<F>, source: (Source, Tags), start: Start<'m, F>, into: D) -> Self {
        Self { messages, limit: Limit::NONE, source, call: Call::NotStarted(Begun { start, into }) }
    }

    /// Receives a message that is matched already, unless there is an error: then it is given back.
    pub(crate) fn taken(taken: Taken<'m, F>, into: D, fits: Result<(), Box<Error>>) -> Self {
        let (messages, status) = (taken.messages(), taken.status());
        let start = fits.map_or_else(Start::Failed, |()| Start::Taken(taken));
        Self::begun(messages, (Source::Rank(status.source), Tags::Is(status.tag)), start, into)
    }

    async fn run(
        messages: &'m Messages<F>,
        wanted: (Source, Tags),
        mut begun: Begun<'m, D, F>,
    ) -> Result<D::Output, Error> {
        let received = Self::receive(messages, wanted, &mut begun).await;
        if received.is_err() {
            begun.into.fail();
        }
        received
    }

    async fn receive(
        messages: &'m Messages<F>,
        (source, tags): (Source, Tags),
        Begun { start, into }: &mut Begun<'m, D, F>,
    ) -> Result<D::Output, Error> {
        let landed = match start {
            Start::Failed(error) => return Err(**error),
            Start::Taken(taken) => return taken.receive(into).await,
            Start::Landed { landed, is_over, .. } => {
                *is_over = true;
                *landed
            }
            Start::Posted(posted) => {
                let failed = |engine: &Engine<_>| messages.failed_source(engine, source);
                let wait = || messages.wait(source, format!("a receive with {tags} from {source}"));
                let received: Result<_, Fault> = posted.landed(into.slice(), failed, wait).await;
                match received.map_err(|fault| messages.failed("recv", (source, tags), fault))? {
                    Received::Landed(landed) => landed,
                    Received::Held(held) => return Taken::new(messages, held).receive(into).await,
                }
            }
        };
        into.received(messages.landed(&landed))
    }

    /// Blocks until the message is here: its elements or its buffer, whose it is, and how long.
    ///
    /// # Errors
    /// As of the call that made it: [`Messages::recv`], [`Messages::recv_into`],
    /// [`Messages::recv_buffer`].
    #[inline]
    pub fn wait(mut self) -> Result<D::Output, Error>
    where
        F: Drive,
    {
        let progress = self.messages.progress();
        match self.land(|receive, direct| progress.land(receive, direct)) {
            Some(outcome) => {
                // Nothing is left to be dropped, as what has not begun has no timer. Finding that out
                // costs a short message 60 instructions.
                std::mem::forget(self);
                outcome
            }
            None => match self {
                Self { messages, limit, source, call: Call::NotStarted(begun) } if !limit.is_set() => {
                    block_longer(messages.world().fabric(), Self::run(messages, source, begun))
                }
                late => late.block(),
            },
        }
    }

    /// The outcome of a receive whose message is in its slice, or comes there by `land`; the receive is
    /// over then.
    #[inline]
    fn land(
        &mut self,
        land: impl FnOnce(usize, &mut Direct<'_>) -> Option<Landed>,
    ) -> Option<Result<D::Output, Error>> {
        let Call::NotStarted(Begun { start, into }) = &mut self.call else { return None };
        let landed = match start {
            Start::Posted(PostedReceive { receive, .. }) => {
                let receive = *receive as usize;
                land(receive, &mut Direct::posted(receive, into.slice()))?
            }
            Start::Landed { landed, .. } if into.slice().is_some() => *landed,
            _ => return None,
        };
        Some(into.received(self.messages.landed(&landed)))
    }
}

impl<'m, F: Fabric> RecvInto<'m, F> {
    /// Posts receives in their order, with one lock.
    pub(crate) fn start_all(
        messages: &'m Messages<F>,
        all: impl IntoIterator<Item = (Room<'m>, Source, Tags)>,
    ) -> Vec<Self> {
        messages.progress().posting(|engine, arrive| {
            let start = |(room, source, tags)| {
                let post = |pattern, direct: &mut Direct<'_>| engine.receive_into(pattern, direct, &mut *arrive);
                Self::post(messages, room, (source, tags), messages.pattern("recv", (source, tags)), post)
            };
            all.into_iter().map(start).collect()
        })
    }
}

impl<'m, D: Destination<F> + 'm, F: Fabric> Receive<'m, D, F> {
    /// Whether a message that is not too long for the slice comes in a packet.
    fn is_short(&mut self, progress: &Progress<F>, packet_room: usize) -> bool {
        let Call::NotStarted(Begun { start: Start::Posted(_) | Start::Landed { .. }, into }) = &mut self.call else {
            return false;
        };
        let is_plain = !self.limit.is_set() && into.slice().is_some_and(|slice| slice.len() <= packet_room);
        is_plain && std::ptr::eq(self.messages.progress(), progress)
    }

    /// Waits for receives if all are of short messages, and takes in with one lock what has arrived for
    /// them. In order: a long message would be copied once more while another one is waited for, and a
    /// deadline counts from the first poll.
    fn wait_first(receives: &mut Vec<Self>) -> Vec<Result<D::Output, Error>>
    where
        F: Drive,
    {
        let Some(first) = receives.first() else { return Vec::new() };
        let progress = first.messages.progress();
        let packet_room = progress.packet_room(progress.fabric.rank()); // from whichever rank
        if !receives.iter_mut().all(|receive| receive.is_short(progress, packet_room)) {
            return Vec::new();
        }
        let (mut outcomes, mut short) = (Vec::with_capacity(receives.len()), receives.iter_mut());
        while let Some(late) = progress.arriving(|engine, arrive| {
            short.find_map(|receive| match receive.land(|at, direct| engine.land(at, direct, &mut *arrive)) {
                Some(outcome) => {
                    outcomes.push(outcome);
                    std::mem::forget(std::mem::replace(&mut receive.call, Call::Over)); // as in `wait`
                    None
                }
                None => Some(receive),
            })
        }) {
            let (messages, wanted) = (late.messages, late.source);
            let call = std::mem::replace(&mut late.call, Call::Over);
            outcomes.push(call.wait(&progress.fabric, |begun| Self::run(messages, wanted, begun)));
        }
        receives.drain(..).for_each(std::mem::forget); // they are over
        outcomes
    }
}

limited! {
    ['m, D: Destination<F> + 'm, F], Receive<'m, D, F>, D::Output, Error, |receive| receive.messages.world().fabric(),
    |begun| Self::run(receive.messages, receive.source, begun),
    late receive.messages.failed("recv", receive.source, Fault::new(FaultKind::TimedOut)), first Self::wait_first;
    /// Sets a deadline, counted from the next wait or poll. When it passes, the receive is
    /// cancelled.
    deadline
}

debug!(
    [D: Destination<F>, F: Fabric] Receive<'_, D, F>,
    |this| "receive with {} from {}", this.source.1, this.source.0
);
