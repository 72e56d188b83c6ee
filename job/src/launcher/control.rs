//! The protocol between the launcher and its agents, in the control frames of their [control
//! relay](crate::daemon).
//!
//! Before the frames, each side sends one line of text, whose form never changes. The launcher
//! writes its secret and its nonce, in hexadecimal with a space between them, to the agent's input.
//! The agent answers `onesided agent`, the protocol's version, the package's version, and its
//! nonce. The launcher skips whatever a login shell prints before that.
//!
//! | kind | from the launcher | fields |
//! |---|---|---|
//! | 512 | more of a start | part of the next |
//! | 513 | start | host 2, program, folder, fabric, number of arguments 4, arguments, variables (name, value) |
//! | 514 | signal | its number 4 |
//! | 515 | taken | rank 4, stream 1 (1: output, 2: error), number of bytes 4 |
//! | 516 | closed | rank 4, stream 1: no longer read |
//! | 517 | finish | all ranks have ended: each stream ends with what its pipe holds now |
//!
//! | kind | from an agent | fields |
//! |---|---|---|
//! | 640 | started | |
//! | 641 | failed | the system's error 4 or 0, text 2 + n |
//! | 642 | output | rank 4, stream 1, bytes (none: its end) |
//! | 643 | ended | rank 4, process 4, failed 1, how 1 (0: exit, 1: signal, 2: deserted, 3: lost), status or signal 4 |
//!
//! A string has its length, 4 bytes, before it. At most [`WINDOW`] bytes of a stream are in flight
//! from an agent.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use onesided_remote_memory::Rank;

use crate::launcher::End;
use crate::launcher::output::Target;
use crate::protocol::{Fields, Malformed};

/// The maximum number of bytes in flight of a rank's stream.
pub(super) const WINDOW: usize = 64 << 10;
/// The longest part of a start, and of output.
pub(super) const PART: usize = 32 << 10;
/// The beginning of the agent's line.
pub(super) const MARK: &str = "onesided agent ";

/// A command of the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Signal(i32),
    Taken { rank: Rank, target: Target, count: u32 },
    Closed { rank: Rank, target: Target },
    Finish,
}

/// The first command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Start {
    /// The agent's own host number.
    pub(super) host: u16,
    pub(super) program: OsString,
    pub(super) folder: OsString,
    pub(super) fabric: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) variables: Vec<(OsString, OsString)>,
}

/// A message of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Report {
    Started,
    Failed { errno: i32, what: String },
    Output { rank: Rank, target: Target, bytes: Vec<u8> },
    Ended { rank: Rank, pid: i32, failed: bool, end: End },
}

const MORE: u16 = 512;
const START: u16 = 513;

impl Start {
    /// Encodes control frames: kinds and fields.
    pub(super) fn encode(&self) -> Vec<(u16, Vec<u8>)> {
        let Self { host, program, folder, fabric, args, variables } = self;
        let mut bytes = host.to_le_bytes().to_vec();
        let mut add = |text: &OsStr| {
            bytes.extend((text.len() as u32).to_le_bytes());
            bytes.extend(text.as_bytes());
        };
        [program, folder, fabric].into_iter().for_each(|text| add(text));
        add(OsStr::from_bytes(&(args.len() as u32).to_le_bytes()));
        args.iter().for_each(|arg| add(arg));
        variables.iter().for_each(|(name, value)| {
            add(name);
            add(value);
        });
        let count = bytes.chunks(PART).len();
        bytes.chunks(PART).zip(1..).map(|(part, at)| (if at < count { MORE } else { START }, part.to_vec())).collect()
    }

    /// Collects parts. `None` while more are to come.
    pub(super) fn decode(kind: u16, part: &[u8], begun: &mut Vec<u8>) -> Result<Option<Self>, Malformed> {
        begun.extend_from_slice(part);
        match kind {
            MORE if begun.len() <= 16 << 20 => return Ok(None), // no system accepts more arguments
            START => {}
            _ => return Err(Malformed::Kind(kind)),
        }
        let mut fields = Fields::of(begun);
        let host = fields.u16()?;
        let [program, folder, fabric] = [string(&mut fields)?, string(&mut fields)?, string(&mut fields)?];
        let count = string(&mut fields)?;
        let count = u32::from_le_bytes(count.as_bytes().try_into().map_err(|_| Malformed::Short(4))?);
        let args = (0..count).map(|_| string(&mut fields)).collect::<Result<_, _>>()?;
        let mut variables = Vec::new();
        while !fields.is_empty() {
            variables.push((string(&mut fields)?, string(&mut fields)?));
        }
        Ok(Some(Self { host, program, folder, fabric, args, variables }))
    }
}

fn string(fields: &mut Fields<'_>) -> Result<OsString, Malformed> {
    let len = fields.u32()? as usize;
    fields.bytes(len).map(|bytes| OsString::from_vec(bytes.to_vec()))
}

impl Command {
    pub(super) fn encode(&self) -> (u16, Vec<u8>) {
        match self {
            Self::Signal(signal) => (514, signal.to_le_bytes().to_vec()),
            Self::Taken { rank, target, count } => (515, [&of(*rank, *target), &count.to_le_bytes()[..]].concat()),
            Self::Closed { rank, target } => (516, of(*rank, *target)),
            Self::Finish => (517, Vec::new()),
        }
    }

    pub(super) fn decode(kind: u16, fields: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields::of(fields);
        let decoded = match kind {
            514 => Self::Signal(fields.u32()? as i32),
            515 => {
                let (rank, target) = stream(&mut fields)?;
                Self::Taken { rank, target, count: fields.u32()? }
            }
            516 => {
                let (rank, target) = stream(&mut fields)?;
                Self::Closed { rank, target }
            }
            517 => Self::Finish,
            _ => return Err(Malformed::Kind(kind)),
        };
        fields.end().map(|()| decoded)
    }
}

impl Report {
    pub(super) fn encode(&self) -> (u16, Vec<u8>) {
        match self {
            Self::Started => (640, Vec::new()),
            Self::Failed { errno, what } => (641, [&errno.to_le_bytes(), what.as_bytes()].concat()),
            Self::Output { rank, target, bytes } => (642, [&of(*rank, *target), &bytes[..]].concat()),
            Self::Ended { rank, pid, failed, end } => {
                let (how, number) = match end {
                    End::Exited(status) => (0, i32::from(*status)),
                    End::Killed(signal) => (1, *signal),
                    End::Deserted => (2, 0),
                    End::Lost => (3, 0),
                };
                let flags = [u8::from(*failed), how];
                (643, [&rank.0.to_le_bytes()[..], &pid.to_le_bytes(), &flags, &number.to_le_bytes()].concat())
            }
        }
    }

    pub(super) fn decode(kind: u16, fields: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields::of(fields);
        let decoded = match kind {
            640 => Self::Started,
            641 => {
                let errno = fields.u32()? as i32;
                Self::Failed { errno, what: String::from_utf8_lossy(fields.rest()).into_owned() }
            }
            642 => {
                let (rank, target) = stream(&mut fields)?;
                Self::Output { rank, target, bytes: fields.rest().to_vec() }
            }
            643 => {
                let (rank, pid) = (Rank(fields.u32()?), fields.u32()? as i32);
                let [failed, how] = fields.array()?;
                let number = fields.u32()?;
                let end = match how {
                    0 => End::Exited(number as u8),
                    1 => End::Killed(number as i32),
                    2 => End::Deserted,
                    3 => End::Lost,
                    _ => return Err(Malformed::Reason(how.into())),
                };
                Self::Ended { rank, pid, failed: failed != 0, end }
            }
            _ => return Err(Malformed::Kind(kind)),
        };
        fields.end().map(|()| decoded)
    }
}

fn of(rank: Rank, target: Target) -> Vec<u8> {
    let target = match target {
        Target::Stdout => 1,
        Target::Stderr => 2,
    };
    [&rank.0.to_le_bytes()[..], &[target]].concat()
}

fn stream(fields: &mut Fields<'_>) -> Result<(Rank, Target), Malformed> {
    let rank = Rank(fields.u32()?);
    match fields.array()? {
        [1] => Ok((rank, Target::Stdout)),
        [2] => Ok((rank, Target::Stderr)),
        [other] => Err(Malformed::Reason(other.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_reports_travel_whole_or_not_at_all() {
        let (rank, target) = (Rank(7), Target::Stderr);
        let taken = Command::Taken { rank, target, count: 99 };
        for command in [Command::Signal(15), taken, Command::Closed { rank, target }, Command::Finish] {
            let (kind, fields) = command.encode();
            assert_eq!(Command::decode(kind, &fields), Ok(command));
            assert!((0..fields.len()).all(|cut| Command::decode(kind, &fields[..cut]).is_err()));
            assert!(
                Command::decode(kind, &[&fields[..], &[0]].concat()).is_err() && Report::decode(kind, &fields).is_err()
            );
        }
        let end = |failed, end| Report::Ended { rank, pid: 4711, failed, end };
        for report in [
            Report::Started,
            Report::Failed { errno: 2, what: "a folder".to_owned() },
            Report::Output { rank, target: Target::Stdout, bytes: vec![0, 10, 255] },
            end(true, End::Killed(9)),
            end(false, End::Exited(0)),
            end(true, End::Deserted),
            end(true, End::Lost),
        ] {
            let (kind, fields) = report.encode();
            assert_eq!(Report::decode(kind, &fields), Ok(report));
        }
        assert!(Report::decode(643, &[0; 5]).is_err() && Report::decode(1, &[]).is_err());
    }

    #[test]
    fn a_start_travels_in_parts() {
        let text = |text: &str| OsString::from(text);
        for long in [0, 10, PART, 3 * PART + 1] {
            let start = Start {
                host: 3,
                program: text("sh"),
                folder: OsString::from_vec(vec![b'/', 0xff]),
                fabric: text("verbs"),
                args: vec![text("-c"), text(""), "x".repeat(long).into()],
                variables: vec![(text("A"), text("1"))],
            };
            let (mut begun, mut whole) = (Vec::new(), None);
            for (kind, part) in start.encode() {
                assert!(whole.is_none() && part.len() <= PART);
                whole = Start::decode(kind, &part, &mut begun).unwrap();
            }
            assert_eq!(whole, Some(start));
            assert!((0..begun.len()).all(|cut| {
                let cut = &begun[..cut];
                // A start cut between two variables is a valid start with fewer of them.
                Start::decode(START, cut, &mut Vec::new()).map_or(true, |start| start.unwrap().variables.is_empty())
            }));
        }
    }
}
