//! Words, messages and waiting: the card's, with a note of what changes words that the CPU may come to next.

use remote_memory::{At, Chain, Fault, Link, Liveness, Mailbox, Notify, Patience, Port, Rank, RegionId, RemoteMemory};

use crate::mixed::{Mixed, MixedWord};
use crate::verbs::{Verbs, VerbsOp, VerbsWord};
use crate::{Drive, Ticket};

impl Mixed {
    pub(super) fn word_of<'f>(&'f self, card: VerbsWord<'f>, region: RegionId) -> MixedWord<'f> {
        MixedWord { card, near: None, change: self.near(card.rank()).map(|near| near.changes.of(region)) }
    }

    /// Notes that a change of this word was posted.
    fn note<T>(&self, word: MixedWord<'_>, is_write: bool, posted: T) -> T {
        if let Some(change) = word.change {
            change.note(&self.verbs, word.card.rank(), is_write);
        }
        posted
    }
}

impl RemoteMemory for Mixed {
    type Word<'f> = MixedWord<'f>;
    type Op = <Verbs as RemoteMemory>::Op;
    type Wait<'f, P: Fn(u64) -> bool + Unpin + Send + 'f> = <Verbs as RemoteMemory>::Wait<'f, P>;
    type Pause<'f> = <Verbs as RemoteMemory>::Pause<'f>;

    fn rank(&self) -> Rank {
        self.verbs.rank()
    }

    fn size(&self) -> u32 {
        self.verbs.size()
    }

    fn word(&self, at: At) -> Result<MixedWord<'_>, Fault> {
        self.verbs.word(at).map(|card| self.word_of(card, at.region))
    }

    fn read(&self, word: MixedWord<'_>) -> Self::Op {
        match word.near {
            Some(near) => VerbsOp::ended(Ok(near.load())),
            None => self.verbs.read(word.card),
        }
    }

    fn write(&self, word: MixedWord<'_>, value: u64, notify: Notify) -> Self::Op {
        if let Some(near) = word.near {
            near.store(value);
            return VerbsOp::ended(Ok(0));
        }
        self.note(word, true, self.verbs.write(word.card, value, notify))
    }

    fn write_is_atomic(&self) -> bool {
        self.verbs.write_is_atomic()
    }

    fn compare_swap(&self, word: MixedWord<'_>, expected: u64, new: u64) -> Self::Op {
        if let Some(near) = word.near {
            return VerbsOp::ended(Ok(near.compare_swap(expected, new)));
        }
        self.note(word, false, self.verbs.compare_swap(word.card, expected, new))
    }

    fn fetch_add(&self, word: MixedWord<'_>, add: u64) -> Self::Op {
        if let Some(near) = word.near {
            return VerbsOp::ended(Ok(near.fetch_add(add)));
        }
        self.note(word, false, self.verbs.fetch_add(word.card, add))
    }

    fn post<const N: usize>(&self, links: [Link<MixedWord<'_>>; N]) -> Chain<Self::Op, N> {
        if links.iter().any(|link| link.word().near.is_some()) {
            return Chain::of(links.map(|link| link.waited().then_some(self.post_link(link))));
        }
        let cards = links.map(|link| link.filter_map(|word| Some(word.card)).expect("every word has the card's"));
        let chain = self.verbs.post(cards);
        for link in links {
            match link {
                Link::Read { .. } => {}
                Link::Write { word, .. } => self.note(word, true, ()),
                Link::CompareSwap { word, .. } | Link::FetchAdd { word, .. } => self.note(word, false, ()),
            }
        }
        chain
    }

    fn load(&self, own: MixedWord<'_>) -> Result<u64, Fault> {
        self.verbs.load(own.card)
    }

    fn store(&self, own: MixedWord<'_>, value: u64) -> Result<(), Fault> {
        self.verbs.store(own.card, value)
    }

    fn wait_until<'f, P>(&'f self, own: MixedWord<'f>, predicate: P, patience: Patience) -> Self::Wait<'f, P>
    where
        P: Fn(u64) -> bool + Unpin + Send + 'f,
    {
        self.verbs.wait_until(own.card, predicate, patience)
    }

    fn pause<'f>(&'f self, word: MixedWord<'f>, nanos: u64) -> Self::Pause<'f> {
        self.verbs.pause(word.card, nanos)
    }

    fn now(&self) -> u64 {
        self.verbs.now()
    }

    fn liveness(&self, rank: Rank) -> Liveness {
        self.verbs.liveness(rank)
    }

    fn casualty(&self) -> Option<Rank> {
        self.verbs.casualty()
    }
}

impl Mailbox for Mixed {
    type Send<'f> = <Verbs as Mailbox>::Send<'f>;
    type Recv<'f> = <Verbs as Mailbox>::Recv<'f>;

    fn send<'f>(&'f self, to: Rank, port: Port, bytes: &[u8], notify: Notify) -> Self::Send<'f> {
        self.verbs.send(to, port, bytes, notify)
    }

    fn recv<'f>(&'f self, port: Port, patience: Patience) -> Self::Recv<'f> {
        self.verbs.recv(port, patience)
    }
}

impl Drive for Mixed {
    fn progress(&self) -> usize {
        self.verbs.progress()
    }

    #[inline]
    fn relax(&self) {
        self.verbs.relax();
    }

    fn spins(&self) -> u32 {
        self.verbs.spins()
    }

    fn arm(&self) -> Ticket {
        self.verbs.arm()
    }

    fn sleep(&self, ticket: Ticket, until: u64) {
        self.verbs.sleep(ticket, until);
    }

    fn disarm(&self, ticket: Ticket) {
        self.verbs.disarm(ticket);
    }

    fn crowded(&self) -> bool {
        self.verbs.crowded()
    }

    fn shares_its_core(&self) -> bool {
        self.verbs.shares_its_core()
    }

    fn unfinished(&self) -> usize {
        self.verbs.unfinished()
    }
}
