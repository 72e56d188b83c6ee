//! `onesided info`.

use crate::support::{finish, onesided};

#[test]
fn info_names_what_is_there() {
    let ended = finish(&mut onesided(&["info"]));
    assert_eq!(ended.code(), 0, "{ended:?}");
    for word in ["cores", "locked memory", "memfd", "pidfd", "shm", "verbs", "world of one"] {
        assert!(ended.stdout.iter().any(|line| line.contains(word)), "{word}: {ended:?}");
    }
}

#[test]
fn info_is_json_when_asked_and_knows_its_launcher() {
    let ended = finish(&mut onesided(&["run", "-n", "1", env!("CARGO_BIN_EXE_onesided"), "info", "--json"]));
    let info: serde_json::Value = serde_json::from_str(&ended.stdout.join("\n")).unwrap();
    assert_eq!(info["launcher"]["kind"], "onesided run");
    assert_eq!(info["launcher"]["rank"], 0);
    assert_eq!(info["launcher"]["size"], 1);
    assert!(info["machine"]["cores"].as_u64().unwrap() > 0);
    assert_eq!(info["fabrics"][0]["name"], "shm");
    assert_eq!(info["fabrics"][0]["available"], true);
}

#[test]
fn a_process_manager_is_seen() {
    let ended = finish(onesided(&["info"]).envs([("PMI_FD", "5"), ("PMI_RANK", "1"), ("PMI_SIZE", "3")]));
    assert!(ended.stdout.iter().any(|line| line.contains("PMI-1: rank 1 of 3")), "{ended:?}");
}

#[test]
fn the_way_to_other_hosts_is_looked_for() {
    let said = |rsh: &str, word: &str| {
        let ended = finish(onesided(&["info"]).env("ONESIDED_RSH", rsh));
        assert!(ended.stdout.iter().any(|line| line.contains(word)), "{ended:?}");
    };
    said("sh -c", "sh (`sh -c`)");
    said("no-such-shell -x", "\"no-such-shell -x\" is not there");
}

#[test]
fn half_an_environment_is_reported() {
    let ended = finish(onesided(&["info"]).env("ONESIDED_RANK", "0"));
    assert_eq!(ended.code(), 0);
    assert!(ended.stdout.iter().any(|line| line.contains("ONESIDED_SIZE is not set")), "{ended:?}");
}
