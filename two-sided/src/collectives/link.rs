//! A call of a collective at a rank: its messages, and what ends it early.
//!
//! The messages of a communicator's collectives are in a context of their own. Their tag says the
//! number of the call, by which they are matched, and which collective it is: so a rank that is in
//! another one finds out by the first message that it gets. Between two ranks the messages of a call
//! are matched in order, so they need no further number.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};
use onesided_fabric::shm::CollectiveBuffers;
use onesided_fabric::{Background, Drive, Fabric, Limit, NOBODY, Wait, World, copied};

use super::kind::{Collective, CollectiveCall, Combines, tag_of};
use super::state::{Scratch, State};
use crate::api::destination::Room;
use crate::api::receive::{Land, PostedReceive, Received};
use crate::api::send::{Content, Pending, What};
use crate::api::taken::Taken;
use crate::driver::progress::{Looks, Progress, Registered};
use crate::engine::matching::Pattern;
use crate::engine::{CONTROL, CallFailure, Direct, Engine, Found, Landed, Reason, Trouble};
use crate::{Error, Messages, Source, Tag};

/// The outcome of a step of a call. The failure is boxed: moved from step to step, its bytes take a tenth
/// of a short call's time, although there are none.
pub(super) type Outcome<T = ()> = Result<T, Box<CallFailure>>;

/// Every so many calls that need no packet, messages move all the same.
const MOVES: u64 = 16;
/// The time after which a rank that waits asks the one that it waits for; twice as long each time.
const FIRST_QUESTION: Duration = Duration::from_millis(20);
/// A thread that polls again by itself starts to count that time after so many polls: to read the
/// clock costs as much as a poll. It polls more often than that before it sleeps.
const PATIENT_POLLS: u32 = 48;

/// Sends that are under way, with their receivers.
pub(super) type Sends<'b, F> = Vec<(u32, Pending<'b, F>)>;
/// A receive that has begun, or its message.
type Begun<'m, F> = Result<Received, PostedReceive<'m, F>>;

/// A call at a rank.
pub(super) struct Core<'m, F: Fabric> {
    pub(super) messages: &'m Messages<F>,
    pub(super) collective: Collective,
    pub(super) tag: u32,
    pub(super) number: u64,
    /// What the call before it was.
    pub(super) before: u16,
    /// The size of an element in bytes, or 0 if it is longer.
    pub(super) element: u16,
}

copied!([F: Fabric] Core<'_, F>);

impl<'m, F: Fabric> Core<'m, F> {
    pub(super) fn state(&self) -> &'m State {
        self.messages.collectives()
    }

    /// The communicator, and the number of the call.
    pub(super) fn call(&self) -> (u32, u64) {
        (self.messages.context(), self.number)
    }

    fn key(&self) -> (u32, u32) {
        (self.messages.collective_context(), self.tag)
    }

    pub(super) fn rank(&self, rank: u32) -> Outcome<Rank> {
        self.messages.world().fabric_rank(rank).ok_or_else(|| self.failed(Fault::new(FaultKind::NoSuchRank)))
    }

    /// The failure of this call at this rank.
    #[cold]
    pub(super) fn failure(&self, reason: Reason, fault: Fault, words: [u64; 2]) -> Box<CallFailure> {
        let origin = self.messages.world().fabric().rank();
        Box::new(CallFailure { reason, fault, number: self.number as u32, origin, words })
    }

    #[cold]
    pub(super) fn failed(&self, fault: Fault) -> Box<CallFailure> {
        self.failure(Reason::Fault, fault, [0; 2])
    }

    #[cold]
    fn out_of_step(&self, Found { from, tag }: Found) -> Box<CallFailure> {
        let tags = u64::from(self.tag) << 32 | u64::from(tag);
        let mut failure =
            self.failure(Reason::OutOfStep, Fault::of(FaultKind::OutOfStep, from), [tags, u64::from(from.0)]);
        // The message may be of an earlier call, in which others still are.
        let number = CollectiveCall::new(from.0, tag, self.number).number().min(self.number);
        failure.number = number as u32;
        failure
    }

    /// Why the call will not end, as far as this rank was told.
    #[inline]
    fn trouble(&self, engine: &Engine<Registered<F>>) -> Option<Box<CallFailure>> {
        Some(match engine.trouble(self.key(), self.number as u32)? {
            Trouble::Failed(failure) => Box::new(failure),
            Trouble::OutOfStep(found) => self.out_of_step(found),
        })
    }

    #[cold]
    fn wait(&self, peer: u32) -> Wait {
        self.messages.wait(Source::Rank(peer), format!("{} (call {})", self.collective, self.number))
    }

    /// Whether a message is of this call, and as long as the receiver expects.
    #[inline]
    pub(super) fn check(&self, (from, tag): (u32, u32), len: u64, expected: usize) -> Outcome {
        if tag != self.tag {
            return Err(self.out_of_step(Found { from: Rank(from), tag }));
        }
        if len != expected as u64 {
            let fault = Fault::of(FaultKind::TooLong, Rank(from)).with_detail(self.element.into());
            return Err(self.failure(Reason::Lengths, fault, [len, expected as u64]));
        }
        Ok(())
    }

    /// Starts a send, which is to be [waited](Link::sent) for. `None`: it is on its way.
    #[inline]
    fn post<'b>(&self, to: u32, bytes: &'b [u8]) -> Outcome<Option<Pending<'b, F>>>
    where
        'm: 'b,
    {
        let (what, rank) = (What { to, tag: Tag(self.tag), bytes: bytes.len() as u64 }, self.rank(to)?);
        let started = Content::Slice(bytes).post(self.messages, (self.key().0, rank), (what, false));
        started.map_err(|error| self.failed(self.on_fabric(error.fault())))
    }

    #[cold]
    fn on_fabric(&self, fault: Fault) -> Fault {
        on_fabric(self.messages.world(), fault)
    }

    /// Waits for a send.
    async fn sent(self, to: u32, pending: Pending<'_, F>) -> Outcome {
        let sent: Outcome = pending.sent(|engine| self.trouble(engine), || self.wait(to)).await;
        sent.map_err(|failure| self.own(failure))
    }

    /// A failure that was made of a fault is one of this call.
    fn own(&self, failure: Box<CallFailure>) -> Box<CallFailure> {
        if failure.number == 0 { self.failed(failure.fault) } else { failure }
    }

    /// Starts to receive a message that fills a slice.
    #[inline]
    fn receive(&self, from: u32, into: &mut [u8]) -> Outcome<Begun<'m, F>> {
        let (progress, pattern) = (self.messages.progress(), self.pattern(from)?);
        Ok(PostedReceive::begun(progress, pattern, progress.receive_into(pattern, &mut Direct::into(into))))
    }

    /// [Starts a send](Self::post), and then [a receive](Self::receive).
    #[inline]
    fn exchange<'b>(
        &self,
        (to, bytes): (u32, &'b [u8]),
        (from, into): (u32, &mut [u8]),
    ) -> Outcome<(Option<Pending<'b, F>>, Begun<'m, F>)>
    where
        'm: 'b,
    {
        let progress = self.messages.progress();
        if progress.rules.are_eager(bytes.len() as u64) {
            let (rank, pattern) = (self.rank(to)?, self.pattern(from)?);
            let exchanged = progress.exchange((rank, self.key(), bytes), (pattern, &mut Direct::into(into)));
            if let Ok((send, posting)) = exchanged {
                let pending = send.map(|send| Pending::eager(progress, rank, send));
                return Ok((pending, PostedReceive::begun(progress, pattern, posting)));
            }
        }
        Ok((self.post(to, bytes)?, self.receive(from, into)?))
    }

    #[inline]
    fn pattern(&self, from: u32) -> Outcome<Pattern> {
        Ok(Pattern { context: self.key().0, source: Some(self.rank(from)?.0), tag: Some(self.tag) })
    }

    /// Waits for a message that fills a slice.
    async fn received(self, from: u32, begun: Begun<'m, F>, into: &mut [u8]) -> Outcome {
        let (source, expected) = (self.rank(from)?, into.len());
        let context = self.key().0;
        let failed =
            |engine: &Engine<_>| self.trouble(engine).or_else(|| engine.lost_in(context, source).map(From::from));
        let received: Outcome<_> = match begun {
            Ok(received) => Ok(received),
            Err(mut posted) => posted.landed(Some(&mut *into), failed, || self.wait(from)).await,
        };
        let held = match received.map_err(|failure| self.own(failure))? {
            Received::Landed(landed) => return self.landed(&landed, expected),
            Received::Held(held) => held,
        };
        let mut taken = Taken::new(self.messages, held);
        self.check((held.envelope.source, held.envelope.tag), held.len, expected)?;
        Box::pin(taken.read(&mut Room::of(into))).await.map_err(|error| self.failed(self.on_fabric(error.fault())))
    }

    #[inline]
    fn landed(&self, landed: &Landed, expected: usize) -> Outcome {
        self.check((landed.envelope.source, landed.envelope.tag), landed.len.into(), expected)
    }

    /// The contribution of a rank, if it is in its buffer, as [`Link::take`] gets it.
    #[inline]
    fn contributed(&self, from: u32, (len, at): (usize, usize), into: &mut [u8]) -> Option<Outcome> {
        let found = self.state().buffers()?.find(from, self.number)?;
        if found.tag != self.tags() || found.len != len {
            let tag = self.other(found.tag);
            return Some(self.rank(from).and_then(|from| self.check((from.0, tag), found.len as u64, len)));
        }
        found.read(at, into);
        Some(Ok(()))
    }

    /// Waits until something is there in a buffer, or for a message in its place: whether it is there.
    async fn arrived(
        self,
        from: u32,
        begun: Begun<'m, F>,
        into: &mut [u8],
        is_there: impl Fn() -> bool,
    ) -> Outcome<bool> {
        let mut received = pin!(self.received(from, begun, into));
        poll_fn(|cx| {
            if is_there() {
                return Poll::Ready(Ok(true));
            }
            match received.as_mut().poll(cx) {
                // The buffer is looked at last: what a rank has published before its end counts.
                Poll::Pending | Poll::Ready(Err(_)) if is_there() => Poll::Ready(Ok(true)),
                polled => polled.map_ok(|()| false),
            }
        })
        .await
    }

    /// The cause of a failure: a rank that has left may have failed before, and said why, or have left because
    /// of a death.
    async fn cause(self, failure: Box<CallFailure>) -> Box<CallFailure> {
        if failure.reason != Reason::Fault {
            return failure;
        }
        let (progress, me) = (self.messages.progress(), self.messages.world().fabric().rank());
        // What has arrived is taken in first.
        let told = move |engine: &mut Engine<_>, _: &mut Direct<'_>, _: &Waker| self.trouble(engine);
        let mut cause = progress.until(me, Direct::none(), told, |_| Some(failure.clone()), || None).await;
        let world = self.messages.world();
        let mut failed = (0..).map_while(|index| world.fabric().failure(index));
        if cause.fault.kind() == FaultKind::PeerLeft
            && let Some(dead) = failed.find(|rank| world.rank_of(*rank).is_some())
        {
            cause.fault = Fault::of(FaultKind::PeerDied, dead);
        }
        cause
    }

    /// The failure of an earlier call, which ends this one.
    #[inline]
    pub(super) fn failed_before(&self) -> Option<Box<CallFailure>> {
        let (state, number) = (self.state(), self.number as u32);
        let told = || self.messages.progress().with(|engine| self.trouble(engine));
        let failed = state.failed().filter(|failure| failure.ends(number)).map(Box::new);
        failed.or_else(|| if state.was_told() { told() } else { None })
    }

    /// No contribution of another rank to this call or to the one before it is of another collective.
    #[inline]
    fn is_in_step(&self) -> Outcome {
        let Some(buffers) = self.state().buffers() else { return Ok(()) };
        let before = self.number - 1;
        let found = buffers.find_other(self.number, |tags| tags != self.tags());
        let found = found.map(|(from, tags)| (from, self.other(tags))).or_else(|| {
            let found = buffers.find_other(before, |tags| tags as u32 != tag_of(self.before, before))?;
            Some((found.0, found.1 as u32))
        });
        match found {
            None => Ok(()),
            Some((from, tag)) => Err(self.out_of_step(Found { from, tag })),
        }
    }

    /// The tag of a contribution: that of the call, and what the one before it was. Messages of that one are not
    /// looked for where a contribution is there.
    #[inline]
    fn tags(&self) -> u64 {
        u64::from(self.before) << 32 | u64::from(self.tag)
    }

    /// The tag of another rank's call that is not as it is here: this one, or the one before.
    #[cold]
    fn other(&self, tags: u64) -> u32 {
        match tags as u32 {
            tag if tag == self.tag && tags != self.tags() => tag_of((tags >> 32) as u16, self.number - 1),
            tag => tag,
        }
    }

    /// No message of this call or of an earlier one is left, which nobody will receive, if it is the
    /// only one; nor another rank's contribution to another collective.
    #[inline]
    fn has_no_strays(&self) -> Outcome {
        // Those of a call that failed here are no strays.
        if self.state().failed().is_some() {
            return Ok(());
        }
        self.is_in_step()?;
        if !self.state().has_early() || !self.state().is_only() {
            return Ok(());
        }
        let stray = self.messages.progress().with(|engine| engine.stray(self.key(), |_| true));
        stray.map_or(Ok(()), |stray| Err(self.out_of_step(stray)))
    }

    /// Ends the calls of the other ranks too, by telling them why this one failed: this call and later
    /// ones, not those before it. All are told by every rank that fails: one that dies meanwhile has told
    /// some of them only.
    #[cold]
    pub(super) fn fail(&self, failure: &CallFailure) {
        if !self.state().fail(*failure) {
            return; // they were told before
        }
        tell_all(self.messages.progress(), self.messages.world(), self.key().0, failure);
    }
}

/// A fault whose rank is of a world, with the fabric's.
#[cold]
pub(crate) fn on_fabric<F: Fabric>(world: &World<F>, fault: Fault) -> Fault {
    let rank = fault.rank().and_then(|rank| world.fabric_rank(rank.0));
    rank.map_or(fault, |rank| Fault::of(fault.kind(), rank).with_detail(fault.detail()))
}

/// Tells the other members of a communicator why a call failed at this rank.
#[cold]
pub(crate) fn tell_all<F: Fabric>(progress: &Progress<F>, world: &World<F>, context: u32, failure: &CallFailure) {
    let (bytes, envelope) = (failure.to_bytes(), (context, failure.tag()));
    let others = (0..world.size()).filter(|rank| *rank != world.rank() && world.is_alive(*rank));
    for rank in others.filter_map(|rank| world.fabric_rank(rank)) {
        if let Ok(Some(send)) = progress.send_eager(rank, envelope, &bytes, None) {
            progress.with(|engine| engine.detach(send));
        }
    }
}

/// A call at a rank, until it is over.
pub(super) struct Link<'m, F: Fabric> {
    core: Core<'m, F>,
    patience: Patience<'m, F>,
    pub(super) me: u32,
    pub(super) size: u32,
    /// How a receive and a look at a buffer poll before they wait, if a thread blocks in the call.
    polls: Option<(Land<F>, Looks<F>)>,
    is_over: bool,
}

/// When a rank that waits asks the one that it waits for whether it is in the same collective.
struct Patience<'m, F: Fabric> {
    polls: u32,
    /// How often it has asked.
    questions: u32,
    limit: Limit<'m, F>,
}

impl<'m, F: Fabric> Patience<'m, F> {
    /// Waits for a rank. The future stays where it is, so that it is part of the caller's once.
    #[inline]
    fn during<T, W: Future<Output = Outcome<T>>>(
        &mut self,
        core: Core<'m, F>,
        awaited: u32,
        mut waited: Pin<&mut W>,
    ) -> impl Future<Output = Outcome<T>> {
        poll_fn(move |cx| {
            let polled = waited.as_mut().poll(cx);
            if polled.is_pending()
                && let Err(failure) = self.poll(cx, core, awaited)
            {
                return Poll::Ready(Err(failure));
            }
            polled
        })
    }

    fn poll(&mut self, cx: &mut Context<'_>, core: Core<'m, F>, awaited: u32) -> Outcome {
        let fabric = core.messages.world().fabric();
        self.polls = self.polls.saturating_add(1);
        if !self.limit.is_set() {
            let is_early = self.polls < PATIENT_POLLS;
            if is_early && cx.waker().will_wake(NOBODY) && fabric.capabilities().completes_at_post {
                return Ok(());
            }
            self.limit.said = Some(self.next());
        }
        while self.limit.poll(cx, fabric).is_ready() {
            if let Some(failure) = core.failed_before() {
                return Err(failure);
            }
            core.is_in_step()?;
            self.ask(core, awaited);
            self.limit.said = Some(self.next());
        }
        Ok(())
    }

    fn next(&self) -> Duration {
        FIRST_QUESTION.saturating_mul(1 << self.questions.min(31))
    }

    #[cold]
    fn ask(&mut self, core: Core<'m, F>, awaited: u32) {
        self.questions = self.questions.saturating_add(1);
        let (key, is_only) = (core.key(), core.state().is_only());
        let progress = core.messages.progress();
        progress.with(|engine| engine.waits_in_call(key, is_only));
        let Some(rank) = core.messages.world().fabric_rank(awaited) else { return };
        if let Ok(Some(send)) = progress.send_eager(rank, (key.0, CONTROL | key.1), &[], None) {
            progress.with(|engine| engine.detach(send));
        }
    }
}

impl<'m, F: Fabric> Link<'m, F> {
    pub(super) fn new(
        messages: &'m Messages<F>,
        (collective, element): (Collective, u16),
        (root, combines): (u32, Combines),
    ) -> Self {
        let what = collective.what(root, combines);
        let (number, before) = messages.collectives().begin(what);
        Self::of(Core { messages, collective, tag: tag_of(what, number), number, before, element })
    }

    /// A call that has its number.
    pub(super) fn of(core: Core<'m, F>) -> Self {
        let patience = Patience { polls: 0, questions: 0, limit: Limit::NONE };
        let world = core.messages.world();
        Self { core, patience, me: world.rank(), size: world.size(), polls: None, is_over: false }
    }

    /// A thread blocks in the call.
    pub(super) const fn blocks(&mut self)
    where
        F: Drive,
    {
        self.polls = Some((Progress::land, Progress::looks));
    }

    pub(super) const fn core(&self) -> Core<'m, F> {
        self.core
    }

    /// The call, which has not begun, is [another's](Self::of).
    pub(super) fn hand_over(self) {
        std::mem::forget(self); // it has nothing yet that is to be freed
    }

    /// Sends to a rank; ends when the slice is not needed any more.
    pub(super) async fn send(&mut self, to: u32, bytes: &[u8]) -> Outcome {
        let pending = self.core.post(to, bytes)?;
        self.sent(to, pending).await
    }

    /// Memory of a length, whose bytes are anything.
    pub(super) fn scratch(&self, len: usize) -> Outcome<Scratch<'m>> {
        self.core.state().scratch(len).map_err(|fault| self.core.failed(fault))
    }

    /// Starts to send to each of these ranks. Returns the sends that are to be [waited](Self::all_sent) for.
    pub(super) fn post_all<'b>(&self, sends: impl Iterator<Item = (u32, &'b [u8])>) -> Outcome<Sends<'b, F>>
    where
        'm: 'b,
    {
        let mut under_way = Vec::new();
        for (to, bytes) in sends {
            if let Some(send) = self.core.post(to, bytes)? {
                under_way.push((to, send));
            }
        }
        Ok(under_way)
    }

    /// Waits for all sends.
    pub(super) async fn all_sent(&mut self, sends: Sends<'_, F>) -> Outcome {
        for (to, send) in sends {
            self.sent(to, Some(send)).await?;
        }
        Ok(())
    }

    /// Waits for a send.
    pub(super) async fn sent(&mut self, to: u32, pending: Option<Pending<'_, F>>) -> Outcome {
        match pending {
            None => Ok(()),
            Some(pending) => self.patience.during(self.core, to, pin!(self.core.sent(to, pending))).await,
        }
    }

    /// Receives from a rank what fills a slice.
    #[inline]
    pub(super) async fn recv(&mut self, from: u32, into: &mut [u8]) -> Outcome {
        let begun = self.core.receive(from, into)?;
        match self.landed(begun, into)? {
            None => Ok(()),
            Some(begun) => self.received(from, begun, into).await,
        }
    }

    /// A receive that has begun, unless it is over already, or after some polls.
    #[inline]
    fn landed(&self, begun: Begun<'m, F>, into: &mut [u8]) -> Outcome<Option<Begun<'m, F>>> {
        let landed = match (begun, self.polls) {
            (Ok(Received::Landed(landed)), _) => landed,
            (Err(mut posted), Some((land, _))) => match posted.land(into, land) {
                Some(landed) => landed,
                None => return Ok(Some(Err(posted))),
            },
            (begun, _) => return Ok(Some(begun)),
        };
        self.core.landed(&landed, into.len()).map(|()| None)
    }

    async fn received(&mut self, from: u32, begun: Begun<'m, F>, into: &mut [u8]) -> Outcome {
        self.patience.during(self.core, from, pin!(self.core.received(from, begun, into))).await
    }

    /// Sends to a rank and receives from a rank, at the same time. The receive is waited for first:
    /// with both ranks in it, each copies its own message.
    #[inline]
    pub(super) async fn exchange(&mut self, (to, bytes): (u32, &[u8]), (from, into): (u32, &mut [u8])) -> Outcome {
        let (pending, begun) = self.core.exchange((to, bytes), (from, into))?;
        if let Some(begun) = self.landed(begun, into)? {
            self.received(from, begun, into).await?;
        }
        match pending {
            None => Ok(()),
            pending => self.sent(to, pending).await,
        }
    }

    /// Whether the ranks [publish](Self::publish) their contributions, of so many bytes.
    #[inline]
    pub(super) fn has_buffers(&self, bytes: usize) -> bool {
        bytes <= CollectiveBuffers::ROOM && self.core.state().buffers().is_some()
    }

    /// Publishes the contribution of this rank to the call, which all others [take](Self::take). `false`: there
    /// is no room for it, and messages go in its place.
    #[inline]
    pub(super) fn publish(&self, bytes: &[u8]) -> bool {
        let buffers = self.core.state().buffers();
        buffers.is_some_and(|buffers| buffers.publish(self.core.number, self.core.tags(), bytes))
    }

    /// [Publishes](Self::publish) the contribution, or sends it to all: the messages, to be
    /// [waited](Self::contributed_to_all) for.
    #[inline]
    pub(super) fn contribute<'b>(&self, bytes: &'b [u8]) -> Outcome<Option<Sends<'b, F>>>
    where
        'm: 'b,
    {
        match self.publish(bytes) {
            true => Ok(None),
            false => self.post_all(self.others().map(|to| (to, bytes))).map(Some),
        }
    }

    /// Waits for the messages of a [contribution](Self::contribute), if there are any.
    #[inline]
    pub(super) async fn contributed_to_all(&mut self, sends: Option<Sends<'_, F>>) -> Outcome {
        match sends {
            None => Ok(()),
            Some(sends) => Box::pin(self.all_sent(sends)).await,
        }
    }

    /// The other ranks, those after this one first.
    pub(super) fn others(&self) -> impl Iterator<Item = u32> + use<F> {
        let (me, size) = (self.me, self.size);
        (1..size).map(move |step| (me + step) % size)
    }

    /// Gets the bytes at an offset of the contribution of a rank, which has that length, or a message that it
    /// sends in its place. What waits is apart from the call, as few steps do.
    #[inline]
    pub(super) async fn take(&mut self, from: u32, part: (usize, usize), into: &mut [u8]) -> Outcome {
        match self.core.contributed(from, part, into) {
            Some(taken) => taken,
            None => Box::pin(self.take_late(from, part, into)).await,
        }
    }

    async fn take_late(&mut self, from: u32, part: (usize, usize), into: &mut [u8]) -> Outcome {
        let core = self.core;
        match self.appears(from, into, |buffers| buffers.find(from, core.number).is_some()).await? {
            true => core.contributed(from, part, into).unwrap_or(Ok(())),
            false => Ok(()),
        }
    }

    /// Waits until something is there in the buffer of a rank, or for a message of it: whether it is there.
    async fn appears(
        &mut self,
        from: u32,
        into: &mut [u8],
        is_there: impl Fn(&CollectiveBuffers) -> bool,
    ) -> Outcome<bool> {
        let core = self.core;
        let is_there = || core.state().buffers().is_some_and(&is_there);
        if let Some((_, looks)) = self.polls
            && looks(core.messages.progress(), &mut || is_there())
        {
            return Ok(true);
        }
        let begun = core.receive(from, into)?;
        self.patience.during(core, from, pin!(core.arrived(from, begun, into, is_there))).await
    }

    /// Waits until a rank has reached a phase of the call. One that has withdrawn says why.
    pub(super) async fn reached(&mut self, from: u32, phase: u64) -> Outcome {
        let number = self.core.number;
        let has_reached = |buffers: &CollectiveBuffers| buffers.has_reached(from, number, phase);
        if self.core.state().buffers().is_some_and(has_reached) {
            return Ok(());
        }
        match self.appears(from, &mut [], has_reached).await? {
            true => Ok(()),
            false => Err(self.core.failed(Fault::of(FaultKind::Protocol, self.core.rank(from)?))),
        }
    }

    /// A slice does not have the length in bytes that it needs.
    pub(super) fn has_length(&self, bytes: usize, needed: usize) -> Outcome {
        if bytes == needed {
            return Ok(());
        }
        Err(self.refused(Reason::Slice, [bytes as u64, needed as u64]))
    }

    /// This rank's arguments are wrong.
    pub(super) fn refused(&self, reason: Reason, words: [u64; 2]) -> Box<CallFailure> {
        let me = self.core.messages.world().fabric().rank();
        let fault = Fault::of(FaultKind::OutOfRange, me).with_detail(self.core.element.into());
        self.core.failure(reason, fault, words)
    }

    /// Ends the call, also at the others if it failed.
    pub(super) async fn end(&mut self, outcome: Outcome) -> Result<(), Error> {
        self.is_over = true;
        if self.core.number.is_multiple_of(MOVES) && self.core.state().buffers().is_some() {
            self.core.messages.progress().advance();
        }
        let outcome = outcome.and_then(|()| self.core.has_no_strays());
        let Core { messages, collective, number, .. } = self.core;
        let Err(failure) = outcome else { return Ok(()) };
        let failure = self.core.cause(failure).await;
        self.core.fail(&failure);
        Err(super::failure::error(messages, (collective, number), &failure))
    }
}

impl<F: Fabric> Drop for Link<'_, F> {
    fn drop(&mut self) {
        if !self.is_over {
            // Its request was dropped, or its deadline has passed, which its rank has told then.
            let me = self.core.messages.world().fabric().rank();
            self.core.fail(&self.core.failure(Reason::Dropped, Fault::of(FaultKind::Closed, me), [0; 2]));
        }
        if self.patience.questions > 0 {
            self.core.messages.progress().with(|engine| engine.ends_call(self.core.key()));
        }
        self.core.state().end();
    }
}
