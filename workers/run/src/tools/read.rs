//! `Read`: a text file by lines, or an image.

use super::path::{PathError, Places};
use super::{ToolOutput, picture};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Bytes of a text file (facts 4.1).
const MAX_SOURCE: u64 = 16 * 1024 * 1024;
/// Bytes of an image file.
const MAX_IMAGE: u64 = 20 * 1024 * 1024;
/// Characters shown (facts 4.1).
const MAX_CHARS: usize = 16_000;
/// Bytes looked at to tell text from something else.
const SNIFF: usize = 8192;

/// What the model is told about the tool.
pub const DESCRIPTION: &str = "Read a file. Text is returned as it is, up to 16,000 characters from \
start_line (1-based) or after offset lines, at most limit lines; a note says where to go on. PNG, JPEG, \
GIF and WebP files up to 20 MiB are returned as images, scaled to 2,000 pixels. Paths are relative to the workspace or absolute.";

/// Arguments.
#[derive(Debug, Deserialize)]
pub struct Args {
    file_path: String,
    offset: Option<usize>,
    start_line: Option<usize>,
    limit: Option<usize>,
    max_output_chars: Option<usize>,
}

/// JSON Schema of [`Args`].
#[must_use]
pub fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "file_path": { "type": "string", "minLength": 1, "maxLength": super::path::MAX_PATH, "description": "Path of the file." },
            "offset": { "type": "integer", "minimum": 0, "description": "Lines to skip; use this or start_line." },
            "start_line": { "type": "integer", "minimum": 1, "description": "First line to show, counted from 1." },
            "limit": { "type": "integer", "minimum": 1, "description": "Most lines to show." },
            "max_output_chars": { "type": "integer", "minimum": 1, "maximum": MAX_CHARS }
        },
        "required": ["file_path"],
        "additionalProperties": false
    })
}

/// Reads the file.
///
/// # Errors
/// A sentence for the model.
pub fn run(places: &Places, args: &Args) -> Result<ToolOutput, String> {
    let first = match (args.offset, args.start_line) {
        (Some(_), Some(_)) => return Err("Give offset or start_line, not both.".to_owned()),
        (Some(offset), None) => offset,
        (None, Some(line)) => line - 1,
        (None, None) => 0,
    };
    let path = places
        .resolve("file_path", &args.file_path)
        .map_err(|e| e.to_string())?;
    let shown = places.show(&path);
    let (bytes, _) = places
        .read_file(&path, MAX_IMAGE)
        .map_err(|e| e.to_string())?;
    if let Some(format) = picture::format(&bytes) {
        let (image, line) =
            picture::shown(&bytes, format).map_err(|told| format!("{shown} {told}."))?;
        return Ok(ToolOutput {
            images: vec![image],
            ..ToolOutput::success(format!("[{shown}: {line}.]"))
        });
    }
    if bytes.len() as u64 > MAX_SOURCE {
        let error = PathError::TooLarge {
            path: shown,
            found: bytes.len() as u64,
            max: MAX_SOURCE,
        };
        return Err(format!("{error}; read it in pieces with a command"));
    }
    if bytes.iter().take(SNIFF).any(|byte| *byte == 0) {
        return Err(format!(
            "{shown} is a binary file ({} bytes) and no image that can be shown; inspect it with a command",
            bytes.len()
        ));
    }
    let text = String::from_utf8_lossy(&bytes);
    let max_chars = args.max_output_chars.unwrap_or(MAX_CHARS);
    let mut out = page(&text, first, args.limit.unwrap_or(usize::MAX), max_chars)?;
    if matches!(text, std::borrow::Cow::Owned(_)) {
        out.push_str(
            "\n[The file is not valid UTF-8; bytes that could not be read show as \u{fffd}.]",
        );
    }
    Ok(ToolOutput::success(out))
}

fn page(text: &str, first: usize, limit: usize, max_chars: usize) -> Result<String, String> {
    if text.is_empty() {
        return Ok("[The file is empty.]".to_owned());
    }
    let total = text.lines().count();
    if first >= total {
        return Err(format!(
            "The file has {total} lines; line {} is behind its end.",
            first + 1
        ));
    }
    let mut out = String::new();
    let mut room = max_chars;
    let mut shown = 0;
    let mut cut_line = false;
    for line in text.split_inclusive('\n').skip(first).take(limit) {
        let chars = line.chars().count();
        if chars > room {
            // A page never ends inside a line, unless that line alone is more than a page.
            if shown == 0 {
                out.extend(line.chars().take(room));
                shown = 1;
                cut_line = true;
            }
            break;
        }
        out.push_str(line);
        room -= chars;
        shown += 1;
    }
    let last = first + shown;
    if cut_line {
        let _ = write!(
            out,
            "\n[Line {last} is longer than {max_chars} characters and was cut. {total} lines in all.]"
        );
    } else if first > 0 || last < total {
        let separator = if out.ends_with('\n') { "" } else { "\n" };
        let _ = write!(out, "{separator}[Lines {}-{last} of {total}.", first + 1);
        if last < total {
            let _ = write!(out, " Go on with start_line {}.", last + 1);
        }
        out.push(']');
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8], args: Value) -> Result<ToolOutput, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), bytes).unwrap();
        let mut args = args;
        args["file_path"] = json!("f");
        let args: Args = super::super::args::check(&schema(), args)?;
        run(&Places::new(dir.path(), "/scratch"), &args)
    }

    fn text(bytes: &[u8], args: Value) -> String {
        read(bytes, args).unwrap().text
    }

    #[test]
    fn lines_are_paged_with_a_note_that_leads_on() {
        let file = b"a\nb\nc\nd\n";
        assert_eq!(text(file, json!({})), "a\nb\nc\nd\n");
        assert_eq!(
            text(file, json!({"limit": 2})),
            "a\nb\n[Lines 1-2 of 4. Go on with start_line 3.]"
        );
        assert_eq!(
            text(file, json!({"start_line": 3})),
            "c\nd\n[Lines 3-4 of 4.]"
        );
        assert_eq!(
            text(file, json!({"offset": 2, "limit": 1})),
            "c\n[Lines 3-3 of 4. Go on with start_line 4.]"
        );
        assert!(
            read(file, json!({"offset": 1, "start_line": 1}))
                .unwrap_err()
                .contains("not both")
        );
        assert!(
            read(file, json!({"start_line": 5}))
                .unwrap_err()
                .contains("4 lines")
        );
        assert_eq!(text(b"", json!({})), "[The file is empty.]");
    }

    #[test]
    fn output_keeps_whole_lines_and_cuts_only_a_line_longer_than_a_page() {
        assert_eq!(
            text(b"abc\ndefgh\n", json!({"max_output_chars": 5})),
            "abc\n[Lines 1-1 of 2. Go on with start_line 2.]"
        );
        let long = "x".repeat(MAX_CHARS + 1);
        let shown = text(long.as_bytes(), json!({}));
        assert!(shown.starts_with(&"x".repeat(MAX_CHARS)) && shown.contains("was cut"));
        assert!(
            read(b"a", json!({"max_output_chars": MAX_CHARS + 1}))
                .unwrap_err()
                .contains("max_output_chars")
        );
        assert_eq!(
            text("x".repeat(MAX_CHARS).as_bytes(), json!({})).len(),
            MAX_CHARS
        );
    }

    #[test]
    fn binary_is_refused_and_broken_text_is_shown_with_a_note() {
        assert!(
            read(b"\x7fELF\0\0", json!({}))
                .unwrap_err()
                .contains("binary")
        );
        let shown = text(b"caf\xe9\n", json!({}));
        assert!(shown.starts_with("caf\u{fffd}\n") && shown.contains("not valid UTF-8"));
    }

    #[test]
    fn images_come_as_images_up_to_their_bound() {
        let mut out = std::io::Cursor::new(Vec::new());
        image::DynamicImage::new_rgb8(1, 1)
            .write_to(&mut out, image::ImageFormat::Gif)
            .unwrap();
        let mut gif = out.into_inner();
        let out = read(&gif, json!({})).unwrap();
        assert_eq!(
            (out.images[0].media_type.as_str(), out.images.len()),
            ("image/gif", 1)
        );
        // A GIF may be followed by anything.
        gif.resize(usize::try_from(MAX_IMAGE).unwrap(), 7);
        assert!(read(&gif, json!({})).is_ok());
        gif.push(7);
        assert!(
            read(&gif, json!({}))
                .unwrap_err()
                .contains("at most 20971520")
        );
        assert!(
            read(b"\x89PNG\r\n\x1a\nrest", json!({}))
                .unwrap_err()
                .contains("no picture")
        );
    }

    #[test]
    fn text_over_sixteen_mebibytes_is_refused() {
        let mut big = vec![b'a'; usize::try_from(MAX_SOURCE).unwrap()];
        assert!(read(&big, json!({})).is_ok());
        big.push(b'a');
        assert!(
            read(&big, json!({}))
                .unwrap_err()
                .contains("at most 16777216")
        );
    }

    proptest! {
        #[test]
        fn pages_put_together_are_the_file(lines in proptest::collection::vec("[a-zä]{0,6}", 1..20), limit in 1_usize..6) {
            let file: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let mut first = 0;
            let mut whole = String::new();
            while first < lines.len() {
                let shown = page(&file, first, limit, 1000).unwrap();
                for line in shown.split_inclusive('\n').filter(|line| !line.starts_with('[')) {
                    whole.push_str(line);
                    first += 1;
                }
            }
            prop_assert_eq!(whole, file);
        }
    }
}
