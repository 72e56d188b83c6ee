//! A rank of ours: `onesided bench peer`, started by `onesided bench peers`. It does what benches/peers/peer.c does.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::bench::peers::probes::Probes;
use crate::bench::peers::subject::Order;
use crate::bench::rank::RankOfBench;
use crate::failure::Failure;

/// A rank of a benchmark; `bench peers` starts it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the orders come from
    socket: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let rank = RankOfBench::join(None)?;
    let mut probes = Probes::new(&rank)?;
    rank.world.barrier().wait()?;
    let mut stream = UnixStream::connect(&args.socket)?;
    let mut orders = BufReader::new(stream.try_clone()?);
    writeln!(stream, "{}", rank.world.rank())?;
    let mut line = String::new();
    while orders.read_line(&mut line)? > 0 {
        let answer = match parse(&line) {
            Some(order) => probes.run(order)?,
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

fn parse(line: &str) -> Option<Order<'_>> {
    let mut words = line.split_whitespace();
    let probe = words.next()?;
    let mut number = || words.next()?.parse().ok();
    Some(Order { probe, size: number()?, times: number()?, argument: number()? })
}
