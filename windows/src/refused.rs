//! What the types refuse to compile, as tests.

/// An access ends with its lock.
///
/// ```
/// fn test(window: windows::Window<u8>) -> Result<(), windows::Error> {
///     let epoch = window.lock_exclusive(0).wait()?;
///     let access: &windows::Access<'_, u8, fabric::Any> = &epoch;
///     access.put(0, &[1])?;
///     epoch.unlock()
/// }
/// ```
///
/// ```compile_fail,E0505
/// fn test(window: windows::Window<u8>) -> Result<(), windows::Error> {
///     let epoch = window.lock_exclusive(0).wait()?;
///     let access: &windows::Access<'_, u8, fabric::Any> = &epoch;
///     epoch.unlock()?;
///     access.put(0, &[1])
/// }
/// ```
struct Access;

/// Whatever was begun under a lock is waited for under it: afterwards it would run without.
///
/// ```
/// fn test(window: windows::Window<u8>) -> Result<(), windows::Error> {
///     let epoch = window.lock_exclusive(0).wait()?;
///     let fetch = epoch.fetch_add(0, 1);
///     fetch.wait()?;
///     epoch.unlock()
/// }
/// ```
///
/// ```compile_fail,E0505
/// fn test(window: windows::Window<u8>) -> Result<(), windows::Error> {
///     let epoch = window.lock_exclusive(0).wait()?;
///     let fetch = epoch.fetch_add(0, 1);
///     epoch.unlock()?;
///     fetch.wait()?;
///     Ok(())
/// }
/// ```
///
/// ```compile_fail,E0505
/// fn test(window: windows::Window<u8>, into: &mut [u8]) -> Result<(), windows::Error> {
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
/// fn test(window: windows::Window<u8>) -> Result<(), windows::Error> {
///     let (fence, epoch) = (window.fence().wait()?, window.start(&[0]).wait()?);
///     let (one, other) = (fence.at(0)?.fetch_add(0, 1), epoch.at(0)?.fetch_add(0, 1));
///     one.wait()?;
///     other.wait()?;
///     fence.end()?;
///     epoch.complete()
/// }
/// ```
///
/// ```compile_fail,E0505
/// fn test(window: windows::Window<u8>) -> Result<(), windows::Error> {
///     let fence = window.fence().wait()?;
///     let fetch = fence.at(0)?.fetch_add(0, 1);
///     fence.end()?;
///     fetch.wait()?;
///     Ok(())
/// }
/// ```
///
/// ```compile_fail,E0505
/// fn test(window: windows::Window<u8>) -> Result<(), windows::Error> {
///     let epoch = window.start(&[0]).wait()?;
///     let fetch = epoch.at(0)?.fetch_add(0, 1);
///     epoch.complete()?;
///     fetch.wait()?;
///     Ok(())
/// }
/// ```
struct ActiveHandles;

/// What a get fills is not read before.
///
/// ```compile_fail,E0502
/// fn test(window: windows::Window<u8>) -> Result<u8, windows::Error> {
///     let epoch = window.lock_shared(0).wait()?;
///     let mut into = [0];
///     let get = epoch.get(0, &mut into);
///     let early = into[0];
///     get.wait()?;
///     Ok(early)
/// }
/// ```
struct Get;

/// The results of an accumulate are not read before, and its operands are not written.
///
/// ```compile_fail,E0502
/// fn test(epoch: &windows::Access<'_, u8, fabric::Any>, results: &mut [u8]) -> Result<u8, windows::Error> {
///     let accumulate = epoch.get_accumulate(0, &[1], results, windows::Op::Max);
///     let early = results[0];
///     accumulate.wait()?;
///     Ok(early)
/// }
/// ```
///
/// ```compile_fail,E0506
/// fn test(epoch: &windows::Access<'_, u8, fabric::Any>, operands: &mut [u8]) -> Result<(), windows::Error> {
///     let accumulate = epoch.accumulate(0, operands, windows::Op::Max);
///     operands[0] = 2;
///     accumulate.wait()
/// }
/// ```
struct Accumulate;

/// A lock does not outlive its window.
///
/// ```compile_fail,E0505
/// fn test(window: windows::Window<u8>) -> Result<(), windows::Error> {
///     let epoch = window.lock_shared(0).wait()?;
///     window.close()?;
///     epoch.unlock()
/// }
/// ```
struct Epoch;

/// A window holds plain data: neither pointers, nor padding, nor bits that are no value.
///
/// ```
/// fn test(world: fabric::World<fabric::Any>) {
///     let _ = windows::Window::<[u64; 4]>::allocate(&world, 1);
/// }
/// ```
///
/// ```compile_fail,E0277
/// fn test(world: fabric::World<fabric::Any>) {
///     let _ = windows::Window::<&'static str>::allocate(&world, 1);
/// }
/// ```
///
/// ```compile_fail,E0277
/// fn test(world: fabric::World<fabric::Any>) {
///     let _ = windows::Window::<bool>::allocate(&world, 1);
/// }
/// ```
///
/// ```compile_fail,E0277
/// fn test(world: fabric::World<fabric::Any>) {
///     let _ = windows::Window::<(u8, u64)>::allocate(&world, 1);
/// }
/// ```
struct Element;

/// Atomic operations are for integers and floats.
///
/// ```compile_fail,E0599
/// fn test(access: &windows::Access<'_, [u64; 2], fabric::Any>) {
///     let _ = access.fetch_add(0, [1, 2]);
/// }
/// ```
struct Atomic;
