//! Redis, through its own client.
//!
//! Requests of all tasks are pipelined over a few connections, so that many small objects take one
//! round trip.
//!
//! opendal's Redis client checks each connection before it is used, which doubles every latency. It
//! also gives up if an answer takes more than half a second.
//!
//! Unaware of: what objects contain.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind, FromRedisValue, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, TlsCertificates,
};
use tokio::sync::Mutex;

use super::client::CONNECT_WAIT_MAX;
use crate::remote::each;
use crate::{
    Abilities, Answer, Body, Fetched, Key, Login, Put, Remote, RemoteError, SMALL_BYTES_MAX, Stored, Tls, Trouble,
    body, whole,
};

/// The number of connections. With several of them a large answer does not delay all others.
const CONNECTIONS: usize = 4;

pub(crate) struct Redis {
    name: Arc<str>,
    client: Client,
    config: AsyncConnectionConfig,
    prefix: String,
    ttl_s: Option<u64>,
    abilities: Abilities,
    connections: [Mutex<Slot>; CONNECTIONS],
    turn: AtomicUsize,
}

/// A connection, if one is open, and how many connections this slot has opened so far.
#[derive(Default)]
struct Slot {
    connection: Option<MultiplexedConnection>,
    number: u64,
}

/// The address of a server, and our credentials.
pub(crate) struct RedisServer<'a> {
    pub(crate) address: &'a str,
    pub(crate) database: i64,
    pub(crate) login: Login,
    pub(crate) tls: Option<&'a Tls>,
}

impl Redis {
    pub(crate) fn new(
        name: &str,
        place: &RedisServer<'_>,
        prefix: &str,
        ttl_s: Option<u64>,
        (abilities, stall): (Abilities, Duration),
    ) -> Result<Self, RemoteError> {
        let name: Arc<str> = name.into();
        let ca = match place.tls.and_then(|tls| tls.ca.as_ref()) {
            None => None,
            Some(file) => Some(std::fs::read(file).map_err(|error| {
                RemoteError::failed(&name, None, Trouble::Denied, format!("{}: {error}", file.display()))
            })?),
        };
        let client = open(place, ca).map_err(|error| failed(&name, None, &error))?;
        // Shorter than the timeout of `stack/stall.rs`, so that the client notices a dead
        // connection first and opens another one.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_WAIT_MAX))
            .set_response_timeout(Some(stall * 9 / 10));
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        let (connections, turn) = (Default::default(), AtomicUsize::new(0));
        Ok(Redis { name, client, config, prefix, ttl_s, abilities, connections, turn })
    }

    fn path(&self, key: Key) -> String {
        format!("{}{}", self.prefix, key.path())
    }

    /// Sends a command and returns its answer. A connection that failed is not used again.
    async fn ask<T: FromRedisValue>(&self, key: Key, command: &Cmd) -> Result<T, RemoteError> {
        let slot = &self.connections[self.turn.fetch_add(1, Relaxed) % CONNECTIONS];
        let (mut connection, number) =
            self.connection(slot).await.map_err(|error| failed(&self.name, Some(key), &error))?;
        match command.query_async(&mut connection).await {
            Ok(answer) => Ok(answer),
            Err(error) => {
                if error.is_io_error() || error.is_unrecoverable_error() {
                    let mut slot = slot.lock().await;
                    // Another task may have opened a new one meanwhile.
                    if slot.number == number {
                        slot.connection = None;
                    }
                }
                Err(failed(&self.name, Some(key), &error))
            }
        }
    }

    async fn connection(&self, slot: &Mutex<Slot>) -> Result<(MultiplexedConnection, u64), RedisError> {
        let mut slot = slot.lock().await;
        if let Some(connection) = &slot.connection {
            return Ok((connection.clone(), slot.number));
        }
        let connection = self.client.get_multiplexed_async_connection_with_config(&self.config).await?;
        slot.connection = Some(connection.clone());
        slot.number += 1;
        Ok((connection, slot.number))
    }

    async fn store(&self, key: Key, size: u64, body: Body, how: Put) -> Result<Stored, RemoteError> {
        self.abilities.takes(&self.name, key, size)?;
        let bytes = body::collect(&self.name, key, body, SMALL_BYTES_MAX).await?;
        let mut set = redis::cmd("SET");
        set.arg(self.path(key)).arg(&bytes[..]);
        self.ttl_s.map(|seconds| set.arg("EX").arg(seconds));
        if how == Put::IfAbsent {
            set.arg("NX");
        }
        // With `NX` the answer is nil if the object exists.
        let done: Option<String> = self.ask(key, &set).await?;
        Ok(if done.is_some() { Stored::New } else { Stored::Existed })
    }
}

/// Makes the client. `ca` has the trusted certificates, instead of those of the system.
fn open(place: &RedisServer<'_>, ca: Option<Vec<u8>>) -> Result<Client, RedisError> {
    let (host, port) = place.address.rsplit_once(':').unwrap_or((place.address, ""));
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = port.parse().map_err(|_| RedisError::from((ErrorKind::InvalidClientConfig, "no port")))?;
    let address = match place.tls.is_some() {
        false => ConnectionAddr::Tcp(host, port),
        true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
    };
    // Only what the URL asks for is sent when a connection opens. Leaving out the name of the
    // library saves a round trip.
    let mut who = RedisConnectionInfo::default().set_db(place.database).set_skip_set_lib_name();
    if let Some(user) = &place.login.user {
        who = who.set_username(user);
    }
    if let Some(password) = &place.login.password {
        who = who.set_password(password);
    }
    let tcp = TcpSettings::default().set_nodelay(true);
    let info = address.into_connection_info()?.set_tcp_settings(tcp).set_redis_settings(who);
    match ca {
        Some(_) => Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert: ca }),
        None => Client::open(info),
    }
}

impl Remote for Redis {
    fn name(&self) -> &str {
        &self.name
    }

    fn abilities(&self) -> Abilities {
        self.abilities
    }

    fn get(&self, key: Key) -> Answer<'_, Fetched> {
        Box::pin(async move {
            let found: Option<bytes::Bytes> = self.ask(key, redis::cmd("GET").arg(self.path(key))).await?;
            Ok(found.map(|bytes| (Some(bytes.len() as u64), whole(bytes))))
        })
    }

    fn put(&self, key: Key, size: u64, body: Body, how: Put) -> Answer<'_, Stored> {
        Box::pin(self.store(key, size, body::exactly(self.name.clone(), key, size, body), how))
    }

    fn has<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<bool>> {
        let look = move |key: Key| async move { self.ask::<bool>(key, redis::cmd("EXISTS").arg(self.path(key))).await };
        Box::pin(each(keys.iter().copied(), look))
    }
}

/// Converts an error of the client.
fn failed(name: &Arc<str>, key: Option<Key>, error: &RedisError) -> RemoteError {
    let trouble = match (error.kind(), error.code()) {
        (ErrorKind::AuthenticationFailed, _) | (_, Some("NOAUTH" | "WRONGPASS" | "NOPERM" | "READONLY")) => {
            Trouble::Denied
        }
        (_, Some("OOM")) => Trouble::Full,
        (_, Some("LOADING" | "BUSY" | "TRYAGAIN" | "MASTERDOWN" | "CLUSTERDOWN")) => Trouble::Busy,
        (_, Some("MOVED" | "ASK" | "CROSSSLOT")) => Trouble::Unable,
        _ if error.is_timeout() => Trouble::Stalled,
        _ if error.is_io_error() || error.is_unrecoverable_error() => Trouble::Unreachable,
        _ => Trouble::Other,
    };
    RemoteError::failed(name, key, trouble, error)
}
