//! Ranks that die, stop or compute: what the others get to hear, and when; and that they go on.

use std::time::Duration;

use onesided::fabric::bootstrap::environment;
use onesided::fabric::remote_memory::{Mailbox as _, Notify, Patience, Port, Rank, RemoteMemory as _};
use onesided::fabric::{Fabric as _, block_on};
use onesided::{Error, FaultKind, LockDesign, Mode, PreviousOwner, Window, World};
use rustix::process::Signal;

use crate::jobs::{self, Ended, Role, die, ok, send, state};
use crate::support::{compute, eventually};

pub(crate) const ROLES: &[Role] = &[
    ("exclusive owner", |world| holder_ends(&world, true, || die())),
    ("shared owner", |world| holder_ends(&world, false, || die())),
    ("deserter", |world| holder_ends(&world, true, || std::process::exit(0))),
    ("panics", panics),
    ("waiter", waiter_dies),
    ("barrier", barrier_dies),
    ("creation", creator_dies),
    ("first look", first_look_at_the_dead),
    ("stopped", stopped_target),
    ("computing", computing_target),
    ("mail to the stopped", mail_to_the_stopped),
    ("waiting for ever", waits_for_ever),
];

/// How soon a death is known, and a doubtful one.
const SOON: Duration = Duration::from_secs(1);
const DOUBT: Duration = Duration::from_millis(2500);

/// What everybody tells everybody: where to find it in each part.
const PID: usize = 0;
const TIME: usize = 1;
const DONE: usize = 2;
const HEARD: usize = 3;
const HEALED: usize = 4;
const WORDS: usize = 8;

struct Board(Window<u64>);

impl Board {
    /// Everybody's process is known to all.
    fn new(world: &World) -> Self {
        let board = Self(
            Window::<u64>::builder()
                .lock(LockDesign::TestAndSet)
                .name("board")
                .allocate(world, WORDS * world.size() as usize)
                .wait()
                .unwrap(),
        );
        board.tell(PID, std::process::id().into());
        world.barrier().wait().unwrap();
        board
    }

    fn tell(&self, what: usize, value: u64) {
        let world = self.0.world();
        for target in (0..world.size()).filter(|target| !is_lost(world, *target)) {
            let epoch = self.0.lock_shared(target).wait().unwrap();
            epoch.put(WORDS * world.rank() as usize + what, &[value]).unwrap();
            match epoch.unlock().wait().map_err(Error::from) {
                // It has seen the value, its last one, and left, with its memory, before the lock was free again.
                Err(error) if error.fault().is_some_and(|fault| fault.kind() == FaultKind::PeerLeft) => {}
                unlocked => unlocked.unwrap(),
            }
        }
    }

    fn told(&self, by: u32, what: usize) -> u64 {
        let at = WORDS * by as usize + what;
        self.0.local().read(at..at + 1)[0]
    }

    /// How long ago rank 0 said that it was about to end.
    fn since_the_end(&self) -> Duration {
        Duration::from_nanos(self.0.world().fabric().now() - self.told(0, TIME))
    }
}

/// A window whose parts all hold what rank 0 put there.
fn filled(world: &World) -> Window<u64> {
    let window = Window::<u64>::builder().name("scores").allocate(world, 100).wait().unwrap();
    if world.rank() == 0 {
        for target in 0..world.size() {
            let epoch = window.lock_exclusive(target).wait().unwrap();
            epoch.put(0, &[u64::from(target) + 7; 100]).unwrap();
            epoch.unlock().wait().unwrap();
        }
    }
    world.barrier().wait().unwrap();
    window
}

/// Whether a rank's memory is gone with it.
fn is_lost(world: &World, rank: u32) -> bool {
    !world.is_alive(rank) && !world.fabric().capabilities().memory_survives
}

/// Nobody's memory was harmed, and all locks but those of `lost` work. Then waits for the other survivors, without a
/// barrier: after a death there is none.
fn goes_on(board: &Board, window: &Window<u64>, lost: Option<u32>) {
    let world = window.world();
    assert_eq!(window.local().read(0..100), [u64::from(world.rank()) + 7; 100]);
    for target in (0..world.size()).filter(|target| Some(*target) != lost) {
        // A lock that its target serves ends with it.
        let unserved = window.info().lock.is_served() && !world.is_alive(target);
        if is_lost(world, target) || unserved {
            let error = Error::from(window.lock_exclusive(target).wait().unwrap_err());
            assert_eq!(error.fault().map(|fault| fault.kind()), Some(FaultKind::PeerDied), "{error}");
            continue;
        }
        let epoch = window.lock_exclusive(target).wait().unwrap();
        let mut all = [0; 100];
        epoch.get(0, &mut all).wait().unwrap();
        assert_eq!(all, [u64::from(target) + 7; 100]);
        epoch.put(0, &all).unwrap();
        epoch.unlock().wait().unwrap();
        drop(window.lock_shared(target).wait().unwrap());
    }
    board.tell(DONE, 1);
    for other in (0..world.size()).filter(|rank| world.is_alive(*rank)) {
        eventually(SOON * 10, "all are done", || board.told(other, DONE) == 1);
    }
}

/// Rank 0 takes the lock of rank 1's part and ends; the others wait for it, and are told. Then rank 2 recovers it, and the
/// lock is as any other.
fn holder_ends(world: &World, exclusive: bool, end: fn()) {
    let (board, window) = (Board::new(world), filled(world));
    if world.rank() == 0 {
        let request = if exclusive { window.lock_exclusive(1) } else { window.lock_shared(1) };
        let _epoch = request.wait().unwrap();
        world.barrier().wait().unwrap();
        std::thread::sleep(Duration::from_millis(200)); // the others wait by now
        board.tell(TIME, world.fabric().now());
        end();
    }
    world.barrier().wait().unwrap();
    let error = Error::from(window.lock_exclusive(1).wait().unwrap_err());
    let took = board.since_the_end();
    // A queue cannot tell who of the dead held it; a thread at the target can.
    let design = window.info().lock;
    let names = match design {
        LockDesign::TestAndSet | LockDesign::DedicatedThread(_) | LockDesign::EventThread(_) => true,
        LockDesign::TwoLevel => true, // the first owner has passed the queue
        _ => false,
    };
    let named = exclusive && names;
    let kind = if named { FaultKind::OwnerDied } else { FaultKind::ParticipantDied };
    let fault = error.fault().unwrap();
    assert_eq!((fault.kind(), fault.rank().map(|rank| rank.0)), (kind, Some(0)), "{error}");
    assert!(error.is_poisoned() && error.is_owner_died() == named);
    // Nobody waits for one owner alone with tickets: they are doubted together.
    let at_once = exclusive && matches!(window.info().lock, LockDesign::TestAndSet | LockDesign::Mcs);
    assert!(took < if at_once { SOON } else { DOUBT }, "{took:?}");
    let reason = if named { "died while it held the lock" } else { "died, and may have held the lock" };
    let told = format!("lock_exclusive on rank 1 of window \"scores\": rank 0 {reason} (`recover` takes it over)");
    assert_eq!(error.to_string(), told);
    assert!(!world.is_alive(0) && world.is_alive(1));
    // Whoever comes later hears the same, at once, as long as nobody has inherited.
    assert!(Error::from(window.lock_shared(1).wait().unwrap_err()).is_poisoned());
    // While the other one asks, a try finds the lock busy.
    eventually(SOON * 10, "a try is told", || match window.try_lock_exclusive(1).wait() {
        Ok(epoch) => {
            assert!(epoch.is_none(), "it was not told");
            false
        }
        Err(error) => Error::from(error).is_poisoned(),
    });
    board.tell(HEARD, 1);
    if world.rank() == 2 {
        eventually(SOON * 10, "rank 1 has heard", || board.told(1, HEARD) == 1);
        let epoch = window.lock_shared(1).recover().wait().unwrap();
        let heir = if named { PreviousOwner::Owner(0) } else { PreviousOwner::Participant(0) };
        assert_eq!((epoch.previous_owner(), epoch.mode()), (Some(heir), Mode::Exclusive));
        assert!(window.try_lock_shared(1).wait().unwrap().is_none());
        epoch.unlock().wait().unwrap();
        board.tell(HEALED, 1);
    }
    eventually(SOON * 10, "it is healed", || board.told(2, HEALED) == 1);
    let epoch = window.lock_exclusive(1).recover().wait().unwrap();
    assert_eq!(epoch.previous_owner(), None);
    epoch.unlock().wait().unwrap();
    goes_on(&board, &window, None);
    ok();
}

/// Rank 0 panics while it holds the lock of rank 1's part: its guards release as they are dropped, and then it is dead.
fn panics(world: World) {
    let (board, window) = (Board::new(&world), filled(&world));
    let epoch = (world.rank() == 0).then(|| window.lock_exclusive(1).wait().unwrap());
    world.barrier().wait().unwrap();
    board.tell(HEARD, 1);
    if epoch.is_some() {
        // Else the barrier may fail that is not over for all.
        eventually(SOON * 10, "all are past the barrier", || {
            (1..world.size()).all(|rank| board.told(rank, HEARD) == 1)
        });
        panic!("on purpose");
    }
    let error = Error::from(world.barrier().wait().unwrap_err());
    assert_eq!(error.to_string(), "barrier: rank 0: the peer died");
    // Its windows were dropped, too.
    let error = Error::from(window.lock_exclusive(0).wait().unwrap_err());
    assert_eq!(error.to_string(), "lock_exclusive on rank 0 of window \"scores\": rank 0: the peer died");
    goes_on(&board, &window, Some(0));
    ok();
}

/// Rank 0 dies while it waits for the lock of rank 1's part, which rank 1 holds.
fn waiter_dies(world: World) {
    let (board, window) = (Board::new(&world), filled(&world));
    match world.rank() {
        0 => {
            world.barrier().wait().unwrap();
            let _ = window.lock_exclusive(1).wait();
            panic!("it was to be killed");
        }
        1 => {
            let epoch = window.lock_exclusive(1).wait().unwrap();
            world.barrier().wait().unwrap();
            std::thread::sleep(Duration::from_millis(150));
            send(board.told(0, PID), Signal::KILL);
            eventually(SOON, "its death is known", || !world.is_alive(0));
            epoch.unlock().wait().unwrap();
            eventually(SOON * 10, "it is healed", || board.told(2, HEALED) == 1);
        }
        _ => {
            world.barrier().wait().unwrap();
            let epoch = window.lock_exclusive(1).recover().wait().unwrap(); // waits, too
            let inherited = epoch.previous_owner();
            epoch.unlock().wait().unwrap();
            let queues = window.info().lock != LockDesign::TestAndSet;
            assert!(inherited.is_none() || queues, "{inherited:?}");
            if queues && inherited.is_none() {
                // It was before the dead one, who is in the queue yet.
                eventually(SOON, "its death is known", || !world.is_alive(0));
                drop(window.lock_exclusive(1).recover().wait().unwrap());
            }
            board.tell(HEALED, 1);
        }
    }
    goes_on(&board, &window, None);
    ok();
}

/// Rank 0 dies while the others are in a barrier.
fn barrier_dies(world: World) {
    let (board, window) = (Board::new(&world), filled(&world));
    if world.rank() == 0 {
        std::thread::sleep(Duration::from_millis(200));
        board.tell(TIME, world.fabric().now());
        die();
    }
    let error = Error::from(world.barrier().wait().unwrap_err());
    let took = board.since_the_end();
    assert_eq!(error.to_string(), "barrier: rank 0: the peer died");
    assert!(took < SOON, "{took:?}");
    let error = Error::from(Window::<u8>::builder().name("next").allocate(&world, 1).wait().map(|_| ()).unwrap_err());
    assert_eq!(error.to_string(), "create window \"next\": closed");
    goes_on(&board, &window, None);
    let error = Error::from(window.close().wait().unwrap_err());
    assert_eq!(error.to_string(), "close window \"scores\": closed");
    ok();
}

/// Rank 0 dies while the others create a window.
fn creator_dies(world: World) {
    let (board, window) = (Board::new(&world), filled(&world));
    if world.rank() == 0 {
        std::thread::sleep(Duration::from_millis(200));
        board.tell(TIME, world.fabric().now());
        die();
    }
    let error =
        Error::from(Window::<u64>::builder().name("new").allocate(&world, 1 << 16).wait().map(|_| ()).unwrap_err());
    let took = board.since_the_end();
    assert_eq!(error.to_string(), "create window \"new\": rank 0: the peer died");
    assert!(took < SOON, "{took:?}");
    goes_on(&board, &window, None);
    ok();
}

/// A dead rank's memory outlives it, also for those who had not reached it before.
fn first_look_at_the_dead(world: World) {
    let board = Board::new(&world);
    let window = Window::<u64>::builder().name("scores").allocate(&world, 100).wait().unwrap();
    window.local().write(0, &[u64::from(world.rank()) + 7; 100]).unwrap();
    world.barrier().wait().unwrap();
    if world.rank() == 0 {
        // Nobody is to meet its death in the barrier.
        let others = 1..world.size();
        eventually(30 * SOON, "the others have left the barrier", || {
            others.clone().all(|rank| board.told(rank, TIME) != 0)
        });
        die();
    }
    board.tell(TIME, 1);
    eventually(SOON, "its death is known", || !world.is_alive(0));
    assert_ne!(board.told(0, PID), 0);
    goes_on(&board, &window, None);
    ok();
}

/// What ranks 1 and 2 do to rank 0's part, again and again: everything that may need nothing of the target.
fn operate(window: &Window<u64>, rounds: u64) {
    for round in 0..rounds {
        let epoch = window.lock_exclusive(0).wait().unwrap();
        let mut value = [0; 2];
        epoch.get(10, &mut value).wait().unwrap();
        epoch.put(10, &[value[0] + 1, value[1] + 1]).unwrap();
        epoch.flush().wait().unwrap();
        epoch.fetch_add(20, 1).wait().unwrap();
        let found = epoch.compare_and_swap(30, 7 + round, 8 + round).wait().unwrap();
        assert!(found >= 7 + round);
        epoch.unlock().wait().unwrap();
        let epoch = window.lock_shared(0).wait().unwrap();
        epoch.fetch_add(20, 1).wait().unwrap();
        epoch.unlock().wait().unwrap();
    }
}

fn check_operated(window: &Window<u64>, rounds: u64) {
    let all = window.local().read(0..100);
    let [counted, added] = [7 + 2 * rounds, 7 + 4 * rounds];
    assert_eq!((all[10], all[11], all[20], all[30]), (counted, counted, added, 7 + rounds));
    assert!([0, 9, 12, 19, 21, 29, 31, 99].iter().all(|at| all[*at] == 7));
}

const ROUNDS: u64 = 500;

fn stopped_target(world: World) {
    let (board, window) = (Board::new(&world), filled(&world));
    if world.rank() == 0 {
        send(std::process::id().into(), Signal::STOP);
    } else {
        let target = board.told(0, PID);
        eventually(SOON, "the target has stopped", || state(target) == Some('T'));
        operate(&window, ROUNDS);
        assert_eq!(state(target), Some('T'));
        board.tell(DONE, 1);
        eventually(SOON * 10, "both are done", || board.told(3 - world.rank(), DONE) == 1);
        if world.rank() == 1 {
            send(target, Signal::CONT);
        }
    }
    world.barrier().wait().unwrap();
    if world.rank() == 0 {
        check_operated(&window, ROUNDS);
    }
    window.close().wait().unwrap();
    ok();
}

/// Mail to a process that is stopped: its ring fills up, the sender is told, and when it goes on all that was sent is there.
#[test]
fn a_sender_to_a_stopped_rank_is_told_that_there_is_no_room() {
    let ended = jobs::start_under(2, "mail to the stopped", ("ONESIDED_FULL_AFTER", "0.2")).wait();
    assert_eq!((ended.code, ended.ok()), (0, vec![0, 1]), "{ended:?}");
}

fn mail_to_the_stopped(world: World) {
    let (board, fabric) = (Board::new(&world), world.fabric());
    if world.rank() == 0 {
        send(std::process::id().into(), Signal::STOP);
        let soon = || Patience::on(Rank(1)).and_until(fabric.now() + 10_000_000_000);
        for number in 0_u64.. {
            let message = block_on(fabric, fabric.recv(Port::USER, soon())).unwrap();
            if message.bytes().is_empty() {
                break;
            }
            assert_eq!(message.bytes(), number.to_le_bytes());
        }
    } else {
        let target = board.told(0, PID);
        eventually(SOON, "the target has stopped", || state(target) == Some('T'));
        let sent = (0_u64..)
            .map(|number| block_on(fabric, fabric.send(Rank(0), Port::USER, &number.to_le_bytes(), Notify::Yes)));
        let begin = std::time::Instant::now();
        let fault = sent.take(100_000).find_map(Result::err).expect("some day there is no room");
        assert_eq!((fault.kind(), fault.rank()), (FaultKind::Full, Some(Rank(0))));
        assert!(begin.elapsed() >= Duration::from_millis(200), "{:?}", begin.elapsed());
        assert_eq!(state(target), Some('T'));
        send(target, Signal::CONT);
        block_on(fabric, fabric.send(Rank(0), Port::USER, &[], Notify::Yes)).unwrap();
    }
    world.barrier().wait().unwrap();
    ok();
}

fn computing_target(world: World) {
    let (board, window) = (Board::new(&world), filled(&world));
    if world.rank() == 0 {
        compute(Duration::from_millis(400));
        board.tell(DONE, 1);
    } else {
        operate(&window, ROUNDS);
        assert_eq!(board.told(0, DONE), 0, "the operations took as long as the target computed");
    }
    world.barrier().wait().unwrap();
    if world.rank() == 0 {
        check_operated(&window, ROUNDS);
    }
    window.close().wait().unwrap();
    ok();
}

/// Rank 0 keeps a lock, the others wait for it, and all say who they are.
fn waits_for_ever(world: World) {
    let window = filled(&world);
    let _epoch = (world.rank() == 0).then(|| window.lock_exclusive(1).wait().unwrap());
    world.barrier().wait().unwrap();
    eprintln!("{} {}", std::process::id(), std::env::var(environment::ADDRESS).unwrap());
    if world.rank() == 0 {
        std::thread::sleep(Duration::from_secs(60));
    }
    drop(window.lock_exclusive(1).wait());
}

/// Plays a role with three ranks, of which 1 and 2 must end well.
fn survivors(role: &str, code: i32) -> Ended {
    survivors_under(LockDesign::default(), role, code)
}

fn survivors_under(design: LockDesign, role: &str, code: i32) -> Ended {
    let ended = jobs::start_under(3, role, ("ONESIDED_LOCK", design.name())).wait();
    assert_eq!(ended.code, code, "{design} {ended:#?}");
    assert_eq!(ended.ok().iter().filter(|rank| **rank != 0).count(), 2, "{design} {ended:#?}");
    ended
}

const KILLED: i32 = 128 + 9;

#[test]
fn a_dead_exclusive_owner_is_named_to_those_who_wait() {
    for design in LockDesign::ALL {
        let ended = survivors_under(*design, "exclusive owner", KILLED);
        assert!(ended.lines.iter().any(|line| line.contains("was killed by SIGKILL")), "{ended:#?}");
    }
}

#[test]
fn a_dead_shared_owner_is_suspected_by_those_who_wait() {
    // Over cards a distributed reader's counter, which lies in its own memory, is gone with it: nobody is told of it there.
    let on_cards = std::env::var_os("ONESIDED_IT_FABRIC").is_some();
    let untold = |design: &&LockDesign| on_cards && **design == LockDesign::DistributedCounters;
    for design in LockDesign::ALL.iter().filter(|design| !untold(design)) {
        survivors_under(*design, "shared owner", KILLED);
    }
}

#[test]
fn ending_without_leaving_is_a_death() {
    for design in LockDesign::ALL {
        survivors_under(*design, "deserter", 1);
    }
}

#[test]
fn a_panic_is_a_death() {
    let ended = survivors("panics", 101);
    assert!(ended.lines.iter().any(|line| line.contains("on purpose")), "{ended:#?}");
}

#[test]
fn a_dead_waiter_harms_nobody() {
    for design in LockDesign::ALL {
        survivors_under(*design, "waiter", KILLED);
    }
}

#[test]
fn a_death_ends_a_barrier() {
    survivors("barrier", KILLED);
}

#[test]
fn a_death_ends_the_creation_of_a_window() {
    survivors("creation", KILLED);
}

#[test]
fn the_memory_of_the_dead_can_be_reached() {
    survivors("first look", KILLED);
}

#[test]
fn a_stopped_target_is_not_needed() {
    survivors("stopped", 0);
}

#[test]
fn a_computing_target_is_not_needed() {
    survivors("computing", 0);
}

#[test]
fn everything_ends_with_the_launcher() {
    let mut job = jobs::start(4, "waiting for ever");
    let (mut pids, mut address) = (Vec::new(), String::new());
    for _ in 0..4 {
        let line = job.line();
        let words: Vec<&str> = line.split(' ').collect();
        pids.push(words[1].parse().unwrap());
        address = words[2].to_owned();
    }
    let listens = || std::fs::read_to_string("/proc/net/unix").unwrap().contains(&address);
    assert!(listens() && pids.iter().all(|pid| state(*pid).is_some()));
    job.kill_launcher();
    eventually(SOON, "all ranks are gone", || pids.iter().all(|pid| state(*pid).is_none()));
    assert!(!listens());
    let shared = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    assert_eq!(shared.filter(|file| file.file_name().to_string_lossy().contains("onesided")).count(), 0);
}
