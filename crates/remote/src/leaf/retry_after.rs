//! An HTTP transport that obeys `Retry-After`. After an answer with status 429 or 503 and that
//! header, requests for the same path are not sent before the time is over. They wait if it is
//! short, and fail as rate-limited if it is long.
//!
//! A path stands for one call of the service: GitHub limits uploads and downloads separately.
//!
//! Unaware of: which service it is, what is sent.

use opendal::{Buffer, Error, ErrorKind, HttpBody, HttpTransport, Result};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;
use tonic::codegen::http::{Request, Response, StatusCode, header::RETRY_AFTER};

/// A request waits for at most so long, which is less than `Options::stall`.
const WAIT_MAX: Duration = Duration::from_secs(8);
/// The time if the header is not a number of seconds.
const UNREADABLE: Duration = Duration::from_secs(10);
const TOLD_MAX: Duration = Duration::from_secs(300);

pub(super) struct RetryAfter<T> {
    inner: T,
    /// Until when no request for a path is sent.
    closed: Mutex<HashMap<String, Instant>>,
}

impl<T> RetryAfter<T> {
    pub(super) fn new(inner: T) -> Self {
        RetryAfter { inner, closed: Mutex::default() }
    }

    async fn pass(&self, path: &str) -> Result<()> {
        let until = {
            let mut closed = self.closed.lock();
            let now = Instant::now();
            closed.retain(|_, until| *until > now);
            closed.get(path).copied()
        };
        let Some(until) = until else { return Ok(()) };
        let wait = until.saturating_duration_since(Instant::now());
        if wait > WAIT_MAX {
            let why = format!("the service asks to wait for {} s more", wait.as_secs());
            return Err(Error::new(ErrorKind::RateLimited, why).set_temporary());
        }
        tokio::time::sleep_until(until).await;
        Ok(())
    }
}

impl<T: HttpTransport> HttpTransport for RetryAfter<T> {
    async fn fetch(&self, request: Request<Buffer>) -> Result<Response<HttpBody>> {
        let path = request.uri().path().to_owned();
        self.pass(&path).await?;
        let answer = self.inner.fetch(request).await?;
        if matches!(answer.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
            && let Some(told) = answer.headers().get(RETRY_AFTER)
        {
            let seconds = told.to_str().ok().and_then(|told| told.trim().parse().ok());
            let wait = seconds.map_or(UNREADABLE, Duration::from_secs).min(TOLD_MAX);
            self.closed.lock().insert(path, Instant::now() + wait);
        }
        Ok(answer)
    }
}
