//! Several pieces of user memory at once: in one system call, under one access, or in one request
//! to the owner's progress thread (jiang-2004, section 4: the thread at the target handles
//! noncontiguous data).

use std::io::{IoSlice, IoSliceMut};

use onesided_remote_memory::{Fault, FaultKind, Rank};

use crate::shm::piece::{Bytes, CUT, Piece, advance};
use crate::shm::process_vm::{self, bare::Range};
use crate::shm::segment::UserRange;
use crate::shm::serving::ENTRY;
use crate::shm::user_region::{CopyPath, UserRegion};

/// The number of pieces of one system call. Measured with 8 bytes each: from 64 pieces up, the call
/// itself costs nothing beside its pieces.
const BATCH: usize = 256;

impl UserRange {
    /// Puts pieces, one after another.
    pub(crate) fn write_pieces<'p>(&self, pieces: impl Iterator<Item = (u64, &'p [u8])>) -> Result<(), Fault> {
        self.move_pieces(pieces.map(|(offset, from)| (offset, Bytes::From(from))))
    }

    /// Gets pieces.
    pub(crate) fn read_pieces<'p>(&self, pieces: impl Iterator<Item = (u64, &'p mut [u8])>) -> Result<(), Fault> {
        self.move_pieces(pieces.map(|(offset, into)| (offset, Bytes::Into(into))))
    }

    /// Moves pieces, all puts or all gets.
    fn move_pieces<'p>(&self, pieces: impl Iterator<Item = (u64, Bytes<'p>)>) -> Result<(), Fault> {
        let (mut batch, mut bytes) = (Vec::with_capacity(BATCH), 0);
        for (offset, at) in pieces {
            let mut piece = Piece { offset: self.place(offset, at.len())?, bytes: at };
            self.memory.check(piece.offset, piece.len())?;
            while piece.len() > 0 {
                if batch.len() == BATCH || bytes == CUT {
                    self.memory.move_batch(&mut batch)?;
                    batch.clear();
                    bytes = 0;
                }
                let cut = piece.split(CUT - bytes);
                bytes += cut.len();
                batch.push(cut);
            }
        }
        self.memory.move_batch(&mut batch)
    }
}

impl UserRegion {
    /// Moves pieces, none of them empty, all puts or all gets.
    fn move_batch(&self, mut pieces: &mut [Piece<'_>]) -> Result<(), Fault> {
        while !pieces.is_empty() {
            let done = match self.copy_path() {
                CopyPath::Direct => return self.copy_directly(pieces),
                CopyPath::ProcessVm => self.copy_batch(pieces)?,
                CopyPath::Helper => self.request_pieces(pieces)?,
            };
            pieces = advance(pieces, done);
        }
        Ok(())
    }

    /// Copies by one system call; returns the number of bytes, or 0 if the path has just been found
    /// to be forbidden.
    fn copy_batch(&self, pieces: &mut [Piece<'_>]) -> Result<usize, Fault> {
        let (mut from, mut into) = (Vec::new(), Vec::new());
        let mut there = Vec::with_capacity(pieces.len());
        for Piece { offset, bytes } in pieces {
            self.check(*offset, bytes.len())?;
            there.push(Range::new(self.address + *offset, bytes.len()));
            match bytes {
                Bytes::From(bytes) => from.push(IoSlice::new(bytes)),
                Bytes::Into(bytes) => into.push(IoSliceMut::new(bytes)),
            }
        }
        let _access = self.access()?;
        self.alive()?; // a dead owner's process number may be reused
        self.copied(if from.is_empty() {
            process_vm::read(self.process.pid, &mut into, &there)
        } else {
            // SAFETY: each range was checked against the region, which its owner has published to
            // be written, and which the access keeps valid.
            #[allow(unsafe_code)]
            unsafe {
                process_vm::write(self.process.pid, &from, &there)
            }
        })
    }

    /// Copies by the owner's progress thread, as many pieces as fit one request. Returns their
    /// number of bytes.
    fn request_pieces(&self, pieces: &mut [Piece<'_>]) -> Result<usize, Fault> {
        let room = self.control.buffer(self.me).1 as usize;
        let (mut count, mut bytes) = (0, 0);
        for piece in &*pieces {
            if (count + 1) * ENTRY + bytes + piece.len() > room {
                break;
            }
            (count, bytes) = (count + 1, bytes + piece.len());
        }
        match pieces {
            [first, ..] if count == 0 => {
                let len = first.len();
                self.copy(first.first(len)).map(|()| len) // it exceeds the buffer
            }
            _ => self.request(&mut pieces[..count]).map(|()| bytes),
        }
    }

    /// The owner's side: serves a peer's request if all of it lies in the user memory.
    pub(super) fn serve_pieces(&self, rank: Rank, put: bool, count: u64, bytes: u64) -> Result<(), Fault> {
        let wrong = Fault::of(FaultKind::Protocol, rank);
        // Copied first, because the peer may write the buffer at any time.
        let mut message = self.buffered(rank, bytes)?;
        let entries = usize::try_from(count).ok().and_then(|count| count.checked_mul(ENTRY)).ok_or(wrong)?;
        let (table, mut rest) = message.split_at_mut_checked(entries).ok_or(wrong)?;
        let mut pieces = Vec::with_capacity(table.len() / ENTRY);
        for entry in table.chunks_exact(ENTRY) {
            let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
            let (offset, len) = (number(&entry[..8]), number(&entry[8..]));
            let len = usize::try_from(len).map_err(|_| wrong)?;
            let (these, others) = rest.split_at_mut_checked(len).ok_or(wrong)?;
            self.check(offset, len)?;
            pieces.push(Piece { offset, bytes: if put { Bytes::From(these) } else { Bytes::Into(these) } });
            rest = others;
        }
        if !rest.is_empty() {
            return Err(wrong);
        }
        self.copy_directly(&mut pieces)?;
        if !put {
            let at = self.control.buffer(rank).0 + entries as u64;
            self.control.memory().write(at, &message[entries..])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
                control.memory().write(at, &message).unwrap();
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
            shm.read_direct(&own, 0, &mut all).unwrap();
            all
        });
        let mut expected = vec![7; 64];
        expected[8..11].copy_from_slice(&[1, 2, 3]);
        expected[60..].copy_from_slice(&[4, 5, 6, 7]);
        expected[0] = 8;
        assert_eq!(seen.unwrap()[0], expected);
    }
}
