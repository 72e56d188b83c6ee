//! Tasks that programs spawn.

use onesided_fabric::Task;
use onesided_remote_memory::Rank;

use super::State;
use crate::agenda::Due;

impl State {
    pub(crate) fn spawn(&mut self, rank: Rank, task: Task) -> Result<(), Task> {
        if self.over || self.lives[rank.index()].is_over() {
            return Err(task);
        }
        self.add_task(rank.0, task, false);
        Ok(())
    }

    /// Spawns a task that is not waited for: it is polled with its rank's program, and when the
    /// rank's doorbell rings.
    pub(crate) fn serve(&mut self, rank: Rank, task: Task) -> Result<(), Task> {
        if self.over || self.lives[rank.index()].is_over() {
            return Err(task);
        }
        self.ranks[rank.index()].more().rare().serves = true;
        self.add_task(rank.0, task, true);
        Ok(())
    }

    /// The same on a thread of its own, if threads are modelled.
    pub(crate) fn serve_apart(&mut self, rank: Rank, task: Task, polls: bool) -> Result<(), Task> {
        let over = self.over || self.lives[rank.index()].is_over();
        let Some(thread) = (if over { None } else { self.add_server(rank, polls) }) else {
            self.ranks[rank.index()].more().rare().polls |= polls;
            return self.serve(rank, task);
        };
        self.add_task(thread, task, true);
        Ok(())
    }

    fn add_task(&mut self, thread: u32, task: Task, serves: bool) {
        self.spawned.0.push((thread, task, serves));
        self.agenda.enter(self.now, Due::Wake(thread));
    }

    /// Takes the spawned tasks, with their threads and whether they serve.
    pub(crate) fn take_spawned(&mut self) -> Vec<(u32, Task, bool)> {
        std::mem::take(&mut self.spawned.0)
    }
}
