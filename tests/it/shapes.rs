//! Elements of every size, in rows and with gaps between them.

use std::fmt::Debug;

use bytemuck::{Pod, Zeroable};
use onesided::{Element, Op, Shape, Window, WindowError};

use crate::support::ranks;

/// Elements at each rank: with elements of one byte a few words and a rest.
const LEN: usize = 37;

/// 13 bytes without padding, aligned to one.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C, packed)]
struct Odd {
    number: u64,
    rest: [u8; 5],
}

/// 256 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Large {
    words: [u64; 32],
}

#[test]
fn own_memory_is_read_and_written_by_elements_and_shapes() {
    ranks(1, |world| {
        let window = Window::<Odd>::builder().name("odd").allocate(&world, 12).wait().unwrap();
        let own = window.local();
        let odd = |number| Odd { number, rest: [number as u8; 5] };
        own.set(11, odd(11)).unwrap();
        assert_eq!(own.get(11).unwrap(), odd(11));
        assert_eq!(own.get(10).unwrap(), Odd::zeroed());
        assert!(matches!(own.get(12), Err(WindowError::Range { offset: 12, count: 1, len: 12, .. })));
        assert!(matches!(own.set(usize::MAX, odd(0)), Err(WindowError::Range { .. })));
        // Every shape, against elements that are picked one by one.
        let starts = [6, 0, 3];
        let ranges = [4..6, 1..2, 7..7, 2..3];
        let shapes = [
            (0, Shape::Row(12)),
            (1, Shape::Vector { count: 3, block: 2, stride: 4 }),
            (2, Shape::Blocks { block: 2, starts: &starts }),
            (5, Shape::Indexed(&ranges)),
            (12, Shape::Row(0)),
        ];
        for (offset, shape) in shapes {
            let values: Vec<_> = (0..12).map(|at| odd(at + 100)).collect();
            own.write(0, &values).unwrap();
            let picked: Vec<_> = shape.runs().flatten().map(|at| values[offset + at]).collect();
            let mut into = vec![odd(0); picked.len()];
            own.read_shaped(offset, shape, &mut into).unwrap();
            assert_eq!(into, picked, "{shape:?}");
            own.write(0, &[Odd::zeroed(); 12]).unwrap();
            own.write_shaped(offset, shape, &picked).unwrap();
            let mut expected = vec![Odd::zeroed(); 12];
            shape.runs().flatten().for_each(|at| expected[offset + at] = values[offset + at]);
            assert_eq!(own.read(0..12), expected, "{shape:?}");
            let few = own.read_shaped(offset, shape, &mut vec![odd(0); picked.len() + 1]).unwrap_err();
            assert!(matches!(few, WindowError::Lengths { operation: "read_shaped", .. }), "{few}");
        }
        let far = own.write_shaped(9, Shape::Vector { count: 2, block: 1, stride: 3 }, &[odd(1); 2]).unwrap_err();
        assert_eq!(
            far.to_string(),
            "write_shaped of 4 elements at 9 on rank 0 of window \"odd\": it has 12 elements there"
        );
        window.close().wait().unwrap();
    });
}

/// Every form of a shape, with elements of every size.
#[test]
fn shapes_write_their_elements_and_no_others() {
    fn reaches<T: Element + PartialEq + Debug>(make: fn(u64) -> T) {
        ranks(2, move |world| {
            let window = Window::<T>::builder().name("shaped").allocate(&world, LEN).wait().unwrap();
            let epoch = window.lock_exclusive(1 - world.rank()).wait().unwrap();
            let shapes = [
                Shape::Row(5),
                Shape::Row(0),
                Shape::Vector { count: 4, block: 2, stride: 7 },
                Shape::Vector { count: 3, block: 3, stride: 3 },
                Shape::Vector { count: 0, block: 3, stride: 3 },
                Shape::Blocks { block: 2, starts: &[20, 0, 9, 11] },
                Shape::Indexed(&[5..9, 20..20, 2..3, 9..10, 30..32]),
            ];
            let mut model = vec![T::zeroed(); LEN];
            epoch.put(0, &model).unwrap();
            for (round, shape) in (1..).zip(shapes) {
                let offset = LEN - shape.end().max(30); // often to the very end
                let values: Vec<T> = (0..shape.count() as u64).map(|i| make(100 * round + i)).collect();
                epoch.put_shaped(offset, shape, &values).wait().unwrap();
                let places = shape.runs().flatten().map(|place| offset + place);
                places.zip(&values).for_each(|(place, value)| model[place] = *value);
                let mut all = vec![T::zeroed(); LEN];
                epoch.get(0, &mut all).wait().unwrap();
                assert_eq!(all, model);
                let mut got = vec![T::zeroed(); values.len()];
                // Shared memory has no delay.
                assert!(epoch.get_shaped(offset, shape, &mut got).test().unwrap().is_some());
                assert_eq!(got, values);
            }
            epoch.unlock().wait().unwrap();
            window.close().wait().unwrap();
        });
    }
    reaches(|i| i as u8);
    reaches(|i| Odd { number: i, rest: [i as u8; 5] });
    reaches(|i| i as f64);
    reaches(|i| Large { words: [i; 32] });
    reaches(|i| [i as f32; 1024]);
}

#[test]
fn shapes_that_do_not_fit_move_nothing() {
    ranks(1, |world| {
        let window = Window::<u64>::builder().name("shaped").allocate(&world, 10).wait().unwrap();
        let epoch = window.lock_exclusive(0).wait().unwrap();
        let shape = Shape::Vector { count: 3, block: 1, stride: 4 };
        for offset in [2, 10, usize::MAX, usize::MAX - 8] {
            let place = format!("9 elements at {offset} on rank 0 of window \"shaped\": it has 10 elements there");
            assert_eq!(
                epoch.put_shaped(offset, shape, &[1; 3]).wait().unwrap_err().to_string(),
                format!("put_shaped of {place}")
            );
            let mut into = [5; 3];
            let error = epoch.get_shaped(offset, shape, &mut into).wait().unwrap_err();
            assert_eq!(error.to_string(), format!("get_shaped of {place}"));
            let error = epoch.accumulate_shaped(offset, shape, &[1; 3], Op::Sum).wait().unwrap_err();
            assert_eq!(error.to_string(), format!("accumulate_shaped of {place}"));
            assert!(epoch.get_accumulate_shaped(offset, shape, &[1; 3], &mut into, Op::Sum).wait().is_err());
            assert_eq!(into, [5; 3]);
        }
        for shape in [shape, Shape::Vector { count: usize::MAX, block: 2, stride: 2 }] {
            let (wanted, mut into) = (shape.count(), [5; 2]);
            let lengths = format!("on rank 0 of window \"shaped\": 2 elements given, {wanted} expected");
            let error = epoch.put_shaped(0, shape, &[1; 2]).wait().unwrap_err();
            assert_eq!(error.to_string(), format!("put_shaped {lengths}"));
            let error = epoch.get_shaped(0, shape, &mut into).wait().unwrap_err();
            assert_eq!(error.to_string(), format!("get_shaped {lengths}"));
            let error = epoch.accumulate_shaped(0, shape, &[1; 2], Op::Sum).wait().unwrap_err();
            assert_eq!(error.to_string(), format!("accumulate_shaped {lengths}"));
            let error = epoch.get_accumulate_shaped(0, shape, &[1; 2], &mut into, Op::Sum).wait().unwrap_err();
            assert_eq!(error.to_string(), format!("get_accumulate_shaped {lengths}"));
        }
        epoch.unlock().wait().unwrap();
        assert_eq!(window.local().read(0..10), [0; 10]);
        window.close().wait().unwrap();
    });
}
