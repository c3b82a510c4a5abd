//! What a run says a file is called and what it is, and the path that it gives.
//!
//! Three lines: the requested name, the file's name, the media type; the path is the whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mono_artifact::index::Position;
use mono_artifact::name::{MAX_NAME, display_name, is_display_name, is_media_type, media_type};
use mono_artifact::source::SourcePath;

fuzz_target!(|text: &str| {
    let mut lines = text.splitn(3, '\n');
    let asked = lines.next();
    let file = lines.next().unwrap_or_default();
    let shown = display_name(asked, file);
    assert!(is_display_name(&shown), "{shown:?}");
    assert!(shown.len() <= MAX_NAME && !shown.contains(['/', '\\', '\0', '\n']));
    assert!(is_media_type(&media_type(lines.next(), &shown, file)));
    if let Ok(path) = SourcePath::parse(text) {
        let all = path.directories().iter().map(String::as_str);
        for component in all.chain([path.file_name()]) {
            assert!(!matches!(component, "" | "." | "..") && !component.contains(['/', '\0']));
        }
    }
    if let Some(position) = Position::parse(text) {
        assert_eq!(position.cursor(), text);
    }
});
