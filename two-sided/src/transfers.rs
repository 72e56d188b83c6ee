//! Announced messages on their way over the fabric: reads, exposed memory and writes, begun and ended
//! by whatever task waits.

use std::pin::Pin;
use std::task::{Context, Poll};

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Fabric, Segment, SegmentKey, Taken};

use crate::elements::{Allocate, Elements};
use crate::engine::{Engine, Here, ToMove, ToRead};
use crate::offered;
use crate::progress::{Progress, Registered};

/// A transfer of an announced message whose receive is not waited for now, or which its sender
/// writes.
pub(crate) struct Transfer<F: Fabric> {
    what: What<F>,
    transfer: F::Transfer,
}

enum What<F: Fabric> {
    Read { receive: usize, into: Registered<F> },
    Write { send: usize },
}

/// An announced message that [`begin`](Progress::begin) has begun to move.
pub(crate) enum Begun<F: Fabric> {
    Read {
        receive: usize,
        here: Result<Here<Registered<F>>, Fault>,
    },
    Exposed {
        receive: usize,
        memory: Result<(Registered<F>, SegmentKey), Fault>,
    },
    Written {
        send: usize,
        outcome: Result<(), Fault>,
    },
    Moves(Transfer<F>),
    /// Its sender moves it just now.
    Later {
        receive: usize,
    },
}

impl<F: Fabric> Begun<F> {
    /// Tells the engine. `false`: the message is to be read later.
    pub(crate) fn tell(self, engine: &mut Engine<Registered<F>>, transfers: &mut Vec<Transfer<F>>) -> bool {
        match self {
            Self::Read { receive, here } => engine.read(receive, here),
            Self::Exposed { receive, memory } => engine.expose(receive, memory),
            Self::Written { send, outcome } => engine.written(send, outcome),
            Self::Moves(transfer) => transfers.push(transfer),
            Self::Later { receive } => {
                engine.read_later(receive);
                return false;
            }
        }
        true
    }
}

/// Ends the transfers that are over: whether there were some.
pub(crate) fn end<F: Fabric>(
    transfers: &mut Vec<Transfer<F>>,
    engine: &mut Engine<Registered<F>>,
    cx: &mut Context<'_>,
) -> bool {
    let (begun, mut at) = (transfers.len(), 0);
    while let Some(next) = transfers.get_mut(at) {
        match Pin::new(&mut next.transfer).poll(cx) {
            Poll::Ready(outcome) => match transfers.swap_remove(at).what {
                What::Read { receive, into } => engine.read(receive, outcome.map(|()| Here::Memory(into))),
                What::Write { send } => engine.written(send, outcome),
            },
            Poll::Pending => at += 1,
        }
    }
    transfers.len() < begun
}

impl<F: Fabric> Progress<F> {
    /// Starts to move an announced message.
    pub(crate) fn begin(&self, next: ToMove<Registered<F>>) -> Begun<F> {
        match next {
            ToMove::Read(read) => self.begin_read(read),
            ToMove::Expose { receive, len } => {
                let memory = self.memory(len).map(|memory| {
                    let key = SegmentKey { len, ..memory.key() };
                    (memory, key)
                });
                Begun::Exposed { receive, memory }
            }
            ToMove::Write { send, to, .. } if to.len == 0 => Begun::Written { send, outcome: Ok(()) },
            ToMove::Write { send, from, to } => match self.open(&to) {
                Ok(into) => {
                    let transfer = self.fabric.rdma_write((&*from, 0), (&*into, 0), to.len);
                    Begun::Moves(Transfer { what: What::Write { send }, transfer })
                }
                Err(fault) => Begun::Written { send, outcome: Err(fault) },
            },
        }
    }

    fn begin_read(&self, ToRead { receive, mut key, is_offered, allocate }: ToRead) -> Begun<F> {
        let over = |here| Begun::Read { receive, here };
        if is_offered {
            match self.take_offered(&key, allocate) {
                Ok((elements, Taken::Whole)) => return over(Ok(Here::Elements(elements))),
                Ok((_, Taken::Moved(to))) => key = to,
                Ok((_, Taken::Moving)) => return Begun::Later { receive },
                Err(fault) => return over(Err(fault)),
            }
        }
        if key.len == 0 {
            return over(self.memory(0).map(Here::Memory));
        }
        match self.open(&key).and_then(|from| Ok((from, self.memory(key.len)?))) {
            Ok((from, into)) => {
                let transfer = self.fabric.rdma_read((&*from, 0), (&*into, 0), key.len);
                Begun::Moves(Transfer { what: What::Read { receive, into }, transfer })
            }
            Err(fault) => over(Err(fault)),
        }
    }

    fn take_offered(&self, key: &SegmentKey, allocate: Option<Allocate>) -> Result<(Box<dyn Elements>, Taken), Fault> {
        let elements = allocate.and_then(|allocate| allocate(key.len));
        let elements = elements.filter(|elements| elements.bytes().len() as u64 == key.len);
        let mut elements = elements.or_else(|| self.bytes(key.len)).ok_or(Fault::new(FaultKind::NoMemory))?;
        let taken = offered::take(self, key, elements.bytes_mut())?;
        Ok((elements, taken))
    }
}
