//! Messages with tags over RDMA primitives: matching, eager and rendezvous protocols, channels,
//! send rules.
//!
//! **A placeholder: there is no messaging here yet.** Its foundation exists and is tested: the
//! conformance suite of [`onesided_fabric`] runs a small RGET rendezvous (sur-2006, section 3) over
//! every fabric: a request with a [`SegmentKey`](onesided_fabric::SegmentKey) through the
//! [`Mailbox`](onesided_fabric::remote_memory::Mailbox), an
//! [`rdma_read`](onesided_fabric::Fabric::rdma_read), a FIN.
//!
//! May use: [`onesided_fabric`], through its traits. May not know which fabric it runs on, windows,
//! or locks; may not read a clock or start a thread: each protocol and channel is a state machine
//! that takes events and time and returns work.

#![forbid(unsafe_code)]
