//! Every schedule up to a bound, with crashes, lost replies and stops, by the kit's checker.

use lock_algos::LockAlgorithm;
use lock_kit::wrong::{mcs, right, ticket};
use lock_kit::{Checker, Explored, Round};

use crate::explored::{S, X};

fn check<A: LockAlgorithm + Clone>(what: &str, checker: Checker<A>, programs: &[&[Round]]) -> Explored {
    let start = std::time::Instant::now();
    let explored = match checker.verdict(programs) {
        Ok(e) => e,
        Err(e) => {
            eprintln!("{what} FAILED {e}");
            return Explored::default();
        }
    };
    eprintln!("{} {what}: {explored} {:?}", A::NAME, start.elapsed());
    explored
}

#[test]
fn one() {
    check("1", Checker::of(&right()), &[&[X]]);
    eprintln!("{:?}", Checker::of(&right()).replay(&[&[X]], &[0; 20]));
}

#[test]
fn try_it() {
    fn all<A: LockAlgorithm + Clone>(lock: &A) {
        let c = Checker::of(lock);
        check("2 XX", c.clone(), &[&[X], &[X]]);
        check("2 XX,XX", c.clone(), &[&[X, X], &[X, X]]);
        check("2 XS,SX", c.clone(), &[&[X, S], &[S, X]]);
        check("crash XX", c.clone().crashes(1), &[&[X], &[X]]);
        check("crash XX,X", c.clone().crashes(1), &[&[X, X], &[X]]);
        check("crash XS", c.clone().crashes(1), &[&[X], &[S]]);
        check("loss XX", c.clone().losses(1), &[&[X], &[X]]);
        check("loss XS", c.clone().losses(1), &[&[X], &[S]]);
        check("stop XX", c.clone().stops(1), &[&[X], &[X]]);
        check("stop+crash XX", c.clone().stops(1).crashes(1), &[&[X], &[X]]);
        check("3", c.clone().at_most(300_000), &[&[X.touching(0)], &[X.touching(0)], &[X.touching(0)]]);
    }
    all(&right());
    all(&ticket::<15>());
    all(&mcs());
}
