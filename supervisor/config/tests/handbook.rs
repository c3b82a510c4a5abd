//! The handbook's table of keys is the key table's.
#![allow(clippy::unwrap_used)]

use std::path::Path;

const BEGIN: &str = "<!-- keys: begin -->\n";
const END: &str = "<!-- keys: end -->\n";

/// With `MONO_UPDATE_DOCS=1` the page is written instead of compared.
#[test]
fn the_handbook_knows_every_key() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let keys = mono_config::docs_markdown();
    let right = format!("{before}{BEGIN}\n{}\n\n{END}{after}", keys.trim_end());
    if std::env::var_os("MONO_UPDATE_DOCS").is_some() {
        std::fs::write(&page, &right).unwrap();
    }
    assert!(
        std::fs::read_to_string(&page).unwrap() == right,
        "docs/configuration.md is not what the key table says: run this test with MONO_UPDATE_DOCS=1"
    );
}
