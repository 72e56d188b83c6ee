//! A rank dies while it holds a mutex. The others get an error that says so; one of them repairs
//! what the mutex protects, and all go on.
//!
//! ```sh
//! cargo build --example recovered_mutex
//! onesided run -n 4 --on-failure continue -- target/debug/examples/recovered_mutex
//! ```
#![allow(clippy::print_stdout)] // a program's purpose

use std::process::exit;
use std::thread::sleep;
use std::time::Duration;

use onesided::{Any, Mutex, Result, Window, World, WriteGuard};

/// The rank of the mutex and of two accounts, the money in both together, and the rank that dies.
const HOME: u32 = 0;
const MONEY: u64 = 100;
const DIES: u32 = 1;
/// The element by which that rank tells each other one that it holds the mutex, and at that rank
/// the number of answers.
const HELD: usize = 2;

fn main() -> Result<()> {
    let world = World::init()?;
    // A world that is to survive the death of a rank is split off before it.
    let rest = world.split(u32::from(world.rank() == DIES), 0).wait()?;
    let accounts = Window::<u64>::allocate(&world, 3).wait()?;
    // It protects the accounts, and its value counts the transfers between them.
    let transfers = Mutex::new(&world, HOME, 0).wait()?;
    let every = accounts.lock_all().wait()?;
    let account = every.at(HOME).wait()?;
    if world.rank() == HOME {
        account.put(0, &[MONEY, 0])?;
        account.flush().wait()?;
    }
    world.barrier().wait()?;

    if world.rank() == DIES {
        let _guard = transfers.lock().wait()?;
        account.put(0, &[MONEY - 30])?;
        account.flush().wait()?;
        for rank in (0..world.size()).filter(|rank| *rank != DIES) {
            every.at(rank).wait()?.signal(HELD, 1)?;
        }
        // A barrier fails at a rank that is still in it when another dies, so they answer.
        while accounts.local().get(HELD)? + 1 < world.size().into() {
            sleep(Duration::from_millis(1));
        }
        exit(3); // before the 30 are in the other account
    }
    if world.size() > DIES {
        accounts.local().wait_until_from(DIES, HELD, |held| held == 1).wait()?;
        every.at(DIES).wait()?.fetch_add(HELD, 1).wait()?;
    }

    let mut guard = lock(&transfers)?;
    let mut money = [0; 2];
    account.get(0, &mut money).wait()?;
    if let Some(previous) = guard.previous_owner() {
        println!("{previous}");
        money[1] = MONEY - money[0]; // the repair
    }
    account.put(0, &[money[0] - 1, money[1] + 1])?;
    account.flush().wait()?; // the mutex has a window of its own, so its release completes no puts here
    *guard += 1;
    guard.unlock().wait()?;

    rest.barrier().wait()?; // one of `world` fails after the death
    if world.rank() == HOME {
        account.get(0, &mut money).wait()?;
        assert_eq!(money[0] + money[1], MONEY);
        println!("{} transfers: {money:?}", *lock(&transfers)?);
    }
    // No `close`, which is collective: the drops end the windows for this rank.
    Ok(())
}

/// Locks the mutex, and recovers it if its owner died.
fn lock(mutex: &Mutex<u32>) -> Result<WriteGuard<'_, u32, Any>> {
    match mutex.lock().wait() {
        Err(error) if error.is_poisoned() => Ok(mutex.lock().recover().wait()?),
        held => Ok(held?),
    }
}
