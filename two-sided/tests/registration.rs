//! What registration and copies cost messages, in virtual time on a modelled ConnectX-7.

use onesided_fabric::remote_memory::RemoteMemory;
use onesided_instances as _;
use onesided_sim::{End, Profile, Simulation};
use onesided_two_sided::{Messages, Rendezvous, Tag};

const LEN: usize = 8 << 20;
const TIMES: u64 = 4;

#[derive(Clone, Copy, Debug)]
enum Memory {
    /// Each message has buffers of its own, registered for it.
    Fresh,
    /// The next message has the buffers of the last one, which stay registered.
    Reused,
    /// Slices, which are copied at both ends, through memory that stays registered.
    Slices,
}

/// The share of the wire's bandwidth that a sequence of messages gets, in per cent.
fn share(memory: Memory, rendezvous: Rendezvous) -> u64 {
    let network = Profile::shipped("connectx7").unwrap().network().clone();
    let wire = LEN as u64 * TIMES * 1_000_000_000 / network.bandwidth;
    let report = Simulation::new(network).ranks(2).per_host(1).run(|world| async move {
        let messages = Messages::new(&world).await.unwrap();
        messages.set_rendezvous(rendezvous);
        let (mut slice, mut kept) = (vec![1_u8; LEN], Vec::new());
        let mut begin = 0;
        for round in 0..=TIMES {
            // The first one finds no memory at all.
            if round == 1 {
                begin = world.fabric().now();
            }
            if let Memory::Slices = memory {
                match world.rank() {
                    0 => messages.send(&slice, 1, Tag(0)).await.unwrap(),
                    _ => drop(messages.recv_into(&mut slice, 0, Tag(0)).await.unwrap()),
                }
                continue;
            }
            let buffer = messages.buffer::<u8>(LEN).unwrap();
            let buffer = match world.rank() {
                0 => messages.send_buffer(buffer, 1, Tag(0)).await.unwrap(),
                _ => messages.recv_buffer(buffer, 0, Tag(0)).await.unwrap().0,
            };
            if let Memory::Fresh = memory {
                kept.push(buffer);
            }
        }
        world.fabric().now() - begin
    });
    assert_eq!(report.end, End::Finished);
    100 * wire / report.results[1].unwrap()
}

/// woodall-2006: registration alone holds a long message to half of the wire, by RPUT to a third,
/// where the receiver registers what it exposes as well; memory that stays registered does not.
#[test]
fn memory_that_stays_registered_has_the_wire() {
    for rendezvous in [Rendezvous::Rget, Rendezvous::Rput] {
        let [fresh, reused, slices] =
            [Memory::Fresh, Memory::Reused, Memory::Slices].map(|memory| share(memory, rendezvous));
        assert!(fresh < 55, "{rendezvous}: {fresh} per cent");
        assert!(reused > 90, "{rendezvous}: {reused} per cent");
        assert!(slices < 50, "{rendezvous}: {slices} per cent"); // two copies at 20 GB/s, a wire of 50
    }
}
