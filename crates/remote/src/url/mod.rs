//! A remote as people name it, from URL to meaning; and what they got wrong, by the part of it.
//!
//! ```text
//! s3://BUCKET[/PREFIX][?endpoint=URL][&region=NAME][&virtual_host=SWITCH][&anonymous=SWITCH]
//! gs://BUCKET[/PREFIX][?endpoint=URL][&anonymous=SWITCH]   also as gcs://
//! azblob://CONTAINER[/PREFIX][?account=NAME][&endpoint=URL][&anonymous=SWITCH]
//! redis[s]://[[USER]:PASSWORD@]HOST[:6379][/DB][?prefix=PREFIX][&ttl=DAYS]
//! memcached://HOST[:11211][/PREFIX][?ttl=DAYS]
//! http[s]://[USER:PASSWORD@]HOST[:PORT][/PREFIX]      GET, HEAD and PUT
//! webdav[s]://[USER:PASSWORD@]HOST[:PORT][/PREFIX]    the same, and MKCOL where a directory is missing
//! ghac://[PREFIX]                                     the cache service of GitHub Actions
//! file:///DIRECTORY
//! grpc[s]://HOST[:PORT][/INSTANCE]                    Remote Execution API: ActionCache and CAS
//! ```
//! Every form takes `read_only=SWITCH` and `requests=NUMBER`. `http`, `webdav` and `grpc` take `header_file=PATH` and `header_env=VARIABLE`,
//! where lines `Name: value` are; encrypted they take `ca=PATH`, `client_certificate=PATH` and `client_key=PATH`, PEM
//! files.

mod parts;
mod service;
#[cfg(test)]
mod tests;

use crate::RemoteError;
use parts::Parts;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The longest URL that is read, bytes.
const URL_BYTES_MAX: usize = 4096;
/// So many requests at once can be asked for: each is a connection at most services.
const REQUESTS_MAX: usize = 256;

/// A remote that was named and understood. Its `Display` and `Debug` show no credential.
#[derive(Clone, PartialEq, Eq)]
pub struct RemoteUrl {
    /// What it is and where.
    pub service: Service,
    /// Nothing is ever put there.
    pub read_only: bool,
    /// So many requests at once at most, bodies included.
    pub requests_max: Option<usize>,
    name: String,
}

/// Where objects are kept. Prefixes have no slash at either end.
#[derive(Clone, PartialEq, Eq)]
pub enum Service {
    /// A directory that several machines see.
    File {
        /// Which; absolute.
        directory: PathBuf,
    },
    /// Amazon's S3, or a server of its protocol.
    S3 {
        /// The bucket.
        bucket: String,
        /// Before all names.
        prefix: String,
        /// The server, where it is not Amazon's.
        endpoint: Option<String>,
        /// The region; where it is not given, what the environment says.
        region: Option<String>,
        /// The bucket is part of the host name.
        virtual_host: bool,
        /// Requests are not signed.
        anonymous: bool,
    },
    /// Google Cloud Storage.
    Gcs {
        /// The bucket.
        bucket: String,
        /// Before all names.
        prefix: String,
        /// The server, where it is not Google's.
        endpoint: Option<String>,
        /// Requests are not signed.
        anonymous: bool,
    },
    /// Azure Blob Storage.
    Azblob {
        /// The container.
        container: String,
        /// Before all names.
        prefix: String,
        /// The server; where it is not given, made of the account's name.
        endpoint: Option<String>,
        /// The account; where it is not given, what the environment says.
        account: Option<String>,
        /// Requests are not signed.
        anonymous: bool,
    },
    /// Redis, or a server of its protocol.
    Redis {
        /// Host and port.
        address: String,
        /// Number of the database.
        database: i64,
        /// Before all names.
        prefix: String,
        /// After how many days it may forget an object.
        ttl_days: Option<u32>,
        /// Who we are, where the URL says it.
        login: Login,
        /// Encrypted.
        tls: Option<Tls>,
    },
    /// memcached.
    Memcached {
        /// Host and port.
        address: String,
        /// Before all names.
        prefix: String,
        /// After how many days it may forget an object.
        ttl_days: Option<u32>,
    },
    /// A server that takes PUT and gives GET.
    Http {
        /// Scheme, host, port and path, without a slash at the end.
        base: String,
        /// Missing directories are made with MKCOL.
        webdav: bool,
        /// Who we are, where the URL says it.
        login: Login,
        /// Encrypted.
        tls: Option<Tls>,
        /// More headers.
        headers: Headers,
    },
    /// The cache service of GitHub Actions, for the job that we are in.
    Ghac {
        /// Before all names.
        prefix: String,
    },
    /// The Remote Execution API.
    Grpc {
        /// Host and port.
        address: String,
        /// Which cache of that server.
        instance: String,
        /// Encrypted.
        tls: Option<Tls>,
        /// More headers.
        headers: Headers,
    },
}

/// Who we are, as the URL says it; empty where it does not.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Login {
    /// The name.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
}

/// Files of an encrypted connection, all PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Whom to believe, where it is not whom the system believes.
    pub ca: Option<PathBuf>,
    /// Who we are.
    pub client_certificate: Option<PathBuf>,
    /// The key of that certificate.
    pub client_key: Option<PathBuf>,
}

/// Where more headers are: lines `Name: value`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// In this file.
    pub file: Option<PathBuf>,
    /// In the variable of this name.
    pub variable: Option<String>,
}

impl RemoteUrl {
    /// The URL without credentials, by which the remote is known to people and in logs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A text that may or may not be a URL, without what may be a credential in it.
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
