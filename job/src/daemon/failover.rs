//! Failover: failure detection after a host daemon's rank has died, which was rank 0 or the lowest
//! rank of another host.
//!
//! Without the daemon no rank gets new memory or values; attempts fail with an error. But a rank
//! that waits for another must still learn of that rank's death. So each rank waits for the ends of
//! the processes before it, in order, and the first surviving rank watches all ranks after it. A
//! process that left the job keeps watching while it runs.
//!
//! A host without its daemon is disconnected from the other hosts, which declare its ranks dead.
//! Its ranks do the same for theirs.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use onesided_remote_memory::{Liveness, Rank};
use rustix::event::{PollFd, PollFlags, poll};

use crate::process::{SOON, Watch};
use crate::segment::JobSegment;
use crate::timespec;

/// The daemon of a job without our launcher, and of its own host.
pub(crate) const HEAD: Rank = Rank(0);

/// Watches this host's daemon, at the other end of `connection`, and then the other ranks, from its
/// own thread.
///
/// # Errors
/// The system's: no descriptors, no thread.
pub(crate) fn watch(connection: impl AsFd, job_segment: &Arc<JobSegment>, me: Rank) -> io::Result<()> {
    let connection = connection.as_fd().try_clone_to_owned()?;
    let daemon = Watch::of(rustix::net::sockopt::socket_peercred(&connection)?.pid)?;
    let job_segment = Arc::clone(job_segment);
    let run = move || {
        wait_for_the_daemon(connection, daemon, &job_segment, daemon_of(&job_segment, me));
        succeed(&job_segment, me);
    };
    std::thread::Builder::new().name("succession".to_owned()).spawn(run).map(drop)
}

/// The lowest rank of the same host.
fn daemon_of(job_segment: &JobSegment, me: Rank) -> Rank {
    on_the_host_of(job_segment, me).next().unwrap_or(HEAD)
}

fn on_the_host_of(job_segment: &JobSegment, me: Rank) -> impl Iterator<Item = Rank> {
    job_segment.ranks().filter(move |rank| job_segment.host_of(*rank) == job_segment.host_of(me))
}

/// Waits until the daemon's process has ended, or until it stops serving: it panicked, or left
/// after all others.
fn wait_for_the_daemon(connection: OwnedFd, mut daemon: Watch, job_segment: &JobSegment, rank: Rank) {
    let mut hung_up = false;
    while job_segment.liveness(rank) == Liveness::Alive || !hung_up {
        if daemon.has_ended() {
            end_with(job_segment);
            return job_segment.declare_dead(rank); // has no effect if it left
        }
        let process = daemon.readable().map(|pidfd| PollFd::from_borrowed_fd(pidfd, PollFlags::IN));
        let limit = (hung_up || process.is_none()).then(|| timespec(SOON));
        // Polled for no event, a socket reports its end alone, which may be this side's.
        let socket = (!hung_up).then(|| PollFd::new(&connection, PollFlags::empty()));
        let mut polled: Vec<_> = socket.into_iter().chain(process).collect();
        // On EINTR, or a transient lack of memory, nothing is reported.
        hung_up |= poll(&mut polled, limit.as_ref()).is_ok() && !hung_up && !polled[0].revents().is_empty();
    }
}

/// Ends this process if the job was aborted: nobody else may do it.
fn end_with(job_segment: &JobSegment) {
    if let Some(aborted) = job_segment.aborted() {
        std::process::exit(aborted.status.into());
    }
}

fn succeed(job_segment: &JobSegment, me: Rank) {
    let elsewhere = job_segment.ranks().filter(|rank| job_segment.host_of(*rank) != job_segment.host_of(me));
    elsewhere.for_each(|rank| job_segment.declare_dead(rank)); // has no effect if it left
    let others = on_the_host_of(job_segment, me).skip(1).filter(|rank| *rank != me);
    let (before, behind): (Vec<_>, Vec<_>) = others.partition(|rank| *rank < me);
    before.into_iter().for_each(|before| declare_deaths(job_segment, vec![before]));
    declare_deaths(job_segment, behind);
}

/// Waits until these ranks' processes have ended, and declares each dead that had not left. A rank
/// that has not joined by now never will.
fn declare_deaths(job_segment: &JobSegment, ranks: Vec<Rank>) {
    let watch = |rank| (rank, job_segment.process(rank).map(Watch::new));
    let mut watched: Vec<(Rank, Option<Watch>)> = ranks.into_iter().map(watch).collect();
    loop {
        watched.retain_mut(|(rank, watch)| {
            let ended = watch.as_mut().is_none_or(Watch::has_ended);
            if ended {
                end_with(job_segment);
                job_segment.declare_dead(*rank);
            }
            !ended
        });
        if watched.is_empty() {
            return;
        }
        let processes: Vec<_> = watched.iter().filter_map(|(_, watch)| watch.as_ref()?.readable()).collect();
        let limit = (processes.len() < watched.len()).then(|| timespec(SOON));
        let mut polled: Vec<_> =
            processes.into_iter().map(|pidfd| PollFd::from_borrowed_fd(pidfd, PollFlags::IN)).collect();
        let _ = poll(&mut polled, limit.as_ref()); // the loop checks the state in any case
    }
}
