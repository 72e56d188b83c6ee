use lock_algos::LockAlgorithm;
use lock_kit::wrong::{global, mcs, right, ticket};
use lock_kit::{Search, Setting};

use crate::Lost;

/// Owners without a node are refused.
fn search<A: LockAlgorithm + Clone>(lock: &A) {
    let search = Search::of(lock).all_have_nodes().seed(1).cases(200);
    search.clone().run();
    search.clone().deaths().run();
    search.setting(Setting { nodes: false, ..Setting::USUAL }).run();
}

#[test]
fn searched() {
    search(&global::<_, 15>(right()));
    search(&global::<_, 15>(ticket::<2>()));
    search(&global::<_, 15>(mcs()));
}

#[test]
fn searched_in_crowds() {
    search(&global::<_, 1>(right()));
    search(&global::<_, 2>(right()));
}

#[test]
fn checked() {
    crate::check(&global::<_, 15>(right()), Lost::Told, 2);
    crate::check(&global::<_, 1>(right()), Lost::Told, 2);
}
