//! A message that a task has.

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, Rank};

use crate::api::destination::Destination;
use crate::api::receive::{PostedReceive, Received};
use crate::driver::offered;
use crate::driver::progress::{Progress, Registered};
use crate::engine::elements::into_vec;
use crate::engine::{Announced, Held, Here, Holding, is_refused};
use crate::{Error, Messages, Protocol, Source, Status, Tags};

/// A message that a task has: read, or given back when this is dropped.
pub(crate) struct Taken<'m, F: Fabric> {
    messages: &'m Messages<F>,
    held: Held,
    is_over: bool,
}

impl<F: Fabric> Drop for Taken<'_, F> {
    fn drop(&mut self) {
        if !self.is_over {
            self.messages.progress().with(|engine| engine.give_back(self.held.message));
        }
    }
}

impl<'m, F: Fabric> Taken<'m, F> {
    pub(crate) const fn new(messages: &'m Messages<F>, held: Held) -> Self {
        Self { messages, held, is_over: false }
    }

    pub(crate) const fn messages(&self) -> &'m Messages<F> {
        self.messages
    }

    pub(crate) fn status(&self) -> Status {
        self.messages.status(self.held.envelope, self.held.len)
    }

    /// Receives the message.
    pub(crate) async fn receive<D: Destination<F>>(&mut self, into: &mut D) -> Result<D::Output, Error> {
        let status = self.status();
        if let Err(error) = into.admits(status) {
            self.refuse().await;
            return Err(error);
        }
        self.read(into).await?;
        into.received(status)
    }

    /// Reads the message and ends the receive, which waits for nothing once the message is here: its
    /// sender is told in the background if there is no room for the packet now.
    ///
    /// # Cancel safety
    /// The message goes to the next receive that fits.
    pub(crate) async fn read(&mut self, into: &mut impl Destination<F>) -> Result<(), Error> {
        let progress = self.messages.progress();
        let read = loop {
            match progress.with(|engine| engine.take(self.held.message)) {
                Holding::Eager(bytes) => {
                    self.is_over = true; // its sender waits for nothing
                    break into.copy(&bytes);
                }
                Holding::Moved(here) => break self.ends(here.and_then(|here| self.copy_moved(into, here))),
                Holding::ToCome(receive) => self.arrives(receive).await,
                Holding::ToRead(announced) => match into.read(progress, &announced).await {
                    Err(fault) if announced.by == Protocol::Rget && is_refused(fault) => {
                        progress.with(|engine| engine.copy_held(self.held.message));
                    }
                    read => break self.deliver(read),
                },
            }
        };
        read.map_err(|fault| Error::Read { status: self.status(), fault: self.messages.world().translate(fault) })
    }

    /// Ends a receive that needs nothing of the message.
    async fn refuse(&mut self) {
        let progress = self.messages.progress();
        while let Some(receive) = progress.with(|engine| engine.await_moving(self.held.message)) {
            self.arrives(receive).await;
        }
        let _ = self.deliver(Ok(()));
    }

    fn copy_moved(&self, into: &mut impl Destination<F>, here: Here<Registered<F>>) -> Result<(), Fault> {
        let progress = self.messages.progress();
        match here {
            Here::Elements(elements) => {
                if let Some(Ok(bytes)) = into.take(elements)?.map(into_vec) {
                    progress.keep_bytes(bytes);
                }
                Ok(())
            }
            Here::Memory(memory) => into.copy_registered(progress, memory, self.held.len),
        }
    }

    fn ends(&mut self, read: Result<(), Fault>) -> Result<(), Fault> {
        self.is_over = true;
        self.messages.progress().send_owed(Rank(self.held.envelope.source));
        read
    }

    fn deliver(&mut self, read: Result<(), Fault>) -> Result<(), Fault> {
        let delivered = self.messages.progress().with(|engine| engine.deliver(self.held.message, read));
        self.ends(delivered)
    }

    /// Waits for a receive that has the message.
    async fn arrives(&mut self, receive: usize) {
        self.is_over = true; // the receive has it
        let Held { envelope, .. } = self.held;
        let (source, tag) = (Source::Rank(self.status().source), Tags::Is(self.status().tag));
        let wait = || self.messages.wait(source, format!("a receive with {tag} from {source}"));
        let mut posted = PostedReceive::of(self.messages.progress(), envelope.into(), receive);
        match posted.landed(None, |_| None::<Fault>, wait).await {
            Ok(Received::Held(held)) => (self.held, self.is_over) = (held, false),
            Ok(Received::Landed(_)) | Err(_) => unreachable!("it has the message, and there is no slice for it"),
        }
    }
}

/// Copies an announced message from an offset on; from 0 on, if its slice is offered.
pub(crate) async fn get<F: Fabric>(
    progress: &Progress<F>,
    Announced { key, by, .. }: &Announced,
    at: usize,
    into: &mut [u8],
) -> Result<(), Fault> {
    match by {
        _ if key.len == 0 => Ok(()),
        Protocol::Offered => offered::read(progress, key, into).await,
        _ => {
            let memory = progress.open(key)?;
            progress.fabric.get(&memory, at as u64, into).await
        }
    }
}
