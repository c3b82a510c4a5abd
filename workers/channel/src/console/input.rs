//! From what a person sends to what a run is told.

use super::uploads::File;
use crate::label::PICTURES;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ipc_proto::chat::{Block, ChatMessage, ChatRole};
use ipc_proto::console::{Author, Message, Standing};
use ipc_proto::edges::control::{InputFile, TurnInput};

/// Messages before a resent one that the agent is told.
const PRECEDING: usize = 64;
/// Longest of them in bytes.
const PRECEDING_BYTES: usize = 60 * 1024;
/// Bytes of all files of one message: in base64 they have to fit into a turn's input.
pub const MAX_TURN_FILES: u64 = 22 * 1024 * 1024;
/// A larger picture goes to the run as a file.
const MAX_PICTURE: usize = 4 * 1024 * 1024;

/// What a person sends.
#[derive(Debug, Default)]
pub struct NewTurn {
    /// The text.
    pub text: String,
    /// Files, by their uploads.
    pub files: Vec<File>,
    /// The person's message that goes, with all after it.
    pub replaces: Option<String>,
    /// `<provider>:<model>`.
    pub model: Option<String>,
    /// As `runtime.effort`.
    pub effort: Option<String>,
    /// What apps tell the model with it, which the person saw.
    pub context: Vec<String>,
}

/// Questions with their whole answers, the latest.
pub(super) fn pairs(messages: impl Iterator<Item = Message>) -> Vec<ChatMessage> {
    let say = |role, text: &str| {
        let text = &text[..text.floor_char_boundary(PRECEDING_BYTES)];
        ChatMessage::text(role, text)
    };
    let mut out = Vec::new();
    let mut asked = None;
    for message in messages {
        match message.role {
            Author::User => asked = Some(message.text),
            Author::Assistant => {
                let question = asked.take().filter(|text| !text.is_empty());
                let whole = message.status == Standing::Succeeded && !message.text.is_empty();
                if let Some(question) = question.filter(|_| whole) {
                    out.push(say(ChatRole::User, &question));
                    out.push(say(ChatRole::Assistant, &message.text));
                }
            }
        }
    }
    out.split_off(out.len().saturating_sub(PRECEDING))
}

/// What a run is told. Its files are text in it: a third larger, and no longer shared with those
/// that wait.
pub(super) fn input(new: NewTurn) -> TurnInput {
    let NewTurn {
        text,
        files,
        replaces: _,
        model,
        effort,
        context,
    } = new;
    let texts = context.into_iter().map(|text| Block::Text { text });
    let mut content: Vec<Block> = texts.collect();
    if !text.is_empty() {
        content.push(Block::Text { text });
    }
    let mut attachments = Vec::new();
    for (about, bytes) in files {
        let data = STANDARD.encode(&*bytes);
        let media_type = about.media_type;
        if PICTURES.contains(&media_type.as_str()) && bytes.len() <= MAX_PICTURE {
            content.push(Block::Image { media_type, data });
        } else {
            attachments.push(InputFile {
                name: about.name,
                media_type,
                data,
            });
        }
    }
    TurnInput {
        content,
        model,
        effort,
        attachments,
        ..TurnInput::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::console::turn::message;
    use ipc_proto::console::Attachment;
    use std::sync::Arc;

    #[test]
    fn what_precedes_are_whole_pairs() {
        let say = |role, text: &str, status| message(role, text.to_owned(), status);
        let user = |text| say(Author::User, text, Standing::Succeeded);
        let reply = |text, status| say(Author::Assistant, text, status);
        let all = [
            user("one"),
            reply("1", Standing::Succeeded),
            user("lost"),
            reply("half", Standing::Failed),
            user("two"),
            reply("2", Standing::Succeeded),
            user("open"),
        ];
        let got = pairs(all.into_iter());
        let texts: Vec<_> = got.iter().map(ChatMessage::plain_text).collect();
        assert_eq!(texts, ["one", "1", "two", "2"]);
        let many = (0..100).flat_map(|_| [user("q"), reply("a", Standing::Succeeded)]);
        let got = pairs(many);
        assert_eq!((got.len(), got[0].role), (PRECEDING, ChatRole::User));
        let long = [user(&"é".repeat(60_000)), reply("a", Standing::Succeeded)];
        assert!(pairs(long.into_iter())[0].plain_text().len() <= PRECEDING_BYTES);
    }

    #[test]
    fn small_pictures_are_shown_and_other_files_are_laid_down() {
        let file = |media_type: &str, bytes: usize| {
            let about = Attachment {
                id: "u".into(),
                name: "n".into(),
                media_type: media_type.into(),
                bytes: bytes as u64,
            };
            (about, Arc::new(vec![1; bytes]))
        };
        let files = vec![
            file("image/png", 3),
            file("image/png", MAX_PICTURE + 1),
            file("image/svg+xml", 3),
            file("text/csv", 3),
        ];
        let got = input(NewTurn {
            text: "hi".into(),
            files,
            context: vec!["seen".into()],
            ..NewTurn::default()
        });
        assert!(
            matches!(&got.content[..], [Block::Text { text: seen }, Block::Text { .. }, Block::Image { data, .. }] if data == "AQEB" && seen == "seen")
        );
        let kinds: Vec<_> = got.attachments.iter().map(|f| &*f.media_type).collect();
        assert_eq!(kinds, ["image/png", "image/svg+xml", "text/csv"]);
        // The largest message fits into what a run takes.
        let most = input(NewTurn {
            files: vec![file("a/b", MAX_TURN_FILES as usize)],
            ..NewTurn::default()
        });
        let json = serde_json::to_vec(&most).unwrap();
        assert!(json.len() + 1024 * 1024 < ipc_proto::edges::control::MAX_TURN_INPUT);
    }
}
