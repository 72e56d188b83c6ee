//! Chains of links of which all are of one kind.

/// All of them if every one is present.
pub(crate) fn all<T, const N: usize>(links: [Option<T>; N]) -> Option<[T; N]> {
    if links.iter().any(Option::is_none) {
        return None;
    }
    Some(links.map(|link| link.expect("just looked")))
}
