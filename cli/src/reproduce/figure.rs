//! What a figure says: numbers beside the paper's, and the paper's claims.

use std::fmt::Write as _;

use onesided_fabric::entries;
use serde::Serialize;

/// A figure of a paper, out of our run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    /// As on the command line.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// What is measured, with its unit.
    pub(super) value: &'static str,
    /// What the points of a series differ in; empty for a single one.
    pub(super) parameter: &'static str,
    /// Names of its values from 0 on, if they are no numbers.
    pub(super) labels: &'static [&'static str],
    pub(super) series: Vec<Series>,
    pub(super) numbers: Vec<Number>,
    pub(super) claims: Vec<Claim>,
    pub(super) notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Series {
    pub(super) name: String,
    /// Whether it is of a design that the paper does not have.
    pub(super) other: bool,
    /// Parameter and value.
    pub(super) points: Vec<(f64, f64)>,
}

impl Series {
    /// Of a design of the paper.
    pub(super) const fn new(name: String, points: Vec<(f64, f64)>) -> Self {
        Self { name, other: false, points }
    }

    pub(super) fn first(&self) -> f64 {
        self.points.first().map_or(f64::NAN, |point| point.1)
    }

    pub(super) fn last(&self) -> f64 {
        self.points.last().map_or(f64::NAN, |point| point.1)
    }

    /// The largest deviation from the first value, as a part of it.
    pub(super) fn spread(&self) -> f64 {
        self.points.iter().map(|point| (point.1 / self.first() - 1.0).abs()).fold(0.0, f64::max)
    }
}

/// Whether the profile was set from a number, or the number has to come out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Calibration,
    Prediction,
}

/// A number that the paper's text gives.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Number {
    pub(super) what: &'static str,
    pub(super) unit: &'static str,
    pub(super) kind: Kind,
    pub(super) paper: f64,
    pub(super) ours: f64,
    /// Ours with one cost changed, if ours is off.
    pub(super) ablation: Option<Ablation<f64>>,
}

/// The same with another value of one parameter.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Ablation<T> {
    pub(super) parameter: &'static str,
    /// In nanoseconds, as the two below.
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) result: T,
    pub(super) evidence: String,
    /// Why that cost matters.
    pub(super) why: &'static str,
}

/// A claim of the paper's text.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Claim {
    pub(super) what: &'static str,
    pub(super) holds: bool,
    pub(super) evidence: String,
    /// With one cost changed, if the claim does not hold.
    pub(super) ablation: Option<Ablation<bool>>,
}

entries! {
    /// What became of a number or claim.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub(super) enum Verdict {
        /// A number within 10 %, a claim that holds.
        Reproduced => "reproduced",
        /// Not, but with one cost changed.
        Explained => "explained",
        Missed => "missed",
    }
    pub(super) fn text;
}

/// How far a reproduced number may be off.
const TOLERANCE: f64 = 0.1;

impl Number {
    pub(super) fn verdict(&self) -> Verdict {
        let close = |ours: f64| (ours / self.paper - 1.0).abs() <= TOLERANCE;
        match &self.ablation {
            _ if close(self.ours) => Verdict::Reproduced,
            Some(ablation) if close(ablation.result) => Verdict::Explained,
            _ => Verdict::Missed,
        }
    }
}

impl Claim {
    pub(super) fn verdict(&self) -> Verdict {
        match &self.ablation {
            _ if self.holds => Verdict::Reproduced,
            Some(Ablation { result: true, .. }) => Verdict::Explained,
            _ => Verdict::Missed,
        }
    }
}

impl<T> Ablation<T> {
    pub(super) fn to_text(&self) -> String {
        let Self { parameter, from, to, evidence, why, .. } = self;
        format!("with {parameter} {from} -> {to} ns: {evidence}; {why}")
    }
}

impl Figure {
    /// Without numbers and notes; its parameter has no names.
    pub(super) fn new(
        [name, title, value, parameter]: [&'static str; 4],
        series: Vec<Series>,
        claims: Vec<Claim>,
    ) -> Self {
        let (numbers, notes) = (Vec::new(), Vec::new());
        Self { name, title, value, parameter, labels: &[], series, numbers, claims, notes }
    }

    /// The name of a parameter's value.
    pub(super) fn label(&self, at: f64) -> String {
        match self.labels.get(at as usize) {
            Some(label) => (*label).to_owned(),
            None if self.parameter.is_empty() => String::new(),
            None => at.to_string(),
        }
    }

    /// For a terminal.
    pub(super) fn to_text(&self) -> String {
        let Self { name, title, value, parameter, .. } = self;
        let mut text = format!("{name}: {title}\n\n  {value}\n");
        let names = self.series.iter().map(|series| series.name.chars().count());
        let width = names.chain([parameter.chars().count()]).max().unwrap_or(0);
        let values = || self.series.iter().flat_map(|series| &series.points);
        let cells = values().flat_map(|(at, value)| [self.label(*at).len(), format!("{value:.2}").len()]);
        let cell = cells.max().unwrap_or(0) + 1;
        if self.series.iter().any(|series| series.points.len() > 1) {
            let _ = write!(text, "  {parameter:width$}");
            for (at, _) in self.series.first().map_or(&[][..], |series| &series.points) {
                let _ = write!(text, "{:>cell$}", self.label(*at));
            }
            text.push('\n');
        }
        let mut is_other = false;
        for series in &self.series {
            if series.other && !std::mem::replace(&mut is_other, true) {
                text += "  beyond the paper:\n";
            }
            let _ = write!(text, "  {:width$}", series.name);
            for (_, value) in &series.points {
                let _ = write!(text, "{value:>cell$.2}");
            }
            text.push('\n');
        }
        for number in &self.numbers {
            let Number { what, unit, paper, ours, .. } = number;
            let kind = if number.kind == Kind::Calibration { "calibration" } else { number.verdict().text() };
            let _ =
                writeln!(text, "\n  {what}: paper {paper} {unit}, ours {ours:.2}, ratio {:.2}: {kind}", ours / paper);
            if let Some(ablation) = &number.ablation {
                let _ = writeln!(text, "    {}", ablation.to_text());
            }
        }
        text.push('\n');
        for claim in &self.claims {
            let answer = if claim.holds { "holds" } else { "DOES NOT HOLD" };
            let _ = writeln!(text, "  {}: {answer} ({})", claim.what, claim.evidence);
            if let Some(ablation) = &claim.ablation {
                let still = if ablation.result { "holds" } else { "does not hold either" };
                let _ = writeln!(text, "    {still} {}", ablation.to_text());
            }
        }
        for note in &self.notes {
            let _ = writeln!(text, "  note: {note}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ablation<T>(result: T) -> Option<Ablation<T>> {
        Some(Ablation { parameter: "poll", from: 1.0, to: 2.0, result, evidence: String::new(), why: "" })
    }

    #[test]
    fn a_number_is_close_or_explained_or_missed() {
        let number = |ours, ablation| {
            Number { what: "", unit: "", kind: Kind::Prediction, paper: 10.0, ours, ablation }.verdict()
        };
        assert_eq!(number(10.9, None), Verdict::Reproduced);
        assert_eq!(number(11.1, None), Verdict::Missed);
        assert_eq!(number(11.1, ablation(9.1)), Verdict::Explained);
        assert_eq!(number(8.9, ablation(11.1)), Verdict::Missed);
        assert_eq!(number(f64::NAN, None), Verdict::Missed);
    }

    #[test]
    fn a_claim_holds_or_is_explained_or_missed() {
        let claim = |holds, ablation| Claim { what: "", holds, evidence: String::new(), ablation }.verdict();
        assert_eq!(claim(true, ablation(false)), Verdict::Reproduced);
        assert_eq!(claim(false, ablation(true)), Verdict::Explained);
        assert_eq!(claim(false, ablation(false)), Verdict::Missed);
        assert_eq!(claim(false, None), Verdict::Missed);
    }
}
