//! Drives the engine over a fabric: what a waiting task does.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use onesided_fabric::remote_memory::{Fault, FaultKind, Patience, Rank, Watch};
use onesided_fabric::{Arrival, Background, Fabric, NOBODY, Segment, SegmentKey, Taken, Told, Transport, Wait};

use crate::engine::{Direct, Engine, Here, Landed, Posted, Posting, window};
use crate::matching::Pattern;
use crate::offered;
use crate::wire::{EAGER_HEAD, HEAD_MAX};

/// The most memory that sends have used and that is kept to be used again, in bytes.
const KEPT: u64 = 64 << 20;

/// The engine of a rank and its fabric. All communicators of the rank share it.
pub(crate) struct Progress<F: Fabric> {
    pub(crate) fabric: F,
    state: Mutex<State<F>>,
    memory: Mutex<Memory<Registered<F>>>,
}

struct State<F: Fabric> {
    engine: Engine<Registered<F>>,
    transport: F::Transport,
    reads: Vec<Read<F>>,
}

/// Registered memory of a message. The handle of a send holds it too while its slice is offered.
pub(crate) type Registered<F> = Arc<<F as Fabric>::Segment>;

/// A message is longer than a packet.
pub(crate) struct TooLong;

/// A read of an announced message whose receive is not waited for now.
struct Read<F: Fabric> {
    receive: usize,
    into: Registered<F>,
    transfer: F::Transfer,
}

impl<F: Fabric> fmt::Debug for Progress<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress").field("fabric", &self.fabric).finish_non_exhaustive()
    }
}

/// Registered memory that no peer reads, by length; and that of peers which was read last.
#[derive(Debug)]
struct Memory<S> {
    free: BTreeMap<u64, Class<S>>,
    bytes: u64,
    /// The number of messages so far.
    uses: u64,
    opened: VecDeque<(SegmentKey, S)>,
    /// Offers of peers, which they use again: at most [`OFFERS`], each in the place of its key.
    offers: Vec<Option<(SegmentKey, S)>>,
}

const OFFERS: usize = 256;

/// Memory of one length.
#[derive(Debug)]
struct Class<S> {
    free: Vec<S>,
    /// The message that used it last.
    used: u64,
}

/// Memory of peers stays open if it is at least this long, because to open it takes system calls
/// then; shorter memory is opened by a few loads, and its owner uses it again sooner if it is closed.
const STAYS_OPEN: u64 = 1 << 20;

const fn posted(sent: Poll<Result<(), Fault>>) -> Posted {
    match sent {
        Poll::Ready(Ok(())) => Posted::Sent,
        Poll::Ready(Err(fault)) => Posted::Failed(fault),
        Poll::Pending => Posted::Busy,
    }
}

impl<F: Fabric> State<F> {
    /// Sends what can be sent. The waker is woken when there may be room for more.
    fn flush(&mut self, cx: &mut Context<'_>) {
        let Self { engine, transport, .. } = self;
        engine.flush(|to, head, body| posted(transport.poll_send(cx, to, head, body)));
    }
}

/// Takes in the next packet, if there is one.
#[inline]
fn take_in<S>(
    (engine, transport): (&mut Engine<S>, &mut impl Transport),
    cx: &mut Context<'_>,
    patience: Patience,
    direct: &mut Direct<'_>,
) -> Poll<Result<(), Fault>> {
    transport.poll_recv(cx, patience).map_ok(|Arrival { from, len }| {
        let mut head = [0; HEAD_MAX];
        let head = &mut head[..len.min(HEAD_MAX)];
        transport.read(0, head);
        engine.arrived(from, (head, len), |offset, into| transport.read(offset, into), direct);
    })
}

/// The length of the memory that is allocated for so many bytes: at most an eighth more, above a
/// cache line, so that there are few lengths.
const fn allocated(len: u64) -> u64 {
    let len = if len < 64 { 64 } else { len };
    len.next_multiple_of(len.next_power_of_two() / 16)
}

impl<S> Memory<S> {
    fn class(&mut self, len: u64) -> &mut Class<S> {
        let used = self.uses;
        self.free.entry(len).or_insert(Class { free: Vec::new(), used })
    }

    fn take(&mut self, len: u64) -> Option<S> {
        self.uses += 1;
        let used = self.uses;
        let class = self.class(len);
        class.used = used;
        let segment = class.free.pop()?;
        self.bytes -= len;
        Some(segment)
    }

    /// Keeps memory instead of some of the length that was used longest ago.
    fn keep(&mut self, len: u64, segment: S) {
        while self.bytes + len > KEPT {
            let Some(oldest) = self.free.iter().min_by_key(|(_, class)| class.used).map(|(len, _)| *len) else { break };
            match self.free.get_mut(&oldest).and_then(|class| class.free.pop()) {
                Some(_) => self.bytes -= oldest,
                None => drop(self.free.remove(&oldest)),
            }
        }
        self.class(len).free.push(segment);
        self.bytes += len;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under a lock is one of this crate's own invariants; no user code runs there.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<F: Fabric> Progress<F> {
    /// `fabric` must not keep its rank in the world.
    pub(crate) fn new(fabric: F) -> Result<Arc<Self>, Fault>
    where
        F: 'static,
    {
        let engine = Engine::new(fabric.rank(), window(fabric.size()));
        let state = Mutex::new(State { engine, transport: fabric.transport()?, reads: Vec::new() });
        let memory = Mutex::new(Memory {
            free: BTreeMap::new(),
            bytes: 0,
            uses: 0,
            opened: VecDeque::new(),
            offers: Vec::new(),
        });
        let progress = Arc::new(Self { fabric, state, memory });
        if let Some(slot) = progress.fabric.background() {
            let this: Weak<Self> = Arc::downgrade(&progress);
            let _ = slot.set(this); // the rank has one engine
        }
        Ok(progress)
    }

    /// Registered memory of at least `len` bytes.
    pub(crate) fn memory(&self, len: u64) -> Result<Registered<F>, Fault> {
        let len = allocated(len);
        {
            if let Some(segment) = lock(&self.memory).take(len) {
                return Ok(segment);
            }
        }
        self.fabric.allocate(len).map(Arc::new).map_err(|error| error.fault())
    }

    /// Opens the memory of a peer's message.
    pub(crate) fn open(&self, key: &SegmentKey) -> Result<Registered<F>, Fault> {
        let open = || self.fabric.open(key).map(Arc::new).map_err(|error| error.fault());
        if key.len < STAYS_OPEN {
            return open();
        }
        let Memory { opened, .. } = &mut *lock(&self.memory);
        if let Some((_, memory)) = opened.iter().find(|(known, _)| known == key) {
            return Ok(Arc::clone(memory));
        }
        let memory = open()?;
        opened.push_front((*key, Arc::clone(&memory)));
        let mut left = KEPT;
        opened.retain(|(key, _)| {
            left = left.saturating_sub(key.len);
            left > 0
        });
        Ok(memory)
    }

    /// Opens the memory of a peer's offer.
    pub(crate) fn open_offer(&self, key: &SegmentKey) -> Result<Registered<F>, Fault> {
        let offers = &mut lock(&self.memory).offers;
        if offers.is_empty() {
            offers.resize_with(OFFERS, || None);
        }
        let at = key.region.0.wrapping_add(key.rank.0.wrapping_mul(61)) as usize % OFFERS;
        match &offers[at] {
            Some((known, memory)) if known == key => Ok(Arc::clone(memory)),
            _ => {
                let memory = Arc::new(self.fabric.open(key).map_err(|error| error.fault())?);
                offers[at] = Some((*key, Arc::clone(&memory)));
                Ok(memory)
            }
        }
    }

    /// Keeps memory for the next messages.
    pub(crate) fn keep(&self, segments: impl IntoIterator<Item = Registered<F>>) {
        let mut memory = lock(&self.memory);
        for mut segment in segments {
            let len = segment.len();
            let is_in_use = Arc::get_mut(&mut segment).is_none(); // by a slice that is offered still
            if !is_in_use && len <= KEPT {
                memory.keep(len, segment);
            }
        }
    }

    /// Changes the engine, sends what can be sent at once, and wakes the tasks that get on by it.
    pub(crate) fn with<R>(&self, change: impl FnOnce(&mut Engine<Registered<F>>) -> R) -> R {
        self.arriving(|engine, _| change(engine))
    }

    /// Wakers run, and are dropped, without the lock: they may belong to anything.
    fn unlock(&self, mut state: MutexGuard<'_, State<F>>) {
        if !state.engine.has_left_over() {
            return;
        }
        let ([woken, _retired], idle) = (state.engine.take_wakers(), state.engine.take_idle());
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        if !idle.is_empty() {
            self.keep(idle);
        }
    }

    /// The longest eager message.
    pub(crate) fn eager_max(&self, to: Rank) -> usize {
        lock(&self.state).transport.packet_max(to) - EAGER_HEAD
    }

    /// Starts an eager send. `Ok(None)`: it is on its way already; `Err`: it is too long for a
    /// packet.
    #[inline]
    pub(crate) fn send_eager(&self, to: Rank, envelope: (u32, u32), bytes: &[u8]) -> Result<Option<usize>, TooLong> {
        let mut state = lock(&self.state);
        let State { engine, transport, .. } = &mut *state;
        if bytes.len() > transport.packet_max(to) - EAGER_HEAD {
            return Err(TooLong);
        }
        let mut cx = Context::from_waker(NOBODY);
        let send = engine
            .send_eager(to, envelope, bytes, |to, head, body| posted(transport.poll_send(&mut cx, to, head, body)));
        self.unlock(state);
        Ok(send)
    }

    /// Posts a receive, or takes its message if it has come. An eager one goes `into` a slice at
    /// once.
    #[inline]
    pub(crate) fn receive(&self, pattern: Pattern, into: Option<&mut [u8]>) -> Posting<Registered<F>> {
        self.arriving(|engine, arrive| match into {
            None => engine.receive(pattern),
            Some(into) => engine.receive_into(pattern, into, arrive),
        })
    }

    /// Takes in what has arrived, until the message of a posted receive is in the slice.
    #[inline]
    pub(crate) fn land(&self, receive: usize, into: &mut [u8]) -> Option<Landed> {
        self.arriving(|engine, arrive| engine.land(receive, into, arrive))
    }

    /// [Changes](Self::with) the engine with what takes in the next packet, if there is one.
    #[inline]
    fn arriving<R>(
        &self,
        change: impl FnOnce(
            &mut Engine<Registered<F>>,
            &mut dyn FnMut(&mut Engine<Registered<F>>, &mut Direct<'_>) -> bool,
        ) -> R,
    ) -> R {
        let mut state = lock(&self.state);
        let State { engine, transport, .. } = &mut *state;
        let me = self.fabric.rank();
        let result = change(engine, &mut |engine, direct| {
            let cx = &mut Context::from_waker(NOBODY);
            match take_in((engine, transport), cx, Patience::on(me), direct) {
                Poll::Ready(Ok(())) => true,
                Poll::Ready(Err(fault)) => {
                    engine.lose(fault.rank().unwrap_or(me), fault);
                    false
                }
                Poll::Pending => false,
            }
        });
        if state.engine.is_busy() {
            state.flush(&mut Context::from_waker(NOBODY));
        }
        self.unlock(state);
        result
    }

    /// Starts to read announced messages whose receives are not waited for now, and ends the reads
    /// that are over.
    fn read_announced(&self, State { engine, reads, .. }: &mut State<F>, cx: &mut Context<'_>) {
        while let Some((receive, mut key, is_offered)) = engine.next_to_read(|key| offered::is_still(self, key)) {
            if is_offered {
                match self.take_offered(&key) {
                    Ok((bytes, Taken::Whole)) => {
                        engine.read(receive, Ok(Here::Bytes(bytes)));
                        continue;
                    }
                    Ok((_, Taken::Moved(to))) => key = to,
                    Ok((_, Taken::Moving)) => {
                        engine.read_later(receive);
                        break;
                    }
                    Err(fault) => {
                        engine.read(receive, Err(fault));
                        continue;
                    }
                }
            }
            if key.len == 0 {
                engine.read(receive, self.memory(0).map(Here::Memory));
                continue;
            }
            match self.open(&key).and_then(|from| Ok((from, self.memory(key.len)?))) {
                Ok((from, into)) => {
                    let transfer = self.fabric.rdma_read((&*from, 0), (&*into, 0), key.len);
                    reads.push(Read { receive, into, transfer });
                }
                Err(fault) => engine.read(receive, Err(fault)),
            }
        }
        let mut at = 0;
        while let Some(read) = reads.get_mut(at) {
            match Pin::new(&mut read.transfer).poll(cx) {
                Poll::Ready(outcome) => {
                    let Read { receive, into, .. } = reads.swap_remove(at);
                    engine.read(receive, outcome.map(|()| Here::Memory(into)));
                }
                Poll::Pending => at += 1,
            }
        }
    }

    fn take_offered(&self, key: &SegmentKey) -> Result<(Box<[u8]>, Taken), Fault> {
        let len = usize::try_from(key.len).unwrap_or(usize::MAX);
        let mut bytes =
            bytemuck::allocation::try_zeroed_slice_box(len).map_err(|()| Fault::new(FaultKind::NoMemory))?;
        let taken = offered::take(self, key, &mut bytes)?;
        Ok((bytes, taken))
    }

    /// Waits until `look` finds what it waits for, and moves all messages of this rank meanwhile.
    /// `watch`: the rank whose end may be what ends the wait. `direct`: a receive that is waited
    /// for. `failed` says why nothing will be found, once everything that has arrived is taken in;
    /// `what` says what is waited for.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) fn until<'a, R: 'a>(
        &'a self,
        watch: Rank,
        mut direct: Direct<'a>,
        mut look: impl FnMut(&mut Engine<Registered<F>>, &mut Direct<'_>, &Waker) -> Option<R> + 'a,
        failed: impl Fn(&Engine<Registered<F>>) -> Option<R> + 'a,
        what: impl Fn() -> Option<Wait> + 'a,
    ) -> impl Future<Output = R> + 'a {
        let mut told = Told::NOTHING;
        let patience = Patience { deadline: u64::MAX, watch: Watch::RankAndFailures(watch) };
        poll_fn(move |cx| {
            let mut state = lock(&self.state);
            let (mut has_failed, mut is_changed) = (false, false);
            let found = loop {
                if let Some(found) = look(&mut state.engine, &mut direct, cx.waker()) {
                    break Some(found);
                }
                let State { engine, transport, .. } = &mut *state;
                match take_in((engine, transport), cx, patience, &mut direct) {
                    Poll::Ready(Ok(())) => continue,
                    Poll::Ready(Err(fault)) => {
                        state.engine.lose(fault.rank().unwrap_or(watch), fault);
                        is_changed = true;
                    }
                    Poll::Pending => {}
                }
                // Everything that has arrived is taken in.
                if state.engine.has_work() || !state.reads.is_empty() || is_changed {
                    is_changed = false;
                    state.engine.lose_unreachable();
                    self.read_announced(&mut state, cx);
                    if state.engine.is_busy() {
                        state.flush(cx);
                    }
                    let found = look(&mut state.engine, &mut direct, cx.waker());
                    if found.is_some() || state.engine.has_unreachable() {
                        if found.is_some() {
                            break found;
                        }
                        continue;
                    }
                }
                match failed(&state.engine) {
                    // The end of a rank was seen after its last message may have arrived.
                    Some(_) if !has_failed => has_failed = true,
                    outcome => break outcome,
                }
            };
            if found.is_some() {
                if state.engine.is_busy() {
                    state.flush(cx);
                }
                if state.engine.is_busy() || !state.reads.is_empty() {
                    state.engine.wake_all(); // another task goes on with it
                }
            }
            self.unlock(state);
            if found.is_none() {
                told.tell(&what);
            }
            found.map_or(Poll::Pending, Poll::Ready)
        })
    }
}

impl<F: Fabric> Background for Progress<F> {
    fn advance(&self) {
        // Another thread moves them, or this one waits inside of it.
        let Ok(state) = self.state.try_lock() else { return };
        let is_idle = state.engine.is_idle() && state.reads.is_empty();
        drop(state);
        if !is_idle {
            let until_idle = self.until(self.fabric.rank(), Direct::none(), |_, _, _| None::<()>, |_| None, || None);
            let _ = pin!(until_idle).poll(&mut Context::from_waker(NOBODY));
        }
    }

    fn describe(&self) -> Vec<String> {
        lock(&self.state).engine.describe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_few_lengths() {
        for len in [0, 1, 63, 64, 65, 4095, 4096, 4097, (1 << 20) + 128, 1 << 62] {
            let long = allocated(len);
            assert!(long >= len && long <= (len + len / 8).max(64), "{len}: {long}");
        }
        let lengths: std::collections::BTreeSet<_> = (1..=1 << 16).map(allocated).collect();
        assert!(lengths.len() <= 8 * 11, "{}", lengths.len());
    }

    /// What was used longest ago makes room.
    #[test]
    fn memory_is_kept_within_its_bound() {
        let mut memory =
            Memory { free: BTreeMap::new(), bytes: 0, uses: 0, opened: VecDeque::new(), offers: Vec::new() };
        for (len, many) in [(1 << 20, 64), (16 << 20, 2), (1 << 20, 8)] {
            for _ in 0..many {
                memory.uses += 1;
                memory.keep(len, len);
                memory.free.get_mut(&len).unwrap().used = memory.uses;
                assert!(memory.bytes <= KEPT);
                assert_eq!(memory.free.values().flat_map(|class| &class.free).sum::<u64>(), memory.bytes);
            }
        }
        assert_eq!(memory.free[&(16 << 20)].free.len(), 1);
        assert_eq!(memory.free[&(1 << 20)].free.len(), 39);
    }
}
