//! The page of the architecture: what it names is where it says.

use std::path::Path;

const PAGE: &str = "src/manual/architecture.rs";
const ITEMS: [&str; 8] = ["fn", "struct", "enum", "trait", "const", "static", "mod", "macro_rules!"];

/// Files exist, and `` `Type::function` (`file`) `` is an item of that file.
#[test]
fn the_page_names_what_there_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join(PAGE)).unwrap();
    let page: String = page.lines().map(|line| line.trim_start_matches("//!")).collect();
    // Every second part is code.
    let parts: Vec<_> = page.split('`').collect();
    let (mut files, mut items) = (0, 0);
    for at in (1..parts.len()).step_by(2).filter(|at| parts[*at].contains('/') && parts[*at].ends_with(".rs")) {
        let file = parts[at];
        let Ok(text) = std::fs::read_to_string(root.join(file)) else { panic!("{file} is not there") };
        files += 1;
        if let Some(name) = at.checked_sub(2).map(|before| parts[before])
            && parts[at - 1].trim() == "("
            && name.chars().all(|char| char.is_alphanumeric() || "_:".contains(char))
        {
            let item = name.rsplit(':').next().unwrap();
            let is_there = |kind| {
                text.split(&format!("{kind} {item}")).skip(1).any(|rest| !rest.starts_with(char::is_alphanumeric))
            };
            assert!(ITEMS.into_iter().any(is_there), "{name} is not in {file}");
            items += 1;
        }
    }
    assert!(files >= 60 && items >= 15, "{files} files, {items} items");
}
