//! What the ranks of a job tell each other while some of them die.

use onesided::{Error, Fault, FaultKind, LockDesign, Window, World};

use super::is_lost;
use crate::support::{DEADLINE, eventually};

/// What ranks publish to each other: their process ids, and how far they are.
pub(super) const PID: usize = 0;
pub(super) const DONE: usize = 1;
pub(super) const INFORMED: usize = 2;
pub(super) const RECOVERED: usize = 3;
pub(crate) const SYNCHRONIZED: usize = 4;
const WORDS: usize = 8;

pub(crate) struct Status(Window<u64>);

impl Status {
    /// Every rank knows every rank's process.
    pub(crate) fn new(world: &World) -> Self {
        let status = Self(
            Window::<u64>::builder()
                .lock(LockDesign::TestAndSet)
                .name("status")
                .allocate(world, WORDS * world.size() as usize)
                .wait()
                .unwrap(),
        );
        status.publish(PID, std::process::id().into());
        world.barrier().wait().unwrap();
        status
    }

    pub(crate) fn publish(&self, what: usize, value: u64) {
        let world = self.0.world();
        for target in (0..world.size()).filter(|target| !is_lost(world, *target)) {
            let told = self.0.lock_shared(target).wait().map_err(Error::from).and_then(|epoch| {
                epoch.put(WORDS * world.rank() as usize + what, &[value])?;
                epoch.unlock().wait().map_err(Error::from)
            });
            // It was killed meanwhile; or it has seen the last value, and left, with its memory,
            // before the lock was free again.
            let is_gone = |fault: Fault| {
                matches!(fault.kind(), FaultKind::PeerDied | FaultKind::PeerLeft)
                    && fault.rank().is_some_and(|rank| rank.0 == target)
            };
            if !told.as_ref().is_err_and(|error| error.fault().is_some_and(is_gone)) {
                told.unwrap();
            }
        }
    }

    /// Waits for the other survivors, without a barrier: barriers fail after a death. A rank that
    /// left earlier would be a second failure to those that have not seen the first.
    pub(crate) fn all_done(&self) {
        let world = self.0.world();
        self.publish(DONE, 1);
        for other in (0..world.size()).filter(|rank| world.is_alive(*rank)) {
            eventually(DEADLINE, "all are done", || self.published(other, DONE) == 1);
        }
    }

    pub(crate) fn published(&self, by: u32, what: usize) -> u64 {
        let at = WORDS * by as usize + what;
        self.0.local().read(at..at + 1)[0]
    }
}
