//! Copies by the owner's progress thread, for peers whose system forbids copies between processes.
//!
//! A requesting rank fills in its line of the control page, writes the bytes of a put to its buffer
//! there, and rings the owner's doorbell. The progress thread copies, records the outcome, and
//! rings back. A rank has at most one request in flight.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use onesided_job::lock;
use onesided_remote_memory::{Fault, FaultKind, Rank};

use crate::shm::piece::{Bytes, Piece};
use crate::shm::user_region::UserRegion;
use crate::waiting::drive::now;

// The states of a request.
const NONE: u64 = 0;
const PUT: u64 = 1;
const GET: u64 = 2;
const SERVED: u64 = 3;
const DONE: u64 = 4;

/// The request's entry of a piece: `offset u64 | length u64`, little endian. The entries of all
/// pieces come first, then the bytes of a put.
pub(super) const ENTRY: usize = 16;

/// After how many nanoseconds a request to a living owner is given up: the owner is stopped, or has
/// no progress thread.
const PATIENCE: u64 = 30_000_000_000;
/// Polls, and yields of the core, before the thread sleeps; and its longest sleep.
const SPINS: u32 = 2_000;
const YIELDS: u32 = 50;
const NAP: Duration = Duration::from_millis(50);

/// The user memory of a rank, which its progress thread serves.
#[derive(Debug, Default)]
pub(crate) struct Service(Mutex<Regions>);

#[derive(Debug, Default)]
struct Regions {
    /// With the number of requests at the last check.
    user: Vec<(Weak<UserRegion>, u64)>,
    running: bool,
}

impl Service {
    /// Starts serving requests for this memory. `true`: the caller has to start the task that calls
    /// [`serve`](Self::serve).
    pub(crate) fn add(&self, user: &Arc<UserRegion>) -> bool {
        let mut regions = lock(&self.0);
        regions.user.push((Arc::downgrade(user), 0));
        !std::mem::replace(&mut regions.running, true)
    }

    /// The task could not be started: the next registration tries again.
    pub(crate) fn stopped(&self) {
        lock(&self.0).running = false;
    }

    /// Serves peers' requests. `false` once there is no user memory left.
    pub(crate) fn serve(&self) -> bool {
        let mut orphans = Vec::new();
        self.serve_and_keep(&mut orphans) // dropped after the lock
    }

    /// The same; returns regions whose last reference is held here, for the caller to drop without
    /// a lock: the drop of user memory runs user code.
    fn serve_and_keep(&self, orphans: &mut Vec<UserRegion>) -> bool {
        let mut regions = lock(&self.0);
        regions.user.retain_mut(|(user, seen)| match user.upgrade() {
            Some(user) => {
                user.serve(seen);
                orphans.extend(Arc::into_inner(user));
                true
            }
            None => false,
        });
        regions.running &= !regions.user.is_empty();
        regions.running
    }
}

impl UserRegion {
    /// The owner's side: serves the requests since the last check.
    fn serve(&self, seen: &mut u64) {
        let count = self.control.requests().load(Ordering::Acquire);
        if count == *seen {
            return;
        }
        *seen = count;
        for rank in (0..self.job_segment.size()).map(Rank) {
            let request = self.control.request(rank);
            let request_kind = request.state.load(Ordering::Acquire);
            if !matches!(request_kind, PUT | GET)
                || request.state.compare_exchange(request_kind, SERVED, Ordering::Acquire, Ordering::Relaxed).is_err()
            {
                continue; // given up in between
            }
            let (count, bytes) = (request.count.load(Ordering::Relaxed), request.bytes.load(Ordering::Relaxed));
            let outcome = self.serve_pieces(rank, request_kind == PUT, count, bytes);
            let fault = outcome.map_or_else(Fault::to_bits, |()| 0);
            request.fault.store(fault, Ordering::Relaxed);
            request.state.store(DONE, Ordering::Release);
            self.job_segment.wake(rank);
        }
    }

    /// The first bytes of a peer's buffer.
    pub(super) fn buffered(&self, rank: Rank, count: u64) -> Result<Vec<u8>, Fault> {
        let wrong = Fault::of(FaultKind::Protocol, rank);
        let (at, room) = self.control.buffer(rank);
        if count > room {
            return Err(wrong);
        }
        let mut bytes = onesided_job::zeroed(count as usize).map_err(|_| Fault::of(FaultKind::NoMemory, self.owner))?;
        self.control.memory().read(at, &mut bytes)?;
        Ok(bytes)
    }

    /// The peer's side: requests a copy of pieces, all puts or all gets, which fit this rank's
    /// buffer with an entry for each. Blocks.
    pub(super) fn request(&self, pieces: &mut [Piece<'_>]) -> Result<(), Fault> {
        let put = matches!(pieces, [Piece { bytes: Bytes::From(_), .. }, ..]);
        let bytes: usize = pieces.iter().map(Piece::len).sum();
        let (request_kind, entries) = (if put { PUT } else { GET }, pieces.len() * ENTRY);
        let (at, room) = self.control.buffer(self.me);
        let (used, memory) = ((entries + bytes) as u64, self.control.memory());
        if used > room {
            return Err(Fault::of(FaultKind::TooLong, self.owner));
        }
        let mut orphans = Vec::new(); // dropped after the lock
        let mut broken = lock(&self.requesting);
        self.alive()?; // first: a dead owner is the usual cause of a broken line
        if *broken {
            return Err(Fault::of(FaultKind::Refused, self.owner));
        }
        if self.is_shut() {
            return Err(Fault::of(FaultKind::NoSuchRegion, self.owner));
        }
        let (mut entry_at, mut bytes_at) = (at, at + entries as u64);
        for piece in &*pieces {
            let entry = [piece.offset.to_le_bytes(), (piece.len() as u64).to_le_bytes()].concat();
            memory.write(entry_at, &entry)?;
            entry_at += ENTRY as u64;
            if let Bytes::From(from) = &piece.bytes {
                memory.write(bytes_at, from)?;
            }
            bytes_at += piece.len() as u64;
        }
        let request = self.control.request(self.me);
        request.count.store(pieces.len() as u64, Ordering::Relaxed);
        request.bytes.store(used, Ordering::Relaxed);
        request.state.store(request_kind, Ordering::Release);
        self.control.requests().fetch_add(1, Ordering::Release);
        self.job_segment.wake(self.owner);
        match self.answered(request_kind, &mut orphans) {
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
        let mut bytes_at = at + entries as u64;
        for piece in pieces {
            let len = piece.len() as u64;
            if let Bytes::Into(into) = &mut piece.bytes {
                memory.read(bytes_at, into)?;
            }
            bytes_at += len;
        }
        Ok(())
    }

    /// Whether the owner has withdrawn the memory.
    pub(super) fn is_shut(&self) -> bool {
        self.control.gate(self.me).shut.load(Ordering::Acquire) != 0
    }

    /// Waits for the answer to this rank's request.
    fn answered(&self, request_kind: u64, orphans: &mut Vec<UserRegion>) -> Result<(), Fault> {
        let state = self.control.request(self.me).state;
        let done = || state.load(Ordering::Acquire) == DONE;
        let (until, mut turn) = (now() + PATIENCE, 0_u32);
        while !done() {
            turn = turn.saturating_add(1);
            if turn <= SPINS {
                std::hint::spin_loop();
                continue;
            }
            // The owner may wait for this rank in the same way, and this thread may be this rank's
            // progress thread.
            self.service.serve_and_keep(orphans);
            if let Err(fault) = self.alive() {
                return if done() { Ok(()) } else { Err(fault) };
            }
            // An owner that has reclaimed its memory may not serve any more.
            let late = now() >= until;
            if late || self.is_shut() {
                let kind = if late { FaultKind::TimedOut } else { FaultKind::NoSuchRegion };
                match state.compare_exchange(request_kind, NONE, Ordering::Relaxed, Ordering::Acquire) {
                    Ok(_) => return Err(Fault::of(kind, self.owner)),
                    Err(DONE) => return Ok(()),
                    Err(_) if late => return Err(Fault::of(FaultKind::Unknown, self.owner)), // stopped during the copy
                    Err(_) => {}                                                             // being served
                }
            }
            if turn <= SPINS + YIELDS {
                std::thread::yield_now();
                continue;
            }
            let bell = self.job_segment.doorbell(self.me);
            let ticket = bell.arm();
            if !done() {
                self.job_segment.sleep(self.me, ticket, NAP);
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
    use crate::shm::control::Control;
    use crate::shm::user_region::Between;

    /// The owner of user memory; its drop uses the fabric with which it was registered, as a drop
    /// may.
    struct Owner(Arc<Service>);

    impl Drop for Owner {
        fn drop(&mut self) {
            self.0.serve();
        }
    }

    /// The serving thread may hold the last reference to user memory, whose drop is user code: no
    /// lock may be held.
    #[test]
    fn the_users_drop_runs_under_no_lock() {
        // Many ranks to check, so that a region is released while it is served.
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
            let job_segment = Arc::clone(&jobs[0].job_segment);
            std::thread::spawn(move || {
                for round in 0..100_u64 {
                    let mut bytes = vec![0_u64; 8];
                    let start = std::ptr::NonNull::new(bytes.as_mut_ptr()).unwrap().cast();
                    let owner = (bytes, Owner(Arc::clone(&service)));
                    #[allow(unsafe_code)]
                    // SAFETY: 64 bytes of the vector, which the owner keeps and nothing else
                    // accesses.
                    let memory = unsafe { UserMemory::from_raw_parts(start, 64, owner) }.unwrap();
                    let between =
                        Between { job_segment: Arc::clone(&job_segment), service: Arc::clone(&service), me: Rank(0) };
                    let page = Control::page(job_segment.size());
                    let user = Arc::new(UserRegion::new(between, page, memory));
                    service.add(&user);
                    user.control.requests().fetch_add(1, Ordering::Release);
                    for _ in 0..(3 * round) % 512 {
                        std::hint::spin_loop();
                    }
                    drop(user);
                }
            })
        };
        while !lender.is_finished() && began.elapsed() < Duration::from_secs(300) {
            sleep(Duration::from_millis(5));
        }
        over.store(true, Ordering::Relaxed);
        while !dropped.load(Ordering::Acquire) && began.elapsed() < Duration::from_secs(310) {
            sleep(Duration::from_millis(5));
        }
        assert!(dropped.load(Ordering::Acquire) && lender.is_finished(), "a drop waits for the lock of who drops");
        lender.join().unwrap();
        server.join().unwrap();
    }
}
