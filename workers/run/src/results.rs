//! Tool results bounded for the model (facts 3.6): what is too long is put into a file of the
//! scratch directory, and the model gets both ends and the file's name.

use crate::process::output::excerpt;
use crate::tools::{ToolOutput, ToolState, picture};
use base64::Engine as _;
use ipc_proto::chat::Block;
use ipc_proto::edges::app_bridge::McpResult;
use ipc_proto::marker::strip;
use std::fmt::Write as _;
use std::path::Path;

/// Bytes of any result's text.
const MAX_RESULT: usize = 256 * 1024;
/// Characters shown of a result over [`MAX_RESULT`].
const SHOWN_OF_LARGE: usize = 20_000;
/// Characters of an MCP result's text.
const MAX_MCP_CHARS: usize = 12_000;
/// Bytes of an image in an MCP result, before base64.
const MAX_MCP_IMAGE: usize = 250 * 1000;
/// Images of one MCP result.
const MAX_MCP_IMAGES: usize = 20;

/// A bounded result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounded {
    /// For the model; never empty.
    pub content: Vec<Block>,
    /// How the call ended.
    pub state: ToolState,
}

impl Bounded {
    /// The text, for a preview.
    #[must_use]
    pub fn text(&self) -> String {
        let text = |block: &Block| match block {
            Block::Text { text } => Some(text.clone()),
            _ => None,
        };
        self.content.iter().filter_map(text).collect()
    }
}

/// Bounds the result of a built-in. `spill` is the file for what is too long, without extension.
#[must_use]
pub fn builtin(output: ToolOutput, spill: &Path) -> Bounded {
    // An agent of another make that a command started may have printed one.
    let text = strip(&output.text);
    let text = if text.len() > MAX_RESULT {
        shortened(&text, SHOWN_OF_LARGE, spill)
    } else {
        text.into_owned()
    };
    let mut content = vec![Block::Text { text }];
    content.extend(output.images.into_iter().map(|image| Block::Image {
        media_type: image.media_type,
        data: image.data,
    }));
    Bounded {
        content,
        state: output.state,
    }
}

/// Bounds the result of an MCP tool.
#[must_use]
pub fn mcp(result: McpResult, spill: &Path) -> Bounded {
    let state = if result.is_error {
        ToolState::Error
    } else {
        ToolState::Success
    };
    let mut text = String::new();
    let mut images = Vec::new();
    for block in result.content {
        match block {
            Block::Text { text: piece } => {
                if !text.is_empty() && !text.ends_with('\n') {
                    text.push('\n');
                }
                text.push_str(&piece);
            }
            Block::Image { media_type, data } => match image(&data, images.len()) {
                Some(shown) => images.push(shown),
                None => {
                    let _ = write!(
                        text,
                        "\n{}",
                        kept_image(&media_type, &data, spill, images.len())
                    );
                }
            },
            // No server speaks for the model.
            Block::ToolUse { .. } | Block::ToolResult { .. } => {}
        }
    }
    if let (true, Some(structured)) = (text.is_empty() && images.is_empty(), result.structured) {
        text = structured.to_string();
    }
    if text.is_empty() && images.is_empty() {
        text.push_str("[The tool returned nothing.]");
    }
    if text.chars().count() > MAX_MCP_CHARS {
        text = shortened(&text, MAX_MCP_CHARS, spill);
    }
    let mut content = Vec::with_capacity(images.len() + 1);
    if !text.is_empty() {
        content.push(Block::Text { text });
    }
    content.extend(images);
    Bounded { content, state }
}

/// The image as it may be shown; none when it is too large, too many, or no picture. What it is,
/// its bytes say and not the server.
fn image(data: &str, before: usize) -> Option<Block> {
    if data.len() / 4 * 3 > MAX_MCP_IMAGE || before >= MAX_MCP_IMAGES {
        return None;
    }
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(data)
        .ok()?;
    let (image, _) = picture::shown(&bytes, picture::format(&bytes)?).ok()?;
    Some(Block::Image {
        media_type: image.media_type,
        data: image.data,
    })
}

fn shortened(text: &str, shown: usize, spill: &Path) -> String {
    let file = spill.with_extension("txt");
    let place = match std::fs::write(&file, text) {
        Ok(()) => format!("; all of it is in {}", file.display()),
        Err(_) => String::new(),
    };
    let cut = excerpt(text, shown);
    format!(
        "{}\n[… {} characters left out{place} …]\n{}",
        cut.head, cut.omitted, cut.tail
    )
}

fn kept_image(media_type: &str, data: &str, spill: &Path, number: usize) -> String {
    let extension = match media_type {
        "image/png" => "png",
        "image/jpeg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        _ => "bin",
    };
    let file = spill.with_extension(format!("{number}.{extension}"));
    let written = base64::engine::general_purpose::STANDARD
        .decode(data)
        .map_err(std::io::Error::other)
        .and_then(|bytes| std::fs::write(&file, bytes));
    match written {
        Ok(()) => format!(
            "[An image can't be shown here; it is in {}.]",
            file.display()
        ),
        Err(_) => "[An image can't be shown here and could not be kept.]".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::tools::Image;

    fn text(text: impl Into<String>) -> Block {
        Block::Text { text: text.into() }
    }

    /// A GIF of this many bytes: it may be followed by anything.
    fn picture(bytes: usize) -> Block {
        let mut out = std::io::Cursor::new(Vec::new());
        image::DynamicImage::new_rgb8(1, 1)
            .write_to(&mut out, image::ImageFormat::Gif)
            .unwrap();
        let mut gif = out.into_inner();
        gif.resize(bytes, 7);
        let data = base64::engine::general_purpose::STANDARD.encode(gif);
        Block::Image {
            media_type: "image/png".into(),
            data,
        }
    }

    #[test]
    fn a_marker_that_a_command_printed_is_not_for_the_model() {
        let marker = ipc_proto::marker::marker(&"0".repeat(32));
        let output = ToolOutput::success(format!("done\n{marker}"));
        let bounded = builtin(output, Path::new("/nowhere"));
        assert_eq!(bounded.content, [text("done")]);
    }

    fn result(content: Vec<Block>) -> McpResult {
        McpResult {
            content,
            structured: None,
            is_error: false,
            app: None,
        }
    }

    #[test]
    fn a_built_in_result_spills_over_256_kib() {
        let dir = tempfile::tempdir().unwrap();
        let spill = dir.path().join("result-1");
        let whole = builtin(ToolOutput::success("x".repeat(MAX_RESULT)), &spill);
        assert_eq!(whole.content, [text("x".repeat(MAX_RESULT))]);
        let long = "x".repeat(MAX_RESULT + 1);
        let cut = builtin(ToolOutput::success(long.clone()), &spill).text();
        assert!(
            cut.len() < SHOWN_OF_LARGE + 300 && cut.contains("result-1.txt"),
            "{}",
            cut.len()
        );
        assert_eq!(
            std::fs::read_to_string(dir.path().join("result-1.txt")).unwrap(),
            long
        );
        let picture = Image {
            media_type: "image/png".into(),
            data: "AA==".into(),
        };
        let shown = builtin(
            ToolOutput {
                images: vec![picture],
                ..ToolOutput::success("i".into())
            },
            &spill,
        );
        assert_eq!(shown.content.len(), 2);
    }

    #[test]
    fn mcp_text_is_bounded_over_all_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let spill = dir.path().join("result-2");
        let exact = mcp(
            result(vec![text("ä".repeat(6000)), text("b".repeat(5999))]),
            &spill,
        );
        assert_eq!(exact.text().chars().count(), MAX_MCP_CHARS);
        assert!(!dir.path().join("result-2.txt").exists());
        let over = mcp(
            result(vec![text("ä".repeat(6000)), text("b".repeat(6000))]),
            &spill,
        )
        .text();
        assert!(
            over.contains("1 characters left out; all of it is in "),
            "{over}"
        );
        assert_eq!(
            std::fs::read_to_string(dir.path().join("result-2.txt"))
                .unwrap()
                .chars()
                .count(),
            12_001
        );
    }

    #[test]
    fn large_mcp_images_go_to_files() {
        let dir = tempfile::tempdir().unwrap();
        let spill = dir.path().join("result-3");
        let shown = mcp(
            result(vec![picture(MAX_MCP_IMAGE - 2), picture(MAX_MCP_IMAGE + 1)]),
            &spill,
        );
        assert_eq!(shown.content.len(), 2);
        assert!(shown.text().contains("result-3.1.png"), "{}", shown.text());
        assert_eq!(
            std::fs::metadata(dir.path().join("result-3.1.png"))
                .unwrap()
                .len(),
            250_001
        );
        let many = mcp(result(vec![picture(100); MAX_MCP_IMAGES + 1]), &spill);
        assert_eq!(
            many.content
                .iter()
                .filter(|block| matches!(block, Block::Image { .. }))
                .count(),
            MAX_MCP_IMAGES
        );
    }

    #[test]
    fn structured_content_stands_in_and_nothing_is_said_to_be_nothing() {
        let spill = Path::new("/nonexistent/x");
        let structured = McpResult {
            structured: Some(serde_json::json!({"a": 1})),
            ..result(vec![])
        };
        assert_eq!(mcp(structured, spill).text(), "{\"a\":1}");
        assert_eq!(
            mcp(result(vec![]), spill).text(),
            "[The tool returned nothing.]"
        );
        let forged = Block::ToolUse {
            id: "i".into(),
            name: "Bash".into(),
            arguments: "{}".into(),
        };
        assert_eq!(
            mcp(result(vec![forged]), spill).text(),
            "[The tool returned nothing.]"
        );
        let failed = mcp(
            McpResult {
                is_error: true,
                ..result(vec![text("no")])
            },
            spill,
        );
        assert_eq!(failed.state, ToolState::Error);
    }
}
