//! Registered memory of messages, whole or in pieces. A piece is registered when a transfer needs it,
//! while the pieces before it move (the pipeline protocol: woodall-2006).

use std::iter;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Fabric, Segment, SegmentKey, UserMemory, debug, lock};

use crate::driver::memory::allocated;
use crate::driver::progress::Progress;
use crate::engine::SHORTEST;

/// The longest piece, if there are not too many.
const LONGEST: u64 = 512 << 10;
/// About how many pieces a message has at most: a rank has some thousand registered regions.
const MOST: u64 = 64;

/// The length of the piece from an offset on. The first one is short, because nothing moves while it
/// is registered, the last one because nothing is registered while it moves; those between are long,
/// because each costs a packet and a work request.
fn piece_at(at: u64, len: u64) -> u64 {
    let rest = len - at;
    let half = (rest / 2).next_multiple_of(SHORTEST);
    at.min(half).clamp(SHORTEST, LONGEST.max((len / MOST).next_power_of_two())).min(rest)
}

/// Memory of this rank for one message.
pub(crate) struct Pieces<F: Fabric> {
    pieces: Vec<Piece<F>>,
    /// Where each of them ends.
    ends: Vec<u64>,
    /// Whether they are the user's memory, which no other message gets.
    is_users: bool,
}

pub(crate) struct Piece<F: Fabric> {
    len: u64,
    /// Its registered memory, or why it could not be registered.
    segment: OnceLock<Result<F::Segment, Fault>>,
    /// The bytes before it was registered, or because it could not be: the user's, or what was written;
    /// `None`: nothing was. Locked while it is being registered.
    plain: Mutex<Option<UserMemory>>,
}

impl<F: Fabric> Piece<F> {
    const fn unregistered(len: u64) -> Self {
        Self { len, segment: OnceLock::new(), plain: Mutex::new(None) }
    }

    /// Its registered memory.
    fn registered(&self, on: &Progress<F>) -> Result<&F::Segment, Fault> {
        let registered = match self.segment.get() {
            Some(registered) => registered,
            None => {
                let plain = &mut *lock(&self.plain);
                self.segment.get_or_init(|| {
                    let registered = on.register(self.len, plain.take(), |bytes| match bytes {
                        None => on.fabric.allocate(self.len).map_err(|error| (None, error.fault())),
                        // Whatever the reason, it is sent in packets.
                        Some(bytes) => {
                            register(on, bytes).map_err(|(bytes, _)| (Some(bytes), Fault::new(FaultKind::NoMemory)))
                        }
                    });
                    registered.map_err(|(bytes, fault)| {
                        *plain = bytes;
                        fault
                    })
                })
            }
        };
        registered.as_ref().map_err(|fault| *fault)
    }

    /// Where its bytes are: in registered memory, or not.
    fn place(&self) -> Result<&F::Segment, MutexGuard<'_, Option<UserMemory>>> {
        let registered = || self.segment.get()?.as_ref().ok();
        if let Some(segment) = registered() {
            return Ok(segment);
        }
        let plain = lock(&self.plain);
        registered().ok_or(plain) // it was being registered
    }

    fn write(&self, on: &Progress<F>, at: u64, bytes: &[u8]) -> Result<(), Fault> {
        let mut plain = match self.place() {
            Ok(segment) => return on.fabric.write_direct(segment, at, bytes),
            Err(plain) => plain,
        };
        let mut memory = plain.take().map_or_else(|| words(self.len), Ok)?;
        memory.bytes_mut()[at as usize..][..bytes.len()].copy_from_slice(bytes);
        *plain = Some(memory);
        Ok(())
    }

    fn read(&self, on: &Progress<F>, at: u64, into: &mut [u8]) -> Result<(), Fault> {
        match self.place() {
            Ok(segment) => return on.fabric.read_direct(segment, at, into),
            Err(plain) => match &*plain {
                Some(memory) => into.copy_from_slice(&memory.bytes()[at as usize..][..into.len()]),
                None => into.fill(0),
            },
        }
        Ok(())
    }
}

/// At least so many bytes, which are 0.
fn words(len: u64) -> Result<UserMemory, Fault> {
    let words =
        bytemuck::allocation::try_zeroed_slice_box::<u64>(usize::try_from(len.div_ceil(8)).unwrap_or(usize::MAX));
    Ok(words.map_err(|()| Fault::new(FaultKind::NoMemory))?.into())
}

/// Registers bytes, which come back with the fault.
fn register<F: Fabric>(on: &Progress<F>, bytes: UserMemory) -> Result<F::Segment, (UserMemory, Fault)> {
    let refused = Arc::new(Mutex::new(None));
    let place = Arc::downgrade(&refused);
    let bytes = bytes.returned(move |bytes| {
        if let Some(place) = place.upgrade() {
            *lock(&place) = Some(bytes);
        }
    });
    on.fabric.register(bytes).map_err(|error| {
        let bytes = lock(&refused).take();
        (bytes.expect("a fabric drops memory that it refuses"), error.fault())
    })
}

impl<F: Fabric> Pieces<F> {
    /// Memory that is registered as a whole.
    pub(crate) fn whole(segment: F::Segment) -> Self {
        let len = segment.len();
        let piece = Piece { len, segment: OnceLock::from(Ok(segment)), plain: Mutex::default() };
        Self { pieces: vec![piece], ends: vec![len], is_users: false }
    }

    /// The user's memory, registered if it can be.
    pub(crate) fn of_user(on: &Progress<F>, memory: UserMemory) -> Self {
        let len = memory.len() as u64;
        let piece = Piece { len, segment: OnceLock::new(), plain: Mutex::new(Some(memory)) };
        if len > 0 {
            let _ = piece.registered(on);
        }
        Self { pieces: vec![piece], ends: vec![len], is_users: true }
    }

    /// Memory of at least so many bytes. `registered` has a piece of a length, if there is one.
    pub(crate) fn cut(len: u64, mut registered: impl FnMut(u64) -> Option<Piece<F>>) -> Self {
        let (mut pieces, mut ends, mut at) = (Vec::new(), Vec::new(), 0);
        while at < len {
            // At least a page: what is shorter is used for other things.
            let next = allocated(piece_at(at, len).max(4 << 10));
            pieces.push(registered(next).unwrap_or_else(|| Piece::unregistered(next)));
            at += next;
            ends.push(at);
        }
        Self { pieces, ends, is_users: false }
    }

    /// Bytes that are not registered, now or later; their number is a multiple of 8.
    pub(crate) fn plain(bytes: Vec<u8>) -> Self {
        let (len, segment) = (bytes.len() as u64, OnceLock::from(Err(Fault::new(FaultKind::NoMemory))));
        let piece = Piece { len, segment, plain: Mutex::new(Some(bytes.into())) };
        Self { pieces: vec![piece], ends: vec![len], is_users: false }
    }

    /// The bytes that it was [made](Self::plain) of.
    pub(crate) fn take_bytes(&mut self) -> Option<Vec<u8>> {
        lock(&self.pieces.first()?.plain).take()?.into_vec().ok()
    }

    /// Whether it could not be registered.
    pub(crate) fn is_plain(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece.segment.get(), Some(Err(_))))
    }

    pub(crate) const fn is_users(&self) -> bool {
        self.is_users
    }

    /// Gives the user's memory back; `None`: it is the library's.
    pub(crate) fn take_back(&self, on: &Progress<F>) -> Option<Result<UserMemory, Fault>> {
        let piece = self.pieces.first().filter(|_| self.is_users)?;
        Some(match piece.place() {
            Ok(segment) => {
                let memory =
                    on.fabric.reclaim(segment).and_then(|memory| memory.ok_or(Fault::new(FaultKind::TimedOut)));
                memory.map(UserMemory::not_returned) // by `register`
            }
            Err(mut plain) => plain.take().ok_or(Fault::new(FaultKind::Closed)),
        })
    }

    /// The length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Whether it is registered as a whole.
    pub(crate) fn is_whole(&self) -> bool {
        self.segment().is_ok()
    }

    /// Whether a message of so many bytes may be moved to it as a whole.
    pub(crate) fn has_room(&self, len: u64) -> bool {
        self.len() >= len && self.is_whole()
    }

    /// Its segment, if it is registered as a whole.
    pub(crate) fn segment(&self) -> Result<&F::Segment, Fault> {
        match &*self.pieces {
            [Piece { segment, .. }] => segment.get().and_then(|segment| segment.as_ref().ok()),
            _ => None,
        }
        .ok_or(Fault::new(FaultKind::NoMemory))
    }

    /// The pieces that a range of bytes lies in: each with an offset in it, and a length.
    fn runs(&self, Range { start: mut at, end }: Range<u64>) -> impl Iterator<Item = (&Piece<F>, u64, u64)> {
        let mut index = self.ends.partition_point(|end| *end <= at);
        iter::from_fn(move || {
            let piece = self.pieces.get(index).filter(|_| at < end)?;
            let (offset, len) = (at - (self.ends[index] - piece.len), self.ends[index].min(end) - at);
            index += 1;
            at += len;
            Some((piece, offset, len))
        })
    }

    /// Its pieces, each as a whole.
    pub(crate) fn apart(self) -> impl Iterator<Item = Self> {
        let registered = self.pieces.into_iter().filter(|piece| matches!(piece.segment.get(), Some(Ok(_))));
        registered.map(|piece| Self { ends: vec![piece.len], pieces: vec![piece], is_users: false })
    }

    pub(crate) fn into_piece(mut self) -> Option<Piece<F>> {
        self.pieces.pop().filter(|_| self.pieces.is_empty())
    }

    /// Registers the piece that an offset lies in, if it is not registered. The transfer that needs it
    /// reports a failure.
    pub(crate) fn prepare(&self, on: &Progress<F>, at: u64) {
        if let Some((piece, ..)) = self.runs(at..self.len()).next() {
            let _ = piece.registered(on);
        }
    }

    /// The key of what lies from an offset on in one piece.
    pub(crate) fn key(&self, on: &Progress<F>, range: Range<u64>) -> Result<SegmentKey, Fault> {
        match self.runs(range).next() {
            Some((piece, 0, len)) => Ok(SegmentKey { len, ..piece.registered(on)?.key() }),
            Some(_) => Err(Fault::of(FaultKind::OutOfRange, on.fabric.rank())), // they are exposed one after the other
            None => Ok(SegmentKey { len: 0, ..self.pieces[0].registered(on)?.key() }),
        }
    }

    /// Transfers between a range and other memory: `begin` is given registered memory, an offset in
    /// it and one in the range, and a length. Those that were begun, and why the others were not.
    pub(crate) fn transfers<T>(
        &self,
        on: &Progress<F>,
        range: Range<u64>,
        mut begin: impl FnMut(&F::Segment, u64, u64, u64) -> T,
    ) -> (Vec<T>, Result<(), Fault>) {
        let (mut begun, mut there) = (Vec::new(), 0);
        for (piece, offset, len) in self.runs(range) {
            match piece.registered(on) {
                Ok(segment) => begun.push(begin(segment, offset, there, len)),
                Err(fault) => return (begun, Err(fault)),
            }
            there += len;
        }
        (begun, Ok(()))
    }

    /// Writes bytes from an offset on.
    pub(crate) fn write(&self, on: &Progress<F>, at: u64, mut bytes: &[u8]) -> Result<(), Fault> {
        let end = at + bytes.len() as u64;
        self.check(end, on)?;
        for (piece, offset, len) in self.runs(at..end) {
            let (these, others) = bytes.split_at(len as usize);
            piece.write(on, offset, these)?;
            bytes = others;
        }
        Ok(())
    }

    /// Copies the bytes from an offset on.
    pub(crate) fn read(&self, on: &Progress<F>, at: u64, mut into: &mut [u8]) -> Result<(), Fault> {
        let end = at + into.len() as u64;
        self.check(end, on)?;
        for (piece, offset, len) in self.runs(at..end) {
            let (these, others) = into.split_at_mut(len as usize);
            piece.read(on, offset, these)?;
            into = others;
        }
        Ok(())
    }

    fn check(&self, end: u64, on: &Progress<F>) -> Result<(), Fault> {
        if end <= self.len() { Ok(()) } else { Err(Fault::of(FaultKind::OutOfRange, on.fabric.rank())) }
    }
}

debug!([F: Fabric] Pieces<F>, |this| "{} bytes in {} pieces", this.len(), this.pieces.len());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_piece_are_short() {
        for len in [1, 4095, SHORTEST, SHORTEST + 1, 3 * SHORTEST, (8 << 20) - 1, 8 << 20, 1 << 32, 1 << 40] {
            let (mut at, mut pieces) = (0, Vec::new());
            while at < len {
                pieces.push(piece_at(at, len));
                at += piece_at(at, len);
            }
            assert_eq!(at, len);
            let (last, others) = pieces.split_last().unwrap();
            assert!(*last <= SHORTEST && others.first().is_none_or(|first| *first == SHORTEST), "{len}: {pieces:?}");
            assert!(pieces.len() < 2 * MOST as usize, "{len}: {pieces:?}");
            let longest = LONGEST.max((len / MOST).next_power_of_two());
            assert!(others.iter().all(|piece| piece % SHORTEST == 0 && *piece <= longest), "{len}: {pieces:?}");
            let doubles = pieces.windows(2).all(|pair| pair[1] <= 2 * pair[0] && pair[0] <= 2 * pair[1] + SHORTEST);
            assert!(doubles || len % SHORTEST != 0, "{len}: {pieces:?}");
        }
    }
}
