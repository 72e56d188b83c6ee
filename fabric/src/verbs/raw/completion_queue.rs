//! Completion queues.
#![allow(unsafe_code)] // calls of a C library, and the pointers it gives

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::null_mut;
use std::slice;
use std::sync::{Arc, Mutex};

use ibverbs_sys as ibv;
use onesided_job::fork::is_child;
use onesided_job::lock;

use super::{Context, Owned, done, failed, made};
use crate::Error;

/// How many completions one poll usually takes.
pub(in crate::verbs) const BATCH: usize = 16;

/// The completions that a queue takes, and how many of those are promised.
#[derive(Debug)]
struct Room {
    entries: u32,
    promised: u32,
}

/// A completion queue and its completion channel. All events that were taken are acknowledged. Fields are dropped in this
/// order: the queue before its channel.
#[derive(Debug)]
pub(in crate::verbs) struct CompletionQueue {
    pub(super) raw: Owned<ibv::ibv_cq>,
    room: Mutex<Room>,
    channel: Owned<ibv::ibv_comp_channel>,
    context: Arc<Context>,
}

impl CompletionQueue {
    pub(in crate::verbs) fn new(context: &Arc<Context>, entries: u32) -> Result<Arc<Self>, Error> {
        // SAFETY: the context is open.
        let channel = || unsafe { ibv::ibv_create_comp_channel(context.0.as_ptr()) };
        let channel = made("ibv_create_comp_channel", channel)?;
        // SAFETY: context and channel are open; no user pointer is given.
        let raw = || unsafe { ibv::ibv_create_cq(context.0.as_ptr(), entries as i32, null_mut(), channel.as_ptr(), 0) };
        let (raw, room) = (made("ibv_create_cq", raw)?, Mutex::new(Room { entries, promised: 0 }));
        let queue = Self { raw, room, channel, context: Arc::clone(context) };
        rustix::io::ioctl_fionbio(queue.as_fd(), true)
            .map_err(|error| failed("make the completion channel nonblocking", error.into()))?;
        Ok(Arc::new(queue))
    }

    /// Makes room for so many more completions than before, none at first. The queue grows when it
    /// has to; not every card can.
    pub(in crate::verbs) fn make_room(&self, more: u32) -> Result<(), Error> {
        let mut room = lock(&self.room);
        let promised = room.promised + more;
        if promised > room.entries {
            let twice = 2 * room.entries;
            room.entries = match self.resize(promised.max(twice)) {
                Ok(()) => promised.max(twice),
                Err(_) => self.resize(promised).map(|()| promised)?,
            };
        }
        room.promised = promised;
        Ok(())
    }

    /// Takes back a promise of [`make_room`](Self::make_room). The queue stays as long as it is.
    pub(in crate::verbs) fn give_room(&self, less: u32) {
        lock(&self.room).promised -= less;
    }

    fn resize(&self, entries: u32) -> Result<(), Error> {
        // SAFETY: the queue is open; libibverbs orders this with polls.
        done("ibv_resize_cq", || unsafe { ibv::ibv_resize_cq(self.raw.as_ptr(), entries as i32) })
    }

    /// Requests one event for the next completion, or for the next solicited one (or error).
    pub(in crate::verbs) fn request_event(&self, solicited: bool) {
        if let Some(request) = self.context.ops().and_then(|ops| ops.req_notify_cq) {
            // SAFETY: the queue is open.
            unsafe { request(self.raw.as_ptr(), i32::from(solicited)) };
        }
    }

    /// Takes and acknowledges the pending events: whether there were some.
    pub(in crate::verbs) fn take_events(&self) -> bool {
        let (mut queue, mut user) = (null_mut(), null_mut());
        let mut count = 0;
        // SAFETY: the channel is open and nonblocking; both pointers are written.
        while !is_child() && unsafe { ibv::ibv_get_cq_event(self.channel.as_ptr(), &mut queue, &mut user) } == 0 {
            count += 1;
        }
        if count > 0 {
            // SAFETY: that many events of this queue were taken and not acknowledged.
            unsafe { ibv::ibv_ack_cq_events(self.raw.as_ptr(), count) };
        }
        count > 0
    }

    /// Takes available completions, as many as the batch has space for.
    pub(in crate::verbs) fn poll<'b>(&self, batch: &'b mut [MaybeUninit<ibv::ibv_wc>]) -> &'b [ibv::ibv_wc] {
        let space = batch.len() as i32;
        let poll = self.context.ops().and_then(|ops| ops.poll_cq);
        // SAFETY: the batch has space for that many completions.
        let count = poll.map_or(0, |poll| unsafe { poll(self.raw.as_ptr(), space, batch.as_mut_ptr().cast()) });
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: the library wrote the first `count` of them.
        unsafe { slice::from_raw_parts(batch.as_ptr().cast(), count) }
    }
}

impl AsFd for CompletionQueue {
    /// Becomes readable after a completion for which an event was [requested](Self::request_event).
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is open.
        let fd = unsafe { (*self.channel.as_ptr()).fd };
        // SAFETY: the channel keeps it open for as long as `self`.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}
