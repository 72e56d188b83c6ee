//! Messages of all lengths by all protocols, whose receives are given up at random: none is lost,
//! doubled or overtaken by a later one of its sender and tag.

use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use onesided::handles::{Recv, SendRequest};
use onesided::{Any, FaultKind, MessageError, Messages, Shape, Source, Status, Tag, Tags, World};

use super::{LIMIT, MODES, Plan, WAYS, begin, processes, seeds, threads, three_or_five};
use crate::collectives::steps::Random;
use crate::jobs;

/// Seeds with which no rank ends, and one dies.
const ON_CARDS: [u64; 2] = [6, 7];
const TAGS: u32 = 3;
/// Messages from a rank to another one with a tag. Emulated cards are slow.
static MANY: LazyLock<u64> = LazyLock::new(|| if jobs::is_short_on_cards() { 12 } else { 40 });
const LENGTHS: [usize; 12] = [0, 1, 8, 40, 41, 600, 2_048, 2_400, 5_000, 30_000, 120_000, 600_000];
const LONGEST: usize = 3 << 20;

/// What messages are cut out of: random bytes, a prime number of them repeated.
static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut random = Random(7);
    let mut period: Vec<u8> = (0..1_024).flat_map(|_| random.below(u64::MAX).to_le_bytes()).collect();
    period.truncate(8_191);
    period.repeat(LONGEST.div_ceil(period.len()) + 1)
});

/// A message from a rank to another one.
pub(super) fn message(from: u32, to: u32, tag: u32, number: u64) -> &'static [u8] {
    let mut random = Random(number << 16 | u64::from(from << 12 | to << 8 | tag));
    let at = random.below(4_096) as usize;
    let len = if random.below(150) == 0 { LONGEST } else { LENGTHS[random.below(12) as usize] };
    &BYTES[at..at + len]
}

/// What a rank has sent and received.
struct Model<'a> {
    plan: &'a Plan,
    world: &'a World,
    messages: &'a Messages,
    random: Random,
    /// By rank and tag.
    sent: Vec<[u64; TAGS as usize]>,
    received: Vec<[u64; TAGS as usize]>,
    ended: BTreeSet<u32>,
}

type Sent<'a> = Vec<(u32, SendRequest<'a, Any>)>;

impl<'a> Model<'a> {
    /// What is expected next of a message's sender and tag; counts it.
    fn takes(&mut self, status: Status, bytes: &[u8]) {
        let (from, tag, me) = (status.source, status.tag.0, self.world.rank());
        let next = &mut self.received[from as usize][tag as usize];
        let is = |number: u64| bytes == message(from, me, tag, number);
        if self.ended.contains(&from) {
            // One that could not be read any more is missing.
            *next = (*next..*MANY).find(|number| is(*number)).expect("a later one");
        }
        let (number, plan) = (*next, self.plan);
        let was = (0..*MANY).find(|number| is(*number));
        assert!(is(number), "{plan:?}: rank {me}, from {from} with tag {tag}: expected {number}, was {was:?}");
        assert_eq!(status.bytes, bytes.len() as u64);
        *next += 1;
    }

    /// An operation with a rank, or with any, failed: some rank has ended.
    fn failed(&mut self, error: &MessageError) {
        let ended = self.plan.check(self.world, error.fault(), error);
        self.ended.insert(ended);
        self.messages.acknowledge_failures();
    }

    /// Sends a message in some way.
    fn send(&mut self, under_way: &mut Sent<'a>) {
        let (me, to, tag) = (
            self.world.rank(),
            self.random.below(u64::from(self.plan.ranks)) as u32,
            self.random.below(u64::from(TAGS)) as u32,
        );
        let next = &mut self.sent[to as usize][tag as usize];
        if to == me || *next == *MANY || self.ended.contains(&to) {
            return;
        }
        let (bytes, messages) = (message(me, to, tag, *next), self.messages);
        *next += 1;
        let send = match self.random.below(6) {
            0 => messages.send_synchronous(bytes, to, Tag(tag)),
            1 => messages.send_shaped(
                bytes,
                Shape::Vector { count: 1, block: bytes.len(), stride: bytes.len() },
                to,
                Tag(tag),
            ),
            2 => messages.send_init(to, Tag(tag)).unwrap().start(bytes),
            3 => {
                let mut buffer = messages.buffer(bytes.len()).unwrap();
                buffer.write(0, bytes);
                drop(messages.send_buffer(buffer, to, Tag(tag)));
                return; // it goes on
            }
            _ => messages.send(bytes, to, Tag(tag)),
        };
        match self.random.below(5) {
            0 => drop(send),
            1 => drop(send.deadline(self.time()).wait()),
            _ => under_way.push((to, send)),
        }
    }

    fn time(&mut self) -> Duration {
        Duration::from_micros([0, 1, 20, 100, 500][self.random.below(5) as usize])
    }

    /// Receives a message in some way, or gives up.
    fn receive(&mut self) {
        let messages = self.messages;
        let size = self.plan.ranks;
        let rank = (self.world.rank() + 1 + self.random.below(u64::from(size) - 1) as u32) % size;
        let tag = self.random.below(u64::from(TAGS)) as u32;
        let source = if self.random.below(4) == 0 { Source::Any } else { Source::Rank(rank) };
        let tags = if self.random.below(4) == 0 { Tags::Any } else { Tags::Is(Tag(tag)) };
        let (time, looks) = (self.time(), self.random.below(4));
        let mut into = vec![0; LONGEST];
        // A wait, or some looks.
        macro_rules! outcome {
            ($request:expr) => {
                match looks {
                    0 => $request.deadline(time).wait().map(Some),
                    1 => { $request }.wait_timeout(time),
                    _ => {
                        let mut request = $request;
                        (1..looks).find_map(|_| request.test().transpose()).transpose()
                    }
                }
            };
        }
        let outcome = match self.random.below(9) {
            0 => outcome!(messages.recv::<u8>(source, tags)).map(|got| got.map(|(bytes, status)| (status, bytes))),
            1 => outcome!(messages.recv_into(&mut into, source, tags)).map(|got| got.map(|status| (status, into))),
            2 => {
                let mut twice = vec![0; 2 * LONGEST];
                let shape = Shape::Vector { count: LONGEST, block: 1, stride: 2 };
                let got = outcome!(messages.recv_shaped(&mut twice, shape, source, tags));
                got.map(|got| {
                    got.map(|status| (status, twice.chunks(2).take(status.bytes as usize).map(|two| two[0]).collect()))
                })
            }
            3 => outcome!(messages.recv_buffer(messages.buffer::<u8>(LONGEST).unwrap(), source, tags))
                .map(|got| got.map(|(buffer, status)| (status, buffer.read(0..buffer.len())))),
            4 => outcome!(messages.recv_init(source, tags).unwrap().start(&mut into))
                .map(|got| got.map(|status| (status, into))),
            5 => outcome!(messages.probe(source, tags)).map(|_| None),
            6 => outcome!(messages.match_probe(source, tags)).map(|_| None),
            7 => match messages.match_probe(source, tags).deadline(time).wait() {
                Ok(message) => outcome!(message.recv::<u8>()).map(|got| got.map(|(bytes, status)| (status, bytes))),
                Err(error) => Err(error),
            },
            _ => {
                let posted = (0..TAGS).map(|tag| messages.recv::<u8>(source, Tag(tag)).deadline(time));
                let mut posted: Vec<Recv<'_, u8, Any>> = posted.collect();
                match self.world.wait_any(&mut posted) {
                    Some((_, got)) => {
                        // Others may have come as well.
                        let mut all = vec![got];
                        all.extend(posted.into_iter().filter_map(|mut request| request.test().transpose()));
                        for got in all {
                            self.ends(got.map(|(bytes, status)| Some((status, bytes))));
                        }
                        return;
                    }
                    None => unreachable!("there are some"),
                }
            }
        };
        self.ends(outcome);
    }

    fn ends(&mut self, outcome: Result<Option<(Status, Vec<u8>)>, MessageError>) {
        match outcome {
            Ok(None) => {}
            Ok(Some((status, bytes))) => self.takes(status, &bytes[..status.bytes as usize]),
            Err(error) if error.fault().kind() == FaultKind::TimedOut => {}
            Err(error) => self.failed(&error),
        }
    }

    fn is_over(&self) -> bool {
        let others = (0..self.plan.ranks).filter(|rank| *rank != self.world.rank() && !self.ended.contains(rank));
        others
            .flat_map(|rank| [&self.sent, &self.received].map(|all| all[rank as usize]))
            .flatten()
            .all(|number| number == *MANY)
    }
}

pub(super) fn play(world: &World, plan: &Plan) {
    let [messages, last] = [(); 2].map(|()| Messages::new(world).wait().unwrap());
    let mut random = plan.random(world.rank());
    messages.set_progress(MODES[random.below(5) as usize]).unwrap();
    begin(world, plan);
    let zeros = vec![[0; TAGS as usize]; plan.ranks as usize];
    let mut model = Model {
        plan,
        world,
        messages: &messages,
        random,
        sent: zeros.clone(),
        received: zeros,
        ended: BTreeSet::new(),
    };
    let (begun, mut under_way, mut steps) = (Instant::now(), Vec::new(), 0);
    while !model.is_over() {
        steps += 1;
        if plan.ends_now(world, steps) {
            return;
        }
        if model.random.below(50) == 0 {
            messages.set_rendezvous(WAYS[model.random.below(4) as usize]);
        }
        if model.random.below(2) == 0 && under_way.len() < 24 {
            model.send(&mut under_way);
        } else {
            model.receive();
        }
        for at in (0..under_way.len()).rev() {
            if let Some(ended) = under_way[at].1.test().transpose() {
                drop(under_way.swap_remove(at));
                ended.unwrap_or_else(|error| model.failed(&error));
            }
        }
        let (sent, received) = (&model.sent, &model.received);
        assert!(
            begun.elapsed() < LIMIT,
            "{plan:?}: rank {} sent {sent:?}, received {received:?}: {}",
            world.rank(),
            onesided::dump()
        );
    }
    for (to, send) in under_way {
        match send.deadline(LIMIT).wait() {
            Ok(()) => {}
            Err(error) if error.fault().kind() == FaultKind::TimedOut => panic!("{plan:?}: to {to}: {error}"),
            Err(error) => model.failed(&error),
        }
    }
    // Nobody leaves before all have what was sent to them.
    let others = || (0..plan.ranks).filter(|rank| *rank != world.rank());
    others().for_each(|to| drop(last.send(&[1_u8], to, Tag(0))));
    for from in others() {
        if let Err(error) = last.recv::<u8>(from, Tag(0)).deadline(LIMIT).wait() {
            model.failed(&error);
        }
    }
    jobs::ok();
}

#[test]
fn threads_lose_no_message() {
    seeds(8, 400, &ON_CARDS).into_iter().for_each(|seed| threads(three_or_five(seed), play));
}

#[test]
fn processes_lose_no_message() {
    for seed in seeds(8, 200, &ON_CARDS) {
        let off = [("ONESIDED_PROCESS_VM", "off")];
        processes(three_or_five(seed), "stress: messages", if seed % 3 == 0 { &off } else { &[] });
    }
}
