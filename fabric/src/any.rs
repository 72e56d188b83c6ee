//! The fabric that a process chooses at run time.

#[cfg(feature = "verbs")]
use onesided_job::setting;
use onesided_job::{Job, environment};

use crate::shm::Shm;
#[cfg(feature = "verbs")]
use crate::verbs::Verbs;
use crate::{Error, World};

/// The fabric chosen at run time: shared memory or, with the feature `verbs`, RDMA verbs. (Any rank
/// and any tag of a message are `Source::Any` and `Tags::Any`.)
#[cfg(not(feature = "verbs"))]
pub type Any = Shm;

/// The fabric chosen at run time: shared memory, RDMA verbs, or both in one world. (Any rank and any
/// tag of a message are `Source::Any` and `Tags::Any`.)
#[cfg(feature = "verbs")]
pub type Any = crate::Either<Shm, Verbs>;

/// `Either` copies words at the size of the larger variant. Words of 64 bytes took most of a lock's
/// time on shared memory.
#[cfg(feature = "verbs")]
const _: () = assert!(size_of::<<Any as onesided_remote_memory::RemoteMemory>::Word<'_>>() <= 24);

/// Distributes the ranks over this many pretended hosts, to test `mixed` on one machine.
#[cfg(feature = "verbs")]
const PRETEND: &str = "ONESIDED_PRETEND_HOSTS";

/// An endpoint of the named fabric for a job's rank: `shm`, `verbs` or `mixed`.
///
/// # Errors
/// - [`Error::NoFabric`]: the name is unknown, this build lacks the fabric, or the host has no
///   device for it.
/// - Whatever the fabric reports.
pub fn endpoint(name: &str, job: Job) -> Result<Any, Error> {
    match name {
        #[cfg(not(feature = "verbs"))]
        "shm" => Shm::new(job),
        #[cfg(feature = "verbs")]
        "shm" => Shm::new(job).map(crate::Either::First),
        #[cfg(feature = "verbs")]
        "verbs" => Verbs::new(job).map(crate::Either::Second),
        #[cfg(feature = "verbs")]
        "mixed" => mixed(job).map(crate::Either::Second),
        #[cfg(not(feature = "verbs"))]
        "verbs" | "mixed" => Err(Error::NoFabric {
            name: name.into(),
            what: "this program was built without it: `cargo add onesided --features verbs`, and build again".into(),
        }),
        _ => Err(Error::NoFabric {
            name: name.into(),
            what: "there is none of that name; there are shm, verbs and mixed".into(),
        }),
    }
}

#[cfg(feature = "verbs")]
fn mixed(job: Job) -> Result<Verbs, Error> {
    match setting::number(PRETEND, 1.., "of hosts")? {
        None => Verbs::mixed(job),
        Some(hosts) => Verbs::pretending(job, hosts),
    }
}

/// An endpoint of the fabric that `ONESIDED_FABRIC` names, or of shared memory.
fn chosen(job: Job) -> Result<Any, Error> {
    let Some(name) = std::env::var_os(environment::FABRIC) else { return endpoint("shm", job) };
    // A value that is not UTF-8 names no fabric.
    endpoint(&name.to_string_lossy(), job).map_err(|error| match error {
        Error::NoFabric { name, what } => {
            Error::NoFabric { name, what: format!("{what} ({} names it)", environment::FABRIC) }
        }
        other => other,
    })
}

impl World<Any> {
    /// Joins the job that this process was started for. The process is a rank if `onesided run`,
    /// MPICH's `mpiexec` or a rendezvous started it
    /// ([`bootstrap::Start`](crate::bootstrap::Start)), else the only rank of a world of one.
    /// `ONESIDED_FABRIC` names the fabric; the default is shared memory.
    ///
    /// A process joins once: a second call is an error, but for a world of one. The rank leaves the
    /// world when its last handle is dropped. Without `onesided run`, rank 0 serves the job: the drop
    /// of its last handle returns after all other ranks have left.
    ///
    /// # Errors
    /// [`Error::Join`], [`Error::Operation`]: the job cannot be joined, or not all ranks arrive.
    /// [`Error::NoFabric`], and what the fabric reports.
    pub fn init() -> Result<Self, Error> {
        let job = match onesided_job::join()? {
            Some(job) => job,
            None => Job::alone()?,
        };
        chosen(job).map(Self::new)
    }
}

/// Runs `ranks` threads, each a rank of one world, and returns their results by rank. Meant for
/// tests, examples and small programs. `ONESIDED_FABRIC` names the fabric; the default is shared
/// memory.
///
/// ```
/// let sums = onesided_fabric::threads(4, |world| -> Result<u32, onesided_fabric::Error> {
///     world.barrier().wait()?;
///     Ok(world.rank() + world.size())
/// })?;
/// let sums = sums.into_iter().collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(sums, [4, 5, 6, 7]);
/// # Ok::<(), onesided_fabric::Error>(())
/// ```
///
/// # Errors
/// - [`Error::Join`]: no memory for the job segment, or no threads.
/// - Whatever the fabric reports.
///
/// # Panics
/// If a rank panics. The other ranks see it as dead; the panic resumes after all have ended.
pub fn threads<T: Send>(ranks: u32, run: impl Fn(World<Any>) -> T + Sync) -> Result<Vec<T>, Error> {
    onesided_job::local::threads(ranks, |job| Ok(run(World::new(chosen(job)?))))
}
