//! A message that a task has.

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};

use crate::elements::{Elements, into_vec};
use crate::engine::{Announced, Held, Here, Holding, is_refused};
use crate::progress::{Progress, Registered};
use crate::receive::{Posted, Received};
use crate::shaped::{CHUNK, Places};
use crate::{Error, Messages, Payload, Protocol, Source, Status, Tag, Tags, offered};

/// A message that a task has: read, or given back when this is dropped.
pub(crate) struct Taken<'m, F: Fabric> {
    messages: &'m Messages<F>,
    held: Held,
    is_over: bool,
}

/// What a message is read into: all of it, or its beginning.
pub(crate) trait Sink<F: Fabric> {
    /// Takes the bytes of a message that is here.
    fn copy(&mut self, bytes: &[u8]) -> Result<(), Fault>;

    /// The same of elements, which it may have.
    fn take(&mut self, elements: Box<dyn Elements>) -> Result<Option<Box<dyn Elements>>, Fault> {
        self.copy(elements.bytes()).map(|()| Some(elements))
    }

    /// Takes a message of so many bytes that is in registered memory.
    fn copy_registered(&mut self, progress: &Progress<F>, memory: Registered<F>, len: u64) -> Result<(), Fault>;

    /// Reads an announced message.
    async fn read(&mut self, progress: &Progress<F>, announced: &Announced) -> Result<(), Fault>;
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

    /// Reads the message and ends the receive, which waits for nothing once the message is here: its
    /// sender is told in the background if there is no room for the packet now.
    ///
    /// # Cancel safety
    /// The message goes to the next receive that fits.
    pub(crate) async fn read(&mut self, into: &mut impl Sink<F>) -> Result<(), Error> {
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
    pub(crate) async fn refuse(&mut self) {
        let progress = self.messages.progress();
        while let Some(receive) = progress.with(|engine| engine.await_moving(self.held.message)) {
            self.arrives(receive).await;
        }
        let _ = self.deliver(Ok(()));
    }

    fn copy_moved(&self, into: &mut impl Sink<F>, here: Here<Registered<F>>) -> Result<(), Fault> {
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
        let (from, tag) = (Rank(envelope.source), Tags::Is(Tag(envelope.tag)));
        let source = Source::Rank(self.messages.status(envelope, 0).source);
        let wait = || self.messages.wait(source, format!("a receive with {tag} from {source}"));
        let mut posted = Posted::new(self.messages.progress(), from, receive);
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

/// A slice.
impl<F: Fabric> Sink<F> for &mut [u8] {
    fn copy(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let len = self.len().min(bytes.len());
        self[..len].copy_from_slice(&bytes[..len]);
        Ok(())
    }

    fn copy_registered(&mut self, progress: &Progress<F>, memory: Registered<F>, len: u64) -> Result<(), Fault> {
        let len = self.len().min(usize::try_from(len).unwrap_or(usize::MAX));
        memory.read(progress, 0, &mut self[..len])?;
        progress.keep([memory]);
        Ok(())
    }

    async fn read(&mut self, progress: &Progress<F>, announced: &Announced) -> Result<(), Fault> {
        let len = self.len().min(usize::try_from(announced.key.len).unwrap_or(usize::MAX));
        get(progress, announced, 0, &mut self[..len]).await
    }
}

/// The elements of a message, which are allocated when it is here or is read.
pub(crate) struct AllOf<T> {
    pub(crate) len: usize,
    pub(crate) elements: Vec<T>,
}

impl<T: Payload> AllOf<T> {
    fn allocate(&mut self) -> Result<&mut [u8], Fault> {
        let elements = bytemuck::allocation::try_zeroed_slice_box(self.len);
        self.elements = elements.map_err(|()| Fault::new(FaultKind::NoMemory))?.into_vec();
        Ok(bytemuck::cast_slice_mut(&mut self.elements))
    }
}

impl<T: Payload, F: Fabric> Sink<F> for AllOf<T> {
    fn copy(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.allocate()?.copy_from_slice(bytes);
        Ok(())
    }

    fn take(&mut self, elements: Box<dyn Elements>) -> Result<Option<Box<dyn Elements>>, Fault> {
        match into_vec(elements) {
            Ok(elements) => self.elements = elements,
            Err(other) => {
                self.allocate()?.copy_from_slice(other.bytes());
                return Ok(Some(other));
            }
        }
        Ok(None)
    }

    fn copy_registered(&mut self, progress: &Progress<F>, memory: Registered<F>, len: u64) -> Result<(), Fault> {
        Sink::copy_registered(&mut self.allocate()?, progress, memory, len)
    }

    async fn read(&mut self, progress: &Progress<F>, announced: &Announced) -> Result<(), Fault> {
        get(progress, announced, 0, self.allocate()?).await
    }
}

/// The places of a shape.
impl<F: Fabric> Sink<F> for Places<'_> {
    fn copy(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.unpack(&bytes[..self.len.min(bytes.len())]);
        Ok(())
    }

    fn copy_registered(&mut self, progress: &Progress<F>, memory: Registered<F>, len: u64) -> Result<(), Fault> {
        let (mut chunk, len) = ([0; CHUNK], len.min(self.len as u64));
        for at in (0..len).step_by(CHUNK) {
            let chunk = &mut chunk[..CHUNK.min((len - at) as usize)];
            memory.read(progress, at, chunk)?;
            self.unpack(chunk);
        }
        progress.keep([memory]);
        Ok(())
    }

    /// In chunks where that costs nothing more.
    async fn read(&mut self, progress: &Progress<F>, announced: &Announced) -> Result<(), Fault> {
        let len = self.len.min(usize::try_from(announced.key.len).unwrap_or(usize::MAX));
        let is_whole = announced.by == Protocol::Offered || !progress.fabric.capabilities().completes_at_post;
        let chunk = if is_whole { len } else { len.min(CHUNK) };
        let packed = bytemuck::allocation::try_zeroed_slice_box(chunk);
        let mut packed: Box<[u8]> = packed.map_err(|()| Fault::new(FaultKind::NoMemory))?;
        for at in (0..len.max(1)).step_by(CHUNK.max(chunk)) {
            let packed = &mut packed[..chunk.min(len - at)];
            get(progress, announced, at, packed).await?;
            self.unpack(packed);
        }
        Ok(())
    }
}
