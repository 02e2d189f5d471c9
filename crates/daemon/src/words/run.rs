//! `larder run`: the wrapper's own, here only for those who typed `larderd run`.

use anyhow::{Result, bail};

use crate::surroundings::Surroundings;

/// Say who does this.
pub(crate) fn run(around: &Surroundings) -> Result<u8> {
    match &around.wrapper {
        Some(wrapper) => bail!("run: the wrapper runs commands: use {} run -- COMMAND", wrapper.display()),
        None => bail!("run: the wrapper runs commands, and it is not beside larderd: install larder there"),
    }
}
