//! `others WHAT N`: as `instructions`, of collectives of two ranks, which one thread moves, and of operations on 8 B under a
//! lock, each waited for. `WHAT` is `broadcast` of 8 B, in which the root waits for nobody; `barrier`, or `all-reduce` of 8 B,
//! in which the first rank polls, the second one finds its message, and the first one ends; or `put`, `get`, `fetch-add`,
//! `compare-swap`, `accumulate` (one maximum). By itself, because what is inlined depends on all that a program calls.

use onesided::{Epoch, Error, Messages, Op, Window, World, threads};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let (Some(what), Some(times)) = (arguments.next(), arguments.next()) else {
        return Err("others WHAT N".into());
    };
    let times = times.parse()?;
    let collective = match &*what {
        "barrier" => barriers,
        "all-reduce" => sums,
        "broadcast" => broadcasts,
        _ => return operations(&what, times),
    };
    collective(&threads(2, |world| Ok(Messages::new(&world).wait()?))?, times)
}

fn operations(what: &str, times: u64) -> Outcome {
    let world = World::init()?;
    let window = Window::allocate(&world, 2).wait()?;
    let epoch = window.lock_exclusive(0).wait()?;
    match what {
        "put" => puts(&epoch, times),
        "get" => gets(&epoch, times),
        "fetch-add" => fetch_adds(&epoch, times),
        "compare-swap" => compare_swaps(&epoch, times),
        "accumulate" => maxima(&epoch, times),
        _ => return Err(format!("nothing is called {what}").into()),
    }?;
    epoch.unlock().wait()?;
    Ok(window.close().wait()?)
}

#[inline(never)]
fn barriers(ranks: &[Messages], times: u64) -> Outcome {
    for _ in 0..times {
        let mut first = ranks[0].barrier();
        first.test()?;
        ranks[1].barrier().wait()?;
        first.wait()?;
    }
    Ok(())
}

#[inline(never)]
fn sums(ranks: &[Messages], times: u64) -> Outcome {
    for number in 0..times {
        let (mut one, mut other) = ([number], [1]);
        let mut first = ranks[0].all_reduce(&mut one, Op::Sum);
        first.test()?;
        ranks[1].all_reduce(&mut other, Op::Sum).wait()?;
        first.wait()?;
        assert_eq!((one, other), ([number + 1], [number + 1]));
    }
    Ok(())
}

#[inline(never)]
fn broadcasts(ranks: &[Messages], times: u64) -> Outcome {
    for number in 0..times {
        let (mut sent, mut received) = ([number], [0]);
        ranks[0].broadcast(&mut sent, 0).wait()?;
        ranks[1].broadcast(&mut received, 0).wait()?;
        assert_eq!(received, sent);
    }
    Ok(())
}

#[inline(never)]
fn puts(epoch: &Epoch<'_, u64>, times: u64) -> Result<(), Error> {
    for number in 0..times {
        epoch.put(1, &[number])?;
    }
    Ok(())
}

#[inline(never)]
fn gets(epoch: &Epoch<'_, u64>, times: u64) -> Result<(), Error> {
    let mut found = [1];
    for _ in 0..times {
        epoch.get(1, &mut found).wait()?;
        assert_eq!(found, [0]);
    }
    Ok(())
}

#[inline(never)]
fn fetch_adds(epoch: &Epoch<'_, u64>, times: u64) -> Result<(), Error> {
    for number in 0..times {
        assert_eq!(epoch.fetch_add(1, 1).wait()?, number);
    }
    Ok(())
}

#[inline(never)]
fn compare_swaps(epoch: &Epoch<'_, u64>, times: u64) -> Result<(), Error> {
    for number in 0..times {
        assert_eq!(epoch.compare_and_swap(1, number, number + 1).wait()?, number);
    }
    Ok(())
}

#[inline(never)]
fn maxima(epoch: &Epoch<'_, u64>, times: u64) -> Result<(), Error> {
    for number in 0..times {
        epoch.accumulate(1, &[number], Op::Max).wait()?;
    }
    Ok(())
}
