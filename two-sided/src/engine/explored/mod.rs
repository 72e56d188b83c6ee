//! Every order of what can happen to two or three engines with a few messages, and random orders of
//! more: posts, arrivals, posts without room, reads that end or fail, dropped handles, a rank that
//! dies or drops its communicator.
//!
//! Engines can neither be cloned nor compared, so each order is run from its start, and ends at a
//! known state: what an engine was given determines its state, so orders that give each engine the
//! same are one. Engines take their memory as a number, so nothing here knows how it is read.
//!
//! Packets of a pair arrive once and in order, as a transport promises: the engine has no check of
//! its own. The conformance suite of fabrics has that check, and its planted bugs are in
//! `tests/simulated/planted`.

mod host;
mod moving;
mod net;
mod planted;
mod request;
mod seen;
mod world;

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;

use self::net::{Budget, Choices, Plant};
use self::request::{Mode, Op};
use self::world::{Setup, World};
use crate::engine::matching::Pattern;

/// Runs every order; the number of states, or the first failure with its story.
fn explore(setup: &Setup) -> Result<usize, String> {
    let (mut known, mut path) = (HashSet::new(), Vec::new());
    loop {
        let mut world = World::new(setup, Choices { path, at: 0, is_over: false });
        let run = || loop {
            if world.is_new() && !known.insert(world.net.state()) {
                break;
            }
            if !world.step() {
                break world.finish();
            }
        };
        if let Err(panicked) = catch_unwind(AssertUnwindSafe(run)) {
            let said =
                panicked.downcast_ref::<String>().map(String::as_str).or(panicked.downcast_ref::<&str>().copied());
            return Err(format!("{} in {setup:?} after {:?}", said.unwrap_or_default(), world.story));
        }
        path = std::mem::take(&mut world.net.choices.path);
        while let Some((chosen, of)) = path.pop() {
            if chosen + 1 < of {
                path.push((chosen + 1, of));
                break;
            }
        }
        if path.is_empty() {
            return Ok(known.len());
        }
    }
}

const NOTHING: Budget = Budget { busy: 0, drops: 0, fails: 0, refusals: 0, deaths: 0, breaks: 0, closes: 0 };

const fn eager(to: u32, tag: u32) -> Op {
    Op::Send { to, tag, mode: Mode::Eager(1) }
}

const fn sends(to: u32, count: u64) -> Op {
    Op::Sends { to, count }
}

/// Longer than a head.
const fn long(to: u32, tag: u32) -> Op {
    Op::Send { to, tag, mode: Mode::Eager(9) }
}

const fn rendezvous(to: u32, tag: u32) -> Op {
    Op::Send { to, tag, mode: Mode::Rendezvous }
}

const fn written(to: u32, tag: u32) -> Op {
    Op::Send { to, tag, mode: Mode::Write }
}

const fn synchronous(to: u32, tag: u32) -> Op {
    Op::Send { to, tag, mode: Mode::Synchronous }
}

const fn pattern(source: Option<u32>, tag: Option<u32>) -> Pattern {
    Pattern { context: 0, source, tag }
}

const fn receive(source: Option<u32>, tag: Option<u32>) -> Op {
    Op::Receive { pattern: pattern(source, tag), has_slice: false }
}

const fn receive_into(source: Option<u32>, tag: Option<u32>) -> Op {
    Op::Receive { pattern: pattern(source, tag), has_slice: true }
}

const fn pipeline(to: u32, tag: u32) -> Op {
    Op::Send { to, tag, mode: Mode::Pipeline }
}

const fn copied(to: u32, tag: u32) -> Op {
    Op::Send { to, tag, mode: Mode::Copy }
}

const fn zcopied(to: u32, tag: u32) -> Op {
    Op::Send { to, tag, mode: Mode::ZCopy }
}

/// One, so that a second message that is announced waits until the first one was read or written; two
/// for the pieces of a message.
fn tokens(programs: &[Vec<Op>]) -> u32 {
    let is_in_pieces = |op: &Op| matches!(op, Op::Send { mode: Mode::Pipeline, .. });
    if programs.iter().flatten().any(is_in_pieces) { 2 } else { 1 }
}

/// Alone, and in pairs.
fn troubles(most: u32) -> Vec<Budget> {
    let kinds = [
        Budget { busy: 1, ..NOTHING },
        Budget { drops: 1, ..NOTHING },
        Budget { fails: 1, ..NOTHING },
        Budget { refusals: 1, ..NOTHING },
        Budget { closes: 1, ..NOTHING },
        Budget { deaths: 1, ..NOTHING },
    ];
    let mut all = vec![NOTHING];
    for (at, one) in kinds.into_iter().enumerate() {
        all.push(one);
        let others = kinds.iter().skip(if most > 1 { at + 1 } else { kinds.len() });
        all.extend(others.map(|other| Budget {
            busy: one.busy + other.busy,
            drops: one.drops + other.drops,
            fails: one.fails + other.fails,
            refusals: one.refusals + other.refusals,
            closes: one.closes + other.closes,
            deaths: one.deaths + other.deaths,
            breaks: 0,
        }));
    }
    all
}

fn is_long() -> bool {
    std::env::var_os("ONESIDED_LONG").is_some()
}

/// Explores programs under troubles, which are fewer in the usual run; at least so many states.
#[track_caller]
fn holds(at_least: usize, programs: &[Vec<Op>], usual: Vec<Budget>, long: Vec<Budget>) {
    holds_if(false, at_least, programs, usual, long);
}

/// The same where packets follow writes.
#[track_caller]
fn holds_behind_writes(at_least: usize, programs: &[Vec<Op>], usual: Vec<Budget>, long: Vec<Budget>) {
    holds_if(true, at_least, programs, usual, long);
}

#[track_caller]
fn holds_if(follows: bool, at_least: usize, programs: &[Vec<Op>], usual: Vec<Budget>, long: Vec<Budget>) {
    let budgets = if is_long() { long } else { usual };
    let states = budgets.into_iter().map(|budget| {
        let programs = programs.to_vec();
        let setup = Setup { tokens: tokens(&programs), programs, window: 4, budget, plant: Plant::None, follows };
        explore(&setup).unwrap_or_else(|failed| panic!("{failed}"))
    });
    let states: usize = states.sum();
    assert!(states >= at_least, "{states} states");
}

#[test]
fn eager_messages() {
    let receives = vec![receive(Some(0), Some(1)), receive(Some(0), None)];
    holds(3_000, &[vec![eager(1, 0), long(1, 1)], receives], troubles(1), troubles(2));
    let receives = vec![receive_into(Some(0), Some(1)), receive_into(None, None)];
    holds(13_000, &[vec![eager(1, 0), long(1, 1)], receives], troubles(1), troubles(2));
}

#[test]
fn messages_in_one_packet() {
    let program = vec![sends(1, 2), long(1, 1)];
    let receives = vec![receive(Some(0), Some(1)), receive_into(None, None)];
    holds(70_000, &[program, receives], troubles(1), troubles(2));
    let probe = Op::Probe { pattern: pattern(Some(0), None), takes: true };
    holds(1_000, &[vec![sends(1, 2)], vec![receive_into(Some(0), None), probe]], vec![NOTHING, BREAK], breaks());
    let receives = vec![receive_into(None, None), receive_into(Some(1), Some(1))];
    holds(8_000, &[vec![sends(2, 2)], vec![sends(2, 2)], receives], vec![NOTHING], troubles(1));
    // One is without credit.
    holds(1_500, &[vec![sends(1, 3)], vec![receive(None, None), receive(None, None)]], vec![NOTHING], troubles(1));
}

#[test]
fn eager_messages_without_credit() {
    let usual = vec![NOTHING, Budget { busy: 1, ..NOTHING }];
    let receives = vec![receive(None, Some(0)), receive(None, None)];
    holds(12_000, &[vec![eager(1, 0), eager(1, 0), eager(1, 0)], receives], usual, troubles(1));
}

#[test]
fn a_rendezvous() {
    holds(3_000, &[vec![rendezvous(1, 0)], vec![receive(Some(0), None)]], troubles(2), troubles(2));
    let receives = vec![receive(Some(0), None), receive_into(None, Some(0))];
    holds(3_000, &[vec![rendezvous(1, 0)], receives], troubles(1), troubles(2));
    let sends = vec![rendezvous(1, 0), synchronous(1, 0)];
    holds(3_000, &[sends, vec![receive(Some(0), None)]], troubles(1), troubles(2));
}

#[test]
fn a_written_rendezvous() {
    holds(10_000, &[vec![written(1, 0)], vec![receive(Some(0), None)]], troubles(2), troubles(2));
}

#[test]
fn a_pipeline() {
    holds(20_000, &[vec![pipeline(1, 0)], vec![receive(Some(0), None)]], troubles(1), troubles(2));
}

#[test]
fn a_message_in_packets() {
    let (receives, one) = (vec![receive(Some(0), None)], vec![copied(1, 0)]);
    holds(18_000, &[one.clone(), receives.clone()], troubles(1), troubles(2));
    holds_behind_writes(20_000, &[one.clone(), receives.clone()], troubles(1), troubles(2));
    holds(2_500, &[vec![copied(1, 0), eager(1, 0)], receives], vec![NOTHING], troubles(1));
    let receives = vec![receive(Some(0), None), receive_into(None, Some(0))];
    holds(15_000, &[one.clone(), receives], vec![NOTHING], troubles(1));
    let probe = Op::Probe { pattern: pattern(None, None), takes: true };
    holds(4_000, &[one, vec![probe, receive(None, None)]], vec![NOTHING], troubles(1));
}

#[test]
fn a_message_in_datagrams() {
    let receives = vec![receive(Some(0), None)];
    holds(1_000, &[vec![zcopied(1, 0)], receives.clone()], troubles(1), troubles(2));
    holds(1_000, &[vec![zcopied(1, 0), eager(1, 0)], receives], vec![NOTHING], troubles(1));
}

/// One or both sides have no memory, and what else may happen then.
#[test]
fn a_message_that_comes_in_packets_after_all() {
    let refused = Budget { refusals: 1, ..NOTHING };
    let usual = vec![
        Budget { refusals: 2, ..NOTHING },
        Budget { busy: 1, ..refused },
        Budget { drops: 1, ..refused },
        Budget { fails: 1, ..refused },
        Budget { deaths: 1, ..refused },
    ];
    for send in [rendezvous(1, 0), written(1, 0)] {
        let programs = [vec![send], vec![receive(Some(0), None)]];
        holds(2_500, &programs, usual.clone(), troubles(2));
        let behind_writes = vec![Budget { deaths: 1, ..refused }, Budget { breaks: 1, ..refused }];
        holds_behind_writes(1_000, &programs, behind_writes, troubles(2));
    }
    let programs = [vec![pipeline(1, 0)], vec![receive(Some(0), None)]];
    holds(25_000, &programs, vec![Budget { fails: 1, ..refused }, Budget { refusals: 2, ..NOTHING }], usual.clone());
    holds_behind_writes(12_000, &programs, vec![refused], usual);
}

#[test]
fn a_fin_behind_its_write() {
    let receives = vec![receive(Some(0), None)];
    let usual = vec![NOTHING, Budget { deaths: 1, ..NOTHING }];
    holds_behind_writes(15_000, &[vec![written(1, 0)], receives.clone()], troubles(2), troubles(2));
    holds_behind_writes(15_000, &[vec![pipeline(1, 0)], receives.clone()], usual, troubles(1));
    holds_behind_writes(500, &[vec![written(1, 0), eager(1, 0)], receives], vec![NOTHING], troubles(1));
}

const BREAK: Budget = Budget { breaks: 1, ..NOTHING };

/// A break, alone and with another trouble.
fn breaks() -> Vec<Budget> {
    vec![BREAK, Budget { busy: 1, ..BREAK }, Budget { drops: 1, ..BREAK }, Budget { closes: 1, ..BREAK }]
}

#[test]
fn a_connection_that_breaks_under_eager_messages() {
    let receives = vec![receive(Some(0), Some(1)), receive(Some(0), None)];
    holds(1_000, &[vec![eager(1, 0), long(1, 1)], receives], vec![BREAK], breaks());
    let program = |other| vec![eager(other, 0), receive(Some(other), None)];
    holds(1_000, &[program(1), program(0)], vec![BREAK], breaks());
}

#[test]
fn a_connection_that_breaks_under_a_rendezvous() {
    let usual = vec![BREAK, Budget { drops: 1, ..BREAK }];
    let receives = vec![receive(Some(0), None)];
    for send in [rendezvous(1, 0), written(1, 0)] {
        holds_behind_writes(1_000, &[vec![send], receives.clone()], usual.clone(), breaks());
    }
    holds_behind_writes(8_000, &[vec![copied(1, 0)], receives], vec![BREAK], usual);
    if is_long() {
        let receives = vec![receive(None, None), receive(Some(0), None)];
        holds_behind_writes(1_000, &[vec![written(1, 0), eager(1, 0)], receives], vec![], breaks());
        holds(1_000, &[vec![pipeline(1, 0)], vec![receive(Some(0), None)]], vec![], breaks());
    }
}

#[test]
fn a_connection_that_breaks_under_a_matched_probe() {
    let probe = Op::Probe { pattern: pattern(None, None), takes: true };
    for send in [rendezvous(1, 0), written(1, 0)] {
        holds(1_000, &[vec![send], vec![probe, receive(None, None)]], vec![BREAK], breaks());
    }
}

#[test]
fn a_pipeline_and_two_receives() {
    let receives = vec![receive(Some(0), None), receive_into(None, Some(0))];
    holds(1_000, &[vec![pipeline(1, 0)], receives], vec![NOTHING], troubles(1));
}

#[test]
fn a_written_rendezvous_and_two_receives() {
    let receives = vec![receive(Some(0), None), receive_into(None, Some(0))];
    holds(8_000, &[vec![written(1, 0)], receives], troubles(1), troubles(2));
}

#[test]
fn two_written_rendezvous() {
    let receives = vec![receive(Some(0), None), receive(None, Some(0))];
    holds(60_000, &[vec![written(1, 0), written(1, 0)], receives], vec![NOTHING], troubles(1));
}

#[test]
fn a_written_rendezvous_and_one_that_is_read() {
    let receives = vec![receive(Some(0), None)];
    holds(2_000, &[vec![written(1, 0), rendezvous(1, 0)], receives], troubles(1), troubles(2));
}

#[test]
fn a_written_rendezvous_against_another() {
    let against = |other| [vec![written(1, 0), receive(Some(1), None)], vec![other, receive(None, None)]];
    holds(13_000, &against(rendezvous(0, 0)), vec![NOTHING], vec![NOTHING]);
    if is_long() {
        holds(80_000, &against(written(0, 0)), vec![NOTHING], vec![NOTHING]);
    }
}

#[test]
fn a_matched_probe_of_a_written_message() {
    let probe = Op::Probe { pattern: pattern(None, None), takes: true };
    holds(1_000, &[vec![written(1, 0)], vec![probe, receive(None, None)]], troubles(1), troubles(2));
}

#[test]
fn messages_of_a_rank_to_itself() {
    let program = vec![rendezvous(0, 0), synchronous(0, 1), receive(Some(0), None), receive_into(None, Some(0))];
    holds(13_000, &[program], troubles(2), troubles(2));
}

#[test]
fn a_rendezvous_and_an_eager_message() {
    let receives = vec![receive(Some(0), None), receive_into(None, Some(0))];
    holds(4_500, &[vec![rendezvous(1, 0), eager(1, 0)], receives], vec![NOTHING], troubles(1));
}

#[test]
fn a_rendezvous_in_both_directions() {
    let usual = vec![NOTHING, Budget { fails: 1, ..NOTHING }];
    let programs = [vec![rendezvous(1, 0), receive(Some(1), None)], vec![rendezvous(0, 0), receive(None, None)]];
    holds(10_000, &programs, usual, troubles(1));
}

#[test]
fn messages_of_two_ranks_to_a_third() {
    let usual = vec![NOTHING, Budget { closes: 1, ..NOTHING }];
    let programs = [vec![receive(None, None), receive(Some(2), None)], vec![eager(0, 1)], vec![rendezvous(0, 0)]];
    holds(10_000, &programs, usual, troubles(1));
}

#[test]
fn a_probe_and_a_matched_probe() {
    let usual = vec![NOTHING, Budget { drops: 1, ..NOTHING }];
    let probe = |takes| Op::Probe { pattern: pattern(None, Some(1)), takes };
    let programs = [vec![eager(1, 0), rendezvous(1, 1)], vec![probe(false), probe(true)]];
    holds(3_000, &programs, usual, troubles(1));
}

fn ops(ranks: u32) -> impl Strategy<Value = Op> {
    let mode = prop_oneof![
        (1..60_usize).prop_map(Mode::Eager),
        Just(Mode::Rendezvous),
        Just(Mode::Synchronous),
        Just(Mode::Write),
        Just(Mode::Pipeline),
        Just(Mode::Copy),
        Just(Mode::ZCopy)
    ];
    let patterns =
        (prop::option::of(0..ranks), prop::option::of(0..2_u32)).prop_map(|(source, tag)| pattern(source, tag));
    prop_oneof![
        6 => (0..ranks, 0..2_u32, mode).prop_map(|(to, tag, mode)| Op::Send { to, tag, mode }),
        1 => (0..ranks, 2..5_u64).prop_map(|(to, count)| Op::Sends { to, count }),
        5 => (patterns.clone(), any::<bool>()).prop_map(|(pattern, has_slice)| Op::Receive { pattern, has_slice }),
        1 => (patterns, any::<bool>()).prop_map(|(pattern, takes)| Op::Probe { pattern, takes }),
    ]
}

fn setups() -> impl Strategy<Value = Setup> {
    let budgets = (0..40_u32, 0..8_u32, 0..3_u32, 0..3_u32, 0..2_u32, 0..2_u32, 0..2_u32).prop_map(
        |(busy, drops, fails, refusals, closes, deaths, breaks)| Budget {
            busy,
            drops,
            fails,
            refusals,
            closes,
            deaths: deaths * (1 - breaks),
            breaks,
        },
    );
    let programs = (2..5_u32)
        .prop_flat_map(|ranks| prop::collection::vec(prop::collection::vec(ops(ranks), 0..25), ranks as usize));
    (programs, 9..16_u32, budgets).prop_map(|(programs, window, budget)| Setup {
        programs,
        window,
        tokens: 1 + budget.busy % 2,
        follows: budget.busy % 4 > 1,
        budget,
        plant: Plant::None,
    })
}

proptest! {
    /// Random programs, in a random order.
    #[test]
    fn random_programs(setup in setups(), choices in prop::collection::vec(0..1_000_usize, 0..1_000)) {
        let path = choices.into_iter().map(|choice| (choice, 0)).collect();
        let mut world = World::new(&setup, Choices { path, at: 0, is_over: false });
        while world.step() {}
        world.finish();
    }
}
