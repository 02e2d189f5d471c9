//! The attributes of a volume, as they are in a pod's `volumeAttributes`, and the rules about which
//! namespace may use which keys.
//!
//! Unaware of: whether there is such an image.

use std::collections::HashMap;

/// The prefix of what kubelet adds to the attributes.
const OF_KUBELET: &str = "csi.storage.k8s.io/";
const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";
const NAMESPACE: &str = "csi.storage.k8s.io/pod.namespace";
const KNOWN: [&str; 8] = ["key", "fallback", "policy", "remote", "path", "readOnly", "strict", "owner"];
/// The placeholders that are allowed in keys, because they say nothing about the plugin's own
/// process.
const PLACEHOLDERS: [&str; 2] = ["{{os}}", "{{arch}}"];

/// The most fallbacks of a volume. For each of them the remotes are asked, while other pods wait.
const FALLBACKS_MAX: usize = 16;

/// A pod's request for a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) key: String,
    /// Prefixes of other keys. If no image has the key, they are tried in this order.
    pub(crate) fallbacks: Vec<String>,
    /// False with the policy `push`: the pod only saves, so its volume begins empty.
    pub(crate) pulls: bool,
    /// The only remote to ask.
    pub(crate) remote: Option<String>,
    /// The saved path, if the image has several.
    pub(crate) path: Option<String>,
    pub(crate) read_only: bool,
    /// True if the pod must not start without an image.
    pub(crate) strict: bool,
    /// The user and group that own the files of the image.
    pub(crate) owner: (u32, u32),
    /// The namespace of the pod.
    pub(crate) namespace: String,
}

impl Wanted {
    /// Parses attributes. The error is a text for the person who wrote the pod.
    pub(crate) fn parse(attributes: &HashMap<String, String>) -> Result<Wanted, String> {
        Wanted::parsed(attributes).map_err(|why| printable(&why))
    }

    fn parsed(attributes: &HashMap<String, String>) -> Result<Wanted, String> {
        let mut unknown: Vec<&str> = attributes.keys().map(String::as_str).filter(|name| !is_known(name)).collect();
        unknown.sort_unstable();
        if let Some(name) = unknown.first() {
            return Err(format!("volumeAttributes: `{name}` is not known; known are {}", KNOWN.join(", ")));
        }
        let text = |name: &str| attributes.get(name).map(String::as_str).filter(|text| !text.is_empty());
        if text(EPHEMERAL) != Some("true") {
            return Err(format!(
                "only ephemeral inline volumes are possible, and `{EPHEMERAL}` is not `true`: write `csi:` with \
                 `volumeAttributes` into the pod, and set `podInfoOnMount: true` in the CSIDriver"
            ));
        }
        let key = text("key").ok_or("volumeAttributes: `key` is missing")?.to_owned();
        let fallbacks: Vec<String> = text("fallback").unwrap_or_default().lines().map(str::to_owned).collect();
        fallbacks.iter().chain([&key]).try_for_each(|key| is_plain(key))?;
        if fallbacks.len() > FALLBACKS_MAX {
            return Err(format!("volumeAttributes: fallback has {} lines, at most {FALLBACKS_MAX}", fallbacks.len()));
        }
        Ok(Wanted {
            fallbacks: fallbacks.into_iter().filter(|beginning| !beginning.is_empty()).collect(),
            pulls: match text("policy").unwrap_or("pull") {
                "pull" | "both" => true,
                "push" => false,
                other => return Err(format!("volumeAttributes: policy is `{other}`, not pull, push or both")),
            },
            remote: text("remote").map(str::to_owned),
            path: text("path").map(str::to_owned),
            read_only: truth(text("readOnly"), "readOnly")?,
            strict: truth(text("strict"), "strict")?,
            owner: text("owner").map_or(Ok((0, 0)), owner)?,
            namespace: text(NAMESPACE).unwrap_or_default().to_owned(),
            key,
        })
    }
}

/// Replaces control characters. A pod's author chooses the values of attributes, and the administrator
/// of the cluster reads the errors on a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.replace(char::is_control, "?")
}

fn is_known(name: &str) -> bool {
    name.starts_with(OF_KUBELET) || KNOWN.contains(&name)
}

/// Fails if a key has a placeholder that the plugin would expand with its own environment or files,
/// such as `{{env TOKEN}}`.
fn is_plain(key: &str) -> Result<(), String> {
    let rest = PLACEHOLDERS.iter().fold(key.to_owned(), |key, known| key.replace(known, ""));
    match rest.contains("{{") || rest.contains(char::is_control) {
        true => Err(format!(
            "volumeAttributes: the key `{}` may only have the placeholders {}, and must be one line: the job's own \
             files and variables are not known before it starts",
            key.escape_debug(),
            PLACEHOLDERS.join(" and ")
        )),
        false => Ok(()),
    }
}

fn truth(text: Option<&str>, name: &str) -> Result<bool, String> {
    match text.unwrap_or("false") {
        "true" => Ok(true),
        "false" => Ok(false),
        other => Err(format!("volumeAttributes: {name} is `{other}`, not \"true\" or \"false\"")),
    }
}

/// Parses `USER` or `USER:GROUP`. Without a group it is the number of the user.
fn owner(text: &str) -> Result<(u32, u32), String> {
    let (user, group) = text.split_once(':').unwrap_or((text, text));
    let numbers =
        user.parse().ok().zip(group.parse().ok()).filter(|(user, group)| *user < u32::MAX && *group < u32::MAX);
    numbers.ok_or_else(|| format!("volumeAttributes: owner is `{text}`, not two numbers such as 1000:1000"))
}

/// Which namespaces may use which keys, and which remotes a pod may name.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// A namespace, or `*` for every namespace, and a prefix of the keys that it may use. If the list
    /// is empty, every namespace may use every key.
    pub keys: Vec<(String, String)>,
    /// The values of the attribute `remote` that are allowed.
    pub remotes: Vec<String>,
}

impl Rules {
    /// Checks that a pod may use this image. The error is a text for the person who wrote the pod.
    pub(crate) fn allow(&self, wanted: &Wanted) -> Result<(), String> {
        let allows = |key: &str| {
            let is_for = |of: &str| of == "*" || of == wanted.namespace;
            self.keys.is_empty() || self.keys.iter().any(|(of, beginning)| is_for(of) && key.starts_with(beginning))
        };
        let keys = wanted.fallbacks.iter().chain([&wanted.key]);
        if let Some(key) = keys.into_iter().find(|key| !allows(key)) {
            return Err(format!(
                "the namespace `{}` may not use keys that begin with `{key}`: the plugin's --allow options say which",
                wanted.namespace
            ));
        }
        match &wanted.remote {
            Some(remote) if !self.remotes.contains(remote) => Err(format!(
                "the remote `{}` is none of those that a pod may name: the plugin's --remote options list them",
                printable(remote)
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(attributes: &[(&str, &str)]) -> Result<Wanted, String> {
        let given = [(EPHEMERAL, "true"), (NAMESPACE, "ci")].iter().chain(attributes);
        Wanted::parse(&given.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn attributes_of_a_pod() {
        let wanted =
            parsed(&[("key", "deps-{{os}}-1"), ("fallback", "deps-\nd-"), ("owner", "1000"), ("strict", "true")]);
        let wanted = wanted.expect("is right");
        assert_eq!((wanted.key.as_str(), wanted.fallbacks.len(), wanted.owner), ("deps-{{os}}-1", 2, (1000, 1000)));
        assert!(wanted.pulls && wanted.strict && !wanted.read_only && wanted.namespace == "ci");
        assert!(!parsed(&[("key", "k"), ("policy", "push")]).expect("is right").pulls);
        assert_eq!(parsed(&[("key", "k"), ("owner", "1:2")]).expect("is right").owner, (1, 2));
        for (attributes, says) in [
            (&[][..], "`key` is missing"),
            (&[("key", "k"), ("readonly", "true")], "`readonly` is not known; known are key, fallback"),
            (&[("key", "k"), ("strict", "yes")], "strict is `yes`"),
            (&[("key", "k"), ("policy", "none")], "policy is `none`"),
            (&[("key", "k"), ("owner", "root")], "owner is `root`"),
            (&[("key", "k"), ("owner", "4294967295")], "owner is `4294967295`"),
            (&[("key", "{{env TOKEN}}")], "may only have the placeholders"),
            (&[("key", "k"), ("fallback", "{{hash /etc/shadow}}")], "may only have the placeholders"),
            (&[("key", "k\nl")], "must be one line"),
            (&[("key", "k"), ("fallback", &"d\n".repeat(17))], "has 17 lines, at most 16"),
            (&[("key", "k"), ("policy", "\u{1b}[31m")], "policy is `?[31m`"),
            (&[("key", "k"), ("\u{1b}[31m", "")], "`?[31m` is not known"),
        ] {
            let said = parsed(attributes).expect_err("is wrong");
            assert!(said.contains(says), "{said}");
        }
        let persistent = Wanted::parse(&HashMap::from([("key".to_owned(), "k".to_owned())]));
        assert!(persistent.expect_err("is no ephemeral volume").contains("podInfoOnMount"));
    }

    #[test]
    fn namespaces_and_their_keys() {
        let wanted = |attributes: &[(&str, &str)]| parsed(attributes).expect("is right");
        let rule = |of: &str, beginning: &str| (of.to_owned(), beginning.to_owned());
        let rules = Rules {
            keys: vec![rule("ci", "deps-"), rule("other", "secret-"), rule("*", "public-")],
            remotes: vec!["redis://cache".to_owned()],
        };
        for key in ["deps-1", "public-1"] {
            assert_eq!(rules.allow(&wanted(&[("key", key)])), Ok(()));
        }
        assert!(rules.allow(&wanted(&[("key", "secret-1")])).is_err());
        assert!(rules.allow(&wanted(&[("key", "deps-1"), ("fallback", "dep")])).is_err());
        assert!(rules.allow(&wanted(&[("key", "deps-1"), ("remote", "http://169.254.169.254/")])).is_err());
        assert_eq!(rules.allow(&wanted(&[("key", "deps-1"), ("remote", "redis://cache")])), Ok(()));
        assert_eq!(Rules::default().allow(&wanted(&[("key", "secret-1")])), Ok(()));
    }
}
