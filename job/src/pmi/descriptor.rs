//! The descriptor that the process manager left open for this process.
#![allow(unsafe_code)] // borrows a descriptor by its number

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

/// A duplicate of an inherited descriptor, closed on exec. The descriptor itself is unchanged.
///
/// # Errors
/// `InvalidInput`, `EBADF`: no such descriptor; `EMFILE`: no free descriptor.
pub(super) fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the number is not -1, and the borrow lives for one `fcntl(F_DUPFD_CLOEXEC)`, which
    // reads nothing through the descriptor and changes nothing of it. Were nothing open under the
    // number, the kernel would say EBADF; were it something else than the environment says, the
    // duplicate would be of that, and its owner's would stay valid.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    borrowed.try_clone_to_owned()
}
