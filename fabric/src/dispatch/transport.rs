//! The packets of one of two fabrics.

use std::task::{Context, Poll};

use onesided_remote_memory::{Fault, Patience, Rank};

use crate::dispatch::Either;
use crate::dispatch::table::forward;
use crate::{Absent, Arrival, ChannelCounts, ChannelTo, Packet, Renewed, SHORTEST_LIMIT, Transport};

// All but the two whose futures call those below.
impl<A: Transport, B: Transport> Transport for Either<A, B> {
    forward! {
        #[inline]
        call fn channels(&self, to: Rank) -> &[ChannelTo];
        #[inline]
        call fn count(&mut self, to: Rank, bytes: usize) -> ChannelTo;
        call fn has_fast_path(&self) -> bool;
        call fn channel_counts(&self) -> ChannelCounts;
        call fn absent(&self, to: Rank) -> Option<Absent>;
        #[inline]
        call fn poll_send(&mut self, cx: &mut Context<'_>, to: Rank, packet: Packet<'_>) -> Poll<Result<(), Fault>>;
        call fn set_list(&mut self, is_open: bool);
        #[inline]
        call fn poll_recv(&mut self, cx: &mut Context<'_>, patience: Patience) -> Poll<Result<Arrival, Fault>>;
        #[inline]
        call fn try_recv(&mut self, me: Rank) -> Poll<Result<Arrival, Fault>>;
        #[inline]
        call fn spin(&mut self, polls: u32);
        call fn renewed(&mut self, rank: Rank) -> Option<Renewed>;
        #[inline]
        call fn read(&self, offset: usize, into: &mut [u8]);
        #[inline]
        call fn first(&self) -> [u8; SHORTEST_LIMIT];
    }
}
