//! Joining a job under a process manager that speaks PMI-1: MPICH's `mpiexec` (Hydra), or Slurm's
//! `srun --mpi=pmi2`.
//!
//! Rank 0 [is the host daemon](crate#who-keeps-a-job). It puts its socket, a fresh secret, and its
//! addresses into the manager's key-value space, which only the job's processes can read; the other
//! ranks put their hosts. After a barrier, ranks of rank 0's host connect to its socket, and ranks
//! of other hosts to its addresses, where they [meet](super::rendezvous). Each process then ends
//! its session with the manager (`finalize`). The rest is as under our own launcher.
//!
//! The manager is trusted in one respect only: a process that can query it belongs to the job.

mod descriptor;
mod manager;
mod process_env;

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use onesided_remote_memory::Rank;

pub use crate::pmi::process_env::{Contact, ProcessEnv};

use crate::Error;
use crate::daemon::relay::suspect_after;
use crate::environment::Environment;
use crate::head_daemon::{self, Host};
use crate::host_name::{self, HostId};
use crate::pmi::manager::Manager;
use crate::{Job, SUSPECT_AFTER, Secret, addresses, rendezvous};

/// The key of rank 0's contact data.
const KEY: &str = "onesided";
/// Its value if rank 0 failed to start.
const FAILED: &str = "failed";
const ANOTHER: &str = "rank 0 speaks another version of onesided, or is another program";

/// Joins the job that the process manager started.
///
/// # Errors
/// - [`Error::Join`]: the manager violates the protocol, refuses, or is gone; rank 0, on another
///   host, is unreachable.
/// - [`Error::Operation`]: the manager, or another rank, did not answer within `patience`.
/// - Whatever joining at rank 0 reports.
pub(crate) fn join(place: &ProcessEnv, patience: Duration) -> Result<Job, Error> {
    let until = Instant::now().checked_add(patience).ok_or_else(|| failed("the patience is too long"))?;
    let (manager, rank, size) = Manager::connect(place, until)?;
    join_by(manager, rank, size, until)
}

fn join_by(mut manager: Manager, rank: Rank, size: u32, until: Instant) -> Result<Job, Error> {
    let suspect_after = suspect_after(std::env::var_os(SUSPECT_AFTER))?;
    let place = |host: HostId, address: String, secret: Secret| {
        let told_by = "as rank 0 told by the process manager";
        rendezvous::JobCoordinates { address, rank, size, secret, host, suspect_after, told_by }
    };
    let own = host_name::own();
    manager.init()?;
    if rank == Rank(0) {
        // The other ranks wait in the barrier, even if rank 0 fails.
        let host = Host::start(size, Secret::random());
        let listener =
            TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)));
        let port = listener.as_ref().ok().and_then(|listener| listener.local_addr().ok()).map(|address| address.port());
        let reached = port.map_or_else(Vec::new, reached_at);
        let said = host.as_ref().map(|host| ContactData {
            host: own,
            socket: host.address().to_owned(),
            secret: host.secret().clone(),
            reached,
        });
        manager.put(KEY, &said.as_ref().map_or_else(|_| FAILED.to_owned(), |contact_data| contact_data.to_string()))?;
        manager.barrier()?;
        let host = host?;
        let mut hosts = vec![Some(own)];
        for other in 1..size {
            // A rank without a value has not arrived; a later step names it.
            let said = manager.get(&key_of(Rank(other))).ok();
            let elsewhere = said.and_then(|said| parse_host(&said)).is_some_and(|theirs| theirs != own);
            hosts.push((!elsewhere).then_some(own));
        }
        manager.finalize()?;
        if hosts.iter().all(Option::is_some) {
            drop(listener);
            return host.join(rank, until);
        }
        let listener = listener.map_err(|source| {
            let what = "open a port, for there are ranks on other hosts".to_owned();
            Error::Join { what, source: Some(source) }
        })?;
        let place = place(own, format!("port {}", port.unwrap_or(0)), host.secret().clone());
        return rendezvous::host_at(&place, listener, hosts, host, until);
    }
    manager.put(&key_of(rank), &format!("{:032x}", u128::from_be_bytes(own)))?;
    manager.barrier()?;
    let said = manager.get(KEY)?;
    manager.finalize()?;
    if said == FAILED {
        return Err(failed("rank 0 could not start the job; it says why"));
    }
    let Some(contact_data) = ContactData::parse(&said) else { return Err(failed(ANOTHER)) };
    if contact_data.host == own {
        return head_daemon::join(
            &Environment { rank, size, address: contact_data.socket, secret: contact_data.secret },
            None,
            until,
        );
    }
    // An address that this host has, too, does not lead to another host.
    let ours = addresses::own();
    let reached: Vec<_> = contact_data.reached.into_iter().filter(|address| !ours.contains(&address.ip())).collect();
    let listed: Vec<_> = reached.iter().map(SocketAddr::to_string).collect();
    if reached.is_empty() {
        return Err(failed("rank 0 runs on another host, and has no address that leads there from here"));
    }
    rendezvous::come_to(&place(own, listed.join(", "), contact_data.secret), &reached, until)
}

/// The key of a rank's host.
fn key_of(rank: Rank) -> String {
    format!("{KEY}-{}", rank.0)
}

fn reached_at(port: u16) -> Vec<SocketAddr> {
    addresses::own().into_iter().map(|address| SocketAddr::new(address, port)).collect()
}

fn parse_host(text: &str) -> Option<HostId> {
    u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32).map(u128::to_be_bytes)
}

/// Rank 0's contact data: `2/HOST/SOCKET/SECRET/ADDRESS:PORT,...`, host and secret in hexadecimal.
#[derive(Debug)]
struct ContactData {
    host: HostId,
    socket: String,
    secret: Secret,
    /// The addresses at which it listens for ranks of other hosts.
    reached: Vec<SocketAddr>,
}

impl ContactData {
    const VERSION: &str = "2";

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let (Self::VERSION, host, socket, secret, reached, None) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?, parts.next()?, parts.next())
        else {
            return None;
        };
        Some(Self {
            host: parse_host(host)?,
            socket: socket.to_owned(),
            secret: Secret::from_hex(secret)?,
            reached: reached
                .split(',')
                .filter(|one| !one.is_empty())
                .map(|one| one.parse().ok())
                .collect::<Option<_>>()?,
        })
    }
}

impl fmt::Display for ContactData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, socket, secret, reached } = self;
        let reached: Vec<_> = reached.iter().map(SocketAddr::to_string).collect();
        let (host, secret) = (u128::from_be_bytes(*host), secret.to_hex());
        write!(f, "{}/{host:032x}/{socket}/{secret}/{}", Self::VERSION, reached.join(","))
    }
}

fn failed(what: &str) -> Error {
    Error::Join { what: what.to_owned(), source: None }
}

#[cfg(test)]
mod tests;
