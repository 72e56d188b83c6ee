//! Two ranks whose hellos are lost, doubled and late, in every order: [`take`] and [`ask`] as they run on cards.

use std::cell::{Cell, RefCell};
use std::collections::hash_map::{DefaultHasher, Entry};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault};

use proptest::prelude::*;

use super::*;
use crate::verbs::connector::ROOM;

/// What a rank knows of the connection, and what its connector does.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
struct Rank {
    phase: u32,
    broken: u32,
    generation: u64,
    heard: u64,
    wish: u32,
    kept: u32,
    pairs: Pairs,
    /// Whether it asks, and says that it gives the connection back, again and again.
    asks: bool,
    says_wish: bool,
    has_posted: bool,
    has_room: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    ranks: [Rank; 2],
    /// Those to each rank.
    hellos: [BTreeSet<Vec<u8>>; 2],
    /// How many of them there are at most; of more the last is lost.
    on_their_way: usize,
    next_pair: u32,
    /// How often a connection still breaks, is given back, and the room for one changes.
    breaks: u32,
    gives: u32,
    rooms: u32,
    /// How often a rank still asks again after a refusal.
    again: u32,
}

#[derive(Clone, Copy, Debug)]
struct Kind {
    is_limited: bool,
    renews: bool,
    /// Whether it matters what was posted.
    is_used: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Want,
    Again,
    Ask,
    Take(Vec<u8>),
    Give,
    SayWish,
    Post,
    Break,
    Renew,
    Room,
}

/// A rank that does something.
struct Acting<'w> {
    kind: Kind,
    connection: Connection,
    rank: RefCell<&'w mut Rank>,
    next_pair: Cell<u32>,
}

impl Acting<'_> {
    fn end_it(&self) {
        self.connection.end(&mut lock(&self.connection.pairs));
    }
}

impl End for Acting<'_> {
    fn connection(&self) -> &Connection {
        &self.connection
    }

    fn is_alive(&self) -> bool {
        true
    }

    fn is_revoked(&self) -> bool {
        false
    }

    fn is_limited(&self) -> bool {
        self.kind.is_limited
    }

    fn is_of_one(&self, _: &Hello) -> bool {
        true
    }

    fn may_lack_a_pair(&self) -> bool {
        false
    }

    fn pair(&self, pairs: &mut Pairs) -> Option<u32> {
        if pairs.own.is_none() && self.rank.borrow().has_room {
            self.next_pair.set(self.next_pair.get() + 1);
            pairs.own = Some(self.next_pair.get());
            self.connection.forget_refusal();
        }
        pairs.own
    }

    fn connect(&self, _: &Hello) -> bool {
        true
    }

    fn end(&self) {
        self.end_it();
    }

    fn count_refusal(&self) {}

    fn count_made(&self) {}

    fn fail(&self) {
        self.connection.give_up(false);
    }

    fn begins_anew(&self, generation: u64) -> bool {
        let may = self.kind.renews && is_after_break(generation, self.connection.generation());
        if may {
            self.connection.hear(generation);
            self.connection.give_up_before(generation);
        }
        may
    }

    fn may_spare(&self) -> bool {
        !std::mem::take(&mut self.rank.borrow_mut().has_posted)
    }

    fn agree(&self) -> bool {
        self.connection.begin_to_give(true, || Some(()))
    }

    fn give_back(&self) {
        if self.connection.gives().is_some() && !self.connection.is_broken() {
            self.end_it();
        }
    }

    fn want(&self) {
        self.rank.borrow_mut().asks |= self.connection.ask();
    }

    fn ring(&self) {}
}

impl World {
    fn new((breaks, gives, rooms): (u32, u32, u32), on_their_way: usize) -> Self {
        let rank = || Rank { has_room: true, ..Rank::default() };
        let hellos = Default::default();
        Self { ranks: [rank(), rank()], hellos, on_their_way, next_pair: 0, breaks, gives, rooms, again: rooms }
    }

    /// What a rank does, and what it says then.
    fn act(&mut self, kind: Kind, me: usize, run: impl FnOnce(&Acting<'_>) -> Option<Hello>) {
        let connection = {
            let rank = &self.ranks[me];
            Connection {
                phase: rank.phase.into(),
                broken: rank.broken.into(),
                noticed: 0.into(),
                generation: rank.generation.into(),
                heard: rank.heard.into(),
                wish: rank.wish.into(),
                kept: rank.kept.into(),
                pairs: rank.pairs.into(),
            }
        };
        let next_pair = Cell::new(self.next_pair);
        let acting = Acting { kind, connection, rank: RefCell::new(&mut self.ranks[me]), next_pair };
        let said = run(&acting);
        let Acting { connection, rank, next_pair, .. } = acting;
        let rank = rank.into_inner();
        let Connection { phase, broken, noticed: _, generation, heard, wish, kept, pairs } = connection;
        rank.phase = phase.into_inner();
        rank.broken = broken.into_inner();
        rank.generation = generation.into_inner();
        rank.heard = heard.into_inner();
        rank.wish = wish.into_inner();
        rank.kept = kept.into_inner();
        rank.pairs = pairs.into_inner().unwrap();
        self.next_pair = next_pair.get();
        if let Some(hello) = said
            && self.hellos[1 - me].len() < self.on_their_way
        {
            let hello = Hello { magic: crate::verbs::hello::MAGIC, ..hello };
            self.hellos[1 - me].insert(hello.write(&mut [0; ROOM.longest as usize]).into());
        }
    }

    fn phase(&self, me: usize) -> Phase {
        Phase::ALL[self.ranks[me].phase as usize]
    }

    fn works(&self, me: usize) -> bool {
        self.phase(me) == Phase::Ready && self.ranks[me].broken == 0
    }

    fn are_connected(&self) -> bool {
        let [one, other] = [&self.ranks[0].pairs, &self.ranks[1].pairs];
        one.own.is_some() && one.own == other.theirs && one.theirs == other.own
    }

    fn steps(&self, kind: Kind, me: usize) -> Vec<Step> {
        let rank = &self.ranks[me];
        let mut steps: Vec<_> = self.hellos[me].iter().cloned().map(Step::Take).collect();
        let may: [(Step, bool); 9] = [
            (Step::Want, self.phase(me) == Phase::Absent),
            (Step::Again, self.again > 0 && self.phase(me) == Phase::Refused),
            (Step::Ask, rank.asks),
            (Step::Give, self.gives > 0 && self.works(me)),
            (Step::SayWish, rank.says_wish),
            (Step::Post, kind.is_used && self.works(me) && !rank.has_posted),
            (Step::Break, self.breaks > 0 && rank.pairs.theirs.is_some() && rank.broken == 0),
            (Step::Renew, rank.broken != 0 && kind.renews),
            (Step::Room, self.rooms > 0),
        ];
        steps.extend(may.into_iter().filter(|(_, may)| *may).map(|(step, _)| step));
        steps
    }

    fn take_step(&mut self, kind: Kind, me: usize, step: &Step) {
        match step {
            Step::Want => self.act(kind, me, |acting| {
                acting.want();
                None
            }),
            Step::Again => {
                self.again = self.again.saturating_sub(1);
                self.act(kind, me, |acting| {
                    acting.connection.forget_refusal();
                    acting.want();
                    None
                });
            }
            Step::Ask => {
                let mut goes_on = true;
                self.act(kind, me, |acting| {
                    let asks = ask(acting);
                    goes_on = asks.is_some();
                    asks
                });
                self.ranks[me].asks = goes_on;
            }
            Step::Take(bytes) => {
                self.hellos[me].remove(bytes);
                let hello = Hello::read(bytes).unwrap();
                self.act(kind, me, |acting| (!hello.waits).then(|| take(acting, &hello)).flatten());
            }
            Step::Give => {
                self.gives -= 1;
                let mut gives = false;
                self.act(kind, me, |acting| {
                    gives = acting.connection.begin_to_give(false, || Some(()));
                    None
                });
                self.ranks[me].says_wish = gives;
            }
            Step::SayWish => {
                let mut goes_on = true;
                self.act(kind, me, |acting| {
                    let connection = &acting.connection;
                    let gives = connection.gives().filter(|_| !connection.is_broken());
                    goes_on = gives.is_some();
                    Some(Hello { generation: connection.generation(), gives: gives?, ..Hello::default() })
                });
                self.ranks[me].says_wish = goes_on;
            }
            Step::Post => self.ranks[me].has_posted = true,
            Step::Break => {
                self.breaks -= 1;
                self.ranks[me].broken = ibv_wc_status::IBV_WC_WR_FLUSH_ERR;
            }
            Step::Renew => self.act(kind, me, |acting| {
                acting.end_it();
                None
            }),
            Step::Room => {
                self.rooms -= 1;
                self.ranks[me].has_room ^= true;
            }
        }
    }

    /// Whether a rank that may post finds the peer's queue pair, unless that broke.
    fn is_whole(&self, me: usize) -> bool {
        let [mine, theirs] = [&self.ranks[me], &self.ranks[1 - me]];
        let is_broken = theirs.broken != 0 || is_after_break(theirs.generation, mine.generation);
        !self.works(me) || self.are_connected() || is_broken
    }

    /// What is wrong with it.
    fn fault(&self, kind: Kind) -> Option<&'static str> {
        // A connection that broke for good is no end of this.
        let is_over = !kind.renews && self.ranks.iter().any(|rank| rank.broken != 0);
        match self.is_whole(0) && self.is_whole(1) {
            false => Some("a rank may post, and its peer has no queue pair for that"),
            true if is_over || self.comes_to_work(kind) => None,
            true => Some("they never come to work"),
        }
    }

    /// Whether both can post to each other in the end, if nothing more happens and both have something to say.
    fn comes_to_work(&self, kind: Kind) -> bool {
        let mut world = self.clone();
        (world.breaks, world.gives, world.rooms) = (0, 0, 0);
        (world.on_their_way, world.again) = (usize::MAX, u32::MAX);
        world.ranks.iter_mut().for_each(|rank| rank.has_room = true);
        for _ in 0..30 {
            if world.works(0) && world.works(1) {
                return world.are_connected();
            }
            for me in [0, 1] {
                for step in [Step::Renew, Step::Want, Step::Again, Step::Ask, Step::SayWish] {
                    if world.steps(kind, me).contains(&step) {
                        world.take_step(kind, me, &step);
                    }
                }
            }
            for me in [0, 1] {
                for hello in world.hellos[me].clone() {
                    world.take_step(kind, me, &Step::Take(hello));
                }
            }
        }
        false
    }
}

/// Explores what two ranks do, and says how many states there are.
fn explore(kind: Kind, budget: (u32, u32, u32), on_their_way: usize) -> usize {
    let name = |world: &World| BuildHasherDefault::<DefaultHasher>::default().hash_one(world);
    let first = World::new(budget, on_their_way);
    let mut before: HashMap<u64, (u64, usize, Step)> = HashMap::from([(name(&first), (0, 0, Step::Want))]);
    let mut next = VecDeque::from([first]);
    while let Some(world) = next.pop_front() {
        let this = name(&world);
        if let Some(why) = world.fault(kind) {
            let (mut at, mut steps) = (this, vec![format!("{world:?}")]);
            while let Some((earlier, me, step)) = before.get(&at).filter(|(earlier, ..)| *earlier != 0) {
                steps.push(format!("{me}: {step:?}"));
                at = *earlier;
            }
            steps.reverse();
            panic!("{kind:?} {budget:?}: {why} after\n{}", steps.join("\n"));
        }
        for me in [0, 1] {
            for step in world.steps(kind, me) {
                let mut then = world.clone();
                then.take_step(kind, me, &step);
                if let Entry::Vacant(new) = before.entry(name(&then)) {
                    new.insert((this, me, step));
                    next.push_back(then);
                }
            }
        }
    }
    before.len()
}

const PLAIN: Kind = Kind { is_limited: false, renews: true, is_used: false };

#[test]
fn connections_are_made_broken_and_given_back() {
    let used = Kind { is_used: true, ..PLAIN };
    let limited = Kind { is_limited: true, renews: false, is_used: false };
    let long = std::env::var_os("ONESIDED_LONG").is_some();
    for (kind, budget) in [(PLAIN, (1, 0, 0)), (used, (0, 1, 0)), (PLAIN, (1, 1, 0)), (limited, (0, 0, 2))] {
        let on_their_way = if long && budget != (1, 1, 0) { 2 } else { 1 };
        let states = explore(kind, budget, on_their_way);
        assert!(states > 3000, "{kind:?} {budget:?}: {states} states");
    }
}

proptest! {
    /// The same with more hellos on their way and more breaks, not in every order.
    #[test]
    fn connections_are_made_whatever_happens(
        is_limited: bool,
        renews: bool,
        steps in prop::collection::vec((0..2_usize, any::<prop::sample::Index>()), 0..300),
    ) {
        let kind = Kind { is_limited, renews, is_used: true };
        let mut world = World::new((if renews { 9 } else { 0 }, 9, if is_limited { 9 } else { 0 }), 4);
        for (me, chosen) in steps {
            let may = world.steps(kind, me);
            if !may.is_empty() {
                let step = chosen.get(&may);
                world.take_step(kind, me, step);
                let fault = world.fault(kind);
                prop_assert!(fault.is_none(), "{} by {me}: {step:?}\n{world:?}", fault.unwrap_or_default());
            }
        }
    }
}
