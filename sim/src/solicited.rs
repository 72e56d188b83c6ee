//! The events of solicited packets, for a handler that is a thread of a simulated rank.

use std::task::Poll;

use onesided_fabric::{SolicitedEvents, Ticket};
use onesided_remote_memory::RemoteMemory;

use crate::endpoint::SimFabric;
use crate::rank::Handler;

impl SimFabric {
    fn handler<R>(&self, change: impl FnOnce(&mut Handler) -> R) -> R {
        change(&mut self.state().ranks[self.rank().index()].more().rare().handler)
    }
}

impl SolicitedEvents for SimFabric {
    fn arm(&self) {
        self.handler(|handler| handler.is_armed = true);
    }

    fn disarm(&self) {
        self.handler(|handler| handler.is_armed = false);
    }

    fn ticket(&self) -> Ticket {
        self.handler(|handler| Ticket(handler.events))
    }

    fn wake(&self) {
        let thread = self.handler(|handler| {
            handler.events = handler.events.wrapping_add(1);
            handler.thread
        });
        if let Some(thread) = thread {
            self.state().rouse(thread);
        }
    }

    fn poll_sleep(&self, ticket: Ticket, until: u64) -> Poll<()> {
        let mut state = self.state();
        let thread = state.thread_of(self.rank().0);
        let handler = &mut state.ranks[self.rank().index()].more().rare().handler;
        handler.thread = Some(thread);
        if Ticket(handler.events) != ticket {
            return Poll::Ready(());
        }
        state.alarm(self.rank(), until);
        Poll::Pending
    }
}
