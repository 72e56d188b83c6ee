//! User memory, which peers cannot map. Threads of the owner's process copy directly; other
//! processes copy through the kernel, or by the owner's progress thread where the system forbids
//! that.

use std::io::{self, IoSlice, IoSliceMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use onesided_job::fork::{self, is_child};
use onesided_job::{Process, lock};
use onesided_remote_memory::{Fault, FaultKind, Rank, debug};
use rustix::io::Errno;

use crate::shm::access_guard::{Access, is_inside, shut};
use crate::shm::control::{Control, RemoteDescriptor, nonce};
use crate::shm::piece::{Bytes, CUT, Piece};
use crate::shm::process_vm::{self, bare::Range};
use crate::shm::processes;
use crate::shm::serving::{ENTRY, Service};
use crate::shm::{JobSegment, ShmSegment};
use crate::{Path, UserMemory, WORDLESS};

/// The user memory of a rank, as one rank accesses it.
pub(crate) struct UserRegion {
    pub(super) control: Control,
    pub(super) job_segment: Arc<JobSegment>,
    pub(super) service: Arc<Service>,
    pub(super) me: Rank,
    pub(crate) owner: Rank,
    pub(super) process: Process,
    pub(super) address: u64,
    len: u64,
    copy_path: AtomicU8,
    /// One request at a time; `true` once a request was given up, because the line's state is then
    /// unknown.
    pub(super) requesting: Mutex<bool>,
    /// The owner's memory, until it is reclaimed.
    memory: Mutex<Option<UserMemory>>,
}

/// The path by which this rank accesses it.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum CopyPath {
    /// The memory lies in this process.
    Direct,
    ProcessVm,
    Helper,
}

/// What ranks need to access one another's user memory.
#[derive(Clone, Debug)]
pub(crate) struct Between {
    pub(crate) job_segment: Arc<JobSegment>,
    pub(crate) service: Arc<Service>,
    pub(crate) me: Rank,
}

impl UserRegion {
    /// Publishes own memory, by a control page in memory of its [length](Control::length).
    pub(crate) fn new(between: Between, control: ShmSegment, memory: UserMemory) -> Self {
        let Between { job_segment, service, me } = between;
        let (process, len) = (Process::own(), memory.len() as u64);
        let address = memory.start().as_ptr().expose_provenance() as u64;
        let descriptor = RemoteDescriptor { process, nonce: nonce(), address, len };
        let control = Control::create(control, job_segment.size(), &descriptor);
        processes::admit_peers();
        let (copy_path, requesting) = (AtomicU8::new(CopyPath::Direct as u8), Mutex::default());
        let memory = Mutex::new(Some(memory));
        Self { control, job_segment, service, me, owner: me, process, address, len, copy_path, requesting, memory }
    }

    /// Determines the path to a peer's memory.
    ///
    /// # Errors
    /// `Protocol` if the page is invalid, `NoSuchRegion` if the memory was reclaimed.
    pub(crate) fn open(between: Between, owner: Rank, page: ShmSegment) -> Result<Self, Fault> {
        let Between { job_segment, service, me } = between;
        let opened = Control::open(page, job_segment.size());
        let (control, descriptor) = opened.ok_or(Fault::of(FaultKind::Protocol, owner))?;
        let RemoteDescriptor { process, nonce: theirs, address, len } = descriptor;
        let here = theirs == nonce() && theirs != 0 && process.pid == std::process::id();
        let copy_path = AtomicU8::new(if here { CopyPath::Direct } else { CopyPath::Helper } as u8);
        let (requesting, memory) = (Mutex::default(), Mutex::new(None));
        let user =
            Self { control, job_segment, service, me, owner, process, address, len, copy_path, requesting, memory };
        if !here && user.may_be_copied()? {
            user.copy_path.store(CopyPath::ProcessVm as u8, Ordering::Relaxed);
        }
        Ok(user)
    }

    /// Whether the kernel copies to and from the owner's process; tested by reading a word.
    fn may_be_copied(&self) -> Result<bool, Fault> {
        let _access = self.access()?;
        // The number must not refer to another process, in another namespace or after the owner's
        // end.
        let met = self.process.started != 0 && matches!(self.process.watch(), Ok(Some(_)));
        if !met || !processes::is_enabled() {
            return Ok(false);
        }
        let mut word = [0; 8];
        let len = word.len().min(self.len as usize);
        let there = [Range::new(self.address, len)];
        let read = process_vm::read(self.process.pid, &mut [IoSliceMut::new(&mut word[..len])], &there);
        Ok(read.is_ok_and(|count| count == len))
    }

    pub(super) fn copy_path(&self) -> CopyPath {
        match self.copy_path.load(Ordering::Relaxed) {
            0 => CopyPath::Direct,
            1 => CopyPath::ProcessVm,
            _ => CopyPath::Helper,
        }
    }

    pub(crate) fn path(&self) -> Path {
        match self.copy_path() {
            CopyPath::Direct => Path::Cpu,
            CopyPath::ProcessVm => Path::ProcessVm,
            CopyPath::Helper => Path::Helper,
        }
    }

    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn check(&self, offset: u64, len: usize) -> Result<(), Fault> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(Fault::of(FaultKind::OutOfRange, self.owner)),
        }
    }

    /// Delays the owner's reclaim while the access is held.
    pub(super) fn access(&self) -> Result<Access<'_>, Fault> {
        fork::check()?; // the system copies by the number of a process
        self.control.gate(self.me).enter().ok_or(Fault::of(FaultKind::NoSuchRegion, self.owner))
    }

    /// The fault if the owner is no longer alive.
    pub(super) fn alive(&self) -> Result<(), Fault> {
        self.job_segment.liveness(self.owner).needed(self.owner)
    }

    /// Why it has no words: a word is a reference that would outlive the registration.
    pub(crate) const fn wordless(&self) -> Fault {
        Fault::of(FaultKind::Unsupported, self.owner).with_detail(WORDLESS)
    }

    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> Result<(), Fault> {
        self.check(offset, from.len())?;
        self.copy(Piece { offset, bytes: Bytes::From(from) })
    }

    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.check(offset, into.len())?;
        self.copy(Piece { offset, bytes: Bytes::Into(into) })
    }

    /// Copies a checked piece in cuts, acquiring access for each.
    pub(super) fn copy(&self, mut piece: Piece<'_>) -> Result<(), Fault> {
        while piece.len() > 0 {
            let done = match self.copy_path() {
                CopyPath::Direct => self.copy_directly(&mut [piece.first(CUT)]).map(|()| CUT),
                CopyPath::ProcessVm => self.copy_by_process_vm(piece.first(CUT)),
                CopyPath::Helper => {
                    let room = CUT.min(self.control.buffer(self.me).1 as usize - ENTRY);
                    self.request(&mut [piece.first(room)]).map(|()| room)
                }
            };
            piece.split(done?);
        }
        Ok(())
    }

    /// Returns the number of bytes copied; 0 if the path has just been found to be forbidden.
    fn copy_by_process_vm(&self, Piece { offset, bytes }: Piece<'_>) -> Result<usize, Fault> {
        self.check(offset, bytes.len())?;
        let _access = self.access()?;
        self.alive()?; // a dead owner's process number may be reused
        let (pid, there) = (self.process.pid, [Range::new(self.address + offset, bytes.len())]);
        self.copied(match bytes {
            // SAFETY: the range was checked against the region, which its owner has published to be
            // written, and which the access keeps valid.
            #[allow(unsafe_code)]
            Bytes::From(from) => unsafe { process_vm::write(pid, &[IoSlice::new(from)], &there) },
            Bytes::Into(into) => process_vm::read(pid, &mut [IoSliceMut::new(into)], &there),
        })
    }

    /// The result of a copy by the kernel: the number of bytes, or 0 if the path has just been
    /// found to be forbidden.
    pub(super) fn copied(&self, copied: io::Result<usize>) -> Result<usize, Fault> {
        let errno = match copied {
            Ok(0) => Errno::FAULT, // no bytes, and no error
            Ok(count) => return Ok(count),
            Err(error) => process_vm::errno(&error),
        };
        match errno {
            // Forbidden since it was tested.
            Errno::PERM | Errno::ACCESS | Errno::NOSYS => {
                self.copy_path.store(CopyPath::Helper as u8, Ordering::Relaxed);
                Ok(0)
            }
            other => Err(process_vm::fault(self.owner, other, || self.alive())),
        }
    }

    /// Announces to peers that the memory is withdrawn; returns it once no peer has access.
    ///
    /// # Errors
    /// `NotOwn`, `Closed` if it was reclaimed before.
    pub(crate) fn take_back(&self) -> Result<Option<UserMemory>, Fault> {
        let mut memory = lock(&self.memory);
        match &*memory {
            None if self.owner != self.me => return Err(Fault::of(FaultKind::NotOwn, self.owner)),
            None => return Err(Fault::new(FaultKind::Closed)),
            Some(_) => {}
        }
        shut(self.control.gate(self.me).shut);
        let inside = |rank: &Rank| {
            is_inside(self.control.gate(*rank).announced) && !processes::has_ended(&self.job_segment, *rank)
        };
        if (0..self.job_segment.size()).map(Rank).any(|rank| inside(&rank)) {
            return Ok(None);
        }
        Ok(memory.take())
    }
}

#[allow(unsafe_code)] // accesses memory of this process by its address
mod direct {
    use std::sync::atomic::AtomicU64;

    use onesided_job::segment::copy;

    use super::{Bytes, CopyPath, Fault, FaultKind, NonNull, Ordering, Piece, UserRegion};

    impl UserRegion {
        /// The address of an offset in memory of this process.
        fn place(&self, offset: u64) -> NonNull<u8> {
            let address = (self.address + offset) as usize;
            NonNull::new(std::ptr::with_exposed_provenance_mut(address)).expect("user memory does not begin at 0")
        }

        /// Copies pieces of memory in this process, under one access.
        pub(in crate::shm) fn copy_directly(&self, pieces: &mut [Piece<'_>]) -> Result<(), Fault> {
            self.in_this_process()?;
            let _access = self.access()?;
            for Piece { offset, bytes } in pieces {
                self.check(*offset, bytes.len())?;
                let place = self.place(*offset).as_ptr();
                match bytes {
                    // SAFETY: the range lies in the region, which is memory of this process and
                    // consists of whole words; the access keeps it valid, so others use it by
                    // atomics and racy copies only.
                    Bytes::From(from) => unsafe { copy::into_shared(place, from) },
                    // SAFETY: as above.
                    Bytes::Into(into) => unsafe { copy::out_of_shared(into, place) },
                }
            }
            Ok(())
        }

        /// Whether its address is one of this process.
        fn in_this_process(&self) -> Result<(), Fault> {
            if self.copy_path() == CopyPath::Direct { Ok(()) } else { Err(Fault::of(FaultKind::NotOwn, self.owner)) }
        }

        /// Changes consecutive words, each atomically.
        pub(crate) fn change(
            &self,
            offset: u64,
            words: usize,
            change: &mut dyn FnMut(usize, u64) -> u64,
        ) -> Result<(), Fault> {
            let bytes = words.checked_mul(8).ok_or(Fault::of(FaultKind::OutOfRange, self.owner))?;
            self.check(offset, bytes)?;
            if !offset.is_multiple_of(8) {
                return Err(Fault::of(FaultKind::Misaligned, self.owner));
            }
            self.in_this_process()?;
            let _access = self.access()?;
            for word in 0..words {
                let place = self.place(offset + 8 * word as u64);
                // SAFETY: 8 bytes of the region, which begins at a multiple of 8; the access keeps
                // it valid, and others use it by atomics and racy copies only.
                let place = unsafe { AtomicU64::from_ptr(place.as_ptr().cast()) };
                let mut found = place.load(Ordering::Acquire);
                loop {
                    let new = change(word, found);
                    if new == found {
                        break;
                    }
                    match place.compare_exchange_weak(found, new, Ordering::AcqRel, Ordering::Acquire) {
                        Ok(_) => break,
                        Err(now) => found = now,
                    }
                }
            }
            Ok(())
        }
    }
}

impl Drop for UserRegion {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl UserRegion {
    fn let_go(&self) {
        if self.owner != self.me || lock(&self.memory).is_none() {
            return;
        }
        if is_child() {
            // A forked child drops a copy of its parent's region.
            return std::mem::forget(lock(&self.memory).take());
        }
        // Dropped without reclaim: the memory is freed if no peer has access, and leaked otherwise,
        // because a peer may still write to it.
        if !matches!(self.take_back(), Ok(Some(_))) {
            std::mem::forget(lock(&self.memory).take());
        }
    }
}

debug!([] UserRegion, |this| "{} bytes of user memory of {}, reached by {:?}", this.len, this.owner, this.path());
