//! The contended rest of an acquire, and the takeover of a lock whose lease has expired.

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind, Liveness};
use onesided_lock_algos::{Held, IntentFn, LockUse, Mode, Owner, TestAndSet};

use crate::locks::window_lock::Used;
use crate::window::inner::Inner;
use crate::window::retry::poll_until;
use crate::{Error, LeasePolicy};

impl<F: Fabric> Inner<F> {
    /// The contended rest of an acquire, with the policy for expired leases.
    pub(crate) async fn contend_leased<'m>(
        &'m self,
        used: Used<'m, F>,
        mut first: Result<u64, Fault>,
        intent: IntentFn<'_>,
    ) -> Result<Held, Fault> {
        let (fabric, lock) = (self.fabric(), &self.locks.algorithm);
        let Some(leases) = &self.locks.leases else {
            return lock.contend(used, first, intent).await;
        };
        let slot = Owner::from_bits(used.owner).slot;
        // Called before each compare-and-swap.
        let intent_at_attempt: IntentFn<'_> = &|| {
            leases.begin_attempt(slot, fabric.now());
            intent()
        };
        loop {
            let fault = match lock.contend(used, first, intent_at_attempt).await {
                Err(fault) => fault,
                Ok(held) => {
                    if let Some(why) = held.recovered.filter(|_| self.locks.commits()) {
                        // Commits of the previous owner fail from here on: it may be alive, or have
                        // a compare-and-swap in flight. This precedes every read of the committed
                        // value.
                        if let Err(fault) = self.raise_version(self.commit_word(used.context.target)?).await {
                            lock.release_poisoned(LockUse { mode: Mode::Exclusive, ..used }, why).await?;
                            return Err(fault);
                        }
                    }
                    return Ok(held);
                }
            };
            let Some(rank) = fault.rank().filter(|_| fault.kind() == FaultKind::LeaseExpired) else {
                return Err(fault);
            };
            // Each acquire has its own lock word: the owner is revoked or killed only if it has
            // held the lock since `first` was seen. Otherwise the wait continues with the present
            // owner's lease. A count of readers is excluded: it can recur.
            let seen = first.ok().filter(|word| TestAndSet::owner(*word).is_some_and(|owner| owner.rank == rank));
            match (leases.policy, seen) {
                (LeasePolicy::Revoke, Some(seen)) => {
                    if let Some(held) = self.revoke_and_take(used, seen, fault, intent).await? {
                        return Ok(held);
                    }
                }
                (LeasePolicy::Kill, Some(seen)) if fabric.read(used.home).await? == seen => {
                    if fabric.fencing().is_none_or(|fencing| fencing.fence(rank).is_err()) {
                        return Err(fault);
                    }
                    poll_until(fabric, used.home, fault, || fabric.liveness(rank) != Liveness::Alive).await?;
                }
                _ => {}
            }
            leases.begin_attempt(slot, fabric.now());
            first = lock.start(used)?.await;
            if first.is_ok_and(|first| lock.holds(used.owner, used.mode, first)) {
                return Ok(Held::cleanly(used.mode));
            }
        }
    }

    /// Revokes the access of an owner whose lease has expired and takes the lock, unless it has
    /// another owner meanwhile.
    async fn revoke_and_take<'m>(
        &'m self,
        LockUse { context, home: word, owner, .. }: Used<'m, F>,
        seen: u64,
        fault: Fault,
        intent: IntentFn<'_>,
    ) -> Result<Option<Held>, Fault> {
        let fabric = self.fabric();
        // An owner at its own rank is waited for, and so is another guard of this rank.
        let is_kept = [fabric.rank(), context.target.fabric_rank()].map(Some).contains(&fault.rank());
        if is_kept || fabric.read(word).await? != seen {
            return Ok(None);
        }
        if !self.revoke(context.target, seen, || !intent().is_over()).await? {
            return Err(Fault::new(FaultKind::Closed));
        }
        if !intent().recovers {
            return Err(fault);
        }
        if let Some(leases) = &self.locks.leases {
            leases.begin_attempt(Owner::from_bits(owner).slot, fabric.now());
        }
        let held = Held::after(fault, Mode::Exclusive);
        // After an unknown outcome the word may name this rank, which is cut at its home then: the
        // others recover the lock as after a death.
        Ok((fabric.compare_swap(word, seen, owner).await? == seen).then_some(held))
    }

    /// The error of an owner whose lease has expired.
    #[cold]
    pub(crate) fn failed_or_expired(&self, operation: &'static str, target: u32, fault: Fault) -> Error {
        match fault.kind() {
            FaultKind::NotHeld if self.locks.leases.is_some() => {
                Error::Late { operation, target, window: self.name.clone() }
            }
            _ => self.failed(operation, target, fault),
        }
    }
}
