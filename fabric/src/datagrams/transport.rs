//! The [`Transport`] over datagrams.

use std::cell::RefCell;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use onesided_job::lock;
use onesided_remote_memory::{Fault, FaultKind, Patience, Rank, Watch};

use super::channel::APART;
use super::{DatagramChannel, DatagramCounts};
use crate::{Absent, Arrival, Channel, ChannelCounts, ChannelTo, Packet, Transport};

/// So many datagrams that wait are taken out before they are needed, to make room for more.
const MANY: usize = 256;
/// The head of a packet that is to be sent is copied to so many bytes behind those of the machine, or to an allocation.
const HEAD: usize = 64;

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// It is on its way, or lost.
    Sent,
    /// There is no room now.
    Busy,
    /// Its receiver has died or left.
    Gone,
}

/// Unreliable datagrams: each arrives whole, and may be lost, doubled, late, and overtaken.
pub trait Datagrams: Debug + Send + 'static {
    /// The longest datagram in bytes.
    fn longest(&self) -> usize;

    /// The clock, in nanoseconds.
    fn now(&self) -> u64;

    /// Sends a datagram: the bytes of `header`, then those of `packet`. It leaves when the machine
    /// [rests](Self::rest), at the latest. If it is solicited, it wakes the receiver's handler,
    /// where datagrams have such events.
    fn post(&mut self, to: Rank, header: &[u8], packet: &[u8], is_solicited: bool) -> Posted;

    /// Whether a rank that does not answer is known to be within reach, and computes. It is asked
    /// again and again from 4 s of silence on; after 8 s the answer counts.
    fn reaches(&self, rank: Rank) -> bool {
        let _ = rank;
        false
    }

    /// How many datagrams have arrived and were not taken out; where that is not known, 1.
    fn waiting(&self) -> usize {
        1
    }

    /// Takes out everything that has arrived.
    fn drain(&mut self, arrived: &mut dyn FnMut(&[u8]));

    /// Nothing is posted for now. The machine has to be [driven](Machine::drive) at `due` at the
    /// latest, and whenever a datagram has arrived. `is_idle`: everything that was sent has been
    /// acknowledged, so that the rank may leave.
    fn rest(&mut self, due: u64, is_idle: bool);
}

/// A protocol machine and its datagrams. It outlives the transports of its rank: peers still ask
/// for what was sent.
#[derive(Debug)]
pub struct Machine<D> {
    channel: DatagramChannel,
    datagrams: D,
}

/// A machine that several threads drive.
pub type SharedMachine<D> = Arc<Mutex<Machine<D>>>;

impl<D: Datagrams> Machine<D> {
    /// A machine over these datagrams.
    pub fn new(channel: DatagramChannel, datagrams: D) -> SharedMachine<D> {
        Arc::new(Mutex::new(Self { channel, datagrams }))
    }

    /// Takes in what has arrived, and sends what is due.
    pub fn drive(&mut self) {
        self.drive_at(self.datagrams.now());
    }

    fn drive_at(&mut self, now: u64) {
        let Self { channel, datagrams } = self;
        datagrams.drain(&mut |datagram| channel.arrived(now, datagram));
        let datagrams = RefCell::new(datagrams);
        let post = |to, header: &[u8], packet: &[u8], is_solicited| {
            datagrams.borrow_mut().post(to, header, packet, is_solicited)
        };
        channel.transmit(now, post, |rank| datagrams.borrow().reaches(rank));
        self.rest();
    }

    fn rest(&mut self) {
        self.datagrams.rest(self.channel.due(), self.channel.is_idle());
    }

    /// What happened so far.
    pub const fn counts(&self) -> DatagramCounts {
        self.channel.counts()
    }

    /// Takes a packet. `is_listed`: it is sent when the machine is driven next.
    fn send(
        &mut self,
        to: Rank,
        packet: (&[u8], &[u8]),
        is_solicited: bool,
        is_listed: bool,
    ) -> Poll<Result<(), Fault>> {
        let now = self.datagrams.now();
        let mut sent = self.channel.send(now, to, packet, is_solicited);
        if is_listed && sent.is_ready() {
            return sent;
        }
        self.drive_at(now);
        if sent.is_pending() {
            sent = self.channel.send(self.datagrams.now(), to, packet, is_solicited); // acknowledgements were taken in
            self.drive();
        }
        sent
    }

    /// The next packet. What is due is sent if there is none.
    fn next(&mut self) -> Option<(Rank, Channel, Box<[u8]>)> {
        let mut packet = self.channel.take();
        if packet.is_none() {
            self.drive();
            packet = self.channel.take();
        }
        if self.channel.due() == 0 || self.datagrams.waiting() >= MANY {
            self.drive(); // the sender is told of the room
        }
        packet
    }

    /// The same for a caller that waits for nothing: what is due may be sent later.
    fn next_arrived(&mut self) -> Option<(Rank, Channel, Box<[u8]>)> {
        if self.channel.has_ready() || self.datagrams.waiting() > 0 { self.next() } else { None }
    }
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connecting {
    /// Nobody has asked for it.
    Unasked,
    /// See [`Absent::Asked`].
    Asked,
    /// See [`Absent::Refused`]: it may be asked for again.
    Refused,
    /// Packets may take it.
    Open,
}

/// A packet that came over a connection or by a fast path, and the bytes of the machine before it.
pub type Apart = (Arrival, [u8; APART]);

/// How the owner of a rank's packets waits.
pub trait DatagramWaits: Debug + Send + 'static {
    /// The rank's datagrams.
    type Datagrams: Datagrams;

    /// Whether a rank can be sent to.
    ///
    /// # Errors
    /// `NoSuchRank`, `PeerDied`, `PeerLeft`.
    fn needs(&self, rank: Rank) -> Result<(), Fault>;

    /// Has the task polled again after an arrival, and at `due` at the latest. `room`: it waits to
    /// send to that rank, otherwise for a packet.
    ///
    /// # Errors
    /// Those of [`Patience`], when it is over.
    fn pend(&mut self, cx: &mut Context<'_>, room: Option<Rank>, patience: Patience, due: u64) -> Result<(), Fault>;

    /// Drains what has arrived at the card, over connections as well.
    fn progress(&self) {}

    /// The connections beside the datagrams, and how many messages [count](Transport::count) before one is
    /// asked for. `None`: there are none.
    fn connections(&self) -> Option<(ChannelTo, u32)>;

    /// How far the connection to a rank is, which either of the two has asked for.
    fn connection(&self, to: Rank) -> Connecting;

    /// What became of the connections so far.
    fn connection_counts(&self) -> ChannelCounts;

    /// Asks for the connection to a rank.
    fn connect(&self, to: Rank);

    /// The longest packet of a [fast path](Channel::FastPath), with the bytes of the machine. `None`: there never is
    /// one.
    fn fast_path(&self) -> Option<usize> {
        None
    }

    /// How many slots the fast path to a rank has; 0: there is none.
    fn slots(&self, to: Rank) -> u32 {
        let _ = to;
        0
    }

    /// Sends a packet, before which are [bytes of the machine](DatagramChannel::APART), over the connection to a
    /// rank, or by the fast path if there is a [free slot](DatagramChannel::has_slot): see [`Transport::poll_send`].
    ///
    /// # Errors
    /// As there.
    fn send_apart(&mut self, cx: &mut Context<'_>, to: Rank, packet: Packet<'_>) -> Poll<Result<(), Fault>>;

    /// The next packet that came over a connection or by a fast path, and gives the memory of the last one back.
    fn next_apart(&mut self) -> Option<Apart>;

    /// Copies bytes of that packet from an offset on, as [`Transport::read`] does.
    fn read_apart(&self, offset: usize, into: &mut [u8]);

    /// A rank whose connection broke, once all that came over it was [taken](Self::next_apart). There is none
    /// unless packets over connections are [kept](DatagramChannel::keeping).
    fn next_broken(&mut self) -> Option<Rank> {
        None
    }

    /// The wait for room to send to a rank, or else for a packet, is over.
    fn withdraw(&mut self, room: Option<Rank>) {
        let _ = room;
    }
}

/// The packets of a rank over datagrams.
#[derive(Debug)]
pub struct DatagramTransport<W: DatagramWaits> {
    machine: SharedMachine<W::Datagrams>,
    /// The connection to a rank, datagrams, and the fast path.
    channels: [ChannelTo; 3],
    /// So many messages to a rank count before its connection is asked for.
    connects_after: u32,
    /// How many have counted since it was last asked for, by rank; empty if there are no connections.
    counted: Vec<u32>,
    waits: W,
    /// The packet that was received last, unless it is [where it came](DatagramWaits::read_apart).
    current: Option<Box<[u8]>>,
    /// In a list, whether packets of it are still to be sent.
    list: Option<bool>,
}

impl<W: DatagramWaits> DatagramTransport<W> {
    /// The packets of a machine.
    pub fn new(machine: SharedMachine<W::Datagrams>, waits: W) -> Self {
        let (packet_max, ranks, keeps) = {
            let Machine { channel, datagrams } = &*lock(&machine);
            (datagrams.longest() - DatagramChannel::HEADER, channel.ranks(), channel.keeps())
        };
        let datagrams = ChannelTo { channel: Channel::Datagrams, packet_max, follows_writes: false };
        let connections = waits.connections();
        let counted = vec![0; connections.map_or(0, |_| ranks)];
        let (mut connection, connects_after) = connections.unwrap_or((datagrams, 0));
        if keeps {
            // A packet may become a datagram, and does not follow the writes then.
            connection.packet_max = connection.packet_max.min(packet_max);
            connection.follows_writes = false;
        }
        let room = waits.fast_path().map_or(0, |longest| longest - APART);
        let packet_max = room.min(connection.packet_max);
        let channels = [connection, datagrams, ChannelTo { channel: Channel::FastPath, packet_max, ..connection }];
        Self { machine, channels, connects_after, counted, waits, current: None, list: None }
    }

    /// What the rank's machine has done so far.
    pub fn counts(&self) -> DatagramCounts {
        lock(&self.machine).counts()
    }
}

impl<W: DatagramWaits> DatagramTransport<W> {
    /// How far the connection to a rank is. `None`: there never is one.
    fn connecting(&self, to: Rank) -> Option<Connecting> {
        self.counted.get(to.index()).map(|_| self.waits.connection(to))
    }

    /// Whether a slot of the fast path to a rank is free, by what has arrived.
    fn has_slot(&self, to: Rank) -> bool {
        let has_slot = |machine: &Machine<W::Datagrams>| {
            let now = machine.datagrams.now();
            machine.channel.has_slot(now, to, self.waits.slots(to))
        };
        if has_slot(&lock(&self.machine)) {
            return true;
        }
        self.waits.progress();
        let mut machine = lock(&self.machine);
        machine.drive(); // acknowledgements are taken in
        has_slot(&machine)
    }

    /// Sends a packet over the connection to a rank, or by the fast path.
    fn send_apart(&mut self, cx: &mut Context<'_>, to: Rank, packet: Packet<'_>) -> Poll<Result<(), Fault>> {
        let mut machine = lock(&self.machine);
        let now = machine.datagrams.now();
        if packet.channel == Channel::FastPath && !machine.channel.has_slot(now, to, self.waits.slots(to)) {
            return Poll::Pending;
        }
        let mut before = machine.channel.begin_apart(now, to)?;
        if before.is_pending() {
            machine.drive(); // what is before it leaves
            before = machine.channel.begin_apart(now, to)?;
        }
        let Poll::Ready(before) = before else { return Poll::Pending };
        let (len, mut short, mut long) = (APART + packet.head.len(), [0; APART + HEAD], Vec::new());
        if len > short.len() {
            long.resize(len, 0);
        }
        let head = short.get_mut(..len).unwrap_or(&mut long);
        head[..APART].copy_from_slice(&before);
        head[APART..].copy_from_slice(packet.head);
        let sent = self.waits.send_apart(cx, to, Packet { head, ..packet })?;
        if sent.is_ready() {
            let due = machine.channel.due();
            machine.channel.left_apart(now, (to, packet.channel), (packet.head, packet.body), packet.solicited);
            if machine.channel.due() < due {
                machine.rest(); // it is driven to ask
            }
        }
        sent.map(Ok)
    }

    /// Sends a packet as a datagram.
    fn send_datagram(&mut self, to: Rank, Packet { head, body, solicited, .. }: Packet<'_>) -> Poll<Result<(), Fault>> {
        let is_listed = self.list.is_some();
        let mut sent = lock(&self.machine).send(to, (head, body), solicited, is_listed);
        if sent.is_pending() {
            self.waits.progress();
            sent = lock(&self.machine).send(to, (head, body), solicited, is_listed);
        }
        self.list = self.list.map(|_| true);
        sent
    }
}

/// Takes in what came over connections, until a packet is in order, and which of them broke. A packet that is the next
/// one is returned, and stays where it came.
fn take_apart<W: DatagramWaits>(machine: &mut Machine<W::Datagrams>, waits: &mut W) -> Result<Option<Arrival>, Fault> {
    while !machine.channel.has_ready()
        && let Some((arrival, before)) = waits.next_apart()
    {
        let (Arrival { from, channel, len }, now) = (arrival, machine.datagrams.now());
        if machine.channel.takes_apart(now, from, before, channel)? {
            if machine.channel.due() == 0 {
                machine.drive(); // the sender is told of the room
            }
            return Ok(Some(arrival));
        }
        let mut packet = vec![0; len];
        waits.read_apart(0, &mut packet);
        machine.channel.arrived_apart(now, from, before, (channel, packet.into()))?;
    }
    while let Some(to) = waits.next_broken() {
        machine.channel.lose_apart(to);
    }
    Ok(None)
}

/// The arrival of a packet of the machine, which is the current one then.
fn arrival(current: &mut Option<Box<[u8]>>, (from, channel, packet): (Rank, Channel, Box<[u8]>)) -> Arrival {
    let len = packet.len();
    *current = Some(packet);
    Arrival { from, channel, len }
}

/// The fault of a wait on a lost peer.
fn lost(channel: &DatagramChannel, patience: Patience) -> Result<(), Fault> {
    match patience.watch {
        Watch::Rank(rank) | Watch::RankAndFailures(rank) if channel.is_lost(rank) => {
            Err(Fault::of(FaultKind::ConnectionLost, rank))
        }
        _ => Ok(()),
    }
}

impl<W: DatagramWaits> Transport for DatagramTransport<W> {
    fn channels(&self, to: Rank) -> &[ChannelTo] {
        match self.connecting(to) {
            Some(Connecting::Open) if self.waits.slots(to) > 0 => &self.channels,
            Some(Connecting::Open) => &self.channels[..2],
            _ => &self.channels[1..2],
        }
    }

    fn has_fast_path(&self) -> bool {
        self.waits.fast_path().is_some()
    }

    fn count(&mut self, to: Rank, bytes: usize) -> ChannelTo {
        let [connection, _, fast_path] = self.channels;
        match self.connecting(to) {
            Some(Connecting::Open) => {
                let fits = self.waits.slots(to) > 0 && bytes <= fast_path.packet_max;
                return if fits && self.has_slot(to) { fast_path } else { connection };
            }
            Some(Connecting::Unasked | Connecting::Refused) => {
                let counted = &mut self.counted[to.index()];
                *counted += 1;
                if *counted >= self.connects_after {
                    *counted = 0; // for the next one
                    self.waits.connect(to);
                }
            }
            Some(Connecting::Asked) | None => {}
        }
        self.channels(to)[0] // a connection may be there at once
    }

    fn channel_counts(&self) -> ChannelCounts {
        let DatagramCounts { resent, overtook, .. } = self.counts();
        ChannelCounts { resent, overtook, ..self.waits.connection_counts() }
    }

    fn absent(&self, to: Rank) -> Option<Absent> {
        let messages = *self.counted.get(to.index())?;
        match self.waits.connection(to) {
            Connecting::Unasked => Some(Absent::Counted { messages, of: self.connects_after }),
            Connecting::Asked => Some(Absent::Asked),
            Connecting::Refused => Some(Absent::Refused { messages, of: self.connects_after }),
            Connecting::Open => None,
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, to: Rank, packet: Packet<'_>) -> Poll<Result<(), Fault>> {
        let is_apart = packet.channel != Channel::Datagrams;
        let of_it = self.channels.iter().find(|to| to.channel == packet.channel);
        packet.check(of_it.unwrap_or(&self.channels[1]).packet_max)?;
        self.waits.needs(to)?;
        let sent = if is_apart { self.send_apart(cx, to, packet) } else { self.send_datagram(to, packet) };
        if sent.is_ready() {
            self.waits.withdraw(Some(to));
        }
        if sent.is_ready() || packet.channel == Channel::FastPath {
            return sent; // it is not waited for
        }
        let due = lock(&self.machine).channel.due();
        self.waits.pend(cx, Some(to), Patience::on(to), due)?;
        Poll::Pending
    }

    fn set_list(&mut self, is_open: bool) {
        if std::mem::replace(&mut self.list, is_open.then_some(false)) == Some(true) {
            lock(&self.machine).drive();
        }
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>, patience: Patience) -> Poll<Result<Arrival, Fault>> {
        self.current = None; // its memory is free before the next is there
        self.waits.progress();
        let Self { machine, waits, current, .. } = self;
        let mut machine = lock(machine);
        let mut next = |machine: &mut Machine<W::Datagrams>, waits: &mut W| {
            let apart = take_apart(machine, waits)?;
            Ok(apart.or_else(|| Some(arrival(current, machine.next()?))))
        };
        let mut found = next(&mut machine, waits)?;
        if found.is_none() {
            let due = machine.channel.due();
            // A death says more than silence.
            let pends = waits.pend(cx, None, patience, due).and_then(|()| lost(&machine.channel, patience));
            let Err(fault) = pends else { return Poll::Pending };
            waits.progress();
            found = next(&mut machine, waits)?; // a packet before the end counts
            if found.is_none() {
                waits.withdraw(None);
                return Poll::Ready(Err(fault));
            }
        }
        waits.withdraw(None);
        found.map_or(Poll::Pending, |arrival| Poll::Ready(Ok(arrival)))
    }

    fn try_recv(&mut self, _me: Rank) -> Poll<Result<Arrival, Fault>> {
        let Self { machine, waits, current, .. } = self;
        *current = None;
        waits.progress();
        let mut machine = lock(machine);
        let mut found = take_apart(&mut machine, waits)?;
        if found.is_none() {
            found = machine.next_arrived().map(|packet| arrival(current, packet));
        }
        let Some(found) = found else { return Poll::Pending };
        waits.withdraw(None);
        Poll::Ready(Ok(found))
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        let Some(packet) = &self.current else { return self.waits.read_apart(offset, into) };
        let bytes = packet.get(offset..).unwrap_or_default();
        let len = into.len().min(bytes.len());
        into[..len].copy_from_slice(&bytes[..len]);
    }
}
