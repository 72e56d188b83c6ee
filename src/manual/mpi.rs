//! Where a reader who knows MPI finds each call.
//!
//! Names and semantics are those of MPI-4.1, chapter 12. The differences:
//!
//! - **A guard in place of a pair of calls.** What `MPI_Win_lock` begins is a value. The operations
//!   are its methods, so an operation outside of an epoch does not compile. Its `unlock` consumes
//!   it, and a drop unlocks. [`Window::epochs`](crate::Window::epochs) has the calls of MPI,
//!   checked at run time, for programs that are ported.
//! - **Elements in place of datatypes, counts and displacement units.** A window has a Rust type.
//!   Offsets and lengths are in elements of it.
//! - **A request in place of a blocking call.** `.wait()` blocks (`MPI_Wait`), `.await` does not,
//!   `.test()` polls (`MPI_Test`). A request may be dropped, and may have a `.deadline()`.
//! - **Errors are returned**, and name the operation, the target, the window and the reason.
//!   Nothing aborts the job.
//! - **Passive means passive**: a lock is granted while the target computes, and needs no call of
//!   the library there.
//! - **Atomic operations may be mixed** on one element. By default MPI promises atomicity for the
//!   same operation, or no-op, only.
//!
//! # The job
//!
//! | MPI | here |
//! |---|---|
//! | `mpiexec -n 4` | `onesided run -n 4 --`, or MPICH's `mpiexec` itself: [processes](super::processes) |
//! | `MPI_Init` | [`World::init`](crate::World::init) |
//! | `MPI_Finalize` | drop the last handle of the world, or [`World::close`](crate::World::close) |
//! | `MPI_COMM_WORLD`, a communicator, a group | [`World`](crate::World) |
//! | `MPI_Comm_rank`, `MPI_Comm_size` | [`World::rank`](crate::World::rank), [`World::size`](crate::World::size) |
//! | `MPI_Comm_split`; by `MPI_COMM_TYPE_SHARED` | [`World::split`](crate::World::split); [`World::split_by_host`](crate::World::split_by_host) |
//! | `MPI_Barrier` | [`World::barrier`](crate::World::barrier) |
//! | `MPI_Allgather` of bytes | [`World::all_gather`](crate::World::all_gather) |
//! | other collectives | those of [messages](#collectives) |
//! | `MPI_Abort` | [`World::abort`](crate::World::abort) |
//! | `MPI_THREAD_MULTIPLE` | always |
//!
//! Collective calls have one order on each world, window and communicator, and none between them
//! (MPI-4.1, sections 6.14 and 12.2), so that threads of a rank may be in fences of different windows.
//! Creating a window, a value, a table or a communicator is a call of its world. Ranks that are in
//! different calls of one world or window are told so (`OutOfStep`). Ranks that are in calls of different
//! ones wait for one another: another thread may come to each. `onesided run --stuck-after` names both,
//! and a deadline ends it. Two threads that are in collective calls of one world at the same time are an
//! error of the program that is not noticed.
//!
//! # Messages
//!
//! | MPI | here |
//! |---|---|
//! | a communicator, `MPI_Comm_dup` | [`Messages::new`](crate::Messages::new) of a world |
//! | `MPI_Comm_create_group` | [`Messages::create_group`](crate::Messages::create_group) |
//! | `MPI_Send`, `MPI_Isend` | [`Messages::send`](crate::Messages::send) |
//! | `MPI_Recv`, `MPI_Irecv` | [`Messages::recv`](crate::Messages::recv), [`recv_into`](crate::Messages::recv_into) |
//! | `MPI_ANY_SOURCE`, `MPI_ANY_TAG` | [`Source::Any`](crate::Source::Any), [`Tags::Any`](crate::Tags::Any) |
//! | `MPI_Probe`, `MPI_Iprobe`; `MPI_Mprobe`, `MPI_Mrecv` | [`Messages::probe`](crate::Messages::probe); [`match_probe`](crate::Messages::match_probe) |
//! | `MPI_Cancel` of a receive | drop its handle |
//! | `MPI_Send`, `MPI_Recv` with a derived datatype | [`send_shaped`](crate::Messages::send_shaped), [`recv_shaped`](crate::Messages::recv_shaped) |
//! | `MPI_Ssend`, `MPI_Issend` | [`Messages::send_synchronous`](crate::Messages::send_synchronous) |
//! | `MPI_Waitany`, `MPI_Waitsome`, `MPI_Waitall`, `MPI_Testsome` | [`World::wait_any`](crate::World::wait_any), `wait_some`, `wait_all`, `test_some` |
//! | `MPI_Sendrecv` | `send`, then `recv`, then wait for both |
//! | `MPI_Send_init`, `MPI_Recv_init`; `MPI_Start`, `MPI_Startall` | [`Messages::send_init`](crate::Messages::send_init), [`recv_init`](crate::Messages::recv_init), which have no buffer; [`start`](crate::PersistentSend::start), [`start_all`](crate::PersistentSend::start_all) with it, and those of [`PersistentRecv`](crate::PersistentRecv) |
//! | `MPI_Ssend_init`, `MPI_Bsend_init`, `MPI_Rsend_init`; persistent sends of shapes | none so far; `MPI_Request_free` is `drop` |
//!
//! # Collectives
//!
//! Of a communicator. Each returns a request, so that the nonblocking ones have no names of their
//! own. Arguments in place are `&mut`; where the own block is apart, it may be
//! [`InPlace`](crate::InPlace).
//!
//! | MPI | here |
//! |---|---|
//! | `MPI_Barrier`, `MPI_Bcast` | [`Messages::barrier`](crate::Messages::barrier), [`broadcast`](crate::Messages::broadcast) |
//! | `MPI_Reduce`, `MPI_Allreduce` | [`reduce`](crate::Messages::reduce), [`all_reduce`](crate::Messages::all_reduce) |
//! | `MPI_Reduce_scatter_block`, `MPI_Reduce_scatter` | [`reduce_scatter`](crate::Messages::reduce_scatter), [`reduce_scatter_v`](crate::Messages::reduce_scatter_v) |
//! | `MPI_Scan`, `MPI_Exscan` | [`scan`](crate::Messages::scan), [`exclusive_scan`](crate::Messages::exclusive_scan) |
//! | `MPI_Gather`, `MPI_Gatherv` | [`gather`](crate::Messages::gather), [`gather_v`](crate::Messages::gather_v) |
//! | `MPI_Scatter`, `MPI_Scatterv` | [`scatter`](crate::Messages::scatter), [`scatter_v`](crate::Messages::scatter_v) |
//! | `MPI_Allgather`, `MPI_Allgatherv` | [`all_gather`](crate::Messages::all_gather), [`all_gather_v`](crate::Messages::all_gather_v) |
//! | `MPI_Alltoall`, `MPI_Alltoallv` | [`all_to_all`](crate::Messages::all_to_all), [`all_to_all_v`](crate::Messages::all_to_all_v) |
//! | `MPI_Ibarrier`, `MPI_Ibcast`, ... | the same, with [`.start()`](crate::handles::CollectiveRequest::start) of the request |
//! | `MPI_IN_PLACE` | `&mut` slices; [`InPlace`](crate::InPlace) |
//! | `MPI_SUM`, `MPI_MAXLOC`, ... | [`Op`](crate::Op), [`Located`](crate::Located) |
//! | `MPI_Op_create` with `commute` 0; 1 | a function of two elements; [`Commutative`](crate::Commutative) |
//! | `MPI_Neighbor_allgather`, ...; persistent collectives | none so far |
//!
//! # Windows
//!
//! | MPI | here |
//! |---|---|
//! | `MPI_Win_allocate` | [`Window::allocate`](crate::Window::allocate); sizes that differ: [`uneven`](crate::Builder::uneven) |
//! | `MPI_Win_allocate_shared`, `MPI_Win_shared_query` | [`Window::allocate`](crate::Window::allocate), then [`Window::direct`](crate::Window::direct) |
//! | `MPI_Win_create` | [`Window::create`](crate::Window::create) over a vector; [`create_from`](crate::Builder::create_from) over other memory |
//! | windows that overlap | [`WindowMemory`](crate::WindowMemory), [`Window::create_over`](crate::Window::create_over) |
//! | `MPI_Win_create_dynamic`, `MPI_Win_attach`, `MPI_Win_detach` | [`Window::dynamic`](crate::Window::dynamic), [`Window::attach`](crate::Window::attach), [`Window::detach`](crate::Window::detach) |
//! | an address in a dynamic window | [`RemotePtr`](crate::RemotePtr) |
//! | `MPI_Win_free` | [`Window::close`](crate::Window::close) |
//! | `MPI_Info` keys, `MPI_Win_set_name` | the [`Builder`](crate::Builder)'s methods |
//! | `MPI_Win_get_info`, `MPI_Win_get_attr` | [`Window::info`](crate::Window::info) |
//! | the rank's own memory, by a pointer | [`Window::local`](crate::Window::local), which copies; [`Window::direct`](crate::Window::direct), which has atomics |
//!
//! # Operations
//!
//! | MPI | here |
//! |---|---|
//! | `MPI_Put`, `MPI_Rput` | [`Access::put`](crate::Access::put): the slice is free when the call returns, so there is no request |
//! | `MPI_Get`, `MPI_Rget` | [`Access::get`](crate::Access::get) |
//! | `MPI_Accumulate`, `MPI_Get_accumulate`, and with `R` | [`Access::accumulate`](crate::Access::accumulate), [`Access::get_accumulate`](crate::Access::get_accumulate) |
//! | `MPI_Fetch_and_op`, `MPI_Compare_and_swap` | [`Access::fetch_and_op`](crate::Access::fetch_and_op), [`Access::fetch_add`](crate::Access::fetch_add), [`Access::compare_and_swap`](crate::Access::compare_and_swap) |
//! | an atomic read: `MPI_Fetch_and_op` with `MPI_NO_OP` | [`Access::fetch_one`](crate::Access::fetch_one) |
//! | `MPI_SUM`, `MPI_REPLACE`, `MPI_NO_OP`, ... | [`Op`](crate::Op) |
//! | `MPI_Type_vector`, `MPI_Type_indexed` | [`Shape`](crate::Shape), with [`put_shaped`](crate::Access::put_shaped) and its relatives |
//! | `MPI_Type_create_struct` | an element with fields: [`Access::fields`](crate::Access::fields) |
//! | `MPI_MINLOC`, `MPI_MAXLOC` | [`Located`](crate::Located) |
//! | `MPI_Alloc_mem` for a buffer | [`Window::buffer`](crate::Window::buffer) |
//!
//! # Synchronisation
//!
//! | MPI | here |
//! |---|---|
//! | `MPI_Win_lock(MPI_LOCK_EXCLUSIVE)`, `MPI_Win_unlock` | [`Window::lock_exclusive`](crate::Window::lock_exclusive), [`Epoch::unlock`](crate::Epoch::unlock) |
//! | `MPI_Win_lock(MPI_LOCK_SHARED)` | [`Window::lock_shared`](crate::Window::lock_shared) |
//! | `MPI_Win_lock_all`, `MPI_Win_unlock_all` | [`Window::lock_all`](crate::Window::lock_all), [`LockAll::unlock_all`](crate::LockAll::unlock_all); the [default](super::lock_semantics#locking-all-targets) locks a target when it is accessed |
//! | the assertion `MPI_MODE_NOCHECK` | [`Window::no_check`](crate::Window::no_check) |
//! | `MPI_Win_flush`, `MPI_Win_flush_local` | [`Access::flush`](crate::Access::flush), [`Access::flush_local`](crate::Access::flush_local) |
//! | `MPI_Win_flush_all`, `MPI_Win_flush_local_all` | [`LockAll::flush_all`](crate::LockAll::flush_all), [`LockAll::flush_local_all`](crate::LockAll::flush_local_all) |
//! | `MPI_Win_sync` | [`Window::sync`](crate::Window::sync) |
//! | `MPI_Win_fence` | [`Window::fence`](crate::Window::fence), [`FenceEpoch::fence`](crate::FenceEpoch::fence), [`FenceEpoch::end`](crate::FenceEpoch::end) |
//! | `MPI_Win_start`, `MPI_Win_complete` | [`Window::start`](crate::Window::start), [`AccessEpoch::complete`](crate::AccessEpoch::complete) |
//! | `MPI_Win_post`, `MPI_Win_wait`, `MPI_Win_test` | [`Window::post`](crate::Window::post), and `.wait()` or `.test()` of what it returns |
//!
//! # What MPI does not have
//!
//! | | |
//! |---|---|
//! | a value with its lock | [`Mutex`](crate::Mutex), [`RwLock`](crate::RwLock) |
//! | up to millions of locks by number | [`LockTable`](crate::LockTable) |
//! | lock, operate and unlock in one round trip | [`Window::locked`](crate::Window::locked) |
//! | reads without a lock, of one version | [`Window::versioned`](crate::Window::versioned) |
//! | try, deadline, cancel, recovery of a lock | [lock semantics](super::lock_semantics), [death and leases](super::death_and_leases) |
//! | numbers that rise from owner to owner | [`Epoch::fencing_token`](crate::Epoch::fencing_token) |
//! | a put that wakes its receiver (OpenSHMEM's signals) | [`Access::put_signal`](crate::Access::put_signal), [`Access::signal`](crate::Access::signal), [`Local::wait_until`](crate::Local::wait_until) |
//! | many operations on borrowed slices | [`Window::scope`](crate::Window::scope) |
//! | which way each operation took, and why | [`Window::explain`](crate::Window::explain), [`Window::paths`](crate::Window::paths) |
