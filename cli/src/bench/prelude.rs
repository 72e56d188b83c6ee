//! What every measurement needs: its file begins with `use crate::bench::prelude::*`.

pub(crate) use crate::bench::effort::Effort;
pub(crate) use crate::bench::metrics::{LockMetric, Ranks};
pub(crate) use crate::bench::results::description::{Description, Name, Shown};
pub(crate) use crate::bench::results::quantity::Quantity;
pub(crate) use crate::bench::results::report::{Parameter, Point, Samples};
pub(crate) use crate::bench::results::summary::median;
pub(crate) use crate::bench::runner::suite::{Program, Suite};
pub(crate) use crate::bench::worker::probes::{self, Probe};
pub(crate) use crate::bench::worker::rank::BenchRank;
pub(crate) use crate::bench::worker::throughput::{Stop, Throughput};
pub(crate) use crate::failure::Failure;
