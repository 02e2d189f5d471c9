//! The parts of a URL. Each option is taken once; an option that was not taken is an error.
//!
//! Unaware of: which parts a service has.

use super::service::Login;
use crate::RemoteError;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use url::Url;

fn known_schemes() -> String {
    format!("known are {}, each with \"://\" after it", larder_config::REMOTE_SCHEMES.join(", "))
}

pub(super) struct Parts<'a> {
    text: &'a str,
    pub(super) scheme: String,
    pub(super) url: Url,
    query: Vec<(String, String)>,
}

impl<'a> Parts<'a> {
    pub(super) fn of(text: &'a str) -> Result<Self, RemoteError> {
        let Some((scheme, _)) = text.split_once("://") else {
            return Err(RemoteError::url(text, "scheme", format!("it is missing; {}", known_schemes())));
        };
        let scheme = scheme.to_ascii_lowercase();
        if !larder_config::REMOTE_SCHEMES.contains(&&*scheme) {
            let why = format!("{scheme:?} is not known; {}", known_schemes());
            return Err(RemoteError::url(text, "scheme", why));
        }
        let url = Url::parse(text).map_err(|error| {
            let part = match error {
                url::ParseError::InvalidPort => "port",
                url::ParseError::EmptyHost
                | url::ParseError::IdnaError
                | url::ParseError::InvalidIpv4Address
                | url::ParseError::InvalidIpv6Address
                | url::ParseError::InvalidDomainCharacter => "host",
                _ => "URL",
            };
            // An unescaped `/`, `?` or `#` in a password ends the host, so that the user is taken
            // for the host.
            let login = if text.contains('@') { "; in a password / is %2F, ? is %3F and # is %23" } else { "" };
            RemoteError::url(text, part, format!("{error}{login}"))
        })?;
        if url.fragment().is_some() {
            return Err(RemoteError::url(text, "fragment", "\"#\" has no meaning here; in a password it is %23"));
        }
        let query = url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
        Ok(Parts { text, scheme, url, query })
    }

    pub(super) fn wrong(&self, part: &'static str, why: impl Into<String>) -> RemoteError {
        RemoteError::url(self.text, part, why)
    }

    /// Takes an option of the query and returns its value.
    pub(super) fn option(&mut self, name: &str) -> Result<Option<String>, RemoteError> {
        let Some(at) = self.query.iter().position(|(known, _)| known == name) else { return Ok(None) };
        let (_, value) = self.query.remove(at);
        if self.query.iter().any(|(known, _)| known == name) {
            return Err(self.wrong("query", format!("{name} is given twice")));
        }
        if value.is_empty() {
            return Err(self.wrong("query", format!("{name} is empty")));
        }
        Ok(Some(value))
    }

    pub(super) fn switch(&mut self, name: &str) -> Result<bool, RemoteError> {
        match self.option(name)?.as_deref() {
            None | Some("false" | "0" | "no" | "off") => Ok(false),
            Some("true" | "1" | "yes" | "on") => Ok(true),
            Some(other) => Err(self.wrong("query", format!("{name} is {other:?}, neither true nor false"))),
        }
    }

    pub(super) fn file(&mut self, name: &str) -> Result<Option<PathBuf>, RemoteError> {
        let Some(path) = self.option(name)? else { return Ok(None) };
        match Path::new(&path).is_absolute() {
            true => Ok(Some(path.into())),
            false => Err(self.wrong("query", format!("{name} must be an absolute path"))),
        }
    }

    pub(super) fn endpoint(&mut self) -> Result<Option<String>, RemoteError> {
        let Some(endpoint) = self.option("endpoint")? else { return Ok(None) };
        let url = Url::parse(&endpoint).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let Some(url) = url else {
            return Err(self.wrong("query", "endpoint must be an http:// or https:// URL"));
        };
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
            return Err(self.wrong("query", "endpoint must have neither user nor query"));
        }
        Ok(Some(endpoint.trim_end_matches('/').to_owned()))
    }

    pub(super) fn days(&mut self, most: u32) -> Result<Option<u32>, RemoteError> {
        self.number("ttl", "days", 1..=most)
    }

    /// Takes an option that is a number in `range`. `what` is its unit in the error message.
    pub(super) fn number<N: FromStr + PartialOrd + Display>(
        &mut self,
        name: &str,
        what: &str,
        range: RangeInclusive<N>,
    ) -> Result<Option<N>, RemoteError> {
        let Some(number) = self.option(name)? else { return Ok(None) };
        let number = number.parse().ok().filter(|number| range.contains(number));
        let why = || format!("{name} is a number of {what} from {} to {}", range.start(), range.end());
        number.map(Some).ok_or_else(|| self.wrong("query", why()))
    }

    /// Returns the host. `part` is its name in the error message, for example `bucket`.
    pub(super) fn host(&self, part: &'static str) -> Result<String, RemoteError> {
        match self.url.host_str() {
            Some(host) if !host.is_empty() => Ok(host.to_owned()),
            _ => Err(self.wrong(part, "it is missing")),
        }
    }

    /// Returns host and port; `port` is the default.
    pub(super) fn address(&self, port: u16) -> Result<String, RemoteError> {
        match self.url.port() {
            Some(0) => Err(self.wrong("port", "0 is not a port")),
            given => Ok(format!("{}:{}", self.host("host")?, given.unwrap_or(port))),
        }
    }

    /// Returns the path, without slashes at its ends.
    pub(super) fn prefix(&self) -> Result<String, RemoteError> {
        self.clean("path", &decoded(self.url.path()))
    }

    /// Checks a prefix and returns it without slashes at its ends.
    pub(super) fn clean(&self, part: &'static str, prefix: &str) -> Result<String, RemoteError> {
        let prefix = prefix.trim_matches('/');
        if prefix.len() > 150 {
            return Err(self.wrong(part, "a prefix has at most 150 bytes"));
        }
        let is_plain = |c: char| !c.is_control() && !c.is_whitespace();
        if !prefix.chars().all(is_plain) || prefix.split('/').any(|name| matches!(name, "." | "..")) {
            return Err(self.wrong(part, "a prefix has no spaces, control characters, \".\" or \"..\""));
        }
        Ok(prefix.to_owned())
    }

    pub(super) fn has_login(&self) -> bool {
        !self.url.username().is_empty() || self.url.password().is_some()
    }

    pub(super) fn login(&self) -> Login {
        let user = Some(decoded(self.url.username())).filter(|user| !user.is_empty());
        Login { user, password: self.url.password().map(decoded) }
    }

    /// Fails if the URL has an option that was not taken.
    pub(super) fn finish(&self) -> Result<(), RemoteError> {
        match self.query.first() {
            None => Ok(()),
            // A word without a value may be a secret whose name is missing, so the error does not
            // quote it.
            Some((_, value)) if value.is_empty() => {
                Err(self.wrong("query", format!("{}:// has no such option; its value is missing", self.scheme)))
            }
            Some((name, _)) => Err(self.wrong("query", format!("{name} is not an option of {}://", self.scheme))),
        }
    }
}

/// Decodes percent escapes. Bytes that are not UTF-8 are replaced by U+FFFD.
fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}
