//! A target's shared lock for a `lock_all`.

use onesided_fabric::Fabric;
use onesided_fabric::remote_memory::FaultKind;
use onesided_lock_algos::Mode;

use crate::handles::LockRequest;
use crate::passive::lock::PollHeld;
use crate::{Element, Epoch, Error};

/// The lock of a shared request, whose outcome may be there already. A reader that finds an expired
/// lease gets the lock exclusively and with a lease of its own, so it releases it immediately and
/// requests it again. Commits of the expired owner fail all the same.
pub(crate) async fn read_lock<'w, T: Element, F: Fabric>(
    mut request: LockRequest<'w, T, F>,
    mut first: Option<PollHeld<'w, T, F>>,
) -> Result<Epoch<'w, T, F>, Error> {
    let mut recovered = None;
    loop {
        let (again, failed) = (request.again(), request.failing());
        let (mut epoch, _) = match first.take() {
            Some(held) => held.map_err(&failed)?,
            None => request.held().await?,
        };
        // A lock of the program's own may have no shared mode.
        if epoch.mode() == Mode::Shared || epoch.previous_owner().is_none() {
            if let Some(inherited) = recovered.filter(|_| epoch.mode() == Mode::Shared) {
                epoch.set_previous(inherited);
            }
            return Ok(epoch.claim());
        }
        recovered = Some(epoch.holding());
        match epoch.released().await {
            // Nothing was done under the lock, so it does not matter whether its lease expired as well.
            Err(fault) if fault.kind() != FaultKind::NotHeld => return Err(failed(fault)),
            _ => request = again(),
        }
    }
}
