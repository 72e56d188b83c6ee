//! The processors of hosts, and the threads that share them.
//!
//! A thread runs on a core, is ready for one, sleeps, or computes without end. While it waits it
//! polls, which occupies its core, and sleeps after a while. Ready threads take turns by time
//! slices; a thread that wakes preempts the one whose slice ends first, as its sleep has earned it
//! (Linux 2.4, `kernel/sched.c`: the counter of a sleeper grows).
//!
//! Server threads of a rank may share one progress engine ([`Host::locked_progress`]). Then a poll
//! takes its mutex, from the poll's begin to its end.

mod engine;

use std::collections::{HashMap, VecDeque};

use crate::agenda::{Agenda, Due, NEVER};
use crate::network::nanos;
use crate::processors::engine::{Engine, Entry};
use crate::testbed::Host;

/// In bytes.
const PAGE: u64 = 4096;

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Program,
    /// Serves peers, and polls without pause or sleeps between requests.
    Server {
        polls: bool,
    },
    Computing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    Running,
    Ready,
    Asleep,
    /// Its rank was killed.
    Dead,
}

#[derive(Debug)]
struct Thread {
    rank: u32,
    host: u32,
    kind: Kind,
    run: Run,
    /// The time up to which it has computed.
    clock: u64,
    /// Whether it is polled once it has a core.
    due: bool,
    /// Completions and changed words that it has yet to see.
    events: u32,
    /// When it sleeps, unless it is polled before.
    sleeps_at: u64,
    /// Whether it sleeps after its current poll.
    sleeps: bool,
    finished: bool,
    /// When its time slice ends.
    slice_ends: u64,
    /// What is left of the slice of a thread that was preempted.
    slice_left: u64,
}

#[derive(Debug, Default)]
struct Cores {
    running: Vec<u32>,
    ready: VecDeque<u32>,
}

/// The processors of all hosts. The first threads are the ranks' programs.
#[derive(Debug)]
pub(crate) struct Processors {
    threads: Vec<Thread>,
    hosts: Vec<Cores>,
    per_host: u32,
    cores: usize,
    post: u64,
    poll: u64,
    poll_slot: u64,
    progress: u64,
    copy: u64,
    register: u64,
    slice: u64,
    switch: u64,
    /// From a card's event until a sleeper is ready.
    interrupt: u64,
    /// The same from another thread's call.
    wake: u64,
    polling: u64,
    server_polling: u64,
    /// Of each rank with server threads, if these share one. `None`: they do not.
    engines: Option<HashMap<u32, Engine>>,
    hand_over: u64,
}

impl Processors {
    /// `None`: computation takes no time.
    pub(crate) fn new(
        host: &Host,
        (polling, wake): (u64, u64),
        (ranks, per_host): (u32, u32),
        computing: &[(u32, u32)],
    ) -> Option<Self> {
        if host.cores == 0 {
            return None;
        }
        let mut all = Self {
            threads: Vec::new(),
            hosts: Vec::new(),
            per_host,
            cores: host.cores as usize,
            post: nanos(host.post),
            poll: nanos(host.poll),
            poll_slot: nanos(host.poll_slot),
            progress: nanos(host.progress),
            copy: host.copy,
            register: nanos(host.register),
            slice: nanos(host.slice).max(1),
            switch: nanos(host.switch),
            interrupt: nanos(host.interrupt).saturating_add(wake),
            wake,
            polling,
            server_polling: nanos(host.server_polling),
            engines: host.locked_progress.then(HashMap::new),
            hand_over: nanos(host.hand_over),
        };
        all.hosts.resize_with(((ranks - 1) / per_host + 1) as usize, Cores::default);
        for rank in 0..ranks {
            all.add(rank, Kind::Program);
        }
        for (rank, count) in computing {
            for _ in 0..*count {
                all.add(*rank, Kind::Computing);
            }
        }
        Some(all)
    }

    fn add(&mut self, rank: u32, kind: Kind) -> u32 {
        let id = self.threads.len() as u32;
        self.threads.push(self.thread(rank, kind));
        id
    }

    const fn thread(&self, rank: u32, kind: Kind) -> Thread {
        Thread {
            rank,
            host: rank / self.per_host,
            kind,
            run: Run::Asleep,
            clock: 0,
            due: false,
            events: 0,
            sleeps_at: NEVER,
            sleeps: false,
            finished: false,
            slice_ends: 0,
            slice_left: self.slice,
        }
    }

    /// Starts the threads that exist from the beginning.
    /// Programs that start late are woken then.
    pub(crate) fn start(&mut self, late: &[(u32, u64)], agenda: &mut Agenda) {
        for id in (0..self.threads.len() as u32).filter(|id| late.iter().all(|(late, _)| late != id)) {
            self.threads[id as usize].due = self.threads[id as usize].kind == Kind::Program;
            self.enqueue(0, id, agenda);
        }
    }

    /// A thread of a rank that serves its peers.
    pub(crate) fn add_server(&mut self, now: u64, rank: u32, polls: bool, agenda: &mut Agenda) -> u32 {
        let id = self.add(rank, Kind::Server { polls });
        self.enqueue(now, id, agenda);
        id
    }

    /// The progress engine that a thread shares with others of its rank.
    fn engine(&mut self, id: u32) -> Option<&mut Engine> {
        let thread = &self.threads[id as usize];
        let engines = self.engines.as_mut().filter(|_| matches!(thread.kind, Kind::Server { .. }));
        engines.map(|engines| engines.entry(thread.rank).or_default())
    }

    /// Whether a thread may make progress now: it has the mutex of its engine, if it shares one.
    /// Otherwise it sleeps until it has.
    fn enters(&mut self, now: u64, id: u32, agenda: &mut Agenda) -> bool {
        let hand_over = self.hand_over;
        let Some(engine) = self.engine(id) else { return true };
        let Entry::Waits { left } = engine.enter(now, id, (hand_over, agenda)) else { return true };
        self.threads[id as usize].due = false;
        self.leave_core(now, id, agenda);
        if let Some((poller, time)) = left {
            self.threads[poller as usize].sleeps_at = time;
            agenda.enter(time, Due::Sleep(poller));
        }
        false
    }

    /// The rank of a thread.
    pub(crate) fn rank_of(&self, id: u32) -> u32 {
        self.threads[id as usize].rank
    }

    /// The lowest rank of the host of a rank, whose state has the host's card.
    pub(crate) const fn card_of(&self, rank: u32) -> u32 {
        rank - rank % self.per_host
    }

    pub(crate) fn clock(&self, id: u32) -> u64 {
        self.threads[id as usize].clock
    }

    /// A thread posts an operation.
    pub(crate) fn charge_post(&mut self, id: u32) {
        self.threads[id as usize].clock += self.post;
    }

    /// A thread takes so many completions.
    pub(crate) fn charge_polls(&mut self, id: u32, count: u32) {
        self.threads[id as usize].clock += self.poll * u64::from(count);
    }

    /// A thread polls so many slots.
    pub(crate) fn charge_slots(&mut self, id: u32, count: u32) {
        self.threads[id as usize].clock += self.poll_slot * u64::from(count);
    }

    /// A thread copies some bytes.
    pub(crate) fn charge_copy(&mut self, id: u32, bytes: u64) {
        let nanos = (u128::from(bytes) * 1_000_000_000).checked_div(u128::from(self.copy)).unwrap_or(0);
        self.threads[id as usize].clock += nanos as u64;
    }

    /// A thread registers memory.
    pub(crate) fn charge_registration(&mut self, id: u32, bytes: u64) {
        let clock = &mut self.threads[id as usize].clock;
        *clock = clock.saturating_add(self.register.saturating_mul(bytes.div_ceil(PAGE)));
    }

    /// Something happens at `time` that a thread sees if it polls, or that wakes it: with an event
    /// of the card, if it sleeps.
    pub(crate) fn event(&mut self, time: u64, id: u32, rings: bool, agenda: &mut Agenda) {
        self.notice(time, id, rings.then_some(self.interrupt), agenda);
    }

    /// The same by another thread.
    pub(crate) fn rouse(&mut self, time: u64, id: u32, agenda: &mut Agenda) {
        self.notice(time, id, Some(self.wake), agenda);
    }

    /// After a time, if the thread sleeps.
    fn notice(&mut self, time: u64, id: u32, wakes_after: Option<u64>, agenda: &mut Agenda) {
        let thread = &mut self.threads[id as usize];
        let wakes_at = match (thread.run, wakes_after) {
            (Run::Running | Run::Ready, _) => time,
            (Run::Asleep, _) if thread.kind == (Kind::Server { polls: true }) => time, // another polls the engine
            (Run::Asleep, Some(wakes_after)) => time + wakes_after,
            (Run::Asleep, None) | (Run::Dead, _) => return,
        };
        thread.events += 1;
        agenda.enter(wakes_at, Due::Wake(id));
    }

    /// Whether a thread that has reason to be polled is polled now.
    pub(crate) fn is_polled(&mut self, now: u64, id: u32, agenda: &mut Agenda) -> bool {
        let thread = &mut self.threads[id as usize];
        match thread.run {
            Run::Running if thread.clock <= now => {
                thread.due = false;
                return self.enters(now, id, agenda);
            }
            Run::Running if !thread.due => {
                thread.due = true;
                agenda.enter(thread.clock, Due::Wake(id));
            }
            Run::Running => {}
            Run::Ready => thread.due = true,
            Run::Dead => {}
            Run::Asleep => {
                let goes_on = match thread.kind {
                    Kind::Server { polls: true } => self.enters(now, id, agenda),
                    _ => self.engine(id).is_none_or(|engine| !engine.waits(now, id)),
                };
                if goes_on {
                    self.threads[id as usize].due = true;
                    self.get_up(now, id, agenda);
                }
            }
        }
        false
    }

    /// A poll begins: the thread sees what has happened.
    pub(crate) fn begin_poll(&mut self, now: u64, id: u32) -> u64 {
        let thread = &mut self.threads[id as usize];
        let each = match thread.kind {
            Kind::Server { .. } => self.poll + self.progress,
            Kind::Program | Kind::Computing => self.poll,
        };
        thread.clock = thread.clock.max(now) + each * u64::from(std::mem::take(&mut thread.events));
        thread.clock
    }

    /// A poll is over: the thread waits.
    pub(crate) fn end_poll(&mut self, id: u32, agenda: &mut Agenda) {
        let Thread { kind, clock, .. } = self.threads[id as usize];
        let (polls, hand_over) = (kind == Kind::Server { polls: true }, self.hand_over);
        let stays = self.engine(id).is_none_or(|engine| engine.leave((clock, id), polls, (hand_over, agenda)));
        let polling = match kind {
            Kind::Program => self.polling,
            Kind::Server { polls: false } => self.server_polling,
            Kind::Server { polls: true } if !stays => 0,
            Kind::Server { polls: true } | Kind::Computing => NEVER,
        };
        let thread = &mut self.threads[id as usize];
        let polling = if std::mem::take(&mut thread.sleeps) || thread.finished { 0 } else { polling };
        if thread.run == Run::Running {
            thread.sleeps_at = thread.clock.saturating_add(polling);
            agenda.enter(thread.sleeps_at, Due::Sleep(id));
        }
    }

    /// The thread sleeps after this poll until a timer or an event.
    pub(crate) fn sleep_after_poll(&mut self, id: u32) {
        self.threads[id as usize].sleeps = true;
    }

    /// The threads of a rank end.
    pub(crate) fn kill(&mut self, now: u64, rank: u32, agenda: &mut Agenda) {
        self.engines.iter_mut().for_each(|engines| drop(engines.remove(&rank)));
        for id in
            (0..self.threads.len() as u32).filter(|id| self.threads[*id as usize].rank == rank).collect::<Vec<_>>()
        {
            let thread = &mut self.threads[id as usize];
            (thread.sleeps_at, thread.due, thread.events) = (now, false, 0);
            self.sleep(now, id, agenda);
            self.threads[id as usize].run = Run::Dead;
        }
    }

    /// The program of a rank that was killed runs anew.
    pub(crate) fn restart(&mut self, now: u64, rank: u32, agenda: &mut Agenda) {
        self.threads[rank as usize] = Thread { due: true, ..self.thread(rank, Kind::Program) };
        self.enqueue(now, rank, agenda);
    }

    /// A program's thread has no more to do.
    pub(crate) fn finish(&mut self, id: u32) {
        self.threads[id as usize].finished = true;
    }

    /// A thread may have polled for long enough.
    pub(crate) fn sleep(&mut self, now: u64, id: u32, agenda: &mut Agenda) {
        let thread = &mut self.threads[id as usize];
        if thread.sleeps_at != now || thread.due || thread.events > 0 || thread.run == Run::Dead {
            return;
        }
        self.leave_core(now, id, agenda);
    }

    /// A thread sleeps.
    fn leave_core(&mut self, now: u64, id: u32, agenda: &mut Agenda) {
        let thread = &mut self.threads[id as usize];
        let was = std::mem::replace(&mut thread.run, Run::Asleep);
        let cores = &mut self.hosts[thread.host as usize];
        match was {
            Run::Running => {
                cores.running.retain(|running| *running != id);
                if let Some(next) = cores.ready.pop_front() {
                    self.run(now, next, agenda);
                }
            }
            Run::Ready => cores.ready.retain(|ready| *ready != id),
            Run::Asleep | Run::Dead => {}
        }
    }

    /// A thread gets a core.
    fn run(&mut self, now: u64, id: u32, agenda: &mut Agenda) {
        let thread = &mut self.threads[id as usize];
        thread.run = Run::Running;
        thread.clock = thread.clock.max(now + self.switch);
        thread.slice_ends = now + thread.slice_left;
        if thread.due {
            agenda.enter(thread.clock, Due::Wake(id));
        }
        let cores = &mut self.hosts[thread.host as usize];
        cores.running.push(id);
        if !cores.ready.is_empty() {
            agenda.enter(thread.slice_ends, Due::Slice(id));
        }
    }

    /// A thread is ready for a core, behind the others.
    fn enqueue(&mut self, now: u64, id: u32, agenda: &mut Agenda) {
        let host = self.threads[id as usize].host as usize;
        if self.hosts[host].running.len() < self.cores {
            return self.run(now, id, agenda);
        }
        self.threads[id as usize].run = Run::Ready;
        self.hosts[host].ready.push_back(id);
        for running in &self.hosts[host].running {
            agenda.enter(self.threads[*running as usize].slice_ends.max(now), Due::Slice(*running));
        }
    }

    /// A thread that slept is ready for a core, before the others.
    fn get_up(&mut self, now: u64, id: u32, agenda: &mut Agenda) {
        let host = self.threads[id as usize].host as usize;
        self.threads[id as usize].slice_left = self.slice;
        let cores = &mut self.hosts[host];
        if cores.running.len() == self.cores
            && let Some(at) = (0..self.cores).min_by_key(|at| self.threads[cores.running[*at] as usize].slice_ends)
        {
            let preempted = cores.running.remove(at);
            let thread = &mut self.threads[preempted as usize];
            thread.run = Run::Ready;
            thread.slice_left = thread.slice_ends.saturating_sub(now).max(1);
            cores.ready.push_front(preempted);
        }
        self.run(now, id, agenda);
    }

    /// The time slice of a thread ends.
    pub(crate) fn end_slice(&mut self, now: u64, id: u32, agenda: &mut Agenda) {
        let thread = &mut self.threads[id as usize];
        if thread.run != Run::Running || thread.slice_ends > now {
            return;
        }
        let cores = &mut self.hosts[thread.host as usize];
        if let Some(next) = cores.ready.pop_front() {
            cores.running.retain(|running| *running != id);
            (thread.run, thread.slice_left) = (Run::Ready, self.slice);
            cores.ready.push_back(id);
            self.run(now, next, agenda);
        }
    }
}
