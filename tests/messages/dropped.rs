//! Every send and receive is dropped at each of its `Pending`s in turn, and is ended by a deadline
//! there, beside other messages and with no room for some packets. A receive that was left has taken
//! no message, and changes no order; a send that was left sends its message all the same.

use std::time::Duration;

use onesided_fabric::{Fabric, World};
use onesided_instances as _;
use onesided_sim::{End, Network, Simulation};
use onesided_two_sided::{Error, Messages, ProgressMode, Protocol, Shape, Source, Tag};

use crate::left::{Left, at_all_times};
use crate::planted::{Bug, Planted};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Receive {
    Recv,
    FromAny,
    Into,
    Shaped,
    Buffer,
    /// Into a buffer of the program's own memory.
    OwnBuffer,
    Persistent,
    Listed,
    Probe,
    MatchProbe,
    Matched,
    MatchedInto,
}

use Receive::{
    Buffer, FromAny, Into, Listed, MatchProbe, Matched, MatchedInto, OwnBuffer, Persistent, Probe, Recv, Shaped,
};

const RECEIVES: [Receive; 12] =
    [Recv, FromAny, Into, Shaped, Buffer, OwnBuffer, Persistent, Listed, Probe, MatchProbe, Matched, MatchedInto];

#[derive(Clone, Copy, Debug)]
enum Send {
    Plain,
    Shaped,
    Buffer,
    Persistent,
    Synchronous,
}

const SENDS: [Send; 5] = [Send::Plain, Send::Shaped, Send::Buffer, Send::Persistent, Send::Synchronous];

/// The operations between ranks 0 and 1 that are left, and how messages go.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// The first send, if it is left.
    send: Option<(Send, Left)>,
    receive: (Receive, Left),
    by: Protocol,
    len: usize,
    /// Whether the messages are there before the receive.
    is_late: bool,
    mode: ProgressMode,
    /// Other messages, of both ranks.
    traffic: &'static [u8],
}

const MANY: u8 = 3;
const NUMBERED: Tag = Tag(1);
const TRAFFIC: Tag = Tag(2);

fn bytes(number: u8, len: usize) -> Vec<u8> {
    vec![number + 1; len]
}

/// Every other element, of twice as many.
fn spread(len: usize) -> Shape<'static> {
    Shape::Vector { count: len, block: 1, stride: 2 }
}

/// Sends a message that is left; returns whether it was.
async fn send<F: Fabric>(messages: &Messages<F>, case: &Case) -> Result<bool, Error> {
    let (sent, (how, left)) = (bytes(0, case.len), case.send.expect("one that is left"));
    let twice: Vec<u8> = sent.iter().flat_map(|byte| [*byte, 0]).collect();
    let after = left.deadline();
    let outcome = match how {
        Send::Plain => left.run(messages.send(&sent, 1, NUMBERED).deadline(after), Error::is_timed_out).await?,
        Send::Shaped => {
            left.run(messages.send_shaped(&twice, spread(case.len), 1, NUMBERED).deadline(after), Error::is_timed_out)
                .await?
        }
        Send::Persistent => {
            let to = messages.send_init(1, NUMBERED)?;
            left.run(to.start(&sent).deadline(after), Error::is_timed_out).await?
        }
        Send::Synchronous => {
            left.run(messages.send_synchronous(&sent, 1, NUMBERED).deadline(after), Error::is_timed_out).await?
        }
        Send::Buffer => {
            let mut buffer = messages.buffer(case.len)?;
            buffer.write(0, &sent);
            left.run(messages.send_buffer(buffer, 1, NUMBERED).deadline(after), Error::is_timed_out).await?.map(drop)
        }
    };
    Ok(outcome.is_none())
}

/// Receives a message, unless the receive is left; returns whether it was, and what was received.
async fn receive<F: Fabric>(messages: &Messages<F>, case: &Case) -> Result<(bool, Option<Vec<u8>>), Error> {
    let (len, (how, left)) = (case.len, case.receive);
    let (mut into, mut twice) = (vec![0; len], vec![0; 2 * len]);
    let after = left.deadline();
    let received = match how {
        Recv => {
            left.run(messages.recv(0, NUMBERED).deadline(after), Error::is_timed_out).await?.map(|(bytes, _)| bytes)
        }
        FromAny => left
            .run(messages.recv(Source::Any, NUMBERED).deadline(after), Error::is_timed_out)
            .await?
            .map(|(bytes, _)| bytes),
        Into => left
            .run(messages.recv_into(&mut into, 0, NUMBERED).deadline(after), Error::is_timed_out)
            .await?
            .map(|_| into),
        Shaped => {
            let receive = messages.recv_shaped(&mut twice, spread(len), 0, NUMBERED).deadline(after);
            left.run(receive, Error::is_timed_out).await?.map(|_| twice.iter().step_by(2).copied().collect())
        }
        Buffer | OwnBuffer => {
            let room = if how == Buffer { messages.buffer(len)? } else { messages.buffer_of(into) };
            let receive = messages.recv_buffer(room, 0, NUMBERED).deadline(after);
            left.run(receive, Error::is_timed_out).await?.map(|(buffer, _)| buffer.read(0..len))
        }
        Persistent => {
            let from = messages.recv_init(0, NUMBERED)?;
            left.run(from.start(&mut into).deadline(after), Error::is_timed_out).await?.map(|_| into)
        }
        Listed => {
            let slices = [&mut into[..], &mut twice[..]].map(|slice| (slice, 0, NUMBERED));
            let first = messages.recv_all_into(slices).swap_remove(0); // the other is dropped
            left.run(first.deadline(after), Error::is_timed_out).await?.map(|_| into)
        }
        Probe => {
            return Ok((
                left.run(messages.probe(0, NUMBERED).deadline(after), Error::is_timed_out).await?.is_none(),
                None,
            ));
        }
        MatchProbe => {
            return Ok((
                left.run(messages.match_probe(0, NUMBERED).deadline(after), Error::is_timed_out).await?.is_none(),
                None,
            ));
        }
        Matched => {
            let message = messages.match_probe(0, NUMBERED).await?;
            left.run(message.recv().deadline(after), Error::is_timed_out).await?.map(|(bytes, _)| bytes)
        }
        MatchedInto => {
            let message = messages.match_probe(0, NUMBERED).await?;
            left.run(message.recv_into(&mut into).deadline(after), Error::is_timed_out).await?.map(|_| into)
        }
    };
    Ok((received.is_none(), received))
}

/// What a rank does; returns whether an operation of it was left.
async fn play<F: Fabric>(world: &World<F>, case: &Case) -> Result<bool, Error> {
    let messages = Messages::new(world).await?;
    messages.set_rendezvous(case.by);
    messages.set_progress(case.mode)?;
    let (me, other) = (world.rank(), 1 - world.rank());
    world.barrier().await.expect("a barrier");
    let traffic: Vec<_> =
        case.traffic.iter().map(|byte| messages.send(std::slice::from_ref(byte), other, TRAFFIC)).collect();
    let mut is_left = false;
    if me == 0 {
        let all: Vec<_> = (0..MANY).map(|number| bytes(number, case.len)).collect();
        let sent = match case.send {
            Some(_) => {
                is_left = send(&messages, case).await?;
                &all[1..]
            }
            None => &all,
        };
        for send in sent.iter().map(|sent| messages.send(sent, other, NUMBERED)).collect::<Vec<_>>() {
            send.await?;
        }
    } else {
        if case.is_late {
            messages.probe(other, NUMBERED).await?;
        }
        let first;
        (is_left, first) = receive(&messages, case).await?;
        let next = first.is_some().into();
        assert!(first.is_none_or(|first| first == bytes(0, case.len)), "{case:?}: what is received first");
        for number in next..MANY {
            let (received, _) = messages.recv::<u8>(other, NUMBERED).await?;
            let was = (0..MANY).find(|number| received == bytes(*number, case.len));
            assert_eq!(was, Some(number), "{case:?}: what is received then");
        }
    }
    for byte in case.traffic {
        assert_eq!(messages.recv::<u8>(other, TRAFFIC).await?.0, [*byte]);
    }
    for send in traffic {
        send.await?;
    }
    messages.barrier().await?;
    Ok(is_left)
}

/// Runs a case in which `rank` leaves an operation, and returns whether it did.
fn is_left(case: Case, rank: usize) -> bool {
    let simulation = Simulation::new(Network::default()).ranks(2).stalled_after(Duration::from_secs(60));
    let report = simulation
        .run_direct(move |fabric| async move { play(&World::new(Planted::new(fabric, Bug::MostlyBusy)), &case).await });
    assert_eq!(report.end, End::Finished, "{case:?}");
    let outcomes = report.results.into_iter().flatten();
    let outcomes: Vec<_> =
        outcomes.map(|outcome| outcome.unwrap_or_else(|error| panic!("{case:?}: {error}"))).collect();
    outcomes[rank]
}

const PROTOCOLS: [(Protocol, usize); 5] = [
    (Protocol::Rget, 40), // eager
    (Protocol::Rget, 5_000),
    (Protocol::Rput, 5_000),
    (Protocol::Pipeline, 70_000),
    (Protocol::Copy, 5_000),
];

/// All protocols, with a receive before or after its message, and with any packet that finds no room:
/// usually a seventh of them, in which each of these is.
fn cases() -> impl Iterator<Item = Case> {
    let traffic = [&[1, 2, 3][..], &[1, 2, 3, 4], &[1, 2, 3, 4, 5]];
    let modes = [ProgressMode::Polling, ProgressMode::Hybrid];
    let all = modes.into_iter().flat_map(|mode| [false, true].map(|is_late| (mode, is_late)));
    let all = all.flat_map(move |each| traffic.map(|traffic| (each, traffic)));
    let of = |((mode, is_late), traffic)| {
        PROTOCOLS.map(|(by, len)| Case { send: None, receive: (Recv, Left::NEVER), by, len, is_late, mode, traffic })
    };
    all.flat_map(of).step_by(if std::env::var_os("ONESIDED_LONG").is_some() { 1 } else { 7 })
}

#[test]
fn a_receive_that_is_left_has_taken_no_message() {
    for how in RECEIVES {
        let pendings = cases().map(|case| at_all_times(|left| is_left(Case { receive: (how, left), ..case }, 1)));
        assert!(pendings.sum::<u32>() > 0);
    }
}

#[test]
fn a_send_that_is_left_sends_its_message() {
    for how in SENDS {
        let pendings = cases().map(|case| at_all_times(|left| is_left(Case { send: Some((how, left)), ..case }, 0)));
        assert!(pendings.sum::<u32>() > 0);
    }
}
