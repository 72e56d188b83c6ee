//! What a thread that waits for something else does for messages.

use onesided_fabric::{Background, Fabric};

use super::Progress;

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
        lines
    }
}
