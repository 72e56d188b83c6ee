//! The fabric that a process finds itself on.

use onesided_job::{Job, environment};

use crate::shm::Shm;
use crate::{Error, World};

/// The fabric that was chosen at run time: shared memory or, with the feature `verbs`, RDMA verbs.
#[cfg(not(feature = "verbs"))]
pub type Any = Shm;

/// The fabric that was chosen at run time: shared memory, RDMA verbs, or both of them in one world.
#[cfg(feature = "verbs")]
pub type Any = crate::Either<Shm, crate::mixed::Mixed>;

/// A word that is chosen at run time is copied with the larger one's size: of 64 bytes, which it was once, that was most of a
/// lock on shared memory.
#[cfg(feature = "verbs")]
const _: () = assert!(size_of::<<Any as onesided_remote_memory::RemoteMemory>::Word<'_>>() <= 24);

/// Deals the ranks out to so many hosts for `mixed`, as if they were on them: for trying both ways on one machine.
#[cfg(feature = "verbs")]
const PRETEND: &str = "ONESIDED_PRETEND_HOSTS";

/// An endpoint of the named fabric for a job's rank: `shm`, `verbs` or `mixed`.
///
/// # Errors
/// [`Error::NoFabric`]: there is none of that name, this build does not have it, or the host has no device for it; and
/// what the fabric reports.
pub fn endpoint(name: &str, job: Job) -> Result<Any, Error> {
    match name {
        #[cfg(not(feature = "verbs"))]
        "shm" => Shm::new(job),
        #[cfg(feature = "verbs")]
        "shm" => Shm::new(job).map(crate::Either::First),
        #[cfg(feature = "verbs")]
        "verbs" => crate::mixed::Mixed::by_cards(job).map(crate::Either::Second),
        #[cfg(feature = "verbs")]
        "mixed" => mixed(job).map(crate::Either::Second),
        #[cfg(not(feature = "verbs"))]
        "verbs" | "mixed" => Err(Error::NoFabric {
            name: name.into(),
            what: "this program was built without it; build with `--features verbs`".into(),
        }),
        _ => Err(Error::NoFabric {
            name: name.into(),
            what: "there is none of that name; there are shm, verbs and mixed".into(),
        }),
    }
}

#[cfg(feature = "verbs")]
fn mixed(job: Job) -> Result<crate::mixed::Mixed, Error> {
    let Some(hosts) = std::env::var_os(PRETEND) else { return crate::mixed::Mixed::new(job) };
    let number = hosts.to_str().and_then(|hosts| hosts.parse().ok()).filter(|hosts| *hosts > 0);
    let wrong = || Error::NoFabric { name: "mixed".into(), what: format!("{PRETEND}={hosts:?} is no number of hosts") };
    crate::mixed::Mixed::pretending(job, number.ok_or_else(wrong)?)
}

/// The fabric that the environment asks for: `ONESIDED_FABRIC`, or `shm`.
fn chosen() -> String {
    // What is no text is no fabric's name either.
    std::env::var_os(environment::FABRIC).map_or_else(|| "shm".into(), |name| name.to_string_lossy().into())
}

impl World<Any> {
    /// Joins the job that this process was started for: one of its ranks under `onesided run`, MPICH's `mpiexec` or
    /// whatever sets the variables of a rendezvous ([`onesided_job::Start`]), otherwise a world of one. On the fabric that
    /// `ONESIDED_FABRIC` names, shared memory if it is not set.
    ///
    /// Once a process: a second call finds its rank taken. The world is left when the last handle to it is dropped. Without
    /// a launcher of ours, rank 0 keeps the job: its last handle is dropped when all others have left.
    ///
    /// # Errors
    /// [`Error::Join`], [`Error::Secret`], [`Error::NoFabric`], and what the fabric reports.
    pub fn init() -> Result<Self, Error> {
        let job = match onesided_job::join()? {
            Some(job) => job,
            None => Job::alone()?,
        };
        endpoint(&chosen(), job).map(Self::new)
    }
}

/// Runs `ranks` threads, each a rank of one world, and gives what each returned, by rank: for tests, examples and small
/// programs. On the fabric that `ONESIDED_FABRIC` names, shared memory if it is not set.
///
/// # Errors
/// [`Error::Join`]: no memory for the board, no threads; and what the fabric reports.
///
/// # Panics
/// If a rank panics: the others see it as dead, and the panic goes on here when all have ended.
pub fn threads<T: Send>(ranks: u32, run: impl Fn(World<Any>) -> T + Sync) -> Result<Vec<T>, Error> {
    let name = chosen();
    onesided_job::local::threads(ranks, |job| Ok(run(World::new(endpoint(&name, job)?))))
}
