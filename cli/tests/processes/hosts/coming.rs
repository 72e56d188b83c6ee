//! Hosts of `onesided run --hosts` that are this one twice.

use crate::support::{finish, onesided};

#[test]
fn this_host_by_two_names_is_refused() {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let ended = finish(&mut onesided(&["run", "--hosts", &format!("localhost:1,{name}:1"), "-n", "2", "--", "true"]));
    assert!(ended.code() != 0 && ended.stderr.contains("this host"), "{ended:?}");
}
