//! TLS, behind nginx: trusted and untrusted server certificates, client certificates, headers.

use crate::leaves::runtime;
use crate::{need, sample, suite};
use larder_remote::{RemoteError, RemoteUrl, Trouble, connect};
use larder_testkit::{Server, make_certificates};
use std::path::Path;

fn ask(url: &str, variables: &'static [(&str, &str)]) -> Result<(), RemoteError> {
    let url: RemoteUrl = url.parse().unwrap_or_else(|error| panic!("{error}"));
    runtime().block_on(async {
        let remote = connect(&url, &sample::options(7, variables))?.remote;
        let outcome = suite::answers(&*remote).await;
        assert!(!format!("{outcome:?}").contains("hush"), "{outcome:?}");
        outcome
    })
}

fn proxied(certificates: &Path, server: &str) -> Server {
    let here = certificates.display();
    let locations = format!(
        "listen 127.0.0.1:TLS ssl http2; ssl_certificate {here}/server.pem; ssl_certificate_key {here}/server.key;\n\
         ssl_client_certificate {here}/ca.pem; ssl_verify_client optional; {server}"
    );
    Server::nginx(&locations).expect("installed")
}

#[test]
fn https_with_header_or_certificate() {
    need!("nginx");
    let openssl = need!("openssl");
    let place = tempfile::tempdir().expect("a directory");
    make_certificates(&openssl, place.path());
    let location = "location / { dav_methods PUT; create_full_put_path on; set $who \"\";\n\
                    if ($http_x_key = hush) { set $who header; } if ($ssl_client_verify = SUCCESS) { set $who certificate; }\n\
                    if ($who = \"\") { return 403; } }";
    let server = proxied(place.path(), location);
    let here = place.path().display();
    let base = format!("https://127.0.0.1:{}/x", server.tls_port());
    let keys = &[("CACHE_HEADERS", "X-Key: hush"), ("WRONG_HEADERS", "X-Key: guess")];
    ask(&format!("{base}?ca={here}/ca.pem&header_env=CACHE_HEADERS"), keys).unwrap_or_else(|error| panic!("{error}"));
    let certificate = format!("client_certificate={here}/client.pem&client_key={here}/client.key");
    ask(&format!("{base}?ca={here}/ca.pem&{certificate}"), &[]).unwrap_or_else(|error| panic!("{error}"));
    std::fs::write(place.path().join("headers"), "# the team's\nx-key: hush\n").expect("written");
    let from_file = format!("{base}?ca={here}/ca.pem&header_file={here}/headers");
    ask(&from_file, &[]).unwrap_or_else(|error| panic!("{error}"));
    for url in [format!("{base}?ca={here}/ca.pem"), format!("{base}?ca={here}/ca.pem&header_env=WRONG_HEADERS")] {
        let error = ask(&url, keys).expect_err("no credentials");
        assert_eq!(error.trouble(), Some(Trouble::Denied), "{error}");
    }
    let unset = ask(&format!("{base}?ca={here}/ca.pem&header_env=UNSET"), &[]).expect_err("a variable that is not set");
    assert_eq!(unset.trouble(), Some(Trouble::Denied), "{unset}");
    let error = ask(&format!("{base}?ca={here}/client.pem"), &[]).expect_err("another CA");
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[test]
fn grpcs_with_header_or_certificate() {
    need!("nginx");
    need!("buildbox-casd");
    let openssl = need!("openssl");
    let place = tempfile::tempdir().expect("a directory");
    make_certificates(&openssl, place.path());
    let cas = Server::casd().expect("installed");
    let location = format!(
        "location / {{ set $who \"\"; if ($http_x_key = hush) {{ set $who header; }}\n\
         if ($ssl_client_verify = SUCCESS) {{ set $who certificate; }}\n\
         if ($who = \"\") {{ return 403; }} grpc_pass grpc://127.0.0.1:{}; }}",
        cas.port
    );
    let server = proxied(place.path(), &location);
    let here = place.path().display();
    let base = format!("grpcs://127.0.0.1:{}?ca={here}/ca.pem", server.tls_port());
    let keys = &[("CACHE_HEADERS", "x-key: hush")];
    ask(&format!("{base}&header_env=CACHE_HEADERS"), keys).unwrap_or_else(|error| panic!("{error}"));
    let certificate = format!("client_certificate={here}/client.pem&client_key={here}/client.key");
    ask(&format!("{base}&{certificate}"), &[]).unwrap_or_else(|error| panic!("{error}"));
    let error = ask(&base, &[]).expect_err("no credentials");
    assert_eq!(error.trouble(), Some(Trouble::Denied), "{error}");
    let other = format!("grpcs://127.0.0.1:{}?ca={here}/client.pem&header_env=CACHE_HEADERS", server.tls_port());
    assert!(ask(&other, keys).is_err(), "another CA");
}
