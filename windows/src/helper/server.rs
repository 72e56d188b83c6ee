//! The owner's side: its helper thread serves peers' requests.

use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::Poll;

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind, Notify};

use super::request::Code;
use super::{HelperRequest, OPERANDS, REFUSAL, REPLY, REQUEST, RequestLayout};
use crate::window::inner::Inner;

/// Starts to serve a window, until it is closed or dropped. The fabric's helper thread polls for
/// requests at each event of this rank; a request is one.
pub(crate) fn serve<F: Fabric>(inner: &Arc<Inner<F>>) -> Result<(), Fault> {
    let (theirs, mut served) = (Arc::downgrade(inner), vec![0; inner.world.size() as usize]);
    inner.fabric().endpoint().serve(Box::pin(poll_fn(move |_| look(&theirs, &mut served))), None).map(drop)
}

fn look<F: Fabric>(inner: &Weak<Inner<F>>, served: &mut [u64]) -> Poll<()> {
    let Some(inner) = inner.upgrade().filter(|inner| !inner.lifecycle.is_closed()) else { return Poll::Ready(()) };
    for (origin, served) in (0..).zip(served) {
        // A failure affects only its origin, which waits for a reply as long as this rank lives: if
        // the reply cannot be written there, the origin finds the refusal here.
        if let Err(fault) = answer(&inner, origin, served) {
            let _ = refuse(&inner, origin, *served, fault); // a write to this rank's own memory
        }
    }
    Poll::Pending
}

/// Serves a peer's request, if there is a new one.
fn answer<F: Fabric>(inner: &Inner<F>, origin: u32, served: &mut u64) -> Result<(), Fault> {
    let (fabric, layout, me) = (inner.fabric(), inner.request_layout(), inner.world.rank());
    let number = fabric.load(fabric.word_in(&inner.memory.hidden, layout.at(origin, REQUEST))?)?;
    if number == *served {
        return Ok(());
    }
    *served = number;
    let to = inner.target(origin)?; // no operation without a way to reply
    let outcome = read(inner, layout, origin).and_then(|request| {
        let segment = inner.memory.agent_segment(request.ptr)?;
        request.perform(fabric, &segment)
    });
    let (results, fault) = match &outcome {
        Ok(results) => (&results[..], 0),
        Err(fault) => (&[][..], fault.to_bits()),
    };
    let told = || {
        fabric.put(&to.locks, layout.results(me), results)?;
        fabric.put(&to.locks, layout.at(me, REPLY) + 8, &fault.to_le_bytes())?;
        drop(fabric.write(fabric.word_in(&to.locks, layout.at(me, REPLY))?, number, Notify::Yes));
        Ok(())
    };
    told().map_err(|_: Fault| Fault::new(FaultKind::Unknown))
}

/// Records here, where the origin polls now and then, that its request gets no reply.
fn refuse<F: Fabric>(inner: &Inner<F>, origin: u32, number: u64, fault: Fault) -> Result<(), Fault> {
    let (fabric, at) = (inner.fabric(), inner.request_layout().at(origin, REFUSAL));
    let fault = Fault::of(fault.kind(), fabric.rank()).with_detail(fault.detail());
    fabric.write_direct(&inner.memory.hidden, at + 8, &fault.to_bits().to_le_bytes())?;
    drop(fabric.write(fabric.word_in(&inner.memory.hidden, at)?, number, Notify::No)); // of release order
    Ok(())
}

/// Decodes a peer's request.
fn read<F: Fabric>(inner: &Inner<F>, layout: RequestLayout, origin: u32) -> Result<HelperRequest, Fault> {
    let fabric = inner.fabric();
    let mut header = [0; 32];
    fabric.read_direct(&inner.memory.hidden, layout.at(origin, REQUEST) + 8, &mut header)?;
    let word = |at: usize| header[8 * at..8 * at + 8].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let wrong = || Fault::new(FaultKind::Protocol);
    let code = Code::from_word(word(0)).ok_or_else(wrong)?;
    let (len, sent) = (usize::try_from(word(1)), usize::try_from(word(3)));
    let (len, sent) = (len.map_err(|_| wrong())?, sent.map_err(|_| wrong())?);
    let mut request = HelperRequest { code, len, ptr: word(2), bytes: Vec::new() };
    if sent.max(request.result_bytes()) > layout.capacity() {
        return Err(wrong());
    }
    request.bytes = vec![0; sent];
    fabric.read_direct(&inner.memory.hidden, layout.at(origin, OPERANDS), &mut request.bytes)?;
    Ok(request)
}
