//! The handles of receives.

mod landed;

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use bytemuck::Pod;
use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};
use onesided_fabric::{Call, Drive, Fabric, Limit, Wait, block_longer, limited};
use onesided_layouts::Shape;

use self::landed::LandedIn;
use crate::elements::allocate;
use crate::engine::{Direct, Engine, Held, Landed, Posting};
use crate::matching::Pattern;
use crate::progress::{Progress, Registered};
use crate::shaped::Places;
use crate::taken::{AllOf, Taken};
use crate::{Error, Messages, Payload, Source, Status, Tags};

/// A receive of a message of any length. See [`Messages::recv`].
#[must_use = "dropping the handle cancels the receive"]
pub struct Recv<'m, T, F: Fabric> {
    messages: &'m Messages<F>,
    limit: Limit<'m, F>,
    source: (Source, Tags),
    call: Call<'m, Start<'m, F>, Elements<T>>,
    element: PhantomData<fn() -> T>,
}

/// A receive into a slice. See [`Messages::recv_into`].
#[must_use = "dropping the handle cancels the receive"]
pub struct RecvInto<'m, F: Fabric> {
    messages: &'m Messages<F>,
    limit: Limit<'m, F>,
    source: (Source, Tags),
    call: Call<'m, Into<'m, F>, Result<Status, Error>>,
}

type Elements<T> = Result<(Vec<T>, Status), Error>;

/// A receive into a slice that has begun.
enum Into<'m, F: Fabric> {
    Started(Start<'m, F>, Room<'m>),
    Landed(LandedIn<'m, F>),
}

/// The slice of a receive.
struct Room<'m> {
    into: &'m mut [u8],
    element: usize,
    /// What takes the message in place of the slice, which is empty then.
    places: Option<Box<Places<'m>>>,
}

impl<'m> Room<'m> {
    #[inline]
    fn of<T: Pod>(into: &'m mut [T]) -> Self {
        Self { into: bytemuck::cast_slice_mut(into), element: size_of::<T>(), places: None }
    }

    #[inline]
    fn fits(&self, status: Status) -> Result<Status, Error> {
        let len = self.places.as_ref().map_or(self.into.len(), |places| places.len);
        status.fits(len, self.element)
    }
}

/// A receive that the engine has, until it is taken or this is dropped.
pub(crate) struct Posted<'m, F: Fabric> {
    progress: &'m Progress<F>,
    watch: Rank,
    /// [`TAKEN`], or the receive.
    receive: u32,
}

const TAKEN: u32 = u32::MAX;

impl<'m, F: Fabric> Posted<'m, F> {
    pub(crate) const fn new(progress: &'m Progress<F>, watch: Rank, receive: usize) -> Self {
        Self { progress, watch, receive: receive as u32 }
    }
}

/// A receive, its message, or why there is none. Boxed, to keep the handle small.
pub(crate) enum Start<'m, F: Fabric> {
    Failed(Box<Error>),
    Posted(Posted<'m, F>),
    Taken(Taken<'m, F>),
}

impl<'m, F: Fabric> Start<'m, F> {
    /// A receive without a slice. `posted` as of [`Progress::receive`].
    pub(crate) fn post(
        messages: &'m Messages<F>,
        (source, tags): (Source, Tags),
        posted: impl FnOnce(&mut Engine<Registered<F>>, usize),
    ) -> Self {
        match messages.pattern("recv", source, tags) {
            Ok(pattern) => match messages.progress().receive(pattern, posted) {
                Posting::Posted(receive) => Self::posted(messages, pattern, receive),
                Posting::Held(held) => Self::Taken(Taken::new(messages, held)),
                Posting::Landed => unreachable!("there is no slice"),
            },
            Err(error) => Self::Failed(Box::new(error)),
        }
    }

    #[inline]
    fn posted(messages: &'m Messages<F>, pattern: Pattern, receive: usize) -> Self {
        let progress = messages.progress();
        Self::Posted(Posted::new(progress, pattern.source.map_or(progress.fabric.rank(), Rank), receive))
    }

    pub(crate) async fn taken(self, messages: &'m Messages<F>, wanted: (Source, Tags)) -> Result<Taken<'m, F>, Error> {
        match self {
            Self::Failed(error) => Err(*error),
            Self::Posted(posted) => posted.taken(messages, wanted).await,
            Self::Taken(taken) => Ok(taken),
        }
    }
}

impl<F: Fabric> Drop for Posted<'_, F> {
    fn drop(&mut self) {
        if self.receive != TAKEN {
            self.progress.with(|engine| engine.cancel(self.receive as usize));
        }
    }
}

impl<F: Fabric> Taken<'_, F> {
    pub(crate) async fn into_vec<T: Payload>(mut self) -> Result<(Vec<T>, Status), Error> {
        let (status, element) = (self.status(), size_of::<T>());
        if !status.bytes.is_multiple_of(element as u64) {
            self.refuse().await;
            return Err(Error::Length { status, room: None, element });
        }
        let len = usize::try_from(status.bytes / element as u64).unwrap_or(usize::MAX);
        let mut all = AllOf { len, elements: Vec::new() };
        self.read(&mut all).await?;
        Ok((all.elements, status))
    }

    async fn into_room(mut self, mut room: Room<'_>) -> Result<Status, Error> {
        let status = self.status();
        match room.places.as_deref_mut() {
            None => self.read(&mut &mut *room.into).await?,
            Some(places) => self.read(places).await?,
        }
        room.fits(status)
    }
}

impl<'m, F: Fabric> Posted<'m, F> {
    async fn taken(mut self, messages: &'m Messages<F>, wanted: (Source, Tags)) -> Result<Taken<'m, F>, Error> {
        let landed = self.landed_of(messages, wanted, None).await;
        match landed.map_err(|fault| messages.failed("recv", wanted, fault))? {
            Received::Held(held) => Ok(Taken::new(messages, held)),
            Received::Landed(_) => unreachable!("there is no room for it"),
        }
    }

    fn landed_of<'a>(
        &'a mut self,
        messages: &'a Messages<F>,
        (source, tags): (Source, Tags),
        into: Option<&'a mut [u8]>,
    ) -> impl Future<Output = Result<Received, Fault>> + 'a {
        let wait = move || messages.wait(source, format!("a receive with {tags} from {source}"));
        self.landed(into, move |engine| messages.failed_source(engine, source), wait)
    }

    /// Looks for the message of a receive without a slice, for a caller that waits for it next.
    pub(crate) fn look(&self)
    where
        F: Drive,
    {
        self.progress.land(self.receive as usize, &mut Direct::none());
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
            into.map_or(Direct::none(), |into| Direct::posted(receive, into)),
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

/// The message of a receive.
pub(crate) enum Received {
    Held(Held),
    /// It is in the memory of the receive.
    Landed(Landed),
}

impl<'m, T: Payload, F: Fabric> Recv<'m, T, F> {
    pub(crate) fn start(messages: &'m Messages<F>, source: Source, tags: Tags) -> Self {
        let posted = |engine: &mut Engine<_>, receive| engine.allocate_by(receive, allocate::<T>);
        let call = Call::NotStarted(Start::post(messages, (source, tags), posted));
        Self { messages, limit: Limit::NONE, source: (source, tags), call, element: PhantomData }
    }

    /// Receives a message that is matched already.
    pub(crate) fn taken(taken: Taken<'m, F>) -> Self {
        let (messages, status) = (taken.messages(), taken.status());
        let source = (Source::Rank(status.source), Tags::Is(status.tag));
        let call = Call::NotStarted(Start::Taken(taken));
        Self { messages, limit: Limit::NONE, source, call, element: PhantomData }
    }

    /// Sets a deadline, counted from the next wait or poll. When it passes, the receive is
    /// cancelled.
    pub const fn deadline(mut self, after: Duration) -> Self {
        self.limit.said = Some(after);
        self
    }

    async fn run(
        messages: &'m Messages<F>,
        wanted: (Source, Tags),
        start: Start<'m, F>,
    ) -> Result<(Vec<T>, Status), Error> {
        start.taken(messages, wanted).await?.into_vec().await
    }
}

impl<T: Payload, F: Fabric> Recv<'_, T, F> {
    /// Blocks until the message is here: its elements, and whose it is.
    ///
    /// # Errors
    /// As of [`Messages::recv`].
    pub fn wait(self) -> Result<(Vec<T>, Status), Error>
    where
        F: Drive,
    {
        if let Call::NotStarted(Start::Posted(posted)) = &self.call {
            posted.look();
        }
        self.block()
    }
}

limited! {
    ['m, T: Payload, F], Recv<'m, T, F>, (Vec<T>, Status), Error, |receive| receive.messages.world().fabric(),
    |start| Self::run(receive.messages, receive.source, start),
    late receive.messages.failed("recv", receive.source, Fault::new(FaultKind::TimedOut))
}

impl<'m, F: Fabric> RecvInto<'m, F> {
    #[inline]
    pub(crate) fn start<T: Payload>(
        messages: &'m Messages<F>,
        into: &'m mut [T],
        wanted: (Source, Tags),
        pattern: Result<Pattern, Box<Error>>,
    ) -> Self {
        Self::posted(messages, Room::of(into), wanted, pattern, |pattern, direct| {
            messages.progress().receive_into(pattern, direct)
        })
    }

    /// Posts receives in their order, with one lock.
    pub(crate) fn start_all<T: Payload>(messages: &'m Messages<F>, all: Vec<(&'m mut [T], Source, Tags)>) -> Vec<Self> {
        messages.progress().posting(|engine, arrive| {
            let start = |(into, source, tags): (&'m mut [T], _, _)| {
                let wanted = (source, tags);
                let post = |pattern, direct: &mut Direct<'_>| engine.receive_into(pattern, direct, &mut *arrive);
                Self::posted(messages, Room::of(into), wanted, Self::pattern(messages, wanted), post)
            };
            all.into_iter().map(start).collect()
        })
    }

    #[inline]
    pub(crate) fn pattern(messages: &'m Messages<F>, (source, tags): (Source, Tags)) -> Result<Pattern, Box<Error>> {
        messages.pattern("recv", source, tags).map_err(Box::new)
    }

    #[inline]
    fn posted(
        messages: &'m Messages<F>,
        room: Room<'m>,
        source: (Source, Tags),
        pattern: Result<Pattern, Box<Error>>,
        post: impl FnOnce(Pattern, &mut Direct<'_>) -> Posting,
    ) -> Self {
        // Each handle is made in its place: a move would wait for the stores of its parts.
        let begun = |begun| Self { messages, limit: Limit::NONE, source, call: Call::NotStarted(begun) };
        let pattern = match pattern {
            Err(error) => return begun(Into::Started(Start::Failed(error), room)),
            Ok(pattern) => pattern,
        };
        let mut direct = Direct::into(&mut *room.into);
        match post(pattern, &mut direct) {
            Posting::Landed => {
                let landed = *direct.landed();
                begun(Into::Landed(LandedIn { messages, landed, room }))
            }
            Posting::Posted(receive) => begun(Into::Started(Start::posted(messages, pattern, receive), room)),
            Posting::Held(held) => begun(Into::Started(Start::Taken(Taken::new(messages, held)), room)),
        }
    }

    /// Receives into the places of a shape.
    pub(crate) fn start_shaped<T: Payload>(
        messages: &'m Messages<F>,
        into: &'m mut [T],
        shape: Shape<'m>,
        source: (Source, Tags),
    ) -> Self {
        let mut room = Room::of::<T>(&mut []);
        let start = Places::of(shape, size_of::<T>(), bytemuck::cast_slice_mut(into)).map(|places| {
            room.places = Some(Box::new(places));
            Start::post(messages, source, |_, _| ())
        });
        let call = Call::NotStarted(Into::Started(start.unwrap_or_else(Start::Failed), room));
        Self { messages, limit: Limit::NONE, source, call }
    }

    /// Receives a message that is matched already.
    pub(crate) fn taken<T: Payload>(taken: Taken<'m, F>, into: &'m mut [T]) -> Self {
        let (messages, status) = (taken.messages(), taken.status());
        let source = (Source::Rank(status.source), Tags::Is(status.tag));
        let call = Call::NotStarted(Into::Started(Start::Taken(taken), Room::of(into)));
        Self { messages, limit: Limit::NONE, source, call }
    }

    /// The same into the places of a shape. The message is given back if they exceed the slice.
    pub(crate) fn taken_shaped<T: Payload>(taken: Taken<'m, F>, into: &'m mut [T], shape: Shape<'m>) -> Self {
        let mut request = Self::taken::<T>(taken, &mut []);
        if let Call::NotStarted(Into::Started(start, room)) = &mut request.call {
            match Places::of(shape, size_of::<T>(), bytemuck::cast_slice_mut(into)) {
                Ok(places) => room.places = Some(Box::new(places)),
                Err(error) => *start = Start::Failed(error),
            }
        }
        request
    }

    /// Sets a deadline, counted from the next wait or poll. When it passes, the receive is
    /// cancelled.
    pub const fn deadline(mut self, after: Duration) -> Self {
        self.limit.said = Some(after);
        self
    }

    async fn run(messages: &'m Messages<F>, wanted: (Source, Tags), begun: Into<'m, F>) -> Result<Status, Error> {
        match begun {
            Into::Landed(landed) => landed.taken(),
            Into::Started(Start::Failed(error), _) => Err(*error),
            Into::Started(Start::Posted(mut posted), room) => {
                let into = room.places.is_none().then_some(&mut *room.into);
                match posted.landed_of(messages, wanted, into).await {
                    Ok(Received::Landed(landed)) => room.fits(messages.landed(&landed)),
                    Ok(Received::Held(held)) => Taken::new(messages, held).into_room(room).await,
                    Err(fault) => Err(messages.failed("recv", wanted, fault)),
                }
            }
            Into::Started(Start::Taken(taken), room) => taken.into_room(room).await,
        }
    }
}

impl<F: Fabric> RecvInto<'_, F> {
    /// Blocks until the message is in the slice: whose it is, and how long.
    ///
    /// # Errors
    /// As of [`Messages::recv_into`].
    #[inline]
    pub fn wait(mut self) -> Result<Status, Error>
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
    fn land(&mut self, land: impl FnOnce(usize, &mut Direct<'_>) -> bool) -> Option<Result<Status, Error>> {
        match &mut self.call {
            Call::NotStarted(Into::Started(Start::Posted(posted), room)) if room.places.is_none() => {
                let receive = posted.receive as usize;
                let mut direct = Direct::posted(receive, &mut *room.into);
                let status = land(receive, &mut direct).then(|| self.messages.landed(direct.landed()))?;
                Some(room.fits(status))
            }
            Call::NotStarted(Into::Landed(landed)) => Some(landed.status()),
            _ => None,
        }
    }

    /// Whether a message that is not too long for the slice comes in a packet.
    fn is_short(&self, progress: &Progress<F>, packet_room: usize) -> bool {
        let room = match &self.call {
            Call::NotStarted(Into::Started(Start::Posted(_), room) | Into::Landed(LandedIn { room, .. })) => room,
            _ => return false,
        };
        let is_plain = room.places.is_none() && !self.limit.is_set() && room.into.len() <= packet_room;
        is_plain && std::ptr::eq(self.messages.progress(), progress)
    }

    /// Waits for receives if all are of short messages, and takes in with one lock what has arrived for
    /// them. In order: a long message would be copied once more while another one is waited for, and a
    /// deadline counts from the first poll.
    fn wait_first(receives: &mut Vec<Self>) -> Vec<Result<Status, Error>>
    where
        F: Drive,
    {
        let Some(first) = receives.first() else { return Vec::new() };
        let progress = first.messages.progress();
        let packet_room = progress.packet_room(progress.fabric.rank());
        if !receives.iter().all(|receive| receive.is_short(progress, packet_room)) {
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
    ['m, F], RecvInto<'m, F>, Status, Error, |receive| receive.messages.world().fabric(),
    |begun| Self::run(receive.messages, receive.source, begun),
    late receive.messages.failed("recv", receive.source, Fault::new(FaultKind::TimedOut)), first Self::wait_first
}

impl<T, F: Fabric> fmt::Debug for Recv<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "receive with {} from {}", self.source.1, self.source.0)
    }
}

impl<F: Fabric> fmt::Debug for RecvInto<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "receive with {} from {}", self.source.1, self.source.0)
    }
}
