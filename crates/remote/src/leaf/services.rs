//! From a parsed URL to a client for its service.
//!
//! Unaware of: what is stored.

use super::client::{header_map, http_client, provider, tls_config};
use super::file::Directory;
use super::grpc::Grpc;
use super::http::Http;
#[cfg(unix)]
use super::memcached::Memcached;
use super::object::Object;
use super::redis::{Redis, RedisServer};
use super::retry_after::RetryAfter;
use crate::stack::Parts;
use crate::{Abilities, Login, Options, Remote, RemoteError, RemoteUrl, Service, Tls, Trouble};
use opendal::services::{Azblob, Gcs, Ghac, S3};
use opendal::{Builder, HttpTransporter, OperationContext, Operator};
use opendal_http_transport_reqwest::ReqwestTransport;
use std::sync::Arc;
use std::time::Duration;

/// The most bytes of a value in Redis or memcached, and of a part in memory. memcached's default
/// limit is 1 MiB.
const VALUE_BYTES_MAX: u64 = 128 << 10;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The abilities of key-value servers.
const VALUES: Abilities =
    Abilities { largest_bytes: Some(VALUE_BYTES_MAX), one_request_bytes: VALUE_BYTES_MAX, ..Abilities::LAST_WINS };
/// The abilities of the Actions cache: an entry never changes, and GitHub accepts 200 uploads a
/// minute for a repository.
const ENTRIES: Abilities = Abilities { replace: false, swap: false, writes_per_minute: Some(200), ..Abilities::STORE };

/// Returns the client for a URL, without decorators but [`Parts`], which large objects need.
pub(crate) fn leaf(url: &RemoteUrl, options: &Options) -> Result<Arc<dyn Remote>, RemoteError> {
    let name = url.name();
    match &url.service {
        Service::File { directory } => Ok(Arc::new(Directory::new(name, directory.clone(), options.seed))),
        Service::S3 { bucket, prefix, endpoint, region, virtual_host, anonymous } => {
            let builder = S3::default().bucket(bucket).region(&s3_region(url, endpoint, region, options)?);
            let mut builder = with_s3_credentials(builder, options);
            if let Some(endpoint) = endpoint {
                builder = builder.endpoint(endpoint);
            }
            if *virtual_host {
                builder = builder.enable_virtual_host_style();
            }
            if *anonymous {
                builder = builder.skip_signature();
            }
            Ok(Arc::new(object(url, builder, endpoint.as_deref(), prefix, Abilities::STORE)?))
        }
        Service::Gcs { bucket, prefix, endpoint, anonymous } => {
            let mut builder = Gcs::default().bucket(bucket);
            if let Some(endpoint) = endpoint {
                builder = builder.endpoint(endpoint);
            }
            if *anonymous {
                builder = builder.skip_signature();
            }
            let object = object(url, builder, endpoint.as_deref(), prefix, Abilities::STORE)?;
            Ok(Arc::new(object.with_conditional_pieces()))
        }
        Service::Azblob { container, prefix, endpoint, account, anonymous } => {
            let builder = azblob(url, options, container, (endpoint.as_deref(), account.as_deref()))?;
            let builder = if *anonymous { builder.skip_signature() } else { builder };
            Ok(Arc::new(object(url, builder, endpoint.as_deref(), prefix, Abilities::STORE)?))
        }
        Service::Redis { address, database, prefix, ttl_days, login, tls } => {
            // Redis' own client reads this variable, too.
            let password = login.password.clone().or_else(|| (options.variable)("REDISCLI_AUTH"));
            let login = Login { password, ..login.clone() };
            if tls.is_some() {
                install_tls_provider();
            }
            let place = RedisServer { address, database: *database, login, tls: tls.as_ref() };
            let ttl_s = ttl_days.map(|days| DAY.as_secs() * u64::from(days));
            let values = Redis::new(name, &place, prefix, ttl_s, (VALUES, options.stall))?;
            Ok(Arc::new(Parts::new(Arc::new(values), VALUE_BYTES_MAX, options.seed)))
        }
        #[cfg(not(unix))]
        Service::Memcached { .. } => {
            let why = "larder does not support memcached on this system";
            Err(RemoteError::failed(&name.into(), None, Trouble::Unable, why))
        }
        #[cfg(unix)]
        Service::Memcached { address, prefix, ttl_days } => {
            let ttl = ttl_days.map(|days| DAY * days);
            let values = Memcached::new(name, address, prefix, ttl, (VALUES, options.requests_max));
            Ok(Arc::new(Parts::new(Arc::new(values), VALUE_BYTES_MAX, options.seed)))
        }
        Service::Http { base, webdav, login, tls, headers } => {
            let headers = header_map(url, headers, options)?;
            let client = http_client(url, tls.as_ref())?;
            Ok(Arc::new(Http::new(name, client, base.clone(), headers, login.clone(), *webdav)))
        }
        Service::Ghac { prefix } => Ok(Arc::new(object(url, ghac(name, options)?, None, prefix, ENTRIES)?)),
        Service::Grpc { address, instance, tls, headers } => {
            let headers = header_map(url, headers, options)?;
            let tls = tls.as_ref().map(|tls| tls_config(url, Some(tls))).transpose()?;
            Ok(Arc::new(Grpc::new(url, address, instance, tls, headers, options.seed)?))
        }
    }
}

/// Returns the builder with the credentials from the variables of AWS's own tools, if they are set.
fn with_s3_credentials(mut builder: S3, options: &Options) -> S3 {
    if let (Some(id), Some(secret)) = (options.set("AWS_ACCESS_KEY_ID"), options.set("AWS_SECRET_ACCESS_KEY")) {
        builder = builder.access_key_id(&id).secret_access_key(&secret);
        if let Some(token) = options.set("AWS_SESSION_TOKEN") {
            builder = builder.session_token(&token);
        }
    }
    builder
}

/// Installs our TLS provider as that of the process, because the Redis client uses that one. If one
/// is installed already, it is the same.
fn install_tls_provider() {
    if let Some(provider) = provider() {
        let _ = Arc::unwrap_or_clone(provider).install_default();
    }
}

/// Returns a builder for the cache of GitHub Actions, with the settings that GitHub passes to an
/// action.
fn ghac(name: &str, options: &Options) -> Result<Ghac, RemoteError> {
    if (options.variable)("ACTIONS_RESULTS_URL").is_none() && (options.variable)("ACTIONS_CACHE_URL").is_none() {
        let why = "ACTIONS_RESULTS_URL and ACTIONS_CACHE_URL are not set: GitHub sets them for actions only, so use the \
                   action setup-larder";
        return Err(RemoteError::failed(&name.into(), None, Trouble::Denied, why));
    }
    let mut builder = Ghac::default().version("larder");
    if let Some(token) = (options.variable)("ACTIONS_RUNTIME_TOKEN") {
        builder = builder.runtime_token(&token);
    }
    if let Some(endpoint) = (options.variable)("ACTIONS_RESULTS_URL") {
        builder = builder.endpoint(&endpoint);
    }
    Ok(builder)
}

/// Returns a builder with the URL's settings, else those of the variables of Azure's own tools. The
/// library itself finds shared access signatures and identities.
fn azblob(
    url: &RemoteUrl,
    options: &Options,
    container: &str,
    (endpoint, account): (Option<&str>, Option<&str>),
) -> Result<Azblob, RemoteError> {
    let first = |names: [&str; 2]| names.into_iter().find_map(|name| options.set(name));
    let account = account.map(str::to_owned).or_else(|| first(["AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"]));
    let made = account.as_ref().map(|account| format!("https://{account}.blob.core.windows.net"));
    let Some(endpoint) = endpoint.map(str::to_owned).or(made) else {
        return Err(RemoteError::url(url.name(), "query", "neither account nor endpoint is given"));
    };
    let mut builder = Azblob::default().container(container).endpoint(&endpoint);
    if let Some(account) = &account {
        builder = builder.account_name(account);
    }
    if let Some(key) = first(["AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY"]) {
        builder = builder.account_key(&key);
    }
    Ok(builder)
}

/// Returns the client for an object store, which uses our HTTP client.
fn object<B: Builder>(
    url: &RemoteUrl,
    builder: B,
    endpoint: Option<&str>,
    prefix: &str,
    abilities: Abilities,
) -> Result<Object, RemoteError> {
    let refused =
        |error: opendal::Error| RemoteError::failed(&url.name().into(), None, Trouble::Denied, error.message());
    let operator = Operator::new(builder).map_err(refused)?;
    let encrypted = endpoint.is_none_or(|endpoint| endpoint.starts_with("https:"));
    let client = http_client(url, encrypted.then(|| Tls { ca: url.ca.clone(), ..Tls::default() }).as_ref())?;
    let transport = HttpTransporter::new(RetryAfter::new(ReqwestTransport::new(client)));
    let context = OperationContext::new().with_http_transport(transport);
    Ok(Object::new(url.name(), operator.with_context(context), prefix, abilities))
}

fn s3_region(
    url: &RemoteUrl,
    endpoint: &Option<String>,
    region: &Option<String>,
    options: &Options,
) -> Result<String, RemoteError> {
    let said = region.clone().or_else(|| options.set("AWS_REGION")).or_else(|| options.set("AWS_DEFAULT_REGION"));
    // Servers of others than Amazon mostly have a single region of this name.
    said.or_else(|| endpoint.as_ref().map(|_| "us-east-1".to_owned())).ok_or_else(|| {
        RemoteError::url(
            url.name(),
            "query",
            "region is not given, and neither AWS_REGION nor AWS_DEFAULT_REGION is set: add region=REGION, for example \
             region=eu-north-1",
        )
    })
}
