//! Shapes of many small pieces: carried by helper threads where a window asks for that and memory
//! cannot be mapped, and otherwise piece by piece. The result and its order are the same.

use onesided_fabric::{Fabric, Path, World};
use onesided_windows::{Op, Shape, Window, field};

use crate::{Outcome, scenario};

scenario!(shapes_carried, shapes_are_carried_in_order, [2, 3]);
scenario!(fields_carried, fields_are_carried, [2]);

/// 12 bytes.
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Record {
    left: u32,
    right: [u16; 2],
    rest: u32,
}

/// Puts, a shape, puts, and gets of both kinds in sequence: each sees what came before it.
async fn shapes_are_carried_in_order<F: Fabric>(world: World<F>) -> Outcome {
    const PIECES: usize = 200;
    let next = (world.rank() + 1) % world.size();
    for packed in [true, false] {
        let builder = Window::<u32>::builder().pack_shapes(packed).count_paths(true);
        let window = builder.allocate(&world, 3 * PIECES).await?;
        let shape = Shape::Vector { count: PIECES, block: 2, stride: 3 };
        for round in 1..4 {
            let epoch = window.lock_exclusive(next).await?;
            epoch.put(0, &[round; 3 * PIECES])?;
            let values: Vec<u32> = (0..2 * PIECES as u32).map(|at| 1000 * round + at).collect();
            epoch.put_shaped(0, shape, &values).await?;
            epoch.put(3, &[7, 8])?;
            epoch.accumulate(6, &[1], Op::Replace).await?;
            let mut expected = vec![round; 3 * PIECES];
            shape.runs().flatten().zip(values).for_each(|(at, value)| expected[at] = value);
            (expected[3], expected[4], expected[6]) = (7, 8, 1);
            let (mut all, mut some) = (vec![0; 3 * PIECES], vec![0; 2 * PIECES]);
            epoch.get_shaped(0, shape, &mut some).await?;
            epoch.get(0, &mut all).await?;
            assert_eq!(all, expected);
            assert!(shape.runs().flatten().map(|at| expected[at]).eq(some));
            epoch.unlock().await?;
            world.barrier().await.unwrap();
            assert_eq!(window.local().read(0..3 * PIECES), expected);
            world.barrier().await.unwrap();
        }
        let carried = window.paths(next).of(Path::Helper);
        let mapped = matches!(world.fabric().capabilities().name, "shm" | "mixed");
        assert!(mapped || (carried > 0) == packed, "{}", window.paths(next));
        window.close().await?;
    }
    Ok(())
}

/// More than one message each, in both directions at the same time.
async fn fields_are_carried<F: Fabric>(world: World<F>) -> Outcome {
    const LEN: usize = 1500;
    let window = Window::<Record>::builder().pack_shapes(true).allocate(&world, LEN).await?;
    let other = 1 - world.rank();
    let all = window.lock_all().await?;
    let fields = all.at(other).await?.fields((field!(Record, right), field!(Record, left)));
    let odd = Shape::Vector { count: LEN / 2, block: 1, stride: 2 };
    let values: Vec<_> = (0..LEN as u16 / 2).map(|at| ([at, other as u16], 7 * u32::from(at))).collect();
    fields.put_shaped(1, odd, &values).await?;
    let mut back = vec![([0; 2], 0); LEN / 2];
    fields.get_shaped(1, odd, &mut back).await?;
    assert_eq!(back, values);
    all.flush_all().await?;
    world.barrier().await.unwrap();
    for (at, record) in window.local().read(0..LEN).into_iter().enumerate() {
        let half = at as u16 / 2;
        let expected = match at % 2 {
            0 => Record { left: 0, right: [0; 2], rest: 0 },
            _ => Record { left: 7 * u32::from(half), right: [half, world.rank() as u16], rest: 0 },
        };
        assert_eq!(record, expected, "record {at}");
    }
    all.unlock_all().await?;
    window.close().await
}
