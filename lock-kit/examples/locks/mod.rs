//! Locks as in their papers: one file each.

mod anderson;
mod bakery;
mod clh;
mod leased;
mod leavable_ticket;
mod mcs;
mod peterson;
mod phase_fair;
mod recovering;
mod test_and_test_and_set;
mod ticket;

pub(crate) use anderson::Anderson;
pub(crate) use bakery::Bakery;
pub(crate) use clh::Clh;
pub(crate) use leased::Leased;
pub(crate) use leavable_ticket::LeavableTicket;
pub(crate) use mcs::Mcs;
pub(crate) use peterson::Peterson;
pub(crate) use phase_fair::PhaseFair;
pub(crate) use recovering::Recovering;
pub(crate) use test_and_test_and_set::TestAndTestAndSet;
pub(crate) use ticket::Ticket;
