//! Panics for a caller's mistakes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use onesided::Window;

#[derive(Clone, Copy, onesided::bytemuck::Pod, onesided::bytemuck::Zeroable)]
#[bytemuck(crate = "onesided::bytemuck")]
#[repr(C)]
struct Row {
    row: [u64; 4],
}

/// A panic for the caller's mistake names the caller's line.
#[test]
fn a_mistake_is_told_at_the_line_that_makes_it() {
    use std::panic::{set_hook, take_hook};
    thread_local! {
        static IS_CALLER: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
    let others = take_hook();
    set_hook(Box::new(move |panic| {
        IS_CALLER.set(panic.location().is_some_and(|place| place.file().ends_with(file!())));
        others(panic);
    }));
    crate::support::ranks(1, |world| {
        let window = Window::<[u64; 4]>::allocate(&world, 2).wait().unwrap();
        let value = onesided::Mutex::new(&world, 0, 0_u64).wait().unwrap();
        let mistakes: [&dyn Fn(); 3] = [
            &|| drop(window.local().read(1..3)),
            &|| {
                let mut lock = value.lock();
                assert!(lock.test().unwrap().is_some());
                drop(lock.recover());
            },
            &|| {
                let _ = onesided::field!(Row, row).element(std::hint::black_box(4));
            },
        ];
        for (index, mistake) in mistakes.into_iter().enumerate() {
            IS_CALLER.set(false);
            catch_unwind(AssertUnwindSafe(mistake)).unwrap_err();
            assert!(IS_CALLER.get(), "mistake {index}");
        }
    });
}
