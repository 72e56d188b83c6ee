//! `onesided reproduce`: figures of papers out of the shipped crates.
//!
//! [`experiment`](crate::experiment) runs windows and locks as shipped on a simulated testbed,
//! [`jiang_2004`] draws the paper's figures from that, [`figure`] compares them with the paper,
//! [`report`] draws a page.

mod figure;
mod jiang_2004;
mod report;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use onesided_sim::{Check, Parameter, Profile};
use serde::Serialize;

use crate::failure::{Failure, USAGE};
use crate::output::{command, create, print, progress};
use crate::reproduce::figure::{Claim, Figure, Kind, Number, Verdict};
use crate::reproduce::jiang_2004::{FIGURES, Lab};

/// Reproduces figures of papers: windows and locks as shipped, on a modelled testbed.
///
/// The testbed is a profile: the costs of its cards, wires and hosts, each with its source, set
/// from microbenchmarks and specifications before any figure ran on it. A number of a paper is a
/// calibration if the profile was set from it, else a prediction: it is reproduced within 10 %,
/// explained if changing one cost brings it there, or missed. The same for what the paper's text
/// claims. The figures are exact: the same seed gives the same ones.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Figures: jiang-2004-1 to jiang-2004-6, jiang-2004 for those of that paper, or all [default: all]
    #[arg(value_name = "FIGURE", value_parser = parse_figure)]
    figures: Vec<String>,

    /// The testbed: infinihost, connectx7, soft-roce, shm, or a TOML file
    #[arg(long, value_name = "NAME or FILE", default_value = "infinihost")]
    profile: String,

    /// Another value of a parameter of the profile, in ns, B/s or as a number
    #[arg(long = "set", value_name = "PARAMETER=VALUE", value_parser = parse_set)]
    sets: Vec<(String, f64)>,

    /// The paper's designs, or all that windows have
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = Designs::Paper)]
    designs: Designs,

    /// How often each lock is acquired
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    times: u64,

    /// The seed of the random numbers: of losses and jitter, where a figure or the profile has some
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Writes profile, figures and verdicts as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Writes an HTML page that draws the figures beside the paper's numbers and claims
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// The locks that a figure shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Designs {
    Paper,
    All,
}

fn parse_figure(name: &str) -> Result<String, String> {
    let known = FIGURES.iter().any(|(figure, _)| is_part_of(figure, name));
    if known {
        Ok(name.into())
    } else {
        Err("figures are jiang-2004-1 to jiang-2004-6, jiang-2004 for those of that paper, and all".into())
    }
}

/// Whether a figure is the named one, or of the named paper, or all are named.
fn is_part_of(figure: &str, name: &str) -> bool {
    figure == name || name == "all" || figure.rsplit_once('-').is_some_and(|(paper, _)| paper == name)
}

fn parse_set(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text.split_once('=').ok_or("PARAMETER=VALUE is missing its '='")?;
    Ok((name.into(), value.parse().map_err(|_| format!("'{value}' is no number"))?))
}

/// What `--json` writes.
#[derive(Serialize)]
struct Document<'d> {
    version: &'static str,
    seed: u64,
    profile: &'d str,
    parameters: Vec<Cost<'d>>,
    /// What the profile was set from, and what the simulated testbed measures.
    checks: Vec<Checked<'d>>,
    figures: &'d [Figure],
    verdicts: Vec<Line>,
}

#[derive(Serialize)]
struct Cost<'d> {
    name: &'d str,
    #[serde(flatten)]
    parameter: &'d Parameter,
}

#[derive(Serialize)]
struct Checked<'d> {
    measures: &'d str,
    unit: &'d str,
    set_from: f64,
    ours: Option<f64>,
    source: &'d str,
}

/// The verdict on a number or claim.
#[derive(Serialize)]
struct Line {
    figure: &'static str,
    what: &'static str,
    kind: Kind,
    verdict: Verdict,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    run_to(args, &mut io::stdout())?;
    Ok(ExitCode::SUCCESS)
}

fn run_to(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let lab = Lab {
        profile: args.profile()?,
        seed: args.seed,
        times: args.times,
        origins: (1..=7).collect(),
        threads: (0..=8).collect(),
        slices: 20,
        all_designs: args.designs == Designs::All,
    };
    let wanted = |name: &str| args.figures.is_empty() || args.figures.iter().any(|part| is_part_of(name, part));
    let chosen: Vec<_> = FIGURES.iter().filter(|(name, _)| wanted(name)).collect();
    // Before the figures are measured, so that a wrong path is found first.
    let open = |path: &Option<PathBuf>| path.as_deref().map(create).transpose();
    let (json, report) = (open(&args.json)?, open(&args.report)?);
    let bar = progress(chosen.len() as u64);
    let mut figures = Vec::new();
    for (name, figure) in chosen {
        bar.set_message(*name);
        let figure = figure(&lab)?;
        bar.suspend(|| print(&mut *out, &format!("{}\n", figure.to_text())))?;
        figures.push(figure);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let verdicts = verdicts(&figures);
    print(out, &summary(&lab.profile, &verdicts))?;
    if let Some(mut report) = report {
        report.write_all(report::page(&lab.profile, &figures, &command()).as_bytes())?;
    }
    if let Some(mut json) = json {
        serde_json::to_writer_pretty(&mut json, &args.document(&lab.profile, &figures, verdicts))?;
        json.write_all(b"\n")?;
    }
    Ok(())
}

impl Args {
    fn profile(&self) -> Result<Profile, Failure> {
        let wrong = |error: String| Failure::new(USAGE, error);
        let mut profile = match Profile::SHIPPED.contains(&self.profile.as_str()) {
            true => Profile::shipped(&self.profile)?,
            false => {
                let text = std::fs::read_to_string(&self.profile).map_err(|error| {
                    let shipped = Profile::SHIPPED.join(", ");
                    wrong(format!("{}: {error}; profiles that need no file are {shipped}", self.profile))
                })?;
                Profile::parse(&text).map_err(|error| wrong(format!("{}: {error}", self.profile)))?
            }
        };
        for (name, value) in &self.sets {
            profile = profile.with(name, *value).map_err(|error| wrong(error.to_string()))?;
        }
        Ok(profile)
    }

    fn document<'d>(&self, profile: &'d Profile, figures: &'d [Figure], verdicts: Vec<Line>) -> Document<'d> {
        Document {
            version: env!("CARGO_PKG_VERSION"),
            seed: self.seed,
            profile: &profile.title,
            parameters: profile.parameters.iter().map(|(name, parameter)| Cost { name, parameter }).collect(),
            checks: profile
                .checks
                .iter()
                .map(|check| Checked {
                    measures: &check.measures,
                    unit: &check.unit,
                    set_from: check.value,
                    ours: profile.measure(&check.measures),
                    source: &check.source,
                })
                .collect(),
            figures,
            verdicts,
        }
    }
}

fn verdicts(figures: &[Figure]) -> Vec<Line> {
    let of = |figure: &Figure| {
        let name = figure.name;
        let number =
            |number: &Number| Line { figure: name, what: number.what, kind: number.kind, verdict: number.verdict() };
        let claim =
            |claim: &Claim| Line { figure: name, what: claim.what, kind: Kind::Prediction, verdict: claim.verdict() };
        figure.numbers.iter().map(number).chain(figure.claims.iter().map(claim)).collect::<Vec<_>>()
    };
    figures.iter().flat_map(of).collect()
}

/// The title of the profile of jiang-2004's testbed.
const PAPERS_TESTBED: &str = "InfiniHost MT23108 over PCI-X (jiang-2004)";

/// Misses first.
fn summary(profile: &Profile, verdicts: &[Line]) -> String {
    let mut text = format!("{}\n", profile.title);
    if profile.title != PAPERS_TESTBED {
        text += "not the paper's testbed: its numbers and claims are for comparison only\n";
    }
    let unnamed = profile.parameters.iter().filter(|(_, parameter)| parameter.source == Parameter::DEFAULT);
    let (none, some): (Vec<_>, Vec<_>) = unnamed.partition(|(_, parameter)| parameter.value == 0.0);
    let some = some.iter().map(|(name, Parameter { value, unit, .. })| match unit.as_str() {
        "1" => format!("{name} {value}"),
        unit => format!("{name} {value} {unit}"),
    });
    let none = none.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>();
    text += &format!("not in the profile: {}; 0: {}\n", some.collect::<Vec<_>>().join(", "), none.join(", "));
    for Check { measures, value, unit, source } in &profile.checks {
        let ours = profile.measure(measures).unwrap_or(f64::NAN);
        let off = 100.0 * (ours / value - 1.0);
        text += &format!("set from {measures} {value} {unit} ({source}): simulated {ours:.4} {unit}, {off:+.1} %\n");
    }
    if profile.checks.is_empty() {
        text += "set from no measurement: see the sources of its parameters\n";
    }
    let predicted = || verdicts.iter().filter(|line| line.kind == Kind::Prediction);
    for verdict in [Verdict::Missed, Verdict::Explained, Verdict::Reproduced] {
        let lines: Vec<_> = predicted().filter(|line| line.verdict == verdict).collect();
        text += &format!("{} {} of {} predictions\n", verdict.text(), lines.len(), predicted().count());
        for line in lines.iter().filter(|_| verdict != Verdict::Reproduced) {
            text += &format!("  {}: {}\n", line.figure, line.what);
        }
    }
    text
}
