//! perftest, the peer on verbs.

use std::fs;

/// Whether there is anything for it to be measured on, in a line.
pub(crate) fn note() -> String {
    let devices = fs::read_dir("/sys/class/infiniband").map_or(0, Iterator::count);
    if devices == 0 {
        return "perftest is left out: there is no RDMA device (scripts/soft-roce makes one; benches/verbs/run compares there)".to_owned();
    }
    "perftest is left out: benches/verbs/run compares with it".to_owned()
}
