//! The results as a page: one self-contained HTML file, without scripts.
//!
//! [`scale`] maps values to an axis, [`chart`] draws curves and rows of [`svg`], [`figures`]
//! chooses which results are drawn together, `timeline` draws when ranks compute and wait, and
//! [`page`](self::page()) assembles the page.

pub(crate) mod chart;
pub(crate) mod figures;
pub(crate) mod page;
pub(crate) mod scale;
pub(crate) mod svg;
mod timeline;

pub(crate) use figures::picture;
pub(crate) use page::page;

#[cfg(test)]
pub(crate) mod tests {
    use std::time::{Duration, SystemTime};

    use crate::bench::output::json::{Document, Machine};
    use crate::bench::results::description::{Description, Shown};
    use crate::bench::results::quantity::Quantity;
    use crate::bench::results::report::{Against, Measured, Parameter, Point};
    use crate::bench::results::summary::Summary;

    const DESCRIPTIONS: &[Description] = &[
        Description::of(
            "lock + unlock, contended",
            &[Shown::new(Quantity::Acquisitions, "acquired").key().heading("Contended: acquisitions a second")],
        )
        .saying("All ranks at one lock."),
        Description::of("lock + unlock, some to read", &[Shown::new(Quantity::Acquisitions, "acquired")])
            .saying("Some read."),
    ];

    /// A result, and its limit at half the latency or twice the rate.
    fn measured(what: &str, size: Option<usize>, ranks: u32, quantity: Quantity, value: f64) -> [Measured; 2] {
        let of = |what: &str, value: f64, against| {
            let value = Summary { median: value, min: value * 0.75, max: value * 1.25 };
            let point = Point { size, against, ..Point::of(what, quantity) };
            Measured { point, ranks, value, lock: "test-and-set".to_owned() }
        };
        let bare = format!("bare {what}");
        let limit = if quantity == Quantity::Latency { value / 2.0 } else { value * 2.0 };
        [of(what, value, Against::Limit(bare.clone())), of(&bare, limit, Against::IsLimit)]
    }

    fn document(all: &[Measured]) -> Document {
        let begun = SystemTime::UNIX_EPOCH + Duration::from_secs(86_400);
        let sections = vec![("contended".to_owned(), DESCRIPTIONS.iter().collect())];
        Document::new(Machine::collect(), "shm", (begun, "onesided bench '<x>'".to_owned()), all, sections)
    }

    /// A document as of `bench rma`, with two sizes.
    pub(crate) fn sweep() -> Document {
        let mut all = Vec::new();
        for (size, nanos) in [(8, 20.0), (4 << 20, 500_000.0)] {
            all.extend(measured("put + flush", Some(size), 2, Quantity::Latency, nanos));
            all.extend(measured("many put + flush", Some(size), 2, Quantity::Bandwidth, size as f64 / nanos));
            all.extend(measured("many put + flush", Some(size), 2, Quantity::MessageRate, 1e9 / nanos));
        }
        all.extend(measured("CAS + flush", Some(8), 2, Quantity::Latency, 20.0));
        all.extend(measured("many CAS + flush", Some(8), 2, Quantity::MessageRate, 5e7));
        document(&all)
    }

    /// A document as of `bench locks`.
    pub(crate) fn locks() -> Document {
        let mut all = Vec::new();
        all.extend(measured("exclusive lock + unlock", None, 2, Quantity::Latency, 20.0));
        all.extend(measured("shared lock <&> unlock", None, 2, Quantity::Latency, 30.0));
        all.extend(measured("first lock", None, 2, Quantity::Latency, 900.0));
        for ranks in [2, 4, 8] {
            all.extend(measured(
                "lock + unlock, contended",
                None,
                ranks,
                Quantity::Acquisitions,
                1e7 / f64::from(ranks),
            ));
        }
        let [mut jain, _] = measured("lock + unlock, contended", None, 2, Quantity::Jain, 0.75);
        jain.point.against = Against::Nothing;
        all.push(jain);
        document(&all)
    }

    /// A document as of `bench overlap`, of one progress mode.
    pub(crate) fn overlap() -> Document {
        let results = [
            ("sender computes", 2e6),
            ("receiver waits, sender computes", 5e5),
            ("receiver computes", 3e6),
            ("sender held, receiver computes", 1e5),
        ];
        let of = |(what, nanos)| measured(&format!("{what}: hybrid"), Some(1 << 20), 2, Quantity::Latency, nanos);
        document(&results.into_iter().flat_map(of).collect::<Vec<_>>())
    }

    /// A document with two locks.
    pub(crate) fn several() -> Document {
        let mut all = Vec::new();
        for lock in ["test-and-set", "mcs"] {
            let mut of = |measured: Vec<Measured>| {
                all.extend(measured.into_iter().map(|measured| Measured { lock: lock.to_owned(), ..measured }));
            };
            of(measured("exclusive lock + unlock", None, 2, Quantity::Latency, 20.0).into());
            for ranks in [2, 4, 8] {
                of(measured("lock + unlock, contended", None, ranks, Quantity::Acquisitions, 1e7 / f64::from(ranks))
                    .into());
            }
            for readers in [0.0, 50.0, 100.0] {
                let [mut result, _] =
                    measured("lock + unlock, some to read", None, 4, Quantity::Acquisitions, 1e6 + readers);
                result.point.parameter = Some(Parameter::new("readers", readers, "%"));
                result.point.against = Against::Nothing;
                of(vec![result]);
            }
        }
        document(&all)
    }
}
