//! Waiting on one of two fabrics.

use crate::dispatch::Either::{self, First, Second};
use crate::dispatch::table::forward;
use crate::{Core, Drive, Error, Ticket};

#[deny(clippy::missing_trait_methods)]
impl<A: Drive, B: Drive> Drive for Either<A, B> {
    forward! {
        #[inline]
        call fn progress(&self) -> usize;
        call fn arm(&self) -> Ticket;
        call fn sleep(&self, ticket: Ticket, until: u64);
        call fn disarm(&self, ticket: Ticket);
        #[inline]
        call fn relax(&self);
        call fn spins(&self) -> u32;
        call fn core(&self) -> Core;
        call fn unfinished(&self) -> usize;
    }

    fn again(&self) -> Option<Result<Self, Error>> {
        match self {
            First(fabric) => fabric.again().map(|again| again.map(First)),
            Second(fabric) => fabric.again().map(|again| again.map(Second)),
        }
    }
}
