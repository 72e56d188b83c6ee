//! Progress: who moves messages while a program computes.
//!
//! A short message (up to 8 KiB on shared memory, if there is room, unless a
//! [rule](super::messages#protocols) says less) is on its way when its send returns, and waits at
//! its receiver. A longer one is sent by rendezvous: its receiver reads it, and somebody at the
//! receiver has to (of RPUT somebody at the sender as well). By default that is a thread of the
//! rank that is in a call of the library, for whatever it waits; while all threads of the rank
//! compute, its senders wait (MPI-4.1, section 2.9).
//! [`Messages::set_progress`](crate::Messages::set_progress) chooses another
//! [mode](crate::ProgressMode), for a rank and at run time:
//!
//! | mode | who moves a long message while the receiver computes | what it costs |
//! |---|---|---|
//! | `Polling` | nobody | nothing |
//! | `Interrupt` | nobody | a blocked thread sleeps at once: tens of microseconds to wake it, and no core while it waits |
//! | `Thread` | a thread that every packet wakes | a system call at the sender for each packet while that thread sleeps |
//! | `TwoThreads` | on cards with two queues two threads: packets wake one, and the completions of reads and writes the other; elsewhere as `Thread` | as `Thread`, and a wake-up for each of those completions |
//! | `Hybrid` | a handler that the start of a rendezvous wakes, if a receive is pending and no thread of the rank polls | nothing for short messages; a wake-up for a long one that comes just before its receiver waits |
//!
//! `Hybrid` is the RGET with interrupt of Sur et al. (PPoPP 2006, section 4): only the packet that
//! starts a rendezvous has an event, a *solicited* one, and the answer to it where the sender
//! [writes](crate::Messages::set_rendezvous) (RPUT with interrupt). The event is suppressed while a
//! thread of the rank polls, because that thread sees the packet, and while no receive and no send
//! of the rank is pending: what comes then wakes nobody. The receive that is posted next asks for
//! events and looks for what has come; those after it find them asked for. The handler takes in all
//! packets, reads what has a receive, looks again, asks for no more events if nothing is pending,
//! and sleeps. On cards the event is the one of a completion queue that is armed for solicited
//! completions, and of the reads that the handler has begun. Short messages for which there is no
//! more room or credit wake the handler as well, which makes some, and on cards at least one packet
//! in 32 does. While nothing is pending the handler makes no room: short messages that find none
//! wait at their sender until the receiver is in a call, as with `Polling`. With `Thread`, whose
//! thread asks for every packet's event at all times, they wait once their credit is used. A packet
//! that ends the sleep of a thread in a wait wakes the handler too, and so may the first one after
//! that. In the simulator `Hybrid` needs hosts with cores and packets over connections: its handler
//! is then a thread that costs what the profile says. Otherwise `Hybrid` is `Thread` there.
//!
//! With datagrams (`ONESIDED_MESSAGES_CHANNEL=ud`) the ranks acknowledge packets and send them
//! again, and the handler takes part. What starts a rendezvous is solicited each time it is sent,
//! and so is a question for an acknowledgement: an armed handler answers. So short messages to a
//! rank that computes and has receives pending wake its handler, once for a quarter of the window
//! or for the end of the sender's timer. Acknowledgements wake none: an armed handler sleeps until
//! its own timer ends, and every handler looks once in 0.1 s, so that what its rank sends while it
//! sleeps is sent again if it is lost.
//!
//! On cards, packets over connections complete in a queue of their own, and everything else in
//! another: the two queues of Yu et al. (OSU-CISRC-10/04-TR54, section 4.3). With
//! `ONESIDED_MESSAGES_QUEUES=one`, and always over datagrams, one queue has both kinds: the
//! one-queue design of that paper, whose Fig. 8 compares the two. One thread can sleep for the
//! events of both queues, so that two queues need no second thread; `TwoThreads` has one for each,
//! and is `Thread` with one queue. With one queue the event that the handler asks for while it
//! reads is that of any packet or completion.
//!
//! ```
//! # use onesided::{Messages, ProgressMode, Tag};
//! # onesided::threads(2, |world| -> onesided::Result<()> {
//! let messages = Messages::new(&world).wait()?;
//! messages.set_progress(ProgressMode::Hybrid)?;
//! # if world.rank() == 0 { return Ok(messages.send(&[1.0; 100_000], 1, Tag(0)).wait()?); }
//! let next = messages.recv::<f64>(0, Tag(0)); // posted before the computation
//! let computed: f64 = (1..10_000).map(f64::from).sum();
//! let (halo, _) = next.wait()?; // it has come meanwhile
//! # assert_eq!((halo.len(), computed > 0.0), (100_000, true));
//! # Ok(())
//! # })?;
//! # Ok::<(), onesided::Error>(())
//! ```
//!
//! For the message to come during the computation, its receive is posted before it. A receive that
//! is posted later finds the announced message and wakes the handler. The handler reads into memory
//! of its own, because the receive's slice belongs to the thread that waits for it; the wait copies
//! it from there.
//!
//! Asynchronous tasks need no mode: the executor's threads poll what an event wakes.
//!
//! `onesided bench overlap` measures all modes: how long a sender is held while its receiver
//! computes, and what a send or a receive adds to a computation of 1.8 ms. Between two processes on
//! two cores, 1 MiB:
//!
//! | mode | the sender is held | receiver's W/T, into a slice | as a vector |
//! |---|---|---|---|
//! | `Polling` | 1.7 to 2.1 ms | 0.89 to 0.95 | 0.83 to 0.93 |
//! | `Thread` | 0.11 to 0.49 ms | 0.95 to 1.0 | 0.96 to 1.0 |
//! | `Hybrid` | 0.11 to 0.45 ms | 0.95 to 1.0 | 0.96 to 1.0 |
//!
//! The page of `--report` draws when each rank computes and when its message is over, for each mode and
//! protocol (sur-2006, Fig. 6).
//!
//! With two completion queues and with one (yu-2004, Fig. 8), between two ranks on the emulated card with
//! one processor, whose clock counts instructions: half a round trip, in microseconds, and the wake-ups
//! for a message of 1 MiB while its receiver computes:
//!
//! | mode | 4 B, two | one | 4 KiB, two | one | wake-ups, two | one |
//! |---|---|---|---|---|---|---|
//! | `Polling` | 21.1 | 22.0 | 94 | 95 | 0 | 0 |
//! | `Interrupt` | 31.5 | 29.8 | 135 | 112 | | |
//! | `Thread` | 51.8 | 44.4 | 185 | 182 | | |
//! | `Hybrid` | 22.1 | 22.7 | 153 | 153 | 3 | 2 |
//!
//! What a mode costs messages that are waited for (yu-2004, Table 1): half a round trip, in
//! microseconds, and the wake-ups of both ranks for a message, in two runs whose cores shared a cache
//! or did not:
//!
//! | mode | 4 B | wake-ups | 4 KiB | wake-ups |
//! |---|---|---|---|---|
//! | `Polling` | 0.25 to 0.53 | 0 | 3.9 to 5.0 | 0 |
//! | `Interrupt` | 9.5 | 1 | 18 | 1 |
//! | `Thread` | 3 to 13 | 0.3 to 1.9 | 20 to 26 | 1.5 to 2.4 |
//! | `Hybrid` | 0.26 to 0.49 | 0 | 15 to 17 | 1 |
//!
//! Use `Hybrid` for ranks that compute for longer than a wake-up takes (50 to 100 us) while long
//! messages come, and `Polling` for ranks that answer one another at once: half a round trip of 4 KiB
//! takes three times as long with `Hybrid`.
