//! The costs of the cards and hosts of a testbed, beyond those of its wires.

use std::time::Duration;

/// The costs of a card, beyond [`Network`](crate::Network)'s. All are zero by default.
///
/// A small operation takes [`Host::post`] + `doorbell` + [`send`](crate::Network::send) +
/// [`latency`](crate::Network::latency) until it takes effect at its target, and a target that
/// polls sees it `deliver` + [`Host::poll`] later. Its completion takes what the target adds
/// (`read`, `atomic`), [`receive`](crate::Network::receive), the latency, `deliver` and
/// [`Host::poll`]: RC acknowledges in hardware.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Card {
    /// From the write to the doorbell until the card sends: the card fetches the work request and
    /// its data.
    pub doorbell: Duration,
    /// From a card to its host's memory, and until a processor that polls can see it.
    pub deliver: Duration,
    /// How much longer the target's card takes to answer a read than to acknowledge a write.
    pub read: Duration,
    /// How long the target's card holds a word for an atomic operation. Atomics on one word follow
    /// one another; others overlap.
    pub atomic: Duration,
    /// How many reads and atomics a connection may have in flight; a further one waits, with
    /// everything behind it. 0: any number.
    pub outstanding: u32,
    /// Of how many connections a card keeps the context in its own memory: those that were used last (the ICM cache:
    /// koop-2008, section 4.2). All datagrams of a rank have one. 0: of all.
    pub contexts: u32,
    /// How long it takes a card to fetch another one from its host's memory. Other messages go on meanwhile.
    pub fetch: Duration,
    /// How long it takes a card to fetch the receive of a packet or a datagram and to write its completion. Neither is there
    /// for what is written, as by a [fast path](crate::Network::fast_paths) (koop-2008, section 2.1.1: 2 us on an InfiniHost
    /// III, less than one on a ConnectX).
    pub fetch_receive: Duration,
    /// The bytes of its rank's memory that a connection takes, as [statistics](onesided_fabric::ChannelCounts) say
    /// (koop-2008, figure 3(a)).
    pub connection_memory: u32,
    /// Those that all datagrams of a rank take.
    pub datagram_memory: u32,
    /// Those that a fast path to the rank takes.
    pub fast_path_memory: u32,
    /// Whether a failing atomic may undo a concurrent write to the same word: locks then release by
    /// atomics ([`write_is_atomic`](onesided_remote_memory::RemoteMemory::write_is_atomic)).
    pub atomics_exclude_writes: bool,
}

/// The costs of a host's processors. With [`cores`](Self::cores), each rank's program is a thread,
/// as is each task that serves apart; ranks of one host share its cores and its card.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Host {
    /// The number of processors. 0: computation takes no time, and nothing waits for a processor.
    pub cores: u32,
    /// To post one operation.
    pub post: Duration,
    /// To take one completion, or to see that a word has changed.
    pub poll: Duration,
    /// To poll the next slot of a [fast path](crate::Network::fast_paths): a thread that waits for packets polls those of all
    /// that its rank has.
    pub poll_slot: Duration,
    /// What a server thread takes for each request, beyond [`poll`](Self::poll).
    pub progress: Duration,
    /// Bytes a second that a processor copies into the buffers of puts, and into and out of its
    /// rank's own memory. 0: any number.
    pub copy: u64,
    /// To register a page of 4 KiB with the card, when memory is allocated or registered: the
    /// system pins the page, and the card gets its address.
    pub register: Duration,
    /// How long a thread runs while others wait for its processor.
    pub slice: Duration,
    /// From one thread to another on a processor.
    pub switch: Duration,
    /// From a card's event until its interrupt handler wakes a thread; [`Network::wake`] and
    /// [`switch`](Self::switch) follow.
    ///
    /// [`Network::wake`]: crate::Network::wake
    pub interrupt: Duration,
    /// How long a server thread that sleeps polls before it does.
    pub server_polling: Duration,
    /// Whether all server threads of a rank share one progress engine behind one mutex. A thread has
    /// the mutex while it takes requests and answers them. One that wants it meanwhile sleeps, and
    /// gets it in the order of asking. Of threads that poll, one does so inside; the others ask for
    /// the mutex when something has arrived for them.
    pub locked_progress: bool,
    /// From the unlock of that mutex until the thread that it is handed to is ready for a processor;
    /// [`switch`](Self::switch) follows.
    pub hand_over: Duration,
}
