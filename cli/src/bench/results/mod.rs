//! What a measurement yields: [`summary`] of the runs' values of a [`quantity`], as a worker
//! reports it ([`report`]), and the [`description`] of a benchmark.

pub(crate) mod description;
pub(crate) mod quantity;
pub(crate) mod report;
pub(crate) mod summary;

/// The items without repetitions, in the order of their first occurrences.
pub(crate) fn unique<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    groups(items, T::eq).into_iter().filter_map(|group| group.into_iter().next()).collect()
}

/// The items that belong together, in the order of the first of each group.
pub(crate) fn groups<T>(items: impl IntoIterator<Item = T>, same: impl Fn(&T, &T) -> bool) -> Vec<Vec<T>> {
    let mut groups: Vec<Vec<T>> = Vec::new();
    for item in items {
        match groups.iter_mut().find(|group| same(&group[0], &item)) {
            Some(group) => group.push(item),
            None => groups.push(vec![item]),
        }
    }
    groups
}
