//! The meaning of a URL for each scheme.
//!
//! Unaware of: how a service is used.

use super::parts::Parts;
use super::service::{Headers, Login, Service, Tls};
use crate::RemoteError;
use std::path::Path;

/// The schemes of HTTP object stores, which opendal reaches. They take `ca=`.
pub(super) const OBJECT_STORES: [&str; 5] = ["s3", "gs", "gcs", "azblob", "ghac"];

pub(super) fn read(parts: &mut Parts<'_>) -> Result<Service, RemoteError> {
    match &*parts.scheme {
        "file" => file(parts),
        "s3" => s3(parts),
        "gs" | "gcs" => gcs(parts),
        "azblob" => azblob(parts),
        "redis" | "rediss" => redis(parts),
        "memcached" => memcached(parts),
        "http" | "https" | "webdav" | "webdavs" => http(parts),
        "ghac" => ghac(parts),
        "grpc" | "grpcs" => grpc(parts),
        _ => Err(parts.wrong("scheme", "larder cannot connect to such a service")),
    }
}

fn file(parts: &mut Parts<'_>) -> Result<Service, RemoteError> {
    no_user(parts, "not allowed here: a directory has no user")?;
    if parts.url.host_str().is_some_and(|host| !host.is_empty() && host != "localhost") {
        return Err(parts.wrong("host", "it must be empty: file:///DIRECTORY, with three slashes"));
    }
    match parts.url.to_file_path() {
        Ok(directory) if directory != Path::new("/") => Ok(Service::File { directory }),
        _ => Err(parts.wrong("path", "it must be a directory other than /")),
    }
}

fn s3(parts: &mut Parts<'_>) -> Result<Service, RemoteError> {
    no_user(parts, "not allowed here: use AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS' files")?;
    no_port(parts)?;
    Ok(Service::S3 {
        bucket: parts.host("bucket")?,
        prefix: parts.prefix()?,
        endpoint: parts.endpoint()?,
        region: parts.option("region")?,
        virtual_host: parts.switch("virtual_host")?,
        anonymous: parts.switch("anonymous")?,
    })
}

fn gcs(parts: &mut Parts<'_>) -> Result<Service, RemoteError> {
    no_user(parts, "not allowed here: credentials come from GOOGLE_APPLICATION_CREDENTIALS or from the machine")?;
    no_port(parts)?;
    Ok(Service::Gcs {
        bucket: parts.host("bucket")?,
        prefix: parts.prefix()?,
        endpoint: parts.endpoint()?,
        anonymous: parts.switch("anonymous")?,
    })
}

fn azblob(parts: &mut Parts<'_>) -> Result<Service, RemoteError> {
    no_user(parts, "not allowed here: credentials come from AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY")?;
    no_port(parts)?;
    Ok(Service::Azblob {
        container: parts.host("container")?,
        prefix: parts.prefix()?,
        endpoint: parts.endpoint()?,
        account: parts.option("account")?,
        anonymous: parts.switch("anonymous")?,
    })
}

fn redis(parts: &mut Parts<'_>) -> Result<Service, RemoteError> {
    let tls = match parts.scheme == "rediss" {
        true => Some(Tls { ca: parts.file("ca")?, ..Tls::default() }),
        false => None,
    };
    let database = match parts.url.path().trim_matches('/') {
        "" => 0,
        number => {
            number.parse::<u16>().map_err(|_| parts.wrong("path", "it must be the number of a Redis database"))?.into()
        }
    };
    let prefix = parts.option("prefix")?.unwrap_or_else(|| "larder".to_owned());
    Ok(Service::Redis {
        address: parts.address(6379)?,
        database,
        prefix: parts.clean("query", &prefix)?,
        ttl_days: parts.days(3650)?,
        login: parts.login(),
        tls,
    })
}

fn memcached(parts: &mut Parts<'_>) -> Result<Service, RemoteError> {
    no_user(parts, "not allowed here: memcached has no login; let it listen on a private address")?;
    let prefix = match parts.prefix()? {
        prefix if prefix.is_empty() => "larder".to_owned(),
        prefix => prefix,
    };
    if matches!(parts.url.host_str(), Some(host) if host.starts_with('[')) {
        return Err(parts.wrong("host", "memcached is supported over IPv4 only"));
    }
    // memcached takes a lifetime of more than 30 days for an absolute date.
    Ok(Service::Memcached { address: parts.address(11211)?, prefix, ttl_days: parts.days(30)? })
}

fn http(parts: &mut Parts<'_>) -> Result<Service, RemoteError> {
    let encrypted = matches!(&*parts.scheme, "https" | "webdavs");
    let webdav = parts.scheme.starts_with("webdav");
    let address = parts.address(if encrypted { 443 } else { 80 })?;
    parts.prefix()?;
    let path = parts.url.path().trim_end_matches('/');
    let scheme = if encrypted { "https" } else { "http" };
    let base = format!("{scheme}://{address}{path}");
    let tls = tls(parts, encrypted)?;
    Ok(Service::Http { base, webdav, login: parts.login(), tls, headers: headers(parts)? })
}

fn ghac(parts: &mut Parts<'_>) -> Result<Service, RemoteError> {
    no_user(parts, "not allowed here: credentials come from ACTIONS_RUNTIME_TOKEN, which the job must be given")?;
    no_port(parts)?;
    let host = parts.url.host_str().unwrap_or_default().to_owned();
    let prefix = format!("{host}/{}", parts.prefix()?);
    Ok(Service::Ghac { prefix: parts.clean("path", &prefix)? })
}

fn grpc(parts: &mut Parts<'_>) -> Result<Service, RemoteError> {
    no_user(parts, "not allowed here: credentials are a header (header_file=, header_env=) or a client certificate")?;
    let encrypted = parts.scheme == "grpcs";
    let address = parts.address(if encrypted { 443 } else { 80 })?;
    let tls = tls(parts, encrypted)?;
    Ok(Service::Grpc { address, instance: parts.prefix()?, tls, headers: headers(parts)? })
}

fn tls(parts: &mut Parts<'_>, encrypted: bool) -> Result<Option<Tls>, RemoteError> {
    if !encrypted {
        return Ok(None);
    }
    let tls = Tls {
        ca: parts.file("ca")?,
        client_certificate: parts.file("client_certificate")?,
        client_key: parts.file("client_key")?,
    };
    match (&tls.client_certificate, &tls.client_key) {
        (Some(_), None) => Err(parts.wrong("query", "client_certificate is given and client_key is not")),
        (None, Some(_)) => Err(parts.wrong("query", "client_key is given and client_certificate is not")),
        _ => Ok(Some(tls)),
    }
}

fn headers(parts: &mut Parts<'_>) -> Result<Headers, RemoteError> {
    Ok(Headers { file: parts.file("header_file")?, variable: parts.option("header_env")? })
}

/// Fails if the URL has a user or a password. `instead` says where credentials come from.
fn no_user(parts: &Parts<'_>, instead: &str) -> Result<(), RemoteError> {
    match parts.login() == Login::default() && !parts.has_login() {
        true => Ok(()),
        false => Err(parts.wrong("user", instead)),
    }
}

/// Fails if the URL has a port, for services that are named without a host.
fn no_port(parts: &Parts<'_>) -> Result<(), RemoteError> {
    match parts.url.port() {
        None => Ok(()),
        Some(_) => Err(parts.wrong("port", "not allowed here; to use your own server, add endpoint=URL")),
    }
}
