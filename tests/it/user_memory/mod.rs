//! Windows over user memory, between processes: by process_vm, and by the target's helper thread.

mod attached;
mod ends;
pub(crate) mod mapped;
mod operations;
mod overlapping;

use onesided::Window;
use onesided::info::Path;

use crate::jobs::{self, Role};

pub(crate) const ROLES: &[&[Role]] =
    &[attached::ROLES, ends::ROLES, mapped::ROLES, operations::ROLES, overlapping::ROLES];

/// With copies from process to process, where the system allows them, and without.
const BOTH: [(&str, &str); 2] = [("ONESIDED_PROCESS_VM", "on"), ("ONESIDED_PROCESS_VM", "off")];

#[track_caller]
pub(crate) fn all_go_well(ranks: u32, role: &str) {
    for path in BOTH {
        let ended = jobs::start_under(ranks, role, path).wait();
        assert_eq!((ended.code, ended.ok().len()), (0, ranks as usize), "{path:?}: {ended:?}");
    }
}

/// The path that puts and gets take here.
fn expected_path(window: &Window<u64>, target: u32) -> Path {
    let helper = std::env::var("ONESIDED_PROCESS_VM").is_ok_and(|word| word == "off");
    let works = onesided_fabric::shm::process_vm_works().is_ok();
    let path = if helper || !works { Path::Helper } else { Path::ProcessVm };
    let explained = window.explain(target);
    assert!(explained.contains(if path == Path::Helper { "helper thread" } else { "by process_vm" }), "{explained}");
    path
}
