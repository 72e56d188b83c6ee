//! The ranks' output: whole lines, labelled by rank, never interleaved.
//!
//! It runs on its own thread, so that a slow reader delays nothing but the lines.

use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use onesided_remote_memory::Rank;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::launcher::reports::Reports;
use crate::timespec;

/// Longer lines are split: a program that never ends a line must not fill the launcher's memory.
const LONGEST: usize = 1 << 20;
/// How long readers may take for what was written before the job's end.
const DRAIN: Duration = Duration::from_secs(1);

/// Where a stream goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Target {
    Stdout,
    Stderr,
}

/// A rank's output or error stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pipe: OwnedFd,
    target: Target,
    rank: Option<Rank>,
    label: Vec<u8>,
    /// An incomplete line.
    begun: Vec<u8>,
}

impl Stream {
    pub(crate) fn new(pipe: OwnedFd, target: Target, label: Option<Rank>) -> Self {
        let rank = label;
        let label = label.map_or_else(Vec::new, |rank| target.label(rank).into_bytes());
        Self { pipe, target, rank, label, begun: Vec::new() }
    }

    /// The parts of a labelled stream, for a caller that forwards the bytes itself.
    pub(super) fn into_parts(self) -> Option<(Rank, Target, OwnedFd)> {
        Some((self.rank?, self.target, self.pipe))
    }

    /// Appends the complete lines to `lines`, but for those that `reports` takes.
    fn take(&mut self, bytes: &[u8], lines: &mut Vec<u8>, mut reports: Option<&mut Reports>) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.begun.len() >= LONGEST {
                let reports = reports.as_deref_mut().filter(|_| self.target == Target::Stderr);
                if reports.is_some_and(|reports| reports.take(&self.begun, Instant::now())) {
                    self.begun.clear();
                }
                self.end_line(lines);
            }
        }
    }

    /// Terminates an incomplete line.
    fn end_line(&mut self, lines: &mut Vec<u8>) {
        if self.begun.is_empty() {
            return;
        }
        lines.extend_from_slice(&self.label);
        lines.append(&mut self.begun);
        if !lines.ends_with(b"\n") {
            lines.push(b'\n');
        }
    }
}

impl Target {
    fn label(self, rank: Rank) -> String {
        let terminal = match self {
            Self::Stdout => io::stdout().is_terminal(),
            Self::Stderr => io::stderr().is_terminal(),
        };
        if terminal && std::env::var_os("NO_COLOR").is_none() {
            format!("\x1b[{}m[{}]\x1b[0m ", 31 + rank.0 % 6, rank.0)
        } else {
            format!("[{}] ", rank.0)
        }
    }

    fn write(self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(lines)?;
                stdout.flush()
            }
            Self::Stderr => io::stderr().lock().write_all(lines),
        }
    }
}

/// The thread that reads all streams and prints their lines.
#[derive(Debug)]
pub(crate) struct Output {
    /// Closed when the job is over.
    open: Option<OwnedFd>,
    /// Hangs up when the thread has printed everything.
    done: OwnedFd,
    /// The first error of a write, except for a closed reader; 0 if there was none.
    lost: Arc<AtomicI32>,
    thread: JoinHandle<()>,
}

impl Output {
    /// `reports` makes pages of what the ranks report.
    pub(crate) fn start(mut streams: Vec<Stream>, mut reports: Option<Reports>) -> io::Result<Self> {
        let (job, open) = pipe_with(PipeFlags::CLOEXEC)?;
        let (done, ours) = pipe_with(PipeFlags::CLOEXEC)?;
        let lost = Arc::new(AtomicI32::new(0));
        let noted = Arc::clone(&lost);
        let thread = std::thread::Builder::new().name("output".to_owned()).spawn(move || {
            pump(&mut streams, reports.as_mut(), &job, &noted);
            drop(ours);
        })?;
        Ok(Self { open: Some(open), done, lost, thread })
    }

    /// Becomes readable when all streams have ended and every line is printed.
    pub(crate) fn done(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
    }

    /// Declares that no output follows but what the pipes hold.
    pub(crate) fn finish(&mut self) {
        self.open = None;
    }

    /// The system's error number if lines were lost. A closed reader misses none.
    pub(crate) fn lost(&self) -> Option<i32> {
        Some(self.lost.load(Ordering::Relaxed)).filter(|errno| *errno != 0)
    }

    /// Whether every line is printed.
    pub(crate) fn is_done(&self) -> bool {
        self.thread.is_finished()
    }
}

fn pump(streams: &mut Vec<Stream>, mut reports: Option<&mut Reports>, job: &OwnedFd, lost: &AtomicI32) {
    let mut buffer = vec![0; 64 << 10];
    let mut drain_until = None;
    while !streams.is_empty() {
        let page = reports.as_deref_mut().and_then(|reports| reports.page(Instant::now()));
        if let Some(page) = page {
            write(Target::Stderr, page.as_bytes(), lost);
        }
        // The pipe of a finished job stays ready and would end every wait.
        let timeout = match drain_until {
            Some(_) => Some(Duration::ZERO),
            None => reports.as_deref().and_then(|reports| reports.left(Instant::now())),
        };
        let Some((over, ready)) = wait(streams, job, timeout) else { continue };
        if over && drain_until.is_none() {
            drain_until = Some(Instant::now() + DRAIN);
        }
        let late = drain_until.is_some_and(|until| until <= Instant::now());
        if drain_until.is_some() && (late || !ready.contains(&true)) && over {
            break;
        }
        let mut closed = None;
        let mut ready = ready.into_iter();
        streams.retain_mut(|stream| {
            let mut lines = Vec::new();
            let stays = ready.next() != Some(true) || read(stream, &mut buffer, &mut lines, reports.as_deref_mut());
            if !lines.is_empty() && !write(stream.target, &lines, lost) {
                closed = Some(stream.target);
            }
            stays
        });
        // A rank that writes to a closed target gets SIGPIPE, as without a launcher.
        streams.retain(|stream| Some(stream.target) != closed);
    }
    for mut stream in streams.drain(..) {
        let mut lines = Vec::new();
        stream.end_line(&mut lines);
        write(stream.target, &lines, lost);
    }
    if let Some(page) = reports.and_then(Reports::last_page) {
        write(Target::Stderr, page.as_bytes(), lost);
    }
}

/// Writes, and records a failure. `false` if the target accepts no more.
fn write(target: Target, lines: &[u8], lost: &AtomicI32) -> bool {
    let Err(error) = target.write(lines) else { return true };
    if error.kind() != io::ErrorKind::BrokenPipe {
        let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
        let _ = lost.compare_exchange(0, errno, Ordering::Relaxed, Ordering::Relaxed);
    }
    false
}

/// Whether the job is over, and which streams are readable. `None`: retry.
fn wait(streams: &[Stream], job: &OwnedFd, timeout: Option<Duration>) -> Option<(bool, Vec<bool>)> {
    let timeout = timeout.map(timespec);
    let mut polled: Vec<_> = streams.iter().map(|stream| PollFd::new(&stream.pipe, PollFlags::IN)).collect();
    polled.push(PollFd::new(job, PollFlags::IN));
    poll(&mut polled, timeout.as_ref()).ok()?;
    let mut ready: Vec<_> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
    Some((ready.pop()?, ready))
}

/// Reads what is available. `false` at the end of the stream.
fn read(stream: &mut Stream, buffer: &mut [u8], lines: &mut Vec<u8>, reports: Option<&mut Reports>) -> bool {
    match rustix::io::read(&stream.pipe, &mut *buffer) {
        Ok(0) => {
            stream.end_line(lines);
            false
        }
        Ok(len) => {
            stream.take(&buffer[..len], lines, reports);
            true
        }
        Err(Errno::INTR | Errno::AGAIN) => true,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launcher::stuck::Stuck;

    fn stream(label: Option<Rank>) -> (Stream, OwnedFd) {
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        (Stream::new(ours, Target::Stdout, label), theirs)
    }

    #[test]
    fn lines_are_whole_labelled_and_never_lost() {
        let (mut stream, _open) = stream(Some(Rank(12)));
        let mut lines = Vec::new();
        stream.take(b"one\ntw", &mut lines, None);
        assert_eq!(lines, b"[12] one\n");
        stream.take(b"o\n\n\xff\xfe", &mut lines, None);
        assert_eq!(lines, b"[12] one\n[12] two\n[12] \n");
        stream.end_line(&mut lines);
        stream.end_line(&mut lines);
        assert_eq!(lines, b"[12] one\n[12] two\n[12] \n[12] \xff\xfe\n");
    }

    #[test]
    fn a_report_goes_to_the_page() {
        let (ours, _open) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let mut stream = Stream::new(ours, Target::Stderr, None);
        let (mut reports, mut lines) = (Reports::new(Some(Stuck::new(1)), None).unwrap(), Vec::new());
        stream.take(b"one\nonesided: rank 0 waits: a signal\ntwo\n", &mut lines, Some(&mut reports));
        assert_eq!(lines, b"one\ntwo\n");
        assert!(reports.last_page().unwrap().contains("rank 0 waits: a signal"));
    }

    #[test]
    fn a_line_without_end_is_broken() {
        let (mut stream, _open) = stream(None);
        let mut lines = Vec::new();
        for _ in 0..5 {
            stream.take(&vec![b'x'; LONGEST / 2], &mut lines, None);
        }
        assert_eq!(lines.len(), 2 * (LONGEST + 1));
        assert_eq!(stream.begun.len(), LONGEST / 2);
    }
}
