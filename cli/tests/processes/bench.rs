//! `onesided bench locks`: that it measures, not how fast anything is.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::support::{finish, onesided};

#[test]
fn locks_are_measured_and_reported() {
    let unique = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let file = std::env::temp_dir().join(format!("onesided-bench-{}-{unique}.json", std::process::id()));
    let ended = finish(&mut onesided(&["bench", "locks", "--quick", "-n", "2", "--json", file.to_str().unwrap()]));
    let json = std::fs::read_to_string(&file);
    let _ = std::fs::remove_file(&file);
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(ended.stderr.is_empty(), "no bar where there is no terminal: {ended:?}");

    let json: Value = serde_json::from_str(&json.unwrap()).unwrap();
    assert!(json["machine"]["cores"].as_u64().unwrap() > 0);
    let results = json["results"].as_array().unwrap();
    let fields = ["algorithm", "benchmark", "fabric", "limit", "metric", "ranks", "ratio", "unit", "value"];
    for result in results {
        let mut names: Vec<_> = result.as_object().unwrap().keys().collect();
        names.sort();
        assert_eq!(names, fields);
        for text in ["algorithm", "benchmark", "fabric", "metric", "unit"] {
            assert!(!result[text].as_str().unwrap().is_empty(), "{result}");
        }
        assert_eq!(result["ranks"], 2);
        let value = result["value"].as_f64().unwrap();
        if ["smallest/largest share", "jain"].contains(&result["metric"].as_str().unwrap()) {
            // Fairness stands for itself; a rank that never got its turn has a share of 0.
            assert!((0.0..=1.0).contains(&value) && result["limit"].is_null() && result["ratio"].is_null(), "{result}");
        } else {
            let positive = |name: &str| result[name].as_f64().unwrap() > 0.0;
            assert!(positive("value") && positive("limit") && positive("ratio"), "{result}");
        }
    }
    for (benchmark, metric) in [
        ("exclusive lock + unlock", "latency"),
        ("lock + put 8 B + unlock, target computes", "latency"),
        ("compare_and_swap", "latency"),
        ("put + flush, 4 MiB", "bandwidth"),
        ("lock + unlock, contended", "jain"),
    ] {
        assert!(results.iter().any(|result| result["benchmark"] == benchmark && result["metric"] == metric));
        assert!(ended.stdout.iter().any(|line| line.starts_with(benchmark)), "{ended:?}");
    }
    for limit in json["limits"].as_array().unwrap() {
        let number = |name: &str| limit[name].as_f64().unwrap();
        assert!(number("min") <= number("value") && number("value") <= number("max"), "{limit}");
    }
}

#[test]
fn one_rank_has_no_peer() {
    let ended = finish(&mut onesided(&["bench", "locks", "--quick", "-n", "1"]));
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(ended.stdout.iter().any(|line| line.starts_with("exclusive lock + unlock, own part")), "{ended:?}");
    assert!(!ended.stdout.iter().any(|line| line.contains("target computes")), "{ended:?}");
}

#[test]
fn what_cannot_be_done_is_said_before_anything_is_measured() {
    let ended = finish(&mut onesided(&["bench", "locks", "--json", "/nonexistent/results.json"]));
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert!(ended.stderr.contains("/nonexistent/results.json"), "{ended:?}");
    let ended = finish(&mut onesided(&["bench", "worker", "uncontended", "quick", "/dev/null"]));
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert!(ended.stderr.contains("bench locks"), "{ended:?}");
    if cfg!(not(feature = "verbs")) {
        let ended = finish(&mut onesided(&["bench", "locks", "--fabric", "verbs"]));
        assert_eq!(ended.code(), 2, "{ended:?}");
        assert!(ended.stderr.contains("--features verbs"), "{ended:?}");
    }
}
