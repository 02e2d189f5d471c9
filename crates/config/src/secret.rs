//! What of a remote's URL may be shown, and what `larderd` needs of the environment, credentials among it.
//!
//! Unaware of: what a URL means to its service.

/// Stands for what is not shown.
const HIDDEN: &str = "***";
/// A parameter whose name has one of these in it is not shown.
const SECRETS: [&str; 8] = ["key", "secret", "token", "pass", "sig", "credential", "auth", "account"];

/// A remote's URL as it may be shown: without user and password, and without the values of parameters that may be
/// secret.
pub fn masked(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
    let mut shown = String::new();
    if rest.len() < url.len() {
        shown.extend([scheme, "://"]);
    }
    // Of several the last: a password can have such a sign in it.
    match place.rsplit_once('@') {
        Some((_, host)) => shown.extend([HIDDEN, "@", host]),
        None => shown.push_str(place),
    }
    for (at, parameter) in query.into_iter().flat_map(|query| query.split('&')).enumerate() {
        shown.push(if at == 0 { '?' } else { '&' });
        match parameter.split_once('=') {
            Some((name, _)) if is_secret(name) => shown.extend([name, "=", HIDDEN]),
            _ => shown.push_str(parameter),
        }
    }
    shown
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRETS.iter().any(|secret| name.contains(secret))
}

/// Variables that `larderd` is started with: its own, where things are, how the network is reached, and the credentials
/// of remotes by the conventions of their services. Nothing else of a build's or a shell's stays with it.
pub fn larderd_needs(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 14] = [
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
    ];
    const BEGINNINGS: [&[u8]; 6] = [b"LARDER_", b"AWS_", b"AZURE_", b"AZBLOB_", b"GOOGLE_", b"ACTIONS_"];
    NAMES.contains(&name) || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
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
            ("s3://b/p?endpoint=http://e&secret_access_key=s&x", "s3://b/p?endpoint=http://e&secret_access_key=***&x"),
            ("azblob://c?account_key=k", "azblob://c?account_key=***"),
            ("u:p@h", "***@h"),
            ("", ""),
        ] {
            assert_eq!(masked(url), shown);
        }
    }

    #[test]
    fn what_larderd_is_started_with() {
        assert!(larderd_needs(b"HOME") && larderd_needs(b"LARDER_DIR") && larderd_needs(b"AWS_SECRET_ACCESS_KEY"));
        assert!(!larderd_needs(b"CC") && !larderd_needs(b"LD_PRELOAD"));
    }
}
