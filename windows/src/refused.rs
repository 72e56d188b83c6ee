//! Tests for misuse that the types reject at compile time. Stable rustdoc does not compare the
//! errors' codes; the stage `refused` of `scripts/test` does.

/// An access ends with its lock.
///
/// ```
/// fn test(window: onesided_windows::Window<u8>) -> Result<(), onesided_windows::Error> {
///     let epoch = window.lock_exclusive(0).wait()?;
///     let access: &onesided_windows::Access<'_, u8> = &epoch;
///     access.put(0, &[1])?;
///     epoch.unlock().wait()
/// }
/// ```
///
/// ```compile_fail,E0505
/// fn test(window: onesided_windows::Window<u8>) -> Result<(), onesided_windows::Error> {
///     let epoch = window.lock_exclusive(0).wait()?;
///     let access: &onesided_windows::Access<'_, u8> = &epoch;
///     epoch.unlock().wait()?;
///     access.put(0, &[1])
/// }
/// ```
struct Access;

/// An operation is waited on under the lock that it was started under.
///
/// ```
/// fn test(window: onesided_windows::Window<u8>) -> Result<(), onesided_windows::Error> {
///     let epoch = window.lock_exclusive(0).wait()?;
///     let fetch = epoch.fetch_add(0, 1);
///     fetch.wait()?;
///     epoch.unlock().wait()
/// }
/// ```
///
/// ```compile_fail,E0505
/// fn test(window: onesided_windows::Window<u8>) -> Result<(), onesided_windows::Error> {
///     let epoch = window.lock_exclusive(0).wait()?;
///     let fetch = epoch.fetch_add(0, 1);
///     epoch.unlock().wait()?;
///     fetch.wait()?;
///     Ok(())
/// }
/// ```
///
/// ```compile_fail,E0505
/// fn test(window: onesided_windows::Window<u8>, into: &mut [u8]) -> Result<(), onesided_windows::Error> {
///     let epoch = window.lock_exclusive(0).wait()?;
///     let get = epoch.get(0, into);
///     drop(epoch);
///     get.wait()
/// }
/// ```
struct Handles;

/// The same between fences, and between start and complete.
///
/// ```
/// fn test(window: onesided_windows::Window<u8>) -> Result<(), onesided_windows::Error> {
///     let (fence, epoch) = (window.fence().wait()?, window.start(&[0]).wait()?);
///     let (one, other) = (fence.at(0)?.fetch_add(0, 1), epoch.at(0)?.fetch_add(0, 1));
///     one.wait()?;
///     other.wait()?;
///     fence.end().wait()?;
///     epoch.complete().wait()
/// }
/// ```
///
/// ```compile_fail,E0505
/// fn test(window: onesided_windows::Window<u8>) -> Result<(), onesided_windows::Error> {
///     let fence = window.fence().wait()?;
///     let fetch = fence.at(0)?.fetch_add(0, 1);
///     fence.end().wait()?;
///     fetch.wait()?;
///     Ok(())
/// }
/// ```
///
/// ```compile_fail,E0505
/// fn test(window: onesided_windows::Window<u8>) -> Result<(), onesided_windows::Error> {
///     let epoch = window.start(&[0]).wait()?;
///     let fetch = epoch.at(0)?.fetch_add(0, 1);
///     epoch.complete().wait()?;
///     fetch.wait()?;
///     Ok(())
/// }
/// ```
struct ActiveHandles;

/// The slice of a pending get cannot be read.
///
/// ```compile_fail,E0503
/// fn test(window: onesided_windows::Window<u8>) -> Result<u8, onesided_windows::Error> {
///     let epoch = window.lock_shared(0).wait()?;
///     let mut into = [0];
///     let get = epoch.get(0, &mut into);
///     let early = into[0];
///     get.wait()?;
///     Ok(early)
/// }
/// ```
struct Get;

/// The results of a pending accumulate cannot be read, and its operands cannot be written.
///
/// ```compile_fail,E0503
/// fn test(epoch: &onesided_windows::Access<'_, u8>, results: &mut [u8]) -> Result<u8, onesided_windows::Error> {
///     let accumulate = epoch.get_accumulate(0, &[1], results, onesided_windows::Op::Max);
///     let early = results[0];
///     accumulate.wait()?;
///     Ok(early)
/// }
/// ```
///
/// ```compile_fail,E0506
/// fn test(epoch: &onesided_windows::Access<'_, u8>, operands: &mut [u8]) -> Result<(), onesided_windows::Error> {
///     let accumulate = epoch.accumulate(0, operands, onesided_windows::Op::Max);
///     operands[0] = 2;
///     accumulate.wait()
/// }
/// ```
struct Accumulate;

/// A lock does not outlive its window.
///
/// ```compile_fail,E0505
/// fn test(window: onesided_windows::Window<u8>) -> Result<(), onesided_windows::Error> {
///     let epoch = window.lock_shared(0).wait()?;
///     window.close().wait()?;
///     epoch.unlock().wait()
/// }
/// ```
struct Epoch;

/// A window holds plain data: no pointers, no padding, no invalid bit patterns.
///
/// ```
/// fn test(world: onesided_fabric::World<onesided_fabric::Any>) {
///     let _ = onesided_windows::Window::<[u64; 4]>::allocate(&world, 1).wait();
/// }
/// ```
///
/// ```compile_fail,E0277
/// fn test(world: onesided_fabric::World<onesided_fabric::Any>) {
///     let _ = onesided_windows::Window::<&'static str>::allocate(&world, 1).wait();
/// }
/// ```
///
/// ```compile_fail,E0277
/// fn test(world: onesided_fabric::World<onesided_fabric::Any>) {
///     let _ = onesided_windows::Window::<bool>::allocate(&world, 1).wait();
/// }
/// ```
///
/// ```compile_fail,E0277
/// fn test(world: onesided_fabric::World<onesided_fabric::Any>) {
///     let _ = onesided_windows::Window::<(u8, u64)>::allocate(&world, 1);
/// }
/// ```
struct Element;

/// Atomic operations are for integers and floats.
///
/// ```compile_fail,E0277
/// fn test(access: &onesided_windows::Access<'_, [u64; 2], onesided_fabric::Any>) {
///     let _ = access.fetch_add(0, [1, 2]);
/// }
/// ```
struct Atomic;

/// A guard ends once and cannot be used afterwards.
///
/// ```compile_fail,E0382
/// fn test(window: onesided_windows::Window<u8>) -> Result<(), onesided_windows::Error> {
///     let epoch = window.lock_exclusive(0).wait()?;
///     epoch.unlock().wait()?;
///     epoch.unlock().wait()
/// }
/// ```
///
/// ```compile_fail,E0382
/// fn test(window: onesided_windows::Window<u8>) -> Result<(), onesided_windows::Error> {
///     let epoch = window.lock_exclusive(0).wait()?;
///     epoch.unlock().wait()?;
///     epoch.put(0, &[1])
/// }
/// ```
///
/// ```compile_fail,E0382
/// fn test(window: onesided_windows::Window<u8>) -> Result<(), onesided_windows::Error> {
///     let all = window.lock_all().wait()?;
///     all.unlock_all().wait()?;
///     all.at(0).wait()?.put(0, &[1])
/// }
/// ```
///
/// ```compile_fail,E0505
/// fn test(window: onesided_windows::Window<u8>) -> Result<(), onesided_windows::Error> {
///     let all = window.lock_all().wait()?;
///     let access = all.at(0).wait()?;
///     all.unlock_all().wait()?;
///     access.put(0, &[1])
/// }
/// ```
///
/// ```compile_fail,E0505
/// fn test(window: onesided_windows::Window<u8>) -> Result<(), onesided_windows::Error> {
///     let all = window.lock_all().wait()?;
///     let access = all.at(0);
///     all.unlock_all().wait()?;
///     access.wait().map(drop)
/// }
/// ```
///
/// ```compile_fail,E0382
/// fn test(window: onesided_windows::Window<u8>) -> Result<(), onesided_windows::Error> {
///     let epoch = window.fence().wait()?;
///     let next = epoch.fence().wait()?;
///     epoch.at(0)?.put(0, &[1])?;
///     next.end().wait()
/// }
/// ```
///
/// ```compile_fail,E0382
/// fn test(window: onesided_windows::Window<u8>) -> Result<(), onesided_windows::Error> {
///     let exposure = window.post(&[0])?;
///     exposure.wait()?;
///     exposure.wait()
/// }
/// ```
///
/// ```compile_fail,E0382
/// fn test(request: onesided_windows::handles::LockRequest<'_, u8>) {
///     let (one, other) = (request.wait(), request.wait());
/// }
/// ```
struct Guards;

/// An access cannot be copied out of its guard.
///
/// ```compile_fail,E0515
/// fn test(window: &onesided_windows::Window<u8>) -> &onesided_windows::Access<'_, u8> {
///     let epoch = window.lock_exclusive(0).wait().unwrap();
///     &epoch
/// }
/// ```
///
/// ```compile_fail,E0599
/// fn test(access: onesided_windows::Access<'_, u8>) {
///     let copy = access.clone();
/// }
/// ```
struct Copies;

/// A guard may move to another thread only if that thread ends before the window.
///
/// ```
/// fn test(window: onesided_windows::Window<u8>) {
///     let epoch = window.lock_exclusive(0).wait().unwrap();
///     std::thread::scope(|scope| scope.spawn(move || epoch.unlock().wait()).join().unwrap()).unwrap();
/// }
/// ```
///
/// ```compile_fail,E0597
/// fn test(window: onesided_windows::Window<u8>) {
///     let epoch = window.lock_exclusive(0).wait().unwrap();
///     std::thread::spawn(move || epoch.unlock().wait());
/// }
/// ```
struct Threads;

/// A scope borrows its slices until it ends; slices and locks must outlive it.
///
/// ```
/// fn test(window: onesided_windows::Window<u8>, epoch: &onesided_windows::Epoch<'_, u8>) -> Result<u8, onesided_windows::Error> {
///     let (mut left, mut right) = ([0], [0]);
///     window.scope(|scope| {
///         scope.get(epoch, 0, &mut left);
///         scope.get(epoch, 1, &mut right);
///         Ok(())
///     })?;
///     Ok(left[0] + right[0])
/// }
/// ```
///
/// ```compile_fail,E0499
/// fn test(window: onesided_windows::Window<u8>, epoch: &onesided_windows::Epoch<'_, u8>) -> Result<(), onesided_windows::Error> {
///     let mut into = [0];
///     window.scope(|scope| {
///         scope.get(epoch, 0, &mut into);
///         scope.get(epoch, 1, &mut into);
///         Ok(())
///     })
/// }
/// ```
///
/// ```compile_fail,E0503
/// fn test(window: onesided_windows::Window<u8>, epoch: &onesided_windows::Epoch<'_, u8>) -> Result<u8, onesided_windows::Error> {
///     let mut into = [0];
///     window.scope(|scope| {
///         scope.get(epoch, 0, &mut into);
///         Ok(into[0])
///     })
/// }
/// ```
///
/// ```compile_fail,E0597
/// fn test(window: onesided_windows::Window<u8>, epoch: &onesided_windows::Epoch<'_, u8>) -> Result<(), onesided_windows::Error> {
///     window.scope(|scope| {
///         let mut into = [0];
///         scope.get(epoch, 0, &mut into);
///         Ok(())
///     })
/// }
/// ```
///
/// ```compile_fail,E0505
/// fn test(window: onesided_windows::Window<u8>, mut into: [u8; 1]) -> Result<(), onesided_windows::Error> {
///     let epoch = window.lock_shared(0).wait()?;
///     window.scope(|scope| {
///         scope.get(&epoch, 0, &mut into);
///         epoch.unlock().wait()
///     })
/// }
/// ```
///
/// ```compile_fail,E0277
/// fn test(window: onesided_windows::Window<u8>, epoch: &onesided_windows::Epoch<'_, u8>) -> Result<(), onesided_windows::Error> {
///     window.scope(|scope| {
///         std::thread::scope(|threads| threads.spawn(|| scope.put(epoch, 0, &[1])).join()).unwrap();
///         Ok(())
///     })
/// }
/// ```
struct Scopes;

/// A buffer cannot be used while it is transferred.
///
/// ```compile_fail,E0382
/// fn test(access: &onesided_windows::Access<'_, u8>, buffer: onesided_windows::Buffer<u8>) -> Result<(), onesided_windows::Error> {
///     let transfer = access.put_buffer(0, buffer, 0..1);
///     buffer.write(0, &[1])?;
///     transfer.wait()?;
///     Ok(())
/// }
/// ```
struct Buffers;

/// The elements of a pending update cannot be read.
///
/// ```compile_fail,E0503
/// fn test(window: &onesided_windows::Window<u8>, elements: &mut [u8]) -> Result<u8, onesided_windows::Error> {
///     let home = window.locked(0);
///     let update = home.update(0, elements, |elements| elements[0] += 1);
///     let early = elements[0];
///     update.wait()?;
///     Ok(early)
/// }
/// ```
struct Fused;

/// A versioned window is written only through its guards, which cannot outlive it.
///
/// ```compile_fail,E0382
/// fn test(window: onesided_windows::Window<u8>) -> Result<(), onesided_windows::Error> {
///     let table = window.versioned();
///     window.lock_exclusive(0).wait()?.unlock().wait()
/// }
/// ```
///
/// ```compile_fail,E0505
/// fn test(table: onesided_windows::Versioned<u8>) -> Result<(), onesided_windows::Error> {
///     let epoch = table.write(0).wait()?;
///     table.close().wait()?;
///     epoch.unlock().wait()
/// }
/// ```
struct Versioned;

/// A field belongs to its own record type, has its own type, and ends with the lock.
///
/// ```
/// use bytemuck::{Pod, Zeroable};
/// use onesided_windows::{Error, Op, Window, field};
/// #[derive(Clone, Copy, Pod, Zeroable)]
/// #[repr(C)]
/// struct Pair { left: u32, right: [u16; 2] }
/// fn test(window: Window<Pair>) -> Result<(), Error> {
///     let epoch = window.lock_exclusive(0).wait()?;
///     epoch.fields(field!(Pair, left)).accumulate(0, &[1], Op::Sum).wait()?;
///     epoch.fields((field!(Pair, right).element(1), field!(Pair, left))).put(0, &[(1, 2)]).wait()?;
///     epoch.unlock().wait()
/// }
/// ```
///
/// Of another record:
///
/// ```compile_fail,E0277
/// use bytemuck::{Pod, Zeroable};
/// use onesided_windows::{Error, Op, Window, field};
/// #[derive(Clone, Copy, Pod, Zeroable)]
/// #[repr(C)]
/// struct Pair { left: u32, right: [u16; 2] }
/// fn test(epoch: &onesided_windows::Access<'_, [u32; 2], onesided_fabric::Any>) -> Result<(), Error> {
///     let left = epoch.fields(field!(Pair, left));
///     Ok(())
/// }
/// ```
///
/// Of another type:
///
/// ```compile_fail,E0308
/// use bytemuck::{Pod, Zeroable};
/// use onesided_windows::{Error, Field, field};
/// #[derive(Clone, Copy, Pod, Zeroable)]
/// #[repr(C)]
/// struct Pair { left: u32, right: [u16; 2] }
/// const LEFT: Field<Pair, f32> = field!(Pair, left);
/// ```
///
/// ```compile_fail,E0308
/// use bytemuck::{Pod, Zeroable};
/// use onesided_windows::{Error, Op, Window, field};
/// #[derive(Clone, Copy, Pod, Zeroable)]
/// #[repr(C)]
/// struct Pair { left: u32, right: [u16; 2] }
/// fn test(epoch: &onesided_windows::Access<'_, Pair>, values: &[f32]) -> Result<(), Error> {
///     epoch.fields(field!(Pair, left)).put(0, values).wait()
/// }
/// ```
///
/// An element out of the array's range:
///
/// ```compile_fail,E0080
/// use bytemuck::{Pod, Zeroable};
/// use onesided_windows::{Error, Field, field};
/// #[derive(Clone, Copy, Pod, Zeroable)]
/// #[repr(C)]
/// struct Pair { left: u32, right: [u16; 2] }
/// const THIRD: Field<Pair, u16> = field!(Pair, right).element(2);
/// ```
///
/// No atomic operation on several elements, or on types without atomics:
///
/// ```compile_fail,E0599
/// use bytemuck::{Pod, Zeroable};
/// use onesided_windows::{Error, Op, Window, field};
/// #[derive(Clone, Copy, Pod, Zeroable)]
/// #[repr(C)]
/// struct Pair { left: u32, right: [u16; 2] }
/// fn test(epoch: &onesided_windows::Access<'_, Pair>) -> Result<(), Error> {
///     epoch.fields(field!(Pair, right)).accumulate(0, &[[1, 2]], Op::Sum).wait()
/// }
/// ```
///
/// ```compile_fail,E0505
/// use bytemuck::{Pod, Zeroable};
/// use onesided_windows::{Error, Op, Window, field};
/// #[derive(Clone, Copy, Pod, Zeroable)]
/// #[repr(C)]
/// struct Pair { left: u32, right: [u16; 2] }
/// fn test(window: Window<Pair>) -> Result<(), Error> {
///     let epoch = window.lock_exclusive(0).wait()?;
///     let left = epoch.fields(field!(Pair, left));
///     epoch.unlock().wait()?;
///     left.put(0, &[1]).wait()
/// }
/// ```
///
/// The slice of a pending get cannot be read:
///
/// ```compile_fail,E0503
/// use bytemuck::{Pod, Zeroable};
/// use onesided_windows::{Error, Op, Window, field};
/// #[derive(Clone, Copy, Pod, Zeroable)]
/// #[repr(C)]
/// struct Pair { left: u32, right: [u16; 2] }
/// fn test(epoch: &onesided_windows::Access<'_, Pair>, into: &mut [u32]) -> Result<u32, Error> {
///     let get = epoch.fields(field!(Pair, left)).get(0, into);
///     let early = into[0];
///     get.wait()?;
///     Ok(early)
/// }
/// ```
struct Fields;

/// A thread waits on fabrics with real time only.
///
/// ```compile_fail,E0277
/// fn test<F: onesided_fabric::Fabric>(window: onesided_windows::Window<u8, F>) -> bool {
///     window.fence().wait().is_ok()
/// }
/// ```
struct Waits;
