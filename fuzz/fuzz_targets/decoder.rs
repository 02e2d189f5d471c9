//! The target of cargo-fuzz: the decoder that the variable `LARDER_FUZZ_TARGET` names.
#![no_main]

use std::sync::LazyLock;

static TARGET: LazyLock<String> = LazyLock::new(|| std::env::var("LARDER_FUZZ_TARGET").expect("names a decoder"));

libfuzzer_sys::fuzz_target!(|data: &[u8]| larder_fuzz::run(&TARGET, data));
