//! An object store, through opendal: S3, Google Cloud Storage, Azure Blob Storage, the Actions
//! cache.
//!
//! Unaware of: what objects contain.

use crate::error::causes;
use crate::remote::{MarkOf, each};
use crate::{
    Abilities, Answer, Body, Fetched, Key, Mark, Put, Remote, RemoteError, SMALL_BYTES_MAX, Stored, Trouble, body,
};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use opendal::options::WriteOptions;
use opendal::{Buffer, Error, ErrorKind, Metadata, Operator};
use std::sync::Arc;

/// Objects up to this many bytes are sent in one request, larger ones in pieces of this size. It is
/// the smallest piece that S3 accepts.
const PIECE_BYTES: u64 = 5 << 20;

pub(crate) struct Object {
    name: Arc<str>,
    operator: Operator,
    prefix: String,
    abilities: Abilities,
    /// Uploads in pieces support conditions.
    conditional_pieces: bool,
}

impl Object {
    pub(crate) fn new(name: &str, operator: Operator, prefix: &str, abilities: Abilities) -> Self {
        let abilities = Abilities { held_bytes: 2 * PIECE_BYTES, ..abilities };
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Object { name: name.into(), operator, prefix, abilities, conditional_pieces: false }
    }

    /// For Google: opendal uses the upload protocol that supports conditions only if a condition is
    /// set. The stand-in servers for tests know no other.
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
            // The Actions cache reserves a name when an upload begins, and never frees it. So the
            // body must be complete before that.
            body = body::spooled(key, body, |_| ()).await?;
        }
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
                        // The pieces are not visible before `close`. Aborting frees them.
                        let _ = writer.abort().await;
                        return Err(error);
                    }
                }
            }
        };
        match outcome {
            Ok(()) => Ok(Stored::New),
            Err(error) if is_taken(&error) && replaced.is_some() => {
                Err(RemoteError::failed(&self.name, Some(key), Trouble::Busy, "another client wrote it meanwhile"))
            }
            Err(error) if is_taken(&error) => Ok(Stored::Existed),
            // For a reserved name the Actions cache only returns a status other than ok.
            Err(error) if !self.abilities.replace && error.message().contains("non-ok") => Ok(Stored::Existed),
            Err(error) => Err(failed(&self.name, key, &error)),
        }
    }

    async fn is_there(&self, key: Key) -> Result<bool, RemoteError> {
        Ok(self.look(key).await?.is_some())
    }

    /// Returns the metadata of an object, if it exists.
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

    fn get(&self, key: Key) -> Answer<'_, Fetched> {
        Box::pin(async move { Ok(self.read(key).await?.map(|(size, _, body)| (size, body))) })
    }

    fn put(&self, key: Key, size: u64, body: Body, how: Put) -> Answer<'_, Stored> {
        let body = body::exactly(self.name.clone(), key, size, body);
        Box::pin(self.store(key, size, body, how))
    }

    fn has<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<bool>> {
        Box::pin(each(keys, |&key| self.is_there(key)))
    }

    fn get_marked(&self, key: Key) -> Answer<'_, Option<(Bytes, Mark)>> {
        Box::pin(async move {
            let Some((_, mark, body)) = self.read(key).await? else { return Ok(None) };
            let bytes = body::collect(&self.name, key, body, SMALL_BYTES_MAX).await?;
            match mark {
                Some(mark) => Ok(Some((bytes, mark))),
                None => Err(RemoteError::failed(&self.name, Some(key), Trouble::Unable, "the service has no ETags")),
            }
        })
    }

    fn swap(&self, key: Key, bytes: Bytes, seen: Option<Mark>) -> Answer<'_, bool> {
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

/// Returns true if the object does not exist. Some servers also report "not found" for a missing
/// bucket or a wrong access key; these are errors.
fn is_absent(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound && said_of(error).is_none()
}

/// Recognises errors that servers describe only in their message.
fn said_of(error: &Error) -> Option<Trouble> {
    const NO_PLACE: [&str; 4] =
        ["nosuchbucket", "bucket does not exist", "containernotfound", "container does not exist"];
    let said = error.to_string().to_ascii_lowercase();
    match () {
        () if NO_PLACE.iter().any(|words| said.contains(words)) => Some(Trouble::NoPlace),
        // From servers with the S3 protocol that have their own disk.
        () if said.contains("storagefull") || said.contains("quotaexceeded") => Some(Trouble::Full),
        // Some servers report an unknown access key as a failure, or as a missing object.
        () if said.contains("access key") || said.contains("accesskey") => Some(Trouble::Denied),
        // We have no credentials.
        () if said.contains("signing credential") => Some(Trouble::Denied),
        () => None,
    }
}

/// Returns true if a condition failed, because the object exists or has changed.
fn is_taken(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::ConditionNotMatch | ErrorKind::AlreadyExists | ErrorKind::Conflict)
}

/// Converts an error. opendal's context is left out, because it contains request URLs with
/// signatures.
fn failed(name: &Arc<str>, key: Key, error: &Error) -> RemoteError {
    let said = error.to_string().to_ascii_lowercase();
    let trouble = match error.kind() {
        _ if let Some(trouble) = said_of(error) => trouble,
        ErrorKind::PermissionDenied => Trouble::Denied,
        ErrorKind::RateLimited => Trouble::Busy,
        // The bucket; a missing object was handled before.
        ErrorKind::NotFound => Trouble::NoPlace,
        ErrorKind::Unsupported => Trouble::Unable,
        ErrorKind::ConfigInvalid => Trouble::Denied,
        // The context has the status of the answer.
        _ if said.contains("status: 401") => Trouble::Denied,
        _ if said.contains("status: 30") => Trouble::NoPlace,
        _ if said.contains("connect") || said.contains("connection") || said.contains("timed out") => {
            Trouble::Unreachable
        }
        _ if error.is_temporary() => Trouble::Unreachable,
        _ => Trouble::Other,
    };
    RemoteError::failed(name, Some(key), trouble, format!("{}{}", error.message(), causes(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_credentials_are_reported() {
        let none = std::io::Error::other("failed to load signing credential");
        let error = Error::new(ErrorKind::Unexpected, "signing http request").set_source(none);
        let failed = failed(&"s3://bucket".into(), Key::blob(larder_model::Digest([0; 32])), &error);
        assert_eq!(failed.trouble(), Some(Trouble::Denied), "{failed}");
    }
}
