//! The program `larder` on systems without an observer: it runs the tool unchanged, in the
//! scheduling class of the settings.

use std::ffi::OsString;
use std::io::Read;
use std::path::Path;

use larder_config::{FILE_BYTES_MAX, Surroundings};
use larder_sys::Class;

/// Runs the tool that the arguments name, and exits as the tool does.
pub(crate) fn run() -> ! {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let Some(tool) = arguments.first() else {
        eprintln!("larder: usage: larder COMPILER ARGUMENT…");
        std::process::exit(2);
    };
    let argv: Vec<Vec<u8>> = arguments.iter().map(|argument| argument.as_encoded_bytes().to_vec()).collect();
    let variables: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let environment: Vec<Vec<u8>> = variables
        .iter()
        .map(|(name, value)| [name.as_encoded_bytes(), b"=", value.as_encoded_bytes()].concat())
        .collect();
    let program = along_path(tool);
    let error = larder_sys::run_and_end(program.as_encoded_bytes(), &argv, &environment, class(&variables));
    eprintln!("larder: {}: {error}", tool.display());
    std::process::exit(127);
}

/// Returns the scheduling class, from the same files and variables as on Linux.
fn class(variables: &[(OsString, OsString)]) -> Class {
    let own = std::env::current_exe().ok();
    let cwd = std::env::current_dir().ok();
    let read = |path: &Path| {
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let loaded = larder_config::load(&Surroundings {
        env: variables,
        read: &read,
        home: &|| None,
        wrapper_dir: own.as_deref().and_then(Path::parent),
        cwd: cwd.as_deref(),
    });
    match loaded.settings.class {
        larder_config::Class::Inherit => Class::Inherit,
        larder_config::Class::Utility => Class::Utility,
        larder_config::Class::Background => Class::Background,
    }
}

/// Returns the path of the program, or `tool` itself if it is not found. The system then reports
/// the error.
fn along_path(tool: &OsString) -> OsString {
    let is_a_path = Path::new(tool).components().count() > 1;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|directory| directory.join(tool)).find(|path| path.is_file());
    match found {
        Some(path) if !is_a_path => path.into_os_string(),
        _ => tool.clone(),
    }
}
