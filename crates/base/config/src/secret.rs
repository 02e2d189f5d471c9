//! Remotes' URLs without secrets, and the environment variables that `larderd` needs, including
//! credentials.
//!
//! Unaware of: what a URL means to its service.

/// The text that replaces a secret.
const HIDDEN: &str = "***";
/// Parameters whose values are shown. Users put secrets into other parameters.
const HARMLESS: &[&str] = &[
    "account",
    "anonymous",
    "ca",
    "client_certificate",
    "client_key",
    "endpoint",
    "header_env",
    "header_file",
    "prefix",
    "read_only",
    "region",
    "requests",
    "ttl",
    "virtual_host",
];

/// Returns a remote's URL as it may be shown: without user and password, and without the values of
/// parameters that may be secret. It hides too much rather than too little.
pub fn masked(url: &str) -> String {
    let url: String = url.trim().chars().filter(|c| !c.is_control()).collect();
    let (scheme, rest) = url.split_once("://").map_or(("", &*url), |(scheme, rest)| (scheme, rest));
    let mut shown = if rest.len() < url.len() { format!("{scheme}://") } else { String::new() };
    // The last `@` counts, wherever it is. A password may contain an unescaped `@`, slash or
    // question mark, and a parameter may be a URL itself.
    let rest = match rest.rsplit_once('@') {
        None => rest,
        Some((_, rest)) => {
            shown.extend([HIDDEN, "@"]);
            rest
        }
    };
    let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
    shown.push_str(place);
    for (at, parameter) in query.into_iter().flat_map(|query| query.split('&')).enumerate() {
        shown.push(if at == 0 { '?' } else { '&' });
        match parameter.split_once('=') {
            Some((name, _)) if HARMLESS.contains(&name) => shown.push_str(parameter),
            Some((name, _)) => shown.extend([name, "=", HIDDEN]),
            None => shown.push_str(HIDDEN),
        }
    }
    shown
}

/// The URL parameter with the name of a variable that contains HTTP headers.
const HEADERS: &str = "header_env=";

/// Returns true if `larderd` is started with this variable. It gets larder's own variables, paths,
/// network settings, and the credentials of these remotes, by the conventions of their services and
/// as the URLs say. No other variable of a build or a shell is passed on.
pub fn larderd_needs(name: &[u8], remotes: &[String]) -> bool {
    const NAMES: [&[u8]; 15] = [
        b"HOME",
        b"PATH",
        b"TMPDIR",
        b"XDG_CACHE_HOME",
        b"XDG_CONFIG_HOME",
        b"SSL_CERT_FILE",
        b"SSL_CERT_DIR",
        b"HTTP_PROXY",
        b"HTTPS_PROXY",
        b"NO_PROXY",
        b"http_proxy",
        b"https_proxy",
        b"no_proxy",
        b"ALL_PROXY",
        // The convention of Redis.
        b"REDISCLI_AUTH",
    ];
    const BEGINNINGS: [&[u8]; 6] = [b"LARDER_", b"AWS_", b"AZURE_", b"AZBLOB_", b"GOOGLE_", b"ACTIONS_"];
    let parameters = remotes.iter().flat_map(|url| url.split(['?', '&']));
    let mut headers = parameters.filter_map(|parameter| parameter.trim_end().strip_prefix(HEADERS));
    NAMES.contains(&name)
        || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
        || headers.any(|variable| variable.as_bytes() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_secret_is_not_shown() {
        for (url, shown) in [
            ("redis://h:1", "redis://h:1"),
            ("redis://u:p@h:1/2", "redis://***@h:1/2"),
            ("redis://:p@ss@h", "redis://***@h"),
            (
                "s3://b/p?endpoint=http://e&secret_access_key=s&x",
                "s3://b/p?endpoint=http://e&secret_access_key=***&***",
            ),
            ("s3://b?endpoint=http://u:p@e&region=r", "s3://***@e&region=r"),
            ("azblob://c?account_key=k", "azblob://c?account_key=***"),
            ("http://h/x?pwd=p", "http://h/x?pwd=***"),
            ("http://u:p?q@h/x", "http://***@h/x"),
            ("redis://me:hu/sh@h", "redis://***@h"),
            ("u:p@h", "***@h"),
            ("", ""),
        ] {
            assert_eq!(masked(url), shown);
        }
    }

    #[test]
    fn what_larderd_is_started_with() {
        let urls = ["redis://h".to_owned(), "https://h/x?ca=/c&header_env=TEAM_HEADERS".to_owned()];
        let needs = |name: &str| larderd_needs(name.as_bytes(), &urls);
        assert!(["HOME", "LARDER_DIR", "AWS_SECRET_ACCESS_KEY", "TEAM_HEADERS"].into_iter().all(needs));
        assert!(!["CC", "LD_PRELOAD", "TEAM", "TEAM_HEADERS2", ""].into_iter().any(needs));
        assert!(!larderd_needs(b"TEAM_HEADERS", &urls[..1]));
    }
}
