//! The tasks of all ranks over one world.

use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use onesided_remote_memory::Rank;

use super::{Event, ModelMemory};
use crate::caught::caught;
use crate::program::{Spawn, Task};

/// The tasks of all ranks, polled as their events happen.
pub(crate) struct Tasks {
    pub(crate) memory: ModelMemory,
    tasks: Vec<(Rank, Task)>,
    spawned: Arc<Mutex<Vec<(Rank, Task)>>>,
    /// The first panic of a task.
    panicked: Option<String>,
}

impl Tasks {
    pub(crate) fn over(memory: ModelMemory) -> Self {
        Self { memory, tasks: Vec::new(), spawned: Arc::default(), panicked: None }
    }

    /// Starts a task of a rank, made of the rank's memory and a function that spawns others.
    pub(crate) fn start<F>(&mut self, rank: Rank, task: impl FnOnce(ModelMemory, Spawn) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let task = Box::pin(task(self.memory.of(rank.index()), self.spawning(rank)));
        self.begin(rank, task);
    }

    fn spawning(&self, rank: Rank) -> Spawn {
        let spawned = Arc::clone(&self.spawned);
        Box::new(move |task| spawned.lock().unwrap().push((rank, task)))
    }

    fn begin(&mut self, rank: Rank, task: Task) {
        self.tasks.push((rank, task));
        self.poll(rank);
    }

    /// Lets a rank's tasks go on as far as they can.
    fn poll(&mut self, rank: Rank) {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            let panicked = &mut self.panicked;
            self.tasks.retain_mut(|(of, task)| {
                *of != rank
                    || match caught(|| task.as_mut().poll(&mut context).is_pending()) {
                        Ok(goes_on) => goes_on,
                        Err(message) => {
                            panicked.get_or_insert(format!("rank {}: {message}", rank.0));
                            false
                        }
                    }
            });
            let spawned = std::mem::take(&mut *self.spawned.lock().unwrap());
            if spawned.is_empty() {
                break;
            }
            self.tasks.extend(spawned);
        }
        let dying = std::mem::take(&mut self.memory.world().dying);
        for rank in dying {
            self.tasks.retain(|(of, _)| *of != rank);
            self.memory.world().kill(rank);
        }
    }

    /// Whether a rank has tasks.
    pub(crate) fn works(&self, rank: Rank) -> bool {
        self.tasks.iter().any(|(of, _)| *of == rank)
    }

    pub(crate) fn possible(&self) -> Vec<Event> {
        let world = self.memory.world();
        let at_work: Vec<_> = (0..world.ranks()).map(|rank| self.works(Rank(rank))).collect();
        world.possible(&at_work)
    }

    /// Runs an event. Returns the rank whose tasks went on.
    pub(crate) fn happen(&mut self, event: Event) -> Option<Rank> {
        if let Event::Crash(rank) = event {
            self.tasks.retain(|(of, _)| *of != rank);
        }
        let concerned = self.memory.world().happen(event);
        concerned.into_iter().for_each(|rank| self.poll(rank));
        concerned
    }

    /// The first panic of a task.
    pub(crate) fn panicked(&self) -> Result<(), String> {
        self.panicked.clone().map_or(Ok(()), Err)
    }

    /// Checks that all tasks have ended, and none by a panic.
    pub(crate) fn ended(&self) -> Result<(), String> {
        self.panicked()?;
        let ranks: Vec<_> = self.tasks.iter().map(|(rank, _)| rank.0).collect();
        if ranks.is_empty() {
            return Ok(());
        }
        let waits = self.memory.world().waits();
        let how = if waits.is_empty() { "they go on and on" } else { &waits };
        Err(format!("ranks {ranks:?} wait without end: {how}"))
    }
}
