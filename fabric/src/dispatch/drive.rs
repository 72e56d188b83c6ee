//! Waiting on one of two fabrics.

use crate::dispatch::Either::{self, First, Second};
use crate::dispatch::table::forward;
use crate::{Drive, Error, Polls, Tasks};

#[deny(clippy::missing_trait_methods)]
impl<A: Drive, B: Drive> Drive for Either<A, B> {
    forward! {
        #[inline]
        call fn progress(&self) -> usize;
        #[inline]
        call fn polls(&self) -> Polls;
        call fn tasks(&self) -> &Tasks;
    }

    fn again(&self) -> Option<Result<Self, Error>> {
        match self {
            First(fabric) => fabric.again().map(|again| again.map(First)),
            Second(fabric) => fabric.again().map(|again| again.map(Second)),
        }
    }
}
