//! The memory of a window: this rank's regions, and those of the targets that it resolved.

use std::sync::OnceLock;

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::Fault;

use crate::memory::attached::Attached;
use crate::window::exchange::{Flavor, Keys};
use crate::window::paths::Paths;
use crate::window::target::Target;

/// The regions of a window.
pub(crate) struct Regions<F: Fabric> {
    /// This rank's window memory.
    pub(crate) own: F::Segment,
    /// This rank's hidden region, with the words of locks, signals and requests.
    pub(crate) hidden: F::Segment,
    /// Of every rank.
    pub(crate) keys: Vec<Keys>,
    /// Every rank's memory, once it was resolved.
    pub(crate) targets: Box<[OnceLock<Target<F>>]>,
    /// How this rank's memory came to be.
    pub(crate) flavor: Flavor,
    /// What this rank has attached, in a dynamic window.
    pub(crate) attached: Attached<F>,
    /// Whether paths are counted even where that costs time.
    pub(crate) counted: bool,
}

impl<F: Fabric> Regions<F> {
    pub(crate) fn new((own, hidden): (F::Segment, F::Segment), keys: Vec<Keys>, flavor: Flavor, counted: bool) -> Self {
        let targets = keys.iter().map(|_| OnceLock::new()).collect();
        Self { own, hidden, keys, targets, flavor, attached: Attached::default(), counted }
    }

    /// A target that was resolved.
    #[inline]
    pub(crate) fn cached(&self, rank: u32) -> Option<&Target<F>> {
        self.targets.get(rank as usize).and_then(OnceLock::get)
    }

    /// All targets that were resolved.
    pub(crate) fn all_cached(&self) -> impl Iterator<Item = &Target<F>> + Clone {
        self.targets.iter().filter_map(OnceLock::get)
    }

    /// The length of a rank's window memory in bytes; 0 for a rank out of range.
    pub(crate) fn len(&self, rank: u32) -> u64 {
        self.keys.get(rank as usize).map_or(0, |keys| keys.len)
    }

    /// The segment on which this rank's agent does what peers request.
    pub(crate) fn agent_segment(&self, ptr: u64) -> Result<F::Segment, Fault> {
        match self.flavor {
            Flavor::Dynamic => self.attached.segment(ptr),
            _ => Ok(self.own.clone()),
        }
    }

    /// What was counted of operations on a rank's memory.
    pub(crate) fn paths(&self, target: u32) -> Paths {
        let target_paths = self.cached(target).and_then(|target| target.paths.as_ref());
        self.attached.paths(target).fold(target_paths.map_or_else(Paths::default, |paths| paths.read()), Paths::plus)
    }
}
