//! Parsing the URL of a remote. Errors name the part that is wrong.
//!
//! ```text
//! s3://BUCKET[/PREFIX][?endpoint=URL][&region=NAME][&virtual_host=SWITCH][&anonymous=SWITCH]
//! gs://BUCKET[/PREFIX][?endpoint=URL][&anonymous=SWITCH]   also as gcs://
//! azblob://CONTAINER[/PREFIX][?account=NAME][&endpoint=URL][&anonymous=SWITCH]
//! redis[s]://[[USER]:PASSWORD@]HOST[:6379][/DB][?prefix=PREFIX][&ttl=DAYS]
//! memcached://HOST[:11211][/PREFIX][?ttl=DAYS]
//! http[s]://[USER:PASSWORD@]HOST[:PORT][/PREFIX]      GET, HEAD and PUT
//! webdav[s]://[USER:PASSWORD@]HOST[:PORT][/PREFIX]    also MKCOL, to create directories
//! ghac://[PREFIX]                                     the cache service of GitHub Actions
//! file:///DIRECTORY
//! grpc[s]://HOST[:PORT][/INSTANCE]                    Remote Execution API: ActionCache and CAS
//! ```
//! Every URL takes `read_only=SWITCH` and `requests=NUMBER`.
//!
//! `http`, `webdav` and `grpc` take `header_file=PATH` and `header_env=VARIABLE`: a file or a
//! variable with lines `Name: value`. Encrypted ones also take `client_certificate=PATH` and
//! `client_key=PATH`. Every service that can be encrypted takes `ca=PATH`. All of them are PEM files.
//!
//! For example, `s3://team-cache/larder?region=eu-north-1&read_only=true`.
//!
//! Unaware of: how a service is used.

mod parts;
mod schemes;
mod service;
#[cfg(test)]
mod tests;

use crate::RemoteError;
use parts::Parts;
pub use service::{Headers, Login, Service, Tls};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The longest accepted URL, in bytes.
const URL_BYTES_MAX: usize = 4096;
/// The largest accepted `requests=`. On most services each request takes a connection.
const REQUESTS_MAX: usize = 256;

/// A parsed URL of a remote. Its `Display` and `Debug` show no credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct RemoteUrl {
    /// The service and its address.
    pub service: Service,
    /// Nothing is uploaded to it.
    pub read_only: bool,
    /// The most requests at once, including their bodies, if the URL says it.
    pub requests_max: Option<usize>,
    /// The trusted certificates of an object store, instead of those of the system.
    pub ca: Option<PathBuf>,
    name: String,
}

impl RemoteUrl {
    /// Returns the URL without credentials. It names the remote in messages and logs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the files that the URL names: certificates, a key, headers.
    pub fn files(&self) -> Vec<&Path> {
        let (tls, headers) = match &self.service {
            Service::Http { tls, headers, .. } | Service::Grpc { tls, headers, .. } => (tls.as_ref(), Some(headers)),
            Service::Redis { tls, .. } => (tls.as_ref(), None),
            _ => (None, None),
        };
        let of_tls = tls.into_iter().flat_map(|tls| [&tls.ca, &tls.client_certificate, &tls.client_key]);
        of_tls.chain(headers.map(|headers| &headers.file)).flatten().map(PathBuf::as_path).collect()
    }

    /// Returns the directory, if the remote is one.
    pub fn directory(&self) -> Option<&Path> {
        match &self.service {
            Service::File { directory } => Some(directory),
            _ => None,
        }
    }

    /// Replaces everything in a text that may be a credential by `***`. The text need not be a
    /// valid URL. For example, `redis://me:secret@host` becomes `redis://***@host`.
    pub fn masked(text: &str) -> String {
        larder_config::masked(text)
    }
}

impl FromStr for RemoteUrl {
    type Err = RemoteError;

    fn from_str(text: &str) -> Result<Self, RemoteError> {
        let text = text.trim();
        if text.len() > URL_BYTES_MAX {
            return Err(RemoteError::url(
                &text[..text.floor_char_boundary(60)],
                "length",
                format!("more than {URL_BYTES_MAX} bytes"),
            ));
        }
        let mut parts = Parts::of(text)?;
        let read_only = parts.switch("read_only")?;
        let requests_max = parts.number("requests", "requests at once", 1..=REQUESTS_MAX)?;
        let ca = if schemes::OBJECT_STORES.contains(&&*parts.scheme) { parts.file("ca")? } else { None };
        let service = schemes::read(&mut parts)?;
        parts.finish()?;
        Ok(RemoteUrl { service, read_only, requests_max, ca, name: larder_config::masked(text) })
    }
}

impl fmt::Display for RemoteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for RemoteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteUrl({})", self.name)
    }
}
