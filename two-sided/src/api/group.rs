//! The creation of a communicator by its members alone.
//!
//! The lowest rank of the list, the *leader*, decides; nobody else is spoken to. The messages are of a
//! context of the communicator that they are all in:
//!
//! ```text
//! member   -> leader   its list, and the key of its segment for collectives, or why it has none
//! leader   -> member   the number of the communicator and all keys, or why there is none
//! member   -> leader   whether it has reached its neighbours
//! leader   -> member   whether all have
//! ```
//!
//! A leader that fails sends the fault to all members in place of its next message. A member that
//! fails or is dropped sends the fault to the leader. A rank that saw a failure refuses its tag from then
//! on: messages of the failed creation may still come, which its next creation drains; so ranks may be some
//! hundred failed creations apart, and not more.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};
use onesided_fabric::shm::introduce_process;
use onesided_fabric::{Call, Fabric, Limit, NOBODY, Segment, SegmentKey, WORLD_BYTES, World, debug, limited, lock};

use crate::api::create::{Making, Shared, failed, test_next};
use crate::api::messages;
use crate::{Error, Messages, Source, Tag, WrongMembers};

/// A pending [`Messages::create_group`]: `.wait()` blocks, `.await` suspends, `.test()` polls once.
/// Does nothing unless waited on or polled.
#[must_use = "a communicator that nobody waits for is not made"]
pub struct CreateGroup<'m, F: Fabric> {
    messages: &'m Messages<F>,
    tag: Tag,
    /// The rank that is waited for.
    awaited: Arc<AtomicU32>,
    limit: Limit<'m, F>,
    call: Call<'m, Box<[u32]>, Result<Messages<F>, Error>>,
}

impl<F: Fabric> Messages<F> {
    /// A communicator of some of this one's ranks, made by them alone (`MPI_Comm_create_group`,
    /// MPI-4.1, section 7.4): in the order of the list, from 0, with a [world](Self::world) of theirs.
    /// Collective among the ranks of the list, which all give the same one, and the same tag. The
    /// tag tells creations apart that threads of a rank are in at the same time. It is not one of
    /// messages.
    ///
    /// ```
    /// use onesided_two_sided::{Messages, Op, Tag};
    ///
    /// onesided_fabric::threads(4, |world| {
    ///     let messages = Messages::new(&world).wait()?;
    ///     let members = [3, 0, 1];
    ///     if members.contains(&world.rank()) {
    ///         let group = messages.create_group(&members, Tag(0)).wait()?; // rank 2 takes no part
    ///         let mut sum = [world.rank()];
    ///         group.all_reduce(&mut sum, Op::Sum).wait()?;
    ///         assert_eq!((sum[0], members[group.world().rank() as usize]), (4, world.rank()));
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
    /// Without a message, at this rank alone: [`Error::Rank`]; [`Error::Members`], if the list lacks
    /// this rank or has a rank twice.
    ///
    /// At all ranks of the list: [`Error::Members`], if a rank gave another list with the same lowest
    /// rank, or gave up; [`Error::Create`], if a rank died, left or has no memory, or if the lowest
    /// rank has used its share of the 2^28 numbers that a job has for communicators of some ranks.
    ///
    /// [`Error::Create`] with [`TimedOut`](FaultKind::TimedOut), if the
    /// [deadline](CreateGroup::deadline) passed. A rank waits until then for a member that does not
    /// call this function with this tag, and for one whose list has another lowest rank.
    ///
    /// After a failure make the next one with another tag: those with this tag fail at the ranks that
    /// saw the failure.
    ///
    /// # Cancel safety
    /// Not cancel safe: if a handle is dropped after its first poll, the creation fails at the other
    /// ranks too, or, if they have the communicator already, its collectives do.
    pub fn create_group(&self, members: &[u32], tag: Tag) -> CreateGroup<'_, F> {
        CreateGroup::new(self, members, tag)
    }
}

/// The detail of an `OutOfStep` that says that a rank gave another list. Otherwise it gave up.
const OTHER_LIST: u32 = 1;

const OK: u64 = 0;

/// A creation at a rank. Ranks are those of the communicator that it begins with, also in faults.
struct Creation<'c, F: Fabric> {
    messages: Messages<F>,
    members: &'c [u32],
    leader: u32,
    tag: Tag,
    awaited: &'c AtomicU32,
    is_over: bool,
}

impl<'m, F: Fabric> CreateGroup<'m, F> {
    pub(crate) fn new(messages: &'m Messages<F>, members: &[u32], tag: Tag) -> Self {
        let awaited = Arc::new(AtomicU32::new(messages.world().rank()));
        Self { messages, tag, awaited, limit: Limit::NONE, call: Call::NotStarted(members.into()) }
    }

    fn late(&self) -> Error {
        failed(Fault::of(FaultKind::TimedOut, Rank(self.awaited.load(Ordering::Relaxed))))
    }

    async fn run(
        messages: &Messages<F>,
        members: Box<[u32]>,
        tag: Tag,
        awaited: Arc<AtomicU32>,
    ) -> Result<Messages<F>, Error> {
        let leader = check(messages.world(), &members)?;
        let (messages, awaited) = (messages.of_groups(), &*awaited);
        let mut creation = Creation { messages, members: &members, leader, tag, awaited, is_over: false };
        let made = creation.run().await;
        creation.is_over = true;
        made.map_err(|fault| {
            creation.fail(fault);
            match (fault.kind(), fault.rank()) {
                (FaultKind::OutOfStep, Some(Rank(rank))) => {
                    let is_other = fault.detail() == OTHER_LIST;
                    Error::Members { rank, wrong: if is_other { WrongMembers::Others } else { WrongMembers::GaveUp } }
                }
                _ => failed(fault),
            }
        })
    }
}

/// Checks a list of members: the lowest of them.
fn check<F: Fabric>(world: &World<F>, members: &[u32]) -> Result<u32, Error> {
    let (me, size) = (world.rank(), world.size());
    let mut sorted = members.to_vec();
    sorted.sort_unstable();
    if let Some(rank) = sorted.last().copied().filter(|last| *last >= size) {
        return Err(Error::Rank { operation: "create_group", rank, size });
    }
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Error::Members { rank: pair[0], wrong: WrongMembers::Twice });
    }
    match sorted.binary_search(&me) {
        Ok(_) => Ok(sorted[0]),
        Err(_) => Err(Error::Members { rank: me, wrong: WrongMembers::Absent }),
    }
}

fn word(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().copied().map(u64::from_le_bytes)
}

fn outcome<T>(outcome: &Result<T, Fault>) -> [u8; 8] {
    outcome.as_ref().err().map_or(OK, |fault| fault.to_bits()).to_le_bytes()
}

impl<F: Fabric> Creation<'_, F> {
    async fn run(&self) -> Result<Messages<F>, Fault> {
        let world = self.messages.world();
        introduce_process(world.fabric());
        if lock(self.messages.failed_tags()).contains(&self.tag) {
            return Err(self.gave_up());
        }
        self.drain();
        let own = self.allocate();
        let answer = if self.is_leader() {
            self.lead(own.as_ref().map(Segment::key).map_err(|fault| *fault)).await?
        } else {
            let mut mine = outcome(&own).to_vec();
            mine.extend(own.iter().flat_map(|own| own.key().to_bytes()));
            mine.extend(self.list());
            self.send(self.leader, &mine).await?;
            self.receive(self.leader).await?
        };
        // Kept until the leader knows of this rank's failure: others would take this rank's end for the cause.
        let own = own?;
        let members = self.reach(own.clone(), self.rest_of(&answer, self.leader)?);
        if self.is_leader() {
            members.as_ref().map_err(|fault| *fault)?;
            for member in self.others() {
                self.rest_of(&self.receive(member).await?, member)?;
            }
            for member in self.others() {
                let probe = pin!(self.messages.probe(member, self.tag));
                if probe.poll(&mut Context::from_waker(NOBODY)).is_ready() {
                    self.rest_of(&self.receive(member).await?, member)?; // it gave up meanwhile
                }
            }
            self.tell_all(&OK.to_le_bytes());
        } else {
            self.send(self.leader, &outcome(&members)).await?;
            self.rest_of(&self.receive(self.leader).await?, self.leader)?;
        }
        Ok(members?.made())
    }

    /// Receives what has come for failed creations, and would take its sender's credit for good.
    fn drain(&self) {
        let tags = lock(self.messages.failed_tags()).clone();
        let cx = &mut Context::from_waker(NOBODY);
        for tag in tags {
            while let Poll::Ready(Ok(_)) = pin!(self.messages.recv::<u8>(Source::Any, tag)).poll(cx) {}
        }
    }

    /// This rank's segment for the collectives of the new world.
    fn allocate(&self) -> Result<F::Segment, Fault> {
        let world = self.messages.world();
        world.fabric().allocate(WORLD_BYTES).map_err(|error| world.translate(error.fault()))
    }

    /// Collects the keys, and sends them to all.
    async fn lead(&self, own: Result<SegmentKey, Fault>) -> Result<Vec<u8>, Fault> {
        let (world, own) = (self.messages.world(), own?);
        let mut answer = OK.to_le_bytes().to_vec();
        let number = Shared::of(world).number_part(world.fabric()).map_err(|fault| world.translate(fault))?;
        answer.extend(number.to_le_bytes());
        for member in self.members {
            let key = if *member == self.leader { own } else { self.key_of(*member).await? };
            answer.extend(key.to_bytes());
        }
        let sends: Vec<_> = self.others().map(|member| self.messages.send(&answer, member, self.tag)).collect();
        let mut sent = Ok(());
        for send in sends {
            sent = sent.and(send.await.map_err(|error| error.fault()));
        }
        sent.map(|()| answer)
    }

    async fn key_of(&self, member: u32) -> Result<SegmentKey, Fault> {
        let said = self.receive(member).await?;
        let protocol = Fault::of(FaultKind::Protocol, Rank(member));
        let (key, list) = self.rest_of(&said, member)?.split_at_checked(SegmentKey::BYTES).ok_or(protocol)?;
        if !self.list().eq(list.iter().copied()) {
            return Err(Fault::of(FaultKind::OutOfStep, Rank(member)).with_detail(OTHER_LIST));
        }
        SegmentKey::from_bytes(key).ok_or(protocol)
    }

    /// The new world and its communicator, from the leader's answer.
    fn reach(&self, own: F::Segment, answer: &[u8]) -> Result<Making<F>, Fault> {
        let (world, protocol) = (self.messages.world(), Fault::of(FaultKind::Protocol, Rank(self.leader)));
        let (number, keys) = answer.split_first_chunk().ok_or(protocol)?;
        let keys: Option<Vec<_>> = keys.chunks(SegmentKey::BYTES).map(SegmentKey::from_bytes).collect();
        let ranks = self.members.iter().map(|member| world.fabric_rank(*member));
        let keys = keys.filter(|keys| keys.iter().map(|key| Some(key.rank)).eq(ranks)).ok_or(protocol)?;
        let members = world.of_members(own, keys).map_err(|fault| {
            let freed = fault.rank().filter(|_| fault.kind() == FaultKind::NoSuchRegion);
            world.translate(freed.map_or(fault, |rank| match world.fabric().liveness(rank).needed(rank) {
                Ok(()) => Fault::of(FaultKind::OutOfStep, rank), // it gave up
                Err(lost) => lost,
            }))
        })?;
        test_next(&members);
        let context = messages::Context::open(self.messages.shared_progress(), u32::from_le_bytes(*number));
        Ok(Making { world: members, context: Some(context), buffers: None, fault: None })
    }

    async fn send(&self, to: u32, bytes: &[u8]) -> Result<(), Fault> {
        self.awaited.store(to, Ordering::Relaxed);
        self.messages.send(bytes, to, self.tag).await.map_err(|error| error.fault())
    }

    async fn receive(&self, from: u32) -> Result<Vec<u8>, Fault> {
        self.awaited.store(from, Ordering::Relaxed);
        Ok(self.messages.recv(from, self.tag).await.map_err(|error| error.fault())?.0)
    }

    fn is_leader(&self) -> bool {
        self.messages.world().rank() == self.leader
    }

    fn others(&self) -> impl Iterator<Item = u32> {
        self.members.iter().copied().filter(|member| *member != self.leader)
    }

    fn list(&self) -> impl Iterator<Item = u8> {
        self.members.iter().flat_map(|member| member.to_le_bytes())
    }

    /// What follows the first word of a message, unless that is a fault. Of a lost connection with
    /// this rank its other end is named.
    fn rest_of<'b>(&self, bytes: &'b [u8], from: u32) -> Result<&'b [u8], Fault> {
        let fault = match word(bytes) {
            Some(OK) => return Ok(&bytes[8..]),
            other => other.and_then(Fault::from_bits).unwrap_or(Fault::of(FaultKind::Protocol, Rank(from))),
        };
        let me = Rank(self.messages.world().rank());
        let is_with_me = fault.kind() == FaultKind::ConnectionLost && fault.rank() == Some(me);
        Err(if is_with_me { Fault::of(fault.kind(), Rank(from)) } else { fault })
    }

    fn gave_up(&self) -> Fault {
        Fault::of(FaultKind::OutOfStep, Rank(self.messages.world().rank()))
    }

    /// Sends to all members, without waiting: one that is lost need not hear it.
    fn tell_all(&self, bytes: &[u8]) {
        self.others().for_each(|member| drop(self.messages.send(bytes, member, self.tag)));
    }

    /// The creation has failed here: the leader hears it, and all hear it of the leader.
    fn fail(&self, fault: Fault) {
        lock(self.messages.failed_tags()).insert(self.tag);
        let why = fault.to_bits().to_le_bytes();
        if self.is_leader() {
            self.tell_all(&why);
        } else {
            drop(self.messages.send(&why, self.leader, self.tag));
        }
    }
}

impl<F: Fabric> Drop for Creation<'_, F> {
    fn drop(&mut self) {
        if !self.is_over {
            self.fail(self.gave_up());
        }
    }
}

limited! {
    ['m, F], CreateGroup<'m, F>, Messages<F>, Error, |create| create.messages.world().fabric(),
    |members| Self::run(create.messages, members, create.tag, Arc::clone(&create.awaited)), late create.late();
    /// Gives up after this time, counted from the next poll.
    deadline;
    /// Blocks until every rank of the list has arrived.
    ///
    /// # Errors
    /// See [`Messages::create_group`].
    wait
}

debug!([F: Fabric] CreateGroup<'_, F>, |this| "creation of a communicator by some ranks of {:?}", this.messages);
