use onesided_lock_kit::wrong::right;

use super::Lost;

#[test]
fn searched() {
    super::search(&right());
    super::search(&right().checked());
}

#[test]
fn checked() {
    super::check(&right(), Lost::Settled, 2);
}
