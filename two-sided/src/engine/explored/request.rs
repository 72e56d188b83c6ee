//! What a rank's program does, and the handles that it has.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use crate::engine::matching::Pattern;
use crate::engine::{Held, Landed};

#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Send {
        to: u32,
        tag: u32,
        mode: Mode,
    },
    /// A list of short messages, with tags 0 and 1 in turn.
    Sends {
        to: u32,
        count: u64,
    },
    Receive {
        pattern: Pattern,
        has_slice: bool,
    },
    Probe {
        pattern: Pattern,
        takes: bool,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Mode {
    /// The length in words.
    Eager(usize),
    Rendezvous,
    Synchronous,
    /// By RPUT, but for a message to this rank itself.
    Write,
    /// The same by two pieces.
    Pipeline,
    /// In packets.
    Copy,
    /// In two datagrams.
    ZCopy,
}

/// What a handle of a user has.
#[derive(Debug)]
pub(super) enum Request {
    Send {
        send: usize,
        number: u64,
    },
    Posted {
        receive: usize,
        source: Option<u32>,
        has_slice: bool,
    },
    /// A message that is to be finished; the number of one that is being read.
    Held(Held, Option<u64>),
    Landed(Landed, Vec<u8>),
    Probe {
        pattern: Pattern,
        takes: bool,
    },
    Over,
}

/// Whether a task is to poll: it has not yet, or was woken.
#[derive(Debug)]
pub(super) struct Woken(pub(super) AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}
