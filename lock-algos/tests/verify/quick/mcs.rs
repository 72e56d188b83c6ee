use onesided_lock_kit::wrong::mcs;

#[test]
fn searched() {
    super::search(&mcs());
}

#[test]
fn checked() {
    super::check(&mcs(), 2);
}
