//! perftest, the peer on verbs: runs a server and a client of its programs, on the same device as
//! this library.

use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::bench::peers::plan::Measure;

pub(crate) const NAME: &str = "perftest";

/// The longest that a server and its client may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// Few, because rounds may take milliseconds if a software device shares two cores with two
/// spinning processes.
const ROUNDS: &str = "300";
const POLL_INTERVAL: Duration = Duration::from_millis(20);

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
        let (program, options, figure): (_, &[_], _) = match measure.probe {
            "get" if small => ("ib_read_lat", &["-s", "8"], Figure::Typical),
            "compare_and_swap" => ("ib_atomic_lat", &["-A", "CMP_AND_SWAP"], Figure::Typical),
            "fetch_and_op" => ("ib_atomic_lat", &["-A", "FETCH_AND_ADD"], Figure::Typical),
            "signal_echo" => ("ib_write_lat", &["-s", "8"], Figure::Typical),
            "message_echo" => ("ib_send_lat", &["-s", "8"], Figure::Typical),
            "message_many" => ("ib_send_bw", &["-s", "8", "-t", "64"], Figure::Average(8)),
            "put_many" if small => ("ib_write_bw", &["-s", "8", "-t", "64"], Figure::Average(8)),
            "put_many" => ("ib_write_bw", &["-s", "65536", "-t", "64"], Figure::Average(65536)),
            _ => return None,
        };
        Some(Self { program, options, figure })
    }
}

/// Whether perftest has a program that corresponds to the measure.
pub(crate) fn supports(measure: &Measure) -> bool {
    Job::of(measure).is_some()
}

impl Perftest {
    /// Finds the programs, and the device that the verbs fabric uses: the one that
    /// `ONESIDED_DEVICE` names, or the first.
    pub(crate) fn find() -> Result<Self, String> {
        let names = fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
        let mut names: Vec<_> = names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        let wanted = std::env::var("ONESIDED_DEVICE").ok();
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
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
        let port = port.map_err(|error| error.to_string())?.port();
        let deadline = Instant::now() + DEADLINE;
        let mut server = Tool::start(self.command(&job, port))?;
        while !listens(port) {
            if let Some(said) = server.ended()? {
                return Err(format!("{}: {said}", job.program));
            }
            poll_wait(over, deadline, job.program)?;
        }
        let mut client = self.command(&job, port);
        client.arg("127.0.0.1");
        let mut client = Tool::start(client)?;
        loop {
            if let Some(said) = client.ended()? {
                return nanos(&said, job.figure)
                    .ok_or_else(|| format!("{}: {}", job.program, said.trim().lines().last().unwrap_or("no figures")));
            }
            poll_wait(over, deadline, job.program)?;
        }
    }

    fn command(&self, job: &Job, port: u16) -> Command {
        let mut words = self.wrapper().iter().copied().chain([job.program]);
        let mut command = Command::new(words.next().unwrap_or(job.program));
        command.args(words).args(["-d", &self.device, "-n", ROUNDS, "-p", &port.to_string()]).args(job.options);
        if self.by_address {
            command.args(["-x", "1"]);
        }
        command
    }
}

/// Waits for the next poll.
///
/// # Errors
/// If the run is over, or the deadline has passed.
fn poll_wait(over: &AtomicBool, deadline: Instant, program: &str) -> Result<(), String> {
    if over.load(Ordering::Relaxed) {
        return Err("the run was ended".to_owned());
    }
    if Instant::now() > deadline {
        return Err(format!("{program} was not done within {} s", DEADLINE.as_secs()));
    }
    thread::sleep(POLL_INTERVAL);
    Ok(())
}

/// Whether a socket listens at a port. A connection attempt would be taken for the client's.
fn listens(port: u16) -> bool {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let here = format!(":{port:04X}");
    tables.iter().flat_map(|table| table.lines()).any(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|address| address.ends_with(&here)) && words.nth(1) == Some("0A")
    })
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

/// A process that does not outlive its owner.
struct Tool(Child);

impl Tool {
    fn start(mut command: Command) -> Result<Self, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        // In another process group, so that Ctrl-C reaches only this program, which then ends the
        // process.
        command.process_group(0).spawn().map(Self).map_err(|error| format!("{name}: {error}"))
    }

    /// Its output once it has ended. The output is smaller than a pipe's buffer.
    fn ended(&mut self) -> Result<Option<String>, String> {
        if self.0.try_wait().map_err(|error| error.to_string())?.is_none() {
            return Ok(None);
        }
        let mut said = String::new();
        if let Some(output) = &mut self.0.stdout {
            output.read_to_string(&mut said).map_err(|error| error.to_string())?;
        }
        Ok(Some(said))
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_listening_port_is_detected_without_a_connection() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listens(port));
        drop(listener);
        assert!(!listens(port));
    }
}
