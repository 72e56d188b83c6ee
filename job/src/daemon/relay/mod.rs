//! The control relay: keeps the job segments of a job's hosts consistent.
//!
//! Each host has a daemon with a job segment for all ranks of the job. It serves memory to the
//! ranks of its host, and holds a copy of all values for them. One of the daemons is the *head
//! daemon* (the launcher, or rank 0); each of the others has one stream to it, a [`RelayStream`]. A
//! put value goes to the head, which refuses duplicate names, and from there to all hosts. The
//! status of a rank that left or died goes to the head, and from there to all other hosts. So does
//! a lost connection, from the hosts of its two ranks.
//!
//! - **A host fails**: its stream ends, or it is silent for longer than `ONESIDED_SUSPECT_AFTER`.
//!   The head declares all its ranks dead and tells the other hosts.
//! - **The head fails**: each host declares the head's ranks dead and continues. No value can be
//!   put from then on, and the status and the connections of ranks on third hosts are unknown.
//!
//! The daemon's [server](super::server) runs the relay in its own loop: a daemon has one thread.

pub(super) mod frames;
mod stream;

use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lock;
use onesided_remote_memory::Rank;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

pub(crate) use crate::daemon::relay::frames::{Gone, Layout, Said};
pub(crate) use crate::daemon::relay::stream::{End, Lost, RelayStream, Stream};

use crate::Error;
use crate::daemon::tables::Tables;
use crate::frame::{Bytes, Name};
use crate::{setting, timespec};

/// After how many seconds of silence a host's ranks are declared dead.
pub const SUSPECT_AFTER: &str = "ONESIDED_SUSPECT_AFTER";
/// The default.
const SUSPECT: Duration = Duration::from_secs(5);
/// The maximum time between two heartbeats.
const BEAT: Duration = Duration::from_millis(500);
/// The maximum number of frames read from one host before the next host is served.
const A_TURN: usize = 256;

/// The failure-detection timeout of a host, from [`SUSPECT_AFTER`].
///
/// # Errors
/// [`Error::Join`]: the value is not a number of seconds, or is less than 0.1.
pub(crate) fn suspect_after(value: Option<OsString>) -> Result<Duration, Error> {
    let seconds = setting::parse_number(SUSPECT_AFTER, value, 0.1..=1e6, "of seconds, at least 0.1")?;
    Ok(seconds.map_or(SUSPECT, Duration::from_secs_f64))
}

/// The heartbeat interval for a peer with this failure-detection timeout.
fn between_beats(suspect_after: Duration) -> Duration {
    (suspect_after / 4).min(BEAT)
}

/// The streams of one host daemon to the others.
#[derive(Debug)]
pub(crate) struct ControlRelay {
    /// This host's number; `None` on the head.
    me: Option<u16>,
    wires: Vec<Wire>,
    /// The ranks whose end the other hosts know or need not be told: an end is final.
    told: HashSet<Rank>,
    /// The same for lost connections, the lower rank first, with the round.
    told_lost: HashSet<(Rank, Rank, u32)>,
    told_abort: bool,
    suspect_after: Duration,
    events: Option<Arc<RelayEvents>>,
}

/// A stream to a host; `None` for the stream to a head without ranks on its host.
#[derive(Debug)]
struct Wire {
    host: Option<u16>,
    link: RelayStream,
    /// Whether bye was sent, and received.
    bye: (bool, bool),
}

impl ControlRelay {
    /// The head's relay, with a stream to each other host. The silence of every host counts from
    /// now.
    pub(crate) fn head(
        links: Vec<(u16, RelayStream)>,
        suspect_after: Duration,
        events: Option<Arc<RelayEvents>>,
    ) -> Self {
        let now = Instant::now();
        let wires = links.into_iter().map(|(host, mut link)| {
            link.last_heard = now;
            Wire { host: Some(host), link, bye: (false, false) }
        });
        Self {
            me: None,
            wires: wires.collect(),
            told: HashSet::new(),
            told_lost: HashSet::new(),
            told_abort: false,
            suspect_after,
            events,
        }
    }

    /// The relay of host `me`, with its stream to the head.
    pub(crate) fn host(me: u16, link: RelayStream, layout: &Layout, events: Option<Arc<RelayEvents>>) -> Self {
        let suspect_after = layout.suspect_after();
        let wire = Wire { host: layout.head, link, bye: (false, false) };
        let (told, told_lost) = (HashSet::new(), HashSet::new());
        Self { me: Some(me), wires: vec![wire], told, told_lost, told_abort: false, suspect_after, events }
    }

    /// Whether this is the head's relay.
    pub(crate) const fn is_head(&self) -> bool {
        self.me.is_none()
    }

    /// What to poll, two entries a stream.
    pub(crate) fn polled(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        self.wires.iter().flat_map(|wire| wire.link.polled())
    }

    /// The latest time for the next [`turn`](Self::turn).
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let due =
            |wire: &Wire| (wire.link.last_heard + self.suspect_after).min(wire.link.last_said + self.between_beats());
        let now = |wire: &Wire| (wire.link.has_frame() && !wire.bye.1).then(Instant::now);
        self.wires.iter().map(|wire| now(wire).unwrap_or_else(|| due(wire))).min()
    }

    fn between_beats(&self) -> Duration {
        between_beats(self.suspect_after)
    }

    /// Sends a control message, which the relay does not read.
    pub(crate) fn post(&mut self, host: Option<u16>, message: Bytes) {
        let said = Said::Control(message);
        for wire in self.wires.iter_mut().filter(|wire| host.is_none() || wire.host == host) {
            wire.link.say(&said);
        }
    }

    /// Reads what has arrived, reports changes, and sends what can be sent.
    pub(crate) fn turn(&mut self, tables: &mut Tables) {
        let mut at = 0;
        while at < self.wires.len() {
            match self.attend(at, tables) {
                Ok(true) => at += 1,
                Ok(false) => {
                    self.wires.remove(at);
                }
                Err(why) => {
                    let wire = self.wires.remove(at);
                    self.lost(wire.host, &why, tables);
                }
            }
        }
        self.tell(tables);
        self.send(tables);
    }

    /// Reads from one host. `false`: both sides have sent bye.
    fn attend(&mut self, at: usize, tables: &mut Tables) -> Result<bool, Lost> {
        for _ in 0..A_TURN {
            if self.wires[at].bye.1 {
                let link = &mut self.wires[at].link;
                return Ok(link.flush().is_ok() && !link.is_flushed());
            }
            let Some(said) = self.wires[at].link.hear()? else { break };
            self.take(at, said, tables)?;
        }
        // Silence counts only after all input was read: a daemon that was stopped reads first.
        let silent = self.wires[at].link.last_heard.elapsed();
        if silent > self.suspect_after { Err(Lost::Silent(silent)) } else { Ok(true) }
    }

    fn take(&mut self, at: usize, said: Said, tables: &mut Tables) -> Result<(), Lost> {
        let host = self.wires[at].host;
        match said {
            Said::Beat => {}
            Said::Bye => {
                self.wires[at].bye.1 = true;
                // The daemon no longer serves its host.
                self.declare_dead(host, tables);
                if !self.is_head() {
                    tables.head_gone(Rank(0));
                }
                self.wires[at].bye.0 = true;
                self.wires[at].link.say(&Said::Bye);
                if let Some(events) = &self.events {
                    events.put(RelayEvent::Lost { host, why: "it ended".to_owned() });
                }
            }
            Said::Status { rank, gone } => {
                let job_segment = tables.job_segment();
                if !job_segment.has(rank) || !self.may_tell(host, job_segment.host_of(rank)) {
                    return Err(Lost::OutOfTurn);
                }
                match gone {
                    Gone::Dead => job_segment.declare_dead(rank),
                    Gone::Left => {
                        let _ = job_segment.join(rank); // no process of this host has joined as it
                        job_segment.leave(rank);
                    }
                    Gone::NeverJoined => drop(job_segment.end_unjoined(rank, true)),
                }
            }
            Said::LostConnection { one, other, round } => {
                let job_segment = tables.job_segment();
                let there = job_segment.has(one) && job_segment.has(other);
                if !there || !self.may_tell_lost(host, [one, other].map(|rank| job_segment.host_of(rank))) {
                    return Err(Lost::OutOfTurn);
                }
                if !self.is_head() {
                    self.told_lost.insert((one.min(other), one.max(other), round)); // it came from the head
                }
                job_segment.lose_connection_in(round, one, other);
            }
            Said::Aborted(aborted) => {
                let job_segment = tables.job_segment();
                if !job_segment.has(aborted.rank) || !self.may_tell(host, job_segment.host_of(aborted.rank)) {
                    return Err(Lost::OutOfTurn);
                }
                job_segment.abort(aborted);
            }
            Said::Put { ticket, name, value } if self.is_head() => {
                let outcome = tables.put(name, value);
                // A rank that is told that its value is stored finds the value.
                self.broadcast(tables);
                self.wires[at].link.say(&Said::Stored { ticket, outcome });
            }
            Said::Stored { ticket, outcome } if !self.is_head() => tables.answered(ticket, outcome),
            Said::Value { name, value } if !self.is_head() => tables.put(name, value).map_err(|_| Lost::OutOfTurn)?,
            Said::Control(message) if self.events.is_some() => {
                if let Some(events) = &self.events {
                    events.put(RelayEvent::Said { host, message });
                }
            }
            _ => return Err(Lost::OutOfTurn),
        }
        Ok(())
    }

    /// A host reports its own ranks; the head reports all but those of the receiving host.
    fn may_tell(&self, from: Option<u16>, host: u32) -> bool {
        let host = u16::try_from(host).ok();
        if self.is_head() { host == from } else { host != self.me }
    }

    /// A host reports the connections of its own ranks; the head reports all but those within the
    /// receiving host.
    fn may_tell_lost(&self, from: Option<u16>, hosts: [u32; 2]) -> bool {
        let hosts = hosts.map(|host| u16::try_from(host).ok());
        if self.is_head() { hosts.contains(&from) } else { hosts != [self.me; 2] }
    }

    /// Tells the other hosts about the job's abort, lost connections, and ranks that left or died.
    pub(crate) fn tell(&mut self, tables: &Tables) {
        let job_segment = tables.job_segment();
        if let Some(aborted) = job_segment.aborted().filter(|_| !self.told_abort) {
            self.told_abort = true;
            let from = u16::try_from(job_segment.host_of(aborted.rank)).ok();
            if self.me.is_none() || self.me == from {
                let others = self.wires.iter_mut().filter(|wire| wire.host != from && !wire.bye.0);
                others.for_each(|wire| wire.link.say(&Said::Aborted(aborted)));
            }
        }
        for one in job_segment.ranks() {
            for (other, round) in job_segment.lost_in_rounds(one).filter(|(other, _)| one <= *other) {
                if !self.told_lost.insert((one, other, round)) {
                    continue;
                }
                let hosts = [one, other].map(|rank| u16::try_from(job_segment.host_of(rank)).ok());
                if self.me.is_none() || hosts.contains(&self.me) {
                    let others = self.wires.iter_mut().filter(|wire| hosts != [wire.host; 2] && !wire.bye.0);
                    others.for_each(|wire| wire.link.say(&Said::LostConnection { one, other, round }));
                }
            }
        }
        for rank in job_segment.ranks() {
            let Some(gone) = Gone::of(job_segment.liveness(rank)) else { continue };
            if !self.told.insert(rank) {
                continue;
            }
            let host = u16::try_from(job_segment.host_of(rank)).ok();
            if self.me.is_none() || self.me == host {
                let others = self.wires.iter_mut().filter(|wire| wire.host != host && !wire.bye.0);
                others.for_each(|wire| wire.link.say(&Said::Status { rank, gone }));
            }
        }
    }

    /// Relays the values that the tables hold for other hosts.
    fn broadcast(&mut self, tables: &mut Tables) {
        for said in tables.outgoing() {
            self.wires.iter_mut().filter(|wire| !wire.bye.0).for_each(|wire| wire.link.say(&said));
        }
    }

    fn send(&mut self, tables: &mut Tables) {
        self.broadcast(tables);
        let now = Instant::now();
        let between = self.between_beats();
        let mut at = 0;
        while at < self.wires.len() {
            let wire = &mut self.wires[at];
            if now.saturating_duration_since(wire.link.last_said) >= between && !wire.bye.0 {
                wire.link.say(&Said::Beat);
            }
            match wire.link.flush() {
                Ok(()) => at += 1,
                Err(why) => {
                    let wire = self.wires.remove(at);
                    self.lost(wire.host, &why, tables);
                    at = 0; // the lost ranks are news for the other hosts
                }
            }
        }
    }

    fn lost(&mut self, host: Option<u16>, why: &Lost, tables: &mut Tables) {
        self.declare_dead(host, tables);
        if let Some(events) = &self.events {
            events.put(RelayEvent::Lost { host, why: why.to_string() });
        }
        if !self.is_head() {
            tables.head_gone(Rank(0));
        }
        self.tell(tables);
    }

    fn declare_dead(&self, host: Option<u16>, tables: &Tables) {
        let Some(host) = host else { return };
        let job_segment = tables.job_segment();
        let there = job_segment.ranks().filter(|rank| job_segment.host_of(*rank) == u32::from(host));
        there.for_each(|rank| job_segment.declare_dead(rank)); // unless it left
    }

    /// Sends what is left to be sent, for at most this time.
    pub(crate) fn flush(&mut self, limit: Duration, tables: &mut Tables) {
        let until = Instant::now() + limit;
        self.turn(tables);
        while self.wires.iter().any(|wire| !wire.link.is_flushed()) && Instant::now() < until {
            self.wait(until);
            self.turn(tables);
        }
    }

    /// Waits until there is something to read or room to send, if there are other hosts.
    fn wait(&self, until: Instant) {
        let mut polled: Vec<_> = self.polled().map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)).collect();
        if !polled.is_empty() {
            let _ = poll(&mut polled, Some(&timespec(until.saturating_duration_since(Instant::now()))));
        }
    }

    /// Sends bye and waits briefly until the other hosts have received it. Closing a socket with
    /// unread input may discard what was sent.
    pub(crate) fn end(mut self, tables: &mut Tables) {
        let until = Instant::now() + self.suspect_after;
        self.turn(tables);
        for wire in self.wires.iter_mut().filter(|wire| !wire.bye.0) {
            wire.bye.0 = true;
            wire.link.say(&Said::Bye);
        }
        while !self.wires.is_empty() && Instant::now() < until {
            self.wires.retain_mut(|wire| {
                let mut heard_out = || -> Result<bool, Lost> {
                    wire.link.flush()?;
                    while let Some(said) = wire.link.hear()? {
                        wire.bye.1 |= said == Said::Bye;
                    }
                    Ok(wire.bye.1 && wire.link.is_flushed())
                };
                !heard_out().unwrap_or(true)
            });
            self.wait(until);
        }
    }
}

/// Waits for each host's first frame, the name of its socket, and sends heartbeats to the other
/// hosts meanwhile.
///
/// # Errors
/// Which stream was lost.
pub(crate) fn hear_ready(
    links: &mut [&mut RelayStream],
    suspect_after: Duration,
    until: Instant,
) -> Result<Vec<Name>, (usize, Lost)> {
    let between = between_beats(suspect_after);
    let mut ready = vec![None; links.len()];
    while ready.contains(&None) {
        let now = Instant::now();
        for (at, link) in links.iter_mut().enumerate() {
            let lost = |lost| (at, lost);
            // Later frames belong to the relay.
            if ready[at].is_none() {
                match link.hear().map_err(lost)? {
                    Some(Said::Ready { socket }) => ready[at] = Some(socket),
                    None => {}
                    Some(_) => return Err((at, Lost::OutOfTurn)),
                }
            }
            if now >= until && ready[at].is_none() {
                return Err((at, Lost::Broke(std::io::ErrorKind::TimedOut.into())));
            }
            if now.saturating_duration_since(link.last_said) >= between {
                link.say(&Said::Beat);
            }
            link.flush().map_err(lost)?;
        }
        let missing = links.iter().zip(&ready).filter(|(_, ready)| ready.is_none());
        let polled = missing.flat_map(|(link, _)| link.polled());
        let mut polled: Vec<_> = polled.map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)).collect();
        // Wakes early enough for the next heartbeat.
        let _ = poll(&mut polled, Some(&timespec(between / 2)));
    }
    Ok(ready.into_iter().flatten().collect())
}

/// The queue of relay events for whoever runs the daemon.
#[derive(Debug)]
pub(crate) struct RelayEvents {
    news: Mutex<VecDeque<RelayEvent>>,
    wake: OwnedFd,
}

/// A relay event.
#[derive(Debug)]
pub(crate) enum RelayEvent {
    Said { host: Option<u16>, message: Bytes },
    Lost { host: Option<u16>, why: String },
}

impl RelayEvents {
    /// # Errors
    /// No descriptors.
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self { news: Mutex::default(), wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    fn put(&self, news: RelayEvent) {
        lock(&self.news).push_back(news);
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes()); // full means readable
    }

    /// Becomes readable when there are events.
    pub(crate) fn readable(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Takes all queued events.
    pub(crate) fn take(&self) -> VecDeque<RelayEvent> {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        std::mem::take(&mut *lock(&self.news))
    }
}

#[cfg(test)]
mod tests;
