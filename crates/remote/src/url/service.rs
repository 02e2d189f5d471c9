//! A service and where it is, as a URL says it.
//!
//! Unaware of: how a URL is written.

use std::fmt;
use std::path::PathBuf;

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

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.password.is_some() { "Login(given)" } else { "Login(none)" })
    }
}
