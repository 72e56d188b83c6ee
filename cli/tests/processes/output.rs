//! The ranks' output.

use std::io::Write;
use std::process::Stdio;

use crate::support::{finish, onesided, script};

#[test]
fn lines_of_eight_ranks_are_whole_and_told_apart() {
    // Each line in many writes, concurrently with seven others.
    let ended = finish(&mut script(
        &["-n", "8"],
        "i=0; while [ $i -lt 100 ]; do for word in a b c d; do printf '%s' \"$word-$i \"; done; echo end; i=$((i+1)); done",
    ));
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert_eq!(ended.stdout.len(), 800);
    for rank in 0..8 {
        let label = format!("[{rank}] ");
        let lines: Vec<_> = ended.stdout.iter().filter_map(|line| line.strip_prefix(&label)).collect();
        let wanted: Vec<_> = (0..100).map(|i| format!("a-{i} b-{i} c-{i} d-{i} end")).collect();
        assert_eq!(lines, wanted);
    }
}

#[test]
fn both_streams_a_last_line_without_end_and_raw_bytes() {
    let raw = onesided(&["run", "-n", "2", "--", "sh", "-c", "printf 'o\\377\\n'; printf e >&2"]).output().unwrap();
    let mut lines: Vec<_> = raw.stdout.split_inclusive(|byte| *byte == b'\n').collect();
    lines.sort();
    assert_eq!(lines, [b"[0] o\xff\n", b"[1] o\xff\n"]);
    let mut lines: Vec<_> = raw.stderr.split_inclusive(|byte| *byte == b'\n').collect();
    lines.sort();
    assert_eq!(lines, [b"[0] e\n", b"[1] e\n"]);
}

#[test]
fn labels_are_for_several_ranks_unless_asked_otherwise() {
    let stdout = |options: &[&str]| finish(&mut script(options, "echo x")).stdout;
    assert_eq!(stdout(&["-n", "1"]), ["x"]);
    assert_eq!(stdout(&["-n", "1", "-l"]), ["[0] x"]);
    assert_eq!(stdout(&["-n", "2", "--no-label"]), ["x", "x"]);
    assert_eq!(stdout(&["-n", "2", "--no-prefix"]), ["x", "x"]);
}

#[test]
fn rank_0_reads_standard_input_and_the_others_nothing() {
    let mut command = onesided(&["run", "-n", "3", "cat"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"to the first\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"[0] to the first\n"[..]));
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let mut command = script(&["-n", "2"], "echo x");
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = command.stdout(full).stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("onesided: the ranks' output cannot be written: No space left on device"), "{said}");
}

/// The ranks get SIGPIPE, as without a launcher.
#[test]
fn output_that_nobody_reads_ends_the_job() {
    let mut command = script(&["-n", "2"], "while :; do echo x; done");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(128 + 13));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("SIGPIPE"), "{said}");
}

#[test]
fn last_lines_of_what_a_rank_left_running_are_printed() {
    let ended = finish(&mut script(&["-n", "2"], "(sleep 0.2; echo late) & exit 0"));
    assert_eq!((ended.code(), ended.stdout.len()), (0, 2), "{ended:?}");
}

#[test]
fn errors_that_nobody_reads_are_no_crash() {
    let mut child = script(&["-n", "2"], "exit 9").stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

/// What ranks report of their messages is taken out of their lines, and added up at the end.
#[test]
fn statistics_of_ranks_are_one_table() {
    let says =
        "echo before >&2; echo \"onesided: statistics: lane eager 64 ${ONESIDED_STATISTICS} 24\" >&2; echo after >&2";
    for ranks in ["1", "3"] {
        let (labelled, sum) = if ranks == "1" { (["before", "after"], 1) } else { (["[2] before", "[2] after"], 3) };
        let ended = finish(&mut script(&["-n", ranks, "--statistics"], says));
        assert_eq!(ended.code(), 0, "{ended:?}");
        let row =
            ["lane".to_owned(), "eager".into(), "<=".into(), "64".into(), sum.to_string(), (24 * sum).to_string()];
        let lines: Vec<_> = ended.stderr.lines().collect();
        assert!(lines.iter().any(|line| line.split_whitespace().eq(&row)), "{ended:?}");
        assert!(labelled.iter().all(|line| lines.contains(line)), "{ended:?}");
        assert_eq!(lines.len(), 2 * sum + 2, "{ended:?}");
        let ended = finish(&mut script(&["-n", ranks, "--statistics", "--json"], says));
        let json: serde_json::Value = serde_json::from_str(ended.stderr.lines().last().unwrap()).unwrap();
        let row =
            serde_json::json!([{"channel": "lane", "what": "eager", "at_most": 64, "count": sum, "bytes": 24 * sum}]);
        assert_eq!(json, row, "{ended:?}");
    }
    let ended = finish(&mut script(&["-n", "1", "--json"], says));
    assert_ne!(ended.code(), 0, "{ended:?}");
}
