//! Whether IndexedDB takes Blobs: WebKit under automation, and old Safari, do not.

use web_sys::Blob;

use crate::body::Value;
use crate::error::{Error, ErrorCode};
use crate::store::{Key, Mode, Store, StoreName, transact};

/// Tries it, in a transaction that is rolled back.
pub(crate) async fn can_store(store: &dyn Store) -> bool {
    let Ok(blob) = Blob::new() else { return false };
    let tried: Result<(), Error> = transact(store, &[StoreName::Meta], Mode::ReadWrite, async |tx| {
        let key = Key::from("probe");
        tx.put(StoreName::Meta, key.clone(), Value(blob.into()));
        // The answer to this comes after the write has been done, or refused.
        tx.get(StoreName::Meta, &key).await?;
        Err(Error::new(ErrorCode::Conflict, "Rolled back on purpose.").with("stored", true))
    })
    .await;
    tried.is_err_and(|error| error.code() == ErrorCode::Conflict)
}
