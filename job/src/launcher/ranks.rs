//! The launcher's table of processes.
//!
//! A rank's child may be a program around it: the rank is the process that joined. A child that ends in
//! order may leave it running, as a script does that starts it in the background; the rank then ends with
//! its own process. A child that fails takes it along: it is killed, and has ended before the rank has.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;
use std::sync::Arc;

use onesided_remote_memory::Rank;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};

use crate::Error;
use crate::launcher::events::End;
use crate::process::Watch;
use crate::segment::JobSegment;

/// The processes of a job. Dropping it kills and reaps them.
#[derive(Debug)]
pub(crate) struct Ranks {
    processes: Vec<RankProcess>,
    job_segment: Arc<JobSegment>,
}

#[derive(Debug)]
struct RankProcess {
    rank: Rank,
    /// Not reaped before the job's end, which reserves its process group's number.
    child: Child,
    pid: Pid,
    pidfd: OwnedFd,
    state: State,
}

#[derive(Debug)]
enum State {
    Running,
    /// Its child has ended, the process that joined has not.
    Left {
        end: End,
        joined: Watch,
    },
    Ended,
}

impl RankProcess {
    /// Becomes readable when the rank may have ended.
    fn readable(&self) -> BorrowedFd<'_> {
        match &self.state {
            State::Left { joined, .. } => joined.readable().unwrap_or_else(|| self.pidfd.as_fd()),
            _ => self.pidfd.as_fd(),
        }
    }

    /// How its child ended.
    fn child_end(&self) -> Option<End> {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), look) {
            Ok(Some(status)) => Some(match status.terminating_signal() {
                Some(signal) => End::Killed(signal),
                None => End::Exited(status.exit_status().map_or(u8::MAX, |status| status as u8)),
            }),
            // This process ignores SIGCHLD, so the kernel reaped the child and its status is lost.
            Err(Errno::CHILD) => Some(End::Exited(u8::MAX)),
            Ok(None) | Err(_) => None,
        }
    }

    /// Signals its process group, and the process that joined if that is in another.
    fn signal(&self, signal: Signal, job_segment: &JobSegment) {
        let _ = rustix::process::kill_process_group(self.pid, signal); // it may have just ended
        let Some(joined) = job_segment.process(self.rank) else { return };
        let pid = i32::try_from(joined.pid).ok().and_then(Pid::from_raw);
        if pid.is_some_and(|pid| rustix::process::getpgid(Some(pid)) != Ok(self.pid)) {
            let _ = joined.signal(signal);
        }
    }
}

impl Ranks {
    pub(crate) const fn new(job_segment: Arc<JobSegment>) -> Self {
        Self { processes: Vec::new(), job_segment }
    }

    pub(crate) fn add(&mut self, rank: Rank, mut child: Child) -> Result<(), Error> {
        let pid = Pid::from_child(&child);
        match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => {
                self.processes.push(RankProcess { rank, child, pid, pidfd, state: State::Running });
                Ok(())
            }
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(Error::Launch { what: format!("watch {rank}"), source: Some(error.into()) })
            }
        }
    }

    fn running(&self) -> impl Iterator<Item = &RankProcess> {
        self.processes.iter().filter(|process| !matches!(process.state, State::Ended))
    }

    /// The number of running ranks.
    pub(crate) fn left(&self) -> usize {
        self.running().count()
    }

    /// For each running rank, a descriptor that becomes readable when it ends.
    pub(crate) fn ends(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.running().map(RankProcess::readable)
    }

    /// Becomes readable when this rank ends, if it runs.
    pub(crate) fn end_of(&self, rank: Rank) -> Option<BorrowedFd<'_>> {
        self.running().find(|process| process.rank == rank).map(RankProcess::readable)
    }

    /// The ranks that ended since the last call, and how.
    pub(crate) fn ended(&mut self) -> Vec<(Rank, Pid, End)> {
        let mut ended = Vec::new();
        for process in &mut self.processes {
            let end = match &mut process.state {
                State::Running => {
                    let Some(end) = process.child_end() else { continue };
                    // A program that does not use the library: no rank waits for it any more. From here
                    // on no process can join as this rank.
                    if !self.job_segment.end_unjoined(process.rank, end == End::Exited(0))
                        && let Some(joined) = self.job_segment.process(process.rank)
                    {
                        if end != End::Exited(0) {
                            process.signal(Signal::KILL, &self.job_segment);
                        }
                        process.state = State::Left { end, joined: Watch::new(joined) };
                    }
                    end
                }
                State::Left { end, .. } => *end,
                State::Ended => continue,
            };
            if let State::Left { joined, .. } = &mut process.state
                && !joined.has_ended()
            {
                continue;
            }
            process.state = State::Ended;
            ended.push((process.rank, process.pid, end));
        }
        ended
    }

    /// Signals the processes of the running ranks.
    pub(crate) fn signal(&self, signal: Signal) {
        self.running().for_each(|process| process.signal(signal, &self.job_segment));
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for process in &self.processes {
            // Those of ended ranks as well: they may have left processes running.
            process.signal(Signal::KILL, &self.job_segment);
        }
        for process in &mut self.processes {
            let _ = process.child.wait();
        }
    }
}
