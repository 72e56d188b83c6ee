//! The protocol between the launcher and its agents: [frames](crate::frame) in the control messages
//! of their [control relay](crate::daemon).
//!
//! Before the frames, each side sends one line of text, whose form never changes. The launcher
//! writes its secret and its nonce, in hexadecimal with a space between them, to the agent's input.
//! The agent answers `onesided agent`, the protocol's version, the package's version, and its
//! nonce. The launcher skips whatever a login shell prints before that.
//!
//! | from the launcher | fields |
//! |---|---|
//! | start | part of a [`Start`], whether it is the last |
//! | signal | its number |
//! | taken | rank, stream, number of bytes |
//! | closed | rank, stream: no longer read |
//! | finish | all ranks have ended: each stream ends with what its pipe holds now |
//!
//! | from an agent | fields |
//! |---|---|
//! | started | |
//! | failed | the system's error or 0, text |
//! | output | rank, stream, bytes (none: its end) |
//! | ended | rank, process, whether it failed, how |
//!
//! At most [`WINDOW`] bytes of a stream are in flight from an agent.

use std::ffi::OsString;

use onesided_remote_memory::Rank;
use serde::{Deserialize, Serialize};

use crate::frame::{Bytes, Frame, Malformed};
use crate::launcher::End;
use crate::launcher::output::Target;

/// The maximum number of bytes in flight of a rank's stream.
pub(super) const WINDOW: usize = 64 << 10;
/// The longest part of a start, and of output.
pub(super) const PART: usize = 32 << 10;
/// The longest start: no system accepts more arguments.
const MOST_OF_A_START: usize = 16 << 20;
/// The beginning of the agent's line.
pub(super) const MARK: &str = "onesided agent ";

/// A command of the launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Command {
    Start { part: Bytes, last: bool },
    Signal(i32),
    Taken { rank: Rank, target: Target, count: u32 },
    Closed { rank: Rank, target: Target },
    Finish,
}

/// What an agent starts: the first command, in parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Report {
    Started,
    Failed { errno: i32, what: String },
    Output { rank: Rank, target: Target, bytes: Bytes },
    Ended { rank: Rank, pid: i32, failed: bool, end: End },
}

impl Frame for Command {
    const PROTOCOL: u8 = 6;
}

impl Frame for Report {
    const PROTOCOL: u8 = 7;
}

impl Frame for Start {
    const PROTOCOL: u8 = 8;
}

impl Start {
    /// The commands that carry it.
    pub(super) fn commands(&self) -> Vec<Command> {
        let bytes = self.encode();
        let count = bytes.chunks(PART).len();
        let parts = bytes.chunks(PART).zip(1..);
        parts.map(|(part, at)| Command::Start { part: Bytes(part.to_vec()), last: at == count }).collect()
    }

    /// Collects parts. `None` while more are to come.
    pub(super) fn collect(part: &Bytes, last: bool, begun: &mut Vec<u8>) -> Result<Option<Self>, Malformed> {
        begun.extend_from_slice(&part.0);
        if begun.len() > MOST_OF_A_START {
            return Err(Malformed::Long(begun.len() - MOST_OF_A_START));
        }
        last.then(|| Self::decode(begun)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use proptest::prelude::*;

    use super::*;
    use crate::frame::tests::{hostile, refuses_a_false_length, travels};

    #[test]
    fn orders_and_reports_travel_whole_or_not_at_all() {
        let (rank, target) = (Rank(7), Target::Stderr);
        let taken = Command::Taken { rank, target, count: 99 };
        for command in [Command::Signal(15), taken, Command::Closed { rank, target }, Command::Finish] {
            travels(&command);
        }
        let end = |failed, end| Report::Ended { rank, pid: 4711, failed, end };
        for report in [
            Report::Started,
            Report::Failed { errno: 2, what: "a folder".to_owned() },
            Report::Output { rank, target: Target::Stdout, bytes: Bytes(vec![0, 10, 255]) },
            end(true, End::Killed(9)),
            end(false, End::Exited(0)),
            end(true, End::Deserted),
            end(true, End::Lost),
            end(true, End::Aborted(7)),
        ] {
            travels(&report);
        }
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
            for command in start.commands() {
                let Command::Start { part, last } = command else { panic!("{command:?}") };
                assert!(whole.is_none() && part.0.len() <= PART);
                whole = Start::collect(&part, last, &mut begun).unwrap();
            }
            assert_eq!(whole.as_ref(), Some(&start));
            if long <= 10 {
                travels(&start);
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_a_panic(kind in 0_u8..6, rest in proptest::collection::vec(any::<u8>(), 0..100)) {
            let message = [&[kind], &rest[..]].concat();
            hostile::<Command>(&message);
            hostile::<Report>(&message);
            hostile::<Start>(&message);
        }
    }

    #[test]
    fn false_lengths_are_errors() {
        refuses_a_false_length::<Command>(&[0]); // of a part
        refuses_a_false_length::<Report>(&[1, 0]); // of a text
        refuses_a_false_length::<Start>(&[0, 0]); // of the program
        refuses_a_false_length::<Start>(&[0, 0, 0, 0, 0, 0, 0]); // of the arguments
        refuses_a_false_length::<Start>(&[0, 0, 0, 0, 0, 0, 0, 0]); // of the variables
        assert_eq!([Command::PROTOCOL, Report::PROTOCOL, Start::PROTOCOL], [6, 7, 8]);
    }

    #[test]
    fn a_start_without_end_is_an_error() {
        let (part, mut begun) = (Bytes(vec![0; PART]), Vec::new());
        let parts = (0..).take_while(|_| Start::collect(&part, false, &mut begun).is_ok()).count();
        assert_eq!(parts, MOST_OF_A_START / PART);
    }
}
