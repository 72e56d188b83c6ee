//! The figures, quickly: few repetitions, short time slices.

use clap::Parser;
use onesided_windows::LockDesign;

use super::jiang_2004::HANDOVERS;
use super::*;
use crate::experiment::{Contention, Lock, Turns};

fn lab() -> Lab {
    let profile = Profile::shipped("infinihost").unwrap().with("slice", 1e6).unwrap();
    Lab { profile, seed: 1, times: 200, origins: vec![1, 2, 7], threads: vec![0, 2, 4], slices: 20, all_designs: false }
}

/// A number or claim of the paper that comes out in another way is to be looked at.
#[test]
fn all_figures_have_their_verdicts() {
    let lab = lab();
    let figures: Vec<_> = FIGURES.iter().map(|(_, figure)| figure(&lab).unwrap()).collect();
    let verdicts = verdicts(&figures);
    let names: Vec<_> = figures.iter().map(|figure| figure.name).collect();
    assert_eq!(names, FIGURES.map(|(name, _)| name));
    assert_eq!(verdicts.len(), 28);
    let unlike: Vec<_> = verdicts.iter().filter(|line| line.verdict != Verdict::Reproduced).collect();
    let unlike: Vec<_> = unlike.iter().map(|line| (line.figure, line.what, line.verdict)).collect();
    let explained = |figure, what| (figure, what, Verdict::Explained);
    let missed = |figure, what| (figure, what, Verdict::Missed);
    assert_eq!(
        unlike,
        [
            explained("jiang-2004-1", "the event-driven thread is worst"),
            explained("jiang-2004-2", "atomics beat threads, test-and-set without backoff"),
            missed("jiang-2004-2", "atomics beat threads, test-and-set as shipped, with backoff"),
            explained("jiang-2004-3", "the dedicated thread's time increases with the origins"),
            explained("jiang-2004-3", "several threads gain nothing behind one locked progress engine"),
            explained("jiang-2004-4", "test-and-set without backoff, 7 origins"),
            explained("jiang-2004-4", "test-and-set, 7 origins"),
            explained("jiang-2004-4", "MCS, 7 origins"),
        ]
    );
    let text = summary(&lab.profile, &verdicts);
    assert!(text.contains("missed 1 of 27") && text.contains("explained 7 of 27"), "{text}");
    assert!(
        text.contains("set from lock loop 12.83 us (calibration: jiang-2004, section 6.1): simulated 12.8"),
        "{text}"
    );
}

fn contend(lock: Lock) -> Contention {
    Lab { times: 30, ..lab() }.lock(lock).contend(7, false, Turns::OnAverage).unwrap()
}

/// Each of the figures' experiments runs the lock of the crate `lock-algos`, where the acquires are
/// counted, and no other.
#[cfg(debug_assertions)]
#[test]
fn the_shipped_lock_of_every_design_runs() {
    use onesided_lock_kit::lock_algos::{LockAlgorithm, Ticket, starts};
    let of_tickets = [LockDesign::FetchAddQueue, LockDesign::DistributedCounters, LockDesign::TwoLevel];
    let algorithms = || LockDesign::ALL.iter().map(|design| algorithm(*design));
    for design in LockDesign::ALL {
        let lab = Lab { times: 20, ..lab() };
        let run = || lab.lock(Lock::Shipped(*design));
        let experiments: [&dyn Fn() -> u64; 5] = [
            &|| run().overhead(1).map(|_| 20).unwrap(),
            &|| run().delay(HANDOVERS).map(|_| 20 * 2).unwrap(),
            &|| run().contend(3, true, Turns::OnAverage).map(|_| 20 * 3).unwrap(),
            &|| run().contend(3, false, Turns::Each).map(|_| 20 * 3).unwrap(),
            &|| run().computing(1, 1_000_000).map(|_| 1).unwrap(),
        ];
        for (at, experiment) in experiments.iter().enumerate() {
            let before: Vec<_> = algorithms().map(starts).collect();
            let times = experiment();
            for (name, before) in algorithms().zip(before) {
                let more = starts(name) - before;
                let is_part = name == <Ticket>::NAME && of_tickets.contains(design);
                match name == algorithm(*design) {
                    true => assert!(more >= times, "{design}, {at}: {more} of {times}"),
                    false => assert!(more == 0 || is_part, "{design}, {at}: {more} of {name}"),
                }
            }
        }
    }
}

/// The name of a design's lock: a thread for each window serves the same lock as one for all.
fn algorithm(design: LockDesign) -> &'static str {
    design.name().strip_suffix("-per-window").unwrap_or(design.name())
}

/// What is counted are the operations of the shipped locks: without backoff, a change of the lock
/// alone, there are several times as many attempts.
#[test]
fn the_shipped_locks_run() {
    let words = contend(Lock::Shipped(LockDesign::TestAndSet));
    let tickets = contend(Lock::Shipped(LockDesign::Ticket));
    assert!(tickets.messages >= 2.0 && tickets.nanos > words.nanos, "{words:?}, {tickets:?}");
    let changed = contend(Lock::WithoutBackoff);
    assert!(changed.messages > 2.0 * words.messages, "{words:?}, {changed:?}");
}

/// Several threads behind one engine are not one thread: what the mutex costs is theirs.
#[test]
fn several_threads_share_one_engine() {
    let nanos = |design, hand_over| {
        let profile = lab().profile.with("locked-progress", 1.0).unwrap().with("hand-over", hand_over).unwrap();
        let lab = Lab { profile, times: 30, ..lab() };
        lab.lock(Lock::Shipped(design)).contend(7, true, Turns::OnAverage).unwrap().nanos
    };
    for (one, each) in [
        (LockDesign::DedicatedThread, LockDesign::DedicatedThreadPerWindow),
        (LockDesign::EventThread, LockDesign::EventThreadPerWindow),
    ] {
        assert!(nanos(one, 0.0) == nanos(one, 5000.0), "{one}");
        assert!(nanos(each, 5000.0) > 1.5 * nanos(each, 0.0), "{each}");
    }
}

/// No line is longer than a terminal's, and every design has a curve in every figure.
#[test]
fn all_designs_are_drawn() {
    let lab = Lab { all_designs: true, times: 10, slices: 2, ..lab() };
    for (name, figure) in FIGURES {
        let (paper, all) = (figure(&Lab { all_designs: false, ..lab.clone() }).unwrap(), figure(&lab).unwrap());
        let text = all.to_text();
        for design in LockDesign::ALL {
            let is_its = |line: &str| line.trim_start().split([' ', ',']).next() == Some(design.name());
            assert!(text.lines().any(is_its), "{name}: {design} in {text}");
        }
        let table = text.lines().skip(3).take_while(|line| !line.is_empty());
        table.for_each(|line| assert!(line.len() <= 100, "{name}: {line}"));
        let others = all.series.iter().filter(|series| series.other).count();
        assert!(others > 3 && all.series.len() == paper.series.len() + others, "{name}");
        assert_eq!(verdicts(&[paper]).len(), verdicts(&[all]).len(), "{name}");
    }
}

#[test]
fn the_same_seed_gives_the_same_figure() {
    let text = || FIGURES[3].1(&lab()).unwrap().to_text();
    assert_eq!(text(), text());
}

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

#[test]
fn figures_and_profiles_are_named() {
    let parse = |words: &[&str]| Line::try_parse_from([&["reproduce"], words].concat()).map(|line| line.args);
    assert_eq!(parse(&["jiang-2004-3", "jiang-2004"]).unwrap().figures, ["jiang-2004-3", "jiang-2004"]);
    for wrong in ["jiang", "jiang-2004-7", "jiang-200", ""] {
        assert!(is_wrong(parse(&[wrong])), "{wrong}");
    }
    let with = |words: &[&str]| parse(words).unwrap().profile();
    let one = with(&["--set", "atomic=7"]).unwrap();
    assert_eq!((one.number("atomic"), one.number("latency")), (Some(7.0), Some(2700.0)));
    assert!(with(&["--set", "atom=7"]).is_err() && with(&["--profile", "/dev/null/none"]).is_err());
    assert!(is_wrong(parse(&["--set", "atomic"])) && is_wrong(parse(&["--set", "atomic=x"])));
    assert_eq!(with(&["--profile", "connectx7"]).unwrap().title, "ConnectX-7 NDR");
}

fn is_wrong(parsed: Result<Args, clap::Error>) -> bool {
    parsed.is_err()
}

#[test]
fn figures_are_written_as_json_and_as_a_page() {
    let folder = std::env::temp_dir().join(format!("onesided-reproduce-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let [json, report] = ["r.json", "r.html"].map(|name| folder.join(name));
    let words = ["reproduce", "jiang-2004-1", "--times", "5", "--json", json.to_str().unwrap(), "--report"];
    let args = Line::try_parse_from([&words[..], &[report.to_str().unwrap()]].concat()).unwrap().args;
    let mut printed = Vec::new();
    run_to(&args, &mut printed).unwrap();
    assert!(String::from_utf8(printed).unwrap().contains("the event-driven thread is worst: DOES NOT HOLD"));
    let page = std::fs::read_to_string(report).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(page.contains("jiang-2004-1") && !page.contains("jiang-2004-2"));
    let number = &document["figures"][0]["numbers"][0];
    assert_eq!((&number["kind"], number["paper"].as_f64()), (&"calibration".into(), Some(12.83)));
    assert!((number["ours"].as_f64().unwrap() - 12.83).abs() < 0.1, "{number}");
    let line = &document["verdicts"][3];
    assert_eq!((&line["what"], &line["verdict"]), (&"the event-driven thread is worst".into(), &"explained".into()));
    let check = &document["checks"][0];
    assert!(check["ours"].as_f64().unwrap() / check["set_from"].as_f64().unwrap() > 0.99, "{check}");
}

/// The pages in docs/, and their values.
#[test]
fn the_stored_pages_draw_all_designs() {
    for (profile, title) in [("infinihost", PAPERS_TESTBED), ("connectx7", "ConnectX-7 NDR")] {
        let stored = |end: &str| {
            let path = format!("{}/../docs/jiang-2004-{profile}.{end}", env!("CARGO_MANIFEST_DIR"));
            std::fs::read_to_string(path).unwrap()
        };
        let (page, document) = (stored("html"), stored("json"));
        let document: serde_json::Value = serde_json::from_str(&document).unwrap();
        assert_eq!(document["profile"], title);
        let figures = document["figures"].as_array().unwrap();
        assert!(figures.iter().map(|figure| figure["name"].as_str().unwrap()).eq(FIGURES.map(|(name, _)| name)));
        for figure in figures {
            let series = figure["series"].as_array().unwrap();
            for design in LockDesign::ALL {
                let is_its = |name: &str| name.split(',').next() == Some(design.name());
                assert!(series.iter().any(|one| is_its(one["name"].as_str().unwrap())), "{}: {design}", figure["name"]);
            }
            for one in series {
                let last = one["points"].as_array().unwrap().last().unwrap()[1].as_f64().unwrap();
                let name = one["name"].as_str().unwrap();
                assert!(page.contains(name) && page.contains(&format!("{last:.2}")), "{name}: {last} in {profile}");
            }
        }
    }
}
