//! Messages of datagrams that are received into memory of a simulated rank (UD-ZCopy: koop-2008, section 3.2).

use std::future::poll_fn;
use std::task::{Context, Poll};

use onesided_fabric::{Fabric, Landing, Launch, Missing, Places, SegmentKey, debug};
use onesided_remote_memory::{Fault, FaultKind, Rank, RegionId, RemoteMemory};

use crate::endpoint::SimFabric;
use crate::segment::SimSegment;

/// How many datagrams a message has at most.
const RECEIVES: u64 = 4096;
/// How many are on their way to a card at a time.
const SENDS: u64 = 256;

/// The memory of a message. The state has what came.
struct SimLanding {
    fabric: SimFabric,
    key: u32,
    into: SimSegment,
}

debug!([] SimLanding, |this| "SimLanding({} of {})", this.key, this.into.rank);

impl Drop for SimLanding {
    fn drop(&mut self) {
        self.fabric.state().end_landing(self.into.rank, self.key);
    }
}

impl Landing for SimLanding {
    fn poll_over(&mut self, _: &mut Context<'_>) -> Poll<Result<Missing, Fault>> {
        let Self { fabric, key, into } = self;
        let over = fabric.state().poll_landing(into.rank, *key);
        fabric.shared.advance_clock(&fabric.state());
        match over {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => Poll::Ready(Err(Fault::of(FaultKind::Closed, into.rank))),
            Poll::Ready(Some(placement)) => {
                let read = |at, bytes: &mut [u8]| fabric.read_direct(into, at, bytes);
                let (missing, counts) = placement.settle(read, |at, bytes| fabric.write_direct(into, at, bytes))?;
                fabric.state().wire.count_landed(into.rank, counts);
                Poll::Ready(Ok(missing))
            }
        }
    }
}

impl SimFabric {
    pub(crate) fn longest_landing(&self, peer: Rank) -> u64 {
        let unit = self.unit().filter(|_| peer != self.rank);
        unit.map_or(0, |unit| RECEIVES * u64::from(unit))
    }

    /// The length of a datagram, if there are some.
    fn unit(&self) -> Option<u32> {
        let wire = &self.state().wire;
        wire.datagrams.then_some(wire.mtu)
    }

    pub(crate) fn begin_landing(&self, into: &SimSegment, len: u64) -> Result<(SegmentKey, Box<dyn Landing>), Fault> {
        let refused = |kind| Fault::of(kind, self.rank);
        let unit = self.unit().filter(|unit| (1..=RECEIVES * u64::from(*unit)).contains(&len));
        let unit = unit.ok_or(refused(FaultKind::Unsupported))?;
        self.own(into.rank)?;
        into.check(0, len)?;
        let key = self.state().land(into.place(0), Places::new(len, unit));
        let key = key.ok_or(refused(FaultKind::Full))?;
        let landing = SimLanding { fabric: self.clone(), key, into: into.clone() };
        let address = u64::from(unit) << u32::BITS;
        Ok((SegmentKey { rank: self.rank, region: RegionId(0), len, address, rkey: key }, Box::new(landing)))
    }

    pub(crate) fn begin_launch(
        &self,
        (from, offset): (&SimSegment, u64),
        &SegmentKey { rank, len, address, rkey: key, .. }: &SegmentKey,
    ) -> Result<Launch, Fault> {
        self.own(from.rank)?;
        from.check(offset, len)?;
        let unit = self.unit().filter(|unit| address == u64::from(*unit) << u32::BITS);
        let unit = unit.filter(|_| len <= self.longest_landing(rank) && rank.0 < self.size());
        let unit = unit.ok_or(Fault::of(FaultKind::Unsupported, rank))?;
        let (fabric, from, places) = (self.clone(), from.clone(), Places::new(len, unit));
        let (mut next, mut left_at) = (0, 0);
        let posts = move |_: &mut Context<'_>| {
            fabric.poll_launch((&from, offset), (rank, key), places, (&mut next, &mut left_at))
        };
        Ok(Box::pin(poll_fn(posts)))
    }

    /// Posts the `next` datagrams, as many as may be on their way. The last of them has left at `left_at`.
    fn poll_launch(
        &self,
        (from, offset): (&SimSegment, u64),
        (to, key): (Rank, u32),
        places: Places,
        (next, left_at): (&mut u32, &mut u64),
    ) -> Poll<Result<(), Fault>> {
        let mut state = self.state();
        let most = SENDS * (state.wire.occupied(state.wire.mtu.into()) + state.wire.send);
        while let Some((at, len)) = places.of(*next)
            && state.sends_for(self.rank) <= most
        {
            let mut bytes = vec![0; len as usize];
            state.ranks[self.rank.index()].memory.read(from.region, from.at + offset + at, &mut bytes);
            if !state.post_datagram((self.rank, to), Some((key, *next)), bytes) {
                return Poll::Ready(Err(Fault::of(FaultKind::ConnectionLost, to)));
            }
            *next += 1;
            *left_at = state.clock() + state.sends_for(self.rank);
        }
        self.shared.advance_clock(&state);
        let (now, is_posted) = (state.clock(), *next == places.count());
        if is_posted && *left_at <= now {
            return Poll::Ready(Ok(()));
        }
        let polls_at = if is_posted { *left_at } else { now + most / 2 };
        state.alarm_at_latest(self.rank, polls_at);
        Poll::Pending
    }
}
