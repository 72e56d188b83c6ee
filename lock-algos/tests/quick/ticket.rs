use lock_kit::wrong::ticket;

use crate::Lost;

#[test]
fn searched() {
    crate::search(&ticket::<15>());
    crate::search(&ticket::<2>());
}

#[test]
fn checked() {
    crate::check(&ticket::<15>(), Lost::Settled, 2);
    crate::check(&ticket::<2>(), Lost::Settled, 2);
}
