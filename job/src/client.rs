//! A rank's side of the bootstrap: its connection to the host daemon, which is the launcher or
//! [rank 0](crate#who-keeps-a-job).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::lock;
use onesided_remote_memory::{Fault, FaultKind, Liveness, Rank, RegionId};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::SocketFlags;
use rustix::net::sockopt::Timeout;
use rustix::process::Signal;

use crate::Error;
use crate::environment::Environment;
use crate::fork;
use crate::frame::{Bytes, Frame, MAX_VALUE, Name};
use crate::process::Watch;
use crate::protocol::{Failure, FromDaemon, FromRank, Refusal};
use crate::secret::{Side, random_bytes};
use crate::segment::{JobSegment, Mapping};
use crate::wire::{self, Descriptor};
use crate::{Exchange, Job, Process};

/// How long the launcher may take for an immediate answer. It may share its core with many ranks.
const ANSWER: Duration = Duration::from_secs(30);

/// Joins the job of the launcher that `environment` describes.
///
/// The rank has joined when this returns. From then on, a process that ends without
/// [leaving](JobSegment::leave) counts as dead.
///
/// # Errors
/// - [`Error::Join`]: the launcher is gone, does not answer within 30 s, or refuses.
/// - [`Error::Secret`]: either side does not know the job's secret.
pub fn join_as(environment: &Environment) -> Result<Job, Error> {
    let rank = environment.rank;
    let client = Client::connect(environment, "the launcher")?;
    client.job_segment().introduce(rank, Process::own());
    client.sit(rank)?;
    let job_segment = Arc::clone(&client.job_segment);
    end_with_the_launcher(&lock(&client.connection), rank, &job_segment).map_err(|source| Error::Join {
        what: "watch the launcher, which must be in this process's PID namespace".to_owned(),
        source: Some(source),
    })?;
    Ok(Job { rank, job_segment, exchange: Arc::new(client) })
}

/// Ends this rank when the launcher dies. The kernel does so for the launcher's children, but not
/// for a rank that a script started.
fn end_with_the_launcher(connection: &Connection, rank: Rank, job_segment: &Arc<JobSegment>) -> io::Result<()> {
    let launcher = rustix::net::sockopt::socket_peercred(&connection.0)?.pid;
    if rustix::process::getppid() == Some(launcher) {
        // Set again: a program with capabilities, or of another user, loses the launcher's setting
        // on exec.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        if rustix::process::getppid() == Some(launcher) {
            return Ok(());
        }
    }
    let mut launcher = Watch::of(launcher)?;
    let job_segment = Arc::clone(job_segment);
    let watch = move || {
        launcher.wait();
        // A rank that has left continues as an ordinary process.
        if job_segment.liveness(rank) != Liveness::Left {
            let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
        }
    };
    std::thread::Builder::new().name("launcher".to_owned()).spawn(watch).map(drop)
}

/// Both sides prove that they know the secret; then the launcher sends the job segment.
fn handshake(environment: &Environment, daemon: &'static str) -> Result<(Connection, OwnedFd), Error> {
    let Environment { rank, size, address, secret } = environment;
    let failed = |what: &str| {
        let what = what.replace("{}", daemon);
        move |source| Error::Join { what, source: Some(source) }
    };
    let connection = Connection::open(address).map_err(failed("connect to {} (is it still running?)"))?;
    let until = Instant::now() + ANSWER;
    let hear = || connection.hear(until).map_err(failed("hear from {}"));
    let (FromDaemon::Challenge { nonce: theirs }, _) = hear()? else {
        return Err(failed("hear from {}")(unexpected()));
    };
    let mine = random_bytes();
    let proof = *secret.proof(Side::Rank, *rank, &theirs, &mine).as_bytes();
    let hello = FromRank::Hello { rank: *rank, nonce: mine, proof };
    connection.say(&hello, None).map_err(failed("speak to {}"))?;
    match hear()? {
        (FromDaemon::Welcome { size: told, proof }, Some(job_segment)) => {
            if !secret.accepts(&proof, Side::Daemon, *rank, &theirs, &mine) {
                return Err(Error::Secret);
            }
            if told != *size {
                let what = format!("the job has {told} ranks, ONESIDED_SIZE says {size}");
                return Err(Error::Join { what, source: None });
            }
            Ok((connection, job_segment))
        }
        (FromDaemon::Welcome { .. }, None) => Err(failed("receive the job segment")(rustix::io::Errno::MFILE.into())),
        (FromDaemon::Refused(Refusal::Secret), _) => Err(Error::Secret),
        (FromDaemon::Refused(refusal), _) => Err(Error::Join { what: refusal.to_string(), source: None }),
        _ => Err(failed("hear from {}")(unexpected())),
    }
}

/// The [`Exchange`] over the host daemon's socket.
#[derive(Debug)]
pub(crate) struct Client {
    job_segment: Arc<JobSegment>,
    /// The name of the host daemon, for errors.
    daemon: &'static str,
    pub(crate) connection: Mutex<Connection>,
    /// Requests and answers may no longer match.
    broken: AtomicBool,
    /// As whom it has joined.
    seat: OnceLock<Rank>,
}

/// Why a request failed.
enum Unanswered {
    Failed(Failure),
    Broken(io::Error),
}

impl Unanswered {
    /// The kind of failure, its text and its cause.
    fn explain(self, daemon: &str) -> (Fault, String, Option<io::Error>) {
        match self {
            Self::Failed(failure) => (failure.fault(), failure.to_string(), None),
            Self::Broken(source) => {
                (Fault::new(FaultKind::Refused), format!("the connection to {daemon} broke"), Some(source))
            }
        }
    }
}

impl Failure {
    const fn fault(self) -> Fault {
        match self {
            Self::TimedOut => Fault::new(FaultKind::TimedOut),
            Self::PeerDied(rank) => Fault::of(FaultKind::PeerDied, rank),
            Self::NoDescriptors => Fault::new(FaultKind::NoDescriptors),
            Self::NoSuchRegion => Fault::new(FaultKind::NoSuchRegion),
            Self::Full => Fault::new(FaultKind::Full),
            Self::NameTaken | Self::RegionTaken => Fault::new(FaultKind::Refused),
        }
    }
}

impl Client {
    /// Connects to the host daemon; both sides prove that they know the secret. Does not join yet.
    pub(crate) fn connect(environment: &Environment, daemon: &'static str) -> Result<Self, Error> {
        let size = environment.size;
        let failed = |what: &str, source| Error::Join { what: what.to_owned(), source };
        let (connection, job_segment) = handshake(environment, daemon)?;
        let job_segment =
            JobSegment::open(job_segment).map_err(|source| failed("map the job segment", Some(source)))?;
        if job_segment.size() != size {
            return Err(failed(&format!("the job has {} ranks, ONESIDED_SIZE says {size}", job_segment.size()), None));
        }
        let connection = Mutex::new(connection);
        Ok(Self {
            job_segment: Arc::new(job_segment),
            daemon,
            connection,
            broken: AtomicBool::new(false),
            seat: OnceLock::new(),
        })
    }

    /// Names the host daemon, for errors.
    pub(crate) const fn name_daemon(&mut self, daemon: &'static str) {
        self.daemon = daemon;
    }

    /// Joins as this rank.
    pub(crate) fn sit(&self, rank: Rank) -> Result<(), Error> {
        let failed = |source| Error::Join { what: "join as the rank".to_owned(), source: Some(source) };
        self.job_segment.join(rank).map_err(failed)?;
        self.seat.get_or_init(|| rank);
        Ok(())
    }

    pub(crate) const fn job_segment(&self) -> &Arc<JobSegment> {
        &self.job_segment
    }

    /// Sends a request and waits for the answer.
    fn ask(&self, request: &FromRank, memory: Option<&Mapping>, patience: Duration) -> Answer {
        let answers = self.ask_all(&[(request, memory)], patience);
        answers.into_iter().next().unwrap_or_else(|| Err(Unanswered::Broken(unexpected())))
    }

    /// Sends all requests, then waits for all answers, which wakes the host daemon once.
    fn ask_all(&self, requests: &[(&FromRank, Option<&Mapping>)], patience: Duration) -> Vec<Answer> {
        // The connection is its parent's; another thread of that may have held its lock.
        if let Err(error) = fork::refuse() {
            return vec![Err(Unanswered::Broken(error))];
        }
        let connection = lock(&self.connection);
        let until = Instant::now().checked_add(patience).unwrap_or_else(|| Instant::now() + FOREVER);
        let said: Vec<_> =
            requests.iter().map(|(request, memory)| self.unbroken(|| connection.say(request, *memory))).collect();
        let hear = |said: Result<(), Unanswered>| match said.and_then(|()| self.unbroken(|| connection.hear(until)))? {
            (FromDaemon::Failed(failure), _) => Err(Unanswered::Failed(failure)),
            answer => Ok(answer),
        };
        said.into_iter().map(hear).collect()
    }

    /// Uses the connection unless it is broken.
    fn unbroken<T>(&self, run: impl FnOnce() -> io::Result<T>) -> Result<T, Unanswered> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(Unanswered::Broken(io::Error::new(io::ErrorKind::NotConnected, "it broke before")));
        }
        run().map_err(|error| {
            self.broken.store(true, Ordering::Relaxed);
            Unanswered::Broken(error)
        })
    }

    /// The fault of this rank, which has not what it needs.
    fn lacks(&self, kind: FaultKind) -> Fault {
        self.seat.get().map_or(Fault::new(kind), |me| Fault::of(kind, *me))
    }

    /// The outcome of a publication.
    fn published(&self, memory: &Mapping, answer: Answer) -> Result<(), Error> {
        match answer {
            Ok((FromDaemon::Done, _)) => Ok(()),
            other => {
                let (fault, why, source) = unanswered(other).explain(self.daemon);
                Err(Error::Allocate {
                    len: memory.len() as u64,
                    what: format!("let peers map it: {why}"),
                    fault,
                    source,
                })
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // A rank that has not left goes on as no rank: what it had of the job is gone.
        if let Some(rank) = self.seat.get() {
            self.job_segment.declare_dead(*rank);
        }
    }
}

/// Stands for a patience that the clock cannot express.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

impl Exchange for Client {
    fn put(&self, name: &str, value: &[u8]) -> Result<(), Error> {
        let key = checked(name)?;
        if value.len() > MAX_VALUE {
            let what = format!("put {name:?}: {} bytes, a value has at most {MAX_VALUE}", value.len());
            return Err(Error::Join { what, source: None });
        }
        let request = FromRank::Put { name: key, value: Bytes(value.to_owned()) };
        match self.ask(&request, None, ANSWER) {
            Ok((FromDaemon::Done, _)) => Ok(()),
            other => Err(about_value(self.daemon, "put", name, other)),
        }
    }

    fn get(&self, name: &str, patience: Duration) -> Result<Vec<u8>, Error> {
        let key = checked(name)?;
        let patience_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        let request = FromRank::Get { name: key, patience_ms };
        match self.ask(&request, None, patience.saturating_add(ANSWER)) {
            Ok((FromDaemon::Value(Bytes(value)), _)) => Ok(value),
            other => Err(about_value(self.daemon, "get", name, other)),
        }
    }

    fn publish(&self, region: RegionId, memory: &Arc<Mapping>) -> Result<(), Error> {
        self.published(memory, self.ask(&FromRank::Publish { region }, Some(memory), ANSWER))
    }

    fn publish_two(&self, regions: [(RegionId, &Arc<Mapping>); 2]) -> Result<(), Error> {
        let [first, second] = regions.map(|(region, memory)| (FromRank::Publish { region }, memory));
        let answers = self.ask_all(&[(&first.0, Some(first.1)), (&second.0, Some(second.1))], ANSWER);
        // Both outcomes are checked before the first failure is reported, so that a success can be
        // undone.
        let outcomes =
            regions.into_iter().zip(answers).map(|((region, memory), answer)| (region, self.published(memory, answer)));
        let outcomes: Vec<_> = outcomes.collect();
        if outcomes.iter().any(|(_, outcome)| outcome.is_err()) {
            outcomes.iter().filter(|(_, outcome)| outcome.is_ok()).for_each(|(region, _)| self.retract(*region));
        }
        outcomes.into_iter().try_for_each(|(_, outcome)| outcome)
    }

    fn retract(&self, region: RegionId) {
        // A launcher that is gone has lost its table, too.
        let _ = self.ask(&FromRank::Retract { region }, None, ANSWER);
    }

    fn fetch(&self, rank: Rank, region: RegionId) -> Result<Arc<Mapping>, Error> {
        Mapping::reach(self.fetch_file(rank, region)?).map(Arc::new).map_err(|source| {
            let fault = self.lacks(FaultKind::NoMemory);
            Error::Open { rank, what: "map it".to_owned(), fault, source: Some(source) }
        })
    }

    fn fetch_file(&self, rank: Rank, region: RegionId) -> Result<OwnedFd, Error> {
        let failed = |fault, what, source| Error::Open { rank, what, fault, source };
        if !self.job_segment.has(rank) {
            let what = format!("the job has {} ranks", self.job_segment.size());
            return Err(failed(Fault::of(FaultKind::NoSuchRank, rank), what, None));
        }
        match self.ask(&FromRank::Fetch { rank, region }, None, ANSWER) {
            Ok((FromDaemon::Memory, Some(file))) => Ok(file),
            Ok((FromDaemon::Memory, None)) => {
                let what = "no descriptors left in this process; raise the limit (ulimit -n)";
                Err(failed(self.lacks(FaultKind::NoDescriptors), what.to_owned(), None))
            }
            other => {
                let (fault, why, source) = unanswered(other).explain(self.daemon);
                let fault = match fault.kind() {
                    FaultKind::NoSuchRegion => self.job_segment.liveness(rank).needed(rank).err().unwrap_or(fault),
                    _ => fault,
                };
                Err(failed(fault, why, source))
            }
        }
    }
}

type Answer = Result<(FromDaemon, Option<OwnedFd>), Unanswered>;

fn unanswered(answer: Answer) -> Unanswered {
    answer.err().unwrap_or_else(|| Unanswered::Broken(unexpected()))
}

fn checked(name: &str) -> Result<Name, Error> {
    let what = || format!("{name:?} is no name: 1 to 64 printable ASCII characters");
    Name::try_from(name).map_err(|_| Error::Join { what: what(), source: None })
}

fn about_value(daemon: &str, verb: &str, name: &str, answer: Answer) -> Error {
    match unanswered(answer) {
        Unanswered::Failed(failure @ (Failure::TimedOut | Failure::PeerDied(_))) => {
            Error::Operation { operation: "wait for a value of the job", fault: failure.fault() }
        }
        other => {
            let (_, why, source) = other.explain(daemon);
            Error::Join { what: format!("{verb} {name:?}: {why}"), source }
        }
    }
}

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "an answer that does not fit the question")
}

/// A connected socket.
#[derive(Debug)]
pub(crate) struct Connection(pub(crate) OwnedFd);

impl Connection {
    fn open(address: &str) -> io::Result<Self> {
        let socket = wire::socket(SocketFlags::empty())?;
        // Bounds connecting too: a stopped launcher accepts no connection.
        rustix::net::sockopt::set_socket_timeout(&socket, Timeout::Send, Some(ANSWER))?;
        rustix::net::connect(&socket, &wire::address(address)?)?;
        Ok(Self(socket))
    }

    fn say(&self, request: &FromRank, memory: Option<&Mapping>) -> io::Result<()> {
        wire::send(&self.0, &request.encode(), memory.and_then(Mapping::file))
    }

    /// The launcher's next frame and its descriptor, which is missing if this process has no free
    /// descriptor.
    fn hear(&self, until: Instant) -> io::Result<(FromDaemon, Option<OwnedFd>)> {
        wait_readable(&self.0, until)?;
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let packet = wire::receive(&self.0)?.ok_or(io::ErrorKind::ConnectionAborted)?;
        let said = FromDaemon::decode(&packet.frame).map_err(|error| invalid(error.to_string()))?;
        match (packet.descriptor, said.brings_descriptor()) {
            (Descriptor::One(descriptor), true) => Ok((said, Some(descriptor))),
            (Descriptor::None, false) => Ok((said, None)),
            (Descriptor::Lost, true) => Ok((said, None)),
            _ => Err(invalid("a descriptor too many or too few".to_owned())),
        }
    }
}

fn wait_readable(socket: impl AsFd, until: Instant) -> io::Result<()> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = crate::timespec(left);
        match poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&timeout)) {
            Ok(0) if left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}
