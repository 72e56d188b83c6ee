//! User memory: registered with a fabric and returned.
#![allow(unsafe_code)] // takes a vector apart and reassembles it

use std::any::{Any, TypeId};
use std::mem::{self, ManuallyDrop};
use std::ptr::NonNull;
use std::slice;

use bytemuck::Pod;
use onesided_remote_memory::{Fault, FaultKind, Rank, debug};

use crate::Error;

/// Owned, untyped memory of the user: [`Fabric::register`](crate::Fabric::register) takes it, and
/// [`Fabric::reclaim`](crate::Fabric::reclaim) returns it.
///
/// It is owned and not borrowed, because forgetting a borrow's guard would not end peers' access.
/// Its length in bytes is a multiple of 8, so that every element lies in one of its words. A
/// vector's spare capacity fills the last word; a vector without spare capacity is reallocated,
/// which may move it.
///
/// ```
/// # use onesided_fabric::UserMemory;
/// let memory = UserMemory::from(vec![1_u16, 2, 3]);
/// assert_eq!((memory.len(), memory.bytes()), (8, &[1, 0, 2, 0, 3, 0, 0, 0][..]));
/// assert_eq!(memory.into_vec::<u16>().unwrap(), [1, 2, 3]);
/// ```
pub struct UserMemory {
    start: NonNull<u8>,
    /// In bytes; a multiple of 8.
    len: usize,
    /// Frees the memory when it is dropped; `None` once another value has it.
    keep: Option<Box<dyn Keep>>,
    /// Who gets it when it is dropped: the last one first.
    backs: Vec<Back>,
}

type Back = Box<dyn FnOnce(UserMemory) + Send + Sync>;

// SAFETY: it alone owns the bytes; its keeper is Send.
unsafe impl Send for UserMemory {}
// SAFETY: through a shared reference the bytes can only be read.
unsafe impl Sync for UserMemory {}

/// The owner of the memory.
trait Keep: Send + Sync + Any {}

impl<K: Send + Sync + Any> Keep for K {}

/// A vector, taken apart: no reference to its elements exists until it is reassembled.
struct Apart<T: Pod> {
    start: NonNull<T>,
    len: usize,
    capacity: usize,
}

// SAFETY: it owns the elements, as the vector did; plain data is Send.
unsafe impl<T: Pod> Send for Apart<T> {}
// SAFETY: nothing is accessed through a shared reference to it.
unsafe impl<T: Pod> Sync for Apart<T> {}

impl<T: Pod> Apart<T> {
    fn of(mut vec: Vec<T>) -> Self {
        let (len, capacity) = (vec.len(), vec.capacity());
        let start = NonNull::new(vec.as_mut_ptr()).expect("a vector's pointer is not null");
        let _ = ManuallyDrop::new(vec);
        Self { start, len, capacity }
    }

    fn together(self) -> Vec<T> {
        let apart = ManuallyDrop::new(self);
        // SAFETY: the parts of one vector, which was not dropped; `self` is consumed, so they are
        // used once.
        unsafe { Vec::from_raw_parts(apart.start.as_ptr(), apart.len, apart.capacity) }
    }
}

impl<T: Pod> Drop for Apart<T> {
    fn drop(&mut self) {
        // SAFETY: as in `together`, which keeps this drop from running.
        drop(unsafe { Vec::from_raw_parts(self.start.as_ptr(), self.len, self.capacity) });
    }
}

impl<T: Pod> From<Vec<T>> for UserMemory {
    /// Whole words: those behind the elements are 0.
    fn from(mut vec: Vec<T>) -> Self {
        let used = size_of_val(vec.as_slice());
        let len = used.next_multiple_of(8);
        if size_of::<T>() > 0 && len > vec.capacity() * size_of::<T>() {
            vec.reserve_exact((len - used).div_ceil(size_of::<T>()));
        }
        let len = if size_of::<T>() > 0 { len } else { 0 };
        let apart = Apart::of(vec);
        let start = apart.start.cast::<u8>();
        // SAFETY: `used` bytes are the elements'; the bytes up to `len` are capacity, as ensured
        // above.
        let fill = unsafe { start.add(used) };
        // SAFETY: as above; only this value has access to them.
        unsafe { fill.write_bytes(0, len - used) };
        Self { start, len, keep: Some(Box::new(apart)), backs: Vec::new() }
    }
}

impl<T: Pod> From<Box<[T]>> for UserMemory {
    fn from(elements: Box<[T]>) -> Self {
        elements.into_vec().into()
    }
}

impl Drop for UserMemory {
    fn drop(&mut self) {
        if let Some(back) = self.backs.pop() {
            let (keep, backs) = (self.keep.take(), mem::take(&mut self.backs));
            back(Self { start: self.start, len: self.len, keep, backs });
        }
    }
}

impl UserMemory {
    /// The same memory, which `back` gets when this is dropped: when a fabric has refused it, or the
    /// segment is gone. [`into_vec`](Self::into_vec) and [`into_owner`](Self::into_owner) see through it.
    ///
    /// ```
    /// # use onesided_fabric::UserMemory;
    /// # use std::sync::mpsc::channel;
    /// let (back, refused) = channel();
    /// let memory = UserMemory::from(vec![1_u64, 2]).returned(move |memory| back.send(memory).unwrap());
    /// drop(memory);
    /// assert_eq!(refused.recv().unwrap().into_vec::<u64>().unwrap(), [1, 2]);
    /// ```
    #[must_use]
    pub fn returned(mut self, back: impl FnOnce(Self) + Send + Sync + 'static) -> Self {
        self.backs.push(Box::new(back));
        self
    }

    /// Takes the last call of [`returned`](Self::returned) back, if there was one.
    #[must_use]
    pub fn not_returned(mut self) -> Self {
        self.backs.pop();
        self
    }

    /// What keeps it, unless that is of another type.
    fn keep<K: Any>(mut self) -> Result<Box<K>, Self> {
        match self.keep.take() {
            Some(keep) if (*keep).type_id() == TypeId::of::<K>() => {
                self.backs.clear();
                let keep: Box<dyn Any> = keep;
                Ok(keep.downcast().unwrap_or_else(|_| unreachable!("its type was checked")))
            }
            keep => {
                self.keep = keep;
                Err(self)
            }
        }
    }

    /// Memory that something else owns, such as a mapping or another library's buffer.
    /// [`into_owner`](Self::into_owner) returns `keep`.
    ///
    /// # Errors
    /// `Misaligned` if the address or the length is not a multiple of 8.
    ///
    /// # Safety
    /// Until `keep` is dropped, `len` bytes at `start` are initialised, valid for reads and writes
    /// by any thread, and accessed by nothing but this value and the fabric that it is registered
    /// with.
    pub unsafe fn from_raw_parts(start: NonNull<u8>, len: usize, keep: impl Any + Send + Sync) -> Result<Self, Fault> {
        if !start.addr().get().is_multiple_of(8) || !len.is_multiple_of(8) {
            return Err(Fault::new(FaultKind::Misaligned));
        }
        Ok(Self { start, len, keep: Some(Box::new(keep)), backs: Vec::new() })
    }

    /// Its length in bytes; a multiple of 8.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes; fabrics refuse such memory.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its bytes. Nothing else accesses them while the memory is not registered.
    #[must_use]
    pub const fn bytes(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes that this value alone owns. A fabric that gives peers
        // access keeps the value, and returns it only after their accesses have ended.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// Its bytes, mutable.
    #[must_use]
    pub const fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as `bytes`, borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// The vector, or the boxed slice, that it was made from.
    ///
    /// # Errors
    /// Returns the memory if it was made from something else.
    pub fn into_vec<T: Pod>(self) -> Result<Vec<T>, Self> {
        self.keep().map(|apart: Box<Apart<T>>| apart.together())
    }

    /// Its [owner](Self::from_raw_parts).
    ///
    /// # Errors
    /// Returns the memory if its owner has another type.
    pub fn into_owner<K: Any + Send + Sync>(self) -> Result<K, Self> {
        self.keep().map(|owner| *owner)
    }

    /// Whether it can be registered, by this rank.
    pub(crate) fn check(&self, rank: Rank) -> Result<(), Error> {
        let failed = |what, kind| Err(Error::allocate(self.len as u64, what, Fault::of(kind, rank)));
        match self.start.addr().get().is_multiple_of(8) {
            _ if self.is_empty() => failed("there are no bytes to register", FaultKind::OutOfRange),
            false => failed("the memory does not begin at a multiple of 8", FaultKind::Misaligned),
            true => Ok(()),
        }
    }

    /// Its start.
    pub(crate) const fn start(&self) -> NonNull<u8> {
        self.start
    }
}

debug!([] UserMemory, |this| "{} bytes of the user's", this.len);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn through<T: Pod + PartialEq + std::fmt::Debug>(vec: Vec<T>) {
        let copy = vec.clone();
        let mut memory = UserMemory::from(vec);
        assert_eq!(memory.len(), size_of_val(copy.as_slice()).next_multiple_of(8));
        assert_eq!(memory.bytes()[..size_of_val(copy.as_slice())], *bytemuck::cast_slice::<T, u8>(&copy));
        assert!(memory.bytes()[size_of_val(copy.as_slice())..].iter().all(|byte| *byte == 0));
        memory.bytes_mut().iter_mut().for_each(|byte| *byte = !*byte);
        memory.bytes_mut().iter_mut().for_each(|byte| *byte = !*byte);
        let memory = memory.into_vec::<[T; 2]>().unwrap_err();
        assert_eq!(memory.into_vec::<T>().unwrap(), copy);
    }

    #[test]
    fn a_vector_comes_back_as_it_was() {
        for len in 0..40 {
            through((0..len).collect::<Vec<u8>>());
            through((0..u16::from(len)).collect::<Vec<_>>());
            through((0..len).map(|at| [at; 3]).collect::<Vec<_>>());
            through((0..u64::from(len)).collect::<Vec<_>>());
            let mut spare = Vec::with_capacity(100);
            spare.extend(0..u32::from(len));
            let start = spare.as_ptr();
            let memory = UserMemory::from(spare);
            assert_eq!(memory.start().as_ptr().cast(), start.cast_mut(), "there was room: it did not move");
            assert_eq!(memory.into_vec::<u32>().unwrap().capacity(), 100);
        }
        assert_eq!(UserMemory::from(vec![1_u64, 2].into_boxed_slice()).into_vec::<u64>().unwrap(), [1, 2]);
    }

    #[test]
    fn what_is_to_be_returned_is_returned_once() {
        let (back, returned) = std::sync::mpsc::channel();
        let to_be = |back: std::sync::mpsc::Sender<UserMemory>| {
            UserMemory::from(vec![1_u64, 2]).returned(move |memory| back.send(memory).unwrap())
        };
        let twice = to_be(back.clone()).returned(drop);
        assert_eq!(twice.bytes()[8], 2);
        let kept = twice.into_vec::<u32>().unwrap_err();
        assert_eq!(kept.into_vec::<u64>().unwrap(), [1, 2]);
        assert!(returned.try_recv().is_err(), "its user has it");
        drop(to_be(back).returned(drop));
        assert_eq!(returned.try_iter().map(|memory| memory.into_vec::<u64>().unwrap()).collect::<Vec<_>>(), [[1, 2]]);
    }

    #[test]
    fn what_is_kept_is_dropped_once() {
        let keep = Arc::new(vec![[0_u64; 4]]);
        let start = NonNull::from(&keep[0]).cast();
        // SAFETY: 32 bytes that `keep` owns, and which the test does not access.
        let memory = unsafe { UserMemory::from_raw_parts(start, 32, Arc::clone(&keep)) }.unwrap();
        assert_eq!(Arc::strong_count(&keep), 2);
        let memory = memory.into_vec::<u64>().unwrap_err().into_owner::<Vec<u64>>().unwrap_err();
        let memory = {
            let again = memory.into_owner::<Arc<Vec<[u64; 4]>>>().unwrap();
            assert!(Arc::ptr_eq(&again, &keep));
            // SAFETY: as above.
            unsafe { UserMemory::from_raw_parts(start, 32, again) }.unwrap()
        };
        assert_eq!(Arc::strong_count(&keep), 2);
        drop(memory);
        assert_eq!(Arc::strong_count(&keep), 1);
        // SAFETY: the call is refused.
        assert!(unsafe { UserMemory::from_raw_parts(start, 7, ()) }.is_err());
        drop(UserMemory::from(vec![5_u8; 1000]));
    }
}
