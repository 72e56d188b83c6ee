//! The packets of one of two fabrics.

use std::task::{Context, Poll};

use onesided_remote_memory::{Fault, Patience, Rank};

use crate::dispatch::Either::{self, First, Second};
use crate::{Arrival, Renewed, SHORTEST_LIMIT, Transport};

impl<A: Transport, B: Transport> Transport for Either<A, B> {
    fn packet_max(&self, to: Rank) -> usize {
        match self {
            First(packets) => packets.packet_max(to),
            Second(packets) => packets.packet_max(to),
        }
    }

    #[inline]
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        to: Rank,
        head: &[u8],
        body: &[u8],
        solicited: bool,
    ) -> Poll<Result<(), Fault>> {
        match self {
            First(packets) => packets.poll_send(cx, to, head, body, solicited),
            Second(packets) => packets.poll_send(cx, to, head, body, solicited),
        }
    }

    fn set_list(&mut self, is_open: bool) {
        match self {
            First(packets) => packets.set_list(is_open),
            Second(packets) => packets.set_list(is_open),
        }
    }

    fn follows_writes(&self) -> bool {
        match self {
            First(packets) => packets.follows_writes(),
            Second(packets) => packets.follows_writes(),
        }
    }

    #[inline]
    fn poll_recv(&mut self, cx: &mut Context<'_>, patience: Patience) -> Poll<Result<Arrival, Fault>> {
        match self {
            First(packets) => packets.poll_recv(cx, patience),
            Second(packets) => packets.poll_recv(cx, patience),
        }
    }

    #[inline]
    fn try_recv(&mut self, me: Rank) -> Poll<Result<Arrival, Fault>> {
        match self {
            First(packets) => packets.try_recv(me),
            Second(packets) => packets.try_recv(me),
        }
    }

    #[inline]
    fn spin(&mut self, polls: u32) {
        match self {
            First(packets) => packets.spin(polls),
            Second(packets) => packets.spin(polls),
        }
    }

    fn renewed(&mut self, rank: Rank) -> Option<Renewed> {
        match self {
            First(packets) => packets.renewed(rank),
            Second(packets) => packets.renewed(rank),
        }
    }

    #[inline]
    fn read(&self, offset: usize, into: &mut [u8]) {
        match self {
            First(packets) => packets.read(offset, into),
            Second(packets) => packets.read(offset, into),
        }
    }

    #[inline]
    fn first(&self) -> [u8; SHORTEST_LIMIT] {
        match self {
            First(packets) => packets.first(),
            Second(packets) => packets.first(),
        }
    }
}
