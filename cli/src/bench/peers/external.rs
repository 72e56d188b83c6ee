//! Programs that measure by themselves: a server and a client of a run each.

use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::bench::peers::plan::Measure;

/// The longest that a server and its client may take.
const DEADLINE: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

type Measures = dyn Fn(&Measure, u16) -> Option<Job>;
type Parses = dyn Fn(&str) -> Option<f64>;

/// An installed program.
pub(crate) struct External {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    /// The command that runs all processes, this library's too.
    pub(crate) wrapper: &'static [&'static str],
    /// How it measures the same, over this port.
    pub(super) job: Box<Measures>,
}

/// A server and a client.
pub(super) struct Job {
    pub(super) program: &'static str,
    pub(super) server: Command,
    pub(super) client: Command,
    /// The nanoseconds of one operation, from the client's output.
    pub(super) nanos: Box<Parses>,
}

impl External {
    /// Whether it measures the same.
    pub(crate) fn supports(&self, measure: &Measure) -> bool {
        (self.job)(measure, 0).is_some()
    }

    /// Measures the nanoseconds of one operation, until `over` is set.
    pub(crate) fn measure(&self, measure: &Measure, over: &AtomicBool) -> Result<f64, String> {
        // A port that nobody listens at.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
        let port = free.map_err(|error| error.to_string())?.port();
        let Job { program, server, client, nanos } = (self.job)(measure, port).ok_or("nothing corresponds to it")?;
        let said = output_of_client(program, (server, client), port, over)?;
        let without = || format!("{program}: {}", said.trim().lines().last().unwrap_or("no figures"));
        nanos(&said).ok_or_else(without)
    }
}

/// The output of a client, started once its server listens at a port. `name` is the program's.
fn output_of_client(
    name: &str,
    (server, client): (Command, Command),
    port: u16,
    over: &AtomicBool,
) -> Result<String, String> {
    let deadline = Instant::now() + DEADLINE;
    let mut server = Tool::start(server)?;
    while !listens(port) {
        if let Some(said) = server.ended()? {
            return Err(format!("{name}: {said}"));
        }
        poll_wait(over, deadline, name)?;
    }
    let mut client = Tool::start(client)?;
    loop {
        if let Some(said) = client.ended()? {
            return Ok(said);
        }
        poll_wait(over, deadline, name)?;
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
    fn a_listening_port_is_detected_without_a_connection() {
        // Another program may take a port that has become free.
        let is_free_again = |_| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            assert!(listens(port));
            drop(listener);
            !listens(port)
        };
        assert!((0..10).any(is_free_again));
    }
}
