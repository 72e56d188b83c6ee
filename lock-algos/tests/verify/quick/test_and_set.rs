use crate::right::right;

#[test]
fn searched() {
    super::search(&right());
    super::search(&right().checked());
}

#[test]
fn checked() {
    super::check(&right(), 2);
}
