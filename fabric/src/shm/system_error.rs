//! What the errors of the system mean for memory.

use std::io;

use onesided_remote_memory::FaultKind;

/// What a failure to create or map memory means, and advice.
pub(crate) fn explain(source: &io::Error) -> (&'static str, FaultKind) {
    use rustix::io::Errno;
    match Errno::from_io_error(source) {
        Some(Errno::NOMEM | Errno::NOSPC) => {
            ("no memory (see the limits on memory and on /dev/shm's file system)", FaultKind::NoMemory)
        }
        Some(Errno::MFILE | Errno::NFILE) => ("no file descriptors left (raise `ulimit -n`)", FaultKind::NoDescriptors),
        Some(Errno::FBIG) => ("the file size limit is too small (raise `ulimit -f`)", FaultKind::NoMemory),
        _ => ("the system refused", FaultKind::Refused),
    }
}
