//! In place of `card` in a build without libibverbs.

use super::Loop;
use crate::bench::worker::rank::BenchRank;
use crate::failure::Failure;

pub(super) enum Card {}

impl Card {
    pub(super) fn new(
        _: &BenchRank,
        _: impl FnMut(&[u8]) -> Result<Vec<u8>, Failure>,
    ) -> Result<Option<Self>, Failure> {
        Ok(None)
    }

    pub(super) fn sends(&self) -> Option<impl Fn(bool, usize, u64) -> Result<(), Failure>> {
        match *self {}
        #[expect(unreachable_code, reason = "the type of what there is not")]
        Some(|_, _, _| Ok(()))
    }

    pub(super) const fn half_a_round_trip(&self, _: usize) -> Option<&'static Loop> {
        match *self {}
    }

    pub(super) const fn written(&self, _: usize) -> Option<&'static Loop> {
        match *self {}
    }

    pub(super) const fn of_stream(&self, _: usize) -> Option<&'static Loop> {
        match *self {}
    }
}
