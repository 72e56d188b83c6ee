//! Probes.

use std::task::Waker;

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};
use onesided_fabric::{Call, Fabric, Limit, debug, limited};

use crate::api::destination::{AllOf, Room};
use crate::api::taken::Taken;
use crate::driver::progress::Registered;
use crate::engine::matching::Pattern;
use crate::engine::{Direct, Engine};
use crate::{Error, Messages, Payload, Recv, RecvInto, Shape, Source, Status, Tags};

/// A probe. See [`Messages::probe`].
pub type Probe<'m, F> = Probing<'m, Status, F>;

/// A matched probe. See [`Messages::match_probe`].
pub type MatchProbe<'m, F> = Probing<'m, Message<'m, F>, F>;

/// A [`Probe`] or a [`MatchProbe`].
#[must_use = "does nothing unless waited on or polled"]
pub struct Probing<'m, R, F: Fabric> {
    messages: &'m Messages<F>,
    limit: Limit<'m, F>,
    source: (Source, Tags),
    call: Call<'m, Asked<'m, R, F>, Result<R, Error>>,
}

/// The pattern of a probe, or why there is none; and what looks for it.
type Asked<'m, R, F> = (Result<Pattern, Box<Error>>, Find<'m, R, F>);
type Find<'m, R, F> = fn(&'m Messages<F>, &mut Engine<Registered<F>>, Pattern, &Waker) -> Option<R>;

/// A message that a [matched probe](Messages::match_probe) has taken: no other receive gets it. If
/// it is dropped, the message goes to the next receive that fits.
#[must_use = "a message that is dropped goes to the next receive that fits"]
pub struct Message<'m, F: Fabric>(Taken<'m, F>);

impl<'m, F: Fabric> Message<'m, F> {
    /// Whose it is, and how long.
    pub fn status(&self) -> Status {
        self.0.status()
    }

    /// Receives it (`MPI_Mrecv`).
    ///
    /// # Errors
    /// From the handle: [`Error::Read`]; [`Error::Length`] if its length is no multiple of the
    /// element's.
    ///
    /// # Cancel safety
    /// As [`Messages::recv`].
    pub fn recv<T: Payload>(self) -> Recv<'m, T, F> {
        Recv::taken(self.0, AllOf::new(), Ok(()))
    }

    /// Receives it into a slice.
    ///
    /// # Errors
    /// As [`Messages::recv_into`], of a message that has come.
    ///
    /// # Cancel safety
    /// As [`Messages::recv_into`].
    pub fn recv_into<T: Payload>(self, into: &'m mut [T]) -> RecvInto<'m, F> {
        RecvInto::taken(self.0, Room::of(into), Ok(()))
    }

    /// Receives it into the elements of a slice that a shape selects.
    ///
    /// # Errors
    /// As [`Messages::recv_shaped`], of a message that has come. After [`Error::Range`] it goes to
    /// the next receive that fits.
    ///
    /// # Cancel safety
    /// As [`Messages::recv_into`].
    pub fn recv_shaped<T: Payload>(self, into: &'m mut [T], shape: Shape<'m>) -> RecvInto<'m, F> {
        let (room, fits) = Room::shaped(into, shape);
        RecvInto::taken(self.0, room, fits)
    }
}

impl<'m, F: Fabric> Probe<'m, F> {
    pub(crate) fn of(messages: &'m Messages<F>, source: Source, tags: Tags) -> Self {
        Self::start(messages, (source, tags), |messages, engine, pattern, waker| {
            engine.probe(pattern, waker).map(|(envelope, bytes)| messages.status(envelope, bytes))
        })
    }
}

impl<'m, F: Fabric> MatchProbe<'m, F> {
    pub(crate) fn of_match(messages: &'m Messages<F>, source: Source, tags: Tags) -> Self {
        Self::start(messages, (source, tags), |messages, engine, pattern, waker| {
            engine.match_probe(pattern, waker).map(|held| Message(Taken::new(messages, held)))
        })
    }
}

impl<'m, R: 'm, F: Fabric> Probing<'m, R, F> {
    fn start(messages: &'m Messages<F>, source: (Source, Tags), find: Find<'m, R, F>) -> Self {
        let call = Call::NotStarted((messages.pattern("probe", source), find));
        Self { messages, limit: Limit::NONE, source, call }
    }

    async fn run(
        messages: &'m Messages<F>,
        (pattern, find): Asked<'m, R, F>,
        (source, tags): (Source, Tags),
    ) -> Result<R, Error> {
        let pattern = pattern.map_err(|error| *error)?;
        let watch = pattern.source.map_or(messages.world().fabric().rank(), Rank);
        let found = messages.progress().until(
            watch,
            Direct::none(),
            |engine, _, waker| find(messages, engine, pattern, waker).map(Ok),
            |engine| messages.failed_source(engine, source).map(Err),
            || Some(messages.wait(source, format!("a probe with {tags} from {source}"))),
        );
        found.await.map_err(|fault| messages.failed("probe", (source, tags), fault))
    }
}

limited! {
    ['m, R: Send + 'm, F], Probing<'m, R, F>, R, Error, |probe| probe.messages.world().fabric(),
    |asked| Self::run(probe.messages, asked, probe.source),
    late probe.messages.failed("probe", probe.source, Fault::new(FaultKind::TimedOut));
    /// Sets a deadline, counted from the next wait or poll.
    deadline;
    /// Blocks until there is such a message.
    ///
    /// # Errors
    /// As of [`Messages::probe`].
    wait
}

debug!([R, F: Fabric] Probing<'_, R, F>, |this| "probe of messages with {} from {}", this.source.1, this.source.0);

debug!([F: Fabric] Message<'_, F>, |this| "message of {}", this.0.status());
