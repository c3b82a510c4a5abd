//! A whole configuration file, loaded and checked as at a start.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mono_config::{Env, check, load};
use std::path::PathBuf;
use std::sync::LazyLock;

static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("mono-config-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    folder.join("mono-agent.config.json")
});

fuzz_target!(|bytes: &[u8]| {
    std::fs::write(&*FILE, bytes).expect("the temporary folder takes a file");
    let env = Env::new();
    if let Err(errors) = load(&FILE, &env) {
        assert!(!errors.diagnostics.is_empty(), "refused without a reason");
    }
    let _ = check(&FILE, &env);
});
