//! `onesided bench` measures and reports. How fast anything is is not tested.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::support::{Ended, finish, finish_within, onesided};

/// For many short loops, which take long on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(900);

/// A temporary folder, removed with its contents.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        let unique = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
        let folder = std::env::temp_dir().join(format!("onesided-bench-{}-{unique}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a benchmark; returns its output and its JSON, which it shows again.
pub(crate) fn measured(command: &mut Command) -> (Ended, Value) {
    let folder = Folder::new();
    let [json, again] = ["one.json", "again.json"].map(|name| folder.path(name).to_str().unwrap().to_owned());
    let ended = finish_within(command.args(["--json", &json]), LONG);
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(ended.stdout.iter().all(|line| line.chars().count() <= 100), "{ended:?}");
    let bench = command.get_args().skip_while(|argument| *argument != "bench").nth(1).unwrap().to_str().unwrap();
    let shown = finish(&mut onesided(&["bench", bench, "--from", &json, "--json", &again]));
    assert_eq!((shown.code(), &shown.stdout), (0, &ended.stdout), "{shown:?}");
    let json = fs::read_to_string(json).unwrap();
    assert_eq!(json, fs::read_to_string(again).unwrap());
    (ended, serde_json::from_str(&json).unwrap())
}

/// Runs a benchmark for a few seconds; returns its output, its JSON and its page.
fn bench(name: &str, effort: &str) -> (Ended, Value, String) {
    let folder = Folder::new();
    let report = folder.path("report.html");
    let (ended, json) =
        measured(&mut onesided(&["bench", name, effort, "-n", "2", "--report", report.to_str().unwrap()]));
    assert!(ended.stderr.is_empty(), "no bar where there is no terminal: {ended:?}");
    (ended, json, fs::read_to_string(report).unwrap())
}

/// Checks what the JSON of all benchmarks has in common.
fn check_json(json: &Value) -> &[Value] {
    let results = json["results"].as_array().unwrap();
    let mut fields = vec![
        "algorithm",
        "benchmark",
        "fabric",
        "limit",
        "metric",
        "parameter",
        "ranks",
        "ratio",
        "size",
        "unit",
        "value",
    ];
    fields.extend(["compared_with", "comparison", "max", "min", "needs_own_core", "oversubscribed"]);
    fields.sort_unstable();
    let cores = json["machine"]["cores"].as_u64().unwrap();
    for result in results {
        let mut names: Vec<_> = result.as_object().unwrap().keys().collect();
        names.sort();
        assert_eq!(names, fields);
        for text in ["algorithm", "benchmark", "fabric", "metric", "unit"] {
            assert!(!result[text].as_str().unwrap().is_empty(), "{result}");
        }
        assert_eq!(result["ranks"], 2);
        assert_eq!(result["oversubscribed"], cores < 2, "{result}");
        assert_eq!(result["needs_own_core"], false, "{result}");
        for field in ["compared_with", "comparison"] {
            assert_eq!(result[field].is_null(), result["limit"].is_null(), "{field}: {result}");
        }
        let value = result["value"].as_f64().unwrap();
        assert!(value >= 0.0, "{result}");
        let name = result["benchmark"].as_str().unwrap();
        if name.ends_with("acquire") || name.ends_with("release") {
            assert!(result["limit"].is_null() && result["ratio"].is_null(), "what is compared is both: {result}");
        } else if name.ends_with(" reused") {
            assert!(value > 0.0 && result["limit"].is_null(), "these are compared with one another: {result}");
        } else if ["smallest/largest share", "jain"].contains(&result["metric"].as_str().unwrap()) {
            // Fairness has no limit. A rank that never acquired the lock has a share of 0.
            assert!((0.0..=1.0).contains(&value) && result["limit"].is_null() && result["ratio"].is_null(), "{result}");
        } else {
            let positive = |name: &str| result[name].as_f64().unwrap() > 0.0;
            assert!(positive("value") && positive("limit") && positive("ratio"), "{result}");
        }
    }
    for limit in json["limits"].as_array().unwrap() {
        let number = |name: &str| limit[name].as_f64().unwrap();
        assert!(number("min") <= number("value") && number("value") <= number("max"), "{limit}");
    }
    results
}

/// Checks a page: every result has its row, plots have titles, and nothing is loaded.
fn check_page(page: &str, json: &Value) {
    let rows: Vec<_> = page.lines().filter(|line| line.starts_with("<tr><th scope=\"row\"")).collect();
    let all = |list: &str| json[list].as_array().unwrap().len();
    assert_eq!(rows.len(), all("results") + all("limits"), "{page}");
    for (result, row) in json["results"].as_array().unwrap().iter().zip(rows) {
        for field in ["benchmark", "metric"] {
            assert!(row.contains(&format!(">{}<", result[field].as_str().unwrap())), "{row}: {result}");
        }
    }
    let plots = page.matches("<figure>").count();
    assert!(plots > 1, "{page}");
    for part in ["role=\"img\" aria-labelledby=", "<title id=", "<desc id=", "<figcaption>"] {
        assert_eq!(page.matches(part).count(), plots, "{part}: {page}");
    }
    assert!(page.contains("<code>onesided bench "), "{page}");
    for wrong in ["http:", "https:", "src=", "href=", "url(", "<script", "NaN", "inf\"", "inf "] {
        assert!(!page.contains(wrong), "{wrong}: {page}");
    }
    assert!(page.ends_with("</html>\n"), "{page}");
}

#[test]
fn locks_are_measured_and_reported() {
    let (ended, json, page) = bench("locks", "--quick");
    let results = check_json(&json);
    for (benchmark, metric, size) in [
        ("exclusive lock + unlock", "latency", None),
        ("lock + put 8 B + unlock, target computes", "latency", None),
        ("compare_and_swap", "latency", None),
        ("exclusive lock: acquire", "latency", None),
        ("lock + unlock, contended, beside a mutex", "acquisitions", None),
        ("put + flush, 4 MiB", "bandwidth", Some(4 << 20)),
        ("lock + unlock, contended", "jain", None),
    ] {
        let is_it = |result: &&Value| result["benchmark"] == benchmark && result["metric"] == metric;
        let result = results.iter().find(is_it).unwrap_or_else(|| panic!("{benchmark}: {json}"));
        assert_eq!(result["size"].as_u64(), size, "{result}");
        let label = &benchmark[..benchmark.len().min(22)]; // a longer one is wrapped
        assert!(ended.stdout.iter().any(|line| line.starts_with(label)), "{ended:?}");
    }
    check_page(&page, &json);
}

/// The metrics of locks, from the error about one that does not exist.
fn lock_metrics() -> Vec<String> {
    let ended = finish(&mut onesided(&["bench", "locks", "--metric", "none"]));
    let list = ended.stderr.split_once("[possible values: ").and_then(|(_, rest)| rest.split_once(']'));
    let (list, _) = list.unwrap_or_else(|| panic!("{ended:?}"));
    list.split(", ").filter(|name| *name != "all").map(str::to_owned).collect()
}

/// The metrics that every lock has tested below, each with a benchmark, a quantity, and how many
/// points it has.
const POINTS: &[(&str, &str, &str, usize)] = &[
    ("delay", "lock: release to acquired", "latency", 1),
    ("wake", "lock, idle: processor time of the target", "cpu", 1),
    ("wake", "lock, idle for 3 ms", "latency", 1),
    ("wake", "lock, idle for 3 ms, target waits in a barrier", "latency", 1),
    ("concurrency", "lock + unlock, a window for each origin", "latency", 4),
    ("operations", "exclusive lock: operations of an acquire", "operations", 1),
    ("operations", "shared lock: operations of a release", "operations", 1),
    ("operations", "lock + unlock: operations of all ranks", "operations", 4),
    ("cpu", "lock + unlock, target computes in threads", "latency", 4),
    ("cpu", "lock: processor time of an idle target", "cpu", 1),
    ("cpu", "lock + unlock, pairs of origin and target", "latency", 2),
    ("wait", "wait for a contended lock", "p99.9", 3),
    ("wait", "wait for a contended lock", "p99 of the rank served worst", 3),
    ("wait", "wait for a contended lock", "longest bypass", 3),
    ("readers", "lock + unlock, some to read", "acquisitions", 6),
    ("section", "lock + work + unlock + work", "acquisitions", 5),
    ("zipf", "lock + unlock, 65536 Zipf-distributed locks", "acquisitions", 4),
    ("recovery", "lock: owner killed to recovered", "latency", 1),
];

/// Every metric has its results for every lock, at every point of its sweep. One of the locks that
/// threads serve stands for all of these. `locks_are_measured_and_reported` has the two other
/// metrics, of one lock.
#[test]
fn every_metric_of_every_lock_is_measured() {
    let folder = Folder::new();
    let report = folder.path("all.html");
    let mut metrics = lock_metrics();
    metrics.retain(|name| !["overhead", "contended"].contains(&&**name));
    assert!(metrics.iter().all(|name| POINTS.iter().any(|(metric, ..)| metric == name)), "{metrics:?}");
    let metrics = metrics.join(",");
    let locks = "test-and-set,mcs,ticket,fetch-add-queue,distributed-counters,two-level,event-thread";
    let args = ["bench", "locks", "--trial", "--lock", locks, "--metric", &metrics];
    let (_, document) = measured(onesided(&args).arg("--report").arg(&report));
    let results = document["results"].as_array().unwrap();
    let mut locks: Vec<_> = results.iter().map(|result| result["algorithm"].as_str().unwrap()).collect();
    locks.sort_unstable();
    locks.dedup();
    assert!(locks.contains(&"test-and-set") && locks.contains(&"mcs"), "{locks:?}");
    for lock in locks {
        for (_, benchmark, metric, points) in POINTS.iter().copied() {
            if benchmark.contains("Zipf") && ["distributed-counters", "two-level", "event-thread"].contains(&lock) {
                continue; // tables do not have these locks
            }
            let is_it = |result: &&Value| {
                (result["algorithm"] == lock && result["benchmark"] == benchmark) && result["metric"] == metric
            };
            let found: Vec<_> = results.iter().filter(is_it).collect();
            assert_eq!(found.len(), points, "{lock}, {benchmark}: {document}");
            // Sometimes no rank is overtaken in 20 ms.
            let may_be_nothing = ["longest bypass", "cpu"].contains(&metric);
            let sound = |result: &&Value| result["value"].as_f64().unwrap() > 0.0 || may_be_nothing;
            assert!(found.iter().all(sound), "{lock}, {benchmark}: {found:?}");
            // Only with two ranks: with more than two cores, the target is a third rank, and there
            // is no limit.
            if benchmark == "lock: release to acquired" && found[0]["ranks"] == 2 {
                assert!(found[0]["limit"].is_number(), "of every lock: {found:?}");
            }
        }
    }
    let over_messages = |result: &&Value| result["benchmark"] == "lock + unlock over messages, a lock for each origin";
    assert_eq!(results.iter().filter(over_messages).count(), 4, "of the lock that a thread serves: {document}");
    let of = |lock: &str, benchmark: &str| {
        let is_it = |result: &&Value| result["algorithm"] == lock && result["benchmark"] == benchmark;
        results.iter().find(is_it).unwrap()["value"].as_f64().unwrap()
    };
    assert_eq!(of("test-and-set", "exclusive lock: operations of an acquire"), 1.0, "a compare-swap");
    assert_eq!(of("mcs", "exclusive lock: operations of a release"), 1.0, "a compare-swap");
    let page = fs::read_to_string(report).unwrap();
    check_page(&page, &document);
}

#[test]
fn simulated_contests_are_the_same_each_time() {
    let args = ["bench", "scale", "--origins", "10,50", "--readers", "0,90", "--lasting", "2"];
    let run = || measured(&mut onesided(&args)).1["results"].as_array().unwrap().clone();
    let results = run();
    assert_eq!(results, run());
    let mcs = |metric: &str| {
        let is_it = |result: &&Value| {
            (result["algorithm"] == "mcs" && result["metric"] == metric) && result["parameter"]["value"] == 10.0
        };
        results.iter().find(is_it).unwrap_or_else(|| panic!("{results:?}"))["value"].as_f64().unwrap()
    };
    let latency = |lock: &str, benchmark: &str| {
        let is_it = |result: &&Value| result["algorithm"] == lock && result["benchmark"] == benchmark;
        results.iter().find(is_it).unwrap_or_else(|| panic!("{results:?}"))["value"].as_f64().unwrap()
    };
    // The findings of jiang-2004 (sections 6.1 and 6.2): an acquire is a round trip, a release is
    // not waited for, and a hand-over is one message.
    let one_way = 1200.0..1600.0;
    assert!((2400.0..3000.0).contains(&latency("test-and-set", "simulated lock: acquire")), "{results:?}");
    assert_eq!(latency("test-and-set", "simulated lock: release, until posted"), 0.0);
    assert!(one_way.contains(&latency("mcs", "simulated lock: release to acquired")), "{results:?}");
    assert!(!one_way.contains(&latency("test-and-set", "simulated lock: release to acquired")), "{results:?}");
    assert!(mcs("acquisitions") > 1e5 && mcs("jain") > 0.9 && mcs("operations") > 3.0, "{results:?}");
    let ended = finish(&mut onesided(&["bench", "scale", "--origins", "0"]));
    assert_eq!(ended.code(), 2, "{ended:?}");
}

#[test]
fn locks_are_simulated_under_conditions_and_up_to_their_limit() {
    let folder = Folder::new();
    let page = folder.path("limit.html");
    let args = ["bench", "scale", "--lock", "mcs,event-thread", "--origins", "10,20000,30000", "--lasting", "1"];
    let more = ["--conditions", "4", "--simulator", "--report"];
    let (_, document) = measured(onesided(&[&args[..], &more].concat()).arg(&page));
    let of = |lock: &str, benchmark: &str, metric: &str| {
        let is_it = |result: &&Value| {
            result["algorithm"] == lock && result["benchmark"] == benchmark && result["metric"] == metric
        };
        document["results"].as_array().unwrap().iter().find(is_it).map(|result| result["value"].as_f64().unwrap())
    };
    for lock in ["mcs", "event-thread"] {
        let stops = of(lock, "simulated lock, an owner stops for 10 ms", "longest gap").unwrap();
        assert!((1e7..1.1e7).contains(&stops), "{lock}: {stops}");
        assert!(
            of(lock, "simulated lock, an owner dies", "longest gap").unwrap() >= 1e6,
            "it takes 1 ms to learn of it"
        );
        let [none, loss] =
            ["no fault", "1 % loss"].map(|what| of(lock, &format!("simulated lock, {what}"), "acquisitions"));
        assert!(none > loss && loss > Some(0.0), "{lock}: {none:?} {loss:?}");
    }
    let memory = of("mcs", "simulator, contended lock", "memory").unwrap();
    assert!((100.0..1e4).contains(&memory), "{memory}");
    let remarks = document["remarks"].to_string();
    for lock in ["mcs", "event-thread"] {
        let limit = format!("{lock}: best with 10 origins; less than 1 % of that with 20000");
        assert!(remarks.contains(&limit), "{remarks}");
        assert!(remarks.contains(&format!("{lock}: not run with 30000 origins")), "{remarks}");
    }
    assert!(fs::read_to_string(page).unwrap().contains("mcs: best with 10 origins"));
}

#[test]
fn operations_of_all_sizes_are_measured_and_reported() {
    let (ended, json, page) = bench("rma", "--trial");
    let results = check_json(&json);
    for (operation, sizes) in [
        ("put", &[8, 64, 1 << 20, 4 << 20][..]),
        ("get", &[8, 64, 1 << 20, 4 << 20]),
        ("strided put", &[8, 64, 1 << 20, 4 << 20]),
        ("accumulate", &[8, 64, 4096]),
        ("get_accumulate", &[8, 64, 4096]),
        ("fetch_and_op", &[8]),
        ("compare_and_swap", &[8]),
    ] {
        let mut expected = vec![("", " + flush", "latency"), ("many ", " + flush", "message rate")];
        if !operation.ends_with("put") {
            expected.push(("many ", ", requests", "message rate"));
        }
        if sizes.len() > 1 {
            expected.push(("many ", " + flush", "bandwidth"));
        }
        for (many, end, metric) in expected {
            check_sizes((&ended, results), (&format!("{many}{operation}{end}"), metric), sizes);
        }
    }
    check_page(&page, &json);
}

/// A metric of a benchmark has results of these sizes, and a line of the output for each.
fn check_sizes((ended, results): (&Ended, &[Value]), (benchmark, metric): (&str, &str), sizes: &[u64]) {
    let of = |result: &&Value| result["benchmark"] == benchmark && result["metric"] == metric;
    let found: Vec<_> = results.iter().filter(of).map(|result| result["size"].as_u64().unwrap()).collect();
    assert!(sizes.iter().all(|size| found.contains(size)), "{benchmark}, {metric}: {found:?}");
    let lines = ended.stdout.iter().filter(|line| line.starts_with(&format!("{benchmark}  "))).count();
    assert_eq!(lines, found.len(), "{ended:?}");
}

/// The benchmarks of messages: their sizes, and the number of messages that a loop has of them.
#[test]
fn messages_and_packets_are_measured_and_reported() {
    let of_messages: &[(&str, &[u64], &[&str])] = &[
        ("half a round trip", &[8, 512, 4 << 20], &["latency", "bandwidth"]),
        ("half a round trip of written buffers", &[32 << 10, 4 << 20], &["latency", "bandwidth"]),
        ("half a round trip of columns", &[8, 512, 256 << 10], &["latency", "bandwidth"]),
        ("stream", &[8, 512, 4 << 20], &["message rate", "bandwidth"]),
        ("stream, pipeline", &[256 << 10, 4 << 20], &["message rate", "bandwidth"]),
        ("stream, copy", &[32 << 10, 4 << 20], &["message rate", "bandwidth"]),
        ("streams both ways", &[8, 512, 4 << 20], &["message rate", "bandwidth"]),
        ("stream, all unexpected", &[8, 512], &["message rate", "bandwidth"]),
        ("buffers, 50 % reused", &[1 << 20], &["message rate", "bandwidth"]),
    ];
    let of_packets: &[(&str, &[u64], &[&str])] = &[
        ("packets, half a round trip", &[8, 64, 512, 2064, 8208], &["latency", "bandwidth"]),
        ("packets, stream", &[8, 64, 512, 2064, 8208], &["message rate", "bandwidth"]),
    ];
    for (name, benchmarks) in [("messages", of_messages), ("transport", of_packets)] {
        let (ended, json, page) = bench(name, "--trial");
        let results = check_json(&json);
        for (benchmark, sizes, metrics) in benchmarks.iter().copied() {
            for metric in metrics {
                check_sizes((&ended, results), (benchmark, metric), sizes);
            }
        }
        check_page(&page, &json);
    }
}

/// Pairs are more ranks, which share cores if there are too few.
#[test]
fn messages_in_pairs_are_marked_where_they_share_cores() {
    let (ended, document) = measured(&mut onesided(&["bench", "messages", "--trial", "-n", "4"]));
    let cores = document["machine"]["cores"].as_u64().unwrap();
    let results = document["results"].as_array().unwrap();
    let pairs: Vec<_> = results.iter().filter(|result| result["benchmark"] == "stream, 2 pairs").collect();
    assert!(pairs.len() > 10, "{document}");
    for result in pairs {
        assert!(result["ranks"] == 4 && result["compared_with"] == "stream by memcpy, 2 pairs", "{result}");
        assert_eq!(result["oversubscribed"], cores < 4, "{result}");
    }
    let mark = if cores < 4 { "stream, 2 pairs*" } else { "stream, 2 pairs " };
    assert!(ended.stdout.iter().any(|line| line.starts_with(mark)), "{ended:?}");
}

/// Puts and gets of user memory are compared with the kernel's calls. Operations by the helper
/// thread have no limit.
#[test]
fn other_ways_to_the_memory_are_measured_when_asked_for() {
    let (_, document) = measured(&mut onesided(&["bench", "rma", "--trial", "--path", "process-vm,helper,helper"]));
    let results = document["results"].as_array().unwrap();
    for (benchmark, limited) in [
        ("put + flush, process_vm", true),
        ("many get, requests, process_vm", true),
        ("many put + flush, helper thread", false),
        ("fetch_and_op + flush, helper thread", false),
        ("many get_accumulate, requests, helper thread", false),
    ] {
        let of: Vec<_> = results.iter().filter(|result| result["benchmark"] == benchmark).collect();
        assert!(of.iter().any(|result| result["size"] == 8), "{benchmark}: {document}");
        assert!(of.iter().all(|result| result["limit"].is_number() == limited), "{benchmark}: {of:?}");
    }
    assert!(!results.iter().any(|result| result["benchmark"] == "put + flush"), "not asked for: {document}");
    let ended = finish(&mut onesided(&["bench", "rma", "--path", "helper", "-n", "1"]));
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert!(ended.stderr.contains("from process to process"), "{ended:?}");
}

#[test]
fn one_rank_has_no_peer() {
    let ended = finish(&mut onesided(&["bench", "locks", "--trial", "-n", "1"]));
    assert_eq!(ended.code(), 0, "{ended:?}");
    // Wide figures break the line before `part`.
    assert!(ended.stdout.iter().any(|line| line.starts_with("exclusive lock + unlock, own")), "{ended:?}");
    assert!(!ended.stdout.iter().any(|line| line.contains(", target computes")), "{ended:?}");
}

#[test]
fn what_cannot_be_done_is_said_before_anything_is_measured() {
    let ended = finish(&mut onesided(&["bench", "locks", "--json", "/nonexistent/results.json"]));
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert!(ended.stderr.contains("/nonexistent/results.json"), "{ended:?}");
    for bench in ["locks", "rma", "messages", "overlap", "collectives", "transport"] {
        let ended = finish(&mut onesided(&["bench", bench, "--report", "/nonexistent/report.html"]));
        assert_eq!(ended.code(), 1, "{ended:?}");
        assert!(ended.stderr.contains("/nonexistent/report.html"), "{ended:?}");
    }
    for bench in ["locks", "rma", "messages", "overlap", "collectives", "transport", "scale", "peers"] {
        let ended = finish(&mut onesided(&["bench", bench, "--from", "/nonexistent/results.json"]));
        assert_eq!(ended.code(), 1, "{ended:?}");
        assert!(ended.stderr.contains("/nonexistent/results.json"), "{ended:?}");
    }
    let folder = Folder::new();
    let picture = folder.path("none.svg");
    let ended = finish(&mut onesided(&["bench", "rma", "--picture", picture.to_str().unwrap()]));
    assert!(ended.code() == 1 && ended.stderr.contains("no curves"), "{ended:?}");
    let args = ["bench", "scale", "--lock", "mcs", "--origins", "2", "--picture", picture.to_str().unwrap()];
    let ended = finish(&mut onesided(&args));
    assert!(ended.code() == 1 && ended.stderr.contains("no curves") && !picture.exists(), "{ended:?}");
    assert!(ended.stdout.iter().any(|line| line.starts_with("simulated contended lock")), "{ended:?}");
    let ended = finish(&mut onesided(&["bench", "worker", "uncontended", "quick", "/dev/null"]));
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert!(ended.stderr.contains("bench locks"), "{ended:?}");
}

#[test]
fn stored_results_of_locks_are_told_and_drawn_again() {
    let folder = Folder::new();
    let path = |name: &str| folder.path(name).to_str().unwrap().to_owned();
    let read = |path: &str| fs::read_to_string(path).unwrap();
    for name in ["locks", "scale"] {
        let (stored, json, again) =
            (format!("{}/../docs/{name}.json", env!("CARGO_MANIFEST_DIR")), path("1"), path("2"));
        let (page, picture) = (path("report.html"), path("picture.svg"));
        let args = ["bench", name, "--from", &stored, "--json", &json, "--report", &page, "--picture", &picture];
        let ended = finish(&mut onesided(&args));
        assert_eq!(ended.code(), 0, "{ended:?}");
        assert!(ended.stdout.contains(&"In short".to_owned()), "{ended:?}");
        let document: Value = serde_json::from_str(&read(&json)).unwrap();
        check_page(&read(&page), &document);
        assert!(read(&picture).starts_with("<svg "));
        let marked = |field: &str| document["results"].as_array().unwrap().iter().any(|result| result[field] == true);
        assert_eq!(
            [marked("oversubscribed"), marked("needs_own_core")],
            [name == "locks"; 2],
            "virtual time has no cores"
        );
        assert_eq!(finish(&mut onesided(&["bench", name, "--from", &json, "--json", &again])).code(), 0);
        assert_eq!(read(&json), read(&again));
    }
}
