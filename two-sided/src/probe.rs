//! Probes.

use std::fmt;
use std::time::Duration;

use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};
use onesided_fabric::{Call, Drive, Fabric, Limit, limited};

use crate::engine::{Direct, Engine};
use crate::matching::Pattern;
use crate::progress::Registered;
use crate::taken::Taken;
use crate::{Error, Messages, Payload, Recv, RecvInto, Shape, Source, Status, Tags};

/// The pattern of a probe, or why there is none.
type Checked = Result<Pattern, Error>;

/// A probe. See [`Messages::probe`].
#[must_use = "does nothing unless waited on or polled"]
pub struct Probe<'m, F: Fabric> {
    messages: &'m Messages<F>,
    limit: Limit<'m, F>,
    source: (Source, Tags),
    call: Call<'m, Checked, Result<Status, Error>>,
}

/// A matched probe. See [`Messages::match_probe`].
#[must_use = "does nothing unless waited on or polled"]
pub struct MatchProbe<'m, F: Fabric> {
    messages: &'m Messages<F>,
    limit: Limit<'m, F>,
    source: (Source, Tags),
    call: Call<'m, Checked, Result<Message<'m, F>, Error>>,
}

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
        const { assert!(size_of::<T>() > 0, "elements without a size") };
        Recv::taken(self.0)
    }

    /// Receives it into a slice.
    ///
    /// # Errors
    /// As [`Messages::recv_into`], of a message that has come.
    ///
    /// # Cancel safety
    /// As [`Messages::recv_into`].
    pub fn recv_into<'b, T: Payload>(self, into: &'b mut [T]) -> RecvInto<'b, F>
    where
        'm: 'b,
    {
        const { assert!(size_of::<T>() > 0, "elements without a size") };
        RecvInto::taken(self.0, into)
    }

    /// Receives it into the elements of a slice that a shape selects.
    ///
    /// # Errors
    /// As [`Messages::recv_shaped`], of a message that has come. After [`Error::Range`] it goes to
    /// the next receive that fits.
    ///
    /// # Cancel safety
    /// As [`Messages::recv_into`].
    pub fn recv_shaped<'b, T: Payload>(self, into: &'b mut [T], shape: Shape<'b>) -> RecvInto<'b, F>
    where
        'm: 'b,
    {
        const { assert!(size_of::<T>() > 0, "elements without a size") };
        match shape.contiguous().filter(|run| run.end <= into.len()) {
            Some(run) => self.recv_into(&mut into[run]),
            None => RecvInto::taken_shaped(self.0, into, shape),
        }
    }
}

/// Waits until the engine has what `find` looks for.
async fn found<R, F: Fabric>(
    messages: &Messages<F>,
    checked: Checked,
    wanted: (Source, Tags),
    find: impl Fn(&mut Engine<Registered<F>>, Pattern, &std::task::Waker) -> Option<R>,
) -> Result<R, Error> {
    let pattern = checked?;
    let watch = pattern.source.map_or(messages.world().fabric().rank(), Rank);
    let found = messages.progress().until(
        watch,
        Direct::none(),
        |engine, _, waker| find(engine, pattern, waker).map(Ok),
        |engine| messages.failed_source(engine, wanted.0).map(Err),
        || Some(messages.wait(wanted.0, format!("a probe with {} from {}", wanted.1, wanted.0))),
    );
    found.await.map_err(|fault| messages.failed("probe", wanted, fault))
}

impl<'m, F: Fabric> Probe<'m, F> {
    pub(crate) fn start(messages: &'m Messages<F>, source: Source, tags: Tags) -> Self {
        let call = Call::NotStarted(messages.pattern("probe", source, tags));
        Self { messages, limit: Limit::NONE, source: (source, tags), call }
    }

    /// Sets a deadline, counted from the next wait or poll.
    pub const fn deadline(mut self, after: Duration) -> Self {
        self.limit.said = Some(after);
        self
    }

    async fn run(messages: &'m Messages<F>, checked: Checked, source: (Source, Tags)) -> Result<Status, Error> {
        let (envelope, bytes) = found(messages, checked, source, Engine::probe).await?;
        Ok(messages.status(envelope, bytes))
    }
}

impl<F: Fabric> Probe<'_, F> {
    /// Blocks until there is such a message.
    ///
    /// # Errors
    /// As of [`Messages::probe`].
    pub fn wait(self) -> Result<Status, Error>
    where
        F: Drive,
    {
        self.block()
    }
}

limited! {
    ['m, F], Probe<'m, F>, Status, Error, |probe| probe.messages.world().fabric(),
    |checked| Self::run(probe.messages, checked, probe.source),
    late probe.messages.failed("probe", probe.source, Fault::new(FaultKind::TimedOut))
}

impl<'m, F: Fabric> MatchProbe<'m, F> {
    pub(crate) fn start(messages: &'m Messages<F>, source: Source, tags: Tags) -> Self {
        let call = Call::NotStarted(messages.pattern("probe", source, tags));
        Self { messages, limit: Limit::NONE, source: (source, tags), call }
    }

    /// Sets a deadline, counted from the next wait or poll.
    pub const fn deadline(mut self, after: Duration) -> Self {
        self.limit.said = Some(after);
        self
    }

    async fn run(messages: &'m Messages<F>, checked: Checked, source: (Source, Tags)) -> Result<Message<'m, F>, Error> {
        let held = found(messages, checked, source, Engine::match_probe).await?;
        Ok(Message(Taken::new(messages, held)))
    }
}

impl<'m, F: Fabric> MatchProbe<'m, F> {
    /// Blocks until there is such a message, and takes it.
    ///
    /// # Errors
    /// As of [`Messages::match_probe`].
    pub fn wait(self) -> Result<Message<'m, F>, Error>
    where
        F: Drive,
    {
        self.block()
    }
}

limited! {
    ['m, F], MatchProbe<'m, F>, Message<'m, F>, Error, |probe| probe.messages.world().fabric(),
    |checked| Self::run(probe.messages, checked, probe.source),
    late probe.messages.failed("probe", probe.source, Fault::new(FaultKind::TimedOut))
}

macro_rules! debug {
    ($($name:ident),*) => {$(
        impl<F: Fabric> fmt::Debug for $name<'_, F> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "probe of messages with {} from {}", self.source.1, self.source.0)
            }
        }
    )*};
}

debug!(Probe, MatchProbe);

impl<F: Fabric> fmt::Debug for Message<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "message of {}", self.0.status())
    }
}
