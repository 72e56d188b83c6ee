//! The endpoint address of each rank, which it puts into the job's exchange.

use std::time::{Duration, Instant};

use onesided_job::{Error, Job, patience};
use onesided_remote_memory::{Fault, FaultKind, Liveness, Rank};
use serde::{Deserialize, Serialize};

use crate::verbs::raw::{Gid, Mtu, Remote};
use crate::verbs::traffic::Traffic;

/// The version of the wire form.
const VERSION: u8 = 7;

/// A rank's endpoint address: what the others need to connect to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EndpointAddress {
    /// The first one is for all but further rails.
    pub(super) ports: Vec<PortAddress>,
    /// Its queue pair for the datagrams that make connections.
    pub(super) datagrams: u32,
    /// Its queue pair for packets, if they travel as datagrams.
    pub(super) packets: Option<u32>,
    /// Random: tells its datagrams from those of other processes and jobs.
    pub(super) incarnation: u64,
}

/// What the others need to connect to a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PortAddress {
    pub(super) gid: Gid,
    pub(super) lid: u16,
    pub(super) mtu: Mtu,
    /// How many reads and atomics may be in flight to it on a connection.
    pub(super) reads: u8,
    /// At the first port the home region, at others what is read as a proof.
    pub(super) home: Remote,
}

impl EndpointAddress {
    /// The port of a connection.
    pub(super) fn port(&self, traffic: Traffic) -> &PortAddress {
        &self.ports[traffic.rail() % self.ports.len()]
    }

    /// The number of the first packet of each of its connections: any number except one that an
    /// earlier queue pair of the same number used, for which old packets might be accepted, or an
    /// earlier connection of the same queue pair.
    pub(super) const fn first(&self, generation: u64) -> u32 {
        (self.incarnation.wrapping_add(generation.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40)) as u32 & 0xff_ffff
    }

    /// The version and the address in postcard's wire format.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        postcard::to_stdvec(&(VERSION, self)).expect("every address can be encoded")
    }

    /// The inverse of `to_bytes`.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let ((version, address), rest) = postcard::take_from_bytes::<(u8, Self)>(bytes).ok()?;
        let whole = version == VERSION && rest.is_empty();
        let is_port = |port: &PortAddress| port.reads > 0 && (1..=5).contains(&port.mtu);
        let are_ports = !address.ports.is_empty() && address.ports.iter().all(is_port);
        (whole && are_ports).then_some(address)
    }

    /// Publishes the address.
    pub(super) fn put(&self, job: &Job) -> Result<(), Error> {
        job.exchange.put(&name(job.rank), &self.to_bytes())
    }

    /// Lets the others know, wherever they wait for it, that this rank could not join.
    pub(super) fn put_none(job: &Job) {
        for name in [name(job.rank), connected(job.rank)] {
            let _ = job.exchange.put(&name, NONE);
        }
    }

    /// Waits for the address of another rank.
    pub(super) fn get(job: &Job, rank: Rank) -> Result<Self, Error> {
        let bytes = value_of(job, rank, &name(rank), patience()?)?;
        Self::from_bytes(&bytes)
            .ok_or_else(|| Error::Join { what: format!("{rank} published no valid endpoint address"), source: None })
    }
}

fn name(rank: Rank) -> String {
    format!("verbs/{}", rank.0)
}

fn connected(rank: Rank) -> String {
    format!("verbs/{}/connected", rank.0)
}

/// What a rank that could not join puts.
const NONE: &[u8] = b"none";

/// Waits until every rank can be connected to.
pub(super) fn meet(job: &Job) -> Result<(), Error> {
    job.exchange.put(&connected(job.rank), &[])?;
    let patience = patience()?;
    job.job_segment.ranks().try_for_each(|rank| value_of(job, rank, &connected(rank), patience).map(drop))
}

/// How long a wait for a value keeps the exchange from other threads, and a departure unknown.
const SLICE: Duration = Duration::from_millis(200);

/// Waits for a value of a rank.
fn value_of(job: &Job, rank: Rank, name: &str, patience: Duration) -> Result<Vec<u8>, Error> {
    let missing =
        |kind| Error::Operation { operation: "wait for all ranks to be at their cards", fault: Fault::of(kind, rank) };
    let begin = Instant::now();
    loop {
        let left = patience.saturating_sub(begin.elapsed());
        let has_left = job.job_segment.liveness(rank) == Liveness::Left;
        match job.exchange.get(name, left.min(SLICE)) {
            // An error about a death names its rank already.
            Err(error) if error.fault().kind() != FaultKind::TimedOut => return Err(error),
            Err(_) if has_left => return Err(missing(FaultKind::PeerLeft)),
            Err(_) if left <= SLICE => return Err(missing(FaultKind::TimedOut)),
            Err(_) => {}
            Ok(value) if value == NONE => {
                return Err(Error::Join { what: format!("{rank} could not join"), source: None });
            }
            Ok(value) => return Ok(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_travel() {
        let home = Remote { address: u64::MAX - 9, key: 0xdead_beef };
        let port = PortAddress { gid: Gid([7; 16]), lid: 0x1234, mtu: 5, reads: 16, home };
        let address = EndpointAddress {
            ports: vec![port.clone(), PortAddress { lid: 7, ..port.clone() }],
            datagrams: u32::MAX,
            packets: Some(u32::MAX - 1),
            incarnation: u64::MAX - 1,
        };
        let bytes = address.to_bytes();
        assert_eq!(EndpointAddress::from_bytes(&bytes).as_ref(), Some(&address));
        for len in 0..bytes.len() {
            assert_eq!(EndpointAddress::from_bytes(&bytes[..len]), None);
        }
        assert_eq!(EndpointAddress::from_bytes(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(EndpointAddress::from_bytes(&[&[VERSION - 1], &bytes[1..]].concat()), None);
        assert_eq!([0, 1, 0].map(|at| &address.ports[at]), Traffic::RAILS.map(|rail| address.port(rail)));
        let with = |mtu, reads| vec![port.clone(), PortAddress { mtu, reads, ..port.clone() }];
        for ports in [with(0, 16), with(6, 16), with(5, 0), vec![]] {
            let wrong = EndpointAddress { ports, ..address.clone() };
            assert_eq!(EndpointAddress::from_bytes(&wrong.to_bytes()), None);
        }
    }
}
