//! The locks that a thread at the target serves, that thread beside the origins.

use lock_algos::{DedicatedThread, EventThread};
use lock_kit::Search;

#[test]
fn searched() {
    Search::of(&EventThread::default()).cases(1500).run();
    Search::of(&DedicatedThread::default()).cases(1500).run();
    Search::of(&EventThread::default()).deaths().cases(3000).run();
}
