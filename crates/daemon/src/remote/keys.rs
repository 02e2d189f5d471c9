//! Reads the keys of the settings: the secret key that signs, and the public keys that are trusted.

use std::os::unix::fs::PermissionsExt;

use larder_config::Settings;
use larder_remote::Keys;

/// Permission bits: read and write for others.
const OTHERS: u32 = 0o006;

/// Returns the keys of the settings. If one cannot be read, no remote may be used, because it would
/// be unknown which records to trust.
pub(super) fn keys(settings: &Settings) -> Result<Keys, String> {
    let mut keys = Keys::default().in_namespace(&settings.remote_namespace);
    if let Some(path) = &settings.remote_sign_with {
        let secret = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        keys = keys.sign_with(secret.trim()).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    for public in &settings.remote_trust {
        keys = keys.believe(public).map_err(|error| format!("remote_trust: {error}"))?;
    }
    Ok(keys)
}

/// Returns a message if every user can read the secret key, and how to fix that. The key is used
/// anyway, because some CI services have no other way to give a file to a job.
pub(crate) fn exposed(settings: &Settings) -> Option<String> {
    let path = settings.remote_sign_with.as_ref()?;
    let mode = std::fs::metadata(path).ok()?.permissions().mode();
    let path = path.display();
    (mode & OTHERS != 0).then(|| {
        format!("{path} holds the secret key of remote_sign_with, and every user of this machine can read it: chmod 600 {path}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_everybody_can_read_is_said() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("team.key");
        std::fs::write(&path, "07".repeat(32)).expect("writes");
        let settings = Settings { remote_sign_with: Some(path.clone()), ..Settings::default() };
        assert!(keys(&settings).is_ok());
        for (mode, said) in [(0o600, false), (0o640, false), (0o644, true), (0o666, true)] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("sets");
            assert_eq!(exposed(&settings).is_some_and(|why| why.contains("chmod 600 ")), said, "{mode:o}");
        }
    }
}
