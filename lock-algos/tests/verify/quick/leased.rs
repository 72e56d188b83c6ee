//! Leases of test-and-set: a live owner whose lease has expired.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use onesided_lock_algos::{Backoff, Held, Intent, LockContext, Mode, Owner, TestAndSet, TokenDraw};
use onesided_lock_kit::program::{lock_and_data, region_words};
use onesided_lock_kit::random::drive;
use onesided_lock_kit::{Layout, ModelMemory};
use onesided_remote_memory::{Fault, FaultKind, Rank, RemoteMemory};

use crate::stopped::SLOTS;
use crate::users::{Acquire, User, slotted};

const LEASE: u64 = 1_000_000_000;
const X: Mode = Mode::Exclusive;

fn leased(takes: bool) -> TestAndSet {
    TestAndSet::new(Backoff::new([Duration::from_millis(1)])).leased(LEASE, takes)
}

/// Two ranks, with an owner each.
struct Two([ModelMemory; 2]);

impl Two {
    fn new() -> Self {
        let memory = ModelMemory::new(2, region_words::<TestAndSet>(SLOTS));
        Self([0, 1].map(|rank| memory.of(rank)))
    }

    fn user<'a>(&'a self, lock: &'a TestAndSet, rank: u32, generation: u32) -> User<'a, TestAndSet> {
        User { lock, memory: &self.0[rank as usize], owner: Owner { generation, ..slotted(rank) }, slots: SLOTS }
    }

    fn release(&self, lock: &TestAndSet, rank: u32, generation: u32) -> Result<(), Fault> {
        drive(&self.0[0], self.user(lock, rank, generation).releases(X))
    }

    fn acquire<'a>(&'a self, lock: &'a TestAndSet, rank: u32, generation: u32, mode: Mode) -> Acquire<'a> {
        self.user(lock, rank, generation).asks(mode, Intent::LOCK)
    }

    fn now(&self) -> u64 {
        self.0[0].now()
    }

    /// Polls the future for at most this long.
    fn go_on<T>(&self, mut future: Pin<&mut impl Future<Output = T>>, long: u64) -> Option<T> {
        let end = self.now() + long;
        while self.now() < end {
            if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return Some(value);
            }
            assert!(self.0[0].world().step(), "waits without end");
        }
        None
    }
}

#[test]
fn an_expired_lease_is_reported_or_the_lock_is_taken() {
    for takes in [false, true] {
        for mode in [X, Mode::Shared] {
            let (two, lock) = (Two::new(), leased(takes));
            assert_eq!(drive(&two.0[1], two.acquire(&lock, 1, 5, X)), Ok(Held::cleanly(X)));
            let begin = two.now();
            let late = Fault::of(FaultKind::LeaseExpired, Rank(1));
            let found = drive(&two.0[0], two.acquire(&lock, 0, 9, mode));
            assert!(two.now() - begin > LEASE, "after {} ns", two.now() - begin);
            match takes {
                // Also for a reader: the previous owner may have left the data inconsistent.
                true => assert_eq!(found, Ok(Held::after(late, X))),
                false => assert_eq!(found, Err(late)),
            }
            let word = || lock_and_data::<TestAndSet>(&two.0[0].region()).0[0];
            let before = word();
            let released = two.release(&lock, 1, 5);
            match takes {
                true => {
                    assert_eq!((released, word()), (Err(Fault::new(FaultKind::NotHeld)), before));
                    assert_eq!(two.release(&lock, 0, 9), Ok(()));
                }
                false => assert_eq!(released, Ok(())),
            }
            assert_eq!(word(), 0);
        }
    }
}

#[test]
fn a_lease_is_of_one_acquire() {
    let (two, lock) = (Two::new(), leased(false));
    assert_eq!(drive(&two.0[1], two.acquire(&lock, 1, 0, X)), Ok(Held::cleanly(X)));
    let mut waits = pin!(two.acquire(&lock, 0, 9, X));
    for generation in 1..4 {
        assert_eq!(two.go_on(waits.as_mut(), LEASE / 2), None);
        // Before the waiter reads again.
        assert_eq!(two.release(&lock, 1, generation - 1), Ok(()));
        assert_eq!(drive(&two.0[1], two.acquire(&lock, 1, generation, X)), Ok(Held::cleanly(X)));
    }
    assert_eq!(two.go_on(waits, 2 * LEASE), Some(Err(Fault::of(FaultKind::LeaseExpired, Rank(1)))));
}

/// A reader has no lease, and an owner need not have one.
#[test]
fn without_a_lease_nothing_expires() {
    let readers = (leased(true), Mode::Shared);
    let others = (TestAndSet::new(Backoff::new([Duration::from_millis(1)])).checked(), X);
    for (lock, mode) in [readers, others] {
        let two = Two::new();
        assert_eq!(drive(&two.0[1], two.acquire(&lock, 1, 0, mode)), Ok(Held::cleanly(mode)));
        assert_eq!(two.go_on(pin!(two.acquire(&lock, 0, 9, X)), 5 * LEASE), None);
    }
}

/// A token that is drawn with a read of the lock's word belongs to the owner of that word.
#[test]
fn a_token_is_the_holders() {
    let (two, lock) = (Two::new(), leased(true));
    let memory = &two.0[0];
    let context = Layout::new::<TestAndSet>(memory, Owner { generation: 1, ..slotted(0) }, SLOTS);
    let draw = |held| {
        let (counter, word) = (context.token().unwrap(), context.home(0).unwrap());
        drive(memory, TokenDraw::checked(memory, counter, word).held_as(held))
    };
    drive(memory, two.acquire(&lock, 0, 1, X)).unwrap();
    let mine = lock_and_data::<TestAndSet>(&memory.region()).0[0];
    assert_eq!(draw(Some(mine)), Ok(1));
    assert_eq!(draw(Some(mine ^ 1)), Err(Fault::new(FaultKind::NotHeld)));
    assert_eq!(draw(None), Ok(3), "one is lost with a draw that fails");
    assert_eq!(drive(memory, TokenDraw::from(memory, context.token().unwrap()).held_as(Some(0))), Ok(4));
}
