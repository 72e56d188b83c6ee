//! The engine without the interface above it: for a benchmark of the layers.

use std::future::poll_fn;
use std::task::{Context, Poll};

use onesided_fabric::remote_memory::{Fault, FaultKind, Patience, Rank};
use onesided_fabric::{Arrival, Drive, Fabric, NOBODY, Transport, block_on};

use crate::engine::{Direct, Engine, Posted, Posting, window};
use crate::matching::Pattern;

/// A rank's packets and engine, which no other task shares: no lock, no handles, no rendezvous.
#[doc(hidden)]
#[derive(Debug)]
pub struct EngineEnd<F: Fabric> {
    fabric: F,
    engine: Engine<()>,
    transport: F::Transport,
}

impl<F: Drive> EngineEnd<F> {
    /// Takes the rank's packets.
    ///
    /// # Errors
    /// As of [`Fabric::transport`].
    pub fn new(fabric: &F) -> Result<Self, Fault> {
        let fabric = fabric.for_messages();
        let mut engine = Engine::new(fabric.rank(), window(fabric.size()), 1);
        engine.open(0);
        Ok(Self { transport: fabric.transport()?, fabric, engine })
    }

    /// Sends an eager message, and waits until it has left.
    ///
    /// # Errors
    /// `TooLong`; as of [`Transport::poll_send`].
    #[inline]
    pub fn send(&mut self, to: Rank, bytes: &[u8]) -> Result<(), Fault> {
        let Self { fabric, engine, transport } = self;
        let cx = &mut Context::from_waker(NOBODY);
        let sent = engine
            .send_eager(to, (0, 0), bytes, |to, head, body| posted(transport.poll_send(cx, to, head, body)))
            .map_err(|_| Fault::new(FaultKind::TooLong))?;
        let Some(send) = sent else { return Ok(()) };
        block_on(
            fabric,
            poll_fn(|cx| {
                engine.flush(|to, head, body| posted(transport.poll_send(cx, to, head, body)));
                let ended = engine.sent(send, cx.waker());
                if ended.is_none() {
                    // The peer's credit.
                    arrive((engine, transport), cx, to, &mut Direct::none())?;
                }
                ended.map_or(Poll::Pending, Poll::Ready)
            }),
        )?;
        engine.detach(send);
        Ok(())
    }

    /// Receives an eager message into a slice that it fits into.
    ///
    /// # Errors
    /// As of [`Transport::poll_recv`]; `TooLong`.
    #[inline]
    pub fn receive(&mut self, from: Rank, into: &mut [u8]) -> Result<usize, Fault> {
        let Self { fabric, engine, transport } = self;
        let pattern = Pattern { context: 0, source: Some(from.0), tag: Some(0) };
        let mut receive = None;
        block_on(
            fabric,
            poll_fn(|cx| {
                let mut lost = None;
                let mut arrive = |engine: &mut Engine<()>, direct: &mut Direct<'_>| {
                    let arrived = arrive((engine, transport), cx, from, direct);
                    lost = arrived.err().or(lost);
                    arrived.unwrap_or(false)
                };
                let mut direct = match receive {
                    Some(posted) => Direct::posted(posted, Some(&mut *into)),
                    None => Direct::into(&mut *into),
                };
                match receive {
                    Some(posted) => _ = engine.land(posted, &mut direct, &mut arrive),
                    None => match engine.receive_into(pattern, &mut direct, &mut arrive) {
                        Posting::Landed(landed) => direct.landed = Some(landed),
                        Posting::Posted(posted) => receive = Some(posted),
                        Posting::Held(_) => return Poll::Ready(Err(Fault::new(FaultKind::TooLong))),
                    },
                }
                if engine.is_busy() {
                    engine.flush(|to, head, body| posted(transport.poll_send(cx, to, head, body)));
                }
                match (direct.landed, lost) {
                    (Some(landed), _) => Poll::Ready(Ok(landed.len as usize)),
                    (None, Some(fault)) => Poll::Ready(Err(fault)),
                    (None, None) => Poll::Pending,
                }
            }),
        )
    }
}

const fn posted(sent: Poll<Result<(), Fault>>) -> Posted {
    match sent {
        Poll::Ready(Ok(())) => Posted::Sent,
        Poll::Ready(Err(fault)) => Posted::Failed(fault),
        Poll::Pending => Posted::Busy,
    }
}

/// Takes in the next packet: whether there was one.
#[inline]
fn arrive(
    (engine, transport): (&mut Engine<()>, &mut impl Transport),
    cx: &mut Context<'_>,
    from: Rank,
    direct: &mut Direct<'_>,
) -> Result<bool, Fault> {
    match transport.poll_recv(cx, Patience::on(from)) {
        Poll::Ready(arrival) => {
            let Arrival { from, len } = arrival?;
            let head = transport.first();
            engine.arrived(from, (&head, len), |offset, into| transport.read(offset, into), direct);
            Ok(true)
        }
        Poll::Pending => Ok(false),
    }
}
