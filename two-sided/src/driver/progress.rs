//! Drives the engine over a fabric: what a waiting task does.

mod background;
mod land;
mod state;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use onesided_fabric::bootstrap::fork::is_child;
use onesided_fabric::remote_memory::{Patience, Rank, Watch};
use onesided_fabric::{
    Absent, Background, Channel, ChannelTo, EventInterest, Events, Fabric, Limit, NOBODY, SpinGuard, SpinLock, Told,
    Transport, Wait, debug,
};

use self::background::Owing;
pub(crate) use self::land::Looks;
pub(crate) use self::state::State;
use self::state::{end_connection, take_in};
use crate::Error;
use crate::driver::handler::Handler;
use crate::driver::memory::{Counters, Memory};
use crate::driver::offered;
use crate::driver::pieces::Pieces;
use crate::driver::rules::Applied;
use crate::driver::tasks::{Task, Tasks};
use crate::engine::matching::Pattern;
use crate::engine::wire::EAGER_HEAD;
use crate::engine::{Direct, Engine, Listed, MovedTo, Posting, TooLong, window};

/// The engine of a rank and its fabric. All communicators of the rank share it.
pub(crate) struct Progress<F: Fabric> {
    pub(crate) fabric: F,
    state: SpinLock<State<F>>,
    pub(crate) memory: Mutex<Memory<Registered<F>, Opened<F>>>,
    pub(crate) registrations: Counters,
    handler: Handler,
    pub(crate) tasks: Tasks,
    pub(crate) rules: Applied,
    /// Whether packets may go without a connection that may be there.
    may_lack_connections: bool,
    /// This, for tasks that go on without their caller.
    owing: Weak<dyn Owing>,
}

/// When a thread looks again for what may have come for a task.
const SOON: Duration = Duration::from_micros(100);

/// Registered memory of a message. The handle of a send holds it too while its slice is offered.
pub(crate) type Registered<F> = Arc<Pieces<F>>;
/// Registered memory of a peer.
pub(crate) type Opened<F> = Arc<<F as Fabric>::Segment>;
/// Takes in the next packet, if there is one.
type Arrive<'a, F> = dyn FnMut(&mut Engine<Registered<F>>, &mut Direct<'_>) -> bool + 'a;

debug!([F: Fabric] Progress<F>, |this| "Progress {{ fabric: {:?}, .. }}", this.fabric);

impl<F: Fabric> Drop for Progress<F> {
    fn drop(&mut self) {
        // A forked child has no other thread: it would wait for that one for ever.
        if !is_child() {
            self.end_handler();
            self.report_statistics();
        }
    }
}

/// Whether packets may take a channel, if it is there.
fn has_channel(transport: &impl Transport, me: Rank, channel: Channel) -> bool {
    let absent = transport.absent(me).map(|_| Channel::Connection);
    let fast_path = transport.has_fast_path().then_some(Channel::FastPath);
    transport.channels(me).iter().map(|to| to.channel).chain(absent).chain(fast_path).any(|may| may == channel)
}

impl<F: Fabric> Progress<F> {
    /// `fabric` must not keep its rank in the world.
    pub(crate) fn new(fabric: F) -> Result<Arc<Self>, Error> {
        let fabric = fabric.for_messages();
        let reads = fabric.capabilities().outstanding_reads;
        let engine = Engine::new(fabric.rank(), window(fabric.size()), reads);
        let (transport, interest) =
            (fabric.transport().map_err(|fault| Error::Create { fault })?, EventInterest::default());
        let rules = Applied::new(|channel| has_channel(&transport, fabric.rank(), channel))?;
        let may_lack_connections = transport.absent(fabric.rank()).is_some();
        let state = SpinLock::new(State { engine, transport, transfers: Vec::new(), interest, sends_seen: 0 });
        let progress = Arc::new_cyclic(|this: &Weak<Self>| Self {
            fabric,
            state,
            memory: Mutex::default(),
            registrations: Counters::default(),
            handler: Handler::default(),
            tasks: Tasks::default(),
            rules,
            may_lack_connections,
            owing: this.clone(),
        });
        if let Some(slot) = progress.fabric.endpoint().background() {
            let this: Weak<Self> = Arc::downgrade(&progress);
            SpinLock::hold_over_forks(Weak::clone(&this), |progress: &Self| &progress.state);
            slot.set(this);
        }
        Ok(progress)
    }

    /// Whether threads wait, and not tasks in virtual time.
    pub(crate) fn has_threads(&self) -> bool {
        self.fabric.endpoint().background().is_some()
    }

    pub(crate) fn state(&self) -> SpinGuard<'_, State<F>> {
        self.state.lock()
    }

    pub(crate) const fn handler(&self) -> &Handler {
        &self.handler
    }

    /// Starts a task, which every wait of the rank moves.
    pub(crate) fn start(&self, call: (u32, u64), task: Task) {
        self.tasks.push(call, task);
        self.move_tasks(&mut Context::from_waker(NOBODY));
        if self.handler.is_solicited() {
            self.ask();
        }
    }

    #[inline]
    fn move_tasks(&self, cx: &mut Context<'_>) {
        if !self.tasks.are_none() && !self.tasks.poll(cx) {
            self.look_again_soon();
        }
    }

    /// Changes the engine, sends what can be sent at once, and wakes the tasks that get on by it.
    pub(crate) fn with<R>(&self, change: impl FnOnce(&mut Engine<Registered<F>>) -> R) -> R {
        self.arriving(|engine, _| change(engine))
    }

    /// Closes a communicator. The senders of its announced messages are told with what this rank sends next: of a
    /// rank that ends now they learn that instead.
    pub(crate) fn close(&self, communicator: u32) {
        let mut state = self.state.lock();
        state.engine.close(communicator);
        self.unlock(state);
    }

    #[inline]
    fn unlock(&self, state: SpinGuard<'_, State<F>>) {
        if state.engine.has_left_over() {
            self.clear_up(state);
        }
    }

    /// The same where a request may have begun.
    #[inline]
    fn unlock_and_ask(&self, state: SpinGuard<'_, State<F>>) {
        let asks = state.interest.is_unarmed() && state.engine.may_expect(state.sends_seen);
        self.unlock(state);
        if asks {
            self.ask();
        }
    }

    /// Wakers run, and are dropped, without the lock: they may belong to anything.
    #[cold]
    fn clear_up(&self, mut state: SpinGuard<'_, State<F>>) {
        let ([woken, _retired], idle) = (state.engine.take_wakers(), state.engine.take_idle());
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        if !idle.is_empty() {
            self.keep(idle);
        }
    }

    /// The longest message that fits a packet to a rank.
    pub(crate) fn packet_room(&self, to: Rank) -> usize {
        self.state.lock().transport.channels(to)[0].packet_max - EAGER_HEAD
    }

    /// Whether packets may take a channel, if it is there.
    pub(crate) fn has_channel(&self, channel: Channel) -> bool {
        has_channel(&self.state.lock().transport, self.fabric.rank(), channel)
    }

    /// The longest message that fits a packet to a rank by a channel, or why that is not there.
    pub(crate) fn room_by(&self, to: Rank, channel: Channel) -> Result<usize, Option<Absent>> {
        let state = self.state.lock();
        let found = state.transport.channels(to).iter().find(|to| to.channel == channel);
        found.map(|to| to.packet_max - EAGER_HEAD).ok_or_else(|| state.transport.absent(to))
    }

    /// Why there is no connection to a rank. `None`: there is one, or is none on this fabric.
    pub(crate) fn absent(&self, to: Rank) -> Option<Absent> {
        if self.may_lack_connections { self.state.lock().transport.absent(to) } else { None }
    }

    /// The channel of an eager message of so many bytes to a rank, if this fabric has several, and why it is not another
    /// one.
    pub(crate) fn first_of_several(&self, to: Rank, bytes: u64) -> Option<(Channel, Option<Absent>)> {
        let transport = &self.state.lock().transport;
        let (channels, absent) = (transport.channels(to), transport.absent(to));
        let fits = |to: &&ChannelTo| bytes + EAGER_HEAD as u64 <= to.packet_max as u64;
        let fast_path = channels.iter().find(|to| to.channel == Channel::FastPath).filter(fits);
        let first = fast_path.unwrap_or(&channels[0]).channel;
        (channels.len() > 1 || absent.is_some()).then_some((first, absent))
    }

    /// A message would take the connection to a rank, if there were one.
    pub(crate) fn count(&self, to: Rank) {
        self.state.lock().transport.count(to, usize::MAX);
    }

    /// Starts an eager send, over a channel if one is named. `Ok(None)`: it is on its way already.
    #[inline(never)]
    pub(crate) fn send_eager(
        &self,
        to: Rank,
        envelope: (u32, u32),
        bytes: &[u8],
        over: Option<Channel>,
    ) -> Result<Option<usize>, TooLong> {
        let mut state = self.state.lock();
        let send = state.send_eager(to, envelope, bytes, over);
        match send {
            Ok(Some(_)) => self.unlock_and_ask(state),
            _ => self.unlock(state),
        }
        send
    }

    /// Starts eager sends in their order, until one is too long, or to no rank of this fabric.
    pub(crate) fn send_eager_all(
        &self,
        context: u32,
        mut list: &[Listed<'_>],
        rank_of: impl Fn(u32) -> Option<Rank>,
        mut started: impl FnMut(Rank, Option<usize>),
    ) {
        let mut state = self.state.lock();
        state.transport.set_list(true);
        while let Some((bytes, to, tag)) = list.first()
            && let Some(to) = rank_of(*to)
            && self.rules.are_eager(bytes.len() as u64)
        {
            let together = state.send_batch(to, (context, list));
            (0..together).for_each(|_| started(to, None));
            if together == 0 {
                match state.send_eager(to, (context, tag.0), bytes, None) {
                    Ok(send) => started(to, send),
                    Err(TooLong) => break,
                }
            }
            list = &list[together.max(1)..];
        }
        state.transport.set_list(false);
        self.unlock_and_ask(state);
    }

    /// Starts an eager send, and then a receive as [`receive_into`](Self::receive_into) does, with one lock.
    #[inline]
    pub(crate) fn exchange(
        &self,
        (to, envelope, bytes): (Rank, (u32, u32), &[u8]),
        (pattern, direct): (Pattern, &mut Direct<'_>),
    ) -> Result<(Option<usize>, Posting), TooLong> {
        let mut is_to_move = false;
        let exchanged = self.locked(|state| {
            let send = state.send_eager(to, envelope, bytes, None)?;
            let State { engine, transport, .. } = state;
            let posting =
                engine.receive_into(pattern, direct, |engine, direct| self.take_next((engine, transport), direct));
            is_to_move = engine.has_to_move();
            Ok((send, posting))
        });
        if is_to_move {
            self.wake_handler(); // as in `posting`
        }
        exchanged
    }

    /// Posts a receive, or takes its message if it has come: `direct` is memory that an eager message goes to
    /// at once.
    #[inline]
    pub(crate) fn receive_into(&self, pattern: Pattern, direct: &mut Direct<'_>) -> Posting {
        self.posting(|engine, arrive| engine.receive_into(pattern, direct, arrive))
    }

    /// The same with memory for a message that is moved before it is waited for.
    pub(crate) fn receive_moved(
        &self,
        pattern: Pattern,
        direct: &mut Direct<'_>,
        moved_to: MovedTo<Registered<F>>,
    ) -> Posting {
        self.posting(|engine, arrive| {
            let posting = engine.receive_into(pattern, direct, arrive);
            if let Posting::Posted(receive) = posting {
                engine.move_to(receive, moved_to);
            }
            posting
        })
    }

    /// [Changes](Self::arriving) the engine by posting receives.
    #[inline]
    pub(crate) fn posting<R>(&self, post: impl FnOnce(&mut Engine<Registered<F>>, &mut Arrive<'_, F>) -> R) -> R {
        let mut is_to_move = false;
        let posting = self.arriving(|engine, arrive| {
            let posting = post(engine, arrive);
            is_to_move = engine.has_to_move();
            posting
        });
        if is_to_move {
            self.wake_handler(); // the packet's event is over
        }
        posting
    }

    /// [Changes](Self::with) the engine with what takes in the next packet, if there is one.
    #[inline]
    pub(crate) fn arriving<R>(&self, change: impl FnOnce(&mut Engine<Registered<F>>, &mut Arrive<'_, F>) -> R) -> R {
        self.locked(|State { engine, transport, .. }| {
            change(engine, &mut |engine, direct| self.take_next((engine, transport), direct))
        })
    }

    /// Takes in the next packet, if there is one.
    #[inline]
    fn take_next(
        &self,
        (engine, transport): (&mut Engine<Registered<F>>, &mut F::Transport),
        direct: &mut Direct<'_>,
    ) -> bool {
        let me = self.fabric.rank();
        match take_in((engine, transport), direct, |packets| packets.try_recv(me)) {
            Poll::Ready(Ok(())) => true,
            Poll::Ready(Err(fault)) => end_connection((engine, transport), fault.rank().unwrap_or(me), fault),
            Poll::Pending => false,
        }
    }

    /// Changes the engine, sends what can be sent at once, and wakes the tasks that get on by it.
    #[inline]
    fn locked<R>(&self, change: impl FnOnce(&mut State<F>) -> R) -> R {
        let mut state = self.state.lock();
        let result = change(&mut state);
        if state.engine.is_busy() {
            state.flush(&mut Context::from_waker(NOBODY));
        }
        self.unlock_and_ask(state);
        result
    }

    /// Asks for events if something is expected since. A packet that came before has none.
    #[cold]
    fn ask(&self) {
        if self.change_interest(|_| {}) {
            let mut direct = Direct::none();
            let is_to_move = self.arriving(|engine, arrive| {
                while arrive(engine, &mut direct) {}
                engine.has_to_move()
            });
            if is_to_move {
                self.wake_handler();
            }
        }
    }

    /// Changes what events are asked for: `true` as of [`update`](EventInterest::update).
    pub(crate) fn change_interest(&self, change: impl FnOnce(&mut EventInterest)) -> bool {
        let Some(events) = self.fabric.events(Events::Packets) else { return false };
        let State { engine, transfers, interest, sends_seen, .. } = &mut *self.state.lock();
        change(interest);
        *sends_seen = engine.started();
        interest.update(events, || engine.expects() || !transfers.is_empty() || !self.tasks.is_empty())
    }

    /// Starts to move announced messages.
    fn move_announced(&self, state: &mut State<F>, cx: &mut Context<'_>) {
        while let Some(next) = state.engine.next_to_move(|key| offered::is_still(self, key)) {
            if !state.tell(self, self.begin(next)) {
                break;
            }
            // The key of a piece goes out before the next one is registered.
            if state.engine.is_busy() {
                state.flush(cx);
            }
        }
    }

    /// Takes in everything that has arrived, and moves the announced messages: what the handler
    /// does. Whether something is under way then.
    pub(crate) fn drain(&self) -> bool {
        if self.fabric.capabilities().completes_at_post {
            self.drain_by_copies();
        } else {
            self.move_all();
            self.move_tasks(&mut Context::from_waker(NOBODY));
        }
        let state = self.state.lock();
        state.engine.is_busy() || !state.transfers.is_empty()
    }

    /// The same where transfers are copies. The engine is not locked meanwhile.
    fn drain_by_copies(&self) {
        let (mut direct, cx) = (Direct::none(), &mut Context::from_waker(NOBODY));
        loop {
            let next = self.arriving(|engine, arrive| {
                while arrive(engine, &mut direct) {}
                engine.next_to_move(|key| offered::is_still(self, key))
            });
            let Some(next) = next else { return self.move_tasks(cx) };
            let begun = self.begin(next);
            let mut state = self.state.lock();
            let goes_on = state.tell(self, begun);
            state.engine.wake_own(); // a thread may have gone to sleep meanwhile
            state.end_transfers(cx);
            state.flush(cx);
            self.unlock(state);
            if !goes_on {
                return self.move_tasks(cx);
            }
        }
    }

    /// Moves what can be moved now.
    fn move_all(&self) {
        let until_idle = self.until(self.fabric.rank(), Direct::none(), |_, _, _| None::<()>, |_| None, || None);
        let _ = pin!(until_idle).poll(&mut Context::from_waker(NOBODY));
    }

    /// What another thread takes in may be for a task, which it need not move, and what this one took
    /// in may be for a task that another moves: a thread that goes to sleep now looks again soon.
    #[cold]
    fn look_again_soon(&self) {
        let mut soon = Limit::NONE;
        soon.said = Some(SOON);
        let _ = soon.poll(&mut Context::from_waker(NOBODY), &self.fabric);
    }

    /// A wait is over: it has taken in what may be for a task, and others move them from now on.
    #[cold]
    fn leave_tasks(&self) {
        self.move_tasks(&mut Context::from_waker(NOBODY));
        self.with(Engine::wake_all);
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
        let (mut told, mut polls) = (Told::NOTHING, None);
        let patience = Patience { deadline: u64::MAX, watch: Watch::RankAndFailures(watch) };
        poll_fn(move |cx| {
            self.move_tasks(cx);
            let mut state = self.state.lock();
            let (mut has_failed, mut is_changed) = (false, false);
            let found = loop {
                if let Some(found) = look(&mut state.engine, &mut direct, cx.waker()) {
                    break Some(found);
                }
                let State { engine, transport, .. } = &mut *state;
                match take_in((engine, transport), &mut direct, |packets| packets.poll_recv(cx, patience)) {
                    Poll::Ready(Ok(())) => continue,
                    Poll::Ready(Err(fault)) => {
                        is_changed = true;
                        if end_connection((engine, transport), fault.rank().unwrap_or(watch), fault) {
                            continue;
                        }
                    }
                    Poll::Pending => {}
                }
                // Everything that has arrived is taken in.
                if state.engine.has_work() || !state.transfers.is_empty() || is_changed {
                    is_changed = false;
                    state.engine.lose_unreachable();
                    self.move_announced(&mut state, cx);
                    while state.end_transfers(cx) && state.engine.has_to_move() {
                        self.move_announced(&mut state, cx);
                    }
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
                if state.engine.is_busy() || !state.transfers.is_empty() {
                    state.engine.wake_all(); // another task goes on with it
                }
            }
            self.unlock(state);
            if found.is_none() {
                told.tell(&what);
                if polls.is_none() && self.handler.is_solicited() {
                    polls = PollingTask::begin(self, cx.waker());
                }
            } else {
                drop(polls.take());
                if !self.tasks.are_none() {
                    self.leave_tasks();
                }
            }
            found.map_or(Poll::Pending, Poll::Ready)
        })
    }
}

/// Counts a waiting task as a polling thread, where tasks stand for threads (the simulator).
struct PollingTask<'a, F: Fabric>(&'a Progress<F>);

impl<'a, F: Fabric> PollingTask<'a, F> {
    /// `None`: the mode has no handler, or the task is polled only once.
    #[cold]
    fn begin(progress: &'a Progress<F>, waker: &Waker) -> Option<Self> {
        progress.fabric.events(Events::Packets)?;
        let is_one = !progress.has_threads() && !waker.will_wake(NOBODY) && !Tasks::is_moving();
        (is_one && progress.begins_polling()).then(|| Self(progress))
    }
}

impl<F: Fabric> Drop for PollingTask<'_, F> {
    fn drop(&mut self) {
        self.0.ends_polling();
    }
}
