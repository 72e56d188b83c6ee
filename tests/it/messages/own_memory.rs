//! Messages out of and into memory that the program owns, frees and maps again.

use onesided::{Messages, Protocol, Tag, World};

use super::elements;
use crate::jobs::ok;
use crate::support::DEADLINE;
use crate::user_memory::all_go_well;
use crate::user_memory::mapped::Mapping;

#[test]
fn pages_that_are_mapped_again_are_other_memory_to_messages() {
    all_go_well(2, "messages: mapped again");
}

/// Each message is in new pages, at the address of the last message's, which were unmapped: its receiver
/// finds the new bytes.
pub(super) fn mapped_again(world: World) {
    let messages = Messages::new(&world).wait().unwrap();
    let (me, other) = (world.rank(), 1 - world.rank());
    let (mut at, mut again, mut round) = ([std::ptr::null_mut(); 2], 0, 0);
    for rendezvous in [Protocol::Rget, Protocol::Rput, Protocol::Pipeline, Protocol::Copy] {
        messages.set_rendezvous(rendezvous);
        for (len, is_dropped) in [3 << 12, 3 << 12, 1 << 20, 1 << 20].into_iter().zip([false, true].repeat(2)) {
            let count = len / 8;
            let mappings = at.map(|at| Mapping::near(at, None, len));
            again += at.iter().zip(&mappings).filter(|(at, new)| **at == new.start.as_ptr()).count();
            at = mappings.each_ref().map(|new| new.start.as_ptr());
            let [mut out, into] = mappings.map(|mapping| messages.buffer_from::<u64>(mapping.into_memory()));
            assert_eq!((out.len(), out.read(count - 1..count)), (count, vec![0]));
            out.write(0, &elements(10 * round + me, count));
            let send = messages.send_buffer(out, other, Tag(0));
            let (into, _) = messages.recv_buffer(into, other, Tag(0)).deadline(DEADLINE).wait().unwrap();
            assert!(into.read(0..count) == elements(10 * round + other, count), "{rendezvous}, round {round}");
            let out = send.deadline(DEADLINE).wait().unwrap();
            for buffer in [out, into].into_iter().filter(|_| !is_dropped) {
                let mapping = buffer.into_memory().unwrap().into_owner::<Mapping>();
                drop(mapping.unwrap_or_else(|_| panic!("it has this type")));
            }
            round += 1;
        }
    }
    assert!(again > 0, "no address was used again");
    world.barrier().wait().unwrap();
    ok();
}
