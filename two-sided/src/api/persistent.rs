//! Sends and receives that are started again and again.

use onesided_fabric::remote_memory::Rank;
use onesided_fabric::{Fabric, debug};

use crate::api::destination::Room;
use crate::api::send::Content;
use crate::engine::matching::Pattern;
use crate::engine::source::has_size;
use crate::{Error, Messages, Payload, Receive, RecvInto, SendRequest, Source, Tag, Tags};

/// A receiver and a tag, to be sent to again and again. See [`Messages::send_init`].
#[must_use = "it sends when it is started"]
pub struct PersistentSend<'m, F: Fabric = onesided_fabric::Any> {
    messages: &'m Messages<F>,
    rank: Rank,
    to: u32,
    tag: Tag,
}

/// What a receive takes, to be received again and again. See [`Messages::recv_init`].
#[must_use = "it receives when it is started"]
pub struct PersistentRecv<'m, F: Fabric = onesided_fabric::Any> {
    messages: &'m Messages<F>,
    pattern: Pattern,
    wanted: (Source, Tags),
}

impl<F: Fabric> Messages<F> {
    /// A send to be started again and again (`MPI_Send_init`: MPI-4.1, section 3.9). The rank is
    /// checked here, and a [start](PersistentSend::start) does not look it up again;
    /// [`start_all`](PersistentSend::start_all) does. Nothing is sent before a start, which is
    /// given the elements: a program may change them between two starts, or send others.
    ///
    /// ```
    /// use onesided_two_sided::{Messages, PersistentRecv, PersistentSend, Tag};
    ///
    /// // A halo of one element at each side, around a ring of blocks.
    /// onesided_fabric::threads(3, |world| {
    ///     let messages = Messages::new(&world).wait()?;
    ///     let (left, right) = ((world.rank() + 2) % 3, (world.rank() + 1) % 3);
    ///     let sends = [messages.send_init(left, Tag(0))?, messages.send_init(right, Tag(1))?];
    ///     let receives = [messages.recv_init(right, Tag(0))?, messages.recv_init(left, Tag(1))?];
    ///     let mut block = [f64::from(world.rank()); 10];
    ///     for _ in 0..100 {
    ///         let (first, last) = ([block[1]], [block[8]]);
    ///         let (from_left, rest) = block.split_at_mut(1);
    ///         let from_right = &mut rest[8..];
    ///         let received = PersistentRecv::start_all(receives.iter().zip([from_right, from_left]));
    ///         let sent = PersistentSend::start_all(sends.iter().zip([&first[..], &last]));
    ///         world.wait_all(received).into_iter().collect::<Result<Vec<_>, _>>()?;
    ///         world.wait_all(sent).into_iter().collect::<Result<(), _>>()?;
    ///         let old = block;
    ///         (1..9).for_each(|at| block[at] = (old[at - 1] + old[at] + old[at + 1]) / 3.0);
    ///     }
    ///     assert!((block[1] - 1.0).abs() < 0.5, "it is levelled out");
    ///     Ok(())
    /// })
    /// .unwrap()
    /// .into_iter()
    /// .collect::<Result<(), onesided_two_sided::Error>>()
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::Rank`].
    pub fn send_init(&self, to: u32, tag: Tag) -> Result<PersistentSend<'_, F>, Error> {
        Ok(PersistentSend { messages: self, rank: self.rank("send", to).map_err(|error| *error)?, to, tag })
    }

    /// A receive to be started again and again (`MPI_Recv_init`: MPI-4.1, section 3.9), from a rank
    /// or any, with a tag or any. The rank is checked here, and a [start](PersistentRecv::start)
    /// does not look it up again; [`start_all`](PersistentRecv::start_all) does. Nothing is posted
    /// before a start, which is given the slice.
    ///
    /// # Errors
    /// [`Error::Rank`].
    pub fn recv_init(&self, from: impl Into<Source>, tag: impl Into<Tags>) -> Result<PersistentRecv<'_, F>, Error> {
        let wanted = (from.into(), tag.into());
        Ok(PersistentRecv { messages: self, pattern: self.pattern("recv", wanted).map_err(|error| *error)?, wanted })
    }
}

impl<'m, F: Fabric> PersistentSend<'m, F> {
    /// Sends elements, as [`Messages::send`] (`MPI_Start`). It may be started again before its last
    /// message is on its way, unlike in MPI.
    ///
    /// # Errors
    /// From the handle: [`Error::Send`], as of [`Messages::send`].
    ///
    /// # Cancel safety
    /// As [`Messages::send`].
    #[inline]
    pub fn start<T: Payload>(&self, elements: &'m [T]) -> SendRequest<'m, F> {
        SendRequest::start(self.messages, Ok(self.rank), Ok(Content::of(elements)), (self.to, self.tag, false))
    }

    /// Starts several in their order, each with its elements (`MPI_Startall`), as
    /// [`Messages::send_all`] those next to one another of one communicator.
    ///
    /// # Errors
    /// From each handle, as of [`start`](Self::start).
    ///
    /// # Cancel safety
    /// As [`Messages::send`].
    pub fn start_all<'a, T: Payload>(sends: impl IntoIterator<Item = (&'a Self, &'a [T])>) -> Vec<SendRequest<'a, F>>
    where
        'm: 'a,
    {
        const { has_size::<T>() }
        let sends =
            sends.into_iter().map(|(send, all)| (send.messages, (bytemuck::cast_slice(all), send.to, send.tag)));
        by_communicator(sends, |messages, run| SendRequest::start_all(messages, &run))
    }
}

impl<'m, F: Fabric> PersistentRecv<'m, F> {
    /// Posts a receive into a slice, as [`Messages::recv_into`] (`MPI_Start`). It may be started
    /// again before its last message is here, unlike in MPI; the receives are matched in the order
    /// of the starts.
    ///
    /// # Errors
    /// From the handle, as of [`Messages::recv_into`], but for [`Error::Rank`].
    ///
    /// # Cancel safety
    /// As [`Messages::recv_into`].
    #[inline]
    pub fn start<T: Payload>(&self, into: &'m mut [T]) -> RecvInto<'m, F> {
        Receive::start(self.messages, Room::of(into), self.wanted, Ok(self.pattern))
    }

    /// Posts several in their order, each with its slice (`MPI_Startall`), as
    /// [`Messages::recv_all_into`] those next to one another of one communicator.
    ///
    /// # Errors
    /// From each handle, as of [`start`](Self::start).
    ///
    /// # Cancel safety
    /// As [`Messages::recv_into`].
    pub fn start_all<'a, T: Payload>(
        receives: impl IntoIterator<Item = (&'a Self, &'a mut [T])>,
    ) -> Vec<RecvInto<'a, F>>
    where
        'm: 'a,
    {
        let receives =
            receives.into_iter().map(|(one, into)| (one.messages, (Room::of(into), one.wanted.0, one.wanted.1)));
        by_communicator(receives, RecvInto::start_all)
    }
}

/// Starts those next to one another of one communicator together.
fn by_communicator<'a, F: Fabric, S, R>(
    all: impl Iterator<Item = (&'a Messages<F>, S)>,
    start: impl Fn(&'a Messages<F>, Vec<S>) -> Vec<R>,
) -> Vec<R> {
    let (mut requests, mut all) = (Vec::new(), all.peekable());
    let mut expected = all.size_hint().0; // most are of one communicator
    while let Some(&(messages, _)) = all.peek() {
        let mut run = Vec::with_capacity(std::mem::take(&mut expected));
        while let Some((_, next)) = all.next_if(|(of, _)| std::ptr::eq(*of, messages)) {
            run.push(next);
        }
        match requests.is_empty() {
            true => requests = start(messages, run),
            false => requests.extend(start(messages, run)),
        }
    }
    requests
}

debug!([F: Fabric] PersistentSend<'_, F>, |this| "sends with {} to rank {}", this.tag, this.to);

debug!([F: Fabric] PersistentRecv<'_, F>, |this| "receives with {} from {}", this.wanted.1, this.wanted.0);
