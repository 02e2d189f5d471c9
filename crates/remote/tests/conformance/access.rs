//! Refused access: wrong keys and passwords, dead servers. Errors have the right kind and show no
//! secret.

use crate::leaves::runtime;
use crate::{need, sample, suite};
use larder_model::Digest;
use larder_remote::{Key, RemoteError, RemoteUrl, Trouble, connect};
use larder_testkit::{AZURE_KEYS, NGINX_PUT, S3_KEYS, Server, free_port};
use std::time::{Duration, Instant};

fn refused(url: &str) -> RemoteError {
    refused_with(url, &[])
}

fn refused_with(url: &str, variables: &'static [(&str, &str)]) -> RemoteError {
    let url: RemoteUrl = url.parse().unwrap_or_else(|error| panic!("{error}"));
    runtime().block_on(async {
        let remote = connect(&url, &sample::options(7, variables)).unwrap_or_else(|error| panic!("{error}")).remote;
        let error = suite::answers(&*remote).await.expect_err("it must not answer");
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("hush") && !shown.contains("guess"), "{shown}");
        error
    })
}

#[test]
fn a_wrong_password_is_denied() {
    need!("redis-server");
    let server = Server::redis(Some("hush")).expect("installed");
    let error = refused(&format!("redis://:guess@127.0.0.1:{}", server.port));
    assert_eq!(error.trouble(), Some(Trouble::Denied), "{error}");
    need!("nginx");
    let server = Server::nginx(NGINX_PUT).expect("installed");
    for who in ["", "me:guess@"] {
        let error = refused(&format!("http://{who}127.0.0.1:{}/x", server.port));
        assert_eq!(error.trouble(), Some(Trouble::Denied), "{error}");
    }
}

#[test]
fn a_wrong_secret_is_denied() {
    need!("versitygw");
    let server = Server::s3().expect("installed");
    let url = format!("s3://team/p?endpoint=http://127.0.0.1:{}", server.port);
    for keys in [
        &[("AWS_ACCESS_KEY_ID", "larder"), ("AWS_SECRET_ACCESS_KEY", "guess")],
        &[("AWS_ACCESS_KEY_ID", "guess"), ("AWS_SECRET_ACCESS_KEY", "hush-hush")],
    ] {
        let error = refused_with(&url, keys);
        assert_eq!(error.trouble(), Some(Trouble::Denied), "{error}");
    }
}

/// A missing bucket is an error for reads, too. Otherwise a build with a wrong bucket name would
/// only get misses, for no visible reason.
#[test]
fn a_missing_bucket_is_said() {
    let missing = |url: String, keys: &'static [(&str, &str)]| {
        let error = refused_with(&url, keys);
        assert_eq!(error.trouble(), Some(Trouble::NoPlace), "{error}");
        error
    };
    let read = |url: String, keys: &'static [(&str, &str)]| {
        let url: RemoteUrl = url.parse().unwrap_or_else(|error| panic!("{error}"));
        let remote = connect(&url, &sample::options(7, keys)).unwrap_or_else(|error| panic!("{error}")).remote;
        let key = Key::blob(Digest::of(b"anything"));
        let error = runtime().block_on(async { remote.get(key).await.map(drop).expect_err("it must not answer") });
        assert_eq!(error.trouble(), Some(Trouble::NoPlace), "{error}");
    };
    if let Some(server) = Server::s3() {
        let url = || format!("s3://none/p?endpoint=http://127.0.0.1:{}", server.port);
        missing(url(), S3_KEYS);
        read(url(), S3_KEYS);
    }
    if let Some(server) = Server::azurite() {
        let url = || format!("azblob://none/p?endpoint=http://127.0.0.1:{}/devstoreaccount1", server.port);
        missing(url(), AZURE_KEYS);
        read(url(), AZURE_KEYS);
    }
    if let Some(server) = Server::gcs() {
        // For reads this server reports a missing object instead.
        missing(format!("gs://none/p?anonymous=yes&endpoint=http://127.0.0.1:{}", server.port), &[]);
    }
}

#[test]
fn a_wrong_key_of_azure_is_denied() {
    need!("azurite-blob");
    let server = Server::azurite().expect("installed");
    let url = format!("azblob://team/p?endpoint=http://127.0.0.1:{}/devstoreaccount1", server.port);
    const GUESS: &[(&str, &str)] =
        &[("AZURE_STORAGE_ACCOUNT_NAME", "devstoreaccount1"), ("AZURE_STORAGE_ACCOUNT_KEY", "Z3Vlc3M=")];
    let error = refused_with(&url, GUESS);
    assert_eq!(error.trouble(), Some(Trouble::Denied), "{error}");
}

#[test]
fn a_dead_server_is_unreachable_at_once() {
    let port = free_port();
    for url in [
        format!("redis://:hush@127.0.0.1:{port}"),
        format!("memcached://127.0.0.1:{port}"),
        format!("http://me:hush@127.0.0.1:{port}/x"),
        format!("grpc://127.0.0.1:{port}"),
        format!("webdav://127.0.0.1:{port}"),
        format!("s3://team/p?anonymous=yes&endpoint=http://127.0.0.1:{port}"),
    ] {
        let start = Instant::now();
        let error = refused(&url);
        assert_eq!(error.trouble(), Some(Trouble::Unreachable), "{error}");
        assert!(start.elapsed() < Duration::from_secs(20), "{url}: {:?}", start.elapsed());
    }
}
