//! Messages out of and into registered memory.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Any, Fabric, UserMemory, debug};

use crate::api::destination::Destination;
use crate::api::send::{Content, What};
use crate::api::shaped::CHUNK;
use crate::api::taken::get;
use crate::driver::pieces::Pieces;
use crate::driver::progress::{Progress, Registered};
use crate::engine::elements::zeroed;
use crate::engine::matching::Pattern;
use crate::engine::source::has_size;
use crate::engine::{Announced, Direct, Posting};
use crate::{
    Error, Messages, Payload, Protocol, Receive, RecvBuffer, SendBuffer, SendRequest, Source, Status, Tag, Tags,
};

/// Elements in registered memory, for messages that no CPU copies where the fabric has a card: the
/// receiver's card reads them out of the sender's buffer into its own, or the sender's card writes
/// them there ([`Protocol`](crate::Protocol)).
/// On shared memory the CPU copies them. The memory is [the library's](Messages::buffer), registered
/// once, and used again by the next buffer when this one is dropped (leave pinned: woodall-2006), or
/// [the program's](Messages::buffer_of).
///
/// A buffer holds up to [`capacity`](Self::capacity) elements; the first [`len`](Self::len) are sent.
/// A send or a receive owns the buffer and returns it.
///
/// ```
/// use onesided_two_sided::{Messages, Tag};
///
/// onesided_fabric::threads(2, |world| {
///     let messages = Messages::new(&world).wait()?;
///     let mut buffer = messages.buffer(100_000)?;
///     if world.rank() == 0 {
///         buffer.write(0, &[1.5; 100_000]);
///         buffer = messages.send_buffer(buffer, 1, Tag(0)).wait()?;
///         buffer.write(0, &[2.5]); // it may be changed again
///     } else {
///         let (buffer, status) = messages.recv_buffer(buffer, 0, Tag(0)).wait()?;
///         assert_eq!((buffer.len(), status.source), (100_000, 0));
///         assert_eq!(buffer.read(0..2), [1.5; 2]);
///     }
///     Ok(())
/// })
/// .unwrap()
/// .into_iter()
/// .collect::<Result<(), onesided_two_sided::Error>>()
/// .unwrap();
/// ```
pub struct Buffer<T, F: Fabric = Any> {
    progress: Arc<Progress<F>>,
    /// Taken by the drop, and while a read into it is under way: that goes on when its future is
    /// dropped.
    memory: Option<Registered<F>>,
    capacity: usize,
    len: usize,
    element: PhantomData<fn() -> T>,
}

impl<T, F: Fabric> Drop for Buffer<T, F> {
    fn drop(&mut self) {
        self.progress.keep(self.memory.take());
    }
}

impl<T, F: Fabric> Buffer<T, F> {
    fn memory(&self) -> &Registered<F> {
        self.memory.as_ref().unwrap_or_else(|| unreachable!("its owner is the read"))
    }
}

fn copied(done: Result<(), Fault>) {
    done.unwrap_or_else(|fault| unreachable!("it is this rank's, and in range: {fault}"));
}

impl<T: Payload, F: Fabric> Buffer<T, F> {
    /// The number of elements that are sent, or were received.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The most elements that it may hold.
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Changes the number of elements. Those beyond the earlier number are whatever was there.
    ///
    /// # Panics
    /// If the capacity is less.
    pub const fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity, "the length exceeds the buffer's capacity");
        self.len = len;
    }

    /// A copy of the elements in a range.
    ///
    /// # Panics
    /// If the range exceeds the buffer, as an index of a slice does.
    #[must_use]
    pub fn read(&self, range: Range<usize>) -> Vec<T> {
        let mut elements = vec![T::zeroed(); range.len()];
        self.read_into(range.start, &mut elements);
        elements
    }

    /// Copies the elements from an index on.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    pub fn read_into(&self, at: usize, into: &mut [T]) {
        let at = self.offset(at, into.len());
        copied(self.memory().read(&self.progress, at, bytemuck::cast_slice_mut(into)));
    }

    /// Writes elements from an index on.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    pub fn write(&mut self, at: usize, elements: &[T]) {
        let at = self.offset(at, elements.len());
        copied(self.memory().write(&self.progress, at, bytemuck::cast_slice(elements)));
    }

    /// The elements: the [vector](Messages::buffer_of) that the buffer was made of, cut to its length, or
    /// else a copy.
    ///
    /// # Errors
    /// [`Error::Buffer`], only of the user's memory: `Refused`, the card does not end its access, and the
    /// memory is leaked; `TimedOut`, a peer is in the middle of an access to it that no message of this
    /// rank has, and it is freed or leaked.
    pub fn into_vec(self) -> Result<Vec<T>, Error> {
        let Some(memory) = self.take_back() else { return Ok(self.read(0..self.len)) };
        let len = self.len;
        memory?.into_vec().map_or_else(
            |memory| Ok(bytemuck::pod_collect_to_vec(&memory.bytes()[..len * size_of::<T>()])),
            |mut elements| {
                elements.truncate(len);
                Ok(elements)
            },
        )
    }

    /// The memory that the buffer was [made from](Messages::buffer_from).
    ///
    /// # Errors
    /// As of [`into_vec`](Self::into_vec); `Unsupported` if the library allocated it.
    pub fn into_memory(self) -> Result<UserMemory, Error> {
        self.take_back().unwrap_or_else(|| Err(self.error(Fault::new(FaultKind::Unsupported))))
    }

    fn take_back(&self) -> Option<Result<UserMemory, Error>> {
        Some(self.memory().take_back(&self.progress)?.map_err(|fault| self.error(fault)))
    }

    const fn error(&self, fault: Fault) -> Error {
        Error::Buffer { bytes: (self.capacity * size_of::<T>()) as u64, fault }
    }

    #[track_caller]
    fn offset(&self, at: usize, count: usize) -> u64 {
        let is_inside = at.checked_add(count).is_some_and(|end| end <= self.len);
        assert!(is_inside, "{count} elements at {at}: the buffer has {}", self.len);
        (at * size_of::<T>()) as u64
    }
}

impl<F: Fabric> Messages<F> {
    /// A buffer for so many elements, whose values are whatever was there. Where no more memory can be
    /// registered (`ulimit -l`), its messages go in packets, which both sides copy;
    /// [`registrations`](Self::registrations) counts that.
    ///
    /// # Errors
    /// [`Error::Buffer`]: there is no memory.
    pub fn buffer<T: Payload>(&self, capacity: usize) -> Result<Buffer<T, F>, Error> {
        const { has_size::<T>() }
        let bytes = (capacity as u64).saturating_mul(size_of::<T>() as u64);
        let memory = match bytes <= isize::MAX as u64 {
            true => self.memory_for(self.protocol_of_buffers(), bytes),
            false => Err(Fault::new(FaultKind::NoMemory)),
        };
        let memory = memory.map_err(|fault| Error::Buffer { bytes, fault: self.world().translate(fault) })?;
        Ok(self.buffer_over(memory, capacity))
    }

    /// A buffer of a vector's elements, which are not copied: messages go out of them and into them.
    /// [`into_vec`](Buffer::into_vec) returns the vector. The buffer owns it: no other code frees or
    /// changes it while a message moves, and its registration ends before it does. To register it takes
    /// as long as to move it, or longer: a buffer is to be used again. If it cannot be registered, its
    /// messages go in packets, and [`registrations`](Self::registrations) counts that.
    ///
    /// A vector whose length in bytes is no multiple of 8, and that has no capacity for the rest, is
    /// moved first. A request that fails, or is late, frees the elements. After a shorter message the vector
    /// has fewer.
    ///
    /// ```
    /// use onesided_two_sided::{Messages, Tag};
    ///
    /// onesided_fabric::threads(2, |world| {
    ///     let messages = Messages::new(&world).wait()?;
    ///     let mut field = vec![f64::from(world.rank()); 100_000];
    ///     for step in 0..4 {
    ///         field.iter_mut().for_each(|value| *value += 1.0);
    ///         let buffer = messages.buffer_of(field); // the program has it back below
    ///         let buffer = match world.rank() {
    ///             0 => messages.send_buffer(buffer, 1, Tag(step)).wait()?,
    ///             _ => messages.recv_buffer(buffer, 0, Tag(step)).wait()?.0,
    ///         };
    ///         field = buffer.into_vec()?;
    ///     }
    ///     assert_eq!(field, [4.0; 100_000]);
    ///     Ok(())
    /// })
    /// .unwrap()
    /// .into_iter()
    /// .collect::<Result<(), onesided_two_sided::Error>>()
    /// .unwrap();
    /// ```
    pub fn buffer_of<T: Payload>(&self, elements: Vec<T>) -> Buffer<T, F> {
        let len = elements.len();
        self.buffer_over_users(elements.into(), len)
    }

    /// The same of [memory that something else owns](UserMemory::from_raw_parts), such as a mapping, with
    /// as many elements as fit. [`into_memory`](Buffer::into_memory) returns it. Where the buffer is
    /// dropped, its owner is, possibly in another call of this rank: its drop may call nothing of this
    /// library.
    pub fn buffer_from<T: Payload>(&self, memory: UserMemory) -> Buffer<T, F> {
        let capacity = memory.len() / size_of::<T>().max(1);
        self.buffer_over_users(memory, capacity)
    }

    fn buffer_over_users<T: Payload>(&self, memory: UserMemory, capacity: usize) -> Buffer<T, F> {
        const { has_size::<T>() }
        self.buffer_over(Arc::new(Pieces::of_user(self.progress(), memory)), capacity)
    }

    fn buffer_over<T: Payload>(&self, memory: Registered<F>, capacity: usize) -> Buffer<T, F> {
        let progress = self.shared_progress();
        Buffer { progress, memory: Some(memory), capacity, len: capacity, element: PhantomData }
    }

    /// Sends the elements of a buffer (`MPI_Isend`). The call starts it. The handle returns the
    /// buffer when the receiver has read it, or at once if the message has at most 2 KiB or goes to this
    /// rank itself. Any receive may get it.
    ///
    /// # Errors
    /// As of [`send`](Self::send). The buffer is gone then: its memory stays until no peer reads it.
    ///
    /// # Cancel safety
    /// A dropped handle does not stop the message. Its failure is not reported, and the buffer is
    /// gone.
    pub fn send_buffer<T: Payload>(&self, buffer: Buffer<T, F>, to: u32, tag: Tag) -> SendBuffer<'_, T, F> {
        let content = Ok(Content::Registered(buffer.memory(), (buffer.len * size_of::<T>()) as u64));
        let (what, rank) = (What::of(&content, to, tag), self.rank("send", to));
        let started = content.and_then(|content| content.post(self, (self.context(), rank?), (what, false)));
        SendRequest::begun(self, what, started, buffer)
    }

    /// Receives the next message that fits (`MPI_Irecv`) into a buffer, which it may not exceed. A long
    /// one is read or written there, also while this rank waits for something else. The
    /// handle returns the buffer, with the message's [length](Buffer::len), and whose it is.
    ///
    /// # Errors
    /// As of [`recv_into`](Self::recv_into). The buffer is gone then.
    ///
    /// # Cancel safety
    /// A dropped handle cancels the receive, and the buffer is gone. A message that it had matched
    /// goes to the next receive that fits.
    pub fn recv_buffer<T: Payload>(
        &self,
        buffer: Buffer<T, F>,
        from: impl Into<Source>,
        tag: impl Into<Tags>,
    ) -> RecvBuffer<'_, T, F> {
        let wanted = (from.into(), tag.into());
        Receive::start(self, buffer, wanted, self.pattern("recv", wanted))
    }
}

impl<F: Fabric> Progress<F> {
    /// Copies the beginning of own memory.
    pub(crate) fn copy_own(&self, from: &Pieces<F>, into: &Pieces<F>, len: u64) -> Result<(), Fault> {
        let mut chunk = [0; CHUNK];
        for at in (0..len).step_by(CHUNK) {
            let chunk = &mut chunk[..(len - at).min(CHUNK as u64) as usize];
            from.read(self, at, chunk)?;
            into.write(self, at, chunk)?;
        }
        Ok(())
    }
}

impl<T: Payload, F: Fabric> Buffer<T, F> {
    fn room(&self) -> usize {
        self.capacity * size_of::<T>()
    }
}

#[expect(private_interfaces, reason = "nobody else calls it")]
impl<T: Payload, F: Fabric> Destination<F> for Buffer<T, F> {
    type Output = (Self, Status);

    fn memory(&self) -> Option<Registered<F>> {
        self.memory.clone()
    }

    fn post(
        progress: &Progress<F>,
        pattern: Pattern,
        direct: &mut Direct<'_>,
        memory: Option<Registered<F>>,
    ) -> Posting {
        progress.receive_moved(pattern, direct, (None, memory))
    }

    fn copy(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.memory().write(&self.progress, 0, &bytes[..bytes.len().min(self.room())])
    }

    /// Memory that has room for the buffer's capacity becomes the buffer's.
    fn copy_registered(&mut self, progress: &Progress<F>, from: Registered<F>, len: u64) -> Result<(), Fault> {
        let (memory, room) = (self.memory(), self.room() as u64);
        if Arc::ptr_eq(&from, memory) {
            return Ok(());
        }
        if from.len() < room || from.is_plain() || from.is_users() || memory.is_users() {
            progress.copy_own(&from, memory, len.min(room))?;
            progress.keep([from]);
        } else {
            progress.keep(self.memory.replace(from));
        }
        Ok(())
    }

    async fn read(&mut self, progress: &Progress<F>, announced: &Announced) -> Result<(), Fault> {
        let len = announced.key.len.min(self.room() as u64);
        match announced.by {
            _ if len == 0 => Ok(()),
            Protocol::Offered => {
                // The kernel copies out of the sender's slice, and not into what peers have mapped.
                let mut copy = zeroed(len as usize)?;
                get(progress, announced, 0, &mut copy).await?;
                self.memory().write(progress, 0, &copy)
            }
            _ => {
                let (from, memory) = (progress.open(&announced.key)?, Arc::clone(self.memory()));
                self.memory = None;
                let (reads, mut read) = memory.transfers(progress, 0..len, |into, offset, there, len| {
                    progress.fabric.rdma_read((&from, there), (into, offset), len)
                });
                for next in reads {
                    read = next.await.and(read);
                }
                self.memory = Some(memory);
                read
            }
        }
    }

    fn received(&mut self, status: Status) -> Result<Self::Output, Error> {
        let (progress, capacity) = (Arc::clone(&self.progress), self.capacity);
        let len = status.fits(self.room(), size_of::<T>())?.bytes as usize / size_of::<T>();
        Ok((Self { progress, memory: self.memory.take(), capacity, len, element: PhantomData }, status))
    }

    /// The bytes of the message may still come: the memory is not used again.
    fn fail(&mut self) {
        self.memory = None;
    }
}

debug!([T, F: Fabric] Buffer<T, F>, |this| "Buffer {{ len: {}, capacity: {}, .. }}", this.len, this.capacity);
