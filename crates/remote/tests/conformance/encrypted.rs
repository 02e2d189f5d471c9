//! TLS, behind nginx: trusted and untrusted server certificates, client certificates, headers.

use crate::leaves::runtime;
use crate::{need, sample, suite};
use larder_remote::{RemoteError, RemoteUrl, Trouble, connect};
use larder_testkit::{S3_KEYS, Server, make_certificates};
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
    proxied_as("server", certificates, server)
}

/// Starts nginx with the certificate of this name.
fn proxied_as(name: &str, certificates: &Path, server: &str) -> Server {
    let here = certificates.display();
    let locations = format!(
        "listen 127.0.0.1:TLS ssl http2; ssl_certificate {here}/{name}.pem; ssl_certificate_key {here}/{name}.key;\n\
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

#[test]
fn trouble_with_tls_says_which_and_what_helps() {
    need!("nginx");
    let openssl = need!("openssl");
    let place = tempfile::tempdir().expect("a directory");
    make_certificates(&openssl, place.path());
    let here = place.path().display();
    let server = proxied(place.path(), "location / { return 404; }");
    let elsewhere = proxied_as("elsewhere", place.path(), "location / { return 404; }");
    let (tls, plain) = (server.tls_port(), server.port);
    for (url, advice) in [
        (format!("https://127.0.0.1:{tls}/x"), "add ca=PATH"),
        (format!("https://127.0.0.1:{tls}/x?ca={here}/client.pem"), "add ca=PATH"),
        (format!("https://127.0.0.1:{}/x?ca={here}/ca.pem", elsewhere.tls_port()), "write the name that it has"),
        (format!("https://127.0.0.1:{plain}/x?ca={here}/ca.pem"), "does not speak TLS on this port"),
        (format!("s3://team/x?endpoint=https://127.0.0.1:{tls}"), "add ca=PATH"),
        (format!("grpcs://127.0.0.1:{tls}"), "add ca=PATH"),
    ] {
        let error = ask(&url, S3_KEYS).expect_err(&url);
        assert_eq!(error.trouble(), Some(Trouble::Tls), "{url}: {error}");
        let error = error.to_string();
        assert_eq!(error.matches(advice).count(), 1, "{url}: {error}");
    }
    let error = ask(&format!("http://127.0.0.1:{tls}/x"), &[]).expect_err("no TLS on a port with TLS");
    assert_eq!(error.trouble(), Some(Trouble::NoPlace), "{error}");
    assert!(error.to_string().contains("write https"), "{error}");
}

/// Waiting does not mend a certificate, so no request is repeated, and the error stays the same
/// while the breaker is open.
#[test]
fn trouble_with_tls_is_not_retried() {
    need!("nginx");
    let openssl = need!("openssl");
    let place = tempfile::tempdir().expect("a directory");
    make_certificates(&openssl, place.path());
    let server = proxied(place.path(), "location / { return 404; }");
    let connections = larder_testkit::Proxy::before(([127, 0, 0, 1], server.tls_port()).into());
    let url: RemoteUrl =
        format!("https://{}/x", connections.address()).parse().unwrap_or_else(|error| panic!("{error}"));
    runtime().block_on(async {
        let remote = connect(&url, &sample::options(7, &[])).unwrap_or_else(|error| panic!("{error}")).remote;
        let mut said = Vec::new();
        for _ in 0..8 {
            let error = suite::answers(&*remote).await.expect_err("nobody trusts the certificate");
            assert_eq!(error.trouble(), Some(Trouble::Tls), "{error}");
            said.push(error.to_string());
        }
        said.dedup();
        assert_eq!(said.len(), 1, "{said:?}");
        // The breaker opens after three failures, and an upload begins with a lookup.
        assert!(connections.connections() <= 4, "{} connections", connections.connections());
    });
}

#[test]
fn encrypted_services_take_the_certificate_of_your_own_authority() {
    need!("nginx");
    need!("versitygw");
    let redis = need!("redis-server");
    let openssl = need!("openssl");
    let place = tempfile::tempdir().expect("a directory");
    make_certificates(&openssl, place.path());
    let here = place.path().display();
    let s3 = Server::s3().expect("installed");
    let location =
        format!("location / {{ proxy_pass http://127.0.0.1:{}; proxy_set_header Host $http_host; }}", s3.port);
    let proxy = proxied(place.path(), &location);
    let bucket = format!("s3://team/x?endpoint=https://127.0.0.1:{}", proxy.tls_port());
    ask(&format!("{bucket}&ca={here}/ca.pem"), S3_KEYS).unwrap_or_else(|error| panic!("{error}"));
    let redis = Server::start(&redis, |port, directory| {
        let all = format!(
            "--port 0 --tls-port {port} --bind 127.0.0.1 --dir {} --tls-cert-file {here}/server.pem \
             --tls-key-file {here}/server.key --tls-ca-cert-file {here}/ca.pem --tls-auth-clients no",
            directory.display()
        );
        all.split(' ').map(str::to_owned).collect()
    });
    let url = format!("rediss://127.0.0.1:{}", redis.port);
    ask(&format!("{url}?ca={here}/ca.pem"), &[]).unwrap_or_else(|error| panic!("{error}"));
    let error = ask(&url, &[]).expect_err("another authority").to_string();
    assert!(error.contains("add ca=PATH"), "{error}");
    let error = ask(&format!("{url}?ca={here}/absent.pem"), &[]).expect_err("no such file").to_string();
    assert!(error.contains("absent.pem"), "{error}");
}

#[test]
fn a_redirect_names_its_target_and_what_to_write() {
    need!("nginx");
    let locations = "location /old { rewrite ^/old(.*)$ https://me:hush@cache.example.org/new$1?token=hush permanent; }\n\
                     location /login { return 302 https://login.example.org/; }";
    let server = Server::nginx(locations).expect("installed");
    for (url, advice) in [
        (format!("http://127.0.0.1:{}/old", server.port), "write https://cache.example.org/new instead"),
        (format!("webdav://127.0.0.1:{}/old", server.port), "write webdavs://cache.example.org/new instead"),
        (format!("http://127.0.0.1:{}/login", server.port), "a redirect to https://login.example.org/ is not followed"),
    ] {
        let error = ask(&url, &[]).expect_err(&url);
        assert_eq!(error.trouble(), Some(Trouble::NoPlace), "{url}: {error}");
        let error = error.to_string();
        assert!(error.contains(advice), "{url}: {error}");
        assert!(!error.contains("hush"), "{error}");
    }
}
