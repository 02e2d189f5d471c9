//! Decides which environment variables are kept: those that are known to matter to builds. Of all
//! others a short digest is kept, so that two records can be compared.

use std::collections::BTreeMap;

use crate::Redact;

/// Variables that are kept, except secrets in their values. A name that ends with `*` stands for
/// all names with that prefix.
pub(crate) const KEPT: &[&str] = &[
    "AR",
    "AS",
    "ASFLAGS",
    "BAZEL*",
    "CARGO*",
    "CC",
    "CCACHE_*",
    "CFLAGS",
    "CI",
    "CLANG*",
    "CMAKE*",
    "COLLECT_*",
    "COMPILER_PATH",
    "CONFIG_SITE",
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "CPPFLAGS",
    "CXX",
    "CXXFLAGS",
    "C_INCLUDE_PATH",
    "DEB_BUILD_*",
    "DISTCC_*",
    "GCC_*",
    "GITHUB_ACTIONS",
    "GITHUB_JOB",
    "GITHUB_REF",
    "GITHUB_RUN_ID",
    "GITHUB_SHA",
    "GLIBC_TUNABLES",
    "GNUMAKEFLAGS",
    "GOFLAGS",
    "GOMAXPROCS",
    "HOME",
    "JAVA_HOME",
    "LANG",
    "LANGUAGE",
    "LARDER_*",
    "LC_*",
    "LD",
    "LDFLAGS",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LIBRARY_PATH",
    "MAKE*",
    "MALLOC_*",
    "MESON*",
    "MFLAGS",
    "NINJA_*",
    "NM",
    "NODE_OPTIONS",
    "OMP_*",
    "PATH",
    "PKG_CONFIG*",
    "PWD",
    "PYTHON*",
    "RANLIB",
    "RUST*",
    "SCCACHE_*",
    "SHELL",
    "SOURCE_DATE_EPOCH",
    "STRIP",
    "TERM",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
];

/// Variables that differ between shells and do not matter to a build.
const LEFT_OUT: &[&str] = &["_", "OLDPWD", "SHLVL", "WINDOWID", "LARDER_RECORD"];
const DIGEST_DIGITS: usize = 8;

/// Returns the kept variables, and the digests of the others.
pub(crate) fn environment(
    all: &[(Vec<u8>, Vec<u8>)],
    redact: &Redact,
) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let (mut kept, mut others) = (BTreeMap::new(), BTreeMap::new());
    for (name, value) in all {
        let text = String::from_utf8_lossy(name).into_owned();
        if LEFT_OUT.contains(&text.as_str()) {
            continue;
        }
        if is_kept(&text) {
            kept.insert(text, (redact.variable)(name, value));
        } else {
            others.insert(text, blake3::hash(value).to_hex()[..DIGEST_DIGITS].to_owned());
        }
    }
    (kept, others)
}

fn is_kept(name: &str) -> bool {
    KEPT.iter().any(|kept| match kept.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *kept,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept() {
        let variable = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        let all =
            [variable("CC", "gcc"), variable("MAKEFLAGS", "-j8"), variable("PRIVATE", "x"), variable("SHLVL", "2")];
        let (kept, others) = environment(&all, &Redact::nothing());
        assert_eq!(kept.keys().collect::<Vec<_>>(), ["CC", "MAKEFLAGS"]);
        assert_eq!(others.keys().collect::<Vec<_>>(), ["PRIVATE"]);
        assert!(!others["PRIVATE"].contains('x') && others["PRIVATE"].len() == DIGEST_DIGITS);
    }
}
