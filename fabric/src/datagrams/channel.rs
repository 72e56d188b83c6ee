//! The protocol machine of a rank: all its peers.

use std::collections::VecDeque;
use std::task::Poll;

use onesided_remote_memory::{Fault, FaultKind, Rank};

use super::Posted;
use super::header::{Acknowledgement, HEADER, Header};
use super::receiver::{Arrived, Came, Receiver};
use super::sender::{NEVER, Sender};
use crate::Channel;

/// After this time without an answer a peer is lost, in nanoseconds.
const SILENCE: u64 = 8_000_000_000;
/// So many timeouts are part of it: a rank that looks rarely has not asked often.
const ASKED: u32 = 64;

/// Who a rank is: its job, its number, and its incarnation, which rises with each process that
/// takes the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Datagrams of other jobs are dropped.
    pub job: u32,
    /// The rank.
    pub rank: Rank,
    /// The rank's incarnation.
    pub incarnation: u32,
}

/// What a machine has sent, received and dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramCounts {
    /// Packets, each counted once.
    pub sent: u64,
    /// Repetitions of packets.
    pub resent: u64,
    /// Datagrams without a packet: acknowledgements and questions for one.
    pub bare: u64,
    /// Packets received, each counted once.
    pub received: u64,
    /// Those of them that came before one that was sent earlier.
    pub overtook: u64,
    /// Packets dropped because they came before.
    pub duplicates: u64,
    /// Packets dropped because there was no room for them.
    pub beyond: u64,
    /// Datagrams dropped because they are of another job.
    pub foreign: u64,
    /// Datagrams dropped because they are of or to an old incarnation, or of a lost peer.
    pub stale: u64,
    /// Datagrams dropped because they are of no rank, or violate the protocol.
    pub malformed: u64,
}

/// Reliable packets over unreliable datagrams: the protocol machine of a rank, without I/O, clock
/// or threads (koop-2008, section 5.1: UD-SR). Times are nanoseconds of the caller's clock.
///
/// Packets arrive exactly once and in order of one sender. Each of the two directions between two
/// ranks has at most 256 packets that were not acknowledged and 256 that were not taken.
///
/// A peer needs no handshake: its incarnation comes with its address, and a higher one begins anew.
#[derive(Debug)]
pub struct DatagramChannel {
    own: Identity,
    peers: Box<[Peer]>,
    /// The peers that have something to do, perhaps later.
    active: Vec<Rank>,
    /// Packets in order, with the incarnation of their sender.
    ready: VecDeque<(Rank, u32, Came)>,
    /// When the first timer ends.
    due: u64,
    /// The number of the first packet.
    first: u32,
    /// Whether packets that take other channels are kept until they are acknowledged.
    keeps: bool,
    counts: DatagramCounts,
}

/// So long a receiver looks for packets that wake nobody, after one that does, in nanoseconds.
const LOOKS: u64 = 1_000_000;
/// How many packets over a connection, and by a fast path, come without an acknowledgement of their own.
const KEPT: u32 = 64;
const IN_SLOTS: u32 = 8;

/// The bytes before a packet that takes another channel: its number, and the acknowledgement.
pub(super) const APART: usize = 8;

#[derive(Debug)]
struct Peer {
    incarnation: u32,
    is_active: bool,
    status: Status,
}

#[derive(Debug)]
enum Status {
    /// Nothing was sent or received.
    Fresh,
    Met(Box<Met>),
    /// It has died or left, and what it sent before may still come.
    Gone(Box<Met>),
    Lost,
}

#[derive(Debug)]
struct Met {
    sender: Sender,
    receiver: Receiver,
    /// Since when an answer is due.
    since: u64,
    /// When the last packet over the connection left.
    woke: u64,
}

impl Peer {
    const fn new(incarnation: u32) -> Self {
        Self { incarnation, is_active: false, status: Status::Fresh }
    }

    /// `None`: lost, or gone, unless that `may_be`.
    fn met(&mut self, now: u64, first: u32, may_be_gone: bool) -> Option<&mut Met> {
        if let Status::Fresh = self.status {
            let (sender, receiver) = (Sender::new(first), Receiver::new(first));
            self.status = Status::Met(Box::new(Met { sender, receiver, since: now, woke: 0 }));
        }
        match &mut self.status {
            Status::Met(met) => Some(met),
            Status::Gone(met) if may_be_gone => Some(met),
            _ => None,
        }
    }
}

impl Met {
    /// Takes in a packet of this peer, and delivers those that are in order now.
    fn arrived(
        &mut self,
        (from, incarnation): (Rank, u32),
        number: u32,
        packet: (Channel, impl Into<Box<[u8]>>),
        (ready, counts): (&mut VecDeque<(Rank, u32, Came)>, &mut DatagramCounts),
    ) -> Arrived {
        let before = ready.len();
        let arrived = self.receiver.arrived(number, packet, &mut |packet| ready.push_back((from, incarnation, packet)));
        counts.received += (ready.len() - before) as u64;
        counts.overtook += u64::from(arrived == Arrived::Ahead);
        counts.duplicates += u64::from(arrived == Arrived::Duplicate);
        counts.beyond += u64::from(arrived == Arrived::Beyond);
        arrived
    }

    fn due(&self) -> u64 {
        self.sender.due().min(self.receiver.due())
    }

    fn header(&mut self, (own, to): (Identity, u32), sequence: u32, carries: bool, asks: bool) -> [u8; HEADER] {
        let Identity { job, rank: from, incarnation } = own;
        let acknowledges = self.receiver.acknowledge();
        Header { carries, asks, job, from, incarnation, to, sequence, acknowledges }.to_bytes()
    }
}

impl DatagramChannel {
    /// The machine of a rank among peers with these incarnations, by rank, its own included.
    #[must_use]
    pub fn new(own: Identity, incarnations: impl IntoIterator<Item = u32>) -> Self {
        Self::numbered(own, incarnations, 0)
    }

    /// The same with packets numbered from `first`, at all ranks.
    pub(super) fn numbered(own: Identity, incarnations: impl IntoIterator<Item = u32>, first: u32) -> Self {
        let peers = incarnations.into_iter().map(Peer::new).collect();
        let (active, ready, counts) = (Vec::new(), VecDeque::new(), DatagramCounts::default());
        Self { own, peers, active, ready, due: NEVER, first, keeps: false, counts }
    }

    /// The same, which keeps packets that take other channels until they are acknowledged, and sends those again
    /// whose channel [fails](Self::lose_apart). Its peers are to do the same.
    #[must_use]
    pub fn keeping(self, keeps: bool) -> Self {
        Self { keeps, ..self }
    }

    /// Whether it [keeps](Self::keeping) packets that take other channels.
    #[must_use]
    pub const fn keeps(&self) -> bool {
        self.keeps
    }

    /// Bytes of a datagram that carry no packet.
    pub const HEADER: usize = HEADER;

    /// Bytes before a packet that takes another channel.
    pub const APART: usize = APART;

    /// How many ranks there are, this one included.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.peers.len()
    }

    /// What happened so far.
    #[must_use]
    pub const fn counts(&self) -> DatagramCounts {
        self.counts
    }

    /// When [`transmit`](Self::transmit) has something to do, at the latest.
    #[must_use]
    pub const fn due(&self) -> u64 {
        self.due
    }

    /// Whether every packet that was sent has been acknowledged, and every one that was received.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.active.iter().all(|rank| match &self.peers[rank.index()].status {
            Status::Met(met) => met.sender.is_idle() && met.receiver.due() == NEVER,
            _ => true,
        })
    }

    /// Whether a peer has not answered for 8 s.
    #[must_use]
    pub fn is_lost(&self, rank: Rank) -> bool {
        self.peers.get(rank.index()).is_some_and(|peer| matches!(peer.status, Status::Lost))
    }

    /// What is under way to a peer that takes packets. `Pending`: it is gone.
    fn met(&mut self, now: u64, to: Rank) -> Poll<Result<&mut Met, Fault>> {
        let peer = self.peers.get_mut(to.index()).ok_or(Fault::of(FaultKind::NoSuchRank, to))?;
        if let Status::Gone(_) = peer.status {
            return Poll::Pending;
        }
        Poll::Ready(peer.met(now, self.first, false).ok_or(Fault::of(FaultKind::ConnectionLost, to)))
    }

    /// Takes a packet for a peer, the bytes of `head`, then those of `body`: they leave with the
    /// next [`transmit`](Self::transmit), and the packet is solicited each time. `Pending`: there
    /// is no room, or the peer is gone, and others tell how.
    ///
    /// # Errors
    /// `NoSuchRank`; `ConnectionLost` if the peer is lost.
    pub fn send(
        &mut self,
        now: u64,
        to: Rank,
        (head, body): (&[u8], &[u8]),
        is_solicited: bool,
    ) -> Poll<Result<(), Fault>> {
        let Poll::Ready(met) = self.met(now, to)? else { return Poll::Pending };
        if met.sender.is_idle() {
            met.since = now;
        }
        let sent = met.sender.push(now, (head, body), is_solicited);
        self.counts.sent += u64::from(sent);
        self.activate(to, if sent { 0 } else { NEVER });
        if sent { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// The bytes before a packet that takes another channel to a peer now, where it arrives once and in that
    /// channel's order; when it has left, [that is told](Self::left_apart). `Pending` as [`send`](Self::send).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn begin_apart(&mut self, now: u64, to: Rank) -> Poll<Result<[u8; APART], Fault>> {
        let Poll::Ready(met) = self.met(now, to)? else { return Poll::Pending };
        let Some(number) = met.sender.number_apart() else { return Poll::Pending };
        let before = u64::from(number) | u64::from(met.receiver.next()) << u32::BITS;
        Poll::Ready(Ok(before.to_le_bytes()))
    }

    /// Whether one of the `slots` of a peer's [fast path](Channel::FastPath) is free, and the peer looks at it: a packet
    /// over the connection has left just now. A slot is in use until its packet has been acknowledged.
    #[must_use]
    pub fn has_slot(&self, now: u64, to: Rank, slots: u32) -> bool {
        match self.peers.get(to.index()).map(|peer| &peer.status) {
            Some(Status::Met(met)) => met.sender.in_slots() < slots && now < met.woke.saturating_add(LOOKS),
            _ => false,
        }
    }

    /// The packet for which another channel was [last begun](Self::begin_apart) has left by this one.
    pub fn left_apart(
        &mut self,
        now: u64,
        (to, channel): (Rank, Channel),
        (head, body): (&[u8], &[u8]),
        is_solicited: bool,
    ) {
        let Status::Met(met) = &mut self.peers[to.index()].status else { return };
        let in_slot = channel == Channel::FastPath;
        if (self.keeps || in_slot) && met.sender.is_idle() {
            met.since = now;
        }
        if !in_slot {
            met.woke = now;
        }
        met.sender.left_apart(now, self.keeps.then_some(([head, body], is_solicited)), in_slot);
        self.counts.sent += 1;
        met.receiver.acknowledged_apart();
        if !met.sender.is_idle() {
            self.activate(to, NEVER);
        }
    }

    /// The other channel to a peer has failed, and nothing arrives by it any more: packets that are
    /// [kept](Self::keeping) become datagrams.
    pub fn lose_apart(&mut self, to: Rank) {
        if let Status::Met(met) = &mut self.peers[to.index()].status {
            met.sender.lose_apart();
            self.activate(to, 0);
        }
    }

    /// Takes in a packet that came by another channel, and the bytes before it. One that came before is dropped.
    ///
    /// # Errors
    /// `Protocol` if it is further ahead than any may be, or acknowledges what was not sent.
    pub fn arrived_apart(
        &mut self,
        now: u64,
        from: Rank,
        before: [u8; APART],
        packet: (Channel, Box<[u8]>),
    ) -> Result<(), Fault> {
        let (channel, packet) = packet;
        self.came_apart(now, (from, channel), before, Some(packet)).map(drop)
    }

    /// The same, if it is the [next](Self::take) packet: the caller has it then. `false`: it is to
    /// [arrive](Self::arrived_apart).
    ///
    /// # Errors
    /// As there.
    pub fn takes_apart(&mut self, now: u64, from: Rank, before: [u8; APART], channel: Channel) -> Result<bool, Fault> {
        Ok(!self.has_ready() && self.came_apart(now, (from, channel), before, None)?)
    }

    /// Whether a packet that came by another channel is delivered, without its bytes if it is the next one.
    #[inline]
    fn came_apart(
        &mut self,
        now: u64,
        (from, channel): (Rank, Channel),
        before: [u8; APART],
        packet: Option<Box<[u8]>>,
    ) -> Result<bool, Fault> {
        let peer = self.peers.get_mut(from.index()).ok_or(Fault::of(FaultKind::NoSuchRank, from))?;
        let incarnation = peer.incarnation;
        let Some(met) = peer.met(now, self.first, true) else { return Ok(false) }; // it is lost
        let before = u64::from_le_bytes(before);
        let (number, next) = (before as u32, (before >> u32::BITS) as u32);
        let in_slot = channel == Channel::FastPath;
        let (of, tallies) = ((from, incarnation), (&mut self.ready, &mut self.counts));
        let mut arrived = match packet {
            Some(packet) => met.arrived(of, number, (channel, packet), tallies),
            None if met.receiver.takes(number) => {
                self.counts.received += 1;
                Arrived::InOrder
            }
            None => return Ok(false),
        };
        if self.keeps || in_slot {
            let every = if in_slot { IN_SLOTS } else { KEPT };
            met.receiver.acknowledge_apart(every, now + met.sender.delay());
        }
        if self.keeps || !met.sender.is_idle() {
            met.since = now;
            if met.sender.acknowledge(now, Acknowledgement { next, room: 0, selective: 0 }).is_err() {
                arrived = Arrived::Beyond;
            }
        }
        if arrived == Arrived::Beyond {
            return Err(Fault::of(FaultKind::Protocol, from));
        }
        if met.receiver.due() != NEVER {
            self.activate(from, NEVER);
        }
        Ok(true)
    }

    fn activate(&mut self, rank: Rank, due: u64) {
        let peer = &mut self.peers[rank.index()];
        if !std::mem::replace(&mut peer.is_active, true) {
            self.active.push(rank);
        }
        if let Status::Met(met) = &peer.status {
            self.due = self.due.min(due).min(met.due());
        }
    }

    /// Takes in a datagram, whatever it holds.
    pub fn arrived(&mut self, now: u64, datagram: &[u8]) {
        let Some((header, packet)) = Header::parse(datagram) else {
            self.counts.malformed += 1;
            return;
        };
        if header.job != self.own.job {
            self.counts.foreign += 1;
            return;
        }
        let from = header.from;
        let Some(peer) = self.peers.get_mut(from.index()) else {
            self.counts.malformed += 1;
            return;
        };
        if header.incarnation > peer.incarnation {
            *peer = Peer { is_active: peer.is_active, ..Peer::new(header.incarnation) };
        }
        let incarnation = peer.incarnation;
        let is_old = header.incarnation < incarnation;
        let is_gone = matches!(peer.status, Status::Gone(_));
        let is_to_this = header.to == self.own.incarnation;
        let met = if is_old { None } else { peer.met(now, self.first, is_to_this) };
        let Some(met) = met else {
            self.counts.stale += 1;
            return;
        };
        if !is_to_this {
            self.counts.stale += 1;
            if header.carries || header.asks {
                met.receiver.hurry(); // the answer says who is here now
                self.activate(from, 0);
            }
            return;
        }
        if met.sender.acknowledge(now, header.acknowledges).is_err() {
            self.counts.malformed += 1;
            return;
        }
        met.since = now;
        if header.carries {
            let (packet, tallies) = ((Channel::Datagrams, packet), (&mut self.ready, &mut self.counts));
            match met.arrived((from, incarnation), header.sequence, packet, tallies) {
                Arrived::InOrder | Arrived::Ahead => met.receiver.acknowledge_by(now + met.sender.delay()),
                Arrived::Duplicate | Arrived::Beyond => met.receiver.hurry(), // the sender does not know
            }
        }
        if header.asks {
            met.receiver.hurry();
        }
        if is_gone {
            return; // it needs no answer
        }
        let has_more = met.sender.next_to_send().is_some();
        self.activate(from, if has_more { 0 } else { NEVER });
    }

    /// Whether there is a [next packet](Self::take).
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The next packet, with its sender and its channel.
    #[inline]
    pub fn take(&mut self) -> Option<(Rank, Channel, Box<[u8]>)> {
        let (from, incarnation, (channel, packet)) = self.ready.pop_front()?;
        let peer = &mut self.peers[from.index()];
        if let Status::Met(met) | Status::Gone(met) = &mut peer.status
            && peer.incarnation == incarnation
        {
            met.receiver.taken();
            if met.receiver.due() == 0 {
                self.activate(from, 0);
            }
        }
        Some((from, channel, packet))
    }

    /// Sends what is due: `post` gets the peer, the header and the packet of a datagram, and
    /// whether it is solicited, as one that asks for an acknowledgement is. What it is too busy for
    /// is due at once. `reaches`: whether a peer that does not answer is known to be within reach,
    /// and computes; otherwise it is lost after 8 s.
    pub fn transmit(
        &mut self,
        now: u64,
        mut post: impl FnMut(Rank, &[u8], &[u8], bool) -> Posted,
        mut reaches: impl FnMut(Rank) -> bool,
    ) {
        if now < self.due {
            return;
        }
        self.due = NEVER;
        let active = self.active.len();
        for at in 0..active {
            let rank = self.active[at];
            let peer = &mut self.peers[rank.index()];
            peer.is_active = false;
            let Status::Met(met) = &mut peer.status else { continue };
            met.sender.end_timer(now);
            let silence = now.saturating_sub(met.since);
            if silence >= SILENCE / 2 && met.sender.unanswered() >= ASKED {
                let is_within_reach = reaches(rank);
                if silence >= SILENCE && !is_within_reach {
                    peer.status = Status::Lost;
                    continue;
                }
                if silence >= SILENCE {
                    met.since = now;
                }
            }
            let addresses = (self.own, peer.incarnation);
            let post = |header: &[u8], packet: &[u8], is_solicited| post(rank, header, packet, is_solicited);
            let posted = met.transmit(now, addresses, &mut self.counts, post);
            match posted {
                Posted::Gone => {
                    if let Status::Met(met) = std::mem::replace(&mut peer.status, Status::Lost) {
                        peer.status = Status::Gone(met);
                    }
                }
                Posted::Busy => self.activate(rank, now),
                Posted::Sent if met.due() != NEVER || !met.sender.is_idle() => self.activate(rank, NEVER),
                Posted::Sent => {}
            }
        }
        self.active.drain(..active); // those that are still active are behind
    }
}

impl Met {
    /// Posts what is due, as far as possible.
    fn transmit(
        &mut self,
        now: u64,
        addresses: (Identity, u32),
        counts: &mut DatagramCounts,
        mut post: impl FnMut(&[u8], &[u8], bool) -> Posted,
    ) -> Posted {
        while let Some(place) = self.sender.next_to_send() {
            let (sequence, asks) = self.sender.number(place);
            let header = self.header(addresses, sequence, true, asks);
            let (packet, is_solicited) = self.sender.packet(place);
            let posted = post(&header, packet, is_solicited || asks);
            if posted != Posted::Sent {
                self.receiver.hurry(); // the acknowledgement has not left
                return posted;
            }
            counts.resent += u64::from(self.sender.sent(now, place, asks));
        }
        let asks = self.sender.take_asks();
        if asks || self.receiver.due() <= now {
            let header = self.header(addresses, self.sender.next(), false, asks);
            let posted = post(&header, &[], asks);
            if posted != Posted::Sent {
                self.receiver.hurry();
                return posted;
            }
            counts.bare += 1;
        }
        Posted::Sent
    }
}
