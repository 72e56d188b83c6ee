//! Communicators.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock};

use onesided_fabric::bootstrap::fork;
use onesided_fabric::remote_memory::{Fault, FaultKind, Liveness, Rank};
use onesided_fabric::shm::CollectiveBuffers;
use onesided_fabric::{Fabric, Wait, World, debug, lock};

use crate::api::destination::{AllOf, Room};
use crate::api::send::Content;
use crate::collectives::{State, on_fabric, tell_all};
use crate::driver::progress::{Progress, Registered};
use crate::engine::matching::{COLLECTIVE, Envelope, GROUPS, LOCK, Pattern};
use crate::engine::{CallFailure, Engine, Landed, Reason};
use crate::{
    CreateMessages, Error, MatchProbe, Payload, Probe, ProgressMode, Receive, Recv, RecvInto, Registrations,
    SendRequest, Shape, Source, Status, Tag, Tags, Unmatched,
};

/// A communicator: messages among the ranks of a [`World`], apart from those of every other
/// communicator (`MPI_Comm`).
///
/// ```
/// use onesided_two_sided::{Messages, Source, Tag};
///
/// onesided_fabric::threads(3, |world| {
///     let messages = Messages::new(&world).wait()?;
///     if world.rank() == 0 {
///         for _ in 1..world.size() {
///             let (halves, status) = messages.recv::<f64>(Source::Any, Tag(1)).wait()?;
///             assert_eq!(halves, [f64::from(status.source) / 2.0; 1000]);
///         }
///     } else {
///         messages.send(&[f64::from(world.rank()) / 2.0; 1000], 0, Tag(1)).wait()?;
///     }
///     Ok(())
/// })
/// .unwrap()
/// .into_iter()
/// .collect::<Result<(), onesided_two_sided::Error>>()
/// .unwrap();
/// ```
///
/// Messages from one rank to another that the same receive fits are received in the order in which
/// they were sent (MPI-4.1, section 3.5). Threads may share a communicator.
///
/// A message that fits a packet (8 KiB on shared memory, 2 KiB on cards) is sent *eagerly*, if the
/// [rules](crate::Rules) have no other way for it: it is on its way when
/// [`send`](Self::send) returns, whether there is a receive or not. A longer one, and one of more
/// than 2 KiB that finds no room, is sent by *rendezvous*: its receiver reads it by RDMA (RGET:
/// sur-2006, section 4), or its sender [writes](Self::set_rendezvous) it, whole (RPUT: section 3)
/// or in pieces (pipeline: woodall-2006). What a rank keeps of messages without a receive is
/// bounded: 256 KiB of each other rank, less among more than 64 ranks; more wait at their senders.
///
/// Messages move while this rank is in a call that waits, for whatever: a message, a lock, a
/// barrier (MPI-4.1, section 2.9). In the simulator they move in waits for messages, and by the
/// thread or handler of a [mode](Self::set_progress).
pub struct Messages<F: Fabric = onesided_fabric::Any> {
    /// Dropped first. None: of a task, which does not keep its communicator.
    open: Option<Arc<Open<F>>>,
    world: World<F>,
    context: Arc<Context<F>>,
    /// Members whose failure does not end receives from any rank.
    acknowledged: Arc<Mutex<BTreeSet<u32>>>,
}

impl<F: Fabric> Clone for Messages<F> {
    fn clone(&self) -> Self {
        Self { open: self.open.clone(), ..self.of_task() }
    }
}

debug!([F: Fabric] Messages<F>, |this| "communicator {} of {} ranks", this.context.number & !LOCK, this.world.size());

/// What the handles of one communicator share.
#[derive(Debug)]
pub(crate) struct Context<F: Fabric> {
    progress: Arc<Progress<F>>,
    number: u32,
    /// Whether the members can read one another's slices.
    may_offer: bool,
    collectives: State,
    /// The messages that make [communicators of some members](Messages::create_group).
    groups: OnceLock<Arc<Self>>,
    /// Of these messages: the tags with which a creation has failed.
    failed_tags: Mutex<BTreeSet<Tag>>,
}

/// The handles of one communicator that its user has.
struct Open<F: Fabric>(Arc<Context<F>>);

impl<F: Fabric> Drop for Open<F> {
    fn drop(&mut self) {
        self.0.progress.tasks.end(|(communicator, _)| *communicator == self.0.number);
    }
}

impl<F: Fabric> Context<F> {
    /// From now on messages are kept for it, which members send that have it already.
    pub(crate) fn open(progress: Arc<Progress<F>>, number: u32) -> Self {
        let early = progress.with(|engine| {
            engine.open(number);
            engine.early()
        });
        let (groups, failed_tags) = (OnceLock::new(), Mutex::default());
        Self { progress, number, may_offer: false, collectives: State::new(early), groups, failed_tags }
    }

    /// Ends all calls of the members that have it, as this rank has not: by a fault, or because it was dropped.
    #[cold]
    pub(crate) fn fail(&self, world: &World<F>, fault: Option<Fault>) {
        let me = world.fabric().rank();
        let reason = if fault.is_some() { Reason::Fault } else { Reason::Dropped };
        let fault = fault.map_or(Fault::of(FaultKind::Closed, me), |fault| on_fabric(world, fault));
        let failure = CallFailure { reason, fault, number: 1, origin: me, words: [0; 2] };
        tell_all(&self.progress, world, self.number | COLLECTIVE, &failure);
    }
}

impl<F: Fabric> Drop for Context<F> {
    fn drop(&mut self) {
        self.progress.close(self.number);
    }
}

impl<F: Fabric> Messages<F> {
    /// A communicator of the ranks of a world. Collective, once it is waited on: a rank makes its
    /// communicators one after the other, also those of different worlds.
    ///
    /// # Errors
    /// [`Error::Create`]: a rank died or left, the deadline passed, or something else has the
    /// fabric's [packets](Fabric::transport). [`Error::Rules`]: `ONESIDED_MESSAGES_RULES`
    /// of this process is wrong; of up to 1,024 ranks the others fail too, by a fault that names it.
    /// Ranks that have the communicator when its creation fails at another one get that fault from its
    /// collectives.
    ///
    /// # Cancel safety
    /// Not cancel safe: collective, as a [barrier](World::barrier).
    #[expect(clippy::new_ret_no_self)] // a handle of one, as every collective call returns
    pub const fn new(world: &World<F>) -> CreateMessages<'_, F> {
        CreateMessages::new(world)
    }

    pub(crate) fn of(
        world: &World<F>,
        mut context: Context<F>,
        (may_offer, buffers): (bool, Option<CollectiveBuffers>),
    ) -> Self {
        context.may_offer = may_offer;
        context.collectives.set_buffers(buffers);
        let context = Arc::new(context);
        let open = Some(Arc::new(Open(Arc::clone(&context))));
        Self { open, world: world.clone(), context, acknowledged: Arc::default() }
    }

    /// A handle for a task, which ends with those of the user.
    pub(crate) fn of_task(&self) -> Self {
        let (context, acknowledged) = (Arc::clone(&self.context), Arc::clone(&self.acknowledged));
        Self { open: None, world: self.world.clone(), context, acknowledged }
    }

    /// The same, which does not keep this rank in the world.
    pub(crate) fn of_background(&self) -> Self {
        Self { world: self.world.background(), ..self.of_task() }
    }

    /// The messages by which some of the members make a communicator.
    pub(crate) fn of_groups(&self) -> Self {
        let Context { progress, number, groups, .. } = &*self.context;
        let context = groups.get_or_init(|| Arc::new(Context::open(Arc::clone(progress), number | GROUPS)));
        Self { context: Arc::clone(context), ..self.of_task() }
    }

    /// The tags with which a creation has failed, [of these messages](Self::of_groups).
    pub(crate) fn failed_tags(&self) -> &Mutex<BTreeSet<Tag>> {
        &self.context.failed_tags
    }

    /// The ranks of the communicator.
    pub const fn world(&self) -> &World<F> {
        &self.world
    }

    /// Sends a message (`MPI_Send`, `MPI_Isend`). The call starts it. The handle is complete when the
    /// message is on its way, if it is eager, or when the receiver has read it. A receiver on
    /// this host reads a long one out of the slice itself. A message to this rank itself is copied
    /// before the call returns, and completes without a receive.
    ///
    /// # Errors
    /// From the handle: [`Error::Rank`]; [`Error::Send`]: the receiver died, left or could not read
    /// the message, or this rank has no memory for its copy.
    ///
    /// # Cancel safety
    /// A dropped handle does not stop the message, but its failure is not reported; the drop copies
    /// a long one that was not read yet. Of a handle that is leaked ([`forget`](std::mem::forget))
    /// the receiver may get other bytes, if the slice changes. Like all messages it moves while this
    /// rank waits: one that is not on its way when the rank leaves is lost.
    #[inline]
    pub fn send<'m, T: Payload>(&'m self, elements: &'m [T], to: u32, tag: Tag) -> SendRequest<'m, F> {
        SendRequest::start(self, self.rank("send", to), Ok(Content::of(elements)), (to, tag, false))
    }

    /// Sends the elements of a slice that a shape selects, in the shape's order. Only their bytes are
    /// sent: the receiver may have another [shape](Self::recv_shaped), or none. Contiguous ones are
    /// sent as by [`send`](Self::send); others are packed before the call returns, a long message into
    /// registered memory.
    ///
    /// A column of a matrix goes to a neighbour, which receives it into a column of its own:
    ///
    /// ```
    /// use onesided_two_sided::{Messages, Shape, Tag};
    ///
    /// const COLUMN: Shape = Shape::Vector { count: 4, block: 1, stride: 10 };
    ///
    /// onesided_fabric::threads(2, |world| {
    ///     let messages = Messages::new(&world).wait()?;
    ///     let mut matrix = [world.rank(); 4 * 10]; // 4 rows of 10, the first and last columns are halo
    ///     if world.rank() == 0 {
    ///         messages.send_shaped(&matrix[8..], COLUMN, 1, Tag(0)).wait()?;
    ///     } else {
    ///         messages.recv_shaped(&mut matrix, COLUMN, 0, Tag(0)).wait()?;
    ///         assert_eq!(matrix[..11], [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0]);
    ///     }
    ///     Ok(())
    /// })
    /// .unwrap()
    /// .into_iter()
    /// .collect::<Result<(), onesided_two_sided::Error>>()
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// From the handle: as [`send`](Self::send), and [`Error::Range`].
    ///
    /// # Cancel safety
    /// As [`send`](Self::send).
    pub fn send_shaped<'m, T: Payload>(
        &'m self,
        elements: &'m [T],
        shape: Shape<'_>,
        to: u32,
        tag: Tag,
    ) -> SendRequest<'m, F> {
        SendRequest::start(self, self.rank("send", to), Content::shaped(elements, shape), (to, tag, false))
    }

    /// Sends a message whose handle is complete when a receive that fits was posted and has begun to
    /// get it (`MPI_Ssend`, `MPI_Issend`: MPI-4.1, section 3.4). It goes by rendezvous, however short
    /// it is. If that receive is dropped afterwards, the next one that fits gets the message.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// # Cancel safety
    /// As [`send`](Self::send).
    pub fn send_synchronous<'m, T: Payload>(&'m self, elements: &'m [T], to: u32, tag: Tag) -> SendRequest<'m, F> {
        SendRequest::start(self, self.rank("send", to), Ok(Content::of(elements)), (to, tag, true))
    }

    /// [`send_shaped`](Self::send_shaped), complete when
    /// [`send_synchronous`](Self::send_synchronous) is.
    ///
    /// # Errors
    /// As [`send_shaped`](Self::send_shaped).
    ///
    /// # Cancel safety
    /// As [`send`](Self::send).
    pub fn send_synchronous_shaped<'m, T: Payload>(
        &'m self,
        elements: &'m [T],
        shape: Shape<'_>,
        to: u32,
        tag: Tag,
    ) -> SendRequest<'m, F> {
        SendRequest::start(self, self.rank("send", to), Content::shaped(elements, shape), (to, tag, true))
    }

    /// Receives the next message (`MPI_Recv`, `MPI_Irecv`) from a rank, or from any, with a tag, or
    /// with any. The receive is posted when the call returns.
    ///
    /// # Errors
    /// From the handle: [`Error::Rank`]; [`Error::Receive`]: the rank died or left and no message
    /// of it is left, or, from [any](Source::Any) rank, a member of the communicator died ([which
    /// may be acknowledged](Self::acknowledge_failures)), or all others left; [`Error::Read`];
    /// [`Error::Length`].
    ///
    /// # Cancel safety
    /// A dropped handle cancels the receive. A message it had matched is at its place again, also
    /// while it moves: the next receive that fits gets it, before any later message.
    pub fn recv<T: Payload>(&self, from: impl Into<Source>, tag: impl Into<Tags>) -> Recv<'_, T, F> {
        let wanted = (from.into(), tag.into());
        Receive::start(self, AllOf::new(), wanted, self.pattern("recv", wanted))
    }

    /// The same into a slice, whose length in elements a message may not exceed. Of a longer one
    /// the slice holds the beginning, and the rest is lost ([`Error::Length`]).
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    ///
    /// # Cancel safety
    /// As [`recv`](Self::recv); the slice may have been written.
    #[inline]
    pub fn recv_into<'m, T: Payload>(
        &'m self,
        into: &'m mut [T],
        from: impl Into<Source>,
        tag: impl Into<Tags>,
    ) -> RecvInto<'m, F> {
        let wanted = (from.into(), tag.into());
        Receive::start(self, Room::of(into), wanted, self.pattern("recv", wanted))
    }

    /// Receives into the elements of a slice that a shape selects, in the shape's order, as by
    /// [`recv_into`](Self::recv_into). The elements between them are not written. Where runs overlap,
    /// the later one stays. The shape may be another than the sender's, or the sender may have
    /// [none](Self::send).
    ///
    /// # Errors
    /// As [`recv`](Self::recv), and [`Error::Range`].
    ///
    /// # Cancel safety
    /// As [`recv_into`](Self::recv_into).
    pub fn recv_shaped<'m, T: Payload>(
        &'m self,
        into: &'m mut [T],
        shape: Shape<'m>,
        from: impl Into<Source>,
        tag: impl Into<Tags>,
    ) -> RecvInto<'m, F> {
        let (wanted, (room, fits)) = ((from.into(), tag.into()), Room::shaped(into, shape));
        Receive::start(self, room, wanted, fits.and_then(|()| self.pattern("recv", wanted)))
    }

    /// The next message that a receive would get, without receiving it (`MPI_Probe`, `MPI_Iprobe`
    /// by `.test()`). Another thread may receive it first: see [`match_probe`](Self::match_probe).
    ///
    /// # Errors
    /// From the handle: as [`recv`](Self::recv).
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn probe(&self, from: impl Into<Source>, tag: impl Into<Tags>) -> Probe<'_, F> {
        Probe::of(self, from.into(), tag.into())
    }

    /// Takes the next message that a receive would get, to be received by the result alone
    /// (`MPI_Mprobe`, `MPI_Improbe` by `.test()`).
    ///
    /// # Errors
    /// From the handle: as [`recv`](Self::recv).
    ///
    /// # Cancel safety
    /// Cancel safe: the message goes to the next receive that fits.
    pub fn match_probe(&self, from: impl Into<Source>, tag: impl Into<Tags>) -> MatchProbe<'_, F> {
        MatchProbe::of_match(self, from.into(), tag.into())
    }

    /// Acknowledges the members that have died or left so far: receives and probes from
    /// [any](Source::Any) rank go on without them (`MPIX_Comm_ack_failed`). Returns them.
    pub fn acknowledge_failures(&self) -> Vec<u32> {
        let mut acknowledged = lock(&self.acknowledged);
        acknowledged.extend((0..self.world.size()).filter(|rank| !self.world.is_alive(*rank)));
        acknowledged.iter().copied().collect()
    }

    /// Who moves the messages of this rank from now on, those of all its communicators. Each rank has
    /// a mode of its own. To change it takes some ten microseconds.
    ///
    /// # Errors
    /// [`Error::Progress`]: no thread can be started. The mode is
    /// [`Polling`](ProgressMode::Polling) then.
    ///
    /// ```
    /// use onesided_two_sided::{Messages, ProgressMode, Tag};
    ///
    /// onesided_fabric::threads(2, |world| {
    ///     let messages = Messages::new(&world).wait()?;
    ///     messages.set_progress(ProgressMode::Hybrid)?;
    ///     if world.rank() == 0 {
    ///         messages.send(&vec![7_u64; 1 << 17], 1, Tag(0)).wait()?;
    ///     } else {
    ///         let receive = messages.recv::<u64>(0, Tag(0));
    ///         let computed: f64 = (1..100_000).map(f64::from).map(f64::sin).sum(); // it comes meanwhile
    ///         assert!(receive.wait()?.0.len() == 1 << 17 && computed.is_finite());
    ///     }
    ///     Ok(())
    /// })
    /// .unwrap()
    /// .into_iter()
    /// .collect::<Result<(), onesided_two_sided::Error>>()
    /// .unwrap();
    /// ```
    pub fn set_progress(&self, mode: ProgressMode) -> Result<(), Error> {
        self.context.progress.set_mode(mode).map_err(|fault| Error::Progress { mode, fault })
    }

    /// See [`set_progress`](Self::set_progress).
    pub fn progress_mode(&self) -> ProgressMode {
        self.progress().handler().mode()
    }

    /// The memory that this rank has registered for its messages so far, in all its communicators,
    /// and used again. Registered memory that no message has is kept for the next ones, up to 64 MiB;
    /// what is kept beyond that for the longest time is given back.
    pub fn registrations(&self) -> Registrations {
        self.progress().registrations()
    }

    pub(crate) fn progress(&self) -> &Progress<F> {
        &self.context.progress
    }

    pub(crate) fn shared_progress(&self) -> Arc<Progress<F>> {
        Arc::clone(&self.context.progress)
    }

    pub(crate) fn may_offer(&self) -> bool {
        self.context.may_offer
    }

    pub(crate) fn context(&self) -> u32 {
        self.context.number
    }

    pub(crate) fn collectives(&self) -> &State {
        &self.context.collectives
    }

    /// The context of the messages of collectives.
    pub(crate) fn collective_context(&self) -> u32 {
        self.context.number | COLLECTIVE
    }

    /// The rank on the fabric of a rank that an operation names. The error is boxed, to keep handles small.
    #[inline]
    pub(crate) fn rank(&self, operation: &'static str, rank: u32) -> Result<Rank, Box<Error>> {
        let no_rank = || Box::new(Error::Rank { operation, rank, size: self.world.size() });
        self.world.fabric_rank(rank).ok_or_else(no_rank)
    }

    /// This rank's wait for a message, or for its receiver.
    #[cold]
    pub(crate) fn wait(&self, peer: Source, what: String) -> Wait {
        let peer = match peer {
            Source::Rank(rank) => self.world.fabric_rank(rank),
            Source::Any => None,
        };
        Wait { rank: self.world.fabric().rank(), awaited: peer.into_iter().collect(), since: None, what }
    }

    /// What a receive or a probe asks for. The error is boxed, to keep the handle small.
    #[inline]
    pub(crate) fn pattern(
        &self,
        operation: &'static str,
        (source, tags): (Source, Tags),
    ) -> Result<Pattern, Box<Error>> {
        fork::check().map_err(|fault| Error::Receive { operation, from: source, tags, fault, others: None })?;
        let source = match source {
            Source::Rank(rank) => Some(self.rank(operation, rank)?.0),
            Source::Any => None,
        };
        Ok(tags.pattern(self.context.number, source))
    }

    /// The error of a receive or a probe that took no message.
    #[cold]
    pub(crate) fn failed(&self, operation: &'static str, (from, tags): (Source, Tags), fault: Fault) -> Error {
        let fault = self.world.translate(fault);
        let may_be_mistaken = matches!(fault.kind(), FaultKind::TimedOut | FaultKind::PeerLeft);
        let wanted = self.pattern(operation, (from, tags)).ok().filter(|_| may_be_mistaken);
        let others = wanted.and_then(|wanted| {
            let (count, envelope) = self.progress().with(|engine| engine.unmatched(wanted))?;
            let Status { source, tag, .. } = self.status(envelope, 0);
            Some(Unmatched { count, source, tag })
        });
        Error::Receive { operation, from, tags, fault, others }
    }

    pub(crate) fn landed(&self, landed: &Landed) -> Status {
        self.status(landed.envelope, landed.len.into())
    }

    pub(crate) fn status(&self, envelope: Envelope, bytes: u64) -> Status {
        let source = self.world.rank_of(Rank(envelope.source)).unwrap_or(envelope.source);
        Status { source, tag: Tag(envelope.tag), bytes }
    }

    /// Why no message comes from a source, once everything that has arrived is taken in: the rank
    /// is lost; or, of any rank, a member has died and was not acknowledged, or all others have
    /// left.
    pub(crate) fn failed_source(&self, engine: &Engine<Registered<F>>, source: Source) -> Option<Fault> {
        let fabric = self.world.fabric();
        match source {
            Source::Rank(rank) => return engine.lost(self.world.fabric_rank(rank)?),
            // Others have cut this rank off.
            Source::Any if engine.lost(fabric.rank()).is_some() => return engine.lost(fabric.rank()),
            Source::Any => {}
        }
        let others = || (0..self.world.size()).filter_map(|rank| Some((rank, self.world.fabric_rank(rank)?)));
        if fabric.failure(0).is_some() {
            let acknowledged = lock(&self.acknowledged);
            let is_dead = |rank, member| !acknowledged.contains(&rank) && fabric.liveness(member) == Liveness::Dead;
            if let Some((_, member)) = others().find(|(rank, member)| is_dead(*rank, *member)) {
                return Some(Fault::of(FaultKind::PeerDied, member));
            }
        }
        // Not the rank of a failure: none of the others is there any more.
        let mut others = others().filter(|(_, member)| *member != fabric.rank()).peekable();
        let is_alone = others.peek().is_some() && !others.any(|(_, member)| fabric.liveness(member) == Liveness::Alive);
        is_alone.then(|| Fault::new(FaultKind::PeerLeft))
    }
}
