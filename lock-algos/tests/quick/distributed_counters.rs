use lock_kit::wrong::distributed;

use crate::Lost;

#[test]
fn searched() {
    crate::search(&distributed::<15>());
    crate::search(&distributed::<2>());
}

#[test]
fn checked() {
    crate::check(&distributed::<15>(), Lost::Settled, 2);
}
