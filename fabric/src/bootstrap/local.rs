//! Jobs inside one process: ranks as threads, and a world of one.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use remote_memory::{Fault, FaultKind, Rank, RegionId};

use crate::Error;
use crate::bootstrap::{Exchange, Job};
use crate::shm::{Board, Mapping};

/// A job for each of `size` ranks of this process.
///
/// # Errors
/// [`Error::Join`]: no memory or descriptors for the board, or a bad size.
pub fn jobs(size: u32) -> Result<Vec<Job>, Error> {
    let failed =
        |source: io::Error| Error::Join { what: format!("make a board for {size} ranks"), source: Some(source) };
    let board = Arc::new(Board::create(size).map_err(failed)?);
    let place = Arc::new(Place::default());
    (0..size)
        .map(Rank)
        .map(|rank| {
            board.join(rank).map_err(failed)?;
            let exchange = Arc::new(Local { rank, place: Arc::clone(&place) });
            Ok(Job { rank, board: Arc::clone(&board), exchange })
        })
        .collect()
}

impl Job {
    /// A world of one: what a program is that nobody launched.
    ///
    /// # Errors
    /// [`Error::Join`]: no memory or descriptors for the board.
    pub fn alone() -> Result<Self, Error> {
        jobs(1)?.pop().ok_or(Error::Join { what: "make a job of one".into(), source: None })
    }
}

/// One rank's exchange with the others of its process.
#[derive(Debug)]
struct Local {
    rank: Rank,
    place: Arc<Place>,
}

#[derive(Debug, Default)]
struct Place {
    tables: Mutex<Tables>,
    put: Condvar,
}

#[derive(Debug, Default)]
struct Tables {
    values: HashMap<String, Vec<u8>>,
    regions: HashMap<(Rank, RegionId), Arc<Mapping>>,
}

impl Local {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.place.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Exchange for Local {
    fn put(&self, name: &str, value: &[u8]) -> Result<(), Error> {
        if self.tables().values.insert(name.into(), value.into()).is_some() {
            return Err(Error::Join { what: format!("the name {name} is taken"), source: None });
        }
        self.place.put.notify_all();
        Ok(())
    }

    fn get(&self, name: &str, patience: Duration) -> Result<Vec<u8>, Error> {
        let deadline = Instant::now().checked_add(patience);
        let mut tables = self.tables();
        loop {
            if let Some(value) = tables.values.get(name) {
                return Ok(value.clone());
            }
            let left = deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                let fault = Fault::new(FaultKind::TimedOut);
                return Err(Error::Operation { operation: "wait for a value of the job", fault });
            }
            tables = self.place.put.wait_timeout(tables, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn publish(&self, region: RegionId, memory: &Arc<Mapping>) -> Result<(), Error> {
        self.tables().regions.insert((self.rank, region), Arc::clone(memory));
        Ok(())
    }

    fn retract(&self, region: RegionId) {
        self.tables().regions.remove(&(self.rank, region));
    }

    fn fetch(&self, rank: Rank, region: RegionId) -> Result<Arc<Mapping>, Error> {
        self.tables().regions.get(&(rank, region)).cloned().ok_or_else(|| Error::Open {
            rank,
            what: format!("it has no region {}", region.0),
            fault: Fault::of(FaultKind::NoSuchRegion, rank),
            source: None,
        })
    }
}
