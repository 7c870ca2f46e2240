//! What a browser gives: time, chance, other tabs, the life of a page.

pub(crate) mod blobs;
pub(crate) mod clock;
pub(crate) mod ids;
pub(crate) mod lifecycle;
pub(crate) mod locks;
pub(crate) mod timer;
pub(crate) mod wake;
