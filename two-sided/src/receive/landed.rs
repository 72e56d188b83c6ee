//! A message that came before its receive was posted.

use onesided_fabric::Fabric;

use super::Room;
use crate::engine::Landed;
use crate::{Error, Messages, Status};

/// A slice with a message that came before its receive was posted, until it is taken or given back.
pub(super) struct LandedIn<'m, F: Fabric> {
    pub(super) messages: &'m Messages<F>,
    pub(super) landed: Landed,
    pub(super) room: Room<'m>,
}

impl<F: Fabric> LandedIn<'_, F> {
    #[inline]
    pub(super) fn status(&self) -> Result<Status, Error> {
        self.room.fits(self.messages.landed(&self.landed))
    }

    /// Takes the message.
    pub(super) fn taken(self) -> Result<Status, Error> {
        let status = self.status();
        std::mem::forget(self); // a slice and no places: there is nothing else to drop
        status
    }
}

impl<F: Fabric> Drop for LandedIn<'_, F> {
    fn drop(&mut self) {
        self.messages.progress().with(|engine| engine.give_back_landed(self.landed, self.room.into));
    }
}
