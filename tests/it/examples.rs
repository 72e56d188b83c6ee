//! The examples as a user runs them: alone, as threads, as processes.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::SystemTime;

use crate::jobs;

/// The path of an example. `cargo test` builds the examples, `cargo test --test it` does not.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let path = profile.join("examples").join(name);
    if !is_fresh(&path) {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--example", name]).args((!cfg!(debug_assertions)).then_some("--release"));
        assert!(build.status().unwrap().success());
    }
    path
}

/// Whether a program is newer than all of its sources.
fn is_fresh(path: &Path) -> bool {
    let made = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let rule = std::fs::read_to_string(path.with_extension("d")).unwrap_or_default();
    rule.split(' ').skip(1).all(|from| made(Path::new(from.trim())) <= made(path)) && path.exists()
}

fn run(name: &str, args: &[OsString]) -> Output {
    Command::new(example(name)).args(args).stdin(Stdio::null()).output().unwrap()
}

/// The option that makes it run as four threads.
fn as_threads(args: &[OsString]) -> Vec<OsString> {
    [&["--threads".into(), "4".into()], args].concat()
}

/// Alone, as threads and as processes: the line that each of them says.
#[test]
fn examples_compute() {
    let bins = "[9999, 10000, 10000, 10000, 10000, 10000, 10001, 10000, 10000, 10000]";
    let all: [(&str, &dyn Fn(u64) -> String); 5] = [
        ("counter", &|ranks| format!("counted to {}, by atomic operations and under a lock", 1000 * ranks)),
        ("workers", &|_| "found 17984 primes below 200000".into()),
        ("ring", &|ranks| {
            let sum = 999_999 * ranks * (ranks + 1) / 2;
            format!("added 1000000 elements each: the last sum is {sum}")
        }),
        ("reductions", &|_| format!("have 100000 numbers: mean 0.500, deviation 0.289, {bins}")),
        ("async_tokio", &|ranks| format!("with 20 tasks each counted to {}", 200 * ranks)),
    ];
    for (name, said) in all {
        let text = |ranks| format!("{ranks} ranks {}\n", said(ranks)).into_bytes();
        assert_eq!(run(name, &[]).stdout, text(1), "{name}");
        assert_eq!(run(name, &as_threads(&[])).stdout, text(4), "{name}");
        let ended = jobs::start_program(4, example(name).as_os_str(), &[]).wait();
        assert_eq!((ended.code, &ended.output), (0, &text(4)), "{name}: {ended:#?}");
    }
}

#[test]
fn recipes_compute() {
    for (name, text) in [
        ("hash_map", "ranks added to 500 keys"),
        ("work_queue", "ranks computed the Fibonacci number 12: 144"),
        ("halo_exchange", "ranks computed 1000 steps of"),
        ("halo_2d", "ranks computed 200 steps of"),
    ] {
        let alone = run(name, &[]);
        assert!(alone.stdout.starts_with(format!("1 {text}").as_bytes()), "{alone:?}");
        let ended = jobs::start_program(4, example(name).as_os_str(), &[]).wait();
        assert!(ended.code == 0 && ended.output.starts_with(format!("4 {text}").as_bytes()), "{name}: {ended:#?}");
    }
}

#[test]
fn a_mutex_is_recovered() {
    for _ in 0..10 {
        let ended = jobs::start_program(4, example("recovered_mutex").as_os_str(), &[]).wait();
        let output = String::from_utf8_lossy(&ended.output);
        let mut lines: Vec<_> = output.lines().collect(); // those of two ranks come in any order
        lines.sort_unstable();
        assert_eq!(lines, ["3 transfers: [67, 33]", "rank 1 died while it held the lock"], "{ended:#?}");
        assert_eq!(ended.code, 3, "{ended:#?}"); // the status of the rank that died
        assert!(!ended.lines.iter().any(|line| line.starts_with("Error")), "{ended:#?}");
    }
}

#[test]
fn a_state_outlives_its_rank() {
    let ended = jobs::start_program(4, example("checkpoints").as_os_str(), &[]).wait();
    let output = String::from_utf8_lossy(&ended.output);
    assert_eq!(output, "rank 1 died after step 7, with [701, 701, 701, 701]\n", "{ended:#?}");
    assert_eq!(ended.code, 3, "{ended:#?}");
}

/// The result of standard tools. A file's end ends a word, so each file gets a line feed.
fn reference(files: &[OsString]) -> Vec<u8> {
    let pipeline = "for file; do cat -- \"$file\"; echo; done | LC_ALL=C tr '[:upper:]' '[:lower:]' | LC_ALL=C tr -cs '[:alpha:]' '\\n' | grep . |
        LC_ALL=C sort | uniq -c | LC_ALL=C sort -k1,1nr -k2,2";
    let output = Command::new("sh").args(["-c", pipeline, "sh"]).args(files).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    output.stdout
}

/// All three ways, compared with the standard tools.
fn counts_right(files: &[OsString]) {
    let expected = reference(files);
    assert!(run("word_count", files).stdout == expected, "alone");
    assert!(run("word_count", &as_threads(files)).stdout == expected, "as threads");
    let ended = jobs::start_program(4, example("word_count").as_os_str(), files).wait();
    assert!(ended.code == 0 && ended.output == expected, "as processes: {:#?}", ended.lines);
}

/// A folder that is removed with its test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("onesided-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> OsString {
        let path = self.0.join(name);
        std::fs::File::create(&path).unwrap().write_all(bytes).unwrap();
        path.into()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn words_of_nasty_files() {
    let folder = Folder::new("nasty");
    let mut random = 1_u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as u8
    };
    let binary: Vec<u8> = (0..100_000).map(|_| next()).collect();
    let long = vec![b'x'; 500_000]; // it spans all parts
    let mut letters: Vec<u8> = (0..60_000).map(|_| b'a' + next() % 26).collect();
    letters.iter_mut().step_by(7).for_each(|letter| *letter = b' '); // thousands of different words
    let files = [
        folder.file("empty", b""),
        folder.file("one letter", b"A"),
        folder.file("no letters", b"12 34\n--\n"),
        folder.file("no end of line", b"the End"),
        folder.file("apostrophes, umlauts and NUL", "don't na\u{ef}ve\0stra\u{df}e X\r\nx\u{a0}x".as_bytes()),
        folder.file("binary", &binary),
        folder.file("long", &long),
        folder.file("letters", &letters),
    ];
    counts_right(&files);
    let many: Vec<_> =
        (0..300).map(|number| folder.file(&number.to_string(), format!("word{number} and Many").as_bytes())).collect();
    counts_right(&many);
    counts_right(&many[..1]);
    counts_right(&[files[0].clone()]);
}

#[test]
fn files_that_cannot_be_read_end_every_rank() {
    let folder = Folder::new("missing");
    let missing = [folder.file("there", b"words"), folder.0.join("not there").into()];
    let text = format!("word_count: {}: No such file or directory (os error 2)", folder.0.join("not there").display());
    for args in [missing.to_vec(), as_threads(&missing)] {
        let output = run("word_count", &args);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
        assert_eq!(String::from_utf8_lossy(&output.stderr).trim_end(), text);
    }
    let ended = jobs::start_program(4, example("word_count").as_os_str(), &missing).wait();
    assert_eq!((ended.code, ended.output.len()), (1, 0));
    assert_eq!(ended.lines.iter().filter(|line| **line == text).count(), 4, "{ended:#?}");

    for (args, reason) in [(vec![folder.0.clone().into()], "not a regular file"), (vec![], "usage: word_count")] {
        let output = run("word_count", &args);
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains(reason), "{output:?}");
    }
}

#[test]
fn a_variable_that_is_not_text_is_refused() {
    for name in ["ONESIDED_FABRIC", "ONESIDED_LOCK", "ONESIDED_LOCK_ALL"] {
        let ended = Command::new(example("counter")).env(name, OsStr::from_bytes(b"\xff")).output().unwrap();
        assert!(!ended.status.success(), "{name}: {ended:?}");
        let text = String::from_utf8_lossy(&ended.stderr);
        assert!(text.contains('\u{fffd}') && text.contains(name), "{name}: {ended:?}");
    }
}
