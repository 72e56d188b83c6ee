//! Bytes of many small pieces, moved by the owner's helper thread: one message where a card would
//! take a request for each piece (jiang-2004, section 4: the thread at the target handles
//! noncontiguous data).
//!
//! They are requests like those of atomics, of the element type "bytes", which only this module
//! uses: a put is a replace, a get a read. They are not atomic.

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{AtomicAgent, Fabric, Path, Segment};

use super::HelperRequest;
use super::request::{BYTES, Code, RUN, run_bytes};
use crate::Op;
use crate::window::exchange::Flavor;
use crate::window::inner::Inner;
use crate::window::target::Target;

/// The number of pieces from which, and the average size in bytes up to which, the helper thread is
/// used.
///
/// Measured on Soft-RoCE (two ranks of one emulated host, pieces of 8 bytes, microseconds with the
/// flush), by card and by helper: 16 pieces: put 2114 and 8561, get 10700 and 6863; 32: put 2793
/// and 3205, get 12024 and 2868; 64: put 3854 and 3354, get 9897 and 3044; 128: put 18488 and 8215,
/// get 60235 and 7186; 512: put 43335 and 27682, get 562783 and 27479. A hardware card executes
/// more pieces in the time that a thread takes to wake up.
const PIECES: usize = 64;
const LONGEST: usize = 256;

impl<F: Fabric> Inner<F> {
    /// Whether the helper thread of the target's owner moves this many pieces and bytes.
    pub(crate) fn is_packed(&self, target: &Target<F>, pieces: usize, bytes: usize) -> bool {
        if pieces < PIECES
            || bytes / pieces > LONGEST
            || self.completes_at_post
            || self.memory.flavor != Flavor::Allocated
        {
            return false;
        }
        let end = self.request_layout().end();
        target.locks.len() >= end
            && self.memory.hidden.len() >= end
            && target.fabric_rank() != self.fabric().rank()
            && matches!(target.data.path(), Path::Card | Path::Simulated)
    }

    /// Puts pieces, message after message. They are complete at the target when this completes.
    pub(crate) async fn put_packed<'p>(
        &self,
        target: &Target<F>,
        mut pieces: impl Iterator<Item = (u64, &'p [u8])>,
    ) -> Result<(), Fault> {
        let (capacity, mut rest) = (self.request_layout().capacity(), None);
        loop {
            let (mut table, mut bytes) = (Vec::new(), Vec::new());
            while let Some((at, piece)) = rest.take().or_else(|| pieces.next()) {
                let free = capacity.saturating_sub((table.len() + 1) * RUN + bytes.len());
                let (now, later) = piece.split_at(piece.len().min(free));
                if !now.is_empty() {
                    table.push([at, now.len() as u64]);
                    bytes.extend_from_slice(now);
                }
                if !later.is_empty() {
                    rest = Some((at + now.len() as u64, later));
                    break;
                }
            }
            if table.is_empty() {
                return Ok(());
            }
            let code = Code { op: Some(Op::Replace), element: BYTES, results: false, runs: table.len() as u32 };
            let (len, bytes) = (bytes.len(), [run_bytes(&table), bytes].concat());
            self.request_and_wait(target, HelperRequest { code, len, ptr: target.ptr, bytes }).await?;
        }
    }

    /// Gets pieces, message after message.
    pub(crate) async fn get_packed<'p>(
        &self,
        target: &Target<F>,
        mut pieces: impl Iterator<Item = (u64, &'p mut [u8])>,
    ) -> Result<(), Fault> {
        let (capacity, mut rest) = (self.request_layout().capacity(), None);
        loop {
            let (mut table, mut into, mut len) = (Vec::new(), Vec::new(), 0);
            while let Some((at, piece)) = rest.take().or_else(|| pieces.next()) {
                let piece: &'p mut [u8] = piece;
                let fits = capacity >= (table.len() + 1) * RUN;
                let free = if fits { capacity - len } else { 0 };
                let taken = piece.len().min(free);
                let (now, later) = piece.split_at_mut(taken);
                if !now.is_empty() {
                    table.push([at, taken as u64]);
                    len += taken;
                    into.push(now);
                }
                if !later.is_empty() {
                    rest = Some((at + taken as u64, later));
                    break;
                }
            }
            if table.is_empty() {
                return Ok(());
            }
            let code = Code { op: Some(Op::NoOp), element: BYTES, results: true, runs: table.len() as u32 };
            let request = HelperRequest { code, len, ptr: target.ptr, bytes: run_bytes(&table) };
            let found = self.request_and_wait(target, request).await?;
            let mut found = found.get(..len).ok_or(Fault::new(FaultKind::Protocol))?;
            for piece in into {
                let (now, later) = found.split_at(piece.len());
                piece.copy_from_slice(now);
                found = later;
            }
        }
    }
}

/// Whether the helper threads of a window on such a fabric move shapes, if the user enables it.
pub(crate) const fn has_packed(agent: AtomicAgent, completes_at_post: bool) -> bool {
    !completes_at_post && !matches!(agent, AtomicAgent::Cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_moves_move_nothing() {
        use FaultKind::{OutOfRange, Protocol};
        let seen = onesided_fabric::shm::threads(1, |shm| {
            let own = shm.allocate(32).unwrap();
            let put = |runs: &[[u64; 2]], bytes: &[u8]| HelperRequest {
                code: Code { op: Some(Op::Replace), element: BYTES, results: false, runs: runs.len() as u32 },
                len: bytes.len(),
                ptr: 0,
                bytes: [&run_bytes(runs)[..], bytes].concat(),
            };
            let good = put(&[[3, 2], [30, 2], [0, 0]], &[1, 2, 3, 4]);
            assert_eq!(good.perform(&shm, &own), Ok(Vec::new()));
            let look = HelperRequest {
                code: Code { op: Some(Op::NoOp), results: true, ..good.code },
                bytes: good.bytes[..3 * RUN].to_vec(),
                ..good.clone()
            };
            assert_eq!(look.result_bytes(), 4);
            assert_eq!(look.perform(&shm, &own), Ok(vec![1, 2, 3, 4]));
            let refused = |change: &dyn Fn(&mut HelperRequest)| {
                [&good, &look].map(|request| {
                    let mut bad = request.clone();
                    change(&mut bad);
                    bad.perform(&shm, &own).unwrap_err().kind()
                })
            };
            assert_eq!(refused(&|bad| bad.code.op = Some(Op::Sum)), [Protocol; 2]);
            assert_eq!(refused(&|bad| bad.code.op = None), [Protocol; 2]);
            assert_eq!(refused(&|bad| bad.code.results ^= true), [Protocol; 2]);
            assert_eq!(refused(&|bad| bad.code.runs = 2), [Protocol; 2]);
            assert_eq!(refused(&|bad| bad.code.runs = u32::MAX), [Protocol; 2]);
            assert_eq!(refused(&|bad| bad.len = usize::MAX), [Protocol; 2]);
            assert_eq!(refused(&|bad| bad.bytes.truncate(47)), [Protocol; 2]);
            assert_eq!(refused(&|bad| bad.bytes[8..16].fill(255)), [Protocol; 2]);
            for start in [31_u64, 32, u64::MAX - 1, u64::MAX] {
                assert_eq!(refused(&|bad| bad.bytes[..8].copy_from_slice(&start.to_le_bytes())), [OutOfRange; 2]);
            }
            let mut all = [0; 32];
            shm.read_direct(&own, 0, &mut all).unwrap();
            all
        });
        let mut expected = [0; 32];
        (expected[3], expected[4], expected[30], expected[31]) = (1, 2, 3, 4);
        assert_eq!(seen.unwrap()[0], expected);
    }
}
