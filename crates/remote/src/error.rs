//! Errors of remotes. None of them fails a build, and none shows a credential.

use crate::Key;
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

/// The kind of an error. It decides whether a request is retried and whether the breaker counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// There was no answer, or the connection broke before the answer.
    Unreachable,
    /// The service asks for fewer requests: it is overloaded, or a rate limit was reached.
    Busy,
    /// The service rejected our credentials, or does not allow this request.
    Denied,
    /// The bucket or container that the URL names does not exist, or the service says that it is
    /// elsewhere.
    NoPlace,
    /// There is no secure connection: the certificate, the name in it, or the port is wrong.
    Tls,
    /// No byte was transferred for too long.
    Stalled,
    /// The object ended early, or has more bytes than announced.
    Cut,
    /// The bytes do not have the digest of their key, or are malformed.
    Damaged,
    /// The object is larger than the service or larder accepts.
    TooLarge,
    /// The service has no space left, for objects of any size.
    Full,
    /// The service does not support this operation.
    Unable,
    /// The breaker is open: after several failures no request is sent for a while.
    Open,
    /// Any other error that the service reported.
    Other,
}

impl Trouble {
    /// All kinds, in the order in which they are counted.
    pub const ALL: [Trouble; 13] = [
        Trouble::Unreachable,
        Trouble::Busy,
        Trouble::Denied,
        Trouble::NoPlace,
        Trouble::Stalled,
        Trouble::Cut,
        Trouble::Damaged,
        Trouble::TooLarge,
        Trouble::Full,
        Trouble::Unable,
        Trouble::Open,
        Trouble::Other,
        Trouble::Tls,
    ];

    /// Returns the word for it in counters and messages.
    pub fn word(self) -> &'static str {
        match self {
            Trouble::Unreachable => "unreachable",
            Trouble::Busy => "busy",
            Trouble::Denied => "denied",
            Trouble::NoPlace => "no-place",
            Trouble::Tls => "tls",
            Trouble::Stalled => "stalled",
            Trouble::Cut => "cut",
            Trouble::Damaged => "damaged",
            Trouble::TooLarge => "too-large",
            Trouble::Full => "full",
            Trouble::Unable => "unable",
            Trouble::Open => "open",
            Trouble::Other => "other",
        }
    }

    /// Returns true if the same request may succeed a moment later.
    pub fn is_passing(self) -> bool {
        matches!(self, Trouble::Unreachable | Trouble::Busy | Trouble::Stalled | Trouble::Cut)
    }

    /// Returns true if a person has to change something before it can succeed, for example the
    /// password, the bucket, or the certificate. Waiting does not help.
    pub fn is_for_people(self) -> bool {
        matches!(self, Trouble::Denied | Trouble::NoPlace | Trouble::Tls)
    }

    /// Returns true if the whole service is in trouble, and not one object. [`Trouble::Full`] is
    /// not such a kind, because a full service still serves what it has.
    pub fn is_of_service(self) -> bool {
        use Trouble::{Busy, Denied, NoPlace, Other, Stalled, Tls, Unreachable};
        matches!(self, Unreachable | Busy | Stalled | Denied | NoPlace | Other | Tls)
    }
}

/// An error of a remote.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RemoteError {
    /// A URL that is malformed or not supported.
    #[error("{url}: {part}: {why}")]
    Url {
        /// The URL, without credentials.
        url: String,
        /// The wrong part, for example `port`.
        part: &'static str,
        /// What is wrong with it, and what would be right.
        why: String,
    },
    /// A request to a remote failed.
    #[error("{remote}: {}{}: {why}", key.map(|key| format!("{key}: ")).unwrap_or_default(), trouble.word())]
    Failed {
        /// The remote: its URL without credentials.
        remote: Arc<str>,
        /// The object, if the request was about a single one.
        key: Option<Key>,
        /// The kind of the error.
        trouble: Trouble,
        /// The service's own message, in one line.
        why: String,
    },
    /// A local file could not be written after a download, or could not be read for an upload.
    #[error("{key}: {source}")]
    Here {
        /// The object.
        key: Key,
        /// The error of the file operation.
        source: Arc<io::Error>,
    },
}

impl RemoteError {
    /// Returns an error for a failed request.
    ///
    /// Clients report trouble with TLS as a failed connection, so it is recognised here by the
    /// words of rustls.
    pub fn failed(remote: &Arc<str>, key: Option<Key>, trouble: Trouble, why: impl fmt::Display) -> Self {
        let why = why.to_string();
        let is_tls = tls_advice(&why).is_some() || TLS_WORDS.iter().any(|words| why.contains(words));
        let trouble = if is_tls { Trouble::Tls } else { trouble };
        let mut why = one_line(&why);
        if let Some(advice) = tls_advice(&why).filter(|advice| !why.contains(advice)) {
            why = format!("{why}: {advice}");
        }
        RemoteError::Failed { remote: remote.clone(), key, trouble, why }
    }

    /// Returns an error for a failed local file operation.
    pub fn here(key: Key, source: io::Error) -> Self {
        RemoteError::Here { key, source: Arc::new(source) }
    }

    /// Returns an error for a wrong part of a URL. Credentials in `url` are masked.
    pub(crate) fn url(url: &str, part: &'static str, why: impl Into<String>) -> Self {
        RemoteError::Url { url: larder_config::masked(url), part, why: why.into() }
    }

    /// Returns the kind of a remote's error; `None` for a wrong URL or a local failure.
    pub fn trouble(&self) -> Option<Trouble> {
        match self {
            RemoteError::Failed { trouble, .. } => Some(*trouble),
            RemoteError::Url { .. } | RemoteError::Here { .. } => None,
        }
    }

    /// Returns true if another try may succeed.
    pub fn is_passing(&self) -> bool {
        self.trouble().is_some_and(Trouble::is_passing)
    }
}

/// Returns the messages of an error and of all its causes.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    format!("{error}{}", causes(error))
}

/// Returns the messages of the causes of an error, each after a colon.
pub(crate) fn causes(error: &dyn Error) -> String {
    sources(error).map(|cause| format!(": {cause}")).collect()
}

/// Returns an error of our own among the causes. An error of the body that we send comes back
/// wrapped in an error of the client.
pub(crate) fn own_error(error: &dyn Error) -> Option<RemoteError> {
    sources(error).find_map(|cause| cause.downcast_ref().cloned())
}

fn sources<'e>(error: &'e dyn Error) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(error.source(), |cause| (*cause).source())
}

/// Words of rustls in errors that it does not explain further.
const TLS_WORDS: [&str; 2] = ["invalid peer certificate", "received fatal alert"];

/// Returns what to do about an error of TLS, which every client reports in the words of rustls.
fn tls_advice(why: &str) -> Option<&'static str> {
    const ADVICE: &[(&str, &str)] = &[
        (
            "UnknownIssuer",
            "no trusted authority signed the server's certificate: if the authority is your own, add ca=PATH with its \
             certificate (PEM)",
        ),
        ("not valid for name", "the server's certificate is for another host: write the name that it has into the URL"),
        (
            "InvalidContentType",
            "the server does not speak TLS on this port: write the port for TLS, or the scheme without TLS",
        ),
        ("certificate expired", "renew the server's certificate, or set this machine's clock"),
    ];
    ADVICE.iter().find(|(said, _)| why.contains(said)).map(|(_, advice)| *advice)
}

/// Returns the first 300 characters of a text in one line, without control characters.
fn one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_control() || c.is_whitespace()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ").chars().take(300).collect()
}
