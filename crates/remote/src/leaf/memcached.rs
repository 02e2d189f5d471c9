//! memcached, through Shopify's client (`async-memcached`).
//!
//! A connection has one request at a time. It is used again only after its answer was read as a
//! whole. Dropping a request closes its connection, so that no later request can get its answer.
//!
//! opendal's memcached client reuses such a connection, and the next request gets the answer of the
//! dropped one. It also sends a request in many packets, and each of them waits for an answer to
//! the one before.
//!
//! Unaware of: what objects contain.

use std::sync::Arc;
use std::time::Duration;

use async_memcached::{AsciiProtocol, Client, Error, ErrorKind, Status};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::client::{CONNECT_WAIT_MAX, IDLE_MAX};
use crate::remote::each;
use crate::{
    Abilities, Answer, Body, Fetched, Key, Put, Remote, RemoteError, SMALL_BYTES_MAX, Stored, Trouble, body, whole,
};

pub(crate) struct Memcached {
    name: Arc<str>,
    address: String,
    prefix: String,
    ttl_s: Option<i64>,
    abilities: Abilities,
    /// One permit for each connection.
    room: Semaphore,
    /// Idle connections and when they became idle, the most recent last.
    idle: Mutex<Vec<(Client, Instant)>>,
}

/// A connection that is used for one request.
struct Taken<'a> {
    client: Client,
    _room: SemaphorePermit<'a>,
}

impl Memcached {
    /// Returns a client. The server drops an object after `ttl`, which is at most 30 days.
    pub(crate) fn new(
        name: &str,
        address: &str,
        prefix: &str,
        ttl: Option<Duration>,
        (abilities, connections_max): (Abilities, usize),
    ) -> Self {
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        let ttl_s = ttl.map(|ttl| ttl.as_secs() as i64);
        let (name, address) = (name.into(), format!("tcp://{address}"));
        let (room, idle) = (Semaphore::new(connections_max.max(1)), Mutex::default());
        Memcached { name, address, prefix, ttl_s, abilities, room, idle }
    }

    fn path(&self, key: Key) -> String {
        format!("{}{}", self.prefix, key.path())
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Client, Instant)>> {
        let mut idle = self.idle.lock();
        idle.retain(|(_, since)| since.elapsed() < IDLE_MAX);
        idle
    }

    /// Takes an idle connection, or opens one.
    async fn take(&self, key: Key) -> Result<Taken<'_>, RemoteError> {
        let room = self.room.acquire().await.expect("the semaphore is never closed");
        let idle = self.idle().pop();
        let client = match idle {
            Some((client, _)) => client,
            None => {
                let connected = tokio::time::timeout(CONNECT_WAIT_MAX, Client::new(&self.address)).await;
                let late = |_| RemoteError::failed(&self.name, Some(key), Trouble::Unreachable, "connecting timed out");
                connected.map_err(late)?.map_err(|error| self.failed(key, &error))?
            }
        };
        Ok(Taken { client, _room: room })
    }

    /// Makes a connection available for the next request. It must have no answer outstanding.
    fn give_back(&self, taken: Taken<'_>) {
        match taken.client.is_closed() {
            false => self.idle().push((taken.client, Instant::now())),
            // The server closed it, and probably all others.
            true => self.idle().clear(),
        }
    }

    async fn fetch(&self, key: Key) -> Result<Option<Vec<u8>>, RemoteError> {
        let path = self.path(key);
        let mut taken = self.take(key).await?;
        let answer = taken.client.get(&path).await;
        self.give_back(taken);
        match answer.map_err(|error| self.failed(key, &error))? {
            None => Ok(None),
            Some(value) if value.key == path.as_bytes() => Ok(Some(value.data.unwrap_or_default())),
            Some(_) => {
                Err(RemoteError::failed(&self.name, Some(key), Trouble::Damaged, "the answer is for another key"))
            }
        }
    }

    async fn store(&self, key: Key, size: u64, body: Body, how: Put) -> Result<Stored, RemoteError> {
        self.abilities.takes(&self.name, key, size)?;
        let bytes = body::collect(&self.name, key, body, SMALL_BYTES_MAX).await?;
        let path = self.path(key);
        let mut taken = self.take(key).await?;
        let answer = match how {
            Put::Replace => taken.client.set(&path, &bytes[..], self.ttl_s, None).await,
            Put::IfAbsent => taken.client.add(&path, &bytes[..], self.ttl_s, None).await,
        };
        self.give_back(taken);
        match answer {
            Ok(()) => Ok(Stored::New),
            Err(Error::Protocol(Status::NotStored)) if how == Put::IfAbsent => Ok(Stored::Existed),
            Err(error) => Err(self.failed(key, &error)),
        }
    }

    fn failed(&self, key: Key, error: &Error) -> RemoteError {
        let trouble = match error {
            Error::Connect(_) | Error::ConnectionClosed | Error::Io(_) => Trouble::Unreachable,
            Error::Protocol(Status::Error(ErrorKind::Server(said))) if said.contains("too large") => Trouble::TooLarge,
            // The server has no memory for an object of this size, and cannot evict one now.
            Error::Protocol(Status::Error(ErrorKind::Server(_))) => Trouble::Busy,
            _ => Trouble::Other,
        };
        RemoteError::failed(&self.name, Some(key), trouble, error)
    }
}

impl Remote for Memcached {
    fn name(&self) -> &str {
        &self.name
    }

    fn abilities(&self) -> Abilities {
        self.abilities
    }

    fn get(&self, key: Key) -> Answer<'_, Fetched> {
        Box::pin(async move {
            let found = self.fetch(key).await?;
            Ok(found.map(|bytes| (Some(bytes.len() as u64), whole(bytes.into()))))
        })
    }

    fn put(&self, key: Key, size: u64, body: Body, how: Put) -> Answer<'_, Stored> {
        Box::pin(self.store(key, size, body::exactly(self.name.clone(), key, size, body), how))
    }

    fn has<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<bool>> {
        // Not all versions of the protocol can check for an object without fetching it.
        let look = move |key: Key| async move { Ok(self.fetch(key).await?.is_some()) };
        Box::pin(each(keys.iter().copied(), look))
    }
}
