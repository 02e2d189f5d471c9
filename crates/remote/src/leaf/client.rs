//! Shared code of the leaves over HTTP and gRPC: TLS settings, the HTTP client, additional headers.
//!
//! Unaware of: what is sent.

use crate::{Headers, Options, RemoteError, RemoteUrl, Tls, Trouble};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::{Action, Attempt, Policy};
use rustls::ClientConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The timeout for establishing a connection. It detects a remote that is down.
pub(crate) const CONNECT_WAIT_MAX: Duration = Duration::from_secs(5);
/// How long an idle connection stays open.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(50);
const IDLE_CONNECTIONS_MAX: usize = 64;
/// The most redirects of one request.
const REDIRECTS_MAX: usize = 4;
/// The most bytes of a file or variable with headers.
const HEADERS_BYTES_MAX: usize = 64 << 10;

/// Returns the cryptography for TLS. There is none on systems that larder does not run on, so that
/// type checks for them need no C compiler.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn provider() -> Option<Arc<CryptoProvider>> {
    Some(Arc::new(rustls::crypto::ring::default_provider()))
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(crate) fn provider() -> Option<Arc<CryptoProvider>> {
    None
}

/// Returns the TLS settings: trusted certificates, and our own one. Without `tls` no certificate is
/// trusted; such a client is used for unencrypted connections only.
pub(crate) fn tls_config(url: &RemoteUrl, tls: Option<&Tls>) -> Result<ClientConfig, RemoteError> {
    let failed = |why: String| RemoteError::failed(&url.name().into(), None, Trouble::Unable, why);
    let provider = provider().ok_or_else(|| failed("larder does not support TLS on this system".into()))?;
    let wrong = |error: rustls::Error| failed(error.to_string());
    let builder =
        ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().map_err(wrong)?;
    let builder = match tls {
        None => builder.with_root_certificates(rustls::RootCertStore::empty()),
        Some(Tls { ca: Some(file), .. }) => {
            let mut roots = rustls::RootCertStore::empty();
            for certificate in certificates(url, file)? {
                roots.add(certificate).map_err(wrong)?;
            }
            builder.with_root_certificates(roots)
        }
        Some(_) => {
            let verifier = rustls_platform_verifier::Verifier::new(provider).map_err(wrong)?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
    };
    match tls {
        Some(Tls { client_certificate: Some(certificate), client_key: Some(key), .. }) => {
            let pem = |error: rustls::pki_types::pem::Error| failed(format!("{}: {error}", key.display()));
            let private = PrivateKeyDer::from_pem_file(key).map_err(pem)?;
            builder.with_client_auth_cert(certificates(url, certificate)?, private).map_err(wrong)
        }
        _ => Ok(builder.with_no_client_auth()),
    }
}

fn certificates(url: &RemoteUrl, file: &Path) -> Result<Vec<CertificateDer<'static>>, RemoteError> {
    let all = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let why = match all {
        Ok(all) if !all.is_empty() => return Ok(all),
        Ok(_) => format!("{}: the file has no certificate", file.display()),
        Err(error) => format!("{}: {error}", file.display()),
    };
    Err(RemoteError::failed(&url.name().into(), None, Trouble::Denied, why))
}

/// Follows a redirect only to the same scheme, host and port, and only with status 307 or 308.
///
/// Another server would see our headers. With other status codes a PUT becomes a GET, and the
/// upload would seem to have succeeded.
fn redirected(attempt: Attempt) -> Action {
    let address =
        |url: &reqwest::Url| (url.scheme().to_owned(), url.host_str().map(str::to_owned), url.port_or_known_default());
    let same = attempt.previous().last().is_some_and(|from| address(from) == address(attempt.url()));
    let stays = matches!(attempt.status().as_u16(), 307 | 308);
    if same && stays && attempt.previous().len() <= REDIRECTS_MAX { attempt.follow() } else { attempt.stop() }
}

/// Returns an HTTP client for a remote.
pub(crate) fn http_client(url: &RemoteUrl, tls: Option<&Tls>) -> Result<reqwest::Client, RemoteError> {
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(tls_config(url, tls)?)
        .user_agent(concat!("larder/", env!("CARGO_PKG_VERSION")))
        .redirect(Policy::custom(redirected))
        .connect_timeout(CONNECT_WAIT_MAX)
        .pool_idle_timeout(IDLE_MAX)
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .build();
    client.map_err(|error| RemoteError::failed(&url.name().into(), None, Trouble::Unable, error))
}

/// Reads the headers of a file and a variable. They are marked as sensitive, so that no log shows
/// them.
pub(crate) fn header_map(url: &RemoteUrl, headers: &Headers, options: &Options) -> Result<HeaderMap, RemoteError> {
    let failed = |why: String| RemoteError::failed(&url.name().into(), None, Trouble::Denied, why);
    let mut map = HeaderMap::new();
    if let Some(file) = &headers.file {
        let text = std::fs::read_to_string(file).map_err(|error| failed(format!("{}: {error}", file.display())))?;
        add_headers(&mut map, &text).map_err(|why| failed(format!("{}: {why}", file.display())))?;
    }
    if let Some(name) = &headers.variable {
        let text = (options.variable)(name).ok_or_else(|| failed(format!("the variable {name} is not set")))?;
        add_headers(&mut map, &text).map_err(|why| failed(format!("the variable {name}: {why}")))?;
    }
    Ok(map)
}

/// Adds headers from lines `Name: value`. Empty lines and lines that begin with `#` are ignored.
/// Errors do not quote a line, because it may be a secret.
fn add_headers(map: &mut HeaderMap, text: &str) -> Result<(), String> {
    if text.len() > HEADERS_BYTES_MAX {
        return Err(format!("more than {HEADERS_BYTES_MAX} bytes"));
    }
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let wrong = |what: &str| format!("line {}: {what}", number + 1);
        let (name, value) = line.split_once(':').ok_or_else(|| wrong("not of the form Name: value"))?;
        let name = HeaderName::try_from(name.trim()).map_err(|_| wrong("not the name of a header"))?;
        let mut value = HeaderValue::try_from(value.trim()).map_err(|_| wrong("not the value of a header"))?;
        value.set_sensitive(true);
        map.append(name, value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_lines_and_errors_do_not_quote_them() {
        let mut map = HeaderMap::new();
        add_headers(&mut map, "# for the cache\n\nAuthorization: Bearer hush\nx-key:1\n").expect("the lines are valid");
        assert_eq!((map.len(), &map["authorization"]), (2, &HeaderValue::from_static("Bearer hush")));
        for text in ["hush", "a b: hush", "a: hush\u{7f}"] {
            let why = add_headers(&mut map, text).expect_err(text);
            assert!(why.starts_with("line 1: ") && !why.contains("hush"), "{why}");
        }
    }
}
