//! What lies between engines, and what is known of their messages.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};

use super::moving::FLIGHT;
use crate::engine::receives::Body;
use crate::engine::wire::{BATCH_HEAD, DATA_HEAD, EAGER_HEAD, Packet};
use crate::engine::{Engine, Here, PostOutcome};

/// The choices of a run: those of `path`, then always the first.
#[derive(Debug, Default)]
pub(super) struct Choices {
    /// What was chosen, and of how many.
    pub(super) path: Vec<(usize, usize)>,
    pub(super) at: usize,
    /// From now on the first is chosen, and not noted.
    pub(super) is_over: bool,
}

/// What may still happen, and how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    /// Posts without room.
    pub(super) busy: u32,
    /// Dropped handles.
    pub(super) drops: u32,
    /// Reads and writes that fail, and memory that there is not.
    pub(super) fails: u32,
    /// Those that are refused, so that packets may follow.
    pub(super) refusals: u32,
    pub(super) deaths: u32,
    /// Connections that break, and are made anew.
    pub(super) breaks: u32,
    /// Ranks that drop their communicator.
    pub(super) closes: u32,
}

/// A bug that is planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plant {
    None,
    FinBeforeRead,
    FinBeforeWrite,
    /// A write that is not on its connection yet is taken for posted.
    FinBeforePost,
    /// Exposed memory is taken for idle when its receive is dropped.
    EarlyReuse,
    TwoFins,
    CreditTwice,
    /// The memory of an announced message is taken for idle.
    EarlyReturn,
    /// A waker is dropped instead of woken.
    LostWake,
    /// Packets of this kind are lost.
    LostPacket(u8),
    /// A CREDIT arrives twice.
    RepeatedCredit,
    /// The receiver of a message forgets that its connection broke.
    OldMessage,
    /// The credit of a message that came before its connection broke goes back over the next one.
    OldCredit,
    /// Nobody is told of a message that is missing.
    Untold,
    /// A DATA has another offset.
    WrongOffset,
    /// DATA for which there is no room.
    NoRoom,
    /// The last DATA of a message is lost.
    LastLost,
    /// A datagram that is missing is not asked for.
    HoleForgotten,
    /// The rest of a packet with several messages is forgotten when another packet comes.
    LostRest,
}

/// What is known of a message. Its number is that of its sender times a thousand, plus its own.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) is_rendezvous: bool,
    /// Whether its receiver has it in its memory, and reads it now, or its sender writes it now.
    pub(super) is_read: bool,
    pub(super) is_being_read: bool,
    /// The writes under way.
    pub(super) writes: u32,
    /// Its length; how much of it is being written or was, how much of that is posted, and how much was
    /// written.
    pub(super) len: u64,
    pub(super) begun: u64,
    pub(super) posted: u64,
    pub(super) written: u64,
    /// Whether a receive has got it, or was told that it is lost.
    pub(super) is_received: bool,
    /// Whether it was lost: it could not be read.
    pub(super) is_lost: bool,
    /// Whether its sender has its memory back.
    pub(super) is_freed: bool,
    /// Whether it was sent before the connection broke.
    pub(super) is_old: bool,
    pub(super) has_fin: bool,
    /// Whether it goes in packets; how much there was room for, and has come.
    pub(super) is_copied: bool,
    /// Whether it goes in datagrams, and which bytes of those are to come in packets.
    pub(super) is_in_datagrams: bool,
    lacks: VecDeque<(u64, u64)>,
    room: u64,
    came: u64,
}

impl Message {
    pub(super) const fn new(from: u32, to: u32, is_rendezvous: bool) -> Self {
        Self {
            from,
            to,
            is_rendezvous,
            is_read: false,
            is_being_read: false,
            writes: 0,
            len: 0,
            begun: 0,
            posted: 0,
            written: 0,
            is_received: false,
            is_lost: false,
            is_freed: false,
            is_old: false,
            has_fin: false,
            is_copied: false,
            is_in_datagrams: false,
            lacks: VecDeque::new(),
            room: 0,
            came: 0,
        }
    }
}

#[derive(Debug)]
pub(super) struct Net {
    pub(super) wires: BTreeMap<(u32, u32), VecDeque<Vec<u8>>>,
    /// How many at the head of a wire are messages of a packet that has arrived, each as an EAGER.
    rests: BTreeMap<(u32, u32), usize>,
    /// Messages that no packet was posted for.
    pub(super) unsent: BTreeMap<(u32, u32), VecDeque<u64>>,
    /// The message of a request.
    announced: BTreeMap<(u32, u32, u32), u64>,
    /// The message that a receive exposes memory for.
    exposed: BTreeMap<(u32, u32), u64>,
    pub(super) messages: BTreeMap<u64, Message>,
    pub(super) dead: Option<u32>,
    /// The connection that broke, and those of its ranks that have not taken note.
    pub(super) broken: Option<(u32, u32)>,
    pub(super) unaware: BTreeSet<u32>,
    /// The ranks of it that sent messages which did not arrive.
    pub(super) missing: BTreeSet<u32>,
    pub(super) closed: BTreeSet<u32>,
    pub(super) budget: Budget,
    pub(super) plant: Plant,
    /// Whether packets follow writes.
    pub(super) follows: bool,
    pub(super) choices: Choices,
    /// A hash of all that each engine was given. It determines the engine's state.
    histories: Vec<u64>,
}

pub(super) fn number_of(bytes: &[u8]) -> u64 {
    let (first, rest) = bytes.split_first_chunk().unwrap();
    assert!(rest.chunks(8).all(|word| word == first), "torn: {bytes:?}");
    u64::from_le_bytes(*first)
}

/// The number that an eager message has as its bytes, and an announced one as its address; `None`:
/// it could not be read.
pub(super) fn number(engine: &Engine<u64>, message: u32) -> Option<u64> {
    match &engine.matcher.message(message as usize).body {
        Body::Eager(bytes) => Some(number_of(bytes)),
        Body::Announced(announced) => Some(announced.key.address),
        Body::Moving(moving) => Some(moving.announced.key.address),
        Body::Moved { here: Ok(Here::Elements(elements)), .. } => Some(number_of(elements.bytes())),
        Body::Moved { here: Ok(Here::Memory(number)), .. } => Some(*number),
        Body::Moved { here: Err(_), .. } => None,
    }
}

/// A message that a packet brings.
pub(super) struct Brought {
    pub(super) context: u32,
    pub(super) tag: u32,
    pub(super) number: u64,
    /// The bytes that its receiver keeps.
    pub(super) kept: usize,
}

/// The messages that a packet brings.
pub(super) fn messages_of(packet: &[u8]) -> Vec<Brought> {
    match Packet::decode(&packet[..packet.len().min(crate::engine::wire::HEAD_MAX)]).unwrap().0 {
        Packet::Eager { context, tag } => {
            let message = &packet[EAGER_HEAD..];
            vec![Brought { context, tag, number: number_of(message), kept: message.len() }]
        }
        Packet::Rts { context, tag, key, .. } => vec![Brought { context, tag, number: key.address, kept: 0 }],
        Packet::Batch { .. } => apart(packet).iter().flat_map(|packet| messages_of(packet)).collect(),
        _ => vec![],
    }
}

/// The messages of a packet with several, each as an EAGER. Their lengths are multiples of 8.
fn apart(packet: &[u8]) -> VecDeque<Vec<u8>> {
    let Some((Packet::Batch { context }, grant)) = Packet::decode(&packet[..packet.len().min(BATCH_HEAD)]) else {
        return [].into();
    };
    let (mut packets, mut rest) = (VecDeque::new(), &packet[BATCH_HEAD..]);
    while let Some((head, messages)) = rest.split_first_chunk::<8>() {
        let [tag, len] = [&head[..4], &head[4..]].map(|field| u32::from_le_bytes(field.try_into().unwrap()));
        let (message, others) = messages.split_at(len as usize);
        packets.push_back([Packet::Eager { context, tag }.encode(grant).bytes(), message].concat());
        rest = others;
    }
    packets
}

impl Net {
    pub(super) fn new(ranks: usize, budget: Budget, (plant, follows): (Plant, bool), choices: Choices) -> Self {
        Self {
            wires: BTreeMap::new(),
            rests: BTreeMap::new(),
            unsent: BTreeMap::new(),
            announced: BTreeMap::new(),
            exposed: BTreeMap::new(),
            messages: BTreeMap::new(),
            dead: None,
            broken: None,
            unaware: BTreeSet::new(),
            missing: BTreeSet::new(),
            closed: BTreeSet::new(),
            budget,
            plant,
            follows,
            choices,
            histories: vec![0; ranks],
        }
    }

    pub(super) fn choose(&mut self, of: usize) -> usize {
        let Choices { path, at, is_over } = &mut self.choices;
        if of < 2 || *is_over {
            return 0;
        }
        if *at == path.len() {
            path.push((0, of));
        }
        *at += 1;
        path[*at - 1].0 % of
    }

    /// Notes what an engine is given.
    pub(super) fn note(&mut self, at: u32, what: impl Hash) {
        let mut hasher = DefaultHasher::new();
        (self.histories[at as usize], what).hash(&mut hasher);
        self.histories[at as usize] = hasher.finish();
    }

    pub(super) fn state(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.histories.hash(&mut hasher);
        hasher.finish()
    }

    pub(super) fn message(&mut self, number: u64) -> &mut Message {
        self.messages.get_mut(&number).unwrap()
    }

    pub(super) fn begin_read(&mut self, number: u64) {
        let is_broken = !self.unaware.is_empty();
        let message = self.message(number);
        // A broken connection reads nothing.
        assert!(
            !message.is_freed || message.is_old && is_broken,
            "the memory of {number} was given back before its read"
        );
        assert!(!message.is_old || is_broken, "{number} is read over another connection");
        message.is_being_read = true;
    }

    /// Whether a message between two ranks may be lost with their connection.
    pub(super) fn has_broken(&self, one: u32, other: u32) -> bool {
        self.broken.is_some_and(|broken| broken == (one.min(other), one.max(other)))
    }

    /// Breaks the connection of two ranks. Some of what is on it has arrived.
    pub(super) fn break_connection(&mut self, one: u32, other: u32) {
        self.broken = Some((one, other));
        self.unaware = BTreeSet::from([one, other]);
        for (from, to) in [(one, other), (other, one)] {
            let len = self.wires.get(&(from, to)).map_or(0, VecDeque::len);
            let rest = self.rests.get(&(from, to)).copied().unwrap_or_default();
            let arrived = rest + self.choose(len - rest + 1);
            let lost = self.wires.get_mut(&(from, to)).map(|wire| wire.split_off(arrived)).unwrap_or_default();
            if lost.iter().any(|packet| packet[0] == 9) {
                self.missing.insert(from);
            }
            for Brought { number, .. } in lost.iter().flat_map(|packet| messages_of(packet)) {
                self.missing.insert(from);
                self.message(number).is_lost = true;
            }
        }
        for message in self.messages.values_mut() {
            message.is_old |= (message.from.min(message.to), message.from.max(message.to)) == (one, other);
        }
    }

    /// Whose packets may be taken in next: the rest of a packet comes first.
    pub(super) fn incoming(&self, to: u32) -> Vec<u32> {
        if self.plant != Plant::LostRest
            && let Some(((from, _), _)) = self.rests.iter().find(|((_, end), rest)| *end == to && **rest > 0)
        {
            return vec![*from];
        }
        self.wires
            .iter()
            .filter(|((_, end), wire)| *end == to && !wire.is_empty())
            .map(|((from, _), _)| *from)
            .collect()
    }

    /// Whether something of a peer is to be taken in.
    pub(super) fn has_incoming(&self, to: u32, from: u32) -> bool {
        self.wires.get(&(from, to)).is_some_and(|wire| !wire.is_empty())
    }

    /// Whether a transfer fails, and how: of memory of this rank. That of a dead one may be there.
    pub(super) fn fails(&mut self, at: u32, of: u32) -> Option<FaultKind> {
        let is_dead = self.dead == Some(of) || self.has_broken(at, of) && !self.unaware.is_empty();
        let Budget { fails, refusals, .. } = self.budget;
        let kinds = [
            is_dead.then_some(FaultKind::ConnectionLost),
            (!is_dead && fails > 0).then_some(FaultKind::Unknown),
            (!is_dead && refusals > 0).then_some(FaultKind::NoMemory),
        ];
        let kinds: Vec<_> = [None].into_iter().chain(kinds.into_iter().flatten().map(Some)).collect();
        let failed = kinds[self.choose(kinds.len())];
        self.budget.fails -= u32::from(failed == Some(FaultKind::Unknown));
        self.budget.refusals -= u32::from(failed == Some(FaultKind::NoMemory));
        self.note(at, failed.map(|kind| kind as u8));
        failed
    }

    pub(super) fn post(&mut self, from: u32, to: Rank, head: &[u8], body: &[u8]) -> PostOutcome {
        let posted = if self.dead == Some(to.0) {
            [PostOutcome::Failed(Fault::of(FaultKind::PeerDied, to)), PostOutcome::SENT][self.choose(2)]
        } else if self.has_broken(from, to.0) && !self.unaware.is_empty() {
            PostOutcome::Busy
        } else if self.budget.busy > 0 && self.choose(2) == 1 {
            self.budget.busy -= 1;
            PostOutcome::Busy
        } else {
            PostOutcome::SENT
        };
        self.note(from, posted == PostOutcome::SENT);
        if posted == PostOutcome::SENT && self.dead != Some(to.0) {
            self.send(from, to.0, [head, body].concat());
        }
        posted
    }

    fn send(&mut self, from: u32, to: u32, packet: Vec<u8>) {
        for Brought { number, .. } in messages_of(&packet) {
            assert_eq!(self.unsent.get_mut(&(from, to)).unwrap().pop_front(), Some(number), "sent out of order");
        }
        match Packet::decode(&packet[..packet.len().min(crate::engine::wire::HEAD_MAX)]).unwrap().0 {
            Packet::Rts { request, key, .. } => {
                self.announced.insert((from, to, request.0), key.address);
            }
            Packet::Fin { request, status } => {
                let number = self.announced[&(to, from, request.0)];
                let is_exposed = self.exposed.values().any(|exposed| *exposed == number);
                let message = self.message(number);
                // There is no memory for a later piece: the sender has the last word.
                let is_over = !is_exposed || status == 0;
                assert!(!std::mem::replace(&mut message.has_fin, is_over), "a second FIN of {number}");
                assert!(!message.is_being_read, "FIN before the read of {number}");
                assert!(message.is_read || status != 0, "FIN without a read of {number}");
            }
            Packet::Rtr { request, receive, .. } => {
                let number = self.announced[&(to, from, request.0)];
                self.exposed.insert((from, receive.0), number);
            }
            Packet::RtrCopy { request, receive, len } => {
                let number = self.announced[&(to, from, request.0)];
                self.exposed.insert((from, receive.0), number);
                let message = self.message(number);
                if !std::mem::replace(&mut message.is_copied, true) {
                    assert!(message.writes == 0, "packets of {number} under a write");
                    (message.begun, message.posted, message.written) = (0, 0, 0);
                }
                message.room += len;
                assert!(message.room <= message.came + FLIGHT, "too much room for {number}");
            }
            Packet::Data { receive, at } => {
                let len = packet.len() as u64 - DATA_HEAD as u64;
                let plant = self.plant;
                let message = self.message(self.exposed[&(to, receive.0)]);
                if let Some(next) = message.lacks.front_mut() {
                    assert!(next.0 == at && len <= next.1, "{packet:?} is not the next one that is missing");
                    *next = (at + len, next.1 - len);
                    if next.1 == 0 {
                        message.lacks.pop_front();
                    }
                    return self.put(from, to, packet);
                }
                assert!(message.posted == at || plant == Plant::WrongOffset, "{packet:?} is not the next one");
                message.posted += len;
                assert!(message.posted <= message.room, "no room for {packet:?}");
                if plant == Plant::LastLost && message.posted == message.len {
                    return;
                }
            }
            Packet::Sent { receive } => {
                let message = self.message(self.exposed[&(to, receive.0)]);
                assert!(message.writes == 0 && message.written == message.len, "SENT before datagrams have left");
            }
            Packet::RtrMissing { request, receive, missing } => {
                let number = self.announced[&(to, from, request.0)];
                assert_eq!(self.exposed[&(from, receive.0)], number);
                let message = self.message(number);
                assert!(message.lacks.is_empty(), "too much is asked for at a time");
                message.lacks = missing.ranges(message.len).unwrap().into();
            }
            Packet::Written { receive, status } => {
                let number = self.exposed[&(to, receive.0)];
                let follows = self.follows || self.message(number).is_copied;
                if self.asks_for_packets(number, status) {
                    self.message(number).has_fin = false; // its receiver had the last word before
                    assert!(self.message(number).writes == 0, "FIN before the end of the write of {number}");
                    return self.put(from, to, packet);
                }
                let message = self.message(number);
                assert!(!std::mem::replace(&mut message.has_fin, true), "a second FIN of {number}");
                if follows && status == 0 {
                    assert!(message.posted == message.len, "FIN before the write of {number}");
                    message.is_read = true; // when it comes
                }
                assert!(follows || message.writes == 0, "FIN before the end of the write of {number}");
                assert!(message.is_read || status != 0, "FIN without a write of {number}");
            }
            _ => {}
        }
        self.put(from, to, packet);
    }

    fn put(&mut self, from: u32, to: u32, packet: Vec<u8>) {
        if self.plant != Plant::LostPacket(packet[0]) {
            self.wires.entry((from, to)).or_default().push_back(packet);
        }
    }

    /// Whether the FIN of a sender with this status asks for room for packets.
    fn asks_for_packets(&self, number: u64, status: u8) -> bool {
        let is_refused = [FaultKind::NoMemory, FaultKind::ConnectionLost].map(|kind| kind as u8).contains(&status);
        is_refused && !self.messages[&number].is_copied
    }

    /// A packet of a message that moves to a receive has come: whether nothing more comes.
    pub(super) fn ends(&mut self, to: u32, packet: &[u8]) -> Option<u32> {
        match Packet::decode(&packet[..packet.len().min(crate::engine::wire::HEAD_MAX)])?.0 {
            Packet::Data { receive, .. } => {
                let number = self.exposed[&(to, receive.0)];
                self.message(number).came += (packet.len() - DATA_HEAD) as u64;
                None
            }
            Packet::Written { receive, status } => {
                let number = self.exposed[&(to, receive.0)];
                (!self.asks_for_packets(number, status)).then_some(receive.0)
            }
            _ => None,
        }
    }

    /// The next packet of a pair; its first message, if it has several. `None`: the message is one of
    /// the packet before.
    pub(super) fn take(&mut self, from: u32, to: u32) -> (Vec<u8>, Option<Vec<u8>>) {
        let wire = self.wires.get_mut(&(from, to)).unwrap();
        let packet = wire.pop_front().unwrap();
        let rest = self.rests.entry((from, to)).or_default();
        let mut messages = apart(&packet);
        let taken = if *rest > 0 {
            *rest -= 1;
            (packet, None)
        } else if let Some(first) = messages.pop_front() {
            *rest = messages.len();
            messages.into_iter().rev().for_each(|message| wire.push_front(message));
            (first, Some(packet))
        } else {
            (packet.clone(), Some(packet))
        };
        self.note(to, (from, &taken));
        taken
    }
}
