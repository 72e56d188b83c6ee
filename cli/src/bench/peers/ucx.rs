//! `ucx_perftest`, a peer of messages on shared memory.

use std::process::{Command, Stdio};

use crate::bench::peers::external::{External, Job};
use crate::bench::peers::plan::Measure;
use crate::bench::worker::rank::cores;

pub(crate) const NAME: &str = "UCX";

const PROGRAM: &str = "ucx_perftest";

/// The bytes of a run, and the most and the fewest messages: a run takes some ten milliseconds.
const BYTES: u64 = 256 << 20;
const MESSAGES: (u64, u64) = (200, 20_000);

/// Finds the program.
pub(crate) fn find() -> Result<External, String> {
    let run = |program: &str, argument| {
        let output = Command::new(program).arg(argument).stdin(Stdio::null()).output();
        output.map_err(|error| format!("{program}: {error} (Debian: apt install ucx-utils)"))
    };
    run(PROGRAM, "-h")?;
    let said = run("ucx_info", "-v").map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let version = said.ok().and_then(|said| version(&said)).unwrap_or_else(|| "unknown".to_owned());
    let cores = cores().map_err(|error| error.to_string())?;
    let job = move |measure: &Measure, port: u16| {
        let test = match measure.probe {
            "ping_pong" => "tag_lat",
            "stream" => "tag_bw",
            _ => return None,
        };
        let [server, mut client] = [cores[1 % cores.len()], cores[0]].map(|core| {
            let mut command = Command::new(PROGRAM);
            command.args(["-p", &port.to_string(), "-c", &core.to_string()]);
            // Only what leads from process to process of a host.
            command.env("UCX_TLS", "sm");
            command
        });
        let times = (BYTES / measure.size).clamp(MESSAGES.0, MESSAGES.1);
        client.args(["127.0.0.1", "-t", test, "-s", &measure.size.to_string(), "-f", "-v"]);
        client.args(["-n", &times.to_string(), "-w", &(times / 8 + 1).to_string()]);
        if test == "tag_bw" {
            client.args(["-O", &measure.argument.to_string()]);
        }
        Some(Job { program: PROGRAM, server, client, nanos: Box::new(move |said| nanos(said, test)) })
    };
    Ok(External { name: NAME, version, wrapper: &[], job: Box::new(job) })
}

/// The version, from the output of `ucx_info -v`.
fn version(said: &str) -> Option<String> {
    said.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit())).map(str::to_owned)
}

/// The nanoseconds of a message, from the output of a client: the median of latencies, which is half
/// a round trip, or the overall rate.
fn nanos(said: &str, test: &str) -> Option<f64> {
    let mut lines = said.lines().skip_while(|line| !line.starts_with("iterations,"));
    let column = if test == "tag_lat" { "50.0_percentile_lat" } else { "overall_mr" };
    let at = lines.next()?.split(',').position(|head| head == column)?;
    let number: f64 = lines.next()?.split(',').nth(at)?.trim().parse().ok()?;
    (number > 0.0).then(|| if test == "tag_lat" { number * 1e3 } else { 1e9 / number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clients_figures_are_parsed() {
        let said = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n \
            20000,0.262,0.397,0.397,19.21,19.21,2518421,2500000\n";
        assert_eq!(nanos(said, "tag_lat"), Some(262.0));
        assert_eq!(nanos(said, "tag_bw"), Some(400.0));
        assert_eq!(nanos("connect() failed", "tag_bw"), None);
        assert_eq!(nanos(&said.replace("2500000", "0"), "tag_bw"), None);
    }

    #[test]
    fn a_version_is_parsed() {
        assert_eq!(version("# Version 1.13.1\n# Git branch").unwrap(), "1.13.1");
        assert_eq!(version("# Library version: 1.17.0\n").unwrap(), "1.17.0");
        assert_eq!(version("none"), None);
    }
}
