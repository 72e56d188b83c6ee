//! Programs that hang, and what they are told of it. Each rank waits for ever; end it by Ctrl-C.
//!
//! ```text
//! onesided run -n 2 --stuck-after 2 -- target/release/examples/hangs crosswise
//! ONESIDED_STUCK_AFTER=2 target/release/examples/hangs --threads crosswise
//! ```
//!
//! `twice`: a rank locks what it has locked. `crosswise`: two ranks lock two locks in different
//! orders. `requests`: they lock them in one order, but one asks for both before it has the first.
//! `signal`, `message`: nobody sends it. `unread`: nobody receives it. `collective`,
//! `close`: one rank leaves out a barrier, or the close of a window. `fences`: two
//! ranks fence different windows.

use onesided::{Messages, Tag, Window, World};

fn main() -> onesided::Result<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let threads = args.first().is_some_and(|first| first == "--threads");
    let hang = args.get(usize::from(threads)).map_or("crosswise", String::as_str);
    if threads {
        return onesided::threads(2, |world| run(&world, hang)).map(drop);
    }
    run(&World::init()?, hang)
}

fn run(world: &World, hang: &str) -> onesided::Result<()> {
    let window = Window::<u64>::builder().name("accounts").allocate(world, 4).wait()?;
    let messages = Messages::new(world).wait()?;
    let (me, other) = (world.rank(), (world.rank() + 1) % world.size());
    match hang {
        "twice" if me == 0 => {
            let _first = window.lock_exclusive(0).wait()?;
            let _second = window.lock_exclusive(0).wait()?;
        }
        "crosswise" => {
            let _first = window.lock_exclusive(me).wait()?;
            world.barrier().wait()?;
            let _second = window.lock_exclusive(other).wait()?;
        }
        "requests" if me == 0 => {
            let _first = window.lock_exclusive(0).wait()?;
            world.barrier().wait()?;
            world.barrier().wait()?;
            let _second = window.lock_exclusive(1).wait()?;
        }
        "requests" => {
            world.barrier().wait()?;
            let both = (window.lock_exclusive(0), window.lock_exclusive(1)); // both are under way
            world.barrier().wait()?;
            let _both = (both.0.wait()?, both.1.wait()?);
        }
        "signal" if me == 0 => {
            window.local().wait_until_from(other, 3, |value| value == 1).wait()?;
        }
        "message" if me == 0 => {
            messages.send(&[1_u64], other, Tag(2)).wait()?;
            messages.recv::<u64>(other, Tag(1)).wait()?;
        }
        "unread" if me == 0 => messages.send(&[0_u64; 100_000], other, Tag(1)).wait()?,
        "collective" if me == 0 => world.barrier().wait()?,
        "fences" => {
            let other = Window::<u64>::builder().name("orders").allocate(world, 4).wait()?;
            let mine = if me == 0 { &window } else { &other };
            mine.fence().wait()?.end().wait()?;
        }
        "close" if me == 0 => window.close().wait()?,
        _ => {}
    }
    // The others compute.
    loop {
        std::thread::park();
    }
}
