//! Unreliable datagrams of simulated ranks, and the packets over them.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use onesided_fabric::{
    Apart, Arrival, Channel, ChannelCounts, ChannelTo, Connecting, DatagramChannel, DatagramTransport, DatagramWaits,
    Datagrams, Identity, Machine, Packet, Posted, SharedMachine,
};
use onesided_remote_memory::{Fault, FaultKind, Patience, Rank, RemoteMemory};

use crate::agenda::NEVER;
use crate::endpoint::{Shared, SimFabric};
use crate::transport::{CONNECTION, SimWaits, read};

/// The longest packet of a fast path, and how many slots it has.
const SLOT: u32 = 2032;
const SLOTS: u32 = 32;

/// The datagrams of a rank.
#[derive(Debug)]
pub struct SimDatagrams {
    shared: Arc<Shared>,
    rank: Rank,
    size: u32,
    longest: usize,
    /// Keeps the rank in the world while a packet was not acknowledged.
    keeps: Option<SimFabric>,
    /// When the rank is polled for it.
    due: u64,
}

/// Machines by rank; each is held by the task that drives it.
pub(crate) type Machines = std::collections::BTreeMap<Rank, Weak<std::sync::Mutex<Machine<SimDatagrams>>>>;

impl Datagrams for SimDatagrams {
    fn longest(&self) -> usize {
        self.longest
    }

    fn now(&self) -> u64 {
        self.shared.now()
    }

    fn post(&mut self, to: Rank, header: &[u8], packet: &[u8], _: bool) -> Posted {
        let mut state = self.shared.lock();
        let posted = state.post_datagram((self.rank, to), None, [header, packet].concat());
        self.shared.advance_clock(&state);
        if posted { Posted::Sent } else { Posted::Gone }
    }

    fn drain(&mut self, arrived: &mut dyn FnMut(&[u8])) {
        loop {
            let mut state = self.shared.lock();
            let Some(datagram) = state.take_datagram(self.rank) else { return };
            // Out of the card's buffer.
            state.charge_copy(datagram.len() as u64);
            self.shared.advance_clock(&state);
            drop(state);
            arrived(&datagram);
        }
    }

    fn rest(&mut self, due: u64, is_idle: bool) {
        let due = due.max(self.now() + 1);
        if due < NEVER && (due < self.due || self.due <= self.now()) {
            self.due = due;
            self.shared.lock().alarm(self.rank, due);
        }
        if is_idle {
            self.keeps = None;
        } else if self.keeps.is_none() {
            self.keeps = Some(SimFabric::new(Arc::clone(&self.shared), self.rank, self.size));
        }
    }
}

impl DatagramWaits for SimWaits {
    type Datagrams = SimDatagrams;

    fn needs(&self, rank: Rank) -> Result<(), Fault> {
        if rank.0 >= self.fabric.size() {
            return Err(Fault::of(FaultKind::NoSuchRank, rank));
        }
        let state = self.fabric.state();
        let own = self.fabric.rank();
        state.absent(own, rank).or_else(|| state.denied(own, rank)).map_or(Ok(()), Err)
    }

    fn pend(&mut self, _: &mut Context<'_>, room: Option<Rank>, patience: Patience, _due: u64) -> Result<(), Fault> {
        match self.register(room, patience) {
            Poll::Ready(over) => over, // the machine's own timers are alarms of its rank
            Poll::Pending => {
                let (mut state, me) = (self.fabric.state(), self.fabric.rank());
                if let Some(polls_at) = state.wire.polls_at(me, state.now) {
                    state.alarm_at_latest(me, polls_at);
                }
                Ok(())
            }
        }
    }

    fn withdraw(&mut self, room: Option<Rank>) {
        self.end(room);
    }

    fn connections(&self) -> Option<(ChannelTo, u32)> {
        Some((CONNECTION, self.fabric.state().wire.connects_after?))
    }

    fn connection(&self, to: Rank) -> Connecting {
        match self.fabric.state().wire.connection(self.fabric.rank(), to) {
            None => Connecting::Unasked,
            Some(true) => Connecting::Open,
            Some(false) => Connecting::Refused,
        }
    }

    fn connection_counts(&self) -> ChannelCounts {
        self.fabric.state().wire.connection_counts(self.fabric.rank())
    }

    fn connect(&self, to: Rank) {
        let now = self.fabric.now();
        self.fabric.state().wire.connect(self.fabric.rank(), to, now);
    }

    fn fast_path(&self) -> Option<usize> {
        let wire = &self.fabric.state().wire;
        (wire.fast_paths > 0).then_some(wire.mtu.min(SLOT) as usize)
    }

    fn slots(&self, to: Rank) -> u32 {
        if self.fabric.state().wire.has_ring(to, self.fabric.rank()) { SLOTS } else { 0 }
    }

    fn send_apart(&mut self, _: &mut Context<'_>, to: Rank, packet: Packet<'_>) -> Poll<Result<(), Fault>> {
        if !self.post(to, packet)? {
            return Poll::Pending;
        }
        self.fabric.state().wire.use_connection(self.fabric.rank(), to);
        Poll::Ready(Ok(()))
    }

    fn next_apart(&mut self) -> Option<Apart> {
        let short = self.fast_path();
        let (mut state, me) = (self.fabric.state(), self.fabric.rank());
        state.charge_slots(me);
        let (from, channel, bytes) = state.take_packet(me)?;
        let now = state.now;
        let counts = channel == Channel::Connection && short.is_some_and(|short| bytes.len() <= short);
        state.wire.came_apart(me, (from, counts), now);
        let (before, packet) = bytes.split_first_chunk()?;
        let apart = (Arrival { from, channel, len: packet.len() }, *before);
        drop(state);
        self.apart = bytes;
        Some(apart)
    }

    fn read_apart(&self, offset: usize, into: &mut [u8]) {
        read(&self.apart, DatagramChannel::APART + offset, into);
    }
}

/// The packets of a rank over its machine.
pub(crate) fn take(waits: SimWaits) -> Result<DatagramTransport<SimWaits>, Fault> {
    Ok(DatagramTransport::new(machine(&waits.fabric)?, waits))
}

/// The machine of a rank, which a task drives to the end of the simulation.
fn machine(fabric: &SimFabric) -> Result<SharedMachine<SimDatagrams>, Fault> {
    let (rank, shared) = (fabric.rank(), &fabric.shared);
    if let Some(machine) = shared.machines().get(&rank).and_then(Weak::upgrade) {
        return Ok(machine);
    }
    let incarnations: Vec<u32> = (0..fabric.size()).map(|rank| 1 + fabric.state().restarts(Rank(rank))).collect();
    let own = Identity { job: 1, rank, incarnation: incarnations[rank.index()] };
    let (longest, size) = (fabric.state().wire.mtu as usize, fabric.size());
    let datagrams = SimDatagrams { shared: Arc::clone(shared), rank, size, longest, keeps: None, due: 0 };
    let machine = Machine::new(DatagramChannel::new(own, incarnations), datagrams);
    shared.machines().insert(rank, Arc::downgrade(&machine));
    let driven = Arc::clone(&machine);
    let drives = std::future::poll_fn(move |_| {
        onesided_fabric::lock(&driven).drive();
        Poll::<()>::Pending
    });
    fabric.state().serve(rank, Box::pin(drives)).map_err(|_| Fault::of(FaultKind::Closed, rank))?;
    Ok(machine)
}
