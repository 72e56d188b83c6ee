//! `onesided bench peer`: a rank of this library, started by `onesided bench peers`. It does the
//! same as benches/peers/peer.c.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::bench::peers::control::Request;
use crate::bench::peers::probes::Probes;
use crate::bench::worker::rank::BenchRank;
use crate::failure::Failure;

/// A rank of a benchmark; `bench peers` starts it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The socket that requests arrive at
    socket: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let rank = BenchRank::join(None)?;
    let mut probes = Probes::new(&rank)?;
    rank.world.barrier().wait()?;
    let mut stream = UnixStream::connect(&args.socket)?;
    let mut requests = BufReader::new(stream.try_clone()?);
    writeln!(stream, "{}", rank.world.rank())?;
    let mut line = String::new();
    while requests.read_line(&mut line)? > 0 {
        let answer = match parse(&line) {
            Some(request) => probes.run(request)?,
            None => None,
        };
        match answer {
            Some(number) => writeln!(stream, "{number:.0}")?,
            None => writeln!(stream, "?")?,
        }
        line.clear();
    }
    probes.close()?;
    Ok(ExitCode::SUCCESS)
}

fn parse(line: &str) -> Option<Request<'_>> {
    let mut words = line.split_whitespace();
    let probe = words.next()?;
    let mut number = || words.next()?.parse().ok();
    Some(Request { probe, size: number()?, times: number()?, argument: number()? })
}
