//! Messages that are started together.

use onesided_fabric::Fabric;

use crate::api::destination::Room;
use crate::engine::source::has_size;
use crate::{Messages, Payload, RecvInto, SendRequest, Source, Tag, Tags};

impl<F: Fabric> Messages<F> {
    /// [Sends](Self::send) messages in their order: elements, receiver and tag of each. They share what
    /// they can: the engine is locked once; messages of at most 128 bytes next to one another, to the same
    /// rank, go in packets of up to 504 bytes (coalescing: Koop et al., CCGrid 2007); and a card
    /// gets lists of up to 16 packets with one doorbell (`FI_MORE` of libfabric). `MPI_Startall` is
    /// [`start_all`](crate::PersistentSend::start_all), of persistent requests.
    /// [`wait_all`](onesided_fabric::World::wait_all) waits for them.
    ///
    /// ```
    /// use onesided_two_sided::{Messages, Tag};
    ///
    /// onesided_fabric::threads(2, |world| {
    ///     let messages = Messages::new(&world).wait()?;
    ///     let mut rows = [[world.rank(); 3]; 64];
    ///     if world.rank() == 0 {
    ///         let sends = messages.send_all(rows.iter().map(|row| (&row[..], 1, Tag(0))));
    ///         world.wait_all(sends).into_iter().collect::<Result<Vec<()>, _>>()?;
    ///     } else {
    ///         let receives = messages.recv_all_into(rows.iter_mut().map(|row| (&mut row[..], 0, Tag(0))));
    ///         let all = world.wait_all(receives).into_iter().collect::<Result<Vec<_>, _>>()?;
    ///         assert!(all.iter().all(|status| status.bytes == 12));
    ///         assert_eq!(rows, [[0; 3]; 64]);
    ///     }
    ///     Ok(())
    /// })
    /// .unwrap()
    /// .into_iter()
    /// .collect::<Result<(), onesided_two_sided::Error>>()
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// From each handle, as of [`send`](Self::send).
    ///
    /// # Cancel safety
    /// As [`send`](Self::send).
    pub fn send_all<'m, T: Payload>(
        &'m self,
        messages: impl IntoIterator<Item = (&'m [T], u32, Tag)>,
    ) -> Vec<SendRequest<'m, F>> {
        const { has_size::<T>() }
        let bytes = |(elements, to, tag): (&'m [T], _, _)| (bytemuck::cast_slice(elements), to, tag);
        SendRequest::start_all(self, &messages.into_iter().map(bytes).collect::<Vec<_>>())
    }

    /// Posts receives in their order: into a slice, from a rank or any, with a tag or any, as
    /// [`recv_into`](Self::recv_into) each. The engine is locked once.
    ///
    /// # Errors
    /// From each handle, as of [`recv_into`](Self::recv_into).
    ///
    /// # Cancel safety
    /// As [`recv_into`](Self::recv_into).
    pub fn recv_all_into<'m, T: Payload, S: Into<Source>, G: Into<Tags>>(
        &'m self,
        receives: impl IntoIterator<Item = (&'m mut [T], S, G)>,
    ) -> Vec<RecvInto<'m, F>> {
        let receive = |(into, from, tag): (_, S, G)| (Room::of(into), from.into(), tag.into());
        RecvInto::start_all(self, receives.into_iter().map(receive).collect::<Vec<_>>())
    }
}
