//! What waits of messages say at their deadlines, and when their peers have left.

use std::time::Duration;

use onesided_fabric::remote_memory::FaultKind;
use onesided_fabric::{Any, threads};
use onesided_instances as _;
use onesided_two_sided::{Error, Messages, SendRequest, Source, Tag};

use crate::support::ranks;

const SOON: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(20);

/// What fails names another message that has come: of the rank that was asked for, if there is one.
#[test]
fn a_receive_that_fails_says_what_else_waits() {
    ranks(3, |world, messages| {
        let text = |error: Error| error.to_string();
        let late = |tag| text(messages.recv::<u8>(1, Tag(tag)).deadline(SHORT).wait().unwrap_err());
        if world.rank() > 0 {
            let other = Messages::new(&world).wait().unwrap();
            if world.rank() == 2 {
                messages.send(b"b", 0, Tag(7)).wait().unwrap();
            }
            world.barrier().wait().unwrap();
            if world.rank() == 1 {
                other.send(b"a", 0, Tag(2)).wait().unwrap(); // which no receive of `messages` sees
                messages.send(b"a", 0, Tag(2)).wait().unwrap();
                messages.send(b"a", 0, Tag(3)).wait().unwrap();
                messages.recv::<u8>(0, Tag(0)).wait().unwrap();
            }
            return;
        }
        let _other = Messages::new(&world).wait().unwrap();
        messages.probe(2, Tag(7)).deadline(SOON).wait().unwrap();
        let of_two = "the deadline passed; 1 message waits here, from rank 2 with tag 7";
        assert_eq!(late(7), format!("recv with tag 7 from rank 1: {of_two}"));
        let probe = messages.match_probe(Source::Any, Tag(1)).deadline(SHORT).wait().map(drop);
        assert_eq!(text(probe.unwrap_err()), format!("probe with tag 1 from any rank: {of_two}"));
        world.barrier().wait().unwrap();
        assert_eq!(messages.recv::<u8>(1, Tag(3)).deadline(SOON).wait().unwrap().0, b"a");
        let of_one = "2 messages wait here, one from rank 1 with tag 2";
        assert_eq!(late(7), format!("recv with tag 7 from rank 1: the deadline passed; {of_one}"));
        messages.send(b"", 1, Tag(0)).wait().unwrap();
        let mut byte = [0];
        let left = messages.recv_into(&mut byte, 1, Tag(4)).deadline(SOON).wait().unwrap_err();
        assert_eq!(text(left), format!("recv with tag 4 from rank 1: rank 1 has left; {of_one}"));
        let Error::Receive { others, .. } = left else { panic!("{left}") };
        let others = others.unwrap();
        assert_eq!((others.count.get(), others.source, others.tag), (2, 1, Tag(2)));
    });
}

#[test]
fn a_late_send_says_how_far_it_is() {
    ranks(2, |world, messages| {
        if world.rank() == 0 {
            let text = |send: SendRequest<'_, Any>| send.deadline(SHORT).wait().unwrap_err().to_string();
            let late = "send 3 bytes with tag 1 to rank 1: the deadline passed; ";
            assert_eq!(text(messages.send_synchronous(b"abc", 1, Tag(1))), format!("{late}rank 1 has not received it"));
            // No credit is left after these.
            while messages.send(&[0_u8; 1024], 1, Tag(0)).wait_timeout(SHORT).unwrap().is_some() {}
            let behind = format!("{late}it waits behind earlier messages that rank 1 has not received");
            assert_eq!(text(messages.send(b"abc", 1, Tag(1))), behind);
        }
        world.barrier().wait().unwrap();
    });
}

#[test]
fn a_communicator_that_a_rank_does_not_make_ends_at_the_deadline() {
    let is_over = std::sync::Barrier::new(2);
    threads(2, |world| {
        let pair = world.split(0, 0).wait().unwrap();
        if world.rank() == 0 {
            let mut create = Messages::new(&pair);
            assert!(create.test().unwrap().is_none());
            let error = create.deadline(SHORT).wait().unwrap_err();
            assert_eq!(error.to_string(), "make a communicator: the deadline passed, waiting for rank 1");
            let error = Messages::new(&pair).deadline(SOON).wait().unwrap_err();
            assert_eq!(error.kind(), FaultKind::OutOfStep);
        }
        is_over.wait();
        Messages::new(&world).deadline(SOON).wait().unwrap();
    })
    .unwrap();
}
