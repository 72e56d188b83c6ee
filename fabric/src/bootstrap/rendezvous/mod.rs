//! Ranks that are started by hand, by ssh, by any script: they meet at a TCP address.
//!
//! Everybody gets `ONESIDED_ADDRESS` (`HOST:PORT`, where rank 0 listens), `ONESIDED_RANK`, `ONESIDED_SIZE` and
//! `ONESIDED_SECRET_FILE`. In whatever order they start, rank 0 listens, the others connect until somebody listens, and
//! both sides prove that they know the secret before anything else is said. Then rank 0 says where its socket is, and
//! everything else goes on there: rank 0 [keeps the job](super#who-keeps-a-job).
//!
//! The address is only where ranks meet; once all have come nobody listens there. Ranks of another host are refused: they
//! would have no board in common.

mod caller;
mod frames;
mod listener;
mod place;

use std::time::{Duration, Instant};

use remote_memory::Rank;

pub use crate::bootstrap::rendezvous::place::Place;

use crate::Error;
use crate::bootstrap::Job;
use crate::bootstrap::environment::Environment;
use crate::bootstrap::host::{self, Host};

/// Joins the job whose ranks meet at a place.
///
/// # Errors
/// [`Error::Join`]: rank 0 cannot listen, or what listens there is no rank 0 of this job and version; it refuses.
/// [`Error::Secret`]: either side does not know the secret. [`Error::Operation`]: not all came within `patience`. And
/// what joining at rank 0 reports.
pub(crate) fn join(place: &Place, patience: Duration) -> Result<Job, Error> {
    let too_long = || Error::Join { what: "the patience is too long".to_owned(), source: None };
    let until = Instant::now().checked_add(patience).ok_or_else(too_long)?;
    if place.rank == Rank(0) {
        let host = Host::start(place.size, place.secret.clone())?;
        listener::gather(place, host.address(), until)?;
        return host.join(until);
    }
    let address = caller::find(place, until)?;
    let environment = Environment { rank: place.rank, size: place.size, address, secret: place.secret.clone() };
    host::join(&environment, None, until)
}

#[cfg(test)]
mod tests;
