//! A manifest read back from the disk: what is taken can be written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mono_artifact::manifest::Manifest;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(manifest) = Manifest::parse(bytes) {
        let again = manifest.encode().map(|bytes| Manifest::parse(&bytes));
        assert!(matches!(again, Ok(Ok(again)) if again == manifest));
        let _ = (manifest.part(), manifest.record());
    }
});
