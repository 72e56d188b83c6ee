//! The results as a page: one file of HTML that needs no network, no script, no other file.
//!
//! [`scale`] says where a value lies on an axis, [`plot`] draws curves and bars of [`svg`], [`many`] those of several locks,
//! [`figures`] and [`compared`] choose which results are drawn together, [`about`] says in a sentence what a plot shows,
//! [`page`](self::page()) puts it all on one page.

mod about;
mod compared;
mod figures;
mod many;
pub(crate) mod page;
mod plot;
pub(crate) mod scale;
pub(crate) mod svg;

pub(crate) use figures::picture;
pub(crate) use page::page;

#[cfg(test)]
pub(crate) mod tests {
    use crate::bench::json::{Document, Machine};
    use crate::bench::report::{Against, Measured, Metric, Parameter};
    use crate::bench::spread::Spread;

    /// A result and, at half its latency or twice its rate, its limit.
    fn measured(what: &str, size: Option<usize>, ranks: u32, metric: Metric, value: f64) -> [Measured; 2] {
        let of = |what: &str, value: f64, against| {
            let value = Spread { median: value, min: value * 0.75, max: value * 1.25 };
            Measured {
                what: what.to_owned(),
                size,
                parameter: None,
                metric,
                ranks,
                value,
                against,
                lock: "test-and-set".to_owned(),
            }
        };
        let bare = format!("bare {what}");
        let limit = if metric == Metric::Latency { value / 2.0 } else { value * 2.0 };
        [of(what, value, Against::Limit(bare.clone())), of(&bare, limit, Against::IsLimit)]
    }

    /// As `bench rma` makes it, with two sizes.
    pub(crate) fn sweep() -> Document {
        let mut all = Vec::new();
        for (size, nanos) in [(8, 20.0), (4 << 20, 500_000.0)] {
            all.extend(measured("put + flush", Some(size), 2, Metric::Latency, nanos));
            all.extend(measured("many put + flush", Some(size), 2, Metric::Bandwidth, size as f64 / nanos));
            all.extend(measured("many put + flush", Some(size), 2, Metric::MessageRate, 1e9 / nanos));
        }
        all.extend(measured("CAS + flush", Some(8), 2, Metric::Latency, 20.0));
        all.extend(measured("many CAS + flush", Some(8), 2, Metric::MessageRate, 5e7));
        Document::new(Machine::collect(), "shm", &all)
    }

    /// As `bench locks` makes it.
    pub(crate) fn locks() -> Document {
        let mut all = Vec::new();
        all.extend(measured("exclusive lock + unlock", None, 2, Metric::Latency, 20.0));
        all.extend(measured("shared lock <&> unlock", None, 2, Metric::Latency, 30.0));
        all.extend(measured("first lock", None, 2, Metric::Latency, 900.0));
        for ranks in [2, 4, 8] {
            all.extend(measured("lock + unlock, contended", None, ranks, Metric::Acquisitions, 1e7 / f64::from(ranks)));
        }
        let [mut jain, _] = measured("lock + unlock, contended", None, 2, Metric::Jain, 0.75);
        jain.against = Against::Nothing;
        all.push(jain);
        Document::new(Machine::collect(), "shm", &all)
    }

    /// Of two locks, beside one another.
    pub(crate) fn several() -> Document {
        let mut all = Vec::new();
        for lock in ["test-and-set", "mcs"] {
            let mut of = |measured: Vec<Measured>| {
                all.extend(measured.into_iter().map(|measured| Measured { lock: lock.to_owned(), ..measured }));
            };
            of(measured("exclusive lock + unlock", None, 2, Metric::Latency, 20.0).into());
            for ranks in [2, 4, 8] {
                of(measured("lock + unlock, contended", None, ranks, Metric::Acquisitions, 1e7 / f64::from(ranks))
                    .into());
            }
            for readers in [0.0, 50.0, 100.0] {
                let [mut result, _] =
                    measured("lock + unlock, some to read", None, 4, Metric::Acquisitions, 1e6 + readers);
                result.parameter = Some(Parameter::new("readers", readers, "%"));
                result.against = Against::Nothing;
                of(vec![result]);
            }
        }
        Document::new(Machine::collect(), "shm", &all)
    }
}
