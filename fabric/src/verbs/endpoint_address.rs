//! Connection setup of the queue pairs: each rank puts its endpoint address into the job's
//! exchange.

use onesided_job::{Error, Job, patience};
use onesided_remote_memory::{Fault, FaultKind, Rank};

use crate::verbs::raw::{Gid, Mtu, Remote};

/// A rank's endpoint address: what the others need to connect to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndpointAddress {
    pub(super) gid: Gid,
    pub(super) lid: u16,
    pub(super) mtu: Mtu,
    /// How many reads and atomics may be in flight to it on a connection.
    pub(super) reads: u8,
    /// The number of the first packet of each of its connections.
    pub(super) first: u32,
    /// Its home region.
    pub(super) home: Remote,
    /// Its queue pair for each rank.
    pub(super) pairs: Vec<u32>,
}

impl EndpointAddress {
    /// The wire form, little endian: version 3 (1 byte), MTU (1), LID (2), first packet number (4),
    /// GID (16), home address (8), home key (4), reads (1), then the queue pair numbers (4 each).
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![3, self.mtu as u8];
        bytes.extend(self.lid.to_le_bytes());
        bytes.extend(self.first.to_le_bytes());
        bytes.extend(self.gid.0);
        bytes.extend(self.home.address.to_le_bytes());
        bytes.extend(self.home.key.to_le_bytes());
        bytes.push(self.reads);
        self.pairs.iter().for_each(|pair| bytes.extend(pair.to_le_bytes()));
        bytes
    }

    /// The inverse of `to_bytes` in a job of `size` ranks.
    fn from_bytes(bytes: &[u8], size: usize) -> Option<Self> {
        let (head, pairs) = bytes.split_at_checked(37)?;
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word: u64, byte| word << 8 | u64::from(*byte));
        let mut gid = Gid::default();
        gid.0.copy_from_slice(&head[8..24]);
        (head[0] == 3 && head[36] > 0 && (1..=5).contains(&head[1]) && pairs.len() == size * 4).then(|| Self {
            gid,
            lid: word(&head[2..4]) as u16,
            mtu: Mtu::from(head[1]),
            reads: head[36],
            first: word(&head[4..8]) as u32,
            home: Remote { address: word(&head[24..32]), key: word(&head[32..36]) as u32 },
            pairs: pairs.chunks_exact(4).map(|pair| word(pair) as u32).collect(),
        })
    }

    /// Publishes the address.
    pub(super) fn put(&self, job: &Job) -> Result<(), Error> {
        job.exchange.put(&name(job.rank), &self.to_bytes())
    }

    /// Waits for the address of another rank.
    pub(super) fn get(job: &Job, rank: Rank) -> Result<Self, Error> {
        let bytes = job.exchange.get(&name(rank), patience()?).map_err(missing(rank))?;
        Self::from_bytes(&bytes, job.job_segment.size() as usize)
            .ok_or_else(|| Error::Join { what: format!("{rank} published no valid endpoint address"), source: None })
    }
}

fn name(rank: Rank) -> String {
    format!("verbs/{}", rank.0)
}

/// Waits until every rank is connected to all: a packet to an unconnected one would be lost.
pub(super) fn meet(job: &Job) -> Result<(), Error> {
    let name = |rank: u32| format!("verbs/{rank}/connected");
    job.exchange.put(&name(job.rank.0), &[])?;
    let patience = patience()?;
    (0..job.job_segment.size())
        .try_for_each(|rank| job.exchange.get(&name(rank), patience).map(drop).map_err(missing(Rank(rank))))
}

/// Names the missing rank; an error about a death names its rank already.
fn missing(rank: Rank) -> impl FnOnce(Error) -> Error {
    move |error| match error.fault().kind() {
        FaultKind::TimedOut => Error::Operation {
            operation: "wait for all ranks to be at their cards",
            fault: Fault::of(FaultKind::TimedOut, rank),
        },
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_travel() {
        let address = EndpointAddress {
            gid: Gid([7; 16]),
            lid: 0x1234,
            mtu: 5,
            reads: 16,
            first: 0xab_cdef,
            home: Remote { address: u64::MAX - 9, key: 0xdead_beef },
            pairs: vec![17, u32::MAX, 0],
        };
        let bytes = address.to_bytes();
        assert_eq!(EndpointAddress::from_bytes(&bytes, 3), Some(address));
        assert_eq!(EndpointAddress::from_bytes(&bytes, 2), None);
        for len in 0..bytes.len() {
            assert_eq!(EndpointAddress::from_bytes(&bytes[..len], 3), None);
        }
        for (at, wrong) in [(0, 1), (1, 0), (1, 6), (36, 0)] {
            let mut bytes = bytes.clone();
            bytes[at] = wrong;
            assert_eq!(EndpointAddress::from_bytes(&bytes, 3), None);
        }
    }
}
