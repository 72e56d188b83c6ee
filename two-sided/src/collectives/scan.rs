//! Recursive doubling (Hillis and Steele, "Data parallel algorithms", CACM 29, 1986), as in MPICH:
//! the order of the ranks is kept.

use onesided_fabric::Fabric;

use super::link::{Link, Outcome};
use super::operation::{Operation, Side};

pub(super) async fn run<F: Fabric>(
    link: &mut Link<'_, F>,
    data: &mut [u8],
    operation: &Operation,
    is_exclusive: bool,
) -> Outcome {
    let half = data.len().next_multiple_of(16);
    let mut scratch = link.scratch(2 * half)?;
    let (partial, others) = scratch.bytes().split_at_mut(half);
    let (partial, others) = (&mut partial[..data.len()], &mut others[..data.len()]);
    // Of the ranks of this one's group: so far, of itself.
    partial.copy_from_slice(data);
    let mut has_result = !is_exclusive;
    let mut distance = 1;
    while distance < link.size {
        let partner = link.me ^ distance;
        if partner < link.size {
            link.exchange((partner, partial), (partner, others)).await?;
            if partner > link.me {
                operation.apply(partial, (Side::Right, others));
            } else {
                operation.apply(partial, (Side::Left, others));
                match has_result {
                    true => operation.apply(data, (Side::Left, others)),
                    false => data.copy_from_slice(others),
                }
                has_result = true;
            }
        }
        distance *= 2;
    }
    Ok(())
}
