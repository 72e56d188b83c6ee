//! Started by a process manager that speaks PMI-1: MPICH's `mpiexec` (Hydra), or Slurm.
//!
//! Rank 0 [keeps the job](super#who-keeps-a-job). It puts its socket and a fresh secret into the manager's key-value space,
//! which the manager gives to the job's processes alone; after a barrier the others read it. Then the manager is told
//! that this process needs nothing more of it (`finalize`), and everything else is as under our own launcher.
//!
//! The manager is believed in one thing only: that who can ask it belongs to the job.

mod descriptor;
mod manager;
mod place;

use std::time::{Duration, Instant};

use remote_memory::Rank;

pub use crate::bootstrap::pmi::place::{Contact, Place};

use crate::Error;
use crate::bootstrap::environment::Environment;
use crate::bootstrap::host::{self, Host};
use crate::bootstrap::host_name::{self, HostId};
use crate::bootstrap::pmi::manager::Manager;
use crate::bootstrap::protocol::Refusal;
use crate::bootstrap::{Job, Secret};

/// The key under which rank 0 says where it is.
const KEY: &str = "onesided";
/// What stands there if rank 0 could not start.
const FAILED: &str = "failed";

/// Joins the job that the process manager started.
///
/// # Errors
/// [`Error::Join`]: the manager says something that makes no sense, refuses, or is gone; rank 0 is on another host.
/// [`Error::Operation`]: it, or another rank, did not answer within `patience`. And what joining at rank 0 reports.
pub(crate) fn join(place: &Place, patience: Duration) -> Result<Job, Error> {
    let until = Instant::now().checked_add(patience).ok_or_else(|| failed("the patience is too long"))?;
    let (manager, rank, size) = Manager::connect(place, until)?;
    join_by(manager, rank, size, until)
}

fn join_by(mut manager: Manager, rank: Rank, size: u32, until: Instant) -> Result<Job, Error> {
    manager.init()?;
    if rank == Rank(0) {
        // The others wait for the barrier, whatever becomes of rank 0.
        let host = Host::start(size, Secret::random());
        let address = host.as_ref().map_or_else(|_| FAILED.to_owned(), Address::of);
        manager.put(KEY, &address)?;
        manager.barrier()?;
        let host = host?;
        manager.finalize()?;
        return host.join(rank, until);
    }
    manager.barrier()?;
    let said = manager.get(KEY)?;
    manager.finalize()?;
    if said == FAILED {
        return Err(failed("rank 0 could not start the job; it says why"));
    }
    let Some(Address { host, socket, secret }) = Address::parse(&said) else {
        return Err(failed("rank 0 speaks another version of onesided, or is another program"));
    };
    if host != host_name::own() {
        return Err(failed(&Refusal::OtherHost.to_string()));
    }
    host::join(&Environment { rank, size, address: socket, secret }, None, until)
}

/// Where rank 0 is: `1.HOST.SOCKET.SECRET`, host and secret in hexadecimal.
#[derive(Debug)]
struct Address {
    host: HostId,
    socket: String,
    secret: Secret,
}

impl Address {
    const VERSION: &str = "1";

    fn of(host: &Host) -> String {
        let id = u128::from_be_bytes(host_name::own());
        format!("{}.{id:032x}.{}.{}", Self::VERSION, host.address(), host.secret().to_hex())
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let (Self::VERSION, host, socket, secret, None) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?, parts.next())
        else {
            return None;
        };
        Some(Self {
            host: u128::from_str_radix(host, 16).ok()?.to_be_bytes(),
            socket: socket.to_owned(),
            secret: Secret::from_hex(secret)?,
        })
    }
}

fn failed(what: &str) -> Error {
    Error::Join { what: what.to_owned(), source: None }
}

#[cfg(test)]
mod tests;
