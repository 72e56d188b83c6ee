//! Supervises a job until all its ranks have ended.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use onesided_remote_memory::{Liveness, Rank};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal};

use crate::launcher::events::Ended;
use crate::launcher::limits::raised_of;
use crate::launcher::output::Output;
use crate::launcher::ranks::Ranks;
use crate::launcher::remote::Remote;
use crate::launcher::{End, Event, GRACE, Interrupt, OnFailure};
use crate::segment::JobSegment;
use crate::{Server, timespec};

/// How long a process may take to end after its connection has ended.
const DYING: Duration = Duration::from_millis(200);
/// How long processes that a rank left running may take to write their last lines.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Supervises a running job.
pub(super) struct Supervisor<'i> {
    job_segment: Arc<JobSegment>,
    server: Server,
    ranks: Ranks,
    remote: Remote,
    output: Output,
    on_failure: OnFailure,
    interrupts: &'i [Interrupt],
    phase: Phase,
}

/// The phases of a job's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// A rank failed; the others may end by themselves until this time.
    Failed(Instant),
    /// The ranks were asked to end, and have until this time.
    Signalled(Instant),
    /// The ranks have been killed.
    Killed,
}

impl<'i> Supervisor<'i> {
    pub(super) fn new(
        job_segment: Arc<JobSegment>,
        server: Server,
        (ranks, remote): (Ranks, Remote),
        output: Output,
        on_failure: OnFailure,
        interrupts: &'i [Interrupt],
    ) -> Self {
        Self { job_segment, server, ranks, remote, output, on_failure, interrupts, phase: Phase::Running }
    }

    pub(super) fn run(mut self, observe: &mut dyn FnMut(Event)) -> io::Result<u8> {
        let mut failure = None;
        let mut interrupt = None;
        // Ranks that ended while agents were starting others are reported here.
        while self.left() > 0 || self.remote.has_events() {
            let raised = self.wait()?;
            if let Some(signal) = raised {
                interrupt.get_or_insert(signal);
                self.interrupt(signal);
            }
            for Ended { rank, pid, end, remote } in self.ended()? {
                let end = if remote { Some(end) } else { record_end(&self.job_segment, &self.server, rank, end) };
                let Some(end) = end else { continue };
                // A rank that ends on request does not fail.
                if matches!(self.phase, Phase::Running | Phase::Failed(_)) {
                    failure.get_or_insert(end);
                    if end != End::Lost {
                        observe(Event::Failed { rank, pid, end });
                    }
                    if let End::Aborted(_) = end {
                        failure = Some(end);
                        self.signal(Signal::KILL);
                        self.phase = Phase::Killed;
                    }
                }
            }
            self.remote.lost().for_each(|lost| {
                if !matches!(self.phase, Phase::Killed) {
                    observe(lost);
                }
            });
            if failure.is_some() && self.phase == Phase::Running && self.on_failure == OnFailure::Abort {
                self.phase = Phase::Failed(Instant::now() + GRACE);
            }
            self.escalate(observe);
        }
        interrupt = interrupt.or(self.last_lines()?);
        let lost = self.output.lost();
        if let Some(errno) = lost {
            observe(Event::OutputLost { errno });
        }
        let interrupted = interrupt.map(|signal| End::Killed(signal.as_raw()));
        // Ranks that wrote on got SIGPIPE: the lost output is the cause.
        Ok(interrupted.or(lost.map(|_| End::Exited(1))).or(failure).map_or(0, End::code))
    }

    /// The number of running ranks.
    fn left(&self) -> usize {
        self.ranks.left() + self.remote.left()
    }

    /// The ranks that ended, the first to die first: others fail because of it. Others may notice
    /// its death by its connection and end before the kernel reports it, or before its host does.
    fn ended(&mut self) -> io::Result<Vec<Ended>> {
        let own =
            |(rank, pid, end): (Rank, Pid, End)| Ended { rank, pid: pid.as_raw_nonzero().get(), end, remote: false };
        self.remote.take_in(&self.server);
        let mut ended: Vec<_> = self.ranks.ended().into_iter().map(own).chain(self.remote.ended()).collect();
        let Some(first) = self.job_segment.failed_rank().filter(|_| !ended.is_empty()) else { return Ok(ended) };
        let until = Instant::now() + DYING; // bounded: a script around it may go on
        while !ended.iter().any(|ended| ended.rank == first) && Instant::now() < until {
            let dying = self.ranks.end_of(first).or_else(|| self.remote.runs(first).then(|| self.remote.readable()));
            let Some(dying) = dying else { break };
            let left = until.saturating_duration_since(Instant::now());
            match poll(&mut [PollFd::new(&dying, PollFlags::IN)], Some(&timespec(left))) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.remote.take_in(&self.server);
            ended.extend(self.ranks.ended().into_iter().map(own).chain(self.remote.ended()));
        }
        ended.sort_by_key(|ended| (ended.rank != first, !matches!(ended.end, End::Killed(_))));
        Ok(ended)
    }

    /// Signals all running ranks, on all hosts.
    fn signal(&self, signal: Signal) {
        self.ranks.signal(signal);
        self.remote.signal(&self.server, signal);
    }

    fn interrupt(&mut self, signal: Signal) {
        self.phase = match self.phase {
            Phase::Running | Phase::Failed(_) => {
                self.signal(signal);
                Phase::Signalled(Instant::now() + GRACE)
            }
            Phase::Signalled(_) | Phase::Killed => {
                self.signal(Signal::KILL);
                Phase::Killed
            }
        };
    }

    fn escalate(&mut self, observe: &mut dyn FnMut(Event)) {
        let now = Instant::now();
        let (signal, next) = match self.phase {
            Phase::Failed(until) if until <= now => (Signal::TERM, Phase::Signalled(now + GRACE)),
            Phase::Signalled(until) if until <= now => (Signal::KILL, Phase::Killed),
            _ => return,
        };
        let left = self.left();
        if left > 0 {
            observe(Event::Stopping { left, signal });
            self.signal(signal);
        }
        self.phase = next;
    }

    /// Waits until a rank ends, an interrupt is raised (which is returned), or the phase is over.
    fn wait(&self) -> io::Result<Option<Signal>> {
        let until = match self.phase {
            _ if self.remote.has_events() => Some(Instant::now()),
            Phase::Failed(until) | Phase::Signalled(until) => Some(until),
            Phase::Running | Phase::Killed => None,
        };
        self.wait_for(self.ranks.ends(), until)
    }

    fn wait_for<'f>(
        &'f self,
        others: impl Iterator<Item = BorrowedFd<'f>>,
        until: Option<Instant>,
    ) -> io::Result<Option<Signal>> {
        let raised = self.interrupts.iter().map(|interrupt| interrupt.raised.as_fd());
        let read = raised.chain(others).chain([self.remote.readable()]);
        let mut polled: Vec<_> = read.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        polled.extend(self.remote.full().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)));
        let timeout = until.map(|until| timespec(until.saturating_duration_since(Instant::now())));
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        Ok(raised_of(self.interrupts, &polled))
    }

    /// Prints the last output after all ranks have ended. Processes that they left running may
    /// write their last lines before they are killed. What the ranks wrote is printed completely,
    /// however slow the reader; several full pipes of it may be on their way from other hosts. An
    /// interrupt ends the printing, because the reader may have stopped.
    fn last_lines(&mut self) -> io::Result<Option<Signal>> {
        let until = Instant::now() + LAST_LINES;
        while !self.output.is_done() && Instant::now() < until {
            if let Some(signal) = self.wait_for(std::iter::once(self.output.done()), Some(until))? {
                return Ok(Some(signal));
            }
            self.remote.take_in(&self.server);
        }
        self.remote.finish(&self.server);
        let mut finished = false;
        while !self.output.is_done() {
            if !finished && !self.remote.has_output() {
                self.output.finish();
                finished = true;
            }
            if let Some(signal) = self.wait_for(std::iter::once(self.output.done()), None)? {
                return Ok(Some(signal));
            }
            self.remote.take_in(&self.server);
        }
        Ok(None)
    }
}

/// Records in the job segment that a rank of this host [ended](Ranks::ended), and how. `Some` if it failed.
pub(super) fn record_end(job_segment: &JobSegment, server: &Server, rank: Rank, end: End) -> Option<End> {
    job_segment.declare_dead(rank); // has no effect if it left, or never joined
    server.wake();
    if let Some(aborted) = job_segment.aborted()
        && aborted.rank == rank
    {
        return Some(End::Aborted(aborted.status));
    }
    match (end, job_segment.liveness(rank)) {
        (End::Exited(0), Liveness::Dead) => Some(End::Deserted),
        (End::Exited(0), _) => None,
        _ => Some(end),
    }
}
