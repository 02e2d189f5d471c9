//! An object store, through opendal.

use crate::remote::MarkOf;
use crate::{Abilities, Body, Key, Mark, Put, Remote, RemoteError, SMALL_BYTES_MAX, Stored, Trouble, body};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};
use opendal::options::WriteOptions;
use opendal::{Buffer, Error, ErrorKind, Metadata, Operator};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Objects up to this many bytes go in one request, larger ones in pieces of it; the least that S3 takes for a piece.
const PIECE_BYTES: u64 = 5 << 20;
/// All that is held for requests under way, bytes.
const HELD_BYTES_MAX: u64 = 40 << 20;
const HELD_UNIT_BYTES: u64 = 64 << 10;
/// How many looks `has` has under way at once.
const LOOKS_MAX: usize = 64;

pub(crate) struct Object {
    name: Arc<str>,
    operator: Operator,
    prefix: String,
    abilities: Abilities,
    /// What goes in pieces can be put under a condition.
    conditional_pieces: bool,
    /// In units of `HELD_UNIT_BYTES`.
    held: Semaphore,
}

impl Object {
    pub(crate) fn new(name: &str, operator: Operator, prefix: &str, abilities: Abilities) -> Self {
        let held = Semaphore::new((HELD_BYTES_MAX / HELD_UNIT_BYTES) as usize);
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Object { name: name.into(), operator, prefix, abilities, conditional_pieces: false, held }
    }

    /// Google's way of sending pieces that knows conditions, which its stand-ins speak as well, is had by setting one.
    pub(crate) fn with_conditional_pieces(self) -> Self {
        Object { conditional_pieces: true, ..self }
    }

    fn path(&self, key: Key) -> String {
        format!("{}{}", self.prefix, key.path())
    }

    async fn read(&self, key: Key) -> Result<Option<(Option<u64>, Option<Mark>, Body)>, RemoteError> {
        let failed = |error: &Error| failed(&self.name, key, error);
        let reader = match self.operator.reader(&self.path(key)).await {
            Ok(reader) => reader,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(failed(&error)),
        };
        let mut buffers = reader.clone().into_stream(..).await.map_err(|error| failed(&error))?;
        let first = match buffers.try_next().await {
            Ok(first) => first,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(failed(&error)),
        };
        let metadata = reader.metadata().filter(|metadata| metadata.etag().is_some() || metadata.version().is_some());
        let mark = metadata.map(|metadata| Mark(MarkOf::Metadata(Box::new(metadata.clone()))));
        let size = match &first {
            None => Some(0),
            Some(_) => reader.metadata().map(|metadata| metadata.content_length()).filter(|&size| size > 0),
        };
        let name = self.name.clone();
        let rest = buffers.map_err(move |error| self::failed(&name, key, &error));
        let body = stream::iter(first.map(Ok)).chain(rest);
        let body = body.map_ok(|buffer: Buffer| stream::iter(Iterator::map(buffer, Ok))).try_flatten().boxed();
        Ok(Some((size, mark, body)))
    }

    async fn store(&self, key: Key, size: u64, mut body: Body, how: Put) -> Result<Stored, RemoteError> {
        self.abilities.takes(&self.name, key, size)?;
        let able = self.operator.info().capability();
        let in_one = size <= PIECE_BYTES || !able.write_can_multi;
        let decides = in_one || self.conditional_pieces;
        let must_be_new = how == Put::IfAbsent && able.write_with_if_not_exists && decides;
        if (how == Put::IfAbsent || !self.abilities.replace) && !must_be_new && self.is_there(key).await? {
            return Ok(Stored::Existed);
        }
        if !self.abilities.replace && !in_one {
            // A name that was begun and not ended is taken for good.
            body = body::spooled(key, body, |_| ()).await?;
        }
        let held = size.min(2 * PIECE_BYTES).div_ceil(HELD_UNIT_BYTES).max(1);
        let _held = self.held.acquire_many(held as u32).await.expect("it is never closed");
        let replaced = match how {
            Put::Replace if !in_one && self.conditional_pieces => Some(self.look(key).await?),
            _ => None,
        };
        let options = WriteOptions {
            if_not_exists: must_be_new || matches!(replaced, Some(None)),
            if_not_changed: replaced.clone().flatten(),
            chunk: (!in_one).then_some(PIECE_BYTES as usize),
            ..WriteOptions::default()
        };
        let path = self.path(key);
        let outcome = if in_one {
            let pieces: Vec<Bytes> = body.try_collect().await?;
            self.operator.write_options(&path, Buffer::from(pieces), options).await.map(drop)
        } else {
            let failed = |error: Error| failed(&self.name, key, &error);
            let mut writer = self.operator.writer_options(&path, options).await.map_err(failed)?;
            loop {
                match body.try_next().await {
                    Ok(Some(bytes)) => match writer.write(bytes).await {
                        Ok(()) => {}
                        Err(error) => break Err(error),
                    },
                    Ok(None) => break writer.close().await.map(drop),
                    Err(error) => {
                        // What was sent is not visible before `close`; this frees it.
                        let _ = writer.abort().await;
                        return Err(error);
                    }
                }
            }
        };
        match outcome {
            Ok(()) => Ok(Stored::New),
            Err(error) if is_taken(&error) && replaced.is_some() => {
                Err(RemoteError::failed(&self.name, Some(key), Trouble::Busy, "somebody else wrote it meanwhile"))
            }
            Err(error) if is_taken(&error) => Ok(Stored::Existed),
            // The Actions cache says of a name that is taken no more than that.
            Err(error) if !self.abilities.replace && error.message().contains("non-ok") => Ok(Stored::Existed),
            Err(error) => Err(failed(&self.name, key, &error)),
        }
    }

    async fn is_there(&self, key: Key) -> Result<bool, RemoteError> {
        Ok(self.look(key).await?.is_some())
    }

    async fn look(&self, key: Key) -> Result<Option<Metadata>, RemoteError> {
        match self.operator.stat(&self.path(key)).await {
            Ok(metadata) => Ok(Some(metadata)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(failed(&self.name, key, &error)),
        }
    }
}

impl Remote for Object {
    fn name(&self) -> &str {
        &self.name
    }

    fn abilities(&self) -> Abilities {
        self.abilities
    }

    fn get(&self, key: Key) -> BoxFuture<'_, Result<Option<(Option<u64>, Body)>, RemoteError>> {
        Box::pin(async move { Ok(self.read(key).await?.map(|(size, _, body)| (size, body))) })
    }

    fn put(&self, key: Key, size: u64, body: Body, how: Put) -> BoxFuture<'_, Result<Stored, RemoteError>> {
        let body = body::exactly(self.name.clone(), key, size, body);
        Box::pin(self.store(key, size, body, how))
    }

    fn has<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<bool>, RemoteError>> {
        let looks = keys.iter().map(|&key| self.is_there(key));
        Box::pin(stream::iter(looks).buffered(LOOKS_MAX).try_collect())
    }

    fn get_marked(&self, key: Key) -> BoxFuture<'_, Result<Option<(Bytes, Mark)>, RemoteError>> {
        Box::pin(async move {
            let Some((_, mark, body)) = self.read(key).await? else { return Ok(None) };
            let bytes = body::collect(&self.name, key, body, SMALL_BYTES_MAX).await?;
            match mark {
                Some(mark) => Ok(Some((bytes, mark))),
                None => Err(RemoteError::failed(&self.name, Some(key), Trouble::Unable, "it gives objects no tags")),
            }
        })
    }

    fn swap(&self, key: Key, bytes: Bytes, seen: Option<Mark>) -> BoxFuture<'_, Result<bool, RemoteError>> {
        Box::pin(async move {
            self.abilities.takes(&self.name, key, bytes.len() as u64)?;
            let path = self.path(key);
            let written = match &seen {
                None => self.operator.write_with(&path, bytes).if_not_exists(true).await,
                Some(Mark(MarkOf::Metadata(seen))) => self.operator.write_with(&path, bytes).if_not_changed(seen).await,
                Some(_) => return Ok(false),
            };
            match written {
                Ok(_) => Ok(true),
                Err(error) if is_taken(&error) || is_absent(&error) => Ok(false),
                Err(error) => Err(failed(&self.name, key, &error)),
            }
        })
    }
}

/// Whether the object is not there, and not what it would be in, or who asks.
fn is_absent(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound && said_of(error).is_none()
}

/// What some servers say in words only.
fn said_of(error: &Error) -> Option<Trouble> {
    const NO_PLACE: [&str; 4] =
        ["nosuchbucket", "bucket does not exist", "containernotfound", "container does not exist"];
    let said = error.to_string().to_ascii_lowercase();
    match () {
        () if NO_PLACE.iter().any(|words| said.contains(words)) => Some(Trouble::NoPlace),
        // Of servers of S3's protocol that have a disk of their own.
        () if said.contains("storagefull") || said.contains("quotaexceeded") => Some(Trouble::Full),
        // A key that they do not know, as if they had failed, or had not found the object.
        () if said.contains("access key") || said.contains("accesskey") => Some(Trouble::Denied),
        // There are none.
        () if said.contains("signing credential") => Some(Trouble::Denied),
        () => None,
    }
}

fn is_taken(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::ConditionNotMatch | ErrorKind::AlreadyExists | ErrorKind::Conflict)
}

/// What opendal says of where it was is left out: it names requests, and those hold signatures.
fn failed(name: &Arc<str>, key: Key, error: &Error) -> RemoteError {
    let said = error.to_string().to_ascii_lowercase();
    let trouble = match error.kind() {
        _ if let Some(trouble) = said_of(error) => trouble,
        ErrorKind::PermissionDenied => Trouble::Denied,
        ErrorKind::RateLimited => Trouble::Busy,
        // Of an object it is no trouble.
        ErrorKind::NotFound => Trouble::NoPlace,
        ErrorKind::Unsupported => Trouble::Unable,
        ErrorKind::ConfigInvalid => Trouble::Denied,
        _ if said.contains("connect") || said.contains("connection") || said.contains("timed out") => {
            Trouble::Unreachable
        }
        _ if error.is_temporary() => Trouble::Unreachable,
        _ => Trouble::Other,
    };
    let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    RemoteError::failed(name, Some(key), trouble, format!("{}{source}", error.message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_credentials_is_told_so() {
        let none = std::io::Error::other("failed to load signing credential");
        let error = Error::new(ErrorKind::Unexpected, "signing http request").set_source(none);
        let failed = failed(&"s3://bucket".into(), Key::blob(larder_model::Digest([0; 32])), &error);
        assert_eq!(failed.trouble(), Some(Trouble::Denied), "{failed}");
    }
}
