//! Ranks started by hand, by ssh, or by a script meet at a TCP address.
//!
//! Each rank gets `ONESIDED_ADDRESS` (`HOST:PORT`, where rank 0 listens), `ONESIDED_RANK`,
//! `ONESIDED_SIZE` and `ONESIDED_SECRET_FILE`. The ranks may start in any order: rank 0 listens,
//! and the others try to connect until it does. Both sides first prove that they know the secret.
//! Rank 0 then names its socket, and everything else happens there: rank 0 [is the host
//! daemon](crate#who-keeps-a-job).
//!
//! The address serves the meeting only; it closes once all ranks have arrived. The lowest rank of
//! each other host becomes that host's daemon: its stream stays open as a control relay between its
//! job segment and rank 0's.

mod caller;
mod coordinates;
pub(crate) mod frames;
mod listener;

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use onesided_remote_memory::Rank;

pub use crate::rendezvous::coordinates::JobCoordinates;

use crate::Error;
use crate::Job;
use crate::daemon::relay::{ControlRelay, Layout, Lost, RelayStream, Said, hear_ready};
use crate::environment::Environment;
use crate::frame::Name;
use crate::head_daemon::{self, Host};
use crate::host_name::HostId;
use crate::rendezvous::caller::Found;
use crate::rendezvous::listener::Gathered;

/// Joins the job whose ranks meet at an address.
///
/// # Errors
/// - [`Error::Join`]: rank 0 cannot listen, refuses, or the listener is not rank 0 of this job and
///   version.
/// - [`Error::Secret`]: either side does not know the secret.
/// - [`Error::Operation`]: not all ranks arrived within `patience`.
/// - Whatever joining at rank 0 reports.
pub(crate) fn join(place: &JobCoordinates, patience: Duration) -> Result<Job, Error> {
    let too_long = || Error::Join { what: "the patience is too long".to_owned(), source: None };
    let until = Instant::now().checked_add(patience).ok_or_else(too_long)?;
    if place.rank == Rank(0) {
        let mut host = Host::start(place.size, place.secret.clone())?;
        let gathered = listener::gather(place, host.address(), until).inspect_err(|error| host.give_up(error))?;
        connect_hosts(place, &mut host, gathered, until)?;
        return host.join(place.rank, until);
    }
    join_where(place, caller::find(place, until)?, until)
}

/// Joins as rank 0 answered.
fn join_where(place: &JobCoordinates, found: Found, until: Instant) -> Result<Job, Error> {
    let JobCoordinates { rank, size, secret, .. } = place;
    match found {
        Found::Here(address) => {
            let environment = Environment { rank: *rank, size: *size, address, secret: secret.clone() };
            head_daemon::join(&environment, None, until)
        }
        Found::Keep(link) => keep(place, link, until)?.join(*rank, until),
    }
}

/// Joins as rank 0 of a job whose ranks learn its addresses and socket in another way, once the
/// ranks of other hosts have arrived. `hosts`: by rank, those on its own host, which do not use the
/// port.
///
/// # Errors
/// As [`join`].
pub(crate) fn host_at(
    place: &JobCoordinates,
    listener: TcpListener,
    hosts: Vec<Option<HostId>>,
    mut host: Host,
    until: Instant,
) -> Result<Job, Error> {
    let gathered = listener::gather_at(place, listener, host.address(), hosts, until);
    let gathered = gathered.inspect_err(|error| host.give_up(error))?;
    connect_hosts(place, &mut host, gathered, until)?;
    host.join(place.rank, until)
}

/// Joins the job of a rank 0 on another host that listens at one of these addresses.
///
/// # Errors
/// As [`join`].
pub(crate) fn come_to(place: &JobCoordinates, addresses: &[SocketAddr], until: Instant) -> Result<Job, Error> {
    join_where(place, caller::find_at_any(place, addresses, until)?, until)
}

/// Rank 0: appoints a daemon on each other host, and connects the relay to them.
fn connect_hosts(
    place: &JobCoordinates,
    host: &mut Host,
    Gathered { hosts, waiting }: Gathered,
    until: Instant,
) -> Result<(), Error> {
    let suspect_after = place.suspect_after;
    if waiting.is_empty() {
        return Ok(());
    }
    let lost = |rank: Rank| {
        move |why: Lost| {
            let what = format!("{rank} came from another host, and then {why}");
            Error::Join { what, source: None }
        }
    };
    let layout = Layout {
        suspect_after_ms: u32::try_from(suspect_after.as_millis()).unwrap_or(u32::MAX),
        head: Some(0),
        hosts: hosts.clone(),
    };
    let (mut links, mut others) = (Vec::new(), Vec::new());
    for rank in waiting {
        let (name, number) = (rank.rank(), hosts[rank.rank().index()]);
        if links.iter().any(|(_, known, _)| *known == number) {
            others.push((number, rank));
            continue;
        }
        let mut link = rank.keep(&place.secret).map_err(|error| lost(name)(Lost::Broke(error)))?;
        link.say(&Said::Layout(layout.clone()));
        link.flush().map_err(lost(name))?;
        links.push((name, number, link));
    }
    let keepers: Vec<_> = links.iter().map(|(rank, ..)| *rank).collect();
    let mut open: Vec<_> = links.iter_mut().map(|(.., link)| link).collect();
    let sockets = hear_ready(&mut open, suspect_after, until).map_err(|(at, why)| lost(keepers[at])(why))?;
    for ((_, number, _), socket) in links.iter().zip(&sockets) {
        others.iter().filter(|(host, _)| host == number).for_each(|(_, rank)| rank.here(&place.secret, socket));
    }
    let links = links.into_iter().map(|(_, number, link)| (number, link)).collect();
    host.relay(&layout, ControlRelay::head(links, suspect_after, None))
}

/// The lowest rank of another host becomes its daemon.
fn keep(place: &JobCoordinates, mut link: RelayStream, until: Instant) -> Result<Host, Error> {
    let lost = |why: Lost| Error::Join { what: format!("hear from rank 0: {why}"), source: None };
    let Said::Layout(layout) = link.hear_until(until).map_err(lost)? else { return Err(lost(Lost::OutOfTurn)) };
    let me = layout.hosts.get(place.rank.index()).copied().filter(|_| layout.hosts.len() == place.size as usize);
    let me = me.ok_or(Lost::OutOfTurn).map_err(lost)?;
    let mut host = Host::start(place.size, place.secret.clone())?;
    link.say(&Said::Ready { socket: Name(host.address().to_owned()) });
    host.relay(&layout, ControlRelay::host(me, link, &layout, None))?;
    Ok(host)
}

#[cfg(test)]
mod tests;
