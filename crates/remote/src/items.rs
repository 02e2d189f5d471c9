//! Fetches small objects, and the items of a list.
//!
//! Unaware of: other remotes, whether a record is trusted.

use crate::record::{Item, List, RECORD_BYTES_MAX};
use crate::{Key, Remote, RemoteError, collect};
use bytes::Bytes;
use futures::stream::{self, StreamExt};

/// How many records that are not in their list are fetched at once.
const RECORDS_AT_ONCE: usize = 8;
/// The most bytes of records that are fetched for one list.
const LIST_BYTES_MAX: u64 = 128 << 20;

pub(crate) async fn get_one(remote: &dyn Remote, key: Key) -> Result<Option<Bytes>, RemoteError> {
    Ok(remote.get_small(&[key]).await?.into_iter().next().flatten())
}

/// Returns an item with its bytes, if they can be fetched.
pub(crate) async fn filled(remote: &dyn Remote, mut item: Item) -> Item {
    if item.bytes.is_none() && item.size <= RECORD_BYTES_MAX {
        let fetched = async {
            let (_, body) = remote.get(Key::blob(item.digest)).await.ok()??;
            collect(remote.name(), Key::blob(item.digest), body, item.size).await.ok()
        };
        item.bytes = fetched.await;
    }
    item
}

/// Returns the items of a list with their bytes, if they can be fetched, newest first. Items beyond
/// [`LIST_BYTES_MAX`] are dropped, so that a list of huge records does not fill the memory.
pub(crate) async fn all_filled(remote: &dyn Remote, list: List) -> Vec<Item> {
    let mut room = LIST_BYTES_MAX;
    let fits = |item: &Item| {
        room = room.saturating_sub(item.size);
        room > 0 || item.bytes.is_some()
    };
    let items: Vec<Item> = list.items.into_iter().filter(fits).collect();
    let fetched = stream::iter(items.into_iter().map(|item| filled(remote, item)));
    fetched.buffered(RECORDS_AT_ONCE).collect().await
}
