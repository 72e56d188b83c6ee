//! Messages with tags over RDMA primitives: matching, eager and rendezvous protocols, channels, send rules.
//!
//! **A first page: there is no messaging here yet.** What it will stand on is there and is tried: the conformance suite of
//! [`fabric`] runs a small RGET rendezvous (sur-2006, section 3) over every fabric: a request with a
//! [`SegmentKey`](fabric::SegmentKey) through the [`Mailbox`](fabric::remote_memory::Mailbox), an
//! [`rdma_read`](fabric::Fabric::rdma_read), a FIN.
//!
//! May use: [`fabric`], through its traits. May not know which fabric it runs on, windows, or locks; may not read a clock
//! or start a thread: each protocol and channel is a state machine that is handed events and time and hands back work.

#![forbid(unsafe_code)]
