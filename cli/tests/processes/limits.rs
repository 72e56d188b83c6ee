//! Too many, too few, too little.

use std::process::Command;

use crate::ranks::play;
use crate::support::{finish, onesided};

#[test]
fn no_ranks_is_a_usage_error() {
    for bad in ["0", "-1", "many", "4294967296"] {
        let ended = finish(&mut onesided(&["run", "-n", bad, "true"]));
        assert_eq!(ended.code(), 2, "{bad}: {ended:?}");
    }
    assert_eq!(finish(&mut onesided(&["run", "-n", "2"])).code(), 2);
    assert_eq!(finish(&mut onesided(&["run", "true"])).code(), 2);
}

#[test]
fn more_ranks_than_the_host_can_hold_are_refused_in_one_line() {
    for size in ["1000000", "4294967295"] {
        let ended = finish(&mut onesided(&["run", "-n", size, "true"]));
        assert_eq!((ended.code(), ended.stderr.lines().count()), (1, 1), "{ended:?}");
        assert!(ended.stderr.starts_with(&format!("onesided: start the job: {size} ranks need")), "{ended:?}");
    }
}

/// The same command under a shell's limit.
fn limited(limit: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{limit}; exec \"$@\""), "sh"]).arg(command.get_program()).args(command.get_args());
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell
}

#[test]
fn few_descriptors_are_a_typed_refusal_and_no_crash() {
    let ended = finish(&mut limited("ulimit -n 100", &onesided(&["run", "-n", "2", "true"])));
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert!(ended.stderr.contains("descriptors, the limit is 100"), "{ended:?}");

    let ended = finish(&mut limited("ulimit -n 160", &play(&["-n", "1"], "publish without end")));
    assert_eq!((ended.code(), &*ended.stderr), (0, ""), "{ended:?}");
    assert_eq!(
        ended.stdout,
        ["publish: ", "fetch: rank 0: "].map(|what| format!("{what}no file descriptors left (raise `ulimit -n`)"))
    );
}

#[test]
fn the_soft_limit_of_descriptors_is_raised() {
    let ended = finish(&mut limited("ulimit -Sn 64", &onesided(&["run", "-n", "1", "sh", "-c", "ulimit -Sn"])));
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(ended.stdout[0] == "unlimited" || ended.stdout[0].parse::<u64>().unwrap() > 64, "{ended:?}");
}
