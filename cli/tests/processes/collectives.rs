//! `onesided bench collectives`, `onesided bench overlap` and `onesided bench messages --layers`.

use serde_json::Value;

use crate::bench::measured;
use crate::support::onesided;

/// Collectives of 2 and of 4 ranks.
#[test]
fn collectives_are_measured_among_2_and_4_ranks() {
    let (ended, document) = measured(&mut onesided(&["bench", "collectives", "--trial"]));
    let results = document["results"].as_array().unwrap();
    for (benchmark, sizes) in [
        ("barrier", &[None][..]),
        ("all_reduce", &[Some(8), Some(1 << 20)]),
        ("broadcast", &[Some(8), Some(1 << 20)]),
        ("all_gather", &[Some(8), Some(64 << 10)]),
        ("all_to_all", &[Some(8), Some(64 << 10)]),
    ] {
        for (ranks, size) in [2, 4].into_iter().flat_map(|ranks| sizes.iter().map(move |size| (ranks, *size))) {
            let is_it = |result: &&Value| {
                result["benchmark"] == benchmark && result["ranks"] == ranks && result["size"].as_u64() == size
            };
            let found: Vec<_> = results.iter().filter(is_it).collect();
            assert!(found.len() == 1 && found[0]["value"].as_f64().unwrap() > 0.0, "{benchmark}: {document}");
        }
        assert!(ended.stdout.iter().any(|line| line.starts_with(benchmark)), "{ended:?}");
    }
}

/// Every mode, with what it is compared with where a rank computes.
#[test]
fn overlap_is_measured_in_every_mode() {
    let (ended, document) = measured(&mut onesided(&["bench", "overlap", "--trial"]));
    let results = document["results"].as_array().unwrap();
    for mode in ["polling", "interrupt", "thread", "hybrid", "polling, rput", "hybrid, rput"] {
        for (name, is_compared) in [
            ("sender held, receiver computes", false),
            ("receiver computes", true),
            ("receiver of a vector computes", true),
            ("sender held, late receiver", false),
            ("both compute, sender", true),
        ] {
            let benchmark = format!("{name}: {mode}");
            let found: Vec<_> = results.iter().filter(|result| result["benchmark"] == *benchmark).collect();
            assert!(found.len() == 1 && found[0]["value"].as_f64().unwrap() > 0.0, "{benchmark}: {document}");
            assert_eq!(found[0]["ratio"].is_null(), !is_compared, "{benchmark}: {document}");
            assert!(ended.stdout.iter().any(|line| line.starts_with(&benchmark)), "{ended:?}");
        }
        for size in [4, 4096] {
            for (what, is_positive) in [("latency", true), ("processor time", true), ("wake-ups", false)] {
                let benchmark = format!("{what} of a message of {size} B: {mode}");
                let found: Vec<_> = results.iter().filter(|result| result["benchmark"] == *benchmark).collect();
                let value = found[0]["value"].as_f64().unwrap();
                assert!(found.len() == 1 && (value > 0.0 || !is_positive && value == 0.0), "{benchmark}: {document}");
            }
        }
        let woken = format!("wake-ups, receiver computes: {mode}");
        assert_eq!(results.iter().filter(|result| result["benchmark"] == *woken).count(), 1, "{document}");
        assert!(ended.stdout.iter().any(|line| line.starts_with(&woken)), "{ended:?}");
    }
}

/// Each layer is compared with the bare loop, and what it adds with nothing.
#[test]
fn layers_of_messages_are_measured() {
    let (_, document) = measured(&mut onesided(&["bench", "messages", "--layers", "--trial"]));
    let results = document["results"].as_array().unwrap();
    for (layer, adds) in [("packets", "packets add"), ("messages", "messages add")] {
        for (size, bare) in [(8, "stores"), (512, "memcpy")] {
            let of = |benchmark: &str| {
                let is_it = |result: &&Value| result["benchmark"] == benchmark && result["size"] == size;
                results.iter().find(is_it).unwrap_or_else(|| panic!("{benchmark}: {document}"))["compared_with"].clone()
            };
            assert_eq!(of(&format!("half a round trip: {layer}")), format!("{bare} beside {layer}"));
            assert_eq!(of(adds), Value::Null);
        }
    }
}
