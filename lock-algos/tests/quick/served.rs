use lock_algos::{DedicatedThread, EventThread};
use lock_kit::Search;

#[test]
fn searched() {
    Search::of(&EventThread::default()).seed(1).cases(300).run();
    Search::of(&EventThread::default()).deaths().seed(1).cases(300).run();
    Search::of(&DedicatedThread::default()).seed(1).cases(300).run();
}
