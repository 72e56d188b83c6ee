//! Operations on borrowed slices in a scope that panics.

use std::panic::{AssertUnwindSafe, catch_unwind};

use onesided::Window;

use crate::support::ranks;

#[test]
fn a_scope_whose_closure_panics_is_complete_before_the_panic_goes_on() {
    ranks(2, |world| {
        let window = Window::<u64>::allocate(&world, 100).wait().unwrap();
        if world.rank() == 0 {
            let epoch = window.lock_exclusive(1).wait().unwrap();
            let mut found = [7; 50];
            let panic = catch_unwind(AssertUnwindSafe(|| {
                window.scope(|scope| {
                    scope.get(&epoch, 0, &mut found);
                    scope.put(&epoch, 50, &[8; 50]);
                    if world.size() == 2 {
                        panic!("on purpose");
                    }
                    Ok(())
                })
            }));
            assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"on purpose"));
            assert_eq!(found, [0; 50], "it was got");
            let mut there = [0; 50];
            epoch.get(50, &mut there).wait().unwrap();
            assert_eq!(there, [8; 50], "it was put");
            epoch.unlock().wait().unwrap();
        }
        window.close().wait().unwrap();
    });
}
