//! What can go wrong with a remote. None of it fails a build, and none of it shows a credential.

use crate::{Key, RemoteUrl};
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

/// What kind of trouble it is, which decides what is done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// Nobody answered, or the connection broke before an answer.
    Unreachable,
    /// The service asks for less: too many requests, or it is overloaded.
    Busy,
    /// It does not know us, or does not let us do this.
    Denied,
    /// The bucket or container that the URL names is not there.
    NoPlace,
    /// No byte came for too long.
    Stalled,
    /// The object ended early, or did not end where it should.
    Cut,
    /// The bytes are not those of their name, or not in their form.
    Damaged,
    /// Larger than the service, or we, take.
    TooLarge,
    /// The service has no room left, for an object of any size.
    Full,
    /// The service cannot do this at all.
    Unable,
    /// The breaker is open: it failed often just now and is left alone for a while.
    Open,
    /// Whatever else the service said.
    Other,
}

impl Trouble {
    /// Every kind, in the order in which they are counted.
    pub const ALL: [Trouble; 12] = [
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
    ];

    /// The word for it in counters.
    pub fn word(self) -> &'static str {
        match self {
            Trouble::Unreachable => "unreachable",
            Trouble::Busy => "busy",
            Trouble::Denied => "denied",
            Trouble::NoPlace => "no-place",
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

    /// Whether the same request may well succeed a moment later.
    pub fn is_passing(self) -> bool {
        matches!(self, Trouble::Unreachable | Trouble::Busy | Trouble::Stalled | Trouble::Cut)
    }

    /// Whether it says that the service as a whole is in trouble, rather than that one object is. A full one still
    /// gives what it has.
    pub fn is_of_service(self) -> bool {
        use Trouble::{Busy, Denied, NoPlace, Other, Stalled, Unreachable};
        matches!(self, Unreachable | Busy | Stalled | Denied | NoPlace | Other)
    }
}

/// Trouble with a remote.
#[derive(Clone, Debug)]
pub enum RemoteError {
    /// A URL that cannot be understood.
    Url {
        /// The URL, without credentials.
        url: String,
        /// Which part of it.
        part: &'static str,
        /// What is wrong there, and what would be right.
        why: String,
    },
    /// A request failed.
    Failed {
        /// Which remote: its URL without credentials.
        remote: Arc<str>,
        /// Which object, where it was about one.
        key: Option<Key>,
        /// What kind of trouble.
        trouble: Trouble,
        /// What was said, in a line.
        why: String,
    },
    /// What was fetched could not be put where it belongs here, or what is to be sent could not be read here.
    Here {
        /// Which object.
        key: Key,
        /// Why.
        source: Arc<io::Error>,
    },
}

impl RemoteError {
    /// A request that failed.
    pub fn failed(remote: &Arc<str>, key: Option<Key>, trouble: Trouble, why: impl fmt::Display) -> Self {
        let why = one_line(&why.to_string());
        RemoteError::Failed { remote: remote.clone(), key, trouble, why }
    }

    /// A file of ours that failed.
    pub fn here(key: Key, source: io::Error) -> Self {
        RemoteError::Here { key, source: Arc::new(source) }
    }

    /// A part of a URL that is wrong.
    pub(crate) fn url(url: &str, part: &'static str, why: impl Into<String>) -> Self {
        RemoteError::Url { url: RemoteUrl::masked(url), part, why: why.into() }
    }

    /// What kind of trouble a remote had; `None` where it was ours.
    pub fn trouble(&self) -> Option<Trouble> {
        match self {
            RemoteError::Failed { trouble, .. } => Some(*trouble),
            RemoteError::Url { .. } | RemoteError::Here { .. } => None,
        }
    }

    /// Whether another try may succeed.
    pub fn is_passing(&self) -> bool {
        self.trouble().is_some_and(Trouble::is_passing)
    }
}

/// The first 300 characters, without line breaks and control characters.
fn one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_control() || c.is_whitespace()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ").chars().take(300).collect()
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RemoteError::Url { url, part, why } => write!(f, "{url}: {part}: {why}"),
            RemoteError::Failed { remote, key: Some(key), trouble, why } => {
                write!(f, "{remote}: {key}: {}: {why}", trouble.word())
            }
            RemoteError::Failed { remote, key: None, trouble, why } => write!(f, "{remote}: {}: {why}", trouble.word()),
            RemoteError::Here { key, source } => write!(f, "{key}: {source}"),
        }
    }
}

impl Error for RemoteError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            RemoteError::Here { source, .. } => Some(&**source),
            RemoteError::Url { .. } | RemoteError::Failed { .. } => None,
        }
    }
}
