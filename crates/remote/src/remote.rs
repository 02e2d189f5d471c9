//! The [`Remote`] trait: a service that stores objects by name, with only what larder needs of one.
//!
//! Unaware of: services, what objects contain.

use crate::{Body, Key, RemoteError, Trouble, collect, whole};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};

/// The answer to a fetch: `None` if there is no such object, else its size in bytes, if the service
/// says it, and its bytes.
pub type Fetched = Option<(Option<u64>, Body)>;
/// The future answer to a request.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, RemoteError>>;

/// How many requests of a batch are under way at once.
const BATCH_REQUESTS_MAX: usize = 64;
/// The most bytes of an object in a batch. Such objects are held in memory as a whole.
pub const SMALL_BYTES_MAX: u64 = 1 << 20;

/// Says what `put` does if the object exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is replaced.
    Replace,
    /// It stays. The service decides that atomically if it has [`Abilities::create_new`]. Otherwise
    /// larder checks first, and of two concurrent writers both may write.
    IfAbsent,
}

/// The outcome of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The object was stored.
    New,
    /// An object was there already and was kept.
    Existed,
}

/// The abilities of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Objects can be uploaded.
    pub writable: bool,
    /// [`Put::IfAbsent`] is decided by the service: of several concurrent writers exactly one wins.
    pub create_new: bool,
    /// An existing object can be replaced. If not, `put` returns [`Stored::Existed`] for every
    /// existing object, also for [`Put::Replace`].
    pub replace: bool,
    /// [`Remote::swap`] works: compare-and-swap.
    pub swap: bool,
    /// An object of up to this many bytes takes one request. A larger one may take several.
    pub one_request_bytes: u64,
    /// The most bytes that an upload holds in memory. The service takes so many from the body at
    /// once, and does not say how many of them it has sent.
    pub held_bytes: u64,
    /// The most bytes of an object; `None` if no limit is known.
    pub largest_bytes: Option<u64>,
    /// The service accepts so many uploads a minute from all clients together; `None` if no limit
    /// is known. With such a limit `Packs` puts many small objects into one.
    pub writes_per_minute: Option<u32>,
}

impl Abilities {
    /// A service that supports everything for objects of any size.
    pub(crate) const STORE: Abilities = Abilities {
        writable: true,
        create_new: true,
        replace: true,
        swap: true,
        one_request_bytes: SMALL_BYTES_MAX,
        held_bytes: SMALL_BYTES_MAX,
        largest_bytes: None,
        writes_per_minute: None,
    };
    /// Like [`Abilities::STORE`], but without conditional writes: the last of several writers wins.
    pub(crate) const LAST_WINS: Abilities = Abilities { create_new: false, swap: false, ..Abilities::STORE };
}

/// A version of an object, for [`Remote::swap`].
#[derive(Clone, Debug)]
pub struct Mark(pub(crate) MarkOf);

#[derive(Clone, Debug)]
pub(crate) enum MarkOf {
    /// The digest of the object's bytes.
    Bytes(larder_model::Digest),
    /// The ETag or generation that an object store reports.
    Metadata(Box<opendal::Metadata>),
}

/// A service that stores objects. Several tasks use it at once.
///
/// The following holds for every leaf and for every stack of decorators (`tests/conformance` checks
/// it):
///
/// - **After `put` has returned**, `get` and `has` find the whole object, on every client. A
///   service may forget objects (eviction, restarts); then it looks as if they had never been put.
///   It never returns half of one. To a client that has put a newer version it never returns an
///   older one.
/// - **Uploads are atomic.** Before `put` has returned, or if it fails, other clients see the old
///   object, the new one, or none. If `body` does not have `size` bytes, `put` fails with
///   [`Trouble::Cut`] and nothing changes.
/// - **Dropping a future or a body** at any await cancels the request. The object of a cancelled
///   upload exists as a whole or not at all.
/// - **`get`** returns `None` if the object does not exist, and an error if that is unknown. The
///   size is what the service says and is not verified. A caller that needs correct bytes verifies
///   them (`Verify`).
/// - **An empty object** is an object.
/// - **Errors** name the remote, without credentials, and the kind of trouble.
/// - **The body of `put`** is read at most once.
pub trait Remote: Send + Sync {
    /// Returns the URL without credentials.
    fn name(&self) -> &str;

    /// Returns what the service supports.
    fn abilities(&self) -> Abilities;

    /// Fetches an object.
    fn get(&self, key: Key) -> Answer<'_, Fetched>;

    /// Stores an object of `size` bytes.
    fn put(&self, key: Key, size: u64, body: Body, how: Put) -> Answer<'_, Stored>;

    /// Returns for each key whether the object exists.
    fn has<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<bool>>;

    /// Fetches objects of at most [`SMALL_BYTES_MAX`] bytes each, in the order of their keys. Fails
    /// with [`Trouble::TooLarge`] if one of them is larger.
    fn get_small<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<Option<Bytes>>> {
        let one = move |key: Key| async move {
            match self.get(key).await? {
                None => Ok(None),
                Some((_, body)) => collect(self.name(), key, body, SMALL_BYTES_MAX).await.map(Some),
            }
        };
        Box::pin(each(keys.iter().copied(), one))
    }

    /// Stores objects of at most [`SMALL_BYTES_MAX`] bytes each. Returns one outcome for each. If
    /// it fails, some of them may have been stored.
    fn put_small<'a>(&'a self, objects: &'a [(Key, Bytes)], how: Put) -> Answer<'a, Vec<Stored>> {
        let one = move |(key, bytes): &'a (Key, Bytes)| self.put(*key, bytes.len() as u64, whole(bytes.clone()), how);
        Box::pin(each(objects, one))
    }

    /// Fetches a small object with its version. Requires [`Abilities::swap`].
    fn get_marked(&self, key: Key) -> Answer<'_, Option<(Bytes, Mark)>> {
        Box::pin(async move { Err(cannot_swap(self.name(), key)) })
    }

    /// Replaces a small object if it is still the version `seen`, or creates it if `seen` is `None`
    /// and it does not exist. Returns false, and changes nothing, if it is another version.
    /// Requires [`Abilities::swap`].
    fn swap(&self, key: Key, bytes: Bytes, seen: Option<Mark>) -> Answer<'_, bool> {
        drop((bytes, seen));
        Box::pin(async move { Err(cannot_swap(self.name(), key)) })
    }
}

/// Asks for each item, a few at once, and returns the answers in the order of the items.
pub(crate) fn each<I: IntoIterator, T, F: Future<Output = Result<T, RemoteError>>>(
    items: I,
    ask: impl FnMut(I::Item) -> F,
) -> impl Future<Output = Result<Vec<T>, RemoteError>> {
    // Collected first: a future that holds the closure across an await is not `Send`.
    let asked: Vec<F> = items.into_iter().map(ask).collect();
    stream::iter(asked).buffered(BATCH_REQUESTS_MAX).try_collect()
}

fn cannot_swap(name: &str, key: Key) -> RemoteError {
    RemoteError::failed(&name.into(), Some(key), Trouble::Unable, "the service does not support compare-and-swap")
}

impl Abilities {
    /// Returns an error if an object of this size cannot be stored.
    pub(crate) fn takes(&self, name: &str, key: Key, size: u64) -> Result<(), RemoteError> {
        let failed = |trouble, why: String| Err(RemoteError::failed(&name.into(), Some(key), trouble, why));
        match self.largest_bytes {
            _ if !self.writable => failed(Trouble::Denied, "the remote is read-only".into()),
            Some(most) if size > most => failed(Trouble::TooLarge, format!("{size} bytes are more than {most}")),
            _ => Ok(()),
        }
    }
}
