//! Put, signal, and the wait for it.

use std::time::Duration;

use onesided_fabric::{Fabric, World};
use onesided_windows::{Element, Error, Shape, Window};

use crate::{Outcome, scenario};

scenario!(put_signal, data_precedes_its_signal, [2, 5]);
scenario!(put_signal_all, every_rank_signals_every_rank, [3, 8]);
scenario!(put_signal_shaped, a_shape_precedes_its_signal, [2, 5]);
scenario!(put_signal_shaped_user_memory, a_shape_precedes_its_signal_in_user_memory, [2, 5]);
scenario!(wait_until_any, the_first_of_several_signals, [3]);
scenario!(put_signal_refused, a_refused_put_signals_nothing, [2]);
scenario!(wait_until_ends, a_wait_without_a_signal_ends, [2]);
scenario!(put_signal_user_memory, data_precedes_its_signal_in_user_memory, [2, 5]);
scenario!(put_signal_all_user_memory, every_rank_signals_every_rank_in_user_memory, [3, 8]);
scenario!(wait_until_ends_user_memory, a_wait_without_a_signal_in_user_memory_ends, [2]);

/// Windows over allocated memory, or user memory.
#[derive(Clone, Copy)]
enum Backing {
    Allocated,
    User,
}

impl Backing {
    async fn window<T: Element, F: Fabric>(
        self,
        world: &World<F>,
        name: &str,
        len: usize,
    ) -> Result<Window<T, F>, Error> {
        let builder = Window::<T>::builder().name(name);
        match self {
            Self::Allocated => builder.allocate(world, len).await,
            Self::User => builder.create(world, vec![T::zeroed(); len]).await,
        }
    }
}

async fn data_precedes_its_signal<F: Fabric>(world: World<F>) -> Outcome {
    ring(world, Backing::Allocated).await
}

async fn data_precedes_its_signal_in_user_memory<F: Fabric>(world: World<F>) -> Outcome {
    ring(world, Backing::User).await
}

async fn a_shape_precedes_its_signal<F: Fabric>(world: World<F>) -> Outcome {
    columns(world, Backing::Allocated).await
}

async fn a_shape_precedes_its_signal_in_user_memory<F: Fabric>(world: World<F>) -> Outcome {
    columns(world, Backing::User).await
}

async fn every_rank_signals_every_rank<F: Fabric>(world: World<F>) -> Outcome {
    all_to_all(world, Backing::Allocated).await
}

async fn every_rank_signals_every_rank_in_user_memory<F: Fabric>(world: World<F>) -> Outcome {
    all_to_all(world, Backing::User).await
}

async fn a_wait_without_a_signal_ends<F: Fabric>(world: World<F>) -> Outcome {
    without_a_signal(world, Backing::Allocated).await
}

async fn a_wait_without_a_signal_in_user_memory_ends<F: Fabric>(world: World<F>) -> Outcome {
    without_a_signal(world, Backing::User).await
}

/// A ring: each rank passes on what it received. The data is in another window than the signal, and
/// of a size that travels in pieces.
async fn ring<F: Fabric>(world: World<F>, backing: Backing) -> Outcome {
    const LEN: usize = 5000;
    let data = backing.window::<u32, F>(&world, "data", LEN).await?;
    let signals = backing.window::<u64, F>(&world, "signals", 2).await?;
    let (from, to) = ((world.rank() + world.size() - 1) % world.size(), (world.rank() + 1) % world.size());
    let (all_data, all_signals) = (data.lock_all().await?, signals.lock_all().await?);
    for round in 1..=10_u32 {
        let mut bytes = vec![round; LEN];
        if world.rank() > 0 {
            let value = signals.local().wait_until_from(from, 1, |value| value >= u64::from(round)).await?;
            assert_eq!(value, u64::from(round));
            data.local().read_into(0, &mut bytes)?;
            assert!(bytes.iter().all(|element| *element == round + world.rank() - 1), "{:?}", &bytes[..8]);
            bytes.iter_mut().for_each(|element| *element += 1);
        }
        if to > 0 {
            if round % 2 == 0 {
                all_data.at(to).await?.put_signal(0, &bytes, all_signals.at(to).await?, 1, round.into())?;
            } else {
                all_data.at(to).await?.put(0, &bytes)?;
                all_signals.at(to).await?.signal(1, round.into())?;
            }
        }
        world.barrier().await.unwrap(); // the data was read
    }
    all_data.unlock_all().await?;
    all_signals.unlock_all().await?;
    data.close().await?;
    signals.close().await
}

/// Each rank puts a column to the next one, in as many pieces as it has rows.
async fn columns<F: Fabric>(world: World<F>, backing: Backing) -> Outcome {
    const ROWS: usize = 40;
    const COLUMN: Shape<'_> = Shape::Vector { count: ROWS, block: 1, stride: 3 };
    let data = backing.window::<u32, F>(&world, "data", 3 * ROWS).await?;
    let signals = backing.window::<u64, F>(&world, "signals", 1).await?;
    let (from, to) = ((world.rank() + world.size() - 1) % world.size(), (world.rank() + 1) % world.size());
    let (all_data, all_signals) = (data.lock_all().await?, signals.lock_all().await?);
    let (there, flags) = (all_data.at(to).await?, all_signals.at(to).await?);
    for round in 1..=10_u32 {
        let elements: Vec<_> = (0..ROWS as u32).map(|row| 100 * round + row).collect();
        there.put_signal_shaped(1, COLUMN, &elements, flags, 0, round.into()).await?;
        signals.local().wait_until_from(from, 0, |value| value == u64::from(round)).await?;
        let mut column = [0; ROWS];
        data.local().read_shaped(1, COLUMN, &mut column)?;
        assert_eq!(column[..], elements);
        world.barrier().await.unwrap(); // the column was read
    }
    let far = there.put_signal_shaped(2, COLUMN, &[0; ROWS], flags, 0, 99).await;
    assert!(far.is_ok(), "the last column");
    let far = there.put_signal_shaped(3, COLUMN, &[0; ROWS], flags, 0, 77).await.unwrap_err();
    assert!(matches!(far, Error::Range { operation: "put_signal_shaped", offset: 3, .. }), "{far}");
    let few = there.put_signal_shaped(0, COLUMN, &[0; 2], flags, 0, 77).await.unwrap_err();
    assert!(matches!(few, Error::Lengths { wanted: ROWS, given: 2, .. }), "{few}");
    let elsewhere = all_signals.at(world.rank()).await?;
    let elsewhere = there.put_signal_shaped(0, COLUMN, &[0; ROWS], elsewhere, 0, 77).await.unwrap_err();
    assert!(matches!(elsewhere, Error::Operation { operation: "put_signal_shaped", .. }), "{elsewhere}");
    assert_eq!(signals.local().wait_until_from(from, 0, |value| value > 10).await?, 99);
    all_data.unlock_all().await?;
    all_signals.unlock_all().await?;
    assert_eq!(signals.local().get(0)?, 99, "nothing else was signalled");
    data.close().await?;
    signals.close().await
}

/// Rank 0 waits for elements of the other two and of two windows, which arrive in a given order.
async fn the_first_of_several_signals<F: Fabric>(world: World<F>) -> Outcome {
    let allocated = Backing::Allocated.window::<u64, F>(&world, "allocated", 2).await?;
    let user = Backing::User.window::<u64, F>(&world, "user", 2).await?;
    let (here, there) = (allocated.local(), user.local());
    if world.rank() == 0 {
        let waits = |round| {
            let from_first = here.wait_until_from(1, 0, move |value| value == round);
            [from_first, there.wait_until_from(2, 1, move |value| value == round)]
        };
        assert_eq!(here.wait_until_any(waits(1)).await?, (0, 1));
        let late = waits(2).map(|wait| wait.deadline(Duration::from_millis(5)));
        assert!(here.wait_until_any(late).await.unwrap_err().is_timed_out());
        world.barrier().await.unwrap();
        assert_eq!(here.wait_until_any(waits(2)).await?, (1, 2));
        assert_eq!(here.wait_until_any([waits(2), waits(1)].into_iter().flatten()).await?, (1, 2));
        // A value that is there precedes an error of another wait.
        let wrong = here.wait_until(2, |_| true);
        assert_eq!(here.wait_until_any([wrong, here.wait_until(0, |value| value == 1)]).await?, (1, 1));
        let wrong = here.wait_until_any([here.wait_until(2, |_| true)]).await.unwrap_err();
        assert!(matches!(wrong, Error::Range { offset: 2, .. }), "{wrong}");
        let none = here.wait_until_any([]).await.unwrap_err();
        assert!(matches!(none, Error::Lengths { given: 0, .. }), "{none}");
    } else {
        let (to, to_user) = (allocated.lock_shared(0).await?, user.lock_shared(0).await?);
        if world.rank() == 1 {
            to.signal(0, 1)?;
        }
        world.barrier().await.unwrap();
        if world.rank() == 2 {
            to_user.signal(1, 2)?;
        }
        to.unlock().await?;
        to_user.unlock().await?;
    }
    allocated.close().await?;
    user.close().await
}

/// Each origin has an element; ranks wait for signals only.
async fn all_to_all<F: Fabric>(world: World<F>, backing: Backing) -> Outcome {
    let window = backing.window::<i64, F>(&world, "all", 2 * world.size() as usize).await?;
    let all = window.lock_all().await?;
    let at = |origin: u32| 2 * origin as usize;
    for round in 1..=20_i64 {
        for target in 0..world.size() {
            all.at(target).await?.put(at(world.rank()), &[-round])?;
            all.at(target).await?.signal(at(world.rank()) + 1, round)?;
        }
        for origin in 0..world.size() {
            window.local().wait_until_from(origin, at(origin) + 1, |value| value >= round).await?;
            assert!(window.local().read(at(origin)..at(origin) + 1)[0] <= -round);
        }
    }
    all.unlock_all().await?;
    window.close().await
}

/// Data and signal are both sent, or neither is.
async fn a_refused_put_signals_nothing<F: Fabric>(world: World<F>) -> Outcome {
    let data = Window::<u16>::builder().name("data").allocate(&world, 4).await?;
    let signals = Window::<u64>::builder().name("signals").allocate(&world, 2).await?;
    let (to, flags) = (data.lock_all().await?, signals.lock_all().await?);
    let other = 1 - world.rank();
    let (there, flag) = (to.at(other).await?, flags.at(other).await?);
    let far = there.put_signal(2, &[1; 3], flag, 0, 1).unwrap_err();
    assert!(matches!(far, Error::Range { offset: 2, count: 3, len: 4, .. }), "{far}");
    let far = there.put_signal(0, &[1; 3], flag, 2, 1).unwrap_err();
    assert!(matches!(far, Error::Range { operation: "put_signal", offset: 2, len: 2, .. }), "{far}");
    let elsewhere = there.put_signal(0, &[1; 3], flags.at(world.rank()).await?, 0, 1).unwrap_err();
    assert!(matches!(elsewhere, Error::Operation { operation: "put_signal", .. }), "{elsewhere}");
    let small = there.put_signal(0, &[1; 3], there, 3, 1).unwrap_err();
    assert!(matches!(small, Error::Type { .. }), "{small}");
    flag.signal(1, 1)?;
    signals.local().wait_until_from(other, 1, |value| value == 1).await?;
    assert_eq!((data.local().read(0..4), signals.local().read(0..1)), (vec![0; 4], vec![0]));
    world.barrier().await.unwrap();
    // An empty put, which is a signal.
    there.put_signal(4, &[], flag, 0, 5)?;
    assert_eq!(signals.local().wait_until_from(other, 0, |value| value > 0).await?, 5);
    to.unlock_all().await?;
    flags.unlock_all().await?;
    data.close().await?;
    signals.close().await
}

async fn without_a_signal<F: Fabric>(world: World<F>, backing: Backing) -> Outcome {
    let window = backing.window::<u64, F>(&world, "quiet", 3).await?;
    let local = window.local();
    let late = local.wait_until(0, |value| value > 0).deadline(Duration::from_millis(5)).await.unwrap_err();
    assert!(late.is_timed_out(), "{late}");
    let far = local.wait_until(3, |_| true).await.unwrap_err();
    assert!(matches!(far, Error::Range { offset: 3, count: 1, len: 3, .. }), "{far}");
    let other = 1 - world.rank();
    let error = local.wait_until_from(9, 0, |value| value > 0).await.unwrap_err();
    assert!(matches!(error, Error::Rank { target: 9, .. }), "{error}");
    // A value that is already there is not waited for.
    let all = window.lock_all().await?;
    assert!(matches!(all.at(other).await?.signal(3, 1).unwrap_err(), Error::Range { .. }));
    all.at(other).await?.signal(2, 7)?;
    assert_eq!(local.wait_until(2, |value| value == 7).await?, 7);
    assert_eq!(local.wait_until(2, |value| value == 7).deadline(Duration::ZERO).await?, 7);
    all.unlock_all().await?;
    window.close().await?;

    let small = backing.window::<u16, F>(&world, "small", 4).await?;
    let wrong = small.local().wait_until(0, |_| true).await.unwrap_err();
    let place = format!("wait_until on rank {} of window \"small\"", world.rank());
    assert_eq!(wrong.to_string(), format!("{place}: not for elements of type u16"));
    let all = small.lock_all().await?;
    assert!(matches!(all.at(other).await?.signal(0, 1).unwrap_err(), Error::Type { .. }));
    all.unlock_all().await?;
    small.close().await
}
