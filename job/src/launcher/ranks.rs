//! The launcher's table of processes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;

use onesided_remote_memory::Rank;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};

use crate::Error;
use crate::launcher::events::End;

/// The processes of a job. Dropping it kills and reaps them.
#[derive(Debug, Default)]
pub(crate) struct Ranks(Vec<RankProcess>);

#[derive(Debug)]
struct RankProcess {
    rank: Rank,
    /// Not reaped before the job's end, which reserves its process group's number.
    child: Child,
    pid: Pid,
    pidfd: OwnedFd,
    running: bool,
}

impl Ranks {
    pub(crate) fn add(&mut self, rank: Rank, mut child: Child) -> Result<(), Error> {
        let pid = Pid::from_child(&child);
        match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => {
                self.0.push(RankProcess { rank, child, pid, pidfd, running: true });
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
        self.0.iter().filter(|process| process.running)
    }

    /// The number of running ranks.
    pub(crate) fn left(&self) -> usize {
        self.running().count()
    }

    /// For each running rank, a descriptor that becomes readable when it ends.
    pub(crate) fn ends(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.running().map(|process| process.pidfd.as_fd())
    }

    /// Becomes readable when this rank ends, if it runs.
    pub(crate) fn end_of(&self, rank: Rank) -> Option<BorrowedFd<'_>> {
        self.running().find(|process| process.rank == rank).map(|process| process.pidfd.as_fd())
    }

    /// The ranks that ended since the last call, and how.
    pub(crate) fn ended(&mut self) -> Vec<(Rank, Pid, End)> {
        let mut ended = Vec::new();
        for process in self.0.iter_mut().filter(|process| process.running) {
            let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            let end = match rustix::process::waitid(WaitId::PidFd(process.pidfd.as_fd()), look) {
                Ok(Some(status)) => match status.terminating_signal() {
                    Some(signal) => End::Killed(signal),
                    None => End::Exited(status.exit_status().map_or(u8::MAX, |status| status as u8)),
                },
                // This process ignores SIGCHLD, so the kernel reaped the child and its status is
                // lost.
                Err(Errno::CHILD) => End::Exited(u8::MAX),
                Ok(None) | Err(_) => continue,
            };
            process.running = false;
            ended.push((process.rank, process.pid, end));
        }
        ended
    }

    /// Signals the process groups of the running ranks.
    pub(crate) fn signal(&self, signal: Signal) {
        for process in self.running() {
            let _ = rustix::process::kill_process_group(process.pid, signal); // it may have just ended
        }
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for process in &self.0 {
            // Groups of ended ranks as well: they may have left processes running.
            let _ = rustix::process::kill_process_group(process.pid, Signal::KILL);
        }
        for process in &mut self.0 {
            let _ = process.child.wait();
        }
    }
}
