use crate::right::queue;
use onesided_lock_kit::{Search, Setting};

#[test]
fn searched() {
    super::search(&queue::<15, 16>());
    super::search(&queue::<2, 1>());
}

/// A waiter that is not notified waits without end.
#[test]
fn searched_without_time() {
    let setting = Setting { timeless: true, ..Setting::USUAL };
    Search::of(&queue::<15, 16>()).setting(setting).seed(1).cases(300).run();
    Search::of(&queue::<2, 1>()).setting(setting).seed(1).cases(300).run();
    Search::of(&queue::<15, 1>()).setting(setting).seed(1).cases(3000).run();
    Search::of(&queue::<15, 2>()).setting(setting).seed(1).cases(3000).run();
}

#[test]
fn checked() {
    super::check(&queue::<15, 16>(), 2);
}
