//! `instructions WHAT N`: does what [`scripts/instructions`] counts, N times, as a job of one rank. `WHAT` is
//! `message`, or the name of a lock design.
//!
//! [`scripts/instructions`]: https://github.com/onesided/onesided/blob/main/scripts/instructions

use onesided::{Error, LockDesign, Messages, Tag, Window, World};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(what), Some(times)) = (arguments.next(), arguments.next()) else {
        return Err("instructions WHAT N".into());
    };
    let (world, times) = (World::init()?, times.parse()?);
    if what == "message" {
        return Ok(messages(&Messages::new(&world).wait()?, times)?);
    }
    let window = Window::builder().lock(what.parse::<LockDesign>()?).allocate(&world, 1).wait()?;
    locks(&window, times)?;
    Ok(window.close().wait()?)
}

// Each by itself: how much of an operation is inlined depends on the function around it.

#[inline(never)]
fn locks(window: &Window<u64>, times: u64) -> Result<(), Error> {
    for _ in 0..times {
        window.lock_exclusive(0).wait()?.unlock().wait()?;
    }
    Ok(())
}

#[inline(never)]
fn messages(messages: &Messages, times: u64) -> Result<(), Error> {
    let mut received = [0_u64];
    for sent in 0..times {
        messages.send(&[sent], 0, Tag(0)).wait()?;
        messages.recv_into(&mut received, 0, Tag(0)).wait()?;
    }
    Ok(())
}
