//! Several pieces of user memory at once: in one system call, under one access, or in one request
//! to the owner's progress thread (jiang-2004, section 4: the thread at the target handles
//! noncontiguous data).

use std::ffi::c_void;

use onesided_job::segment::copy;
use onesided_remote_memory::{Fault, FaultKind, Rank};

use crate::shm::piece::{Bytes, CUT, Piece};
use crate::shm::process_vm::{self, bare::Range};
use crate::shm::segment::UserRange;
use crate::shm::serving::{GET_PIECES, PUT_PIECES};
use crate::shm::user_region::{CopyPath, UserRegion};

/// The number of pieces of one system call. Measured with 8 bytes each: from 64 pieces up, the call
/// itself costs nothing beside its pieces.
const BATCH: usize = 256;

/// The request's entry of a piece: `offset u64 | length u64`, little endian. The entries of all
/// pieces come first, then the bytes of a put.
const ENTRY: usize = 16;

impl UserRange {
    /// Puts pieces, one after another.
    pub(crate) fn write_pieces<'p>(&self, pieces: impl Iterator<Item = (u64, &'p [u8])>) -> Result<(), Fault> {
        let pieces = pieces.map(|(offset, from)| (offset, Bytes::From(from.as_ptr()), from.len()));
        self.memory.move_pieces(|offset, len| self.place(offset, len), pieces)
    }

    /// Gets pieces.
    pub(crate) fn read_pieces<'p>(&self, pieces: impl Iterator<Item = (u64, &'p mut [u8])>) -> Result<(), Fault> {
        let pieces = pieces.map(|(offset, into)| (offset, Bytes::Into(into.as_mut_ptr()), into.len()));
        self.memory.move_pieces(|offset, len| self.place(offset, len), pieces)
    }
}

impl UserRegion {
    /// Moves pieces whose offsets count from the start of a range.
    fn move_pieces(
        &self,
        place: impl Fn(u64, usize) -> Result<u64, Fault>,
        pieces: impl Iterator<Item = (u64, Bytes, usize)>,
    ) -> Result<(), Fault> {
        let (mut batch, mut bytes) = (Vec::with_capacity(BATCH), 0);
        for (offset, at, len) in pieces {
            let offset = place(offset, len)?;
            self.check(offset, len)?;
            let mut piece = Piece { offset, bytes: at, len };
            while piece.len > 0 {
                if batch.len() == BATCH || bytes == CUT {
                    self.move_batch(&batch)?;
                    batch.clear();
                    bytes = 0;
                }
                let len = piece.len.min(CUT - bytes);
                batch.push(Piece { len, ..piece });
                bytes += len;
                piece = piece.after(len);
            }
        }
        self.move_batch(&batch)
    }

    /// Moves checked pieces, all puts or all gets.
    fn move_batch(&self, mut pieces: &[Piece]) -> Result<(), Fault> {
        let mut begun = 0; // the completed bytes of the first one
        while let [first, rest @ ..] = pieces {
            let mut done = match (self.copy_path(), begun) {
                (CopyPath::Direct, 0) => return self.copy_directly(pieces),
                (CopyPath::ProcessVm, _) => self.copy_batch(pieces, begun)?,
                (CopyPath::Helper, 0) if !rest.is_empty() => self.request_pieces(pieces)?,
                _ => {
                    let rest = first.after(begun);
                    self.copy(rest.offset, rest.bytes, rest.len)?;
                    rest.len
                }
            };
            while let [first, rest @ ..] = pieces {
                let left = first.len - begun;
                if done < left {
                    begun += done;
                    break;
                }
                done -= left;
                (pieces, begun) = (rest, 0);
            }
        }
        Ok(())
    }

    /// Copies by one system call; returns the number of bytes, or 0 if the path has just been found
    /// to be forbidden.
    #[allow(unsafe_code)]
    fn copy_batch(&self, pieces: &[Piece], begun: usize) -> Result<usize, Fault> {
        let [first, rest @ ..] = pieces else { return Ok(0) };
        let pieces = || std::iter::once(first.after(begun)).chain(rest.iter().copied());
        let (mut here, mut there) = (Vec::with_capacity(1 + rest.len()), Vec::with_capacity(1 + rest.len()));
        for Piece { offset, bytes, len } in pieces() {
            here.push(Range { base: bytes.address().cast(), len });
            there.push(Range { base: (self.address + offset) as *mut c_void, len });
        }
        let _access = self.access()?;
        self.alive()?; // a dead owner's process number may be reused
        self.copied(match first.bytes {
            // SAFETY: `len` bytes of each piece, which the caller provides; the owner has published
            // the ranges, and the access keeps them valid.
            Bytes::From(_) => unsafe { process_vm::write_ranges(self.process.pid, &here, &there) },
            // SAFETY: as above.
            Bytes::Into(_) => unsafe { process_vm::read_ranges(self.process.pid, &here, &there) },
        })
    }

    /// Copies by the owner's progress thread, as many pieces as fit one request. Returns their
    /// number of bytes.
    #[allow(unsafe_code)]
    fn request_pieces(&self, pieces: &[Piece]) -> Result<usize, Fault> {
        let room = self.control.buffer(self.me).1 as usize;
        let (mut count, mut bytes) = (0, 0);
        for piece in pieces {
            if (count + 1) * ENTRY + bytes + piece.len > room {
                break;
            }
            (count, bytes) = (count + 1, bytes + piece.len);
        }
        let [first, ..] = pieces else { return Ok(0) };
        if count < 2 {
            self.copy(first.offset, first.bytes, first.len)?; // it exceeds the buffer
            return Ok(first.len);
        }
        let pieces = &pieces[..count];
        let request_kind = if matches!(first.bytes, Bytes::From(_)) { PUT_PIECES } else { GET_PIECES };
        let fill = |buffer: *mut u8| {
            let mut at = count * ENTRY;
            for (number, piece) in pieces.iter().enumerate() {
                let mut entry = [0; ENTRY];
                entry[..8].copy_from_slice(&piece.offset.to_le_bytes());
                entry[8..].copy_from_slice(&(piece.len as u64).to_le_bytes());
                // SAFETY: the entries and the bytes of `count` pieces were found to fit the buffer,
                // which is part of the page's mapping.
                unsafe { copy::into_shared(buffer.wrapping_add(number * ENTRY), &entry) };
                if let Bytes::From(from) = piece.bytes {
                    // SAFETY: as above, and `len` bytes that the caller provides.
                    unsafe { copy::copy(buffer.wrapping_add(at), from, piece.len) };
                }
                at += piece.len;
            }
        };
        let take = |buffer: *mut u8| {
            let mut at = count * ENTRY;
            for piece in pieces {
                if let Bytes::Into(into) = piece.bytes {
                    // SAFETY: as above; the caller provides its bytes exclusively.
                    unsafe { copy::copy(into, buffer.wrapping_add(at), piece.len) };
                }
                at += piece.len;
            }
        };
        self.request_with(request_kind, (count as u64, (count * ENTRY + bytes) as u64), fill, take)?;
        Ok(bytes)
    }

    /// The owner's side: serves a peer's request if all of it lies in the user memory.
    #[allow(unsafe_code)]
    pub(super) fn serve_pieces(&self, rank: Rank, put: bool, count: u64, bytes: u64) -> Result<(), Fault> {
        let wrong = Fault::of(FaultKind::Protocol, rank);
        let (at, room) = self.control.buffer(rank);
        let buffer = self.control.memory().bytes(at, bytes).filter(|_| bytes <= room).ok_or(wrong)?.as_ptr();
        // Copied first, because the peer may write the buffer at any time.
        let mut message = vec![0; bytes as usize];
        // SAFETY: `bytes` bytes of the page's mapping, which `self` keeps.
        unsafe { copy::out_of_shared(&mut message, buffer) };
        let entries = usize::try_from(count).ok().and_then(|count| count.checked_mul(ENTRY)).ok_or(wrong)?;
        let (table, rest) = message.split_at_mut_checked(entries).ok_or(wrong)?;
        let (mut pieces, mut rest) = (Vec::with_capacity(table.len() / ENTRY), rest);
        for entry in table.chunks_exact(ENTRY) {
            let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
            let (offset, len) = (number(&entry[..8]), number(&entry[8..]));
            let len = usize::try_from(len).map_err(|_| wrong)?;
            let (these, others) = rest.split_at_mut_checked(len).ok_or(wrong)?;
            self.check(offset, len)?;
            let bytes = if put { Bytes::From(these.as_ptr()) } else { Bytes::Into(these.as_mut_ptr()) };
            pieces.push(Piece { offset, bytes, len });
            rest = others;
        }
        if !rest.is_empty() {
            return Err(wrong);
        }
        self.copy_directly(&pieces)?;
        if !put {
            // SAFETY: as above.
            unsafe { copy::into_shared(buffer.wrapping_add(entries), &message[entries..]) };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::Segment as _;
    use crate::shm::control::Control;

    /// Any content that a peer may have written to its line and its buffer.
    #[test]
    fn pieces_outside_the_user_memory_are_refused() {
        let seen = crate::shm::threads(2, |shm| {
            use crate::Fabric as _;
            if onesided_remote_memory::RemoteMemory::rank(&shm) != Rank(0) {
                return Vec::new();
            }
            let own = shm.register(vec![7_u8; 64].into()).unwrap();
            let user = Arc::clone(&own.user_memory().unwrap().memory);
            let control: &Control = &user.control;
            let (at, room) = control.buffer(Rank(1));
            let message = |entries: &[(u64, u64)], bytes: &[u8]| {
                let mut message: Vec<u8> =
                    entries.iter().flat_map(|(at, len)| [at.to_le_bytes(), len.to_le_bytes()].concat()).collect();
                message.extend(bytes);
                message.resize(message.len().next_multiple_of(8), 0);
                for (number, word) in message.chunks_exact(8).enumerate() {
                    let word = u64::from_le_bytes(word.try_into().unwrap());
                    control.memory().word(at + 8 * number as u64).unwrap().store(word, Ordering::Relaxed);
                }
            };
            let serve = |put, count, bytes| user.serve_pieces(Rank(1), put, count, bytes).map_err(|fault| fault.kind());
            message(&[(8, 3), (60, 4), (0, 1)], &[1, 2, 3, 4, 5, 6, 7, 8]);
            assert_eq!(serve(true, 3, 56), Ok(()));
            use FaultKind::{OutOfRange, Protocol};
            for (count, bytes) in [(2, 56), (4, 56), (3, 55), (3, 57), (u64::MAX, 56), (1 << 60, 56), (3, 47)] {
                assert_eq!(serve(true, count, bytes), Err(Protocol), "{count} in {bytes}");
            }
            for bytes in [room + 1, u64::MAX, u64::MAX - 7] {
                assert_eq!(serve(false, 1, bytes), Err(Protocol));
            }
            for (first, fault) in
                [((64, 1), OutOfRange), ((u64::MAX, 1), OutOfRange), ((61, 4), OutOfRange), ((0, u64::MAX), Protocol)]
            {
                message(&[(1, 1), first], &[9; 32]);
                let len = first.1.min(4);
                assert_eq!(serve(true, 2, 33 + len), Err(fault), "{first:?}");
                assert_eq!(serve(false, 2, 33 + len), Err(fault), "{first:?}");
            }
            let mut all = vec![0; own.len() as usize];
            shm.read_own(&own, 0, &mut all).unwrap();
            all
        });
        let mut expected = vec![7; 64];
        expected[8..11].copy_from_slice(&[1, 2, 3]);
        expected[60..].copy_from_slice(&[4, 5, 6, 7]);
        expected[0] = 8;
        assert_eq!(seen.unwrap()[0], expected);
    }
}
