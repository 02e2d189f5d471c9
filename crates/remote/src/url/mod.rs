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
//! variable with lines `Name: value`. Encrypted ones also take `ca=PATH`, `client_certificate=PATH`
//! and `client_key=PATH`, all of them PEM files.
//!
//! For example, `s3://team-cache/larder?region=eu-north-1&read_only=true`.
//!
//! Unaware of: how a service is used.

mod parts;
mod service;
#[cfg(test)]
mod tests;

use crate::RemoteError;
use parts::Parts;
use std::fmt;
use std::path::PathBuf;
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
    name: String,
}

/// A service and where it is. Prefixes have no slash at either end.
#[derive(Clone, PartialEq, Eq)]
pub enum Service {
    /// A directory that several machines share.
    File {
        /// The absolute path of the directory.
        directory: PathBuf,
    },
    /// Amazon S3, or a server with its protocol.
    S3 {
        /// The bucket.
        bucket: String,
        /// A prefix of all object names.
        prefix: String,
        /// The URL of the server, if it is not Amazon's.
        endpoint: Option<String>,
        /// The region; `None` means that the environment says it.
        region: Option<String>,
        /// The bucket is a part of the host name.
        virtual_host: bool,
        /// Requests are not signed.
        anonymous: bool,
    },
    /// Google Cloud Storage.
    Gcs {
        /// The bucket.
        bucket: String,
        /// A prefix of all object names.
        prefix: String,
        /// The URL of the server, if it is not Google's.
        endpoint: Option<String>,
        /// Requests are not signed.
        anonymous: bool,
    },
    /// Azure Blob Storage.
    Azblob {
        /// The container.
        container: String,
        /// A prefix of all object names.
        prefix: String,
        /// The URL of the server; `None` means that it is derived from the account's name.
        endpoint: Option<String>,
        /// The account; `None` means that the environment says it.
        account: Option<String>,
        /// Requests are not signed.
        anonymous: bool,
    },
    /// Redis, or a server with its protocol.
    Redis {
        /// Host and port, for example `cache.example:6379`.
        address: String,
        /// The number of the database.
        database: i64,
        /// A prefix of all object names.
        prefix: String,
        /// After how many days the server may drop an object.
        ttl_days: Option<u32>,
        /// User and password, if the URL has them.
        login: Login,
        /// TLS settings, if the connection is encrypted.
        tls: Option<Tls>,
    },
    /// A memcached server.
    Memcached {
        /// Host and port.
        address: String,
        /// A prefix of all object names.
        prefix: String,
        /// After how many days the server may drop an object.
        ttl_days: Option<u32>,
    },
    /// A web server that supports PUT and GET.
    Http {
        /// Scheme, host, port and path, without a trailing slash.
        base: String,
        /// WebDAV: missing directories are created with MKCOL.
        webdav: bool,
        /// User and password, if the URL has them.
        login: Login,
        /// TLS settings, if the connection is encrypted.
        tls: Option<Tls>,
        /// Where additional headers come from.
        headers: Headers,
    },
    /// The cache service of GitHub Actions, for the job that runs this process.
    Ghac {
        /// A prefix of all object names.
        prefix: String,
    },
    /// A server of the Remote Execution API.
    Grpc {
        /// Host and port.
        address: String,
        /// The instance name: which cache of the server is used.
        instance: String,
        /// TLS settings, if the connection is encrypted.
        tls: Option<Tls>,
        /// Where additional headers come from.
        headers: Headers,
    },
}

/// The user and password of a URL; both are `None` if it has none.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Login {
    /// The name.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
}

/// The PEM files of an encrypted connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The trusted certificates, instead of those of the system.
    pub ca: Option<PathBuf>,
    /// The certificate that identifies us to the server.
    pub client_certificate: Option<PathBuf>,
    /// The key of that certificate.
    pub client_key: Option<PathBuf>,
}

/// Where additional headers come from: lines `Name: value`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// A file with such lines.
    pub file: Option<PathBuf>,
    /// The name of an environment variable with such lines.
    pub variable: Option<String>,
}

impl RemoteUrl {
    /// Returns the URL without credentials. It names the remote in messages and logs.
    pub fn name(&self) -> &str {
        &self.name
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
        let service = service::read(&mut parts)?;
        parts.finish()?;
        Ok(RemoteUrl { service, read_only, requests_max, name: larder_config::masked(text) })
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

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.password.is_some() { "Login(given)" } else { "Login(none)" })
    }
}
