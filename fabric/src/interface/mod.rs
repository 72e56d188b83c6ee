//! What every fabric provides, and what it takes and reports.

pub(crate) mod background;
pub(crate) mod capabilities;
pub(crate) mod endpoint;
pub(crate) mod fabric;
pub(crate) mod fencing;
pub(crate) mod landing;
pub(crate) mod note;
pub(crate) mod offer;
pub(crate) mod segment;
pub(crate) mod solicited;
pub(crate) mod transport;
pub(crate) mod user_memory;
