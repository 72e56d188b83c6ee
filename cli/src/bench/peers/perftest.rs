//! perftest, the peer on verbs: runs a server and a client of its programs, on the same device as
//! this library.

use std::fs;
use std::process::{Command, Stdio};

use crate::bench::peers::external::{External, Job};
use crate::bench::peers::plan::Measure;

pub(crate) const NAME: &str = "perftest";

/// Few, because rounds may take milliseconds if a software device shares two cores with two
/// spinning processes; and of long ones.
const ROUNDS: [&str; 2] = ["300", "30"];

/// The program that corresponds to a measure, with its options.
fn test(measure: &Measure) -> Option<(&'static str, &'static [&'static str])> {
    let small = measure.size == 8;
    Some(match measure.probe {
        "get" if small => ("ib_read_lat", &["-s", "8"]),
        "compare_and_swap" => ("ib_atomic_lat", &["-A", "CMP_AND_SWAP"]),
        "fetch_and_op" => ("ib_atomic_lat", &["-A", "FETCH_AND_ADD"]),
        "signal_echo" => ("ib_write_lat", &["-s", "8"]),
        "ping_pong" => ("ib_send_lat", &["-s", "8"]),
        "ping_pong_read" => ("ib_read_lat", &["-s", "1048576"]),
        "ping_pong_written" => ("ib_write_lat", &["-s", "1048576"]),
        "stream" if small => ("ib_send_bw", &["-s", "8", "-t", "64"]),
        "stream" => ("ib_read_bw", &["-s", "1048576", "-t", "16"]),
        "stream_written" => ("ib_write_bw", &["-s", "1048576", "-t", "16"]),
        "put_many" if small => ("ib_write_bw", &["-s", "8", "-t", "64"]),
        "put_many" => ("ib_write_bw", &["-s", "65536", "-t", "64"]),
        _ => return None,
    })
}

/// Finds the programs, and the device that the verbs fabric uses: the one that `ONESIDED_DEVICE` names
/// first, or the first.
pub(crate) fn find() -> Result<External, String> {
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
    // On a software device all processes are idle tasks, which yield at once: else two spinning
    // processes would keep the device from its work on a host of two cores.
    let wrapper: &[_] = if is_software { &["chrt", "-i", "0"] } else { &[] };
    // Over Ethernet, connections need a GID index.
    let by_address: &[_] = if layer.is_ok_and(|layer| layer.trim() == "Ethernet") { &["-x", "1"] } else { &[] };
    let job = move |measure: &Measure, port: u16| {
        let (program, options) = test(measure)?;
        let command = || {
            let mut words = wrapper.iter().copied().chain([program]);
            let mut command = Command::new(words.next().unwrap_or(program));
            let rounds = ROUNDS[usize::from(measure.size >= 1 << 20)];
            command.args(words).args(["-d", &device, "-n", rounds, "-p", &port.to_string()]).args(options);
            command.args(if program.starts_with("ib_send") { by_datagrams() } else { &[] }).args(by_address);
            command
        };
        let (server, mut client) = (command(), command());
        client.arg("127.0.0.1");
        let bytes = program.ends_with("_bw").then_some(measure.size);
        Some(Job { program, server, client, nanos: Box::new(move |said| nanos(said, bytes)) })
    };
    Ok(External { name: NAME, version, wrapper, job: Box::new(job) })
}

/// As the packets of this library's messages.
fn by_datagrams() -> &'static [&'static str] {
    let is_ud = std::env::var("ONESIDED_MESSAGES_CHANNEL").is_ok_and(|channel| channel == "ud");
    if is_ud { &["-c", "UD"] } else { &[] }
}

/// The nanoseconds of one operation, from the output of a client: its median latency, of echoes half a
/// round trip, or the average bandwidth of messages of so many bytes. An average latency would include
/// every wait for a core. The bandwidth does, as this library's does: on Soft-RoCE, runs often differ by
/// half, on a busy host tenfold. Its peak is not sustained.
fn nanos(said: &str, bytes: Option<u64>) -> Option<f64> {
    let column = if bytes.is_some() { "average" } else { "t_typical" };
    let mut lines = said.lines().skip_while(|line| !line.trim_start().starts_with("#bytes"));
    // "BW average" is one column.
    let at = lines.next()?.split_whitespace().filter(|word| *word != "BW").position(|head| head.starts_with(column))?;
    let number: f64 = lines.next()?.split_whitespace().nth(at)?.parse().ok()?;
    let nanos = match bytes {
        None => number * 1e3,
        Some(bytes) => bytes as f64 / (number * f64::from(1 << 20)) * 1e9,
    };
    (number > 0.0).then_some(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::peers::plan::over_cards;

    #[test]
    fn what_is_measured_over_cards_has_a_program() {
        assert!(over_cards().iter().all(|measure| test(measure).is_some()));
    }

    #[test]
    fn a_clients_figures_are_parsed() {
        let latency = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n\
            8       300          39.78          5335.71      56.24    \t       66.13       \t49.36\n----\n";
        assert_eq!(nanos(latency, None), Some(56240.0));
        let bandwidth = " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n \
            1048576      30              79.75              50.00  \t\t   0.000932\n";
        assert_eq!(nanos(bandwidth, None), None);
        assert_eq!(nanos(bandwidth, Some(1 << 20)).map(f64::round), Some(20e6)); // 1 MiB at 50 MiB/s
        assert_eq!(nanos(latency, Some(8)), None);
        assert_eq!(nanos("Unable to init the socket connection", None), None);
    }
}
