//! Who may not: wrong keys and passwords, dead servers. Each says what it is, and shows no credential.

use crate::leaves::runtime;
use crate::{need, sample, suite};
use larder_remote::{RemoteError, RemoteUrl, Trouble, connect};
use larder_testkit::{NGINX_PUT, Server, free_port};
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
    let server = Server::redis(Some("hush")).expect("it is there");
    let error = refused(&format!("redis://:guess@127.0.0.1:{}", server.port));
    assert_eq!(error.trouble(), Some(Trouble::Denied), "{error}");
    need!("nginx");
    let server = Server::nginx(NGINX_PUT).expect("it is there");
    for who in ["", "me:guess@"] {
        let error = refused(&format!("http://{who}127.0.0.1:{}/x", server.port));
        assert_eq!(error.trouble(), Some(Trouble::Denied), "{error}");
    }
}

#[test]
fn a_wrong_secret_is_denied() {
    need!("versitygw");
    let server = Server::s3().expect("it is there");
    let url = format!("s3://team/p?endpoint=http://127.0.0.1:{}", server.port);
    for keys in [
        &[("AWS_ACCESS_KEY_ID", "larder"), ("AWS_SECRET_ACCESS_KEY", "guess")],
        &[("AWS_ACCESS_KEY_ID", "guess"), ("AWS_SECRET_ACCESS_KEY", "hush-hush")],
    ] {
        let error = refused_with(&url, keys);
        assert_eq!(error.trouble(), Some(Trouble::Denied), "{error}");
    }
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
