//! What almost every program with windows needs, compiled here once: without optimisation a program
//! takes such code from the crates that it depends on, instead of compiling a copy.

use crate::{Messages, Op, Result, Source, Tag, Window, World};

/// Compiled, and never called.
#[doc(hidden)]
pub fn windows(world: &World) -> Result<()> {
    let window = Window::<u64>::allocate(world, 4).wait()?;
    let mut word = [0];
    let epoch = window.lock_exclusive(0).wait()?;
    epoch.put(0, &word)?;
    epoch.get(0, &mut word).wait()?;
    epoch.fetch_add(0, 1).wait()?;
    epoch.compare_and_swap(0, 0, 1).wait()?;
    epoch.accumulate(0, &word, Op::Sum).wait()?;
    epoch.flush().wait()?;
    epoch.unlock().wait()?;
    window.lock_shared(0).wait()?.unlock().wait()?;
    window.try_lock_exclusive(0).wait()?;
    let all = window.lock_all().wait()?;
    all.at(0).wait()?.put(0, &word)?;
    all.unlock_all().wait()?;
    window.locked(0).update(0, &mut word, |word| word[0] += 1).wait()?;
    window.fence().wait()?.end().wait()?;
    let exposure = window.post(&[0])?;
    window.start(&[0]).wait()?.complete().wait()?;
    exposure.wait()?;
    window.close().wait()?;
    world.barrier().wait()?;
    let messages = Messages::new(world).wait()?;
    let send = messages.send(&word, 0, Tag(0));
    messages.recv::<u64>(Source::Any, Tag(0)).wait()?;
    send.wait()?;
    Ok(())
}
