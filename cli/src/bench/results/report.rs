//! What a worker reports to the program that started it: one JSON value a line.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::bench::results::quantity::Quantity;
use crate::bench::results::summary::Summary;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Line {
    /// One of the suite's steps is done.
    Step,
    Measured(Measured),
}

/// A limit of the machine, or a result of the library.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    #[serde(flatten)]
    pub(crate) point: Point,
    pub(crate) ranks: u32,
    pub(crate) value: Summary,
    /// The lock of the windows. The program that started the job sets it.
    #[serde(skip)]
    pub(crate) lock: String,
}

/// What a value is of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    /// The benchmark's name.
    pub(crate) what: String,
    /// The bytes of one operation, where they vary.
    pub(crate) size: Option<usize>,
    /// The point of a sweep.
    pub(crate) parameter: Option<Parameter>,
    pub(crate) quantity: Quantity,
    pub(crate) against: Against,
}

impl Point {
    /// A result that is compared with nothing.
    pub(crate) fn of(what: impl Into<String>, quantity: Quantity) -> Self {
        Self { what: what.into(), size: None, parameter: None, quantity, against: Against::Nothing }
    }

    /// A limit.
    pub(crate) fn limit(what: impl Into<String>, quantity: Quantity) -> Self {
        Self { against: Against::IsLimit, ..Self::of(what, quantity) }
    }

    /// The same beside the limit of that name; an empty one is none.
    pub(crate) fn beside(self, limit: &str) -> Self {
        let is_compared = self.quantity.has_limits() && !limit.is_empty();
        Self { against: if is_compared { Against::Limit(limit.to_owned()) } else { Against::Nothing }, ..self }
    }

    pub(crate) fn of_size(self, bytes: usize) -> Self {
        Self { size: Some(bytes), ..self }
    }

    pub(crate) fn at(self, parameter: &Parameter) -> Self {
        Self { parameter: Some(parameter.clone()), ..self }
    }

    /// With what a simulation yields of a lock, which is exact.
    pub(crate) fn simulated(self, lock: &str, ranks: u32, value: f64) -> Measured {
        Measured { point: self, ranks, value: Summary::of(&[value]), lock: lock.to_owned() }
    }
}

/// The values of several points, by run.
#[derive(Debug, Default)]
pub(crate) struct Samples(Vec<(Point, Vec<f64>)>);

impl Samples {
    pub(crate) fn add(&mut self, point: &Point, value: f64) {
        match self.0.iter_mut().find(|(one, _)| one == point) {
            Some((_, values)) => values.push(value),
            None => self.0.push((point.clone(), vec![value])),
        }
    }

    /// The points in the order of their first values, with all of them.
    pub(crate) fn points(self) -> impl Iterator<Item = (Point, Vec<f64>)> {
        self.0.into_iter()
    }
}

/// A point of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Parameter {
    /// What the sweep varies: `readers`, for example.
    pub(crate) name: String,
    pub(crate) value: f64,
    /// `%`, `ns`, `1`.
    pub(crate) unit: String,
}

impl Parameter {
    pub(crate) fn new(name: &str, value: f64, unit: &str) -> Self {
        Self { name: name.to_owned(), value, unit: unit.to_owned() }
    }
}

/// What a [`Measured`] is compared with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Against {
    /// It is a limit itself.
    IsLimit,
    /// The limit of this name, with the same quantity, ranks, size and parameter.
    Limit(String),
    /// This fabric has no limit to compare with.
    Nothing,
}

/// Where a rank reports to. Rank 0 has a file; the other ranks' reports are dropped.
#[derive(Debug)]
pub(crate) struct Reporter(Option<File>);

impl Reporter {
    pub(crate) fn open(path: Option<&Path>, rank: u32) -> io::Result<Self> {
        let open = |path| OpenOptions::new().append(true).open(path);
        Ok(Self(path.filter(|_| rank == 0).map(open).transpose()?))
    }

    pub(crate) fn write(&self, line: &Line) -> io::Result<()> {
        let Some(mut file) = self.0.as_ref() else { return Ok(()) };
        file.write_all((serde_json::to_string(line)? + "\n").as_bytes())
    }

    pub(crate) fn step(&self) -> io::Result<()> {
        self.write(&Line::Step)
    }
}
