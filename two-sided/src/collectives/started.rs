//! A call that goes on by itself: a task that owns all it works on, and that every wait of the rank
//! moves. So a request may be dropped or leaked, and a call that is only waited for copies nothing.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Waker;

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Fabric, lock};

use super::link::{Core, Link};
use super::request::{Slices, Work, run};
use super::state::{State, bytes};
use crate::Error;
use crate::engine::{Direct, Engine, Reason};

/// The outcome of a call, and what it has written.
type Ended = (Result<(), Error>, Vec<u128>);

/// Tells the request of a call that it is over: when it has ended, and when its task is dropped.
struct Tell<'t, F: Fabric> {
    core: Core<'t, F>,
    ended: Arc<Mutex<Option<Ended>>>,
}

impl<F: Fabric> Drop for Tell<'_, F> {
    fn drop(&mut self) {
        let Core { messages, collective, number, .. } = self.core;
        lock(&self.ended).get_or_insert_with(|| {
            // A function of the user's has panicked.
            let me = messages.world().fabric().rank();
            let failure = self.core.failure(Reason::Dropped, Fault::of(FaultKind::Closed, me), [0; 2]);
            (Err(super::failure::error(messages, (collective, number), &failure)), Vec::new())
        });
        messages.progress().with(|engine| {
            engine.wake_own(); // a thread that sleeps
            engine.wake_all();
        });
    }
}

fn copy(state: &State, slice: Option<&[u8]>) -> Result<Vec<u128>, Fault> {
    let slice = slice.unwrap_or_default();
    let mut copy = state.memory(slice.len())?;
    bytes(&mut copy, slice.len()).copy_from_slice(slice);
    Ok(copy)
}

/// Starts a call; the future waits for its end.
pub(super) fn start<'m, F: Fabric>(
    link: Link<'m, F>,
    work: Work,
    (read, write): Slices<'m>,
) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'm>> {
    let core = link.core();
    let (messages, state) = (core.messages, core.state());
    let copies = copy(state, read).and_then(|read| Ok((read, copy(state, write.as_deref())?)));
    let (mut memory, mut written) = match copies {
        Ok(copies) => copies,
        Err(fault) => {
            let mut link = link;
            return Box::pin(async move { link.end(Err(core.failed(fault))).await });
        }
    };
    let (read_len, write_len) = (read.map(<[u8]>::len), write.as_deref().map(<[u8]>::len));
    link.hand_over();
    let ended = Arc::default();
    let (owned, to_tell) = (messages.of_task(), Arc::clone(&ended));
    let Core { collective, tag, number, before, element, .. } = core;
    let task = async move {
        let core = Core { messages: &owned, collective, tag, number, before, element };
        let tell = Tell { core, ended: to_tell };
        let slices = (read_len.map(|len| &*bytes(&mut memory, len)), write_len.map(|len| bytes(&mut written, len)));
        let outcome = run(&mut (Link::of(core), work, slices)).await;
        owned.collectives().keep(memory);
        *lock(&tell.ended) = Some((outcome, written));
    };
    messages.progress().start(core.call(), Box::pin(task));
    Box::pin(async move {
        let (progress, me) = (messages.progress(), messages.world().fabric().rank());
        let end = |engine: &mut Engine<_>, _: &mut Direct<'_>, waker: &Waker| {
            let over = lock(&ended).take();
            if over.is_none() {
                engine.wake_at_unexpected(waker); // or with all tasks
            }
            over
        };
        // The task tells what it waits for.
        let (outcome, mut written) = progress.until(me, Direct::none(), end, |_| None, || None).await;
        if let (Ok(()), Some(slice)) = (&outcome, write) {
            slice.copy_from_slice(bytes(&mut written, slice.len()));
        }
        state.keep(written);
        outcome
    })
}
