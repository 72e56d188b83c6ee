//! A program that hangs, and how it tells why.
//!
//! ```text
//! $ onesided run -n 3 --stuck-after 10 -- target/release/examples/hangs crosswise
//! onesided: the job may be stuck: 3 of its 3 ranks wait
//!   rank 0 waits for rank 1 since 10 s: the exclusive lock of window "accounts" (test-and-set) at rank 1
//!   rank 1 waits for rank 2 since 10 s: the exclusive lock of window "accounts" (test-and-set) at rank 2
//!   rank 2 waits for rank 0 since 10 s: the exclusive lock of window "accounts" (test-and-set) at rank 0
//!   a circle, none can go on: ranks 0 -> 1 -> 2 -> 0
//! ```
//!
//! The launcher collects what the ranks report, from all hosts, within 3 s of the first report. The
//! job goes on; the page comes again when another wait has lasted so long.
//!
//! | who asks | how |
//! |---|---|
//! | `onesided run --stuck-after SECONDS` | one page of all ranks, circles marked |
//! | `ONESIDED_STUCK_AFTER=SECONDS`, under any launcher or none | each process writes to standard error what its ranks wait for |
//! | the same, or [`dump_on_signal`](crate::fabric::dump_on_signal), and `kill -USR1` | the process writes it now; with `ONESIDED_STUCK_AFTER=0` only then |
//! | the program | [`dump`](crate::dump) returns it |
//!
//! A rank tells of its waits for
//!
//! - locks: the lock, its design and mode, and a rank that has it. Where the lock is a queue that is
//!   the rank before this one, or the last of the queue;
//! - messages: receives, sends and probes with rank and tag; and what it has of receives without a
//!   message, messages without a receive, sends that are not read, and peers without credit;
//! - collectives: which one, of which window, and the ranks that have not come;
//! - signals, exposures and their ends ([`wait_until`](crate::Local::wait_until),
//!   [`start`](crate::Window::start), [`post`](crate::Window::post)).
//!
//! A rank that is waited for and has no wait of its own computes, waits for something outside of
//! this library, or has ended. So does one whose async tasks are not polled: a task tells when its
//! runtime polls it. Operations that complete by themselves, puts and flushes, do not tell.
//!
//! A wait costs nothing more for it: nothing is recorded before somebody asks, and no clock is
//! read. So ages count from the first question that saw a wait, a receive, a send or a message, and
//! are told from the second one on: `with tag 1 from rank 1 since 12 s`. Of ranks that receives and
//! sends wait for, the lines say since when no message came from them. A question takes about 60 ms
//! and wakes everything that waits in the process; with `ONESIDED_STUCK_AFTER` set a thread asks
//! four times in that time, at most every 50 ms and at least every 2 s.
//!
//! In a [simulation](super::simulation) deadlocks are found without a time, and reported by
//! themselves. A deadline is the way to end a wait: see [failures](super::failures).
