use onesided_lock_kit::wrong::mcs;

use crate::Lost;

#[test]
fn searched() {
    crate::search(&mcs());
}

#[test]
fn checked() {
    crate::check(&mcs(), Lost::Settled, 2);
}
