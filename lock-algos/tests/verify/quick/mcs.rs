use onesided_lock_kit::wrong::mcs;

use super::Lost;

#[test]
fn searched() {
    super::search(&mcs());
}

#[test]
fn checked() {
    super::check(&mcs(), Lost::Settled, 2);
}
