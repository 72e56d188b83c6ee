//! The results of `bench locks`, `rma` and `scale` as [`json`], a text [`table`], and a page
//! ([`html`]). [`units`] has the numbers and dates of all of them.

pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod table;
pub(crate) mod units;
