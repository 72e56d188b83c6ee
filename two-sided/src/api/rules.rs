//! The rules of a communicator: how its messages go.

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::{Fault, FaultKind, Rank};

use crate::driver::progress::Registered;
use crate::driver::rules::{Choice, Origin, TO_ONESELF};
use crate::engine::is_refused;
use crate::{Error, Messages, Protocol, Rules, UnknownRule};

impl<F: Fabric> Messages<F> {
    /// Who moves the long messages that this rank sends from now on, in all its communicators: the
    /// receiver by RDMA reads ([RGET](Protocol::Rget), the default), or this rank by RDMA writes
    /// ([RPUT](Protocol::Rput)), in pieces ([pipeline](Protocol::Pipeline)); or none of them
    /// ([copy](Protocol::Copy)). Each rank has its
    /// own choice. A rank that does not leave them to their receivers [offers](Protocol::Offered) no
    /// slices. With a pipeline a new [buffer](Self::buffer) is not registered before it is sent.
    ///
    /// ```
    /// use onesided_two_sided::{Messages, Protocol, Tag};
    ///
    /// onesided_fabric::threads(2, |world| {
    ///     let messages = Messages::new(&world).wait()?;
    ///     messages.set_rendezvous(Protocol::Rput);
    ///     let other = 1 - world.rank();
    ///     assert_eq!(messages.explain(other, 100_000)?.protocol(), Protocol::Rput);
    ///     let sent = vec![world.rank(); 100_000];
    ///     let send = messages.send(&sent, other, Tag(0));
    ///     assert_eq!(messages.recv::<u32>(other, Tag(0)).wait()?.0, [other; 100_000]);
    ///     send.wait()
    /// })
    /// .unwrap()
    /// .into_iter()
    /// .collect::<Result<(), onesided_two_sided::Error>>()
    /// .unwrap();
    /// ```
    pub fn set_rendezvous(&self, rendezvous: Protocol) {
        self.set_rules(Rules { rendezvous, ..self.rules() });
    }

    /// Sets by which protocol this rank sends messages from now on, in all its communicators, and
    /// how long an eager one may be. Each rank has its own rules; a process begins with those of
    /// `ONESIDED_MESSAGES_RULES`. It cannot fail.
    ///
    /// ```
    /// use onesided_two_sided::{Messages, Protocol};
    ///
    /// onesided_fabric::threads(2, |world| {
    ///     let messages = Messages::new(&world).wait().unwrap();
    ///     messages.set_rules("offered=never".parse().unwrap()); // long messages are copied at both ends
    ///     assert_eq!(messages.explain(1 - world.rank(), 100_000).unwrap().protocol(), Protocol::Rget);
    ///     // Longer ones stay at this rank until they are received.
    ///     messages.set_rules("eager=1000".parse().unwrap());
    ///     assert_eq!(messages.explain(1 - world.rank(), 1_001).unwrap().protocol(), Protocol::Rget);
    /// })
    /// .unwrap();
    /// ```
    pub fn set_rules(&self, rules: Rules) {
        self.progress().rules.set(rules, Origin::Program);
    }

    /// See [`set_rules`](Self::set_rules).
    #[must_use]
    pub fn rules(&self) -> Rules {
        self.progress().rules.said().0
    }

    /// See [`set_rendezvous`](Self::set_rendezvous).
    #[must_use]
    pub fn rendezvous(&self) -> Protocol {
        self.progress().rules.rendezvous()
    }

    /// How a message goes to a rank that is not eager.
    pub(crate) fn choose(&self, to: Rank) -> Choice {
        let (fabric, rules) = (self.world().fabric(), &self.progress().rules);
        if to == fabric.rank() {
            return Choice { offered: Err(TO_ONESELF), otherwise: Protocol::Rget };
        }
        let otherwise = rules.rendezvous();
        let offered = match rules.bound() {
            _ if otherwise != Protocol::Rget => Err("the rendezvous is not rget (Messages::set_rules)"),
            None => Err("the rules have offered=never"),
            _ if fabric.processes().is_none() => {
                Err("this fabric does not copy between processes, or ONESIDED_PROCESS_VM=off is set")
            }
            _ if !self.may_offer() => {
                Err("a process of the communicator may not read another's memory (process_vm_readv)")
            }
            Some(bound) => Ok(bound),
        };
        Choice { offered, otherwise }
    }

    /// By what the memory of a buffer is sent, which peers may read.
    pub(crate) fn protocol_of_buffers(&self) -> Protocol {
        Some(self.rendezvous()).filter(|protocol| *protocol != Protocol::Copy).unwrap_or_default()
    }

    /// Memory for a message that goes so. It is not registered yet if it is written in pieces and that
    /// takes time; and not at all where no more can be, or if it goes in packets.
    pub(crate) fn memory_for(&self, protocol: Protocol, bytes: u64) -> Result<Registered<F>, Fault> {
        let progress = self.progress();
        match protocol {
            Protocol::Copy => return progress.plain(bytes),
            Protocol::Pipeline if bytes > 0 && !progress.fabric.capabilities().completes_at_post => {
                // So much memory is tried for once: its pieces are allocated when they are written.
                let has_room = Vec::<u8>::new().try_reserve_exact(bytes as usize);
                return has_room.map(|()| progress.pieces(bytes)).map_err(|_| Fault::new(FaultKind::NoMemory));
            }
            _ => {}
        }
        match progress.memory(bytes) {
            Err(fault) if is_refused(fault) => progress.plain(bytes),
            memory => memory,
        }
    }
}

impl From<UnknownRule> for Error {
    fn from(unknown: UnknownRule) -> Self {
        Self::Rules(unknown)
    }
}
