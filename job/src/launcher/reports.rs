//! What ranks report by lines of their standard error, which the launcher takes out.

use std::time::{Duration, Instant};

use crate::Statistics;
use crate::launcher::StatisticsFormat;
use crate::launcher::stuck::Stuck;

/// The reports of a job's ranks.
#[derive(Debug)]
pub(super) struct Reports {
    stuck: Option<Stuck>,
    statistics: Option<(Statistics, StatisticsFormat)>,
}

impl Reports {
    /// `None`: no reports are taken.
    pub(super) fn new(stuck: Option<Stuck>, statistics: Option<StatisticsFormat>) -> Option<Self> {
        let statistics = statistics.map(|format| (Statistics::default(), format));
        (stuck.is_some() || statistics.is_some()).then_some(Self { stuck, statistics })
    }

    /// Takes a line of a rank's standard error, if it belongs to a report.
    pub(super) fn take(&mut self, line: &[u8], now: Instant) -> bool {
        self.stuck.as_mut().is_some_and(|stuck| stuck.take(line, now))
            || self.statistics.as_mut().is_some_and(|(statistics, _)| statistics.take(line))
    }

    /// How long until the next page is due.
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        self.stuck.as_ref()?.left(now)
    }

    /// The next page, if it is due.
    pub(super) fn page(&mut self, now: Instant) -> Option<String> {
        self.stuck.as_mut()?.page(now)
    }

    /// What is left at the job's end.
    pub(super) fn last_page(&mut self) -> Option<String> {
        let page = self.stuck.as_mut().and_then(Stuck::last_page);
        let statistics = self.statistics.take().map(|(statistics, format)| match format {
            StatisticsFormat::Table => format!("{statistics}\n"),
            StatisticsFormat::Json => format!("{}\n", statistics.to_json()),
        });
        page.into_iter().chain(statistics).reduce(|page, statistics| page + &statistics)
    }
}
