//! The keys of the settings: who signs, and who is believed.

use std::os::unix::fs::PermissionsExt;

use larder_config::Settings;
use larder_remote::Keys;

/// Read and write for those who are neither the owner nor of the group.
const OTHERS: u32 = 0o006;

/// An error where one cannot be read: then no remote is used, since nobody would know whom to believe.
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

/// What is wrong with how the secret key is kept, and how to mend it. It is used nevertheless: some CI services know no
/// other way to hand a file to a job.
pub(crate) fn exposed(settings: &Settings) -> Option<String> {
    let path = settings.remote_sign_with.as_ref()?;
    let mode = std::fs::metadata(path).ok()?.permissions().mode();
    let path = path.display();
    (mode & OTHERS != 0).then(|| {
        format!("{path} holds the secret key of remote_sign_with, and everybody on this machine can read it: chmod 600 {path}")
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
