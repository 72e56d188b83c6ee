//! The job segment: what all ranks of a job on one host share.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onesided_remote_memory::{Liveness, Rank};
use rustix::thread::futex;

use crate::process::Process;
use crate::segment::WORLD_BYTES;
use crate::segment::lanes::CELLS;
use crate::segment::mapping::Mapping;

/// `ONESIDED` and the layout's version: programs that disagree must not share a job segment.
const MAGIC: u64 = u64::from_le_bytes(*b"ONESID\x00\x0b");

// The layout, in bytes: a header line, two lines a rank, a world segment a rank, two rows of bits a
// rank (lost connections, open lanes), the lanes.
const HEADER: u64 = 64;
const RANK_FIELDS: u64 = 128;

// The header's fields: the magic number, the number of ranks, the cells a lane, the number of failed
// ranks, the number of status changes, how long another host may be silent, in milliseconds, and who
// aborted the job: the exit status, and above it the rank plus one.
const SIZE_AT: u64 = 8;
const CELLS_AT: u64 = 12;
const FAILURES_AT: u64 = 16;
const CHANGES_AT: u64 = 20;
const SUSPECT_AFTER_AT: u64 = 24;
pub(super) const ABORTED_AT: u64 = 28;

// A rank's fields: its status, its process, its host, whether it knows that all ranks have arrived,
// its failure number, whether it has lost a connection, how many lanes to it are open, the rounds
// in which it has an endpoint, how often it has joined again, and the doorbells on a separate line. The rank of index `n` also has the `n`-th failed rank plus one.
const PID_AT: u64 = 4;
const STARTED_AT: u64 = 8;
const HOST_AT: u64 = 16;
const ARRIVED_AT: u64 = 20;
const FAILURE_NUMBER_AT: u64 = 24;
const FAILED_RANK_AT: u64 = 28;
pub(super) const LOST_AT: u64 = 32;
pub(super) const OPENED_AT: u64 = 36;
const ENDPOINTS_AT: u64 = 40;
pub(super) const AGAIN_AT: u64 = 44;
pub(super) const RINGS_AT: u64 = 64;
pub(super) const SLEEPERS_AT: u64 = 68;
pub(super) const SOLICITED_RINGS_AT: u64 = 72;
pub(super) const SOLICITED_ARMED_AT: u64 = 76;

const UNUSED: u32 = 0;
const ALIVE: u32 = 1;
const LEFT: u32 = 2;
const DEAD: u32 = 3;
const NEVER_JOINED: u32 = 4;

/// What all ranks of a job on one host share: liveness, lost connections, a doorbell a rank, a
/// world segment a rank, and a lane of packets for each pair that has opened it.
///
/// One memory file, created by the host daemon: the launcher, rank 0, or
/// `threads` of the shm fabric. A process that detects a death declares it here.
#[derive(Debug)]
pub struct JobSegment {
    pub(super) memory: Arc<Mapping>,
    pub(super) size: u32,
    pub(super) cells: u32,
    /// The round in which the rank with this handle has joined; 1 for observers.
    pub(super) round: u32,
}

impl JobSegment {
    /// Creates a job segment for `size` ranks.
    ///
    /// # Errors
    /// As [`Mapping::create`]; `InvalidInput` for 0 ranks or more than 65,535.
    pub fn create(size: u32) -> io::Result<Self> {
        if size == 0 || size > 0xffff {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a host has 1 to 65535 ranks"));
        }
        let cells = Self::cells_for(size);
        let len = usize::try_from(Self::length(size, cells)).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let memory = match Mapping::reserves() {
            true => Mapping::sparse(len)?,
            false => Mapping::create(len)?,
        };
        memory.populate(0, Self::lanes_start(size))?;
        let job_segment = Self { memory: Arc::new(memory), size, cells, round: 1 };
        job_segment.half(SIZE_AT).store(size, Ordering::Relaxed);
        job_segment.half(CELLS_AT).store(cells, Ordering::Relaxed);
        if let Some(magic) = job_segment.memory.word(0) {
            magic.store(MAGIC, Ordering::Release);
        }
        Ok(job_segment)
    }

    /// Maps the host daemon's job segment.
    ///
    /// # Errors
    /// As [`Mapping::open`]; `InvalidData` if it is not a job segment of this version.
    pub fn open(file: OwnedFd) -> io::Result<Self> {
        let memory = Arc::new(Mapping::open(file)?);
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "not a job segment of this version of onesided");
        let magic = memory.word(0).ok_or_else(wrong)?.load(Ordering::Acquire);
        let size = memory.half(SIZE_AT).ok_or_else(wrong)?.load(Ordering::Relaxed);
        let cells = memory.half(CELLS_AT).ok_or_else(wrong)?.load(Ordering::Relaxed);
        if magic != MAGIC || !CELLS.contains(&cells) || memory.len() as u64 != Self::length(size, cells) {
            return Err(wrong());
        }
        Ok(Self { memory, size, cells, round: 1 })
    }

    /// The bytes that are allocated when a job segment for `size` ranks is created.
    pub fn bytes(size: u32) -> u64 {
        match Mapping::reserves() {
            true => Self::lanes_start(size),
            false => Self::length(size, Self::cells_for(size)),
        }
    }

    fn length(size: u32, cells: u32) -> u64 {
        let lanes = (u64::from(size) * u64::from(size)).saturating_mul(Self::lane_bytes(cells));
        Self::lanes_start(size).saturating_add(lanes)
    }

    /// Where the table of lost connections starts; that of open lanes follows.
    pub(super) const fn rows_start(size: u32) -> u64 {
        HEADER + size as u64 * (RANK_FIELDS + WORLD_BYTES)
    }

    pub(super) const fn lanes_start(size: u32) -> u64 {
        (Self::rows_start(size) + Self::lost_bytes(size) + Self::open_bytes(size)).next_multiple_of(WORLD_BYTES)
    }

    /// The file, to be passed to a rank.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.memory.file().unwrap_or_else(|| unreachable!("a job segment is never made without its file"))
    }

    /// The number of ranks in the job.
    #[must_use]
    #[inline]
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// The ranks that have a place here.
    pub fn ranks(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.size).map(Rank)
    }

    /// Whether a rank has a place here.
    #[inline]
    pub const fn has(&self, rank: Rank) -> bool {
        rank.0 < self.size
    }

    /// The memory of it all.
    #[inline]
    pub const fn memory(&self) -> &Arc<Mapping> {
        &self.memory
    }

    #[inline]
    pub(super) fn half(&self, offset: u64) -> &AtomicU32 {
        // Every caller's offset follows from `size`, which the length was checked against.
        self.memory.half(offset).expect("the layout fits the job segment")
    }

    #[inline]
    pub(super) fn fields_of(&self, rank: Rank) -> u64 {
        assert!(self.has(rank), "{rank} is not among the {}", self.size);
        HEADER + u64::from(rank.0) * RANK_FIELDS
    }

    /// The offset of a rank's world segment.
    #[inline]
    pub fn world(&self, rank: Rank) -> u64 {
        HEADER + u64::from(self.size) * RANK_FIELDS + u64::from(rank.0) * WORLD_BYTES
    }

    pub(super) fn endpoints(&self, rank: Rank) -> &AtomicU32 {
        self.half(self.fields_of(rank) + ENDPOINTS_AT)
    }

    #[inline]
    fn status(&self, rank: Rank) -> &AtomicU32 {
        self.half(self.fields_of(rank))
    }

    /// Records a rank's process for its observers, before the rank joins.
    pub fn introduce(&self, rank: Rank, process: Process) {
        let fields_of = self.fields_of(rank);
        self.memory
            .word(fields_of + STARTED_AT)
            .expect("the layout fits the job segment")
            .store(process.started, Ordering::Relaxed);
        self.half(fields_of + PID_AT).store(process.pid, Ordering::Release);
    }

    /// A rank's process, if it was recorded.
    pub fn process(&self, rank: Rank) -> Option<Process> {
        let fields_of = self.fields_of(rank);
        let pid = self.half(fields_of + PID_AT).load(Ordering::Acquire);
        let started = self.memory.word(fields_of + STARTED_AT)?.load(Ordering::Relaxed);
        (pid != 0).then_some(Process { pid, started })
    }

    /// Sets the hosts of all ranks, and after how long a silence a host counts as dead; for the
    /// host daemon, before any rank can ask.
    pub fn lay_out(&self, hosts: &[u16], suspect_after: Duration) {
        self.ranks().zip(hosts).for_each(|(rank, host)| self.place(rank, u32::from(*host)));
        let millis = u32::try_from(suspect_after.as_millis()).unwrap_or(u32::MAX);
        self.half(SUSPECT_AFTER_AT).store(millis, Ordering::Release);
    }

    /// After how long a silence of a rank's host, as seen from another rank, it counts as dead;
    /// zero within a host.
    pub fn suspect_after(&self, rank: Rank, from: Rank) -> Duration {
        match self.host_of(rank) == self.host_of(from) {
            true => Duration::ZERO,
            false => Duration::from_millis(self.half(SUSPECT_AFTER_AT).load(Ordering::Acquire).into()),
        }
    }

    /// Sets a rank's host; for the host daemon, before any rank can ask.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn place(&self, rank: Rank, host: u32) {
        self.half(self.fields_of(rank) + HOST_AT).store(host, Ordering::Release);
    }

    /// The host of a rank, see [`Job::host_of`](crate::Job::host_of).
    #[inline]
    pub fn host_of(&self, rank: Rank) -> u32 {
        self.half(self.fields_of(rank) + HOST_AT).load(Ordering::Acquire)
    }

    /// Joins as a rank, which counts as alive from now on.
    ///
    /// # Errors
    /// `AlreadyExists` if the rank has joined before, or has ended.
    pub fn join(&self, rank: Rank) -> io::Result<()> {
        match self.status(rank).compare_exchange(UNUSED, ALIVE, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => {
                self.endpoints(rank).fetch_or(1 << self.round, Ordering::AcqRel);
                Ok(())
            }
            Err(LEFT | ALIVE) => Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{rank} has joined before"))),
            Err(_) => {
                let what = format!("{rank} has ended: the program that was started as it, or this process before");
                Err(io::Error::new(io::ErrorKind::AlreadyExists, what))
            }
        }
    }

    /// Records that the rank knows that all have arrived; used without our own launcher.
    pub fn arrive(&self, rank: Rank) {
        self.half(self.fields_of(rank) + ARRIVED_AT).store(1, Ordering::Release);
    }

    /// Whether a rank has recorded that.
    pub fn has_arrived(&self, rank: Rank) -> bool {
        self.half(self.fields_of(rank) + ARRIVED_AT).load(Ordering::Acquire) == 1
    }

    /// Leaves the job in order, with the last endpoint of the rank that does.
    pub fn leave(&self, rank: Rank) {
        let own = 1 << self.round;
        if self.endpoints(rank).fetch_and(!own, Ordering::AcqRel) & !own != 0 {
            return;
        }
        let left = self.status(rank).compare_exchange(ALIVE, LEFT, Ordering::AcqRel, Ordering::Relaxed);
        if left.is_ok() {
            self.ring_all();
        }
    }

    /// Records that a rank ended without joining, unless it has joined or died; returns whether it did
    /// so. In order it never joined, else it is dead.
    pub fn end_unjoined(&self, rank: Rank, in_order: bool) -> bool {
        let end = if in_order { NEVER_JOINED } else { DEAD };
        let ended = self.status(rank).compare_exchange(UNUSED, end, Ordering::AcqRel, Ordering::Relaxed);
        match end {
            _ if ended.is_err() => {}
            DEAD => self.note_failure(rank),
            _ => self.ring_all(),
        }
        ended.is_ok()
    }

    /// Declares a rank dead, unless it had ended in order, and wakes all sleepers. Called by whoever has
    /// seen the end of the process that joined, by that process itself once it is no rank any more, or
    /// where nothing of the rank reaches its memory: its host is lost, or not all have joined in time.
    pub fn declare_dead(&self, rank: Rank) {
        let status = self.status(rank);
        let dies = |now| matches!(now, UNUSED | ALIVE).then_some(DEAD);
        let died = status.fetch_update(Ordering::AcqRel, Ordering::Relaxed, dies);
        if died.is_ok() {
            self.note_failure(rank);
        }
    }

    /// Appends a dead rank to the list of failures, once, and wakes all sleepers. Entries are set
    /// in order and never change, so of several processes that append the same rank all but one
    /// find its entry.
    #[cold]
    fn note_failure(&self, rank: Rank) {
        for index in 0..self.size {
            let entry = self.half(self.fields_of(Rank(index)) + FAILED_RANK_AT);
            let noted = entry.compare_exchange(0, rank.0 + 1, Ordering::AcqRel, Ordering::Acquire);
            if noted.is_ok() || noted == Err(rank.0 + 1) {
                self.half(FAILURES_AT).fetch_max(index + 1, Ordering::AcqRel);
                self.half(self.fields_of(rank) + FAILURE_NUMBER_AT).store(index + 1, Ordering::Release);
                break;
            }
        }
        self.ring_all();
    }

    pub(super) fn ring_all(&self) {
        self.note_change();
        self.ranks().for_each(|rank| self.wake(rank));
    }

    /// The number of times that a rank has ended, or a connection was lost, for
    /// [`wait_for_change`](Self::wait_for_change).
    pub fn changes(&self) -> u32 {
        self.half(CHANGES_AT).load(Ordering::Acquire)
    }

    /// The ranks that have left or ended without joining, unless there were so many
    /// [`changes`](Self::changes) before; and their number now.
    pub fn departed(&self, since: u32) -> (u32, Vec<Rank>) {
        let changes = self.changes();
        if changes == since {
            return (changes, Vec::new());
        }
        let has_left = |rank: &Rank| matches!(self.liveness(*rank), Liveness::Left | Liveness::NeverJoined);
        (changes, self.ranks().filter(has_left).collect())
    }

    /// Ends the waits for a change.
    pub fn note_change(&self) {
        self.half(CHANGES_AT).fetch_add(1, Ordering::AcqRel);
        let _ = futex::wake(self.half(CHANGES_AT), futex::Flags::empty(), i32::MAX as u32);
    }

    /// Sleeps until there is another change since `changes` were counted; may return early.
    pub fn wait_for_change(&self, changes: u32) {
        let _ = futex::wait(self.half(CHANGES_AT), futex::Flags::empty(), changes, None);
    }

    /// Whether no end of a rank is known.
    #[must_use]
    #[inline]
    pub fn is_alive(&self, rank: Rank) -> bool {
        self.has(rank) && matches!(self.status(rank).load(Ordering::Acquire), UNUSED | ALIVE)
    }

    /// The known status of a rank. A rank that has not joined yet counts as alive.
    #[must_use]
    #[inline]
    pub fn liveness(&self, rank: Rank) -> Liveness {
        match self.status(rank).load(Ordering::Acquire) {
            LEFT => Liveness::Left,
            NEVER_JOINED => Liveness::NeverJoined,
            DEAD => {
                self.complete_failure(rank);
                Liveness::Dead
            }
            _ => Liveness::Alive,
        }
    }

    /// The process that declared a rank dead may have stopped before this: makes the list of
    /// failures consistent with the status.
    #[cold]
    fn complete_failure(&self, rank: Rank) {
        if self.half(self.fields_of(rank) + FAILURE_NUMBER_AT).load(Ordering::Acquire) == 0 {
            self.note_failure(rank);
        }
    }

    /// The number of ranks that died.
    #[must_use]
    #[inline]
    pub fn failures(&self) -> u32 {
        self.half(FAILURES_AT).load(Ordering::Acquire)
    }

    /// The rank that died after `index` others, if that many have died.
    #[must_use]
    #[inline]
    pub fn failure(&self, index: u32) -> Option<Rank> {
        let entry = (index < self.failures()).then(|| self.half(self.fields_of(Rank(index)) + FAILED_RANK_AT));
        entry?.load(Ordering::Acquire).checked_sub(1).map(Rank)
    }

    /// The first rank that died, if any did.
    #[must_use]
    #[inline]
    pub fn failed_rank(&self) -> Option<Rank> {
        self.failure(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_disjoint_and_checked() {
        for size in [1, 2, 3, 64, 200] {
            let job_segment = JobSegment::create(size).unwrap();
            let last = Rank(size - 1);
            assert!(job_segment.world(Rank(0)) >= job_segment.fields_of(last) + RANK_FIELDS);
            assert!(JobSegment::rows_start(size) >= job_segment.world(last) + WORLD_BYTES);
            assert!(JobSegment::lanes_start(size) >= JobSegment::rows_start(size) + JobSegment::lost_bytes(size));
            assert_eq!(job_segment.lane_offset(Rank(0), Rank(0)) % 64, 0);
            assert_eq!(JobSegment::length(size, job_segment.cells), job_segment.memory.len() as u64);
            let again = JobSegment::open(job_segment.file().try_clone_to_owned().unwrap()).unwrap();
            assert_eq!((again.size, again.cells), (job_segment.size, job_segment.cells));
            job_segment.half(SIZE_AT).store(size + 1, Ordering::Relaxed);
            assert!(JobSegment::open(job_segment.file().try_clone_to_owned().unwrap()).is_err());
        }
        assert!(JobSegment::create(0).is_err() && JobSegment::create(1 << 16).is_err());
    }

    /// An end without joining is final, and no death.
    #[test]
    fn a_rank_that_never_joined_has_not_left() {
        let job_segment = JobSegment::create(3).unwrap();
        let before = job_segment.changes();
        assert!(job_segment.end_unjoined(Rank(0), true) && job_segment.changes() > before);
        job_segment.declare_dead(Rank(0));
        job_segment.leave(Rank(0));
        assert_eq!((job_segment.liveness(Rank(0)), job_segment.failed_rank()), (Liveness::NeverJoined, None));
        assert!(job_segment.join(Rank(0)).is_err());
        job_segment.join(Rank(1)).unwrap();
        job_segment.declare_dead(Rank(2));
        assert_eq!([0, 1, 2].map(|rank| job_segment.end_unjoined(Rank(rank), true)), [false; 3]);
        assert_eq!([1, 2].map(|rank| job_segment.liveness(Rank(rank))), [Liveness::Alive, Liveness::Dead]);
    }

    #[test]
    fn death_is_final_and_leaving_is_not_death() {
        let job_segment = JobSegment::create(3).unwrap();
        for rank in [0, 1] {
            job_segment.join(Rank(rank)).unwrap();
            assert!(job_segment.join(Rank(rank)).is_err());
        }
        job_segment.leave(Rank(0));
        job_segment.declare_dead(Rank(0));
        assert_eq!((job_segment.liveness(Rank(0)), job_segment.failed_rank()), (Liveness::Left, None));
        job_segment.declare_dead(Rank(1));
        job_segment.leave(Rank(1));
        assert_eq!((job_segment.liveness(Rank(1)), job_segment.failed_rank()), (Liveness::Dead, Some(Rank(1))));
        job_segment.declare_dead(Rank(2)); // before it joined
        assert_eq!((job_segment.liveness(Rank(2)), job_segment.failed_rank()), (Liveness::Dead, Some(Rank(1))));
        assert!(job_segment.join(Rank(2)).is_err());
        assert_eq!(job_segment.failures(), 2);
        assert_eq!([0, 1, 2].map(|index| job_segment.failure(index)), [Some(Rank(1)), Some(Rank(2)), None]);
    }

    /// The declaring process was stopped in between.
    #[test]
    fn an_observer_of_a_death_completes_its_declaration() {
        let job_segment = JobSegment::create(2).unwrap();
        job_segment.status(Rank(1)).store(DEAD, Ordering::Release);
        assert_eq!(
            (job_segment.failed_rank(), job_segment.liveness(Rank(0)), job_segment.failed_rank()),
            (None, Liveness::Alive, None)
        );
        assert_eq!((job_segment.liveness(Rank(1)), job_segment.failed_rank()), (Liveness::Dead, Some(Rank(1))));
        // It was stopped after the first of the two stores.
        job_segment.half(job_segment.fields_of(Rank(1)) + FAILURE_NUMBER_AT).store(0, Ordering::Release);
        assert_eq!((job_segment.liveness(Rank(1)), job_segment.failures()), (Liveness::Dead, 1));
    }

    #[test]
    fn failures_are_listed_once_each_whoever_declares_them() {
        let job_segment = JobSegment::create(8).unwrap();
        std::thread::scope(|scope| {
            for first in 0..4 {
                let job_segment = &job_segment;
                scope.spawn(move || {
                    for rank in (0..8).map(|at| Rank((at + first * 3) % 8)) {
                        job_segment.status(rank).store(DEAD, Ordering::Release);
                        assert_eq!(job_segment.liveness(rank), Liveness::Dead); // notes it
                    }
                });
            }
        });
        let mut failed: Vec<_> = (0..8).map(|index| job_segment.failure(index).unwrap().0).collect();
        failed.sort_unstable();
        assert_eq!((failed, job_segment.failures()), ((0..8).collect(), 8));
    }
}
