//! perftest, the peer on verbs: runs a server and a client of its programs, on the same device as
//! this library.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use crate::bench::peers::external;
use crate::bench::peers::plan::Measure;

pub(crate) const NAME: &str = "perftest";

/// Few, because rounds may take milliseconds if a software device shares two cores with two
/// spinning processes; and of long ones.
const ROUNDS: [&str; 2] = ["300", "30"];

/// The installed perftest, and the device that it measures.
#[derive(Debug)]
pub(crate) struct Perftest {
    device: String,
    /// Whether connections need a GID index, as over Ethernet.
    by_address: bool,
    /// Whether the device is emulated by a driver, on the same processors as its users.
    is_software: bool,
    pub(crate) version: String,
}

/// The program that corresponds to a measure.
#[derive(Debug, PartialEq)]
struct Job {
    program: &'static str,
    options: &'static [&'static str],
    figure: Figure,
    is_long: bool,
    by_datagrams: bool,
}

/// Which figure of its output counts.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Figure {
    /// The median latency, in microseconds; for echoes, half a round trip. The average would
    /// include every wait for a core.
    Typical,
    /// The average bandwidth, in MiB/s, of messages of so many bytes. It includes every wait for a
    /// core, as this library's does: on Soft-RoCE, runs often differ by half, on a busy host
    /// tenfold. The peak is not sustained.
    Average(u32),
}

impl Job {
    fn of(measure: &Measure) -> Option<Self> {
        let small = measure.size == 8;
        let mut by_datagrams = false;
        let (program, options, figure): (_, &[_], _) = match measure.probe {
            "get" if small => ("ib_read_lat", &["-s", "8"], Figure::Typical),
            "compare_and_swap" => ("ib_atomic_lat", &["-A", "CMP_AND_SWAP"], Figure::Typical),
            "fetch_and_op" => ("ib_atomic_lat", &["-A", "FETCH_AND_ADD"], Figure::Typical),
            "signal_echo" => ("ib_write_lat", &["-s", "8"], Figure::Typical),
            "ping_pong" => {
                by_datagrams = messages_by_datagrams();
                ("ib_send_lat", &["-s", "8"], Figure::Typical)
            }
            "ping_pong_read" => ("ib_read_lat", &["-s", "1048576"], Figure::Typical),
            "ping_pong_written" => ("ib_write_lat", &["-s", "1048576"], Figure::Typical),
            "stream" if small => {
                by_datagrams = messages_by_datagrams();
                ("ib_send_bw", &["-s", "8", "-t", "64"], Figure::Average(8))
            }
            "stream" => ("ib_read_bw", &["-s", "1048576", "-t", "16"], Figure::Average(1 << 20)),
            "stream_written" => ("ib_write_bw", &["-s", "1048576", "-t", "16"], Figure::Average(1 << 20)),
            "put_many" if small => ("ib_write_bw", &["-s", "8", "-t", "64"], Figure::Average(8)),
            "put_many" => ("ib_write_bw", &["-s", "65536", "-t", "64"], Figure::Average(65536)),
            _ => return None,
        };
        Some(Self { program, options, figure, is_long: measure.size >= 1 << 20, by_datagrams })
    }
}

/// Whether the packets of this library's messages are datagrams.
fn messages_by_datagrams() -> bool {
    std::env::var("ONESIDED_MESSAGES_CHANNEL").is_ok_and(|channel| channel == "ud")
}

/// Whether perftest has a program that corresponds to the measure.
pub(crate) fn supports(measure: &Measure) -> bool {
    Job::of(measure).is_some()
}

impl Perftest {
    /// Finds the programs, and the device that the verbs fabric uses: the one that
    /// `ONESIDED_DEVICE` names first, or the first.
    pub(crate) fn find() -> Result<Self, String> {
        let names = fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
        let mut names: Vec<_> = names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        let wanted = std::env::var("ONESIDED_DEVICE").ok();
        let wanted = wanted.map(|named| named.split([',', ':']).next().unwrap_or_default().to_owned());
        let device = names.into_iter().find(|name| wanted.as_ref().is_none_or(|wanted| wanted == name));
        let device = device.ok_or_else(|| match wanted {
            Some(wanted) => format!("there is no RDMA device {wanted}"),
            None => "there is no RDMA device (scripts/soft-roce makes one)".to_owned(),
        })?;
        let path = fs::canonicalize(format!("/sys/class/infiniband/{device}"));
        let is_software = path.is_ok_and(|path| path.starts_with("/sys/devices/virtual"));
        let layer = fs::read_to_string(format!("/sys/class/infiniband/{device}/ports/1/link_layer"));
        let output = Command::new("ib_read_lat").arg("--version").stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("ib_read_lat: {error} (Debian: apt install perftest)"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = text.split_whitespace().last().unwrap_or("unknown").to_owned();
        let by_address = layer.is_ok_and(|layer| layer.trim() == "Ethernet");
        Ok(Self { device, by_address, is_software, version })
    }

    /// The command that runs all processes. On a software device they are idle tasks, which yield
    /// at once: else two spinning processes would keep the device from its work on a host of two
    /// cores.
    pub(crate) fn wrapper(&self) -> &'static [&'static str] {
        if self.is_software { &["chrt", "-i", "0"] } else { &[] }
    }

    /// Measures the nanoseconds of one operation, until `over` is set.
    pub(crate) fn measure(&self, measure: &Measure, over: &AtomicBool) -> Result<f64, String> {
        let job = Job::of(measure).ok_or("no program corresponds to it")?;
        let port = external::free_port()?;
        let (server, mut client) = (self.command(&job, port), self.command(&job, port));
        client.arg("127.0.0.1");
        let said = external::output_of_client(job.program, (server, client), port, over)?;
        nanos(&said, job.figure).ok_or_else(|| external::without_figures(job.program, &said))
    }

    fn command(&self, job: &Job, port: u16) -> Command {
        let rounds = ROUNDS[usize::from(job.is_long)];
        let mut words = self.wrapper().iter().copied().chain([job.program]);
        let mut command = Command::new(words.next().unwrap_or(job.program));
        command.args(words).args(["-d", &self.device, "-n", rounds, "-p", &port.to_string()]).args(job.options);
        if job.by_datagrams {
            command.args(["-c", "UD"]);
        }
        if self.by_address {
            command.args(["-x", "1"]);
        }
        command
    }
}

/// The nanoseconds of one operation, from the output of a client.
fn nanos(said: &str, figure: Figure) -> Option<f64> {
    let column = match figure {
        Figure::Typical => "t_typical",
        Figure::Average(_) => "average",
    };
    let mut lines = said.lines().skip_while(|line| !line.trim_start().starts_with("#bytes"));
    // "BW average" is one column.
    let at = lines.next()?.split_whitespace().filter(|word| *word != "BW").position(|head| head.starts_with(column))?;
    let number: f64 = lines.next()?.split_whitespace().nth(at)?.parse().ok()?;
    let nanos = match figure {
        Figure::Typical => number * 1e3,
        Figure::Average(bytes) => f64::from(bytes) / (number * f64::from(1 << 20)) * 1e9,
    };
    (number > 0.0).then_some(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::peers::plan::over_cards;

    #[test]
    fn what_is_measured_over_cards_has_a_program() {
        assert!(over_cards().iter().all(supports));
    }

    #[test]
    fn a_clients_figures_are_parsed() {
        let latency = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n\
            8       300          39.78          5335.71      56.24    \t       66.13       \t49.36\n----\n";
        assert_eq!(nanos(latency, Figure::Typical), Some(56240.0));
        let bandwidth = " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n \
            1048576      30              79.75              50.00  \t\t   0.000932\n";
        assert_eq!(nanos(bandwidth, Figure::Typical), None);
        assert_eq!(nanos(bandwidth, Figure::Average(1 << 20)).map(f64::round), Some(20e6)); // 1 MiB at 50 MiB/s
        assert_eq!(nanos(latency, Figure::Average(8)), None);
        assert_eq!(nanos("Unable to init the socket connection", Figure::Typical), None);
    }
}
