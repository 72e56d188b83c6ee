//! A message that the engine has matched.

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};

use crate::elements::into_vec;
use crate::engine::{Body, Matched, is_refused};
use crate::progress::Registered;
use crate::receive::{Posted, Received};
use crate::shaped::{CHUNK, Places};
use crate::wire::By;
use crate::{Error, Messages, Payload, Source, Status, Tag, Tags, offered};

/// A message that the engine has matched: delivered, or given back when this is dropped.
pub(crate) struct Taken<'m, F: Fabric> {
    messages: &'m Messages<F>,
    matched: Option<Box<Matched<Registered<F>>>>,
}

impl<F: Fabric> Drop for Taken<'_, F> {
    fn drop(&mut self) {
        if let Some(matched) = self.matched.take() {
            self.messages.progress().with(|engine| engine.give_back(*matched));
        }
    }
}

impl<'m, F: Fabric> Taken<'m, F> {
    pub(crate) const fn new(messages: &'m Messages<F>, matched: Box<Matched<Registered<F>>>) -> Self {
        Self { messages, matched: Some(matched) }
    }

    fn matched(&self) -> &Matched<Registered<F>> {
        self.matched.as_ref().unwrap_or_else(|| unreachable!("it is there until it is delivered"))
    }

    pub(crate) fn body(&mut self) -> &mut Body<Registered<F>> {
        let matched = self.matched.as_mut().unwrap_or_else(|| unreachable!("it is there until it is delivered"));
        &mut matched.body
    }

    pub(crate) const fn messages(&self) -> &'m Messages<F> {
        self.messages
    }

    pub(crate) fn status(&self) -> Status {
        let matched = self.matched();
        self.messages.status(matched.envelope, matched.body.len())
    }

    /// The message is here, or lost. Waits for nothing, as the receive is over when it returns: its
    /// sender is told in the background if there is no room for the packet now.
    fn deliver(&mut self, outcome: Result<(), Fault>) {
        let Some(matched) = self.matched.take() else { return };
        if let Body::Eager(_) = matched.body {
            return; // its sender waits for nothing
        }
        let (progress, from) = (self.messages.progress(), Rank(matched.envelope.source));
        progress.with(|engine| engine.deliver(&matched, outcome));
        progress.send_owed(from);
        match matched.body {
            Body::Here(elements) => into_vec(elements).into_iter().for_each(|bytes| progress.keep_bytes(bytes)),
            Body::Read { memory: Ok(memory), .. } => progress.keep([memory]),
            Body::Read { memory: Err(_), .. } | Body::Eager(_) | Body::Announced { .. } | Body::Moving { .. } => {}
        }
    }

    /// Ends a receive that has no room for any of the message.
    pub(crate) async fn refuse(&mut self, outcome: Result<(), Fault>) {
        if let Body::Moving { .. } = self.body() {
            self.arrive().await;
        }
        self.deliver(outcome);
    }

    /// How much of the message there is room for.
    pub(crate) fn len_in(&self, room: usize) -> usize {
        usize::try_from(self.matched().body.len()).unwrap_or(usize::MAX).min(room)
    }

    /// Waits until the message is in memory of this rank, if it is [to come](Body::is_to_come).
    ///
    /// # Cancel safety
    /// The message goes to the next receive that fits when it is there.
    pub(crate) async fn arrive(&mut self) {
        let Some(matched) = self.matched.take_if(|matched| matched.body.is_to_come()) else { return };
        let (progress, envelope) = (self.messages.progress(), matched.envelope);
        let (from, tag) = (Rank(envelope.source), Tags::Is(Tag(envelope.tag)));
        let receive = progress.with(|engine| engine.receive_matched(matched));
        let source = Source::Rank(self.messages.status(envelope, 0).source);
        let wait = || self.messages.wait(source, format!("a receive with {tag} from {source}"));
        let mut posted = Posted::new(progress, from, receive);
        match posted.landed(None, |_| None::<Fault>, wait).await {
            Ok(Received::Matched(matched)) => self.matched = Some(matched),
            Ok(Received::Landed(_)) | Err(_) => unreachable!("it is matched, and there is no slice for it"),
        }
    }

    /// Whether an announced message may still be read: its connection works.
    pub(crate) fn check_connection(&self) -> Result<(), Fault> {
        let (progress, matched) = (self.messages.progress(), self.matched());
        match matched.body {
            Body::Announced { .. } => progress.with(|engine| engine.check_connection(matched)),
            Body::Eager(_) | Body::Here(_) | Body::Read { .. } | Body::Moving { .. } => Ok(()),
        }
    }

    /// Waits until a message that could not be read has come in packets, if it may.
    ///
    /// # Cancel safety
    /// As of [`arrive`](Self::arrive).
    pub(crate) async fn arrives_in_packets(&mut self, fault: Fault) -> bool {
        match self.body() {
            Body::Announced { by: by @ By::Read, .. } if is_refused(fault) => *by = By::Copy,
            _ => return false,
        }
        self.arrive().await;
        true
    }

    /// Copies the message's bytes from an offset on; from 0 on, if its slice is offered.
    async fn copy(&mut self, at: usize, into: &mut [u8]) -> Result<(), Fault> {
        match self.copy_now(at, into).await {
            Err(fault) if self.arrives_in_packets(fault).await => self.copy_now(at, into).await,
            copied => copied,
        }
    }

    async fn copy_now(&self, at: usize, into: &mut [u8]) -> Result<(), Fault> {
        self.check_connection()?;
        let progress = self.messages.progress();
        match &self.matched().body {
            Body::Eager(bytes) => {
                into.copy_from_slice(&bytes[at..at + into.len()]);
                Ok(())
            }
            Body::Here(elements) => {
                into.copy_from_slice(&elements.bytes()[at..at + into.len()]);
                Ok(())
            }
            Body::Announced { key, .. } if key.len == 0 => Ok(()),
            Body::Announced { key, by: By::Offered, .. } => offered::read(progress, key, into).await,
            Body::Announced { key, .. } => match progress.open(key) {
                Ok(memory) => progress.fabric.get(&memory, at as u64, into).await,
                Err(fault) => Err(fault),
            },
            Body::Read { memory: Ok(memory), .. } => memory.read(progress, at as u64, into),
            Body::Read { memory: Err(fault), .. } => Err(*fault),
            Body::Moving { .. } => unreachable!("it has come"),
        }
    }

    /// Copies the message, or its beginning, to its places.
    pub(crate) async fn unpack(&mut self, places: &mut Places<'_>) -> Result<(), Fault> {
        self.arrive().await;
        let (len, fabric) = (self.len_in(places.len), self.messages.world().fabric());
        let chunk = match &self.matched().body {
            Body::Here(elements) => {
                places.unpack(&elements.bytes()[..len]);
                return Ok(());
            }
            Body::Eager(bytes) => {
                places.unpack(&bytes[..len]);
                return Ok(());
            }
            Body::Announced { by, .. } if *by == By::Offered || !fabric.capabilities().completes_at_post => len,
            _ => len.min(CHUNK),
        };
        let packed = bytemuck::allocation::try_zeroed_slice_box(chunk);
        let mut packed: Box<[u8]> = packed.map_err(|()| Fault::new(FaultKind::NoMemory))?;
        for at in (0..len.max(1)).step_by(CHUNK.max(chunk)) {
            let packed = &mut packed[..chunk.min(len - at)];
            self.copy(at, packed).await?;
            places.unpack(packed);
        }
        Ok(())
    }

    /// The elements, if they are here and of this type; its sender has its FIN.
    pub(crate) fn take_elements<T: Payload>(&mut self) -> Option<Vec<T>> {
        let matched = self.matched.as_mut()?;
        let (elements, from) = (matched.body.take_elements()?, Rank(matched.envelope.source));
        self.matched = None;
        self.messages.progress().send_owed(from);
        Some(elements)
    }

    /// Reads the message, or its beginning, and delivers it.
    pub(crate) async fn read(&mut self, into: &mut [u8]) -> Result<(), Error> {
        let len = self.len_in(into.len());
        self.arrive().await;
        let read = self.copy(0, &mut into[..len]).await;
        self.end(read)
    }

    /// Delivers the message: it was read, or could not be.
    pub(crate) fn end(&mut self, read: Result<(), Fault>) -> Result<(), Error> {
        let status = self.status();
        let read = self.check_connection().and(read);
        self.deliver(read);
        read.map_err(|fault| Error::Read { status, fault: self.messages.world().translate(fault) })
    }
}
