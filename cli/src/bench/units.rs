//! Numbers and units as people read them.

/// Millions a second read better than single ones.
pub(crate) fn unit(unit: &str) -> String {
    match unit {
        "1/s" => "M/s".to_owned(),
        "1" => String::new(),
        unit => unit.to_owned(),
    }
}

/// Three digits or so, in [`unit()`].
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

/// [`quantity`], number and unit apart.
pub(crate) fn apart(value: f64, unit: &str) -> (String, String) {
    let text = quantity(value, unit);
    text.split_once(' ')
        .map_or_else(|| (text.clone(), String::new()), |(value, unit)| (value.to_owned(), unit.to_owned()))
}

/// Three digits at most, in the unit that suits the value.
pub(crate) fn quantity(value: f64, unit: &str) -> String {
    let units: &[(f64, &str)] = match unit {
        "ns" => &[(1.0, " ns"), (1e3, " µs"), (1e6, " ms"), (1e9, " s")],
        "GB/s" => &[(1e-6, " kB/s"), (1e-3, " MB/s"), (1.0, " GB/s")],
        "1/s" => &[(1.0, "/s"), (1e3, " k/s"), (1e6, " M/s"), (1e9, " G/s")],
        _ => &[(1.0, "")],
    };
    // What would be rounded to a thousand is one of the next unit.
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

/// 8 B, 64 KiB.
pub(crate) fn size(bytes: usize) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(quantity(9.149, "ns"), "9.15 ns");
        assert_eq!(quantity(386_412.0, "ns"), "386 µs");
        assert_eq!(quantity(999.9, "ns"), "1 µs");
        assert_eq!(quantity(0.05, "ns"), "0.05 ns");
        assert_eq!(quantity(0.0123, "GB/s"), "12.3 MB/s");
        assert_eq!(quantity(100.0, "GB/s"), "100 GB/s");
        assert_eq!(quantity(16_123_456.0, "1/s"), "16.1 M/s");
        assert_eq!(quantity(10.0, "1/s"), "10/s");
        assert_eq!(quantity(0.5, "1"), "0.5");
        assert_eq!(quantity(0.0, "ns"), "0 ns");
        assert_eq!(apart(12_976_128.0, "ns"), ("13".to_owned(), "ms".to_owned()));
        assert_eq!(apart(0.5, "1"), ("0.5".to_owned(), String::new()));
    }

    #[test]
    fn sizes_are_binary() {
        assert_eq!(
            [8, 1000, 1024, 1536, 65_536, 4 << 20].map(size),
            ["8 B", "1000 B", "1 KiB", "1536 B", "64 KiB", "4 MiB"]
        );
    }
}
