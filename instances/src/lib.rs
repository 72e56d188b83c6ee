//! What almost every test with windows or messages needs, over the simulated fabric: without
//! optimisation a program takes such code from the crates that it depends on, instead of compiling a
//! copy. A test program asks for it by `use onesided_instances as _`. [`onesided::instances`] is the
//! same over the fabrics of programs.

use onesided_fabric::World;
use onesided_sim::{Network, SimFabric, Simulation};
use onesided_two_sided::{Messages, Source, Tag};
use onesided_windows::{Op, Window};

/// Compiled, and never called.
pub fn simulated() {
    Simulation::new(Network::default()).run(windows);
    Simulation::new(Network::default()).run(messages);
}

async fn windows(world: World<SimFabric>) -> Result<(), onesided_windows::Error> {
    let window = Window::<u64, _>::builder().allocate(&world, 4).await?;
    let mut word = [0];
    let epoch = window.lock_exclusive(0).await?;
    epoch.put(0, &word)?;
    epoch.get(0, &mut word).await?;
    epoch.fetch_add(0, 1).await?;
    epoch.compare_and_swap(0, 0, 1).await?;
    epoch.accumulate(0, &word, Op::Sum).await?;
    epoch.flush().await?;
    epoch.unlock().await?;
    window.lock_shared(0).await?.unlock().await?;
    window.try_lock_exclusive(0).await?;
    let all = window.lock_all().await?;
    all.at(0).await?.put(0, &word)?;
    all.unlock_all().await?;
    window.locked(0).update(0, &mut word, |word| word[0] += 1).await?;
    window.fence().await?.end().await?;
    let exposure = window.post(&[0])?;
    window.start(&[0]).await?.complete().await?;
    exposure.await?;
    window.close().await
}

async fn messages(world: World<SimFabric>) -> Result<(), onesided_two_sided::Error> {
    let messages = Messages::new(&world).await?;
    let words = [0_u64];
    let send = messages.send(&words, 0, Tag(0));
    messages.recv::<u64>(Source::Any, Tag(0)).await?;
    send.await
}
