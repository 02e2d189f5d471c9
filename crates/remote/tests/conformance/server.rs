//! What a test needs of a server that may not be installed.

/// The program of a server, or the end of the test with a printed reason.
#[macro_export]
macro_rules! need {
    ($name:expr) => {
        match larder_testkit::program($name) {
            Some(path) => path,
            None => {
                eprintln!("skipped: {} is not installed; cargo xtask setup installs it", $name);
                return;
            }
        }
    };
}
