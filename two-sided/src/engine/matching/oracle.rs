//! A matcher that is two plain lists.

use super::{Envelope, Pattern};

/// Posted receives and unexpected messages, by number, found by scans: what MPI's text says, word by
/// word.
#[derive(Default)]
pub(crate) struct Oracle {
    pub(crate) posted: Vec<(Pattern, u32)>,
    pub(crate) unexpected: Vec<(Envelope, u32)>,
}

impl Oracle {
    pub(crate) fn take_posted(&mut self, envelope: Envelope) -> Option<u32> {
        let at = self.posted.iter().position(|(pattern, _)| pattern.fits(envelope))?;
        Some(self.posted.remove(at).1)
    }

    /// Messages are numbered by arrival.
    pub(crate) fn keep(&mut self, envelope: Envelope, message: u32) {
        let at = self.unexpected.partition_point(|(_, earlier)| *earlier < message);
        self.unexpected.insert(at, (envelope, message));
    }

    pub(crate) fn find(&self, pattern: Pattern) -> Option<usize> {
        self.unexpected.iter().position(|(envelope, _)| pattern.fits(*envelope))
    }
}
