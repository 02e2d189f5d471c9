//! Remote: one service that keeps objects by name, as little as larder needs of one.

use crate::{Key, RemoteError, Trouble, collect, whole};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};

/// An object's bytes as they come, never held whole. An error ends it.
pub type Body = BoxStream<'static, Result<Bytes, RemoteError>>;

/// An object that was asked for, if it is there: its size in bytes, where the service says that, and its bytes.
pub type Fetched = Option<(Option<u64>, Body)>;

/// How many requests the default of a batch has under way at once.
const BATCH_REQUESTS_MAX: usize = 64;
/// An object that a batch may fetch or store, bytes: such are held whole.
pub const SMALL_BYTES_MAX: u64 = 1 << 20;

/// What becomes of an object that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is replaced.
    Replace,
    /// It stays: decided atomically by the service where [`Abilities::create_new`], else by a look before.
    IfAbsent,
}

/// What became of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// It is there now, with these bytes.
    New,
    /// Another was there and stayed.
    Existed,
}

/// What a service can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Objects may be put.
    pub writable: bool,
    /// [`Put::IfAbsent`] is decided by the service: of several writers at once one wins.
    pub create_new: bool,
    /// An object that is there can be replaced. Where not, `put` answers [`Stored::Existed`] whatever it was asked.
    pub replace: bool,
    /// [`Remote::swap`] works: an object is replaced only where it is as it was seen.
    pub swap: bool,
    /// Several small objects travel in one request.
    pub batch: bool,
    /// An object of so many bytes takes one request; larger ones may take several.
    pub one_request_bytes: u64,
    /// The largest object, bytes; `None` where we know of no limit.
    pub largest_bytes: Option<u64>,
}

impl Abilities {
    /// A store that can do all that one object at a time needs, whatever its size.
    pub(crate) const STORE: Abilities = Abilities {
        writable: true,
        create_new: true,
        replace: true,
        swap: true,
        batch: false,
        one_request_bytes: SMALL_BYTES_MAX,
        largest_bytes: None,
    };
    /// The same, but of several writers the last wins.
    pub(crate) const LAST_WINS: Abilities = Abilities { create_new: false, swap: false, ..Abilities::STORE };
}

/// A state of an object, as the service tells it from others; only for [`Remote::swap`].
#[derive(Clone, Debug)]
pub struct Mark(pub(crate) MarkOf);

#[derive(Clone, Debug)]
pub(crate) enum MarkOf {
    /// The digest of its bytes.
    Bytes(larder_model::Digest),
    /// What an object store says of it: its tag or its generation.
    Metadata(Box<opendal::Metadata>),
}

/// A service. All of it is asked from several tasks at once.
///
/// What holds of every leaf and of every stack of decorators, and is tested of each (`tests/conformance`):
///
/// - **After `put` returned**, `get` and `has` by anybody find the object, whole. Services forget (eviction,
///   restarts), which looks as if it had never been put; they do not hand out half of one, and not an older one once a
///   newer was seen by whom put it.
/// - **No part of an object is ever visible**: before `put` returned, and when it failed, others find the old object,
///   the new one, or nothing. `size` and the number of bytes in `body` must agree, else it fails with [`Trouble::Cut`]
///   and nothing changed.
/// - **Dropping a future or a body at any await** cancels the request; what was to be put may be there or not, whole.
/// - **`get`** answers `None` for what is not there, and an error for what cannot be said. Its size is what the service
///   says and proves nothing; whoever needs the bytes to be right verifies them (`Verify`).
/// - **An empty object** is an object.
/// - **Errors** name the remote without credentials, and a trouble. The body of `put` is read at most once.
pub trait Remote: Send + Sync {
    /// The URL without credentials.
    fn name(&self) -> &str;

    /// What it can do.
    fn abilities(&self) -> Abilities;

    /// The object and its size in bytes, where the service says that.
    fn get(&self, key: Key) -> BoxFuture<'_, Result<Fetched, RemoteError>>;

    /// Store `size` bytes.
    fn put(&self, key: Key, size: u64, body: Body, how: Put) -> BoxFuture<'_, Result<Stored, RemoteError>>;

    /// Which of these are there, in their order.
    fn has<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<bool>, RemoteError>>;

    /// Objects of at most [`SMALL_BYTES_MAX`] bytes each, in their order; one that is larger is an error of kind
    /// [`Trouble::TooLarge`].
    fn get_small<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Bytes>>, RemoteError>> {
        let one = move |key: Key| async move {
            match self.get(key).await? {
                None => Ok(None),
                Some((_, body)) => collect(self.name(), key, body, SMALL_BYTES_MAX).await.map(Some),
            }
        };
        Box::pin(stream::iter(keys.iter().copied().map(one)).buffered(BATCH_REQUESTS_MAX).try_collect())
    }

    /// Store objects of at most [`SMALL_BYTES_MAX`] bytes each; what became of each, in their order. When it fails
    /// some of them may have been stored.
    fn put_small<'a>(
        &'a self,
        objects: &'a [(Key, Bytes)],
        how: Put,
    ) -> BoxFuture<'a, Result<Vec<Stored>, RemoteError>> {
        let one = move |(key, bytes): &'a (Key, Bytes)| self.put(*key, bytes.len() as u64, whole(bytes.clone()), how);
        Box::pin(stream::iter(objects).map(one).buffered(BATCH_REQUESTS_MAX).try_collect())
    }

    /// A small object and its mark; where [`Abilities::swap`].
    fn get_marked(&self, key: Key) -> BoxFuture<'_, Result<Option<(Bytes, Mark)>, RemoteError>> {
        Box::pin(async move { Err(cannot_swap(self.name(), key)) })
    }

    /// Replace a small object where it is still as it was when `seen` was taken, or is still not there where that is
    /// `None`; `false` where it is not, and nothing changed. Where [`Abilities::swap`].
    fn swap(&self, key: Key, bytes: Bytes, seen: Option<Mark>) -> BoxFuture<'_, Result<bool, RemoteError>> {
        drop((bytes, seen));
        Box::pin(async move { Err(cannot_swap(self.name(), key)) })
    }
}

fn cannot_swap(name: &str, key: Key) -> RemoteError {
    RemoteError::failed(&name.into(), Some(key), Trouble::Unable, "it cannot compare before it replaces")
}

impl Abilities {
    /// Whether an object of this size can be stored at all, else the error for it.
    pub(crate) fn takes(&self, name: &str, key: Key, size: u64) -> Result<(), RemoteError> {
        let failed = |trouble, why: String| Err(RemoteError::failed(&name.into(), Some(key), trouble, why));
        match self.largest_bytes {
            _ if !self.writable => failed(Trouble::Denied, "it is only read".into()),
            Some(most) if size > most => failed(Trouble::TooLarge, format!("{size} bytes, at most {most} are taken")),
            _ => Ok(()),
        }
    }
}
