//! The memory of a message that is read before its receive is waited for: the elements that the
//! receive returns.

use std::any::Any;

use bytemuck::Pod;
use onesided_fabric::remote_memory::{Fault, FaultKind};

use onesided_fabric::debug;

use crate::Payload;

/// So many elements, all zero, if there is memory.
pub(crate) fn zeroed<T: Pod>(len: usize) -> Result<Vec<T>, Fault> {
    let elements = bytemuck::allocation::try_zeroed_slice_box(len);
    Ok(elements.map_err(|()| Fault::new(FaultKind::NoMemory))?.into_vec())
}

/// Elements of a type that only the receive knows.
pub(crate) trait Elements: Any + Send + Sync {
    fn bytes(&self) -> &[u8];
    fn bytes_mut(&mut self) -> &mut [u8];
}

impl<T: Payload> Elements for Vec<T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(self)
    }
}

debug!([] dyn Elements, |this| "elements of {} bytes", this.bytes().len());

/// Allocates the elements of a message of so many bytes; fewer, if they are no whole number of
/// elements.
pub(crate) type Allocate = fn(u64) -> Option<Box<dyn Elements>>;

pub(crate) fn allocate<T: Payload>(bytes: u64) -> Option<Box<dyn Elements>> {
    Some(Box::new(zeroed::<T>(usize::try_from(bytes).ok()? / size_of::<T>()).ok()?))
}

/// The elements, if they are of this type.
pub(crate) fn into_vec<T: Payload>(elements: Box<dyn Elements>) -> Result<Vec<T>, Box<dyn Elements>> {
    if !(&*elements as &dyn Any).is::<Vec<T>>() {
        return Err(elements);
    }
    let elements: Box<dyn Any> = elements;
    Ok(elements.downcast().map(|elements| *elements).unwrap_or_default())
}
