//! How this process was started, and joining the job that it was started for.

use std::ffi::OsString;
use std::time::Duration;

use remote_memory::Rank;

use crate::Error;
use crate::bootstrap::environment::{Environment, SECRET_FILE};
use crate::bootstrap::{Job, client, pmi, rendezvous};

/// How many seconds the ranks of a job may take to come together, where no launcher of ours starts them.
pub const JOIN_TIMEOUT: &str = "ONESIDED_JOIN_TIMEOUT";
/// If that is not set.
const PATIENCE: Duration = Duration::from_secs(60);

/// How this process was started, as its environment tells. What comes first here goes first.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Start {
    /// By `onesided run`.
    Launched(Environment),
    /// By whoever set `ONESIDED_ADDRESS`, `ONESIDED_RANK`, `ONESIDED_SIZE` and `ONESIDED_SECRET_FILE`.
    Rendezvous(rendezvous::Place),
    /// By a process manager that speaks PMI-1: MPICH's `mpiexec`, Slurm.
    Pmi(pmi::Place),
    /// Like any program.
    Alone,
}

impl Start {
    /// Reads the process's environment.
    ///
    /// # Errors
    /// [`Error::Join`] that names the variable which is missing or makes no sense.
    pub fn find() -> Result<Self, Error> {
        Self::parse(|name| std::env::var_os(name))
    }

    pub(crate) fn parse(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, Error> {
        if variable(SECRET_FILE).is_some() {
            return rendezvous::Place::parse(variable).map(Self::Rendezvous);
        }
        if let Some(environment) = Environment::parse(&variable)? {
            return Ok(Self::Launched(environment));
        }
        Ok(pmi::Place::parse(variable)?.map_or(Self::Alone, Self::Pmi))
    }

    /// This process's rank and how many there are, as far as the environment says.
    #[must_use]
    pub fn rank_and_size(&self) -> Option<(Rank, u32)> {
        match self {
            Self::Launched(environment) => Some((environment.rank, environment.size)),
            Self::Rendezvous(place) => Some((place.rank, place.size)),
            Self::Pmi(place) => place.rank_and_size,
            Self::Alone => None,
        }
    }
}

/// Joins the job that this process was started for. `None` if it was started alone. Where no launcher of ours keeps the
/// job, this is collective, and rank 0 keeps it, see [there](super#who-keeps-a-job).
///
/// The rank's seat is taken when this returns: whoever ends without [leaving](crate::shm::Board::leave) from now on has
/// died.
///
/// # Errors
/// [`Error::Join`]: the environment is half set or makes no sense; whoever keeps the job is gone, refuses, or speaks
/// something else. [`Error::Secret`]: either side does not know the job's secret. [`Error::Operation`]: not all came
/// within `ONESIDED_JOIN_TIMEOUT` seconds (60 if it is not set; a launcher of ours has 30 s to answer), or one died.
pub fn join() -> Result<Option<Job>, Error> {
    match Start::find()? {
        Start::Alone => Ok(None),
        Start::Launched(environment) => client::join_as(&environment).map(Some),
        Start::Rendezvous(place) => rendezvous::join(&place, patience()?).map(Some),
        Start::Pmi(place) => pmi::join(&place, patience()?).map(Some),
    }
}

/// How long the ranks may take to come together.
pub(crate) fn patience() -> Result<Duration, Error> {
    let Some(value) = std::env::var_os(JOIN_TIMEOUT) else { return Ok(PATIENCE) };
    let seconds = value.to_str().and_then(|value| value.parse::<u32>().ok()).filter(|seconds| *seconds > 0);
    let wrong = || Error::Join { what: format!("{JOIN_TIMEOUT} is not a whole number of seconds"), source: None };
    seconds.map(|seconds| Duration::from_secs(seconds.into())).ok_or_else(wrong)
}
