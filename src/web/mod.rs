//! What a browser gives: time, chance, other tabs.

pub(crate) mod blobs;
pub(crate) mod clock;
pub(crate) mod ids;
pub(crate) mod locks;
pub(crate) mod timer;
pub(crate) mod wake;
