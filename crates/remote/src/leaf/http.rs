//! A web server with PUT, GET and HEAD, such as nginx, Apache, or a dedicated cache server. With
//! WebDAV, missing directories are created first.
//!
//! Unaware of: what objects contain.

use crate::error::{own_error, with_causes};
use crate::remote::each;
use crate::{Abilities, Answer, Body, Fetched, Key, Login, Put, Remote, RemoteError, Stored, Trouble, body};
use futures::stream::{StreamExt, TryStreamExt};
use parking_lot::{Mutex, MutexGuard};
use reqwest::header::{CONTENT_LENGTH, HeaderMap, LOCATION};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use std::collections::HashSet;
use std::sync::Arc;

pub(crate) struct Http {
    name: Arc<str>,
    client: Client,
    base: String,
    headers: HeaderMap,
    login: Login,
    /// For WebDAV: the directories that are known to exist.
    made: Option<Mutex<HashSet<String>>>,
}

impl Http {
    pub(crate) fn new(
        name: &str,
        client: Client,
        base: String,
        headers: HeaderMap,
        login: Login,
        webdav: bool,
    ) -> Self {
        let made = webdav.then(Mutex::default);
        Http { name: name.into(), client, base, headers, login, made }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}/{path}", self.base)).headers(self.headers.clone());
        match &self.login {
            Login { user: None, password: None } => request,
            Login { user, password } => request.basic_auth(user.as_deref().unwrap_or_default(), password.as_deref()),
        }
    }

    async fn send(&self, key: Key, request: RequestBuilder) -> Result<Response, RemoteError> {
        request.send().await.map_err(|error| self.broken(key, error))
    }

    fn broken(&self, key: Key, error: reqwest::Error) -> RemoteError {
        own_error(&error).unwrap_or_else(|| broken(&self.name, key, error))
    }

    fn refused(&self, key: Key, answer: &Response) -> RemoteError {
        let status = answer.status();
        let trouble = match status.as_u16() {
            401 | 403 | 407 => Trouble::Denied,
            408 | 429 | 503 => Trouble::Busy,
            405 | 501 => Trouble::Unable,
            413 => Trouble::TooLarge,
            507 => Trouble::Full,
            502 | 504 => Trouble::Unreachable,
            300..=400 => Trouble::NoPlace,
            _ => Trouble::Other,
        };
        if status == StatusCode::BAD_REQUEST && answer.url().scheme() == "http" {
            let why = format!("{status}: if the server expects TLS on this port, write https or webdavs");
            return RemoteError::failed(&self.name, Some(key), trouble, why);
        }
        match self.moved(key, answer) {
            Some(to) => RemoteError::failed(&self.name, Some(key), trouble, format!("{status}: {to}")),
            None => RemoteError::failed(&self.name, Some(key), trouble, status),
        }
    }

    /// Describes a redirect that was not followed (see `client::redirected`). Neither a login nor a query is shown,
    /// because they may be credentials.
    fn moved(&self, key: Key, answer: &Response) -> Option<String> {
        let location = answer.headers().get(LOCATION)?.to_str().ok()?;
        let mut to = answer.url().join(location).ok().filter(|_| answer.status().is_redirection())?;
        to.set_query(None);
        to.set_username("").and_then(|()| to.set_password(None)).ok()?;
        let advice = match to.as_str().strip_suffix(&format!("/{}", key.path())) {
            Some(base) if self.made.is_some() => format!("write {} instead", base.replacen("http", "webdav", 1)),
            Some(base) => format!("write {base} instead"),
            None => "write the address of the remote there instead".to_owned(),
        };
        Some(format!("a redirect to {to} is not followed, because another server would see the credentials: {advice}"))
    }

    async fn is_there(&self, key: Key) -> Result<bool, RemoteError> {
        let answer = self.send(key, self.request(Method::HEAD, &key.path())).await?;
        match answer.status() {
            status if status.is_success() => Ok(true),
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(false),
            _ => Err(self.refused(key, &answer)),
        }
    }

    async fn fetch(&self, key: Key) -> Result<Fetched, RemoteError> {
        let answer = self.send(key, self.request(Method::GET, &key.path())).await?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND | StatusCode::GONE => return Ok(None),
            _ => return Err(self.refused(key, &answer)),
        }
        let size = answer.content_length();
        let name = self.name.clone();
        let body = answer.bytes_stream().map_err(move |error| broken(&name, key, error)).boxed();
        Ok(Some((size, body)))
    }

    async fn store(&self, key: Key, size: u64, body: Body, how: Put) -> Result<Stored, RemoteError> {
        if how == Put::IfAbsent && self.is_there(key).await? {
            return Ok(Stored::Existed);
        }
        self.make_directories(key).await?;
        let body = match size {
            0 => {
                body.try_for_each(|_| async { Ok(()) }).await?;
                reqwest::Body::from("")
            }
            _ => reqwest::Body::wrap_stream(body),
        };
        let request = self.request(Method::PUT, &key.path()).header(CONTENT_LENGTH, size).body(body);
        let answer = self.send(key, request).await?;
        match answer.status() {
            status if status.is_success() => Ok(Stored::New),
            StatusCode::CONFLICT if self.made.is_some() => {
                self.made().clear();
                Err(RemoteError::failed(&self.name, Some(key), Trouble::Other, "a parent directory is missing"))
            }
            _ => Err(self.refused(key, &answer)),
        }
    }

    async fn make_directories(&self, key: Key) -> Result<(), RemoteError> {
        if self.made.is_none() {
            return Ok(());
        }
        let path = key.path();
        let above = path.rsplit_once('/').map_or("", |(above, _)| above);
        if self.made().contains(above) {
            return Ok(());
        }
        let ends = above.match_indices('/').map(|(at, _)| at).chain([above.len()]);
        // The prefix itself is not created: the administrator has to do that, unless the server
        // creates it with the first directory below it.
        for end in ends {
            let directory = format!("{}/", &above[..end]);
            let method = Method::from_bytes(b"MKCOL").expect("MKCOL is a valid method name");
            let answer = self.send(key, self.request(method, &directory)).await?;
            let status = answer.status();
            // 405: the directory exists already.
            if !status.is_success() && !matches!(status.as_u16(), 405 | 301) {
                return Err(self.refused(key, &answer));
            }
        }
        self.made().insert(above.to_owned());
        Ok(())
    }

    fn made(&self) -> MutexGuard<'_, HashSet<String>> {
        let made = self.made.as_ref().expect("only called for WebDAV");
        made.lock()
    }
}

fn broken(name: &Arc<str>, key: Key, error: reqwest::Error) -> RemoteError {
    let trouble = match () {
        () if error.is_timeout() => Trouble::Stalled,
        () if error.is_connect() => Trouble::Unreachable,
        () if error.is_body() || error.is_decode() => Trouble::Cut,
        () if error.is_request() => Trouble::Unreachable,
        () => Trouble::Other,
    };
    RemoteError::failed(name, Some(key), trouble, with_causes(&error.without_url()))
}

impl Remote for Http {
    fn name(&self) -> &str {
        &self.name
    }

    fn abilities(&self) -> Abilities {
        Abilities::LAST_WINS
    }

    fn get(&self, key: Key) -> Answer<'_, Fetched> {
        Box::pin(self.fetch(key))
    }

    fn put(&self, key: Key, size: u64, body: Body, how: Put) -> Answer<'_, Stored> {
        let body = body::exactly(self.name.clone(), key, size, body);
        Box::pin(self.store(key, size, body, how))
    }

    fn has<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<bool>> {
        Box::pin(each(keys, |&key| self.is_there(key)))
    }
}
