//! Copies by the owner's helper thread, for peers whose system forbids copies from process to process.
//!
//! A rank that wants a copy fills in its line of the control page, bytes to be put go into its buffer there, and rings the
//! owner's doorbell; the helper thread copies, says how it went, and rings back. One request at a time a rank.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use onesided_job::segment::copy;
use onesided_remote_memory::{Fault, FaultKind, Rank};

use crate::drive::now;
use crate::shm::lent::Lent;
use crate::shm::piece::Bytes;

// The states of a request.
const NONE: u64 = 0;
const PUT: u64 = 1;
const GET: u64 = 2;
const SERVED: u64 = 3;
const DONE: u64 = 4;
/// As `PUT` and `GET`, of pieces: their number in the place of the offset, and how much of the buffer they take.
pub(super) const PUT_PIECES: u64 = 5;
pub(super) const GET_PIECES: u64 = 6;

/// How long, in nanoseconds, before a request that a living owner does not answer is given up: it is stopped, or has no helper
/// thread.
const PATIENCE: u64 = 30_000_000_000;
/// Turns of looking, and of giving the core away, before the thread sleeps; and how long at most.
const SPINS: u32 = 2_000;
const YIELDS: u32 = 50;
const NAP: Duration = Duration::from_millis(50);

/// What a rank has lent, to be looked through by its helper thread.
#[derive(Debug, Default)]
pub(crate) struct Service(Mutex<Regions>);

#[derive(Debug, Default)]
struct Regions {
    /// With the number of requests that there were at the last look.
    lent: Vec<(Weak<Lent>, u64)>,
    running: bool,
}

impl Service {
    fn regions(&self) -> MutexGuard<'_, Regions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on requests for this memory are served. `true`: by a task that calls [`serve`](Self::serve) and is not
    /// there yet.
    pub(crate) fn add(&self, lent: &Arc<Lent>) -> bool {
        let mut regions = self.regions();
        regions.lent.push((Arc::downgrade(lent), 0));
        !std::mem::replace(&mut regions.running, true)
    }

    /// The task could not be started: the next memory that is lent asks for it again.
    pub(crate) fn stopped(&self) {
        self.regions().running = false;
    }

    /// Serves what peers have asked for. `false` once nothing is lent any more.
    pub(crate) fn serve(&self) -> bool {
        let mut orphans = Vec::new();
        self.serve_and_keep(&mut orphans) // they are dropped now
    }

    /// The same, and gives what nobody else had any more when it was served: to be dropped where no lock is held, because what
    /// the user's memory belongs to is dropped with it, by code of the user's.
    fn serve_and_keep(&self, orphans: &mut Vec<Lent>) -> bool {
        let mut regions = self.regions();
        regions.lent.retain_mut(|(lent, seen)| match lent.upgrade() {
            Some(lent) => {
                lent.serve(seen);
                orphans.extend(Arc::into_inner(lent));
                true
            }
            None => false,
        });
        regions.running &= !regions.lent.is_empty();
        regions.running
    }
}

impl Lent {
    /// The owner's side: does what peers have asked for since the last look.
    fn serve(&self, seen: &mut u64) {
        let asked = self.control.asked().load(Ordering::Acquire);
        if asked == *seen {
            return;
        }
        *seen = asked;
        for rank in (0..self.board.size()).map(Rank) {
            let request = self.control.request(rank);
            let asked = request.state.load(Ordering::Acquire);
            if !matches!(asked, PUT | GET | PUT_PIECES | GET_PIECES)
                || request.state.compare_exchange(asked, SERVED, Ordering::Acquire, Ordering::Relaxed).is_err()
            {
                continue; // given up meanwhile
            }
            let (offset, count) = (request.offset.load(Ordering::Relaxed), request.count.load(Ordering::Relaxed));
            let outcome = match asked {
                PUT_PIECES | GET_PIECES => self.serve_pieces(rank, asked == PUT_PIECES, offset, count),
                _ => self.serve_one(rank, asked == PUT, offset, count),
            };
            let fault = outcome.map_or_else(Fault::to_bits, |()| 0);
            request.fault.store(fault, Ordering::Relaxed);
            request.state.store(DONE, Ordering::Release);
            self.board.wake(rank);
        }
    }

    fn serve_one(&self, rank: Rank, put: bool, offset: u64, count: u64) -> Result<(), Fault> {
        let (at, room) = self.control.buffer(rank);
        let buffer = self.control.memory().bytes(at, count).filter(|_| count <= room);
        let (Some(buffer), Ok(len)) = (buffer, usize::try_from(count)) else {
            return Err(Fault::of(FaultKind::Protocol, rank));
        };
        #[allow(unsafe_code)]
        if put {
            // SAFETY: `len` bytes of the page's mapping, which `self` keeps.
            unsafe { self.write_from(offset, buffer, len) }
        } else {
            // SAFETY: as above.
            unsafe { self.read_into(offset, buffer, len) }
        }
    }

    /// The peer's side: has the beginning of a range copied by its owner, and gives how much that was. Blocks.
    pub(super) fn ask(&self, offset: u64, bytes: Bytes, len: usize) -> Result<usize, Fault> {
        let len = len.min(self.control.buffer(self.me).1 as usize);
        let asked = if matches!(bytes, Bytes::From(_)) { PUT } else { GET };
        #[allow(unsafe_code)]
        let fill = |buffer: *mut u8| {
            if let Bytes::From(from) = bytes {
                // SAFETY: `len` bytes that the caller lends, and as many of the page's mapping.
                unsafe { copy::copy(buffer, from, len) };
            }
        };
        #[allow(unsafe_code)]
        let take = |buffer: *mut u8| {
            if let Bytes::Into(into) = bytes {
                // SAFETY: as above; the caller lends its bytes exclusively.
                unsafe { copy::copy(into, buffer, len) };
            }
        };
        self.ask_with(asked, (offset, len as u64), fill, take)?;
        Ok(len)
    }

    /// Asks the owner, with what `fill` writes to this rank's buffer, and lets `take` read the answer there. Blocks.
    pub(super) fn ask_with(
        &self,
        asked: u64,
        (offset, count): (u64, u64),
        fill: impl FnOnce(*mut u8),
        take: impl FnOnce(*mut u8),
    ) -> Result<(), Fault> {
        let mut orphans = Vec::new(); // dropped after the lock
        let mut broken = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        self.alive()?; // first: it is why the line broke, most of the time
        if *broken {
            return Err(Fault::of(FaultKind::Refused, self.owner));
        }
        if self.is_shut() {
            return Err(Fault::of(FaultKind::NoSuchRegion, self.owner));
        }
        let (at, room) = self.control.buffer(self.me);
        let buffer = self.control.memory().bytes(at, room).ok_or(Fault::of(FaultKind::Protocol, self.owner))?;
        fill(buffer.as_ptr());
        let request = self.control.request(self.me);
        request.offset.store(offset, Ordering::Relaxed);
        request.count.store(count, Ordering::Relaxed);
        request.state.store(asked, Ordering::Release);
        self.control.asked().fetch_add(1, Ordering::Release);
        self.board.wake(self.owner);
        match self.answered(asked, &mut orphans) {
            Ok(()) => {}
            Err(fault) => {
                *broken = !matches!(fault.kind(), FaultKind::TimedOut | FaultKind::NoSuchRegion);
                return Err(fault);
            }
        }
        request.state.store(NONE, Ordering::Relaxed);
        if let Some(fault) = Fault::from_bits(request.fault.load(Ordering::Relaxed)) {
            return Err(fault);
        }
        take(buffer.as_ptr());
        Ok(())
    }

    fn is_shut(&self) -> bool {
        self.control.gate(self.me).shut.load(Ordering::Acquire) != 0
    }

    /// Waits for the answer to what this rank has just asked.
    fn answered(&self, asked: u64, orphans: &mut Vec<Lent>) -> Result<(), Fault> {
        let state = self.control.request(self.me).state;
        let done = || state.load(Ordering::Acquire) == DONE;
        let (until, mut turn) = (now() + PATIENCE, 0_u32);
        while !done() {
            turn = turn.saturating_add(1);
            if turn <= SPINS {
                std::hint::spin_loop();
                continue;
            }
            // The owner may wait for this rank in the same way, and this thread may be this rank's helper.
            self.service.serve_and_keep(orphans);
            if let Err(fault) = self.alive() {
                return if done() { Ok(()) } else { Err(fault) };
            }
            // An owner that has its memory back may not look here any more.
            let late = now() >= until;
            if late || self.is_shut() {
                let kind = if late { FaultKind::TimedOut } else { FaultKind::NoSuchRegion };
                match state.compare_exchange(asked, NONE, Ordering::Relaxed, Ordering::Acquire) {
                    Ok(_) => return Err(Fault::of(kind, self.owner)),
                    Err(DONE) => return Ok(()),
                    Err(_) if late => return Err(Fault::of(FaultKind::Unknown, self.owner)), // stopped in the middle
                    Err(_) => {}                                                             // it is at it
                }
            }
            if turn <= SPINS + YIELDS {
                std::thread::yield_now();
                continue;
            }
            let bell = self.board.doorbell(self.me);
            let ticket = bell.arm();
            if !done() {
                self.board.sleep(self.me, ticket, NAP);
            }
            bell.disarm();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread::sleep;

    use onesided_job::local;

    use super::*;
    use crate::UserMemory;
    use crate::shm::lent::Between;

    /// What the user's memory belongs to; its drop uses the fabric that it was lent to, as a drop may.
    struct Owner(Arc<Service>);

    impl Drop for Owner {
        fn drop(&mut self) {
            self.0.serve();
        }
    }

    /// Who serves may be the last to have some memory, and its owner's drop is the user's code: it runs under no lock of ours.
    #[test]
    fn the_users_drop_runs_under_no_lock() {
        // Many ranks to look through, so that memory is let go of while it is served.
        let jobs = local::jobs(1_000).unwrap();
        let (service, over) = (Arc::<Service>::default(), Arc::new(AtomicBool::new(false)));
        let dropped = Arc::new(AtomicBool::new(false));
        let server = {
            let (service, over, dropped) = (Arc::clone(&service), Arc::clone(&over), Arc::clone(&dropped));
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    service.serve();
                }
                dropped.store(true, Ordering::Release);
            })
        };
        let began = std::time::Instant::now();
        let lender = {
            let service = Arc::clone(&service);
            let board = Arc::clone(&jobs[0].board);
            std::thread::spawn(move || {
                for round in 0..300_u64 {
                    let mut bytes = vec![0_u64; 8];
                    let start = std::ptr::NonNull::new(bytes.as_mut_ptr()).unwrap().cast();
                    // SAFETY: 64 bytes of the vector, which is kept with the owner and touched by nobody else.
                    #[allow(unsafe_code)]
                    let memory =
                        unsafe { UserMemory::from_raw_parts(start, 64, (bytes, Owner(Arc::clone(&service)))) }.unwrap();
                    let between = Between { board: Arc::clone(&board), service: Arc::clone(&service), me: Rank(0) };
                    let lent = Arc::new(Lent::new(between, memory).map_err(|(error, _)| error).unwrap());
                    service.add(&lent);
                    lent.control.asked().fetch_add(1, Ordering::Release);
                    for _ in 0..round % 512 {
                        std::hint::spin_loop();
                    }
                    drop(lent);
                }
            })
        };
        while !lender.is_finished() && began.elapsed() < Duration::from_secs(20) {
            sleep(Duration::from_millis(5));
        }
        over.store(true, Ordering::Relaxed);
        while !dropped.load(Ordering::Acquire) && began.elapsed() < Duration::from_secs(25) {
            sleep(Duration::from_millis(5));
        }
        assert!(dropped.load(Ordering::Acquire) && lender.is_finished(), "a drop waits for the lock of who drops");
        lender.join().unwrap();
        server.join().unwrap();
    }
}
