//! perftest, the peer on verbs: its programs, a server and a client a time, on the device that ours use.

use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::bench::peers::plan::{Measure, SMALL};

pub(crate) const NAME: &str = "perftest";

/// For a server and its client. They spin: where there are two cores only, they keep a software device from its work.
const DEADLINE: Duration = Duration::from_secs(30);
/// Few, for the same reason.
const ROUNDS: &str = "300";
const LOOK: Duration = Duration::from_millis(20);

/// Where it measures.
#[derive(Debug)]
pub(crate) struct Perftest {
    device: String,
    /// Whether the device is reached by an address of the network below, as over Ethernet.
    by_address: bool,
    pub(crate) version: String,
}

/// What it does instead of a measure of ours.
#[derive(Debug, PartialEq)]
struct Job {
    program: &'static str,
    options: &'static [&'static str],
}

impl Job {
    fn of(measure: &Measure) -> Option<Self> {
        let (program, options): (_, &[_]) = match measure.probe {
            "get" if measure.group == SMALL => ("ib_read_lat", &["-s", "8"]),
            "compare_and_swap" => ("ib_atomic_lat", &["-A", "CMP_AND_SWAP"]),
            "fetch_and_op" => ("ib_atomic_lat", &["-A", "FETCH_AND_ADD"]),
            // ib_write_lat and ib_send_lat are echoes between two processes that spin, and the averages of ib_write_bw
            // and ib_read_bw hold every wait for a core: on Soft-RoCE they differ a hundredfold from run to run.
            _ => return None,
        };
        Some(Self { program, options })
    }
}

/// Whether it has something to compare with the measure.
pub(crate) fn knows(measure: &Measure) -> bool {
    Job::of(measure).is_some()
}

impl Perftest {
    /// On the device that our fabric takes: the one that `ONESIDED_DEVICE` names, or the first.
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
        let layer = fs::read_to_string(format!("/sys/class/infiniband/{device}/ports/1/link_layer"));
        let output = Command::new("ib_read_lat").arg("--version").stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("ib_read_lat: {error} (Debian: apt install perftest)"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = text.split_whitespace().last().unwrap_or("unknown").to_owned();
        Ok(Self { device, by_address: layer.is_ok_and(|layer| layer.trim() == "Ethernet"), version })
    }

    /// Nanoseconds of one operation: its typical latency.
    pub(crate) fn measure(&self, measure: &Measure, over: &AtomicBool) -> Result<f64, String> {
        let job = Job::of(measure).ok_or("it has nothing alike")?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
        let port = port.map_err(|error| error.to_string())?.port();
        let deadline = Instant::now() + DEADLINE;
        let mut server = Tool::start(self.command(&job, port))?;
        while !listens(port) {
            if let Some(said) = server.ended()? {
                return Err(format!("{}: {said}", job.program));
            }
            look(over, deadline, job.program)?;
        }
        let mut client = self.command(&job, port);
        client.arg("127.0.0.1");
        let mut client = Tool::start(client)?;
        loop {
            if let Some(said) = client.ended()? {
                return nanos(&said)
                    .ok_or_else(|| format!("{}: {}", job.program, said.trim().lines().last().unwrap_or("no figures")));
            }
            look(over, deadline, job.program)?;
        }
    }

    fn command(&self, job: &Job, port: u16) -> Command {
        let mut command = Command::new(job.program);
        command.args(["-d", &self.device, "-n", ROUNDS, "-p", &port.to_string()]).args(job.options);
        if self.by_address {
            command.args(["-x", "1"]);
        }
        command
    }
}

fn look(over: &AtomicBool, deadline: Instant, program: &str) -> Result<(), String> {
    if over.load(Ordering::Relaxed) {
        return Err("the run was ended".to_owned());
    }
    if Instant::now() > deadline {
        return Err(format!("{program} was not done within {} s", DEADLINE.as_secs()));
    }
    thread::sleep(LOOK);
    Ok(())
}

/// Whether somebody waits for calls at a port; a call to find out would be taken for the client's.
fn listens(port: u16) -> bool {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let here = format!(":{port:04X}");
    tables.iter().flat_map(|table| table.lines()).any(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|address| address.ends_with(&here)) && words.nth(1) == Some("0A")
    })
}

/// What a client's line of figures says of one operation.
fn nanos(said: &str) -> Option<f64> {
    let mut lines = said.lines().skip_while(|line| !line.trim_start().starts_with("#bytes"));
    let typical = lines.next()?.split_whitespace().position(|head| head.starts_with("t_typical"))?;
    let micros: f64 = lines.next()?.split_whitespace().nth(typical)?.parse().ok()?;
    (micros > 0.0).then_some(micros * 1e3)
}

/// A process that does not outlive its owner.
struct Tool(Child);

impl Tool {
    fn start(mut command: Command) -> Result<Self, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        // Ctrl-C is for this program, which then ends it.
        command.process_group(0).spawn().map(Self).map_err(|error| format!("{name}: {error}"))
    }

    /// What it said, once it has ended: less than a pipe holds.
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
    fn a_clients_figures_are_read() {
        let latency = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n\
            8       300          39.78          5335.71      56.24    \t       66.13       \t49.36\n----\n";
        assert_eq!(nanos(latency), Some(56240.0));
        let bandwidth = " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n \
            1048576      30              79.75              50.00  \t\t   0.000932\n";
        assert_eq!(nanos(bandwidth), None);
        assert_eq!(nanos("Unable to init the socket connection"), None);
    }

    #[test]
    fn a_port_is_seen_to_listen_without_a_call() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listens(port));
        drop(listener);
        assert!(!listens(port));
    }
}
