//! Messages from and to noncontiguous elements.

use std::fmt::Debug;
use std::ops::Range;
use std::time::Duration;

use onesided_fabric::remote_memory::FaultKind;
use onesided_fabric::{Fabric, World, block_on, threads};
use onesided_instances as _;
use onesided_sim::{End, Network, Simulation};
use onesided_two_sided::{Error, Messages, Payload, Shape, Source, Tag, Tags};
use proptest::prelude::*;

use crate::support::ranks;

const SOON: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(20);

/// A shape of about so many elements.
#[derive(Clone, Debug)]
struct Places {
    kind: Kind,
    count: usize,
    block: usize,
    gap: usize,
    starts: Vec<usize>,
    ranges: Vec<Range<usize>>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Slice,
    Row,
    Vector,
    Blocks,
    Indexed,
}

impl Places {
    fn new(kind: Kind, elements: usize, block: usize, gap: usize) -> Self {
        let count = elements / block;
        // Not in the order of the memory.
        let starts: Vec<_> = (0..count).rev().map(|at| 3 + at * (block + gap)).collect();
        let ranges = starts.iter().map(|start| *start..start + 1 + start % block).collect();
        Self { kind, count, block, gap, starts, ranges }
    }

    fn shape(&self) -> Shape<'_> {
        let Self { kind, count, block, gap, starts, ranges } = self;
        match kind {
            Kind::Slice | Kind::Row => Shape::Row(count * block),
            Kind::Vector => Shape::Vector { count: *count, block: *block, stride: block + gap },
            Kind::Blocks => Shape::Blocks { block: *block, starts },
            Kind::Indexed => Shape::Indexed(ranges),
        }
    }

    /// The places, in order.
    fn all(&self) -> Vec<usize> {
        self.shape().runs().flatten().collect()
    }
}

/// What rank 0 sends and rank 1 receives.
#[derive(Clone, Debug)]
struct Case {
    from: Places,
    into: Places,
    /// Whether the handle of the send is dropped, and the elements change.
    is_dropped: bool,
    /// Whether the message comes before its receive.
    is_unexpected: bool,
    /// Whether the send ends when the receive has got it, and the receive is of a matched probe.
    is_special: bool,
}

async fn exchange<T: Payload + PartialEq + Debug, F: Fabric>(
    world: World<F>,
    case: &Case,
    element: impl Fn(usize) -> T,
) -> Result<(), Error> {
    let messages = Messages::new(&world).await?;
    let Case { from, into, .. } = case;
    let sent = |at| element(at + 1);
    if world.rank() == 0 {
        let mut elements: Vec<_> = (0..from.shape().end() + 2).map(sent).collect();
        {
            let send = match from.kind {
                Kind::Slice => messages.send(&elements[..from.shape().end()], 1, Tag(0)),
                _ if case.is_special => messages.send_synchronous_shaped(&elements, from.shape(), 1, Tag(0)),
                _ => messages.send_shaped(&elements, from.shape(), 1, Tag(0)),
            };
            if case.is_unexpected {
                messages.send::<u8>(&[], 1, Tag(1)).await?;
            }
            if !case.is_dropped {
                send.await?;
            }
        }
        elements.fill(element(0));
        messages.recv::<u8>(1, Tag(2)).await?;
        return Ok(());
    }
    let mut memory = vec![element(0); into.shape().end() + 2];
    let mut expected = memory.clone();
    let (sources, places) = (from.all(), into.all());
    for (place, source) in places.iter().zip(&sources) {
        expected[*place] = sent(*source);
    }
    if case.is_unexpected {
        messages.recv::<u8>(0, Tag(1)).await?;
    }
    let received = match into.kind {
        Kind::Slice => messages.recv_into(&mut memory[..into.shape().end()], 0, Tag(0)).await,
        _ if case.is_special => {
            let matched = messages.match_probe(0, Tag(0)).await?;
            matched.recv_shaped(&mut memory, into.shape()).await
        }
        _ => messages.recv_shaped(&mut memory, into.shape(), 0, Tag(0)).await,
    };
    let bytes = (sources.len() * size_of::<T>()) as u64;
    match received {
        Ok(status) => assert!(status.bytes == bytes && sources.len() <= places.len(), "{status}"),
        Err(Error::Length { status, room, element }) => {
            assert!(sources.len() > places.len(), "{status}");
            assert_eq!((status.bytes, room, element), (bytes, Some(places.len()), size_of::<T>()));
        }
        Err(error) => panic!("{error}"),
    }
    assert!(memory == expected, "{case:?}");
    messages.send::<u8>(&[], 0, Tag(2)).await
}

fn places() -> impl Strategy<Value = Places> {
    let kinds = prop::sample::select(vec![Kind::Slice, Kind::Row, Kind::Vector, Kind::Blocks, Kind::Indexed]);
    // Of 8 bytes: empty, eager, copied, offered if they are contiguous, also with chunks for both sides.
    let lengths = prop::sample::select(vec![0, 7, 100, 400, 1_000, 5_000, 30_000]);
    (kinds, lengths, 1..6_usize, 0..5_usize).prop_map(|(kind, len, block, gap)| Places::new(kind, len, block, gap))
}

fn cases() -> impl Strategy<Value = Case> {
    // Often as long at both ends.
    let ends = (places(), places(), any::<bool>()).prop_map(|(from, into, is_equal)| match is_equal {
        true => (Places::new(from.kind, into.count * into.block, from.block, from.gap), into),
        false => (from, into),
    });
    let how = (any::<bool>(), any::<bool>(), any::<bool>());
    (ends, how).prop_map(|((from, into), (is_dropped, is_unexpected, is_special))| Case {
        from,
        into,
        is_dropped,
        is_unexpected,
        is_special,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn elements_go_from_shape_to_shape(case in cases()) {
        let outcomes = threads(2, |world| {
            block_on(&world.fabric().clone(), exchange(world.clone(), &case, |at| at as u64))?;
            block_on(&world.fabric().clone(), exchange(world, &case, |at| [at as u16, 1, (at >> 16) as u16]))
        });
        outcomes.unwrap().into_iter().for_each(Result::unwrap);
    }

    #[test]
    fn and_simulated(case in cases()) {
        let report = Simulation::new(Network::default()).ranks(2).run(|world| {
            let case = case.clone();
            async move { exchange(world, &case, |at| at as u64).await }
        });
        prop_assert_eq!(report.end, End::Finished);
        prop_assert!(report.results.into_iter().flatten().all(|outcome| outcome.is_ok()));
    }
}

#[test]
fn a_shape_that_exceeds_its_slice_is_refused() {
    ranks(1, |_, messages| {
        let column = Shape::Vector { count: 3, block: 1, stride: 10 };
        let mut short = [0_u32; 20];
        let error = messages.send_shaped(&short, column, 0, Tag(0)).wait().unwrap_err();
        assert_eq!(error.to_string(), "send_shaped: the shape ends at element 21, the slice has 20");
        assert_eq!(error.kind(), FaultKind::OutOfRange);
        let error = messages.recv_shaped(&mut short, column, 0, Tag(0)).wait().unwrap_err();
        assert_eq!(error.to_string(), "recv_shaped: the shape ends at element 21, the slice has 20");
        // Contiguous, and larger than any memory.
        for shape in [Shape::Row(21), Shape::Vector { count: usize::MAX, block: 1, stride: 2 }] {
            assert!(matches!(messages.send_shaped(&short, shape, 0, Tag(0)).wait(), Err(Error::Range { .. })));
            assert!(matches!(messages.recv_shaped(&mut short, shape, 0, Tag(0)).wait(), Err(Error::Range { .. })));
        }
        let vast = Shape::Vector { count: usize::MAX, block: 1, stride: 0 };
        assert!(matches!(messages.send_shaped(&short, vast, 0, Tag(0)).wait(), Err(Error::Send { .. })));
        assert!(matches!(messages.send_shaped(&short, column, 1, Tag(0)).wait(), Err(Error::Range { .. })));
        let error = messages.send_shaped(&[0_u8; 21], column, 1, Tag(0)).wait().unwrap_err();
        assert_eq!(error.to_string(), "send to rank 1: the world has 1 rank");
        let error = messages.recv::<u8>(1, Tag(0)).wait().unwrap_err();
        assert_eq!(error.to_string(), "recv from rank 1: the world has 1 rank");
        assert!(messages.probe(Source::Any, Tags::Any).test().unwrap().is_none());
    });
}

/// A short message, whose send would else be over at once.
#[test]
fn a_synchronous_send_of_a_shape_waits_for_its_receive() {
    ranks(2, |world, messages| {
        let column = Shape::Vector { count: 2, block: 1, stride: 2 };
        if world.rank() == 0 {
            for shape in [Shape::Row(2), column] {
                let late = messages.send_synchronous_shaped(b"a-b", shape, 1, Tag(0)).deadline(SHORT).wait();
                assert_eq!(late.unwrap_err().kind(), FaultKind::TimedOut);
            }
            world.barrier().wait().unwrap();
            return world.barrier().wait().unwrap(); // until then the messages are here
        }
        world.barrier().wait().unwrap();
        let mut memory = *b"....";
        let matched = |tag| messages.match_probe(0, Tag(tag)).deadline(SOON).wait().unwrap();
        let error = matched(0).recv_shaped(&mut memory[..2], column).wait().unwrap_err();
        assert_eq!(error.to_string(), "recv_shaped: the shape ends at element 3, the slice has 2");
        // The message was given back.
        matched(0).recv_shaped(&mut memory, Shape::Row(2)).wait().unwrap();
        assert_eq!(&memory, b"a-..");
        matched(0).recv_shaped(&mut memory, column).wait().unwrap();
        assert_eq!(&memory, b"a-b.");
        world.barrier().wait().unwrap();
    });
}
