//! Hosts of `onesided run --hosts` that are this one twice, or come late.

use crate::hosts::launch::Rsh;
use crate::support::{finish, onesided};

#[test]
fn this_host_by_two_names_is_refused() {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let ended = finish(&mut onesided(&["run", "--hosts", &format!("localhost:1,{name}:1"), "-n", "2", "--", "true"]));
    assert!(ended.code() != 0 && ended.stderr.contains("this host"), "{ended:?}");
}

#[test]
fn a_host_that_comes_late_is_no_silence_of_the_others() {
    let rsh = Rsh::new("[ $host = a ] || sleep 2; sh -c \"$*; exit \\$?\"");
    let mut command = rsh.script("a:1,b:1", "2", &[], "echo $ONESIDED_RANK");
    let mut ended = finish(command.env("ONESIDED_SUSPECT_AFTER", "1"));
    ended.stdout.sort();
    assert_eq!((ended.code(), ended.stdout), (0, ["[0] 0", "[1] 1"].map(str::to_owned).to_vec()), "{}", ended.stderr);
}
