use onesided_lock_kit::wrong::right;

use crate::Lost;

#[test]
fn searched() {
    crate::search(&right());
    crate::search(&right().checked());
}

#[test]
fn checked() {
    crate::check(&right(), Lost::Settled, 2);
}
