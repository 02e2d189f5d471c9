//! Bodies: streams of an object's bytes, made from memory or from a file, and collected into memory
//! again if they are small.
//!
//! Unaware of: services, formats.

use crate::{Key, RemoteError, Trouble};
use bytes::{Bytes, BytesMut};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

/// An object's bytes as they arrive, in pieces. An error ends the stream.
pub type Body = BoxStream<'static, Result<Bytes, RemoteError>>;

/// How many bytes of a file are read at once.
const READ_BYTES: usize = 128 << 10;

/// Returns a body that yields `bytes`.
pub fn whole(bytes: Bytes) -> Body {
    stream::iter((!bytes.is_empty()).then_some(Ok(bytes))).boxed()
}

/// Reads a body to its end and returns its bytes. Fails with [`Trouble::TooLarge`] if there are
/// more than `most`.
pub async fn collect(remote: &str, key: Key, mut body: Body, most: u64) -> Result<Bytes, RemoteError> {
    let Some(first) = body.try_next().await? else { return Ok(Bytes::new()) };
    let mut rest = BytesMut::new();
    let mut first = Some(first);
    loop {
        let next = body.try_next().await?;
        let length = rest.len() + first.as_ref().map_or(0, Bytes::len) + next.as_ref().map_or(0, Bytes::len);
        if length as u64 > most {
            let why = format!("it is larger than the limit of {most} bytes");
            return Err(RemoteError::failed(&remote.into(), Some(key), Trouble::TooLarge, why));
        }
        match (next, first.take()) {
            (None, Some(only)) => return Ok(only),
            (None, None) => return Ok(rest.freeze()),
            (Some(next), before) => {
                rest.extend_from_slice(&before.unwrap_or_default());
                rest.extend_from_slice(&next);
            }
        }
    }
}

/// Returns the contents of a file as a body. The file is opened when the body is first polled.
pub fn file_body(key: Key, path: PathBuf) -> Body {
    let here = move |error| RemoteError::here(key, error);
    let opened = async move { tokio::fs::File::open(path).await.map_err(here) };
    stream::once(opened).map_ok(move |file| rest_of(key, file)).try_flatten().boxed()
}

/// Copies a body into an unnamed temporary file and returns the file's contents as a body. `each`
/// gets every piece as it arrives, for example to hash it.
///
/// Some services must know the digest of all bytes before they take the first one.
pub(crate) async fn spooled(key: Key, mut body: Body, mut each: impl FnMut(&[u8])) -> Result<Body, RemoteError> {
    let here = move |error| RemoteError::here(key, error);
    // An unnamed file disappears even if this process is killed.
    let mut file = tokio::fs::File::from_std(tempfile::tempfile().map_err(here)?);
    while let Some(bytes) = body.try_next().await? {
        each(&bytes);
        file.write_all(&bytes).await.map_err(here)?;
    }
    file.flush().await.map_err(here)?;
    file.rewind().await.map_err(here)?;
    Ok(rest_of(key, file))
}

/// Returns a file's contents, from its current offset, as a body.
fn rest_of(key: Key, file: tokio::fs::File) -> Body {
    let read = move |mut file: tokio::fs::File| async move {
        let mut buffer = BytesMut::with_capacity(READ_BYTES);
        let count = file.read_buf(&mut buffer).await.map_err(|error| RemoteError::here(key, error))?;
        Ok((count > 0).then(|| (buffer.freeze(), file)))
    };
    stream::try_unfold(file, read).boxed()
}

/// Passes a body on, and fails with [`Trouble::Cut`] if it does not have exactly `size` bytes.
///
/// If the body is too long, the piece that crosses `size` is not passed on. The service therefore
/// never sees a complete object and stores nothing.
pub(crate) fn exactly(remote: Arc<str>, key: Key, size: u64, body: Body) -> Body {
    let step = move |(mut body, left, remote): (Body, u64, Arc<str>)| async move {
        let cut = |why: String| RemoteError::failed(&remote, Some(key), Trouble::Cut, why);
        match body.try_next().await? {
            None if left > 0 => Err(cut(format!("the object ends {left} bytes early"))),
            None => Ok(None),
            Some(bytes) => match left.checked_sub(bytes.len() as u64) {
                Some(left) => Ok(Some((bytes, (body, left, remote)))),
                None => Err(cut(format!("the object has more than its {size} bytes"))),
            },
        }
    };
    stream::try_unfold((body, size, remote), step).boxed()
}
