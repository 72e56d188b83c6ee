//! The pieces of a put or get on a shape: offsets in the window memory, and the bytes for each.

use std::iter;
use std::ops::Range;

use onesided_layouts::Runs;

/// The pieces at this offset of the window memory, in elements: `cut` takes the next ones from the start of a run,
/// which is not empty, and of the values.
#[inline]
pub(crate) fn pieces<V, P: Iterator>(
    offset: usize,
    mut runs: Runs<'_>,
    mut values: V,
    cut: impl Fn(&mut Range<usize>, &mut V) -> P,
) -> impl Iterator<Item = P::Item> {
    let (mut run, mut parts) = (0..0, None::<P>);
    iter::from_fn(move || {
        loop {
            if let Some(part) = parts.as_mut().and_then(Iterator::next) {
                return Some(part);
            }
            if run.is_empty() {
                let next = runs.next()?;
                run = offset + next.start..offset + next.end;
            }
            parts = Some(cut(&mut run, &mut values));
        }
    })
}
