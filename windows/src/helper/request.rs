//! Requests: their encoding, and their execution by the owner's helper thread or by the origin
//! itself.

use std::ops::Range;

use onesided_fabric::remote_memory::{Fault, FaultKind};
use onesided_fabric::{Fabric, Segment};
use onesided_layouts::apply_row;

use crate::datatype::element::{lanes, per_word, same_bits};
use crate::{AtomicElement, Located, Op};

/// Whether a fault says that the memory has no words here, so that its agent must execute the
/// operation.
pub(crate) fn is_wordless(fault: Fault) -> bool {
    fault.kind() == FaultKind::Unsupported && fault.detail() == onesided_fabric::WORDLESS
}

/// Atomic operations on elements, as they are sent.
///
/// The bytes are the runs, `offset u64 | length u64` each, in bytes of the window memory, little
/// endian; then the contiguous operands, or the expected and the new value of a compare-and-swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HelperRequest {
    pub(crate) code: Code,
    /// The length of all runs in bytes.
    pub(crate) len: usize,
    /// Which attached memory; 0 for window memory that is a single region.
    pub(crate) ptr: u64,
    pub(crate) bytes: Vec<u8>,
}

/// The operation on each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code {
    /// `None`: compare and swap.
    pub(crate) op: Option<Op>,
    /// The type, see [`element_code`].
    pub(crate) element: u8,
    /// Whether the origin wants the previous elements.
    pub(crate) results: bool,
    pub(crate) runs: u32,
}

/// The code of the element type "bytes".
pub(super) const BYTES: u8 = 13;

pub(super) const RUN: usize = 16;

/// A run: its offset and its length in bytes.
type Run = (u64, usize);

impl Code {
    /// `op u8 (255: compare and swap) | element u8 | results u8 | 0 u8 | runs u32`.
    pub(crate) fn to_word(self) -> u64 {
        let op = self.op.map_or(255, |op| op as u8);
        u64::from(op) | u64::from(self.element) << 8 | u64::from(self.results) << 16 | u64::from(self.runs) << 32
    }

    /// `None` if it is invalid in this version.
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        let op = match word as u8 {
            255 => None,
            op => Some(*Op::ALL.get(usize::from(op))?),
        };
        let (element, flags) = ((word >> 8) as u8, (word >> 16) as u16);
        (flags <= 1).then_some(Self { op, element, results: flags == 1, runs: (word >> 32) as u32 })
    }
}

impl HelperRequest {
    /// Takes as many of the runs, and of the current run, as fit; the rest stays.
    pub(crate) fn of_runs<T: AtomicElement>(
        op: Op,
        results: bool,
        capacity: usize,
        (run, runs): (&mut Range<usize>, &mut dyn Iterator<Item = Range<usize>>),
        operands: &mut &[T],
    ) -> Self {
        let (mut table, mut count) = (Vec::new(), 0_usize);
        loop {
            if run.start >= run.end {
                match runs.next() {
                    Some(next) => *run = next,
                    None => break,
                }
            }
            let free = capacity.saturating_sub((table.len() + 1) * RUN) / size_of::<T>();
            let taken = run.len().min(free.saturating_sub(count));
            if taken == 0 {
                break;
            }
            table.push([run.start, taken].map(|elements| (elements * size_of::<T>()) as u64));
            run.start += taken;
            count += taken;
        }
        let mut bytes = run_bytes(&table);
        if op != Op::NoOp {
            let (now, later) = operands.split_at(count);
            bytes.extend_from_slice(bytemuck::cast_slice(now));
            *operands = later;
        }
        let code = Code { op: Some(op), element: element_code::<T>(), results, runs: table.len() as u32 };
        Self { code, len: count * size_of::<T>(), ptr: 0, bytes }
    }

    /// A compare-and-swap of one element.
    pub(crate) fn swap<T: AtomicElement>(element: usize, expected: T, new: T) -> Self {
        let len = size_of::<T>();
        let mut bytes = run_bytes(&[[(element * len) as u64, len as u64]]);
        bytes.extend_from_slice(bytemuck::bytes_of(&expected));
        bytes.extend_from_slice(bytemuck::bytes_of(&new));
        let code = Code { op: None, element: element_code::<T>(), results: true, runs: 1 };
        Self { code, len, ptr: 0, bytes }
    }

    /// The length of the results in bytes.
    pub(crate) const fn result_bytes(&self) -> usize {
        if self.code.results { self.len } else { 0 }
    }

    /// The runs, if their length is as announced, and the operands, if they have the wanted length.
    fn runs(&self, operands: usize) -> Result<(Vec<Run>, &[u8]), Fault> {
        let wrong = Fault::new(FaultKind::Protocol);
        let table = (self.code.runs as usize).checked_mul(RUN).and_then(|len| self.bytes.split_at_checked(len));
        let (table, given) = table.ok_or(wrong)?;
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let run = |run: &[u8]| Some((number(&run[..8]), usize::try_from(number(&run[8..])).ok()?));
        let runs: Vec<_> = table.chunks_exact(RUN).map(run).collect::<Option<_>>().ok_or(wrong)?;
        let total = runs.iter().try_fold(0_usize, |total, (_, len)| total.checked_add(*len));
        if total == Some(self.len) && given.len() == operands { Ok((runs, given)) } else { Err(wrong) }
    }

    /// Executes it, if the segment's words are in this process's memory, and returns the previous
    /// elements if they are wanted. No content that a peer may have written makes it access memory
    /// beyond the segment.
    ///
    /// # Errors
    /// `NotOwn` for memory in another process, with nothing done; `Protocol` if it is invalid, with
    /// nothing done; `OutOfRange`.
    pub(crate) fn perform<F: Fabric>(&self, fabric: &F, segment: &F::Segment) -> Result<Vec<u8>, Fault> {
        macro_rules! of_type {
            ($($code:literal $element:ty),*) => {
                match self.code.element {
                    $($code => self.perform_as::<$element>(segment),)*
                    _ => Err(Fault::new(FaultKind::Protocol)),
                }
            };
        }
        if self.code.element == BYTES {
            return self.move_bytes(fabric, segment);
        }
        of_type!(
            0 u8, 1 i8, 2 u16, 3 i16, 4 u32, 5 i32, 6 u64, 7 i64, 8 f32, 9 f64,
            10 Located<u32>, 11 Located<i32>, 12 Located<f32>
        )
    }

    fn perform_as<T: AtomicElement>(&self, segment: &impl Segment) -> Result<Vec<u8>, Fault> {
        let (wrong, size) = (Fault::new(FaultKind::Protocol), size_of::<T>());
        let Code { op, results: wanted, .. } = self.code;
        let (runs, operands) = self.runs(match op {
            None if self.len == size => 2 * size,
            Some(Op::NoOp) => 0,
            Some(op) if T::allows(op) => self.len,
            _ => return Err(wrong),
        })?;
        if !runs.iter().all(|(at, len)| at.is_multiple_of(size as u64) && len.is_multiple_of(size)) {
            return Err(wrong);
        }
        let operands: Vec<T> = operands.chunks_exact(size).map(bytemuck::pod_read_unaligned).collect();
        let (mut before, mut done) = (Vec::new(), 0);
        for (at, len) in runs {
            let row = if op == Some(Op::NoOp) { &[][..] } else { &operands[done..] };
            change_row(segment, (at, len), op, row, wanted.then_some(&mut before))?;
            done += len / size;
        }
        Ok(bytemuck::cast_slice(&before).to_vec())
    }
}

impl HelperRequest {
    /// The owner's side: moves the bytes, if all pieces are within its segment, and returns those
    /// of a get.
    pub(super) fn move_bytes<F: Fabric>(&self, fabric: &F, segment: &F::Segment) -> Result<Vec<u8>, Fault> {
        let (pieces, mut given) = self.runs(match (self.code.op, self.code.results) {
            (Some(Op::Replace), false) => self.len,
            (Some(Op::NoOp), true) => 0,
            _ => return Err(Fault::new(FaultKind::Protocol)),
        })?;
        let end = |(at, len): &Run| at.checked_add(*len as u64);
        if !pieces.iter().all(|piece| end(piece).is_some_and(|end| end <= segment.len())) {
            return Err(Fault::new(FaultKind::OutOfRange));
        }
        let mut found = Vec::new();
        for (at, len) in pieces {
            if self.code.results {
                let begin = found.len();
                found.resize(begin + len, 0);
                fabric.read_direct(segment, at, &mut found[begin..])?;
            } else {
                let (now, later) = given.split_at(len);
                fabric.write_direct(segment, at, now)?;
                given = later;
            }
        }
        Ok(found)
    }
}

/// Changes contiguous elements: bytes from a multiple of the element's size on.
fn change_row<T: AtomicElement>(
    segment: &impl Segment,
    (at, len): Run,
    op: Option<Op>,
    operands: &[T],
    before: Option<&mut Vec<T>>,
) -> Result<(), Fault> {
    if len == 0 {
        return Ok(());
    }
    let (offset, lane) = (at & !7, at as usize % 8 / size_of::<T>());
    let end = at.checked_add(len as u64).and_then(|end| end.checked_next_multiple_of(8));
    // The range check comes before the allocation of the results: it bounds their size.
    let end = end.filter(|end| *end <= segment.len()).ok_or(Fault::new(FaultKind::OutOfRange))?;
    let (per_word, len) = (const { per_word::<T>() }, len / size_of::<T>());
    let mut found = vec![T::zeroed(); len];
    let mut change = |word: usize, value: u64| {
        let mut new = value;
        let elements = lanes::<T>(&mut new);
        // The elements of the run in this word.
        let first = (word * per_word).saturating_sub(lane);
        let skip = if word == 0 { lane } else { 0 };
        let count = (per_word - skip).min(len - first);
        let elements = &mut elements[skip..skip + count];
        found[first..first + count].copy_from_slice(elements);
        match (op, operands) {
            (Some(op), operands) => apply_row(op, elements, operands.get(first..).unwrap_or_default()),
            (None, [expected, new]) if same_bits(*expected, elements[0]) => elements[0] = *new,
            (None, _) => {}
        }
        new
    };
    segment.change(offset, ((end - offset) / 8) as usize, &mut change)?;
    if let Some(before) = before {
        before.extend_from_slice(&found);
    }
    Ok(())
}

pub(super) fn run_bytes(runs: &[[u64; 2]]) -> Vec<u8> {
    runs.iter().flatten().flat_map(|number| number.to_le_bytes()).collect()
}

/// The code of an element's type in a request.
pub(crate) const fn element_code<T: AtomicElement>() -> u8 {
    T::CODE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_survives_the_wire_and_nothing_else_is_one() {
        for op in Op::ALL.into_iter().map(Some).chain([None]) {
            for results in [false, true] {
                let code = Code { op, element: 7, results, runs: u32::MAX - 3 };
                assert_eq!(Code::from_word(code.to_word()), Some(code));
            }
        }
        assert_eq!(Code::from_word(Op::ALL.len() as u64), None);
        assert_eq!(Code::from_word(2 << 16), None);
        assert_eq!(Code::from_word(1 << 24), None);
    }

    #[test]
    fn runs_are_cut_to_the_room() {
        let operands: Vec<u16> = (0..100).collect();
        let (mut rest, mut run) = (&operands[..], 0..0);
        let runs = [5..25, 30..31, 40..119];
        let mut runs = runs.into_iter();
        let mut seen = Vec::new();
        loop {
            let request = HelperRequest::of_runs(Op::Sum, false, 64, (&mut run, &mut runs), &mut rest);
            if request.len == 0 {
                break;
            }
            assert!(request.bytes.len() <= 64, "{request:?}");
            assert_eq!(request.bytes.len(), request.code.runs as usize * RUN + request.len);
            seen.push((request.code.runs, request.len));
        }
        assert_eq!(seen.iter().map(|(_, len)| len).sum::<usize>(), 200);
        assert_eq!(seen[0], (1, 40), "a second run would leave no room for its elements");
        assert!(rest.is_empty());
    }

    #[test]
    fn hostile_requests_change_nothing() {
        use onesided_fabric::remote_memory::FaultKind::{OutOfRange, Protocol};
        let seen = onesided_fabric::shm::threads(1, |shm| {
            let own = shm.register(vec![7_u64; 4].into()).unwrap();
            let good = HelperRequest::of_runs(
                Op::Sum,
                true,
                512,
                (&mut (0..0), &mut std::iter::once(1..3_usize)),
                &mut &[1_u32, 2][..],
            );
            assert_eq!(good.perform(&shm, &own).unwrap().len(), 8);
            let refused = |change: &dyn Fn(&mut HelperRequest)| {
                let mut bad = good.clone();
                change(&mut bad);
                bad.perform(&shm, &own).unwrap_err().kind()
            };
            assert_eq!(refused(&|bad| bad.code.element = 14), Protocol);
            assert_eq!(refused(&|bad| bad.code.element = 6), Protocol);
            assert_eq!(refused(&|bad| bad.code.op = Some(Op::MinLoc)), Protocol);
            assert_eq!(refused(&|bad| bad.code.op = None), Protocol);
            assert_eq!(refused(&|bad| bad.code.runs = 2), Protocol);
            assert_eq!(refused(&|bad| bad.code.runs = u32::MAX), Protocol);
            assert_eq!(refused(&|bad| bad.len = usize::MAX), Protocol);
            assert_eq!(refused(&|bad| bad.bytes.truncate(23)), Protocol);
            for (at, fault) in [
                (28_u64, OutOfRange),
                (32, OutOfRange),
                (u64::MAX - 7, OutOfRange),
                (u64::MAX - 3, OutOfRange),
                (5, Protocol),
            ] {
                let bytes = at.to_le_bytes();
                assert_eq!(refused(&|bad| bad.bytes[..8].copy_from_slice(&bytes)), fault, "{at}");
            }
            assert_eq!(refused(&|bad| bad.bytes[8] = 7), Protocol);
            let mut words = [0; 32];
            shm.read_direct(&own, 0, &mut words).unwrap();
            words
        });
        let mut expected = [7_u64; 4];
        expected[0] += 1 << 32;
        expected[1] += 2;
        assert_eq!(seen.unwrap()[0], bytemuck::cast::<_, [u8; 32]>(expected));
    }
}
