//! A child made by `fork` has no effect on the job.
//!
//! It has copies of its parent's guards, requests and endpoints. Their drops write to the memory that the job
//! shares, as any release or cancel does. So in the child that memory is its own, before `fork` returns there:
//! a private copy where the memory file is open, else zeroes. No drop needs to know of it, but the release of a
//! lock, whose words may refer to what is missing. Calls ask [`is_child`], and fail.
//!
//! A lock that another thread holds at the fork stays held in the child. So the thread that forks
//! [holds](hold_over_forks) those that threads of the library take all the time.
//!
//! Only the C library's `fork` is noticed, not a bare system call `clone`.
#![allow(unsafe_code)] // pthread_atfork, and mappings that replace others

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use crate::lock;
use onesided_remote_memory::{Fault, FaultKind};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

static IS_CHILD: AtomicBool = AtomicBool::new(false);
static SHARED: Mutex<BTreeMap<usize, Shared>> = Mutex::new(BTreeMap::new());
static LOCKS: Mutex<Vec<Box<dyn Lock>>> = Mutex::new(Vec::new());
static FORKING: Forking = Forking(UnsafeCell::new(None));

/// Whether this process is a child made by `fork` of one that has been in a job: it has no part in any.
#[inline(always)]
pub fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

/// An error in a child, for a call.
///
/// # Errors
/// `Forked`.
#[inline]
pub fn check() -> Result<(), Fault> {
    if is_child() { Err(Fault::new(FaultKind::Forked)) } else { Ok(()) }
}

/// The same for what the system does, or a library.
///
/// # Errors
/// `Unsupported`.
pub fn refuse() -> io::Result<()> {
    let what = "this process is a child made by `fork` of one that has been in a job";
    if is_child() { Err(io::Error::new(io::ErrorKind::Unsupported, what)) } else { Ok(()) }
}

/// A mapping of memory that other processes may have mapped, by its address.
#[derive(Debug)]
struct Shared {
    len: usize,
    /// Its file, if that is open: the descriptor, device and inode.
    file: Option<(RawFd, u64, u64)>,
}

/// A lock that a thread that forks holds meanwhile.
pub trait Lock: Send {
    /// Whether it is not gone.
    fn is_there(&self) -> bool;

    /// Waits until this thread holds it, if it is there.
    fn hold(&self);

    /// Releases it, after `hold`. In a child this frees no memory.
    fn release(&self);
}

/// What a thread that forks holds.
struct Held {
    locks: MutexGuard<'static, Vec<Box<dyn Lock>>>,
    table: MutexGuard<'static, BTreeMap<usize, Shared>>,
}

struct Forking(UnsafeCell<Option<Held>>);

// SAFETY: the cell is used only by who holds the lock whose guard it is for.
unsafe impl Sync for Forking {}

/// Records a mapping, before anybody uses it.
pub(crate) fn add(base: usize, len: usize) -> io::Result<()> {
    static HANDLERS: OnceLock<i32> = OnceLock::new();
    unsafe extern "C" {
        fn pthread_atfork(prepare: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) -> i32;
    }
    // SAFETY: POSIX's function with handlers of its types, which live as long as the program.
    let failed = *HANDLERS.get_or_init(|| unsafe { pthread_atfork(prepare, in_parent, in_child) });
    if failed != 0 {
        return Err(Errno::from_raw_os_error(failed).into());
    }
    table().insert(base, Shared { len, file: None });
    Ok(())
}

/// Sets the open file of a mapping.
pub(crate) fn set_file(base: usize, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let stat = file.map(rustix::fs::fstat).transpose()?;
    if let Some(shared) = table().get_mut(&base) {
        shared.file = file.zip(stat).map(|(file, stat)| (file.as_raw_fd(), stat.st_dev, stat.st_ino));
    }
    Ok(())
}

/// Ends the record of a mapping, before it ends.
pub(crate) fn remove(base: usize) {
    table().remove(&base);
}

/// From now on each thread that forks holds this lock meanwhile. Its holders wait for no lock of this module but
/// that of the table.
pub fn hold_over_forks(lock: Box<dyn Lock>) {
    let mut locks = locks();
    locks.retain(|lock| lock.is_there());
    locks.push(lock);
}

fn table() -> MutexGuard<'static, BTreeMap<usize, Shared>> {
    lock(&SHARED)
}

fn locks() -> MutexGuard<'static, Vec<Box<dyn Lock>>> {
    lock(&LOCKS)
}

extern "C" fn prepare() {
    let locks = locks();
    locks.iter().for_each(|lock| lock.hold());
    let held = Held { locks, table: table() };
    // SAFETY: this thread holds the locks, until `in_parent` or `in_child`.
    unsafe { *FORKING.0.get() = Some(held) };
}

extern "C" fn in_parent() {
    // SAFETY: this thread has held the locks since `prepare`.
    if let Some(held) = unsafe { (*FORKING.0.get()).take() } {
        drop(held.table);
        held.locks.iter().for_each(|lock| lock.release());
    }
}

/// Calls nothing but the system: another thread may have held the allocator.
extern "C" fn in_child() {
    IS_CHILD.store(true, Ordering::Relaxed);
    // SAFETY: this thread, the only one, has held the locks since `prepare`.
    if let Some(held) = unsafe { (*FORKING.0.get()).take() } {
        held.table.iter().for_each(|(base, shared)| shared.make_private(*base));
        held.locks.iter().for_each(|lock| lock.release());
    }
}

impl Shared {
    fn make_private(&self, base: usize) {
        let base = std::ptr::with_exposed_provenance_mut(base);
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let private = self.file.is_some_and(|(file, device, inode)| {
            // SAFETY: not closed here; another file with this number is told apart.
            let file = unsafe { BorrowedFd::borrow_raw(file) };
            let is_same = rustix::fs::fstat(file).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (device, inode));
            // SAFETY: replaces exactly the mapping of this record, which `remove` precedes the end of. All
            // access to it is by atomics and copies, which find bytes as before.
            is_same && unsafe { rustix::mm::mmap(base, self.len, both, flags, file, 0) }.is_ok()
        });
        if !private {
            // SAFETY: as above; they find zeroes. Where even that fails no write may reach the job: then
            // the range is inaccessible.
            let empty = |protection| unsafe { rustix::mm::mmap_anonymous(base, self.len, protection, flags) };
            let _ = empty(both).or_else(|_| empty(ProtFlags::empty()));
        }
    }
}
