//! What registration and copies cost messages, in virtual time on a modelled ConnectX-7.

use onesided_fabric::remote_memory::RemoteMemory;
use onesided_instances as _;
use onesided_sim::{End, Network, Profile, Simulation};
use onesided_two_sided::{Messages, Protocol, Tag};

const TIMES: u64 = 4;

/// A message of 8 MiB, registered in pieces, or not again.
#[test]
fn registrations_are_counted() {
    let report = Simulation::new(Network::default()).ranks(2).run(|world| async move {
        let messages = Messages::new(&world).await.unwrap();
        messages.set_rendezvous(Protocol::Pipeline);
        let (len, before) = (8 << 20, messages.registrations());
        let mut after = [before; 3];
        for after in &mut after {
            let buffer = messages.buffer::<u8>(len).unwrap();
            match world.rank() {
                0 => drop(messages.send_buffer(buffer, 1, Tag(0)).await.unwrap()),
                _ => drop(messages.recv_buffer(buffer, 0, Tag(0)).await.unwrap()),
            }
            *after = messages.registrations();
        }
        let [once, twice, thrice] = after;
        assert_eq!((once.bytes - before.bytes, once.reuses), (len as u64, before.reuses));
        assert!(once.count - before.count > 16);
        // A receiver has memory for its buffer and for the message, which change places.
        assert_eq!((thrice.count, thrice.bytes), (twice.count, twice.bytes));
        assert!(thrice.reuses - twice.reuses >= once.count - before.count);
    });
    assert_eq!(report.end, End::Finished);
    assert!(report.results.iter().all(Option::is_some));
}

/// What is not registered yet moves in pieces, though there is one only.
#[test]
fn a_buffer_made_for_a_pipeline_is_sent_whatever_is_chosen_later() {
    let report = Simulation::new(Network::default()).ranks(2).run(|world| async move {
        let messages = Messages::new(&world).await.unwrap();
        for later in [Protocol::Rget, Protocol::Rput] {
            messages.set_rendezvous(Protocol::Pipeline);
            let mut buffer = messages.buffer::<u8>(60_000).unwrap();
            messages.set_rendezvous(later);
            match world.rank() {
                0 => {
                    buffer.write(0, &[5; 60_000]);
                    messages.send_buffer(buffer, 1, Tag(0)).await.unwrap();
                }
                _ => assert_eq!(messages.recv_buffer(buffer, 0, Tag(0)).await.unwrap().0.read(0..60_000), [5; 60_000]),
            }
        }
    });
    assert_eq!(report.end, End::Finished);
    assert!(report.results.iter().all(Option::is_some));
}

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
fn share(memory: Memory, rendezvous: Protocol, len: usize) -> u64 {
    let network = Profile::shipped("connectx7").unwrap().network().clone();
    let wire = len as u64 * TIMES * 1_000_000_000 / network.bandwidth;
    let report = Simulation::new(network).ranks(2).per_host(1).run(|world| async move {
        let messages = Messages::new(&world).await.unwrap();
        messages.set_rendezvous(rendezvous);
        let (mut slice, mut kept) = (vec![1_u8; len], Vec::new());
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
            let buffer = messages.buffer::<u8>(len).unwrap();
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
/// where the receiver registers what it exposes as well. Memory that stays registered does not, and
/// memory that is registered while other pieces move does not.
#[test]
fn memory_that_stays_registered_or_is_registered_meanwhile_has_the_wire() {
    for rendezvous in [Protocol::Rget, Protocol::Rput, Protocol::Pipeline] {
        for len in [1, 8, 32] {
            let [fresh, reused, slices] =
                [Memory::Fresh, Memory::Reused, Memory::Slices].map(|memory| share(memory, rendezvous, len << 20));
            let all = format!("{len} MiB by {rendezvous}: {fresh}, {reused} and {slices} per cent");
            match (rendezvous, len) {
                (Protocol::Pipeline, 1) => assert!(fresh > 65 && reused > 75, "{all}"),
                (Protocol::Pipeline, _) => assert!(fresh > 90 && reused > 90, "{all}"),
                (_, 1) => assert!(fresh < 55 && reused > 75, "{all}"),
                _ => assert!(fresh < 55 && reused > 90, "{all}"),
            }
            assert!(slices < 50, "{all}"); // two copies at 20 GB/s, a wire of 50
        }
    }
}
