use onesided_lock_kit::wrong::right;

#[test]
fn searched() {
    super::search(&right());
    super::search(&right().checked());
}

#[test]
fn checked() {
    super::check(&right(), 2);
}
