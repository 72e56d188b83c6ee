//! Windows of messages whose receives are posted after all of them have arrived.

use super::{CONTROL, End, Loop};
use crate::bench::messages::stream;
use crate::failure::Failure;

/// Larger messages would wait at their sender: what a rank keeps of unexpected ones is bounded.
pub(crate) const LARGEST: usize = 2 << 10;

pub(crate) static LOOP: Loop = Loop { name: "stream, all unexpected", largest: LARGEST, run, ..stream::LOOP };

fn run(end: &End<'_>, size: usize, n: u64) -> Result<(), Failure> {
    let mut into = end.into.borrow_mut();
    (0..n).try_for_each(|_| {
        // Comes after them.
        if end.is_first {
            let sends = end.send_all(size);
            end.send(end.other, CONTROL, &[]).wait()?;
            end.all(sends)?;
        } else {
            end.receive(end.other, CONTROL, &mut [])?;
            end.all(end.receive_all(size, &mut into))?;
        }
        end.answer_window()
    })
}
