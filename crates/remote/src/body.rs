//! Bodies: from bytes and files, and back into bytes where those are few.

use crate::{Body, Key, RemoteError, Trouble};
use bytes::{Bytes, BytesMut};
use futures::stream::{self, StreamExt, TryStreamExt};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::AsyncReadExt;

/// How much of a file is read at once, bytes.
const READ_BYTES: usize = 128 << 10;

/// A body of bytes that are here already.
pub fn whole(bytes: Bytes) -> Body {
    stream::iter((!bytes.is_empty()).then_some(Ok(bytes))).boxed()
}

/// The bytes of a body, at most `most`.
pub async fn collect(remote: &str, key: Key, mut body: Body, most: u64) -> Result<Bytes, RemoteError> {
    let Some(first) = body.try_next().await? else { return Ok(Bytes::new()) };
    let mut rest = BytesMut::new();
    let mut first = Some(first);
    loop {
        let next = body.try_next().await?;
        let length = rest.len() + first.as_ref().map_or(0, Bytes::len) + next.as_ref().map_or(0, Bytes::len);
        if length as u64 > most {
            let why = format!("more than {most} bytes");
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

/// The body of a file, opened when it is first asked for a byte.
pub fn file_body(key: Key, path: PathBuf) -> Body {
    let here = move |error| RemoteError::here(key, error);
    let opened = async move { tokio::fs::File::open(path).await.map_err(here) };
    let read = move |mut file: tokio::fs::File| async move {
        let mut buffer = BytesMut::with_capacity(READ_BYTES);
        let count = file.read_buf(&mut buffer).await.map_err(here)?;
        Ok((count > 0).then(|| (buffer.freeze(), file)))
    };
    stream::once(opened).map_ok(move |file| stream::try_unfold(file, read)).try_flatten().boxed()
}

/// Passes a body on and fails where it does not have `size` bytes, before the last of them is passed on when there are too
/// many, so that no service takes it for whole.
pub(crate) fn exactly(remote: Arc<str>, key: Key, size: u64, body: Body) -> Body {
    let step = move |(mut body, left, remote): (Body, u64, Arc<str>)| async move {
        let cut = |why: String| RemoteError::failed(&remote, Some(key), Trouble::Cut, why);
        match body.try_next().await? {
            None if left > 0 => Err(cut(format!("ends {left} bytes early"))),
            None => Ok(None),
            Some(bytes) => match left.checked_sub(bytes.len() as u64) {
                Some(left) => Ok(Some((bytes, (body, left, remote)))),
                None => Err(cut(format!("more than its {size} bytes"))),
            },
        }
    };
    stream::try_unfold((body, size, remote), step).boxed()
}
