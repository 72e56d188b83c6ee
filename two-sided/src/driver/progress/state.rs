//! The engine of a rank with its packets and transfers, which are locked together.

use std::task::{Context, Poll};

use onesided_fabric::bootstrap::fork;
use onesided_fabric::remote_memory::{Fault, Rank};
use onesided_fabric::{Arrival, Channel, ChannelTo, EventInterest, Fabric, NOBODY, Packet, Renewed, Transport};

use super::{Progress, Registered};
use crate::driver::transfers::{self, Begun, Transfer};
use crate::engine::wire::{EAGER_HEAD, starts_transfer};
use crate::engine::{Direct, Engine, Listed, PostOutcome, TooLong};

pub(crate) struct State<F: Fabric> {
    pub(crate) engine: Engine<Registered<F>>,
    pub(crate) transport: F::Transport,
    pub(super) transfers: Vec<Transfer<F>>,
    pub(super) interest: EventInterest,
    /// The sends that were started when it was last updated.
    pub(super) sends_seen: u64,
}

const fn posted(sent: Poll<Result<(), Fault>>, channel: Channel) -> PostOutcome {
    match sent {
        Poll::Ready(Ok(())) => PostOutcome::Sent(channel),
        Poll::Ready(Err(fault)) => PostOutcome::Failed(fault),
        Poll::Pending => PostOutcome::Busy,
    }
}

impl<F: Fabric> State<F> {
    /// Ends the transfers that are over: whether there were some.
    pub(super) fn end_transfers(&mut self, cx: &mut Context<'_>) -> bool {
        transfers::end(&mut self.transfers, &mut self.engine, cx)
    }

    /// Tells the engine what was begun. `false`: the message is to be read later.
    pub(super) fn tell(&mut self, on: &Progress<F>, begun: Begun<F>) -> bool {
        begun.tell(on, &mut self.engine, &mut self.transfers, &self.transport)
    }

    #[inline]
    pub(super) fn send_eager(
        &mut self,
        to: Rank,
        envelope: (u32, u32),
        bytes: &[u8],
        over: Option<Channel>,
    ) -> Result<Option<usize>, TooLong> {
        let Self { engine, transport, .. } = self;
        let ChannelTo { channel, packet_max, .. } = match over {
            // A fast path that is full leaves it to the connection.
            None | Some(Channel::FastPath) => transport.count(to, EAGER_HEAD + bytes.len()),
            Some(channel) => named(transport, to, channel),
        };
        if bytes.len() > packet_max - EAGER_HEAD {
            return Err(TooLong);
        }
        let mut cx = Context::from_waker(NOBODY);
        engine.send_eager(to, envelope, bytes, |to, head, body| {
            posted(transport.poll_send(&mut cx, to, Packet { body, ..Packet::new(channel, head) }), channel)
        })
    }

    /// Sends the first ones of a list together: how many.
    pub(super) fn send_batch(&mut self, to: Rank, list: (u32, &[Listed<'_>])) -> usize {
        let (mut cx, Self { engine, transport, .. }) = (Context::from_waker(NOBODY), self);
        let ChannelTo { channel, packet_max, .. } = transport.count(to, usize::MAX);
        engine.send_batch(to, list, packet_max, |to, head, body| {
            posted(transport.poll_send(&mut cx, to, Packet { body, ..Packet::new(channel, head) }), channel)
        })
    }

    /// Sends what can be sent. The waker is woken when there may be room for more.
    pub(super) fn flush(&mut self, cx: &mut Context<'_>) {
        let Self { engine, transport, .. } = self;
        let me = engine.me();
        transport.set_list(true);
        engine.flush(|to, head, body| {
            let solicited = starts_transfer(head, to == me);
            let channels = transport.channels(to); // one that was opened since may have shorter packets
            let fits = |channel: &&ChannelTo| head.len() + body.len() <= channel.packet_max;
            let channel = channels.iter().find(fits).unwrap_or(&channels[0]).channel;
            posted(transport.poll_send(cx, to, Packet { channel, head, body, solicited }), channel)
        });
        transport.set_list(false);
    }
}

/// The channel to a rank that a rule names, if it is still there.
#[cold]
fn named(transport: &impl Transport, to: Rank, channel: Channel) -> ChannelTo {
    let channels = transport.channels(to);
    *channels.iter().find(|to| to.channel == channel).unwrap_or(&channels[0])
}

/// Takes in the next packet, if there is one: `receive` receives it.
#[inline]
pub(super) fn take_in<S, T: Transport>(
    (engine, transport): (&mut Engine<S>, &mut T),
    direct: &mut Direct<'_>,
    receive: impl FnOnce(&mut T) -> Poll<Result<Arrival, Fault>>,
) -> Poll<Result<(), Fault>> {
    if engine.has_batch() {
        engine.next_of_batch(direct);
        return Poll::Ready(Ok(()));
    }
    fork::check()?; // other ranks overwrite what a child would read
    receive(transport).map_ok(|Arrival { from, len, .. }| {
        let head = transport.first();
        engine.arrived(from, (&head, len), |offset, into| transport.read(offset, into), direct);
    })
}

/// A rank or its connection is lost. Whether the connection is made anew, so that more may come.
#[cold]
pub(super) fn end_connection<S>(
    (engine, transport): (&mut Engine<S>, &mut impl Transport),
    rank: Rank,
    fault: Fault,
) -> bool {
    match transport.renewed(rank) {
        Some(Renewed { is_missing, .. }) => {
            engine.renew(rank, fault, is_missing);
            true
        }
        None => {
            engine.lose(rank, fault);
            false
        }
    }
}
