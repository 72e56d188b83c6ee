//! The process of a rank, for others to watch.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, waitid};

/// A process, identified by its number and its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// In the kernel's ticks since boot; 0: unknown.
    pub started: u64,
}

impl Process {
    /// This process.
    pub fn own() -> Self {
        static OWN: OnceLock<Process> = OnceLock::new();
        let of_now = || Self::of(rustix::process::getpid());
        let own = *OWN.get_or_init(of_now);
        // A forked child has a copy; and what could not be read is read again.
        if own.is_own() && own.started != 0 { own } else { of_now() }
    }

    /// A process that runs.
    pub(crate) fn of(pid: Pid) -> Self {
        let pid = pid.as_raw_nonzero().get().unsigned_abs();
        Self { pid, started: started(pid).unwrap_or(0) }
    }

    /// Whether this is the running process.
    pub fn is_own(self) -> bool {
        self.pid == rustix::process::getpid().as_raw_nonzero().get().unsigned_abs()
    }

    /// Sends it SIGKILL, if it has not ended.
    ///
    /// # Errors
    /// No permission, or no descriptors.
    pub fn kill(self) -> io::Result<()> {
        self.signal(Signal::KILL)
    }

    /// Sends it a signal, if it has not ended.
    pub(crate) fn signal(self, signal: Signal) -> io::Result<()> {
        let Some(pidfd) = self.watch()? else { return Ok(()) };
        match rustix::process::pidfd_send_signal(pidfd, signal) {
            Err(Errno::SRCH) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the kernel is ending it, or nobody has taken note of its end yet. Others may notice
    /// the loss of its memory and connections seconds before [`watch`](Self::watch) reports the
    /// end.
    pub fn is_ending(self) -> bool {
        let is_another = self.started != 0 && started(self.pid) != Some(self.started);
        let Ok(threads) = fs::read_dir(format!("/proc/{}/task", self.pid)) else { return false };
        // All: its first thread may end alone.
        let mut flags = threads.flatten().map(|thread| stat(&thread.path(), FLAGS));
        !is_another && flags.all(|flags| flags.is_none_or(|flags| flags & PF_EXITING != 0))
    }

    /// A descriptor that becomes readable when the process ends; `None` if it has ended.
    ///
    /// # Errors
    /// No descriptors or no memory: it is unknown whether the process runs.
    pub fn watch(self) -> io::Result<Option<OwnedFd>> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
        match pidfd_open(pid, PidfdFlags::empty()) {
            // Checked after opening: a number that is reused only later is harmless. Where the
            // system does not report start times, the number has to do.
            Ok(opened) => {
                let another = self.started != 0 && started(self.pid).is_some_and(|started| started != self.started);
                Ok((!another).then_some(opened))
            }
            Err(Errno::SRCH) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// The watch for the end of a process. It outlasts its descriptor: a program may close all that it does
/// not know, as daemons do, and give the number to another file.
#[derive(Debug)]
pub(crate) struct Watch {
    process: Process,
    /// `None`: to be opened (again).
    pidfd: Option<OwnedFd>,
}

impl Watch {
    pub(crate) const fn new(process: Process) -> Self {
        Self { process, pidfd: None }
    }

    /// The watch for a process that runs.
    ///
    /// # Errors
    /// The system's: it has ended, or there are no descriptors.
    pub(crate) fn of(pid: Pid) -> io::Result<Self> {
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Self { process: Process::of(pid), pidfd: Some(pidfd) })
    }

    /// Whether the process has ended. Without descriptors it is not known, and taken to run.
    pub(crate) fn has_ended(&mut self) -> bool {
        // Only a descriptor of a process can be waited for; of one that is no child there is no status.
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let is_closed = |pidfd: &OwnedFd| matches!(waitid(WaitId::PidFd(pidfd.as_fd()), look), Err(Errno::BADF));
        if let Some(closed) = self.pidfd.take_if(|pidfd| is_closed(pidfd)) {
            std::mem::forget(closed); // another's number
        }
        if self.pidfd.is_none() {
            match self.process.watch() {
                Ok(Some(opened)) => self.pidfd = Some(opened),
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
        let polled = self.readable().map(|pidfd| PollFd::from_borrowed_fd(pidfd, PollFlags::IN));
        polled.is_some_and(|polled| poll(&mut [polled], Some(&timespec(Duration::ZERO))) == Ok(1))
    }

    /// Becomes readable when the process ends, after the first look; `None`: look again soon.
    pub(crate) fn readable(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(AsFd::as_fd)
    }

    /// Waits until the process has ended.
    pub(crate) fn wait(&mut self) {
        while !self.has_ended() {
            match self.readable() {
                // EINTR, or a transient lack of memory: another look.
                Some(pidfd) => drop(poll(&mut [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)], None)),
                None => std::thread::sleep(SOON),
            }
        }
    }
}

/// How long to wait for free descriptors.
pub(crate) const SOON: Duration = Duration::from_millis(100);

/// The numbers of fields of `stat`, from 1.
const FLAGS: usize = 9;
const STARTED: usize = 22;
/// The kernel's flag of a thread that is ending.
const PF_EXITING: u64 = 4;

/// The start time of a process; `None` if there is no such process.
fn started(pid: u32) -> Option<u64> {
    stat(Path::new(&format!("/proc/{pid}")), STARTED)
}

/// A field of a process or a thread behind the third; `None` if there is none.
fn stat(folder: &Path, field: usize) -> Option<u64> {
    let stat = fs::read_to_string(folder.join("stat")).ok()?;
    // The name may contain anything, so the fields are counted from its end: the state is the
    // third.
    stat.rsplit_once(") ")?.1.split(' ').nth(field - 3)?.parse().ok()
}

/// Converts a duration for system calls.
pub fn timespec(duration: Duration) -> rustix::time::Timespec {
    let tv_sec = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    rustix::time::Timespec { tv_sec, tv_nsec: duration.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Its program closed it, and something that is readable has the number now.
    #[test]
    fn a_watch_outlasts_its_descriptor() {
        let readable = OwnedFd::from(fs::File::open("/dev/zero").unwrap());
        let mut watch = Watch { process: Process::own(), pidfd: Some(readable) };
        assert!(!watch.has_ended());
    }

    #[test]
    fn the_end_of_a_process_is_seen_and_another_of_its_number_is_not_taken_for_it() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process { pid: child.id(), started: started(child.id()).unwrap() };
        let watch = process.watch().unwrap().unwrap();
        let ended =
            |limit: Duration| poll(&mut [PollFd::new(&watch, PollFlags::IN)], Some(&timespec(limit))).unwrap() == 1;
        assert!(!ended(Duration::ZERO));
        let another = Process { started: process.started + 1, ..process };
        assert!(another.watch().unwrap().is_none());
        assert!(!process.is_ending());
        child.kill().unwrap();
        assert!(ended(Duration::from_secs(10)));
        assert!(process.is_ending() && !another.is_ending());
        let mut watch = Watch { process, pidfd: Some(watch) };
        assert!(watch.has_ended());
        child.wait().unwrap();
        assert!(watch.has_ended() && Watch::new(process).has_ended() && !Watch::new(Process::own()).has_ended());
        assert!(!process.is_ending() && !Process::own().is_ending());
        assert!(process.watch().unwrap().is_none());
        assert!(Process::own().watch().unwrap().is_some());
    }
}
