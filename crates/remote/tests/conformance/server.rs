//! Skipping tests whose server is not installed.

/// Returns the path of a program, or ends the test with a printed reason.
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
