//! Numbers, units and times as people read them.

use std::time::{SystemTime, UNIX_EPOCH};

/// The unit of [`number`]: rates are in millions a second.
pub(crate) fn unit(unit: &str) -> String {
    match unit {
        "1/s" => "M/s".to_owned(),
        "1" => String::new(),
        unit => unit.to_owned(),
    }
}

/// About three digits, in [`unit()`].
pub(crate) fn number(value: f64, unit: &str) -> String {
    match unit {
        "1/s" if value < 1e5 => format!("{:.5}", value / 1e6),
        "1/s" => format!("{:.3}", value / 1e6),
        "GB/s" if value < 0.1 => format!("{value:.5}"),
        "1" if value >= 10.0 => format!("{value:.1}"),
        _ if value < 1.0 || unit == "1" => format!("{value:.3}"),
        _ if value < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Three digits at most, in the unit that suits the value.
pub(crate) fn rounded(value: f64, unit: &str) -> String {
    // A difference that is less than what it varies by.
    if value < 0.0 {
        return format!("-{}", rounded(-value, unit));
    }
    let units: &[(f64, &str)] = match unit {
        "ns" => &[(1.0, " ns"), (1e3, " µs"), (1e6, " ms"), (1e9, " s")],
        "GB/s" => &[(1e-6, " kB/s"), (1e-3, " MB/s"), (1.0, " GB/s")],
        "1/s" => &[(1.0, "/s"), (1e3, " k/s"), (1e6, " M/s"), (1e9, " G/s")],
        _ => &[(1.0, "")],
    };
    // A value that would round to 1000 has the next unit.
    let larger = units.iter().rev().find(|(scale, _)| value >= 0.9995 * scale);
    let (scale, name) = larger.unwrap_or(&units[0]);
    let value = value / scale;
    let text = match value {
        _ if value < 9.995 => format!("{value:.2}"),
        _ if value < 99.95 => format!("{value:.1}"),
        _ => return format!("{value:.0}{name}"),
    };
    format!("{}{name}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// A ratio with about two digits, as in `0.95×` or `12k×`.
pub(crate) fn times(ratio: f64) -> String {
    let (value, suffix) = match ratio {
        _ if ratio < 999.5 => (ratio, ""),
        _ if ratio < 999_500.0 => (ratio / 1e3, "k"),
        _ => (ratio / 1e6, "M"),
    };
    let text = match value {
        _ if value < 0.0995 => format!("{value:.3}"),
        _ if value < 0.995 => format!("{value:.2}"),
        _ if value < 9.95 => format!("{value:.1}"),
        _ => return format!("{value:.0}{suffix}×"),
    };
    format!("{}{suffix}×", text.trim_end_matches('0').trim_end_matches('.'))
}

/// A size as in `8 B` or `64 KiB`.
pub(crate) fn size(bytes: usize) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// A time as in `2026-11-21 17:05 UTC`.
pub(crate) fn utc(time: SystemTime) -> String {
    let minutes = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 60);
    let (days, minutes) = (minutes / 1440, minutes % 1440);
    let is_leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let (mut year, mut day) = (1970, days);
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let months = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= months[month] {
        day -= months[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02} {:02}:{:02} UTC", month + 1, day + 1, minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn numbers_have_few_digits() {
        assert_eq!(number(9.149, "ns"), "9.1");
        assert_eq!(number(386_412.0, "ns"), "386412");
        assert_eq!(number(16_123_456.0, "1/s"), "16.123");
        assert_eq!(number(3_214.5, "1/s"), "0.00321");
        assert_eq!([0.0016, 0.4].map(|rate| number(rate, "GB/s")), ["0.00160", "0.400"]);
        assert_eq!([0.2, 1.0].map(|jain| number(jain, "1")), ["0.200", "1.000"]);
    }

    #[test]
    fn quantities_have_the_unit_that_suits() {
        assert_eq!(rounded(9.149, "ns"), "9.15 ns");
        assert_eq!(rounded(386_412.0, "ns"), "386 µs");
        assert_eq!(rounded(999.9, "ns"), "1 µs");
        assert_eq!(rounded(0.05, "ns"), "0.05 ns");
        assert_eq!(rounded(0.0123, "GB/s"), "12.3 MB/s");
        assert_eq!(rounded(100.0, "GB/s"), "100 GB/s");
        assert_eq!(rounded(16_123_456.0, "1/s"), "16.1 M/s");
        assert_eq!(rounded(10.0, "1/s"), "10/s");
        assert_eq!(rounded(0.5, "1"), "0.5");
        assert_eq!(rounded(0.0, "ns"), "0 ns");
        assert_eq!(rounded(-2_860_842.0, "ns"), "-2.86 ms");
        assert_eq!([0.05, 0.5, 0.95, 1.0, 2.5].map(times), ["0.05×", "0.5×", "0.95×", "1×", "2.5×"]);
        assert_eq!([40.0, 2_100.0, 2e4, 1e6].map(times), ["40×", "2.1k×", "20k×", "1M×"]);
    }

    #[test]
    fn sizes_are_binary() {
        assert_eq!(
            [8, 1000, 1024, 1536, 65_536, 4 << 20].map(size),
            ["8 B", "1000 B", "1 KiB", "1536 B", "64 KiB", "4 MiB"]
        );
    }

    #[test]
    fn times_are_utc() {
        let at = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01 00:00 UTC");
        assert_eq!(at(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(at(1_795_280_759), "2026-11-21 17:05 UTC");
        assert_eq!(at(4_107_542_399), "2100-02-28 23:59 UTC");
        assert_eq!(at(4_107_542_400), "2100-03-01 00:00 UTC");
    }
}
