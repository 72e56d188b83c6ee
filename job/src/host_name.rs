//! The identity of a host, by which ranks know whether they can share memory.

use std::fs;

/// A host: ranks with the same id reach each other by abstract Unix sockets.
pub(crate) type HostId = [u8; 16];

/// This process's host: one boot of one kernel and one network namespace, the scope of abstract
/// sockets.
pub(crate) fn own() -> HostId {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = rustix::fs::stat("/proc/self/ns/net").map_or((0, 0), |stat| (stat.st_dev, stat.st_ino));
    let mut hasher = blake3::Hasher::new();
    hasher.update(boot.trim().as_bytes());
    hasher.update(&namespace.0.to_le_bytes());
    hasher.update(&namespace.1.to_le_bytes());
    if boot.is_empty() {
        hasher.update(rustix::system::uname().nodename().to_bytes());
    }
    let mut id = HostId::default();
    id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    id
}
