//! The messages that ranks exchange when they create a window.

use std::sync::Arc;

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};
use onesided_fabric::{Fabric, SegmentKey, World};

use crate::Error;
use crate::error::counted;

/// A rank's announcement of its window memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreateMessage {
    pub(crate) outcome: Result<Keys, Fault>,
    pub(crate) flavor: Flavor,
    pub(crate) element: ElementType,
    pub(crate) design: String,
    pub(crate) name: String,
}

/// How the memory of a window is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Flavor {
    /// The fabric allocates it (`MPI_WIN_FLAVOR_ALLOCATE`, and `MPI_WIN_FLAVOR_SHARED` where it can
    /// be mapped).
    Allocated,
    /// It is user memory (`MPI_WIN_FLAVOR_CREATE`).
    Created,
    /// Regions are attached to it (`MPI_WIN_FLAVOR_DYNAMIC`).
    Dynamic,
}

impl std::fmt::Display for Flavor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Allocated => "allocated",
            Self::Created => "created over user memory",
            Self::Dynamic => "dynamic",
        })
    }
}

/// The keys by which a peer accesses a rank's window memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) data: SegmentKey,
    pub(crate) locks: SegmentKey,
    /// In bytes.
    pub(crate) len: u64,
}

impl Keys {
    /// Whether they are keys of the rank's own memory, with the length that it announces.
    pub(crate) fn are_valid(&self, owner: Rank, hidden: u64) -> bool {
        (self.data.rank, self.locks.rank) == (owner, owner) && self.len <= self.data.len && hidden <= self.locks.len
    }
}

/// An element's type, as far as two processes can compare it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ElementType {
    pub(crate) size: u32,
    align: u32,
    name: String,
}

impl ElementType {
    pub(crate) fn of<T>() -> Self {
        let name = std::any::type_name::<T>();
        // The end of a long name is more specific than its start.
        let start = (name.len().saturating_sub(200)..).find(|at| name.is_char_boundary(*at)).unwrap_or(0);
        Self { size: size_of::<T>() as u32, align: align_of::<T>() as u32, name: name[start..].into() }
    }
}

const VERSION: u8 = 4;

/// An announcement as it is sent, in postcard: version and flavor; the keys and the length in bytes, or
/// the fault; of the element size, alignment and type; the lock and the window's name.
type Wire<S> = ((u8, u8), Result<(KeyBytes, KeyBytes, u64), u64>, (u32, u32, S), (S, S));

type KeyBytes = [u8; SegmentKey::BYTES];

impl CreateMessage {
    /// The first property in which two ranks' announcements differ and must not.
    pub(crate) fn differs_from(&self, first: &Self, uneven: bool) -> Option<String> {
        let len = |part: &Self| part.outcome.map_or(0, |keys| keys.len);
        if self.element != first.element {
            let describe = |element: &ElementType| format!("{} ({} bytes)", element.name, element.size);
            Some(format!("the type: {} against {}", describe(&self.element), describe(&first.element)))
        } else if self.flavor != first.flavor {
            Some(format!("the flavor: {} against {}", self.flavor, first.flavor))
        } else if self.design != first.design {
            Some(format!("the lock: {} against {}", self.design, first.design))
        } else if !uneven && len(self) != len(first) {
            let elements = |part| len(part).checked_div(self.element.size.into()).unwrap_or(0);
            Some(format!("the length: {} against {}", counted(elements(self), "element"), elements(first)))
        } else if self.name != first.name {
            Some(format!("the name: \"{}\" against \"{}\"", self.name, first.name))
        } else {
            None
        }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let Self { outcome, flavor, element, design, name } = self;
        let keys = |keys: Keys| (keys.data.to_bytes(), keys.locks.to_bytes(), keys.len);
        let wire: Wire<&str> = (
            (VERSION, *flavor as u8),
            outcome.map(keys).map_err(Fault::to_bits),
            (element.size, element.align, &element.name),
            (design, name),
        );
        postcard::to_stdvec(&wire).expect("every announcement can be encoded")
    }

    /// `None` unless all bytes are of this format and version.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (((VERSION, flavor), outcome, (size, align, element), (design, name)), []) =
            postcard::take_from_bytes::<Wire<String>>(bytes).ok()?
        else {
            return None;
        };
        let flavor = [Flavor::Allocated, Flavor::Created, Flavor::Dynamic].get(usize::from(flavor)).copied()?;
        let outcome = match outcome {
            Ok((data, locks, len)) => {
                Ok(Keys { data: SegmentKey::from_bytes(&data)?, locks: SegmentKey::from_bytes(&locks)?, len })
            }
            Err(fault) => Err(Fault::from_bits(fault)?),
        };
        Some(Self { outcome, flavor, element: ElementType { size, align, name: element }, design, name })
    }
}

/// The keys of all ranks, from their announcements, once all of them have made their memory and
/// agree. `hidden`: the bytes that each hidden region has at least. `uneven`: lengths may differ.
///
/// # Errors
/// `CreateElsewhere`, `Mismatch`, and `Collective` for a malformed announcement.
pub(crate) fn keys_of_all<F: Fabric>(
    world: &World<F>,
    name: &Arc<str>,
    all: &[Vec<u8>],
    (hidden, uneven): (u64, bool),
) -> Result<Vec<Keys>, Error> {
    let window = || Arc::clone(name);
    let elsewhere = |rank, fault| Error::CreateElsewhere { window: window(), rank, fault: world.translate(fault) };
    let collective = |fault| Error::Collective { operation: "create", window: window(), fault };
    let malformed = |rank| collective(Fault::of(FaultKind::Protocol, Rank(rank)));
    let parts = (0..).zip(all).map(|(rank, bytes)| CreateMessage::from_bytes(bytes).ok_or_else(|| malformed(rank)));
    let parts = parts.collect::<Result<Vec<_>, _>>()?;
    let mut keys = Vec::with_capacity(parts.len());
    for (rank, part) in (0..).zip(&parts) {
        let theirs = part.outcome.map_err(|fault| elsewhere(rank, fault))?;
        if let Some(what) = part.differs_from(&parts[0], uneven) {
            return Err(Error::Mismatch { window: window(), rank, what });
        }
        keys.push(theirs);
    }
    // Ranks that differ may have hidden regions of different sizes: only now.
    for (rank, theirs) in (0..).zip(&keys) {
        let owner = world.fabric_rank(rank);
        if !owner.is_some_and(|owner| theirs.are_valid(owner, hidden)) {
            let fault = Fault::of(FaultKind::Protocol, owner.unwrap_or(world.fabric().rank()));
            return Err(elsewhere(rank, fault));
        }
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use onesided_fabric::remote_memory::{FaultKind, RegionId};

    use super::*;

    #[test]
    fn keys_are_not_believed() {
        let key = |rank, len| SegmentKey { rank: Rank(rank), region: RegionId(2), len, address: 4, rkey: 5 };
        let keys = |data, locks, len| Keys { data, locks, len };
        assert!(keys(key(1, 80), key(1, 64), 80).are_valid(Rank(1), 64));
        assert!(keys(key(1, 8), key(1, 64), 0).are_valid(Rank(1), 64));
        assert!(!keys(key(1, 79), key(1, 64), 80).are_valid(Rank(1), 64));
        assert!(!keys(key(1, 80), key(1, 63), 80).are_valid(Rank(1), 64));
        assert!(!keys(key(2, 80), key(1, 64), 80).are_valid(Rank(1), 64));
        assert!(!keys(key(1, 80), key(0, 64), 80).are_valid(Rank(1), 64));
    }

    #[test]
    fn survives_the_wire_and_refuses_everything_else() {
        let key = SegmentKey { rank: Rank(1), region: RegionId(2), len: 3, address: 4, rkey: 5 };
        let element = ElementType::of::<[[u64; 2]; 3]>();
        let flavor = [Flavor::Allocated, Flavor::Created, Flavor::Dynamic];
        let outcomes = [Ok(Keys { data: key, locks: key, len: 6 }), Err(Fault::new(FaultKind::NoMemory))];
        for (outcome, flavor) in outcomes.into_iter().flat_map(|outcome| flavor.map(|flavor| (outcome, flavor))) {
            let part =
                CreateMessage { outcome, flavor, element: element.clone(), design: "d".into(), name: "ä".repeat(60) };
            let bytes = part.to_bytes();
            assert_eq!(CreateMessage::from_bytes(&bytes), Some(part));
            for len in 0..bytes.len() {
                assert_eq!(CreateMessage::from_bytes(&bytes[..len]), None);
            }
            assert_eq!(CreateMessage::from_bytes(&[&bytes[..], &[0]].concat()), None);
        }
    }
}
