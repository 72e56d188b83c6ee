//! Ranks whose connection is lost.

use std::path::Path;

use onesided_fabric::{Any, World};
use onesided_windows::Window;

use crate::support::{DEADLINE, eventually};

/// Prints its process id after the first put to the next rank, and goes on to put; prints the error
/// if that fails.
pub(super) fn put_until_it_fails() -> i32 {
    let world = World::<Any>::init().unwrap();
    put_until_lost(&world);
    std::process::exit(0) // nothing is left to close
}

/// Returns the window.
fn put_until_lost(world: &World<Any>) -> Window<u64> {
    let window = Window::<u64>::allocate(world, 8192).wait().unwrap();
    let mut puts = 0;
    let error = loop {
        if let Err(error) = put_to_next(&window) {
            break error;
        }
        puts += 1;
        if puts == 1 {
            say!("{}", std::process::id());
        }
    };
    say!("ended by: {error}");
    let again = put_to_next(&window).expect_err("what failed for good does not come back");
    say!("and then: {again}");
    window
}

fn put_to_next(window: &Window<u64>) -> Result<(), onesided_windows::Error> {
    let world = window.world();
    let epoch = window.lock_shared((world.rank() + 1) % world.size()).wait()?;
    epoch.put(0, &[7; 8192])?;
    epoch.flush().wait()?;
    epoch.unlock().wait()
}

/// The same; once the network is there again, a world with other connections and a window there.
pub(super) fn go_on_after_a_loss() -> i32 {
    let world = World::<Any>::init().unwrap();
    let window = put_until_lost(&world);
    let mended = std::env::var_os("ONESIDED_TEST_MENDED").unwrap();
    eventually(DEADLINE, "the network is there again", || Path::new(&mended).exists());
    let anew = world.reconnect().unwrap();
    let with_it = Window::<u64>::allocate(&anew, 8192).wait().unwrap();
    with_it.local().write(0, &window.local().read(0..8192)).unwrap();
    anew.barrier().wait().unwrap();
    put_to_next(&with_it).unwrap();
    anew.barrier().wait().unwrap();
    assert_eq!(with_it.local().read(0..8192), [7; 8192]);
    put_to_next(&window).expect_err("the window of before stays without it");
    drop(window);
    drop(world);
    with_it.close().wait().unwrap();
    say!("went on");
    0
}
