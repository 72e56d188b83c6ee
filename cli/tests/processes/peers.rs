//! `onesided bench peers` without its peers, and with the results of earlier runs.

use std::fs;

use serde_json::Value;

use crate::bench::{Folder, measured};
use crate::support::{finish, onesided};

#[test]
fn a_stored_comparison_is_told_and_drawn_again() {
    let folder = Folder::new();
    let stored = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/peers.json");
    let [json, picture] = ["again.json", "picture.svg"].map(|name| folder.path(name).to_str().unwrap().to_owned());
    let ended = finish(&mut onesided(&["bench", "peers", "--from", stored, "--json", &json, "--picture", &picture]));
    assert_eq!(ended.code(), 0, "{ended:?}");
    for benchmark in ["lock + put 8 B + unlock", "put + flush, 1 MiB", "lock + unlock, contended, 8"] {
        assert!(ended.stdout.iter().any(|line| line.starts_with(benchmark)), "{benchmark}: {ended:?}");
    }
    let read = |path: &str| serde_json::from_str::<Value>(&fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(read(&json), read(stored));
    assert!(fs::read_to_string(picture).unwrap().starts_with("<svg xmlns="));
    for (wrong, text) in [("no.json", None), ("empty.json", Some("{}"))] {
        let wrong = folder.path(wrong);
        if let Some(text) = text {
            fs::write(&wrong, text).unwrap();
        }
        let ended = finish(&mut onesided(&["bench", "peers", "--from", wrong.to_str().unwrap()]));
        assert!(ended.code() == 1 && ended.stderr.contains(wrong.to_str().unwrap()), "{ended:?}");
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    }
}

#[test]
fn peers_that_cannot_be_had_are_left_out() {
    for (suite, peers) in [
        ("windows", &["MPICH", "Open MPI"][..]),
        ("messages", &["MPICH", "Open MPI", "UCX"]),
        ("collectives", &["MPICH", "Open MPI"]),
        ("overlap", &["MPICH", "Open MPI"]),
    ] {
        let folder = Folder::new();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_onesided"));
        command.args(["bench", "peers", "--trial", "--suite", suite, "--folder"]).arg(folder.path("peers"));
        let sockets = folder.path("sockets");
        fs::create_dir(&sockets).unwrap();
        command.env("PATH", "/nonexistent").env("TMPDIR", &sockets);
        let (ended, document) = measured(&mut command);
        for peer in peers {
            let why = match *peer {
                "UCX" => "ucx_perftest: No such file or directory (os error 2) (Debian: apt install ucx-utils)",
                _ => "python3 was not found (Debian: apt install python3-venv)",
            };
            let line = format!("onesided: {peer} is left out: {why}");
            assert_eq!(ended.stderr.lines().filter(|said| **said == *line).count(), 1, "{ended:?}");
        }
        check_alone(&document);
        assert_eq!(fs::read_dir(sockets).unwrap().count(), 0, "the sockets are removed");
        let of = |benchmark: &str, size: u64| {
            let is_it = |result: &&Value| result["benchmark"] == benchmark && result["size"] == size;
            document["results"].as_array().unwrap().iter().filter(is_it).count()
        };
        if suite == "collectives" {
            // Of 2 ranks and of 4.
            assert_eq!((of("all_reduce", 8), of("broadcast", 1 << 20)), (2, 2), "{document}");
        }
        if suite == "overlap" {
            // In each progress mode.
            let held = "sender held, late receiver";
            assert_eq!((of("both compute, receiver", 1 << 20), of(held, 1 << 20)), (4, 4), "{document}");
        }
        if suite == "messages" {
            for size in [8, 64, 512, 2 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20] {
                assert_eq!((of("ping-pong", size), of("stream", size)), (1, 1), "{size}: {document}");
            }
            assert_eq!(of("all unexpected", 8), 1, "{document}");
        }
    }
}

/// Checks the results without any peer.
fn check_alone(document: &Value) {
    let results = document["results"].as_array().unwrap();
    assert!(results.len() > 15, "{document}");
    for result in results {
        let values = result["values"].as_object().unwrap();
        assert!(
            values.contains_key("onesided") && values.keys().all(|name| ["onesided", "limit"].contains(&&**name)),
            "{result}"
        );
        let number = |name: &str| result["values"]["onesided"][name].as_f64().unwrap();
        assert!(
            0.0 <= number("min") && number("min") <= number("median") && number("median") <= number("max"),
            "{result}"
        );
    }
}
