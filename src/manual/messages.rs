//! Messages: sends and receives with tags.
//!
//! [`Messages`](crate::Messages) is a communicator: the ranks of a [`World`](crate::World), and
//! messages among them that no other communicator sees. A message has a sender, a tag and elements;
//! a receive says from whom and with which tag it takes one, or leaves either open. The type of the
//! elements is not sent: sender and receiver agree on it.
//!
//! ```
//! use onesided::{Messages, Tag};
//! use std::time::Duration;
//!
//! onesided::threads(2, |world| -> onesided::Result<()> {
//!     let messages = Messages::new(&world).wait()?; // collective: all ranks call it
//!     if world.rank() == 0 {
//!         messages.send(&[1.5, 2.5], 1, Tag(7)).wait()?;
//!     } else {
//!         let request = messages.recv::<f64>(0, Tag(7)).deadline(Duration::from_secs(10));
//!         let (elements, status) = request.wait()?;
//!         assert_eq!((elements, status.source), (vec![1.5, 2.5], 0));
//!     }
//!     Ok(())
//! })?;
//! # Ok::<(), onesided::Error>(())
//! ```
//!
//! | to | call |
//! |---|---|
//! | send a slice | [`send`](crate::Messages::send); its end says that the slice may be used again, not that the message was received: that is [`send_synchronous`](crate::Messages::send_synchronous) |
//! | receive a vector, as long as the message | [`recv`](crate::Messages::recv) |
//! | receive into a slice, which may be longer than the message | [`recv_into`](crate::Messages::recv_into) |
//! | know the length first | [`probe`](crate::Messages::probe), [`match_probe`](crate::Messages::match_probe) |
//! | wait, suspend, look once | `.wait()`, `.await`, `.test()` of any request |
//! | give up | `.deadline(time)`, or drop the request: a receive that gives up has taken no message |
//!
//! A message has any length that fits in memory. Up to 2 KiB a send waits for nobody; a longer one waits
//! until its receiver gets it. A rank that died or left ends the receives from it with an error that
//! names it.
//!
//! ```
//! use onesided::{Messages, Source, Tag};
//!
//! const TASK: Tag = Tag(1);
//! const DONE: Tag = Tag(2);
//!
//! // Rank 0 hands out numbers; a worker that has finished one gets the next.
//! # let sums =
//! onesided::threads(4, |world| -> onesided::Result<f64> {
//!     let messages = Messages::new(&world).wait()?;
//!     let mut sum = 0.0;
//!     if world.rank() == 0 {
//!         let mut tasks = (1..=100_u32).map(|task| [task]);
//!         let mut working = 0;
//!         for worker in 1..world.size() {
//!             if let Some(task) = tasks.next() {
//!                 messages.send(&task, worker, TASK).wait()?;
//!                 working += 1;
//!             }
//!         }
//!         while working > 0 {
//!             let (result, status) = messages.recv::<f64>(Source::Any, DONE).wait()?;
//!             sum += result[0];
//!             match tasks.next() {
//!                 Some(task) => messages.send(&task, status.source, TASK).wait()?,
//!                 None => working -= 1,
//!             }
//!         }
//!         for worker in 1..world.size() {
//!             messages.send::<u32>(&[], worker, TASK).wait()?; // no more
//!         }
//!     } else {
//!         while let [task] = messages.recv::<u32>(0, TASK).wait()?.0[..] {
//!             messages.send(&[f64::from(task).sqrt()], 0, DONE).wait()?;
//!         }
//!     }
//!     Ok(sum)
//! })?;
//! # let sum = sums[0];
//! # assert!((sum - (1..=100).map(|task| f64::from(task).sqrt()).sum::<f64>()).abs() < 1e-9);
//! # Ok::<(), onesided::Error>(())
//! ```
//!
//! More programs: `examples/ring.rs` (the sum of all ranks' vectors, around a ring),
//! `examples/workers.rs`.
//!
//! # Order
//!
//! Of two messages from one rank that the same receive fits, the one that was sent first is
//! received first (MPI-4.1, section 3.5). Receives are matched in the order in which they were
//! posted, and a receive is posted when [`recv`](crate::Messages::recv) returns, not when it is
//! waited for. Messages of different ranks are received from [any](crate::Source::Any) rank in the
//! order of their arrival.
//!
//! A message orders memory: what its sender did before the send is visible to its receiver after
//! the receive, as after a barrier of the two.
//!
//! # Several at once
//!
//! Two ranks that both wait for a long send before they post the receive wait for ever (up to 2 KiB
//! a send waits for nobody, unless a [rule](#protocols) says less). Post the receive first, then
//! send; then wait for the receive, and last for the send. A message that comes while its receive
//! is not waited for is copied once more: only the wait lends the slice to the library.
//!
//! [`World::wait_any`](crate::World::wait_any), `wait_some` and `test_some` take the requests that
//! are complete out of a vector of one type, and return their results with the indices that they
//! had; the others keep their order. `wait_any` polls the first ones and moves the others for each result: of
//! hundreds take `wait_some`, which does so once for all that are complete.
//! `wait_all` takes the vector, and returns all results in order. Of
//! receives into slices of at most 8 KiB it takes in all messages that are here at once, which is a third
//! faster than to wait for one after the other. [`send_all`](crate::Messages::send_all) and
//! [`recv_all_into`](crate::Messages::recv_all_into) start several together: with one lock, messages of
//! at most 128 bytes next to one another to the same rank in packets of up to 504 bytes, and on cards
//! with one doorbell for up to 16 packets. A window of 64 messages of 8 bytes takes three packets: over
//! Soft-RoCE it goes at 5.5 times the rate of 64 sends in bare lists.
//!
//! ```
//! # use onesided::{Messages, Tag};
//! # onesided::threads(3, |world| -> onesided::Result<()> {
//! # let messages = Messages::new(&world).wait()?;
//! # if world.rank() != 0 { return Ok(messages.send(&[world.rank()], 0, Tag(0)).wait()?); }
//! let mut receives: Vec<_> = (1..world.size()).map(|from| messages.recv::<u32>(from, Tag(0))).collect();
//! while let Some((_, received)) = world.wait_any(&mut receives) {
//!     let (elements, status) = received?;
//!     assert_eq!(elements, [status.source]);
//! }
//! # Ok(())
//! # })?;
//! # Ok::<(), onesided::Error>(())
//! ```
//!
//! # The same again and again
//!
//! [`send_init`](crate::Messages::send_init) and [`recv_init`](crate::Messages::recv_init) name a
//! rank and a tag once, for messages that are started in every step (the persistent requests of
//! MPI-4.1, section 3.9). A start is given its elements, so that they are the program's between two
//! starts. Here the rows beside a block, around a ring:
//!
//! ```
//! # use onesided::{Messages, PersistentRecv, PersistentSend, Tag};
//! const WIDTH: usize = 12;
//!
//! # onesided::threads(3, |world| -> onesided::Result<()> {
//! # let messages = Messages::new(&world).wait()?;
//! # let (me, size) = (world.rank(), world.size());
//! let (above, below) = ((me + size - 1) % size, (me + 1) % size);
//! let sends = [messages.send_init(above, Tag(0))?, messages.send_init(below, Tag(1))?];
//! let receives = [messages.recv_init(below, Tag(0))?, messages.recv_init(above, Tag(1))?];
//! let mut rows = vec![f64::from(me); 10 * WIDTH]; // the first and the last row are halo
//! for _ in 0..100 {
//!     let (first, rest) = rows.split_at_mut(WIDTH);
//!     let (inner, last) = rest.split_at_mut(8 * WIDTH);
//!     let received = PersistentRecv::start_all(receives.iter().zip([last, first]));
//!     let sent = PersistentSend::start_all(sends.iter().zip([&inner[..WIDTH], &inner[7 * WIDTH..]]));
//!     world.wait_all(received).into_iter().collect::<Result<Vec<_>, _>>()?;
//!     world.wait_all(sent).into_iter().collect::<Result<Vec<_>, _>>()?;
//!     // compute the inner rows
//! }
//! # assert_eq!((rows[0], rows[WIDTH], rows[9 * WIDTH]), (f64::from(above), f64::from(me), f64::from(below)));
//! # Ok(())
//! # })?;
//! # Ok::<(), onesided::Error>(())
//! ```
//!
//! `start` looks no rank up; all else it does as `send` and `recv_into` do. A send and a receive of
//! 8 bytes take 1,330 instructions together: `start` saves 160 of them, some because the compiler
//! inlines it. A long message gains nothing that can be measured. `start_all` of 16 messages looks
//! the ranks up, and costs what `send_all` and `recv_all_into` cost. A
//! [buffer](crate::Messages::buffer) keeps its memory registered.
//!
//! # Synchronous sends
//!
//! A send that is to end only when a receive has begun to get it is
//! [`send_synchronous`](crate::Messages::send_synchronous), or
//! [`send_synchronous_shaped`](crate::Messages::send_synchronous_shaped).
//!
//! # Columns and other shapes
//!
//! [`send_shaped`](crate::Messages::send_shaped) and
//! [`recv_shaped`](crate::Messages::recv_shaped) take the elements of a slice that a
//! [`Shape`](crate::Shape) selects, as [`put_shaped`](crate::Access::put_shaped) does in a window. A
//! halo of columns, here around a ring of blocks with one halo column at each side:
//!
//! ```
//! # use onesided::{Messages, Shape, Tag};
//! const ROWS: usize = 8;
//! const WIDTH: usize = 12;
//! const COLUMN: Shape = Shape::Vector { count: ROWS, block: 1, stride: WIDTH };
//!
//! # onesided::threads(3, |world| -> onesided::Result<()> {
//! # let messages = Messages::new(&world).wait()?;
//! # let (me, size) = (world.rank(), world.size());
//! let mut block = vec![f64::from(me); ROWS * WIDTH];
//! let (left, right) = ((me + size - 1) % size, (me + 1) % size);
//! // A dropped handle ends the loan of its slice; the message goes on.
//! drop(messages.send_shaped(&block[1..], COLUMN, left, Tag(0)));
//! drop(messages.send_shaped(&block[WIDTH - 2..], COLUMN, right, Tag(1)));
//! messages.recv_shaped(&mut block[WIDTH - 1..], COLUMN, right, Tag(0)).wait()?;
//! messages.recv_shaped(&mut block, COLUMN, left, Tag(1)).wait()?;
//! # for row in block.chunks(WIDTH) {
//! #     assert_eq!((row[0], row[1], row[WIDTH - 1]), (f64::from(left), f64::from(me), f64::from(right)));
//! # }
//! # Ok(())
//! # })?;
//! # Ok::<(), onesided::Error>(())
//! ```
//!
//! Only the elements travel, so the receiver may have another shape, or a slice. Elements that are
//! not contiguous are packed by their sender before the call returns, and unpacked by their
//! receiver: a long message goes through registered memory, 8 KiB at a time, and never out of the
//! sender's slice. Contiguous shapes cost what slices cost; what packing costs, `onesided bench
//! messages` measures. (The tags differ, because both messages may be of the same rank.)
//!
//! A message that a dropped or late receive had matched goes to the next receive that fits, as if
//! no receive had matched it: in its place among the others that wait.
//!
//! # Protocols
//!
//! | message | protocol | the send is complete |
//! |---|---|---|
//! | of at most 2 KiB, or fits a packet that can leave at once; and the [rules](crate::Rules) let it | eager: one packet, which the receiver copies | when the packet is on its way |
//! | longer | rendezvous (RGET): a packet with the key of registered memory (RTS), an RDMA read by the receiver, a packet back (FIN) | when the receiver has read it |
//! | longer, where the sender [chose](crate::Messages::set_rendezvous) RPUT | rendezvous: RTS, a packet with the key of memory that the receiver exposes (RTR), an RDMA write by the sender, FIN behind it (over datagrams, and with [rails](#over-several-rails): after it) | when it is written |
//! | longer, where it chose a pipeline | as RPUT in pieces of 64 to 512 KiB (longer ones from 32 MiB on), each with an RTR and a write of its own; one FIN | when the last one is written |
//! | longer, where it chose [datagrams into memory](#over-datagrams) | UD-ZCopy: RTS, RTR with the key of a landing, the datagrams, SENT; RTR for those that are missing, which come in packets; FIN | when the receiver has all |
//! | longer, where it chose packets, or memory cannot be registered | copy: RTS, RTR for the first 128 KiB, packets; for each 64 KiB that have come another RTR; FIN behind the packets | when the FIN is on its way |
//! | longer, to this rank itself | copied into memory of the library before the call returns | without a receive |
//!
//! A packet of shared memory has 8 KiB, less among more than 200 ranks (2 KiB from 700 on), one of
//! cards 2 KiB, a datagram what its network carries. A message of more than 2 KiB that finds no room
//! or no credit for its packet goes by rendezvous, because what waits is copied once more; one out of
//! a buffer or a shape always does.
//!
//! [`explain`](crate::Messages::explain) says how a message of some length goes to a rank, and why:
//!
//! ```text
//! 1000000 bytes to rank 1: offered, by rule 2 of 3 (built in)
//!   eager                    passed over: it is longer than a packet
//! > size>=measured: offered  copied once, out of the sender's slice (from 32768 bytes on)
//!   rget                     not asked
//! ```
//!
//! These are the *send rules* of koop-2008, section 5.3: a chain of conditions and protocols. A message
//! goes by the first rule whose conditions hold and whose protocol is there for it; the last rule has no
//! condition. Each rank has its own, which [`set_rules`](crate::Messages::set_rules) sets at any time, for
//! all its communicators. A process begins with those of `ONESIDED_MESSAGES_RULES`, such as `eager, rput`, or
//! with those of a file: `@rules.txt`.
//!
//! | condition | holds of |
//! |---|---|
//! | `size<=BYTES`, `size>=BYTES` | a message of this length |
//! | `size>=measured` | offered messages of a length that is faster offered than copied, which the first messages measure |
//! | `ranks<=RANKS`, `ranks>=RANKS` | messages of such communicators |
//! | `host`, `remote` | messages to ranks of this host, of other hosts |
//! | `registered` | the message of a [buffer](crate::Messages::buffer) |
//! | `progress=MODE` | messages of a rank whose [mode](crate::manual::progress) is this one |
//!
//! Conditions have `&` between them and a colon behind them: `host & size>=16384: offered, size<=1000:
//! eager, rget`. The protocols are those of [`Protocol`](crate::Protocol). `eager` is there for a message that a
//! packet has room for, `offered` for a slice that is sent to another process of this host. A synchronous
//! send is never eager; another one of at most 128 bytes always is.
//!
//! Where packets have [several channels](#over-datagrams), `eager` takes the fast path if there is one and the message
//! is short, else the connection if there is one, and datagrams otherwise. `rc-fp`, `rc-sr` and `ud-sr` are eager
//! messages over one of them alone (koop-2008, section 3.1):
//! `size<=64: ud-sr, rc-sr, size<=900: ud-sr, rget` leaves the shortest to datagrams. What waits for room, and
//! the other packets of a message, take the connection or, without one, datagrams. A rule that names a channel that the
//! fabric never has is an error, which points at the word.
//!
//! A lower limit of eager messages leaves the longer ones at their senders until they are received:
//! it is for receivers with little memory, which otherwise keep what is eager and not received yet.
//! The sender waits for the receiver: on a modelled ConnectX-7, half a round trip of 1,000 bytes
//! takes 2.9 us by rendezvous and 0.95 us eagerly.
//!
//! RGET is that of sur-2006, section 4: its sender does nothing between the two packets. RPUT, of its
//! section 3, needs both sides twice: a message does not move while either of them computes, unless a
//! [thread](crate::manual::progress) moves its messages. The memory that a receiver exposes is used
//! again when its sender has said that it is written, or is given up when that is lost, also where
//! the receive was dropped. `onesided bench overlap` and `bench messages` compare the two. A send
//! copies its elements into registered memory, up to 64 MiB of which are kept for the next sends; a
//! receive reads them into its slice or vector. A [synchronous
//! send](crate::Messages::send_synchronous) waits for its receive, also at this rank itself.
//!
//! A [buffer](crate::Messages::buffer) is registered memory of the program. Where both sides have
//! one, a card moves a message out of the sender's into the receiver's, and no CPU copies it; on
//! shared memory the receiver copies it once. The memory stays registered for the next buffer when
//! one is dropped (*leave pinned*, woodall-2006).
//!
//! A buffer may also own a [vector](crate::Messages::buffer_of), or [whatever
//! else](crate::Messages::buffer_from) a window is made over, such as a mapping: messages go out of it
//! and into it, and the program has it back [from the
//! buffer](crate::handles::MessageBuffer::into_vec). A card has it registered as a whole. On shared
//! memory the threads of its process copy out of it, and other processes as out of the [user
//! memory](super::memory_model#user-memory) of windows, by `process_vm_readv`. Where that is forbidden,
//! or memory cannot be registered, its messages go in packets.
//!
//! No registration outlives the owner of its memory: a buffer owns what it has registered until no
//! message has it, a leaked request leaks it, and slices, which a program frees and maps again
//! unseen, are copied. So no cache of registrations can be stale, and nothing has to watch the
//! program's pages (userfaultfd) or to replace its allocator.
//!
//! To register memory takes a card as long as to move it, or longer. So a message whose memory was
//! not registered before gets half of the wire by RGET, and less by RPUT. In a *pipeline*
//! ([`Protocol::Pipeline`](crate::Protocol::Pipeline), woodall-2006) each side registers a piece
//! while the pieces before it move: a new buffer of a rank that chose it is not registered before it
//! is sent. The first and the last piece are short, as nothing moves while the one is registered, and
//! nothing is registered while the other moves. The memory stays registered for the messages after.
//! With a modelled ConnectX-7 and a message of 1, 8 and 32 MiB the share of the wire is
//!
//! | | memory of no earlier message | memory that stays registered |
//! |---|---|---|
//! | RGET | 46, 50, 50 % | 84, 97, 99 % |
//! | RPUT | 32, 33, 33 % | 86, 98, 99 % |
//! | pipeline | 70, 92, 96 % | 81, 96, 98 % |
//!
//! A slice is copied before the call returns: its pipeline begins behind the copy.
//!
//! The RTS of RGET carries no data, as a read of the rest takes as long. A prototype with the first
//! bytes in the RTS (RGET of slices, the sender's copies counted once) took in the simulator, half
//! a round trip:
//!
//! | | without | 512 bytes | 2,000 bytes | 4,000 bytes |
//! |---|---|---|---|---|
//! | ConnectX-7, 4,200 bytes | 3.19 us | 3.21 | 3.29 | 3.39 |
//! | ConnectX-7, 16 KiB | 4.04 us | 4.06 | 4.14 | 4.24 |
//! | ConnectX-7, 16 messages of 4,200 bytes | 35.8 us | 36.0 | 36.7 | 37.6 |
//! | InfiniHost, 4,200 bytes | 24.7 us | 25.3 | 26.7 | 28.7 |
//! | InfiniHost, 16 messages of 4,200 bytes | 315 us | 312 | 306 | 313 |
//!
//! That is with one copy of the first bytes at the receiver. Without any it is as fast as without
//! data, to the nanosecond, where one message is under way; a receiver that keeps the packet until
//! it is matched copies twice, and then no case gains. Between threads, on shared memory, where a
//! read is a copy, 9,000 bytes took 2.4 us without and 3.0 with 2,000 bytes in the RTS, 16 KiB 2.8
//! and 3.4 (the best of five runs).
//!
//! Registered memory is locked memory, which `ulimit -l` limits; each of several devices counts it
//! once. A long message whose memory cannot be registered, at its sender or its receiver, goes in
//! packets, which both copy (*copy*, woodall-2006); so does one for which the two have no connection to
//! read or write over. At most 128 KiB of it are on
//! their way, and they go to memory of the receive: so none of it is an unexpected message. What is
//! kept registered for later messages gives way first. A [buffer](crate::Messages::buffer) that is made at
//! the limit is not registered, and its messages go in packets. A rank may choose packets
//! ([`Protocol::Copy`](crate::Protocol::Copy)): its messages register nothing then.
//! [`registrations`](crate::Messages::registrations) counts what a rank has registered and was refused;
//! a [`dump`](crate::dump) tells of that, and of what is under way in packets.
//!
//! [`statistics`](crate::Messages::statistics) has what a rank has sent, by channel, protocol and length, and
//! to whom, the packets without a message apart; and how many connections were made, refused and given back, how
//! many datagrams were sent again, and how many packets overtook another one (koop-2008, section 6, Table 2 and
//! Fig. 7). `onesided run --statistics` writes the sums of a job to standard error at its end, with `--json` as
//! one line:
//!
//! ```text
//! channel      what               each        count            bytes
//! lane         control                           40                0
//! lane         eager             <= 64         2800            22400
//! lane         peers                              2                0
//! lane         rget           <= 65536            2           131072
//! ```
//!
//! What a long message of slices takes beside them: nothing if it is offered; by the other protocols its
//! length again at the sender, which copies it; by RPUT, by a pipeline, and in packets into a slice also at
//! the receiver. Of 512 MiB between two processes each peaked at 0.5 GiB offered and at 1.0 GiB by the
//! others. (A resident size on shared memory also counts what is mapped of the other rank: 1.5 GiB at the
//! sender of RPUT.) Messages of [buffers](crate::Messages::buffer) are not copied so.
//!
//! Between processes of one host on shared memory, a long message is copied once: the kernel copies it
//! from the sender's slice to the receiver's (`process_vm_readv`). A system call costs as much
//! as copying a few KiB, or a few tens of KiB, depending on the machine. So each sender *measures* from
//! which length on it offers slices. Its messages of 4 to 128 KiB that do not fit a packet go either
//! way in turns, one measurement at a time. Lengths are grouped by powers of two. A group is decided
//! when 16 messages of each way are timed at both ends, by the shorter best time; after 256 messages
//! without that, slices are offered. If slices win, all longer messages are offered; if copies win, all
//! shorter ones are copied. Messages of a decided length are not timed. A sender that waits for a
//! message of more than 32 KiB helps: the receiver copies chunks from below, the sender from above. A slice is the sender's again when the handle is gone; a handle that is dropped early
//! copies what its receiver has not read. So a handle must not be leaked
//! ([`forget`](std::mem::forget)): its receiver may then get other bytes. Where the system forbids
//! such copies (a container's policy), or `ONESIDED_PROCESS_VM=off` is set at any rank of the
//! communicator, all messages go through registered memory.
//!
//! What a rank keeps of messages that no receive has fitted is bounded: 4,096 units of credit for
//! each other rank, and among more than 64 ranks the same for all together. A message takes one
//! unit, an eager one another for each 64 bytes (the elements of longer ones stay at their sender).
//! Further ones wait at their sender until some are received. So a receiver that does not receive
//! stops its senders, and its memory does not grow.
//!
//! On shared memory two ranks that speak have a *lane* in each direction: cells of a cache line,
//! 64 KiB among up to 128 ranks, 8 KiB among more than 1,000. Its memory comes with its first
//! packets. A message of at most 40 bytes is one cell.
//!
//! # Over datagrams
//!
//! `ONESIDED_MESSAGES_CHANNEL=ud`, at all ranks, sends the packets of cards as unreliable datagrams,
//! from one queue pair of a rank to all others (UD-SR: koop-2008, section 3.1; connections remain for
//! windows and for the reads of long messages). The ranks make them reliable: they number and
//! acknowledge packets. A packet is sent again when three later ones have arrived. After 0.1 to 10 ms
//! without an answer the sender asks, and sends again at once what the answer lacks. A packet fits the
//! port's MTU with 40 bytes of header: a message of at most 968 bytes is eager where the MTU is 1,024. To each rank at most 256
//! packets are on their way: losses reduce that by half of the share that was lost, a second timeout
//! to 2.
//!
//! A lost packet costs microseconds, where a connection's card waits for its timeout (here 0.27 s,
//! unless a later packet shows the loss). But the CPU does what a card does: packets are sent
//! again, and acknowledged, while this rank waits in a call, or by its [thread or
//! handler](super::progress). A peer that has not answered for 8 s is lost (`ConnectionLost`),
//! unless its connection shows that it can be reached, and computes.
//!
//! With `ONESIDED_MESSAGES_CHANNEL=both` a job begins with datagrams alone. A message to a rank counts if the
//! [rules](#protocols) would send it over the connection of the two and there is none (`eager`, `rc-sr`, and what
//! is read or written). After 16 messages (`ONESIDED_MESSAGES_CONNECT_AFTER`) the connection is made in the
//! background (koop-2008, section 5.4), and no message waits for it: until it is there, eager messages are
//! datagrams, and long ones go in packets, from 64 KiB on as datagrams [into memory](#over-datagrams). A rank has at most 16 such connections
//! (`ONESIDED_MESSAGES_CONNECTIONS`), whoever asked for them; two ranks of which one was at its limit go on
//! without, and ask again after as many messages. A rank that refused one gives its least used connection back, if
//! fewer messages took that in a tenth of a second than count for a new one, and the peer agrees:
//!
//! ```text
//! 1000000 bytes to rank 3: ud-zcopy, by rule 3 of 3 (built in)
//!   eager                    passed over: it is longer than a packet
//!   size>=measured: offered  passed over: this fabric does not copy between processes, or ONESIDED_PROCESS_VM=off is set
//! > rget                     no connection to rank 3 yet: 7 of 16 messages counted: copied by the sender, as datagrams to where the receiver has it, when that is ready
//! ```
//!
//! The packets of two ranks have one sequence over both channels, in which they are taken. A connection that
//! breaks is not made anew, and ends the messages of the two; but not with `ONESIDED_MESSAGES_RELIABLE=on`, at all
//! ranks. Then packets over connections are numbered, acknowledged and kept like datagrams, at most 256 to each rank.
//! When their connection breaks they become datagrams, so that all messages arrive, once and in order, and no call
//! fails; the two make another connection. A message whose read or write ends with the connection goes in packets; one
//! whose memory is gone fails, as it would otherwise. What keeps costs: each packet is copied once more, and is no
//! longer than a datagram; the receiver's packets acknowledge it, or a datagram for at least 64 of them or after
//! 0.05 to 1 ms; and a write's FIN waits until the write is complete. The packets of a rank that leaves go on for at
//! most 2 s; a connection that breaks then loses them.
//!
//! A rank that has got 256 short packets over a connection (16 times `ONESIDED_MESSAGES_CONNECT_AFTER`) makes a *fast
//! path* for their sender (RC-FP: koop-2008, section 2.1.1), for at most 8 ranks (`ONESIDED_MESSAGES_FAST_PATHS`): 32
//! slots of 2 KiB in registered memory, which the sender writes over the connection, and which the receiver looks at
//! where it looks for packets. Eager messages that fit a slot and one packet of the network go that way: those of at
//! most 2,008 bytes where the MTU is 2,048 or more. No receive is taken, and nothing completes at the receiver. A
//! slot is free again when the packet in it has been acknowledged, as a datagram is; while none is free messages take
//! the connection. Nothing wakes a receiver that sleeps: a packet goes by the fast path only if another one has left over the connection within
//! the last millisecond, which wakes it, and for 2 ms behind that a sleeper looks by itself. Where ranks share cores none
//! is made without the setting, because a rank sleeps at once there. A fast path ends with its connection, and is made
//! anew as it was made.
//!
//! A long message needs no connection either (UD-ZCopy: koop-2008, section 3.2): with a rule such as `eager, ud-zcopy`,
//! and from 64 KiB on if there is none to read or write it over. For each of its datagrams the receiver posts a receive
//! whose memory is that datagram's place in the message, on one of four queue pairs for such messages, and tells the
//! sender the number and the key of it. So between [buffers](crate::Messages::buffer) no CPU copies a byte. Each
//! datagram bears its index as immediate data. A card uses receives in the order of arrival: what follows a lost
//! datagram is in the place of the one before, as is what overtook others, and is moved; what is lost comes in packets,
//! at most 128 datagrams at a time. The receiver waits for what is late for a millisecond after the last datagram. A
//! message has a key (Q_Key) of its own, so that the card drops late datagrams of an earlier one; and the queue pair is
//! reset before a message's memory is another's, whatever became of the message: the death of its sender, a dropped
//! receive. A message of more than 4,096 datagrams (4 MiB where the MTU is 1,024) goes by copy, and so does one for
//! which no memory can be registered, or all four queue pairs have messages of other ranks.
//! [Statistics](crate::Messages::statistics) count the datagrams that landed in their place, that were moved, and that
//! were missing.
//!
//! # Over several rails
//!
//! Two ranks that speak over cards may have further connections, *rails*, which move long messages
//! only: what is read or written in one piece and has 128 KiB or more (RGET, RPUT, pieces of the
//! pipeline). A host with several devices, or a device with several ports, has a rail on each that
//! `ONESIDED_DEVICE` names, at most three:
//!
//! ```sh
//! ONESIDED_DEVICE=mlx5_0,mlx5_1 onesided run --fabric mixed --hosts a:8,b:8 -- target/release/program
//! ONESIDED_DEVICE=mlx4_0:1,mlx4_0:2 ...     # ports of one device
//! ONESIDED_RAILS=2 ...                      # two queue pairs on one device and port
//! ```
//!
//! `ONESIDED_RAILS` (1 to 3) says how many rails there are: with more rails than devices, the next ones
//! are on the first devices again; with fewer, the last devices are not used. The second rail joins the
//! second devices of both hosts, so the devices are named in the order of the networks that they are on.
//! On a host with fewer devices, which needs `ONESIDED_RAILS`, it joins the other's second device to the
//! first one here; if no network does, long messages go over the first rail alone.
//!
//! A piece is cut into chunks of at least 64 KiB, about four for each rail, but for a shorter last one.
//! Each goes to the rail that will have moved it first, by the bytes in flight there and by what the
//! rail has cost so far, so that a slow one gets less (yu-2004, section 2.2, which divides a message
//! among networks). All are posted at once and move while the ranks compute. With rails the packet that
//! ends a written message, of any length, is sent when the write is complete; with one connection it is
//! posted right behind the write. A receive that is waited for when its message comes, and does not name
//! a [buffer](crate::Messages::buffer), reads by pieces of 16 KiB, which go over the first rail.
//!
//! The first device is that of the first rail, and of all else: short messages, windows, locks, and the
//! packets that make connections. The memory of messages is registered at each device. A rank asks once
//! for the keys of a peer's memory at further devices, by a read: the first message to or from memory
//! that was just registered goes over the first device alone. Memory of windows is not registered at
//! further devices, nor do windows have rails. Over datagrams there is one rail.
//!
//! If a further rail fails, because its device, port or network does, its chunks are posted again over
//! the others. A card takes about two seconds to notice, some cards longer; messages under way take that
//! long. The rail is made anew in the background, and moves no message before a read over it has come
//! back. No message fails, with one exception: a written message is complete only when the receiver
//! has given up its end of the failed rail, so that no late write changes memory that the receiver has
//! back, and if that takes 30 s, the first rail is given up too. The first rail is the connection of
//! messages: if it fails, the messages under way fail as with one rail, and all rails are made anew; if
//! the first device does, all that goes over it fails, as if there were no other. A device whose driver
//! is removed while the job runs, and not only its link, is not provided for.
//!
//! Several rails on one device gain where one queue pair does not fill the port, and nothing on
//! Soft-RoCE, whose processors do the card's work: by instructions, half a round trip of buffers of 1
//! or 4 MiB takes the same by one rail and by two where it is read, and 1 % more where 1 MiB is written.
//! What several devices gain has not been measured: there were none but emulated ones, which have one
//! port each.
//!
//! # What moves messages
//!
//! Messages move while this rank waits, for whatever: a rank that waits for a lock, for a barrier or
//! for a message of rank 1 answers those of rank 2, and reads the messages of all its posted
//! receives, in the order of their messages and at most as many at once as the device may have reads
//! outstanding. A receive that is waited for reads into its own slice or vector; one that is not, into
//! memory of the library, and its wait copies. A receive into a buffer has its message there in either
//! case. While a rank computes, the senders of long messages
//! to it wait.
//!
//! # Collectives
//!
//! A communicator has the collectives of MPI: [barrier](crate::Messages::barrier),
//! [broadcast](crate::Messages::broadcast), [reductions](super::recipes#reductions), gathers,
//! scatters, exchanges and scans. Their messages are in a context of their own, which no receive
//! sees. Algorithms, for so many bytes (of all ranks together, unless a block is named):
//!
//! | collective | short | long |
//! |---|---|---|
//! | `barrier` | dissemination | |
//! | `broadcast` | binomial tree | from 512 KiB, 8 ranks: scatter, then all-gather around a ring |
//! | `reduce` | binomial tree | from 64 KiB, 4 ranks: reduce-scatter by halves, then gather |
//! | `all_reduce` | recursive doubling | from 16 KiB: reduce-scatter by halves, then all-gather (Rabenseifner) |
//! | `gather`, `scatter` | blocks up to 1 KiB: binomial tree | straight to and from the root, as those with counts |
//! | `all_gather` | recursive doubling; Bruck if the ranks are no power of two | from 64 KiB: ring |
//! | `all_to_all` | blocks up to 256 B, 8 ranks: Bruck; up to 8 KiB together: all sends, then all receives | pairwise exchange, as that with counts |
//! | `reduce_scatter` | recursive doubling of the whole | from 8 KiB: pairwise exchange, or in the order of the ranks |
//! | `scan`, `exclusive_scan` | recursive doubling | the same |
//!
//! Short contributions of at most 32 ranks of one host go through shared memory instead, in a communicator that
//! [`Messages::new`](crate::Messages::new) made: each rank publishes its own once, and reads those of the others.
//! So do a `barrier`; a `broadcast`, an `all_reduce` and an `all_gather` of up to 240 B a rank; and an `all_to_all` of
//! up to 240 B a rank to all together. From the 16th collective on that a rank has begun before it has passed one,
//! messages go in place of what is published.
//!
//! Such ranks that may read one another's processes (as for [`Offered`](crate::Protocol::Offered)) read long ones where they
//! are, whatever the rules of messages say: an `all_gather` and an `all_to_all` of blocks from 16 KiB on, and an `all_reduce`
//! from 16 KiB on, in which each rank combines a block of all vectors and reads those of the others. Each publishes where its
//! slice is, and keeps it until all have said that they have read it.
//!
//! A rank in another collective than the others is told so at its first message: the error says who
//! is in which call. If both wait for one another, one asks the other after 20 ms. A rank whose call
//! fails tells all others why: so a death ends the call at every rank that waits in it, with an error
//! that names the dead rank. The communicator's later collectives fail with the same reason; its
//! messages, and other communicators, go on. [`CollectiveRequest`](crate::handles::CollectiveRequest)
//! has the rules.
//!
//! A collective moves while its request is waited for or polled. One that is
//! [started](crate::handles::CollectiveRequest::start) moves in every wait of the rank, so that the
//! others do not wait for a rank which waits for a lock or a message:
//!
//! ```
//! # use onesided::{Messages, Op};
//! # onesided::threads(2, |world| -> onesided::Result<()> {
//! let messages = Messages::new(&world).wait()?;
//! let mut residual = [0.25];
//! let norm = messages.all_reduce(&mut residual, Op::Sum).start();
//! world.barrier().wait()?; // any wait moves it
//! norm.wait()?;
//! # assert_eq!(residual, [0.5]);
//! # Ok(())
//! # })?;
//! # Ok::<(), onesided::Error>(())
//! ```
//!
//! It works on copies of the slices: a call that is waited for at once needs no start, and copies
//! nothing. While the rank computes, a call that was started stops, but with
//! [`ProgressMode::Thread`](crate::ProgressMode) a thread moves it.
//!
//! # Failures
//!
//! - A receive from a rank that died or left, and a send to one, fail with `PeerDied` or
//!   `PeerLeft`. What it had sent before can still be received: an eager message
//!   always, a longer one if its memory survives.
//! - A receive or a probe from any rank fails when a member of the communicator has died, because
//!   the message may have been that rank's.
//!   [`acknowledge_failures`](crate::Messages::acknowledge_failures) returns the dead members; then
//!   receives from any rank go on without them, as with `MPIX_Comm_ack_failed` of ULFM.
//! - A rank that returns has *left*, also with an error: that ends no receive from any rank, unless
//!   all others have left. A master that counts its workers gives its receives a deadline, and then
//!   asks `acknowledge_failures`, which returns those who left too.
//! - A message whose handle was dropped is lost if its sender leaves before it was read. Wait for the
//!   handle: a send that is complete has been read, or is on its way.
//! - Every handle has a `.deadline()`, also that of `Messages::new`. A receive past its deadline has
//!   taken no message; its error says which other messages wait. A send past its deadline may be
//!   received all the same; its error says whether the receiver has heard of it.
//! - A peer whose packets are no packets of this protocol is cut off: its sends and receives end
//!   with `Protocol`.
//! - On cards, where the connection of two ranks' messages breaks (two seconds of silence, a stale
//!   key), the message that was being moved fails with `Unknown` or `NoSuchRegion`, and all other sends
//!   to the other rank and receives from it that are under way with `ConnectionLost`, at both ranks;
//!   a receive from any rank stays. What has arrived can still be received, but not what was announced
//!   and not read. A message whose send failed may have arrived. If none of them tells a rank that
//!   something it had sent before (an eager message) may be missing, its next send to the other or
//!   receive from it fails so, and is not done. What is sent after that goes over another connection,
//!   once the other rank takes in messages, too. Windows, locks and messages with other ranks go on.
//!   A [lost connection](super::failures#lost-connections) of windows ends the messages of the two,
//!   until all ranks [reconnect](crate::World::reconnect). Over datagrams so does a broken connection
//!   of what they read and write, without `ONESIDED_MESSAGES_RELIABLE=on`.
//!
//! # Not there yet
//!
//! On cards a slice is copied at both ends; a buffer is not.
