//! Dissemination (Hensgen, Finkel and Manber, Int. J. Parallel Programming 17, 1988): in round r
//! each rank tells the one 2^r after it and hears from the one 2^r before it.

use onesided_fabric::Fabric;

use super::link::{Link, Outcome};
use super::published;

pub(super) async fn run<F: Fabric>(link: &mut Link<'_, F>) -> Outcome {
    if link.has_buffers(0) {
        return published::barrier(link).await;
    }
    let (me, size) = (link.me, link.size);
    let mut distance = 1;
    while distance < size {
        link.exchange(((me + distance) % size, &[]), ((me + size - distance) % size, &mut [])).await?;
        distance *= 2;
    }
    Ok(())
}
