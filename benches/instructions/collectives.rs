//! `collectives WHAT N`: as `instructions`, of collectives of two ranks, which one thread moves. `WHAT` is `broadcast` of
//! 8 B, in which the root waits for nobody; `barrier`, or `all-reduce` of 8 B, in which the first rank polls, the second one
//! finds its message, and the first one ends. By itself, because what is inlined depends on all that a program calls.

use onesided::{Messages, Op, threads};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let (Some(what), Some(times)) = (arguments.next(), arguments.next()) else {
        return Err("collectives WHAT N".into());
    };
    let (ranks, times) = (threads(2, |world| Ok(Messages::new(&world).wait()?))?, times.parse()?);
    match &*what {
        "barrier" => barriers(&ranks, times),
        "all-reduce" => sums(&ranks, times),
        "broadcast" => broadcasts(&ranks, times),
        _ => Err("it is barrier, all-reduce or broadcast".into()),
    }
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
