//! How a receive polls before it waits like all else.

use onesided_fabric::{Core, Drive, Fabric, Transport};

use crate::driver::progress::Progress;
use crate::driver::progress::state::State;
use crate::engine::{Direct, Landed};

/// How a receive polls before it waits: it locks the engine `POLLS.0` times, each time polls
/// `POLLS.1` times, and spins `POLLS.2` times after each poll: a round trip of short messages.
const POLLS: (u32, u32, u32) = (4, 2, 8);

/// How a thread looks at memory before it waits: as often as a receive polls.
const LOOKS: u32 = 64;

/// [`Progress::looks`].
pub(crate) type Looks<F> = fn(&Progress<F>, &mut dyn FnMut() -> bool) -> bool;

impl<F: Fabric> Progress<F> {
    /// Looks several times for what comes without a packet: whether it is there. It yields the core as
    /// [`land`](Self::land) does.
    #[inline(never)]
    pub(crate) fn looks(&self, look: &mut dyn FnMut() -> bool) -> bool
    where
        F: Drive,
    {
        if self.fabric.polls().core != Core::Own {
            std::thread::yield_now();
            return look();
        }
        (0..LOOKS).any(|_| {
            std::hint::spin_loop();
            look()
        })
    }

    /// Takes in what has arrived, until a posted receive has its message: it is over, and in its
    /// [slice](Engine::land). This polls [several times](POLLS), if nothing else is to be done; where the
    /// sender may need this core, it yields it once in between.
    #[inline(never)]
    pub(crate) fn land(&self, receive: usize, direct: &mut Direct<'_>) -> Option<Landed>
    where
        F: Drive,
    {
        let yields = self.fabric.polls().core != Core::Own;
        let (times, polls, spins) = match yields {
            _ if !self.tasks.are_none() => return None, // a wait moves them as well
            true => (2, 1, 0),
            false => POLLS,
        };
        let land = |time| {
            if time > 0 && yields {
                std::thread::yield_now();
            }
            self.locked(|State { engine, transport, transfers, .. }| {
                for _ in 0..polls {
                    let landed =
                        engine.land(receive, direct, |engine, direct| self.take_next((engine, transport), direct));
                    if landed.is_some() {
                        return Some(landed);
                    }
                    if !engine.is_posted(receive) || engine.has_work() || !transfers.is_empty() {
                        return Some(None);
                    }
                    if spins > 0 {
                        transport.spin(spins);
                    }
                }
                None
            })
        };
        (0..times).find_map(land).flatten()
    }
}
