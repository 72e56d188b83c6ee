//! The locks that windows have, and what each promises.
//!
//! Every part of a window has a lock. Its design is the window's: [`Builder::lock`](crate::Builder::lock) chooses it, or
//! `ONESIDED_LOCK` by name for windows whose builder names none; [`info`](crate::Window::info) and
//! [`explain`](crate::Window::explain) tell it. Ranks that do not agree on it all get
//! [`Mismatch`](onesided_windows::Error::Mismatch). `onesided bench locks --lock all` shows them side by side.
//!
//! | | [`TestAndSet`](crate::LockDesign::TestAndSet) | [`Mcs`](crate::LockDesign::Mcs) | [`Ticket`](crate::LockDesign::Ticket) | [`FetchAddQueue`](crate::LockDesign::FetchAddQueue) | [`DistributedCounters`](crate::LockDesign::DistributedCounters) | [`TwoLevel`](crate::LockDesign::TwoLevel) | [`DedicatedThread`](crate::LockDesign::DedicatedThread), [`EventThread`](crate::LockDesign::EventThread) |
//! |---|---|---|---|---|---|---|---|
//! | name | `test-and-set` (or `tas`) | `mcs` | `ticket` | `fetch-add-queue` | `distributed-counters` | `two-level` | `dedicated-thread`, `event-thread`, each with `-per-window` for a thread of each window's own |
//! | source | jiang-2004, section 5.1; the shared mode is ours | jiang-2004, section 5.2; Mellor-Crummey and Scott 1991; the shared mode is ours | DSLR (Yoon, Chowdhury, Mozafari, SIGMOD 2018), section 4 | DecLock (arXiv 2505.17641), on the tickets of DSLR | RMA-RW (Schmid, Besta, Hoefler, HPDC 2016), on the tickets of DSLR | HOCL (Wang, Lu, Shu, SIGMOD 2022) and ALock (Baran et al., SPAA 2024), on the tickets of DSLR, with the short way of Fissile locks (Dice, Kogan, NETYS 2020) | jiang-2004, sections 4.1 and 4.2 |
//! | words at the target | 1 | 1 | 1 | 33 | 2, and one at every rank | 1, and two at a rank of each host | 5, and 8 to 64 lines for each rank |
//! | a rank's words for each lock that it waits for or holds | 1, of readers | 3 | 1 | 2 | 1 | 3 | 3 |
//! | uncontended lock and unlock | compare-swap, and a write for which nobody waits (on cards a compare-swap; shared: fetch-add) | compare-swap and compare-swap (shared: fetch-add) | fetch-add and fetch-add | fetch-add and fetch-add | shared: two fetch-adds on one's own rank's memory; exclusive: a fetch-add at the target and two at every rank | compare-swap and compare-swap (shared: fetch-add) at the target; who finds it taken, a ticket and its return among the words of the host as well, by the CPU | two writes ask, one answers; two writes, for which nobody waits |
//! | who waits | tries again, with exponential backoff | sleeps on a word of its own; one write hands over | reads the word, paced by how many are before it | makes an entry, by one write, and sleeps on a word of its own; one write hands over, to an owner or to each of a run of readers | as tickets; who waits for readers reads their counters | on the same host: reads a word there, by the CPU, paced by how many are before it; for another host: as test-and-set | sleeps on a word of its own; the thread at the target answers |
//! | fairness | none: whoever tries first | the order of coming; readers who follow one another read together | the same | the same | whoever finds it taken: the order of coming | on a host the order of coming, which a rank's slot passes at most 32 times in a row, and at most 8 hand-overs in a row; between hosts none | the order in which the thread hears them; the same for readers |
//! | readers | join readers, also while a writer waits | wait behind a writer who came before | the same | the same | join readers until a writer has marked their rank, then wait behind it | join readers, also while a writer waits | wait behind a writer who came before |
//! | when an owner dies | its word names it | anybody who waits behind it finds out; nobody can tell whether it held the lock | as readers: a count, which names nobody | as tickets | as tickets; a dead reader is named by its rank's counter | the next one of its host, or of another one, finds out; a mark names a host, the word of who did not queue the owner | the thread names it, readers as well |
//!
//! Test-and-set is the default: it is the cheapest while a lock is free, which most locks are most of the time. The queue is for
//! locks that many want at once and for long: everybody gets a turn, and nobody polls over the network. With more ranks than
//! cores a queue is slow, because the next owner has to be scheduled before it can go on.
//!
//! Tickets are a queue of one word: as fair, and an acquire is one operation however many come, but who waits polls, and who gives
//! up keeps its place behind everybody who was there before.
//!
//! The queue by fetch-add has both: an acquire is one operation, and nobody polls, for as long as not more than 16 wait to have it alone
//! and 16 to read; beyond that they poll, in the same order.
//!
//! Distributed counters are for locks that are mostly read: readers of different ranks touch nothing in common, and a reader's lock costs the
//! same wherever the target is. A writer pays for that, with two operations at every rank.
//!
//! The two-level lock is for many ranks on few hosts, with cards between: the ranks of a host hand it over among themselves, by the CPU,
//! and the target's card sees one of them at a time. On one host alone, and on a fabric where the CPU reaches no neighbour (`verbs`), there is
//! nothing to gain.
//!
//! The threads of jiang-2004, section 4, are here to be compared with: every request is answered by a thread at the target, which
//! polls (`dedicated-thread`: a core of each rank's host is spent) or sleeps (`event-thread`: idle it costs nothing, and a request that finds
//! it asleep wakes it up). So they cost many times what the other locks do, and wait for the thread where the target's cores are busy. In
//! return a lock is as simple as a queue in one program: an acquire that is given up is out of the queue at once, and a dead reader is
//! named. When a target's window is dropped or its rank ends, who waits is told. A rank holds, or waits for, at most 8 (in large worlds) to 64
//! locks of one target at a time; more wait for one of these.
//!
//! **With a queue or tickets, locks are taken in an order.** Whoever holds one target's lock and asks for another's, shared or not, may wait
//! behind a writer who waits for the first. So ask in the order of the ranks; as [`lock_all`](crate::Window::lock_all) does with these locks, if nothing else is chosen.
//!
//! # All parts at once
//!
//! [`lock_all`](crate::Window::lock_all) locks every rank's part, shared, in one of three ways: [`Builder::lock_all`](crate::Builder::lock_all)
//! chooses, or `ONESIDED_LOCK_ALL`. Each works with every lock above.
//!
//! - [`OnDemand`](crate::LockAllDesign::OnDemand): a part is locked when it is [reached](crate::LockAll::at), once, and `lock_all` costs
//!   nothing. The way of most MPI libraries, and what a window has if nobody chooses and its lock lets readers join readers.
//! - [`EachTarget`](crate::LockAllDesign::EachTarget): each part's lock, in the order of the ranks, before `lock_all` is done.
//! - [`Global`](crate::LockAllDesign::Global): one fetch-add at rank 0, and one to unlock, whatever the number of ranks, after the two
//!   levels of foMPI (Gerstenberger, Besta, Hoefler, SC 2013). In return each exclusive lock of a part announces itself at rank 0 first, one
//!   operation more, and leaves by another one. Shared locks of a part do as they did.
//!
//! | | `on-demand` | `each-target` | `global` |
//! |---|---|---|---|
//! | `lock_all` and `unlock_all`, of `P` parts, of which `R` are reached | those of `R` shared locks | those of `P` shared locks | fetch-add and fetch-add |
//! | an exclusive lock | that of the design | that of the design | and fetch-add and fetch-add at rank 0 |
//! | a shared lock | that of the design | that of the design | the same |
//! | who is kept out | writers of parts that were reached | all writers | all writers |
//! | waits for | the writer of a part, when it is reached | the writers, one after the other | the writers, once |
//! | a writer who holds several locks at a time, in the order of the ranks | may wait for ever: so may who locks all | goes on | goes on |
//! | fairness between `lock_all` and exclusive locks | that of the design | that of the design | by turns: while one waits, none of the others comes in past it, but for those below |
//! | when a rank dies | its own part's lock | its own part's lock: every `lock_all` fails | if it is rank 0, all locks but shared ones of other parts, where its memory is gone with it |
//!
//! **On demand, parts are locked in the order in which the program reaches them.** So no promise can be given to who holds a
//! lock and waits for another one: writers who hold several, or one beside a `lock_all`; and, with a lock that lets readers wait
//! behind writers, any two who reach parts in different orders while others write. Such programs take `each-target`, or
//! `global`, or reach parts in the order of the ranks; with those locks `each-target` is what a window has.
//!
//! With `global`, somebody may hold a lock and ask for another one, for which whoever waits for `lock_all` would have to wait: such a one comes in past those
//! who wait, when its thread has a lock of the same window, and otherwise when for 100 ms nobody has left. So locks that are taken in an order
//! make no circle, also those of several windows; and exclusive locks that are held for longer than that, one over the
//! other without a gap, keep `lock_all` waiting.
//!
//! Two words may tell of one death: the part's lock, as its design does, and the room at rank 0, which counts, and is doubted after a second. Who
//! died with an exclusive lock is found at the room only by who locks all; from then on, as after a death in `lock_all`, every exclusive
//! lock and every `lock_all` of the window is told, until an exclusive one is asked for with [`inherit`](crate::LockRequest::recover).
//!
//! # Which lock for which load
//!
//! - **Few ask at once, or nobody minds who comes first**: test-and-set. On one host it is the fastest under contention as well, because
//!   whoever has just released it has it again before anybody else has looked: so some starve, and a waiter sleeps out its pause after a long hold.
//! - **Many want it and all must get their turn, on one host**: the queue or tickets, if there is a core for each rank; with more ranks
//!   than cores any fair lock costs a change of threads for each acquisition.
//! - **Many origins over a network**: a lock whose acquire is one fetch-add (tickets, the queue by fetch-add). The queue of Mellor-Crummey and
//!   Scott hands over by one message, the fastest while some ten want it; but its exchange is emulated by compare-swap, as cards have none, and
//!   the attempts of those who join grow with their number (section 6.4 of jiang-2004 saw it with 7).
//! - **Many ranks of a host want it, and so do other hosts**: the two-level lock.
//! - **Programs that lock whole windows, with many ranks**: [`LockAllDesign::Global`](crate::LockAllDesign::Global), above.
//! - **Owners may die and their heirs must not wait**: test-and-set or the queue, which find out in milliseconds. Counts, of readers and of
//!   tickets (the two-level lock has some), name nobody, and take a second.
//!
//! Between processes of one host (`onesided bench locks --lock all --metric contended,wait,messages,readers,section,cpu --picture FILE.svg`):
//!
#![doc = include_str!("../../docs/locks.svg")]
//!
//! In simulation, where each rank has a card and is a microsecond away (`onesided bench scale --picture FILE.svg`): where a curve turns down,
//! the lock stops scaling. With 100,000 (`--origins 100000`, not drawn) it is the home that does, whatever the lock: all of them begin at once, and for the 0.2 s
//! that were looked at each release waits behind the others' requests. (Not of the two-level lock, whose waiters look
//! at the words of their hosts: an hour does not suffice to simulate that.)
//!
#![doc = include_str!("../../docs/scale.svg")]
//!
//! How long an owner's work takes, how many readers there are and how many locks matters more than any of this: measure with the
//! program's own figures, `onesided bench locks --help`, or a lock of one's own with `onesided_lock_kit::bench`.
//!
//! # What users ask for
//!
//! - [`lock_exclusive`](crate::Window::lock_exclusive) and [`lock_shared`](crate::Window::lock_shared) have sent their first
//!   operation when they return; `.wait()` blocks, `.await` does not, `.test()` looks.
//! - [`try_lock_exclusive`](crate::Window::try_lock_exclusive) and [`try_lock_shared`](crate::Window::try_lock_shared) come back
//!   after a few operations, with the lock or without.
//! - [`deadline`](crate::LockRequest::deadline): gives up after a time. A request may be dropped at any point, too. In a queue
//!   whoever gave up keeps its place until its turn comes, and the endpoint passes the lock on.
//! - Threads of a rank lock at once, and one thread many: a window has one queue node in each rank for each rank, and 31 more. Who finds none
//!   goes on without: with test-and-set that makes no difference; with the queue it polls, and others overtake it; with tickets it takes its own after a look. After a death
//!   a doubted lock is not set right before all locks of such owners are released, in the whole window.
//!
//! # Death
//!
//! **A lock that its owner left by dying is poisoned**, as a [`std::sync::Mutex`] is by a panic: everybody who asks for it is told, with
//! an error that names the dead rank ([`is_poisoned`](crate::Error::is_poisoned)), at once, until somebody asks with
//! [`inherit`](crate::LockRequest::recover). That one holds the lock alone, [`inherited`](crate::Epoch::previous_owner) names the dead rank, and
//! when it unlocks the lock is as any other.
//!
//! ```
//! # use onesided::{Error, Window};
//! # fn repair(_: &onesided::Epoch<'_, u64, onesided::Any>) -> Result<(), Error> { Ok(()) }
//! # fn main() -> Result<(), Error> {
//! # for outcome in onesided::threads(2, |world| -> Result<(), Error> {
//! # let scores = Window::<u64>::allocate(&world, 8).wait()?;
//! let epoch = scores.lock_exclusive(1).recover().wait()?;
//! if let Some(inheritance) = epoch.previous_owner() {
//!     eprintln!("{inheritance}"); // rank 3 died while it held the lock
//!     repair(&epoch)?;
//! }
//! epoch.unlock().wait()?;
//! # scores.close().wait()?;
//! # Ok(()) })? { outcome?; }
//! # Ok(())
//! # }
//! ```
//!
//! Why it stays poisoned, where a robust mutex of POSIX tells the next owner only: what the dead rank left half done is there for
//! everybody. If one survivor got the error, and the lock were then free again, the others would go on with data that nobody has looked at,
//! and the one who knew may have ended on that error. So the default is the one that cannot be overlooked, and whoever
//! knows how to repair, or that nothing needs it, says so.
//!
//! How it is found out: a rank's death is known on its host within milliseconds, elsewhere see [failures](super::failures). An
//! exclusive owner is then told of at once with test-and-set, within some ten milliseconds with the queue. Readers and tickets are counts, which
//! name nobody: they are doubted when some rank has died and none has released for a second since, and the lock is poisoned once no
//! living rank holds it or waits. A rank that died *waiting* harms nobody with test-and-set; with the others it counts as if it may have held the lock.
//! Readers who only read lose nothing by [`inherit`](crate::LockRequest::recover).
//!
//! # Releases by who does not hold the lock
//!
//! The guards make them impossible: an [`Epoch`](crate::Epoch) is a lock that is held, its unlock consumes it, and a guard that is leaked
//! leaves the target locked. Beneath, in [`onesided_lock_algos`], where an owner is a number, an owner that does not hold the
//! lock gets `NotHeld` and changes nothing: the queue and the tickets see it by the owner's node, whatever the word says; test-and-set
//! with [`TestAndSet::checked`](crate::lock_algos::TestAndSet::checked) also tells one acquire of an owner from the next, by the generation
//! in its word. (Plain test-and-set frees by a write, which tells nothing: that is what windows use, behind their guards.) The mode of a
//! release is the caller's word, but for checked test-and-set.
//!
//! # Many locks
//!
//! A [`LockTable`](crate::LockTable) has locks without memory of their own: a million of them, each at some rank, where it takes the
//! words that its design has at the target: 8 bytes with one word, 264 with the queue by fetch-add. (Those with words at every rank or for each host, and
//! those that a thread serves, are not for tables.) A table gives whatever can be asked of a window's lock. They share one set of queue nodes. What is put under such a lock is
//! flushed by who put it, before the unlock.
//!
//! # Fencing tokens
//!
//! [`fencing_token`](crate::Epoch::fencing_token) draws a number that is larger than all that were drawn before under the same lock,
//! [`fenced`](crate::LockRequest::fenced) in the same round trip as the acquire. It must be drawn while the lock is surely held: drawn
//! late, by an owner that was taken for dead, it would be larger than the heir's (with `VersionedCommit`, below, that is an error). For whatever can refuse what comes too late: a file, a
//! database, another process.
//!
//! # Late owners
//!
//! An owner that is stopped, or swapped out, lives: nobody takes its lock, however long it takes. Where that must not be, a window is
//! made with [`lease_policy`](crate::Builder::lease_policy): a policy and a lease. A lease alone would not do, because who was stopped does not
//! know it when it goes on.
//!
//! | [`LeasePolicy`](crate::LeasePolicy) | what happens after the lease | what keeps the late owner from harm | for |
//! |---|---|---|---|
//! | `None` | nothing: the lock recovers from death, not from delay | | every design |
//! | `VersionedCommit` | who waits takes the lock over, and is told ([`PreviousOwner::LeaseExpired`](crate::PreviousOwner::LeaseExpired)) | [`commit`](crate::Epoch::commit) is a compare-swap on a versioned word: the late one's fails ([`WindowError::Late`](crate::WindowError::Late)), and its unlock does. What it puts is not kept back: data go where nobody reads until they are committed | test-and-set windows |
//! | `Kill` | who waits kills the owner's process; the lock is poisoned then, as after any death | it is dead | test-and-set, processes of one host (shm) |
//! | `Revoke` | who waits has the target's helper thread close the owner's connection, and then has the lock, poisoned as after a death ([`PreviousOwner::LeaseExpired`](crate::PreviousOwner::LeaseExpired)) | nothing of it reaches the target any more, nor the target it, in any window ([`is_revoked`](crate::WindowError::is_revoked)), until one of them leaves | test-and-set, ranks that reach one another by cards (verbs), simulation |
//!
//! Only test-and-set names its owner in its word; readers are never late. The lease is what a waiter measures, from when it saw the owner
//! first; [`lease_left`](crate::Epoch::lease_left) is what the owner should ask after every wait. Such a window's exclusive locks take a slot
//! each, and their release is a compare-swap.
