//! Where the message of a receive goes.

#![expect(private_interfaces, reason = "nobody else calls or implements it")]

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::Fault;
use onesided_layouts::{Cursor, Shape};

use crate::api::shaped::{self, CHUNK};
use crate::api::taken::get;
use crate::driver::progress::{Progress, Registered};
use crate::engine::elements::{Elements, allocate, into_vec, zeroed};
use crate::engine::matching::Pattern;
use crate::engine::source::has_size;
use crate::engine::{Announced, Direct, Posting};
use crate::{Error, Payload, Protocol, Status};

/// What a message is received into: all of it, or its beginning.
pub trait Destination<F: Fabric>: Send {
    /// What the receive returns.
    type Output: Send;

    /// The slice that an eager message goes to at once; the whole of the destination.
    fn slice(&mut self) -> Option<&mut [u8]> {
        None
    }

    /// Its registered memory.
    #[inline]
    fn memory(&self) -> Option<Registered<F>> {
        None
    }

    /// Posts a receive for it: its memory says where a message goes that is moved before it is waited for.
    #[inline]
    fn post(progress: &Progress<F>, pattern: Pattern, direct: &mut Direct<'_>, _: Option<Registered<F>>) -> Posting {
        progress.receive_into(pattern, direct)
    }

    /// Checks a message before anything is received of it.
    fn admits(&mut self, _: Status) -> Result<(), Error> {
        Ok(())
    }

    /// Takes the bytes of a message that is here.
    fn copy(&mut self, bytes: &[u8]) -> Result<(), Fault>;

    /// The same of elements, which it may have.
    fn take(&mut self, elements: Box<dyn Elements>) -> Result<Option<Box<dyn Elements>>, Fault> {
        self.copy(elements.bytes()).map(|()| Some(elements))
    }

    /// Takes a message of so many bytes that is in registered memory.
    fn copy_registered(&mut self, progress: &Progress<F>, memory: Registered<F>, len: u64) -> Result<(), Fault>;

    /// Reads an announced message.
    fn read(&mut self, progress: &Progress<F>, announced: &Announced)
    -> impl Future<Output = Result<(), Fault>> + Send;

    /// The outcome of a receive whose message it has.
    fn received(&mut self, status: Status) -> Result<Self::Output, Error>;

    /// The receive has failed.
    fn fail(&mut self) {}
}

/// A slice, or the elements of it that a shape selects.
#[derive(Debug)]
pub struct Room<'m> {
    into: &'m mut [u8],
    /// How many bytes it takes.
    len: usize,
    element: usize,
    /// Of a shape. Boxed, to keep the handle small.
    cursor: Option<Box<Cursor<'m>>>,
}

impl<'m> Room<'m> {
    #[inline]
    pub(crate) fn of<T: Payload>(into: &'m mut [T]) -> Self {
        const { has_size::<T>() }
        let into: &mut [u8] = bytemuck::cast_slice_mut(into);
        Self { len: into.len(), into, element: size_of::<T>(), cursor: None }
    }

    /// The elements that a shape selects, and whether the slice has them all.
    pub(crate) fn shaped<T: Payload>(into: &'m mut [T], shape: Shape<'m>) -> (Self, Result<(), Box<Error>>) {
        if let Some(run) = shape.contiguous().filter(|run| run.end <= into.len()) {
            return (Self::of(&mut into[run]), Ok(()));
        }
        let mut room = Self { len: shaped::bytes(shape, size_of::<T>()), ..Self::of(into) };
        let cursor = shaped::cursor("recv_shaped", shape, (room.element, room.into.len()));
        let fits = cursor.map(|cursor| room.cursor = Some(Box::new(cursor)));
        (room, fits)
    }

    /// Takes the next bytes of a shape.
    fn unpack(&mut self, packed: &[u8]) {
        if let Some(cursor) = &mut self.cursor {
            cursor.unpack(packed, self.into);
        }
    }
}

impl<F: Fabric> Destination<F> for Room<'_> {
    type Output = Status;

    #[inline]
    fn slice(&mut self) -> Option<&mut [u8]> {
        self.cursor.is_none().then_some(&mut *self.into)
    }

    fn copy(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let bytes = &bytes[..self.len.min(bytes.len())];
        match Destination::<F>::slice(self) {
            Some(slice) => slice[..bytes.len()].copy_from_slice(bytes),
            None => self.unpack(bytes),
        }
        Ok(())
    }

    fn copy_registered(&mut self, progress: &Progress<F>, memory: Registered<F>, len: u64) -> Result<(), Fault> {
        let len = self.len.min(usize::try_from(len).unwrap_or(usize::MAX));
        match Destination::<F>::slice(self) {
            Some(slice) => memory.read(progress, 0, &mut slice[..len])?,
            None => {
                let mut chunk = [0; CHUNK];
                for at in (0..len).step_by(CHUNK) {
                    let chunk = &mut chunk[..CHUNK.min(len - at)];
                    memory.read(progress, at as u64, chunk)?;
                    self.unpack(chunk);
                }
            }
        }
        progress.keep([memory]);
        Ok(())
    }

    /// Of a shape in chunks, where that costs nothing more.
    async fn read(&mut self, progress: &Progress<F>, announced: &Announced) -> Result<(), Fault> {
        let len = self.len.min(usize::try_from(announced.key.len).unwrap_or(usize::MAX));
        if let Some(slice) = Destination::<F>::slice(self) {
            return get(progress, announced, 0, &mut slice[..len]).await;
        }
        let is_whole = announced.by == Protocol::Offered || !progress.fabric.capabilities().completes_at_post;
        let chunk = if is_whole { len } else { len.min(CHUNK) };
        let mut packed = zeroed(chunk)?;
        for at in (0..len.max(1)).step_by(CHUNK.max(chunk)) {
            let packed = &mut packed[..chunk.min(len - at)];
            get(progress, announced, at, packed).await?;
            self.unpack(packed);
        }
        Ok(())
    }

    #[inline]
    fn received(&mut self, status: Status) -> Result<Status, Error> {
        status.fits(self.len, self.element)
    }
}

/// The elements of a message, which are allocated when it is here or is read.
#[derive(Debug)]
pub struct AllOf<T> {
    len: usize,
    elements: Vec<T>,
}

impl<T: Payload> AllOf<T> {
    pub(crate) const fn new() -> Self {
        const { has_size::<T>() }
        Self { len: 0, elements: Vec::new() }
    }

    fn allocate(&mut self) -> Result<&mut [u8], Fault> {
        self.elements = zeroed(self.len)?;
        Ok(bytemuck::cast_slice_mut(&mut self.elements))
    }
}

impl<T: Payload, F: Fabric> Destination<F> for AllOf<T> {
    type Output = (Vec<T>, Status);

    fn post(progress: &Progress<F>, pattern: Pattern, direct: &mut Direct<'_>, _: Option<Registered<F>>) -> Posting {
        progress.receive_moved(pattern, direct, (Some(allocate::<T>), None))
    }

    fn admits(&mut self, status: Status) -> Result<(), Error> {
        let element = size_of::<T>();
        self.len = usize::try_from(status.bytes / element as u64).unwrap_or(usize::MAX);
        match status.bytes.is_multiple_of(element as u64) {
            true => Ok(()),
            false => Err(Error::Length { status, room: None, element }),
        }
    }

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
        Room::of(self.allocate()?).copy_registered(progress, memory, len)
    }

    async fn read(&mut self, progress: &Progress<F>, announced: &Announced) -> Result<(), Fault> {
        get(progress, announced, 0, self.allocate()?).await
    }

    fn received(&mut self, status: Status) -> Result<Self::Output, Error> {
        Ok((std::mem::take(&mut self.elements), status))
    }
}

impl Status {
    /// Whether the message is whole elements for which `room` bytes suffice.
    #[inline]
    pub(crate) fn fits(self, room: usize, element: usize) -> Result<Self, Error> {
        // A length of the right type is the usual one, and a division is slow.
        let is_whole = self.bytes == room as u64 || self.bytes.is_multiple_of(element as u64);
        match self.bytes <= room as u64 && is_whole {
            true => Ok(self),
            false => Err(Error::Length { status: self, room: Some(room / element), element }),
        }
    }
}
