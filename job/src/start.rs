//! How this process was started, and joining the job that it was started for.

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onesided_remote_memory::Rank;

use crate::Error;
use crate::environment::{Environment, SECRET_FILE};
use crate::{Job, client, pmi, rendezvous, setting};

/// How many seconds the ranks of a job may take to arrive, unless `onesided run` starts them.
pub const JOIN_TIMEOUT: &str = "ONESIDED_JOIN_TIMEOUT";
/// Declares that a process started with others by `srun` or `mpirun` is meant to be a world of one.
const ALONE: &str = "ONESIDED_ALONE";
/// The default.
const PATIENCE: Duration = Duration::from_secs(60);

/// How this process was started, from its environment. A rendezvous takes precedence, then
/// `onesided run`, then PMI.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Start {
    /// By `onesided run`.
    Launched(Environment),
    /// By whatever set `ONESIDED_ADDRESS`, `ONESIDED_RANK`, `ONESIDED_SIZE` and
    /// `ONESIDED_SECRET_FILE`.
    Rendezvous(rendezvous::JobCoordinates),
    /// By a process manager that speaks PMI-1: MPICH's `mpiexec`, Slurm's `srun --mpi=pmi2`.
    Pmi(pmi::ProcessEnv),
    /// Like any program.
    Alone,
}

impl Start {
    /// Reads the process's environment.
    ///
    /// # Errors
    /// [`Error::Join`] names the variable that is missing or invalid.
    pub fn find() -> Result<Self, Error> {
        Self::parse(|name| std::env::var_os(name))
    }

    pub(crate) fn parse(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, Error> {
        if variable(SECRET_FILE).is_some() {
            return rendezvous::JobCoordinates::parse(variable).map(Self::Rendezvous);
        }
        if let Some(environment) = Environment::parse(&variable)? {
            return Ok(Self::Launched(environment));
        }
        if let Some(place) = pmi::ProcessEnv::parse(&variable)? {
            return Ok(Self::Pmi(place));
        }
        one_of_many(&variable).map_or(Ok(Self::Alone), Err)
    }

    /// This process's rank and the job's size, if the environment has them.
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

/// An error if this process was started together with others that it cannot reach. Without the
/// check, each would run as its own world of one.
fn one_of_many(variable: impl Fn(&str) -> Option<OsString>) -> Option<Error> {
    let number = |name: &str| variable(name)?.to_str()?.parse::<u32>().ok();
    let (by, size, instead) = if variable("SLURM_STEP_ID").is_some() && variable("SLURM_PROCID").is_some() {
        let instead = "start it with `srun --mpi=pmi2`, in the allocation with `onesided run --hosts slurm`, or give it a \
                       rendezvous (ONESIDED_ADDRESS and ONESIDED_SECRET_FILE)";
        ("srun", number("SLURM_STEP_NUM_TASKS")?, instead)
    } else {
        let instead = "start it with `onesided run`, or by a rendezvous (ONESIDED_ADDRESS, see the manual)";
        ("Open MPI's mpirun", number("OMPI_COMM_WORLD_SIZE")?, instead)
    };
    if size < 2 || variable(ALONE).is_some() {
        return None;
    }
    let what = format!(
        "{by} started {size} of this process and told them no way to one another that onesided knows; {instead}. \
         With {ALONE}=1 each is a world of its own"
    );
    Some(Error::Join { what, source: None })
}

/// Joins the job that this process was started for. `None` if it was started alone. Without our own
/// launcher this is collective, and rank 0 is the [head daemon](crate#who-keeps-a-job).
///
/// The rank has joined when this returns. From then on, a process that ends without
/// [leaving](crate::segment::JobSegment::leave) counts as dead.
///
/// # Errors
/// - [`Error::Join`]: this process has joined before; the environment is incomplete or invalid; the
///   host daemon is gone, refuses, or speaks another protocol.
/// - [`Error::Secret`]: either side does not know the job's secret.
/// - [`Error::Operation`]: not all ranks arrived within `ONESIDED_JOIN_TIMEOUT` seconds (default
///   60; our own launcher has 30 s to answer), or one died.
pub fn join() -> Result<Option<Job>, Error> {
    static HAS_JOINED: AtomicBool = AtomicBool::new(false);
    let start = Start::find()?;
    if !matches!(start, Start::Alone) && HAS_JOINED.swap(true, Ordering::Relaxed) {
        let what = "this process has joined it before; a process is one rank, and joins once".to_owned();
        return Err(Error::Join { what, source: None });
    }
    let joined = match start {
        Start::Alone => return Ok(None),
        Start::Launched(environment) => client::join_as(&environment),
        Start::Rendezvous(place) => patience().and_then(|patience| rendezvous::join(&place, patience)),
        Start::Pmi(place) => patience().and_then(|patience| pmi::join(&place, patience)),
    };
    HAS_JOINED.store(joined.is_ok(), Ordering::Relaxed);
    joined.map(Some)
}

/// How long the ranks may take to arrive.
pub fn patience() -> Result<Duration, Error> {
    let seconds = setting::number(JOIN_TIMEOUT, 1_u32.., "of whole seconds")?;
    Ok(seconds.map_or(PATIENCE, |seconds| Duration::from_secs(seconds.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_many_tasks_is_no_world_of_one() {
        let slurm = |tasks| vec![("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", tasks)];
        // The environment of a batch script before any `srun`.
        let batch = vec![("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4"), ("SLURM_JOB_ID", "7")];
        let alone = [slurm("4"), vec![(ALONE, "1")]].concat();
        let mpirun = vec![("OMPI_COMM_WORLD_SIZE", "2"), ("OMPI_COMM_WORLD_RANK", "0")];
        let managed = [slurm("4"), vec![("PMI_FD", "3"), ("PMI_RANK", "1"), ("PMI_SIZE", "4")]].concat();
        for (variables, told) in [
            (slurm("4"), Some("srun --mpi=pmi2")),
            (slurm("1"), None),
            (batch, None),
            (alone, None),
            (mpirun, Some("onesided run")),
            (managed, None),
        ] {
            let value = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
            match (Start::parse(value), told) {
                (Ok(_), None) => {}
                (Err(error), Some(told)) => assert!(error.to_string().contains(told), "{error}"),
                (parsed, _) => panic!("{variables:?}: {parsed:?}"),
            }
        }
    }
}
