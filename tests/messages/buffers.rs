//! Messages out of and into registered memory.

use std::time::Duration;

use onesided_fabric::remote_memory::FaultKind;
use onesided_instances as _;
use onesided_two_sided::{Error, Tag};

use crate::support::{filled, ranks, words};

const SOON: Duration = Duration::from_secs(60);
/// In words: none, eager, and by rendezvous.
const LENGTHS: [usize; 6] = [0, 1, 100, 1_000, 20_000, 200_000];

/// The buffers of handles that were dropped or came too late belong to their messages: what this
/// rank sends and receives afterwards changes none of them.
#[test]
fn a_dropped_send_goes_on_from_its_own_memory() {
    ranks(2, |world, messages| {
        let other = 1 - world.rank();
        for len in LENGTHS {
            if world.rank() == 0 {
                for round in 0..4 {
                    let send = messages.send_buffer(filled(&messages, round, len), other, Tag(round as u32));
                    if round % 2 == 0 || len < LENGTHS[3] {
                        drop(send);
                    } else {
                        assert!(send.deadline(Duration::ZERO).wait().unwrap_err().is_timed_out());
                    }
                }
                world.barrier().wait().unwrap();
            } else {
                world.barrier().wait().unwrap();
                for round in (0..4).rev() {
                    let room = messages.buffer::<u64>(len).unwrap();
                    let (buffer, _) = messages.recv_buffer(room, other, Tag(round)).deadline(SOON).wait().unwrap();
                    assert!(buffer.read(0..len) == words(round as usize, len), "{len} words, round {round}");
                }
            }
            world.barrier().wait().unwrap(); // messages of a rank that leaves are lost
        }
    });
}

#[test]
fn a_message_to_oneself_leaves_its_buffer_free() {
    ranks(1, |_, messages| {
        for len in LENGTHS {
            let mut buffer = messages.send_buffer(filled(&messages, 5, len), 0, Tag(0)).wait().unwrap();
            buffer.write(0, &vec![0; len]);
            let (got, _) = messages.recv_buffer(buffer, 0, Tag(0)).wait().unwrap();
            assert!(got.read(0..len) == words(5, len), "{len} words");
        }
    });
}

/// The memory of a dropped buffer is the next one's: it stays registered.
#[test]
fn memory_is_used_again() {
    ranks(1, |_, messages| {
        drop(filled(&messages, 7, LENGTHS[4]));
        assert!(messages.buffer::<u64>(LENGTHS[4]).unwrap().read(0..LENGTHS[4]) == words(7, LENGTHS[4]));
    });
}

#[test]
fn what_does_not_fit_is_told() {
    ranks(2, |world, messages| {
        if world.rank() == 0 {
            for len in [3, 30_000] {
                messages.send(&vec![1_u8; len], 1, Tag(0)).wait().unwrap();
            }
        } else {
            let whole = messages.recv_buffer(messages.buffer::<u64>(4).unwrap(), 0, Tag(0)).wait().unwrap_err();
            assert!(matches!(whole, Error::Length { room: Some(4), element: 8, .. }), "{whole}");
            let long = messages.recv_buffer(messages.buffer::<u8>(29_999).unwrap(), 0, Tag(0)).wait().unwrap_err();
            assert!(long.to_string().ends_with("30000 elements of 1 byte, and there is room for 29999"), "{long}");
            let error = messages.buffer::<u64>(usize::MAX).unwrap_err();
            assert_eq!(
                (error.kind(), error.to_string().split(':').next()),
                (FaultKind::NoMemory, Some("buffer of 18446744073709551615 bytes"))
            );
        }
    });
}

#[test]
#[should_panic = "2 elements at 9: the buffer has 10"]
fn an_index_beyond_the_end_panics() {
    ranks(1, |_, messages| drop(messages.buffer::<u64>(10).unwrap().read(9..11)));
}
