//! The programs of the explorations and checks of a [`Conformance`](super::Conformance).

use crate::program::{Fencing, Section};

/// A program for each origin.
pub(super) type Programs<'p> = &'p [&'p [Section]];

const X: Section = Section::EXCLUSIVE;
const S: Section = Section::SHARED;
/// Tries, and acquires that do not recover.
const T: Section = X.trying();
const N: Section = X.without_recovery();
const TS: Section = S.trying();
/// Sections that do not access the data, for three origins.
const A: Section = X.touching(0);
const B: Section = S.touching(0);
/// With a token, and with one that is drawn behind the acquire's first operation.
const F: Section = A.fenced(Fencing::Inside);
const FX: Section = A.fenced(Fencing::Fused);
const FS: Section = B.fenced(Fencing::Fused);

/// In every interleaving.
pub(super) const PAIRS: [Programs<'_>; 7] = [
    &[&[X, X], &[X, X]],
    &[&[X, S], &[S, X]],
    &[&[S, S], &[S, X]],
    &[&[X.early(1), X], &[X.detached(), S.early(1)]],
    &[&[T, TS], &[X, S]],
    &[&[T, T], &[T, TS]],
    &[&[FX, FS], &[FS, F]],
];
pub(super) const TRIPLES: [Programs<'_>; 4] =
    [&[&[X], &[X], &[X]], &[&[X], &[S], &[S]], &[&[X.early(1)], &[X], &[S]], &[&[TS], &[X], &[S]]];
/// Over a card's atomics.
pub(super) const ON_CARDS: [Programs<'_>; 2] = [&[&[X, S], &[S, X]], &[&[X], &[X], &[S]]];

/// The shortest, with many preemptions.
pub(super) const SHORTEST: [Programs<'_>; 2] = [&[&[A], &[A]], &[&[X], &[X]]];
/// From words near their ends: more acquires than the counters have room for.
pub(super) const AT_THE_ENDS: [Programs<'_>; 3] = [&[&[X, X], &[X, X]], &[&[X], &[X], &[X]], &[&[X, S], &[S, X]]];

/// In every schedule.
pub(super) const CALM: [Programs<'_>; 7] = [
    &[&[X, X], &[X]],
    &[&[X], &[S, X]],
    &[&[S], &[X, S]],
    &[&[T, TS], &[X]],
    &[&[FX, FS], &[FX]],
    &[&[A], &[A], &[B]],
    &[&[A], &[B], &[B]],
];
pub(super) const CRASHES: [Programs<'_>; 12] = [
    &[&[X, X], &[X]],
    &[&[X], &[S]],
    &[&[S, X], &[X]],
    &[&[T], &[X]],
    &[&[X], &[N, X]],
    &[&[X.detached(), S], &[X]],
    &[&[X.cancelled(1)], &[X]],
    &[&[S.cancelled(0), X], &[S]],
    &[&[X], &[X.cancelled_recovering(250)]],
    &[&[FX], &[FX]],
    &[&[A], &[A], &[A]],
    &[&[A], &[B], &[B]],
];
pub(super) const LOSSES: [Programs<'_>; 5] =
    [&[&[X], &[X]], &[&[X], &[S]], &[&[S], &[X]], &[&[X.detached()], &[X]], &[&[T], &[X]]];
pub(super) const STOPS: [Programs<'_>; 4] = [&[&[X], &[X]], &[&[X], &[S]], &[&[S], &[X]], &[&[A], &[A], &[B]]];
