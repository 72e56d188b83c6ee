//! The conformance suite: what every fabric must do.
//!
//! Every rank of a world of any size calls [`run`]. The ranks run the same checks in lockstep and
//! exchange the result of each, so all stop at the same check with the same [`Failure`]. A rank
//! whose check fails half way still enters the check's barriers, and every wait in a check has a
//! deadline: a wrong fabric ends in a failure and not in a hang, as long as its barrier works.
//!
//! # What a new fabric writes
//!
//! | trait | methods | and where it can do more or better |
//! |---|---|---|
//! | [`RemoteMemory`](onesided_remote_memory::RemoteMemory) | `rank`, `size`, `word`, `post_link`, `load`, `store`, `wait_until`, `pause`, `now`, `liveness` | chains (`post`), failures (`has_cut`, `failure`, `lost_connection`, `ends`), `write_is_atomic` |
//! | [`Segment`] | `key`, `path` | `rank`, `len`; mapped memory (`mapped`, `populate`), memory without words (`change`) |
//! | [`Fabric`] | `capabilities`, `allocate`, `open`, `world_segment`, `word_in`, `put`, `get`, `rdma_write`, `rdma_read`, `flush`, `read_direct`, `write_direct`, `transport`, `endpoint` | user memory (`register`, `reclaim`, `part`), hosts (`host_of`, `same_host_word`), speed (`allocate_two`, `words_in`, `put_pieces`, `get_pieces`, `flush_local`, `flush_before_release`), messages (`for_messages`, `events`, `processes`), datagrams into memory (`landing_max`, `land`, `launch`), `fencing` |
//! | [`Endpoint`](crate::Endpoint) | `spawn`, `serve`, `departed`, `leave`, `abort` | `background` |
//! | [`Transport`] | `channels`, `poll_send`, `poll_recv`, `read` | `set_list`, `try_recv`, `spin`, `renewed`, `first` |
//! | [`Drive`](crate::Drive), where threads wait | `progress`, `polls`, `tasks` | `again` |
//! | [`Driver`](crate::Driver) of the [`Tasks`](crate::Tasks) | `arm`, `sleep`, `wake`, `wake_others` | `now`, `progress` |
//!
//! A fabric with events implements [`SolicitedEvents`](crate::SolicitedEvents), one that fences late
//! ranks [`Fencing`](crate::Fencing).

mod bulk;
mod landings;
mod ranks;
mod registered;
mod rendezvous;
mod segments;
mod transport;
mod waits;
mod words;

use std::cell::{Cell, RefCell, RefMut};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use onesided_remote_memory::{Fault, FaultKind, Patience, Rank, debug};

use crate::{ChannelTo, Error, Fabric, Packet, Segment, SegmentKey, Transport, World};

/// The result of a conforming fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The fabric's name.
    pub fabric: &'static str,
    /// The names of the checks, in order.
    pub passed: Vec<&'static str>,
}

/// The first check that failed, and what went wrong on which ranks.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("conformance check {check}{}", Listed(.wrong))]
pub struct Failure {
    /// Its name.
    pub check: &'static str,
    /// What was wrong, by rank.
    pub wrong: Vec<(u32, String)>,
}

debug!([] Failure, |this| "{this}");

struct Listed<'a>(&'a [(u32, String)]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(rank, wrong)| write!(f, "; rank {rank}: {wrong}"))
    }
}

/// Runs every check. All ranks of the world call it, with no other operation in flight.
///
/// # Errors
/// The first check that failed on any rank; the same one on every rank, unless the collectives
/// failed.
pub async fn run<F: Fabric>(world: &World<F>) -> Result<Summary, Failure> {
    run_of(world, |_| true).await
}

/// As [`run`], but only the checks whose names, such as `transport::flood`, are wanted.
///
/// # Errors
/// As [`run`].
pub async fn run_of<F: Fabric>(world: &World<F>, wanted: impl Fn(&str) -> bool) -> Result<Summary, Failure> {
    let mut passed = Vec::new();
    for check in checks().into_iter().filter(|check| wanted(check.name)) {
        let verdicts = check.judge(world).await;
        let wrong = match verdicts {
            Ok(verdicts) => (0..).zip(verdicts).filter(|(_, verdict)| !verdict.is_empty()).collect::<Vec<_>>(),
            Err(fault) => vec![(world.rank(), format!("collectives: {fault}"))],
        };
        if !wrong.is_empty() {
            return Err(Failure { check: check.name, wrong });
        }
        passed.push(check.name);
    }
    Ok(Summary { fabric: world.fabric().capabilities().name, passed })
}

/// A check: every rank gets a zeroed segment, runs the body, and enters this many barriers.
struct Check<F: Fabric> {
    name: &'static str,
    bytes: u64,
    barriers: u32,
    body: for<'a> fn(&'a Context<F>) -> Body<'a>,
}

type Body<'a> = Pin<Box<dyn Future<Output = Verdict> + 'a>>;
type Verdict = Result<(), Wrong>;

macro_rules! check {
    ($body:path, bytes: $bytes:expr, barriers: $barriers:expr) => {
        Check { name: stringify!($body), bytes: $bytes, barriers: $barriers, body: |context| Box::pin($body(context)) }
    };
}

fn checks<F: Fabric>() -> Vec<Check<F>> {
    vec![
        check!(ranks::know_themselves, bytes: 64, barriers: 0),
        check!(ranks::gather_any_length, bytes: 64, barriers: 0),
        check!(words::places, bytes: 64, barriers: 0),
        check!(words::neighbours, bytes: 64, barriers: 0),
        check!(words::operations, bytes: 64, barriers: 1),
        check!(words::own_word_operations, bytes: 64, barriers: 0),
        check!(words::own_words_only, bytes: 64, barriers: 1),
        check!(words::sums, bytes: 64, barriers: 1),
        check!(words::near_words, bytes: 64, barriers: 2),
        check!(words::compare_swap_counters, bytes: 64, barriers: 1),
        check!(words::writes_in_order, bytes: 64, barriers: 0),
        check!(words::chains, bytes: 64, barriers: 0),
        check!(words::dropped_operations, bytes: 64, barriers: 1),
        check!(waits::immediate, bytes: 64, barriers: 0),
        check!(waits::woken, bytes: 64, barriers: 0),
        check!(waits::deadline, bytes: 64, barriers: 0),
        check!(waits::dropped, bytes: 64, barriers: 1),
        check!(waits::pauses, bytes: 64, barriers: 0),
        check!(waits::adopted, bytes: 64, barriers: 0),
        check!(bulk::sizes_and_offsets, bytes: bulk::AREA, barriers: 0),
        check!(bulk::long, bytes: bulk::LONG, barriers: 1),
        check!(bulk::flushed, bytes: bulk::FLUSHED, barriers: 0),
        check!(bulk::ranges, bytes: 100, barriers: 0),
        check!(bulk::whole_words, bytes: 64, barriers: 0),
        check!(bulk::data_before_flag, bytes: 1024, barriers: 0),
        check!(bulk::transfers, bytes: bulk::TRANSFERS, barriers: 1),
        check!(bulk::own_bytes, bytes: 100, barriers: 1),
        check!(segments::keys, bytes: 64, barriers: 1),
        check!(segments::allocation, bytes: 64, barriers: 0),
        check!(segments::many, bytes: segments::KEYS, barriers: 2),
        check!(segments::dropped_transfers, bytes: segments::SOURCE, barriers: 1),
        check!(registered::memory, bytes: registered::KEY, barriers: 5),
        check!(registered::transfers, bytes: registered::KEY, barriers: 3),
        check!(registered::changed, bytes: registered::KEY, barriers: 3),
        check!(registered::parts, bytes: registered::KEY, barriers: 5),
        check!(registered::dropped, bytes: 64, barriers: 0),
        check!(transport::all_to_all, bytes: 64, barriers: 0),
        check!(transport::edges, bytes: 64, barriers: 0),
        check!(transport::parts, bytes: 64, barriers: 0),
        check!(transport::flood, bytes: 64, barriers: 0),
        check!(transport::dropped, bytes: 64, barriers: 0),
        check!(transport::deadline, bytes: 64, barriers: 0),
        check!(transport::woken, bytes: 64, barriers: 0),
        check!(rendezvous::read, bytes: 64, barriers: 0),
        check!(rendezvous::write, bytes: 64, barriers: 0),
        check!(landings::arrive, bytes: 64, barriers: landings::ROUNDS),
        check!(landings::limits, bytes: 64, barriers: 0),
    ]
}

impl<F: Fabric> Check<F> {
    /// The complaints by rank; an empty string is none.
    async fn judge(&self, world: &World<F>) -> Result<Vec<String>, Fault> {
        let own = world.fabric().allocate(self.bytes);
        let key = own.as_ref().map(|own| own.key().to_bytes().to_vec()).unwrap_or_default();
        let keys = world.all_gather(&key).await.map_err(|error| error.fault())?;
        // Held until all ranks have reported: no segment is freed while a rank uses it.
        let context = own.map_err(Wrong::from).and_then(|own| Context::new(world, own, &keys));
        let verdict = match &context {
            Ok(context) => (self.body)(context).await,
            Err(wrong) => Err(wrong.clone()),
        };
        let come_to = context.as_ref().map_or(0, |context| context.barriers.get());
        for _ in come_to..self.barriers {
            world.barrier().deadline(LONG).await.map_err(|error| error.fault())?;
        }
        Self::tell(world, verdict).await
    }

    async fn tell(world: &World<F>, verdict: Verdict) -> Result<Vec<String>, Fault> {
        let mut text = verdict.err().map(|Wrong(text)| text).unwrap_or_default();
        while text.len() > 512 {
            text.pop();
        }
        let all = world.all_gather(text.as_bytes()).await.map_err(|error| error.fault())?;
        Ok(all.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect())
    }
}

/// No barrier of a working fabric takes longer.
const LONG: Duration = Duration::from_secs(30);
/// No wait of a working fabric takes longer, in nanoseconds.
const SOON: u64 = 10_000_000_000;
/// Long enough for a waiting rank to fall asleep; in nanoseconds.
const NAP: u64 = 5_000_000;

/// The environment of a check.
struct Context<F: Fabric> {
    world: World<F>,
    /// The segments by rank, this rank's included.
    segments: Vec<F::Segment>,
    packets: RefCell<F::Transport>,
    /// How many barriers this rank has entered.
    barriers: Cell<u32>,
}

impl<F: Fabric> Context<F> {
    fn new(world: &World<F>, own: F::Segment, keys: &[Vec<u8>]) -> Result<Self, Wrong> {
        let mut segments = Vec::new();
        for (rank, key) in (0..).map(Rank).zip(keys) {
            let key = SegmentKey::from_bytes(key).ok_or_else(|| Wrong(format!("{rank} could not allocate")))?;
            if rank == world.fabric().rank() {
                segments.push(own.clone());
            } else {
                segments.push(world.fabric().open(&key)?);
            }
        }
        let packets = RefCell::new(world.fabric().transport()?);
        Ok(Self { world: world.clone(), segments, packets, barriers: Cell::new(0) })
    }

    const fn fabric(&self) -> &F {
        self.world.fabric()
    }

    fn me(&self) -> Rank {
        self.fabric().rank()
    }

    fn size(&self) -> u32 {
        self.fabric().size()
    }

    /// The rank that this one accesses; itself if it is alone.
    fn next(&self) -> Rank {
        Rank((self.me().0 + 1) % self.size())
    }

    /// The rank that accesses this one.
    fn previous(&self) -> Rank {
        Rank((self.me().0 + self.size() - 1) % self.size())
    }

    fn segment(&self, rank: Rank) -> &F::Segment {
        &self.segments[rank.index()]
    }

    fn own(&self) -> &F::Segment {
        self.segment(self.me())
    }

    fn word(&self, rank: Rank, offset: u64) -> Result<F::Word<'_>, Fault> {
        self.fabric().word_in(self.segment(rank), offset)
    }

    /// Complains unless a get finds these bytes.
    async fn gets(&self, what: &str, from: &F::Segment, offset: u64, expected: &[u8]) -> Verdict {
        let mut seen = vec![0xdd; expected.len()];
        self.fabric().get(from, offset, &mut seen).await?;
        same_bytes(what, &seen, expected)
    }

    /// Complains unless the thread's loads find these bytes.
    fn reads(&self, what: &str, segment: &F::Segment, offset: u64, expected: &[u8]) -> Verdict {
        let mut seen = vec![0xdd; expected.len()];
        self.fabric().read_direct(segment, offset, &mut seen)?;
        same_bytes(what, &seen, expected)
    }

    /// A deadline for what completes immediately on a working fabric.
    fn soon(&self) -> Patience {
        Patience::until(self.fabric().now() + SOON)
    }

    /// The packets of this rank, for one call.
    fn packets(&self) -> RefMut<'_, F::Transport> {
        self.packets.borrow_mut()
    }

    /// The first way of packets to a rank.
    fn channel(&self, to: Rank) -> ChannelTo {
        self.packets().channels(to)[0]
    }

    fn packet_max(&self) -> usize {
        self.channel(self.next()).packet_max
    }

    async fn sent(&self, to: Rank, bytes: &[u8]) -> Result<(), Fault> {
        let packet = Packet::new(self.packets().count(to, usize::MAX).channel, bytes);
        poll_fn(|task| self.packets().poll_send(task, to, packet)).await
    }

    /// Sends a packet; a receiver that accepts none is a complaint and not a hang.
    async fn send(&self, to: Rank, bytes: &[u8]) -> Verdict {
        let mut send = pin!(self.sent(to, bytes));
        let mut limit = self.fabric().wait_until(self.word(self.me(), 0)?, |_| false, self.soon());
        poll_fn(|task| match send.as_mut().poll(task) {
            Poll::Ready(sent) => Poll::Ready(sent.map_err(Wrong::from)),
            Poll::Pending => Pin::new(&mut limit).poll(task).map(|_| Err(Wrong(format!("no room on the way to {to}")))),
        })
        .await
    }

    async fn received(&self, patience: Patience) -> Result<(Rank, Vec<u8>), Fault> {
        poll_fn(|task| pin!(self.packets().recv(patience)).poll(task)).await
    }

    async fn recv(&self, patience: Patience) -> Result<(Rank, Vec<u8>), Wrong> {
        Ok(self.received(patience).await?)
    }

    async fn barrier(&self) -> Verdict {
        self.barriers.set(self.barriers.get() + 1);
        Ok(self.world.barrier().deadline(LONG).await?)
    }
}

/// A complaint, for humans.
#[derive(Clone, Debug)]
struct Wrong(String);

impl From<Fault> for Wrong {
    fn from(fault: Fault) -> Self {
        Self(format!("unexpected fault: {fault}"))
    }
}

impl From<Error> for Wrong {
    fn from(error: Error) -> Self {
        Self(format!("unexpected error: {error}"))
    }
}

/// Complains unless the observed value is the expected one.
fn same<T: PartialEq + fmt::Debug>(what: &str, seen: T, expected: T) -> Verdict {
    if seen == expected { Ok(()) } else { Err(Wrong(format!("{what}: saw {seen:?} instead of {expected:?}"))) }
}

/// Complains unless the condition holds.
fn holds(what: &str, condition: bool) -> Verdict {
    if condition { Ok(()) } else { Err(Wrong(what.into())) }
}

/// Complains unless the bytes are equal; names the first difference.
fn same_bytes(what: &str, seen: &[u8], expected: &[u8]) -> Verdict {
    same(&format!("{what}: length"), seen.len(), expected.len())?;
    match seen.iter().zip(expected).position(|(seen, expected)| seen != expected) {
        Some(at) => same(&format!("{what}: byte {at} of {}", seen.len()), seen[at], expected[at]),
        None => Ok(()),
    }
}

/// Complains unless it fails with this kind.
fn fails<T: fmt::Debug>(what: &str, result: Result<T, Fault>, kind: FaultKind) -> Verdict {
    same(what, result.map(drop).map_err(Fault::kind), Err(kind))
}

/// Bytes that identify their origin.
fn pattern(salt: u32, len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (salt.wrapping_add(at).wrapping_mul(0x9e37_79b1) >> 24) as u8).collect()
}

/// Runs two halves of a check concurrently; complains if either does.
async fn both(one: impl Future<Output = Verdict>, other: impl Future<Output = Verdict>) -> Verdict {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let mut verdicts = [None, None];
    poll_fn(|cx| {
        let halves: [Pin<&mut dyn Future<Output = Verdict>>; 2] = [one.as_mut(), other.as_mut()];
        for (half, verdict) in halves.into_iter().zip(&mut verdicts).filter(|(_, verdict)| verdict.is_none()) {
            if let Poll::Ready(ended) = half.poll(cx) {
                *verdict = Some(ended);
            }
        }
        match &verdicts {
            [Some(first), Some(second)] => Poll::Ready(first.clone().and(second.clone())),
            _ => Poll::Pending,
        }
    })
    .await
}
