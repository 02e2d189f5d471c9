//! `larder run`, which the wrapper handles. This is reached only by typing `larderd run`.

use anyhow::{Result, bail};

use crate::surroundings::Surroundings;

/// Fails with a message that names the wrapper.
pub(crate) fn run(around: &Surroundings) -> Result<u8> {
    match &around.wrapper {
        Some(wrapper) => bail!("run: larderd does not run commands: use {} run -- COMMAND", wrapper.display()),
        None => bail!(
            "run: larderd does not run commands, and the wrapper is not beside it: install larder in the same directory"
        ),
    }
}
