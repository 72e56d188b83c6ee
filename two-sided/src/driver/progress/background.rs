//! What a thread that waits for something else does for messages.

use std::pin::Pin;

use onesided_fabric::remote_memory::Rank;
use onesided_fabric::{Background, Fabric};

use super::Progress;
use crate::engine::Direct;

/// A [`Progress`] for tasks of any lifetime.
pub(super) trait Owing: Send + Sync {
    /// Ends when every packet without a message has left for a rank.
    fn sent_owed<'p>(&'p self, to: Rank) -> Pin<Box<dyn Future<Output = ()> + Send + 'p>>;
}

impl<F: Fabric> Owing for Progress<F> {
    fn sent_owed<'p>(&'p self, to: Rank) -> Pin<Box<dyn Future<Output = ()> + Send + 'p>> {
        let is_sent =
            move |engine: &mut super::Engine<_>, _: &mut Direct<'_>, _: &_| (!engine.owes_packets(to)).then_some(());
        Box::pin(self.until(to, Direct::none(), is_sent, |_| None, || None))
    }
}

impl<F: Fabric> Progress<F> {
    /// Packets without messages that wait for room at a rank leave, whatever this rank does next: that
    /// one may wait for them.
    pub(crate) fn send_owed(&self, to: Rank) {
        if self.with(|engine| engine.owes_packets(to)) {
            let owing = self.owing.clone();
            self.fabric.endpoint().spawn(Box::pin(async move {
                if let Some(owing) = owing.upgrade() {
                    owing.sent_owed(to).await;
                }
            }));
        }
    }
}

impl<F: Fabric> Background for Progress<F> {
    fn advance(&self) {
        // Another thread moves them, or this one waits inside of it.
        let Some(state) = self.state.try_lock() else {
            self.look_again_soon(); // it need not have looked for what has arrived
            return;
        };
        let is_idle = state.engine.is_idle() && state.transfers.is_empty() && self.tasks.are_none();
        drop(state);
        // On cards all senders share the receives: packets that are not taken in hold up others.
        if !is_idle || !self.fabric.capabilities().completes_at_post {
            self.move_all();
        }
    }

    fn begins_polling(&self) -> bool {
        let is_of_interest = self.handler.is_solicited();
        if is_of_interest {
            self.change_interest(|interest| interest.polling += 1);
        }
        is_of_interest
    }

    fn ends_polling(&self) {
        if self.change_interest(|interest| interest.polling -= 1) && self.drain() {
            self.wake_handler(); // it goes on with that
        }
    }

    fn describe(&self) -> Vec<String> {
        let mut lines = self.state.lock().engine.describe(self.fabric.now());
        lines.extend(self.registrations.describe());
        if !lines.is_empty() {
            lines.extend(self.describe_sent());
        }
        lines
    }
}
