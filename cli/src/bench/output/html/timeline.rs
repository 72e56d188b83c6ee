//! The timeline of `bench overlap`: when each rank computes, and when its message is over (sur-2006,
//! Fig. 6).

use crate::bench::output::html::scale::Scale;
use crate::bench::output::html::svg;
use crate::bench::output::json::{Document, Row};
use crate::bench::output::units::{rounded, size};
use crate::bench::overlap::{LATER, SENDER_COMPUTES_RECEIVER, WAYS};
use crate::bench::results::quantity::Quantity;

const WIDTH: f64 = 640.0;
/// Where times begin, and the room of the ends' texts.
const LEFT: f64 = 150.0;
const RIGHT: f64 = 60.0;
const TOP: f64 = 28.0;
const ROW: f64 = 15.0;
/// The two ranks of a way, and the room below them.
const WAY: f64 = 2.0 * ROW + 8.0;

/// A rank in a message, in nanoseconds since the first of the two ranks began.
struct Bar {
    rank: &'static str,
    begins: f64,
    computes: f64,
    ends: f64,
}

/// The titles, sentences and pictures of both parts of the figure, if the document has their results.
pub(super) fn figures(document: &Document) -> Vec<(String, String, String)> {
    let sizes = document.results.iter().filter(|row| row.benchmark.starts_with("sender computes: "));
    let Some(bytes) = sizes.filter_map(|row| row.size).filter(|size| *size <= 1 << 20).max() else { return vec![] };
    let of = |what: &str, way: &dyn std::fmt::Display| {
        let name = format!("{what}: {way}");
        let is_it =
            |row: &&Row| (row.size, &row.benchmark) == (Some(bytes), &name) && row.quantity == Quantity::Latency;
        document.results.iter().find(is_it)
    };
    let later = LATER.as_nanos() as f64;
    let computing = |rank, begins, row: &Row| {
        let computes = row.limit.unwrap_or_default().min(row.value);
        Bar { rank, begins, computes, ends: begins + row.value }
    };
    let waiting = |rank, begins, row: &Row| Bar { rank, begins, computes: 0.0, ends: begins + row.value };
    let parts = [
        ("sender", "sender computes", SENDER_COMPUTES_RECEIVER),
        ("receiver", "receiver computes", "sender held, receiver computes"),
    ];
    let part = |(who, computes, waits): (&str, &str, &str)| {
        let bars = |way| {
            let (computes, waits) = (of(computes, way)?, of(waits, way)?);
            Some(match who {
                "sender" => [computing("sender", later, computes), waiting("receiver", 0.0, waits)],
                _ => [waiting("sender", later, waits), computing("receiver", 0.0, computes)],
            })
        };
        let all: Vec<_> = WAYS.iter().filter_map(|way| Some((way.to_string(), bars(way)?))).collect();
        let sentence = format!(
            "A message of {}: the receiver posts its receive at 0, the sender sends {} later. Filled: the rank \
             computes. Open: it waits for its message, to the end that the number says. A message that moves while a \
             rank computes ends with the computation, or before (sur-2006, Fig. 6).",
            size(bytes),
            rounded(later, "ns"),
        );
        (!all.is_empty()).then(|| {
            let (title, id) = (format!("The {who} computes"), format!("timeline-{who}"));
            let picture = picture((&id, &title), &all);
            (title, sentence, picture)
        })
    };
    parts.into_iter().filter_map(part).collect()
}

fn picture((id, title): (&str, &str), ways: &[(String, [Bar; 2])]) -> String {
    let height = TOP + ways.len() as f64 * WAY;
    let ends = ways.iter().flat_map(|(_, bars)| bars.iter().map(|bar| bar.ends));
    let scale = Scale::linear(ends, (LEFT, WIDTH - RIGHT));
    let x = |time: f64| scale.at(time).unwrap_or(LEFT);
    let mut content = String::new();
    for tick in scale.ticks() {
        content += &svg::line("grid", (x(tick), TOP - 6.0), (x(tick), height));
        content += &svg::text("middle note", (x(tick), TOP - 12.0), rounded(tick, "ns"));
    }
    for (at, (way, bars)) in ways.iter().enumerate() {
        let top = TOP + at as f64 * WAY;
        content += &svg::text("", (0.0, top + ROW - 3.0), way);
        for (bar, series) in bars.iter().zip(["s0", "s1"]) {
            let top = top + if series == "s0" { 0.0 } else { ROW };
            content += &svg::text("end note", (LEFT - 6.0, top + ROW - 4.0), bar.rank);
            let (begins, computed, ends) = (x(bar.begins), x(bar.begins + bar.computes), x(bar.ends));
            if bar.computes > 0.0 {
                content += &svg::rect(series, (begins, top + 2.0), (computed - begins, ROW - 4.0));
            }
            content += &svg::rect(&format!("{series} empty"), (computed, top + 2.0), (ends - computed, ROW - 4.0));
            content += &svg::text("note number", (ends + 4.0, top + ROW - 4.0), rounded(bar.ends, "ns"));
        }
    }
    let description = "Bars of the sender and the receiver by progress mode, over time.";
    svg::picture(id, (WIDTH, height), (title, description), &content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::output::html::tests;

    #[test]
    fn each_rank_has_a_bar_to_the_end_of_its_message() {
        let [sender, receiver] = &figures(&tests::overlap())[..] else { panic!("two ranks may compute") };
        let has = |picture: &str, texts: &[&str]| texts.iter().all(|text| picture.contains(&format!(">{text}</text>")));
        assert!(has(&sender.2, &["hybrid", "sender", "receiver", "2.2 ms", "500 µs"]), "{}", sender.2);
        assert!(has(&receiver.2, &["300 µs", "3 ms"]), "{}", receiver.2);
        // One of them computes, for half of its time.
        let widths = |class: &str| -> Vec<f64> {
            let bars = sender.2.lines().filter(|line| line.starts_with(&format!("<rect class=\"{class}\"")));
            bars.map(|bar| bar.split('"').nth(7).unwrap().parse().unwrap()).collect()
        };
        assert_eq!((widths("s0").len(), widths("s1").len()), (1, 0));
        assert!((widths("s0")[0] - widths("s0 empty")[0]).abs() <= 0.2, "{}", sender.2);
        assert!(figures(&tests::sweep()).is_empty());
    }
}
