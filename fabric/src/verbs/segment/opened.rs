//! Peers' regions that words were asked for by number.

use std::collections::HashMap;
use std::sync::Mutex;

use onesided_job::lock;
use onesided_remote_memory::{Fault, FaultKind, Rank, RegionId};

use crate::SegmentKey;
use crate::util::once_table::OnceTable;
use crate::verbs::segment::VerbsSegment;

/// Peers' regions whose words were resolved by number, kept until the end: words borrow from them.
#[derive(Debug, Default)]
pub(in crate::verbs) struct Opened {
    /// Their numbers in the table.
    numbers: Mutex<HashMap<(Rank, RegionId), u32>>,
    table: OnceTable<VerbsSegment>,
}

impl Opened {
    /// A peer's region, looked up on first use.
    pub(in crate::verbs) fn get(
        &self,
        of: (Rank, RegionId),
        look_up: impl FnOnce() -> Result<SegmentKey, Fault>,
    ) -> Result<&VerbsSegment, Fault> {
        let numbers = || lock(&self.numbers);
        let met = numbers().get(&of).copied();
        let number = match met {
            Some(number) => number,
            None => {
                let segment = VerbsSegment::of_peer(look_up()?);
                let mut numbers = numbers();
                let next = numbers.len() as u32;
                let number = *numbers.entry(of).or_insert(next);
                // The table entry exists before its number is published.
                let _ = self.table.get_or_try_init(number, || Ok::<_, Fault>(segment))?;
                number
            }
        };
        self.table.get_or_try_init(number, || Err(Fault::of(FaultKind::NoSuchRegion, of.0)))
    }
}
