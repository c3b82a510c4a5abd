//! What of a conversation a model gets to see: pure rules over messages.
//!
//! Facts 3.2: the latest 64 messages of one exact conversation, 64 KiB per message. Two more rules
//! keep the result usable by every provider: a turn is taken whole (spec s1 counts in whole turns
//! too), and a tool's result never stands without its call or a call without its result.

use crate::text::cut;
use ipc_proto::chat::{Block, ChatMessage, ChatRole};
use std::collections::{HashMap, VecDeque};

/// Stands at the end of text that was cut, and for an image that was left out.
pub const MARK: &str = "[cut: over the history's bound]";
/// Stands for the content of a message that can't be cut to the bound.
pub const LEFT_OUT: &str = "[message left out: over the history's bound]";
/// Longest id or name of a tool call in bytes; providers use less than 100.
const CALL_NAME: usize = 256;
/// Strings are not cut below this, so that the mark fits.
const SHORTEST: usize = 64;

/// One stored message and the turn it belongs to.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The run, or the key of an append.
    pub turn: String,
    /// When it was entered, in milliseconds since 1970.
    pub at: i64,
    /// The message.
    pub message: ChatMessage,
}

/// Size of a message's content as stored, in bytes of JSON.
#[must_use]
pub fn size(content: &[Block]) -> usize {
    // Strings and vectors of these types can't fail to serialise; a failure would only mean "too
    // large" and lead to the fixed text.
    serde_json::to_vec(content).map_or(usize::MAX, |json| json.len())
}

/// Brings a message's content to at most `max` bytes of JSON by cutting its longest strings.
///
/// `max` is at least 256. Calls and their results stay paired unless there are hundreds of them.
#[must_use]
pub fn fit(content: &[Block], max: usize) -> Vec<Block> {
    if size(content) <= max && content.iter().all(names_bounded) {
        return content.to_vec();
    }
    // The largest bound for single strings with which the whole fits: bisection, since the size
    // grows with the bound.
    let (mut low, mut high) = (SHORTEST, max);
    let mut best = shrink(content, low);
    if size(&best) > max || !content.iter().all(names_bounded) {
        return vec![Block::Text {
            text: LEFT_OUT.to_owned(),
        }];
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        let candidate = shrink(content, middle);
        if size(&candidate) <= max {
            (low, best) = (middle, candidate);
        } else {
            high = middle;
        }
    }
    best
}

fn names_bounded(block: &Block) -> bool {
    match block {
        Block::ToolUse { id, name, .. } => id.len().max(name.len()) <= CALL_NAME,
        Block::ToolResult {
            id, name, content, ..
        } => id.len().max(name.len()) <= CALL_NAME && content.iter().all(names_bounded),
        Block::Text { .. } | Block::Image { .. } => true,
    }
}

/// Every string of `content` cut to at most `bound` bytes.
fn shrink(content: &[Block], bound: usize) -> Vec<Block> {
    content
        .iter()
        .map(|block| shrink_block(block, bound))
        .collect()
}

fn shrink_block(block: &Block, bound: usize) -> Block {
    match block {
        Block::Text { text } => Block::Text {
            text: cut(text, bound, MARK),
        },
        // A part of an image is no image.
        Block::Image { media_type, data } if data.len() > bound || media_type.len() > CALL_NAME => {
            Block::Text {
                text: MARK.to_owned(),
            }
        }
        Block::Image { .. } => block.clone(),
        // The arguments stay JSON: a provider would refuse the whole request otherwise.
        Block::ToolUse {
            id,
            name,
            arguments,
        } if arguments.len() > bound => Block::ToolUse {
            id: id.clone(),
            name: name.clone(),
            arguments: serde_json::json!({ "cut": cut(arguments, bound, MARK) }).to_string(),
        },
        Block::ToolUse { .. } => block.clone(),
        Block::ToolResult {
            id,
            name,
            content,
            is_error,
        } => Block::ToolResult {
            id: id.clone(),
            name: name.clone(),
            content: shrink(content, bound),
            is_error: *is_error,
        },
    }
}

/// Picks from a conversation's newest entries what a run starts from.
///
/// `entries` are oldest first and hold at least the newest `max + 1`, or all there are. The result
/// is at most `max` messages in whole turns. A single turn of more than `max` messages gives its
/// first (what the person said) and its newest.
#[must_use]
pub fn window(entries: &[Entry], max: usize) -> Vec<Entry> {
    let start = entries.len().saturating_sub(max);
    let mut kept: Vec<&Entry> = entries[start..].iter().collect();
    if let (Some(before), Some(first)) = (start.checked_sub(1).map(|i| &entries[i]), kept.first()) {
        let turn = first.turn.as_str();
        if before.turn == turn {
            match kept.iter().position(|entry| entry.turn != turn) {
                Some(whole) => drop(kept.drain(..whole)),
                None => {
                    let opening = entries.iter().find(|entry| entry.turn == turn);
                    kept.splice(..1, opening);
                }
            }
        }
    }
    let mut messages: Vec<ChatMessage> = kept.iter().map(|e| e.message.clone()).collect();
    pair_up(&mut messages);
    let with_its_turn = |(entry, message): (&Entry, ChatMessage)| Entry {
        turn: entry.turn.clone(),
        at: entry.at,
        message,
    };
    let whole = kept.into_iter().zip(messages).map(with_its_turn);
    whole.filter(|e| !e.message.content.is_empty()).collect()
}

/// Removes calls without a result and results without a call. What is empty after that stays.
///
/// Some models use the same id again in a later turn, so a result answers the oldest open call.
fn pair_up(messages: &mut [ChatMessage]) {
    let mut kept: Vec<bool> = Vec::new();
    let mut open: HashMap<&str, VecDeque<usize>> = HashMap::new();
    for (index, block) in messages
        .iter()
        .flat_map(|message| &message.content)
        .enumerate()
    {
        let verdict = match block {
            Block::ToolUse { id, .. } => {
                open.entry(id).or_default().push_back(index);
                false
            }
            Block::ToolResult { id, .. } => {
                match open.get_mut(id.as_str()).and_then(VecDeque::pop_front) {
                    Some(call) => {
                        kept[call] = true;
                        true
                    }
                    None => false,
                }
            }
            Block::Text { .. } | Block::Image { .. } => true,
        };
        kept.push(verdict);
    }
    let mut verdicts = kept.into_iter();
    for message in messages {
        message.content.retain(|_| verdicts.next().unwrap_or(false));
    }
}

/// The stored name of a role.
#[must_use]
pub const fn role_name(role: ChatRole) -> &'static str {
    match role {
        ChatRole::User => "user",
        ChatRole::Assistant => "assistant",
    }
}

/// The role of a stored name.
#[must_use]
pub fn role_of(name: &str) -> Option<ChatRole> {
    match name {
        "user" => Some(ChatRole::User),
        "assistant" => Some(ChatRole::Assistant),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn leaf() -> impl Strategy<Value = Block> {
        prop_oneof![
            ("\\PC{0,12}", 0usize..400).prop_map(|(s, n)| Block::Text { text: s.repeat(n) }),
            (0usize..3000).prop_map(|n| Block::Image {
                media_type: "image/png".into(),
                data: "A".repeat(n)
            }),
        ]
    }

    fn block() -> impl Strategy<Value = Block> {
        prop_oneof![
            leaf(),
            ("[a-f]", "\\PC{0,10}", 0usize..300).prop_map(|(id, s, n)| Block::ToolUse {
                id,
                name: "Read".into(),
                arguments: serde_json::json!({ "p": s.repeat(n) }).to_string(),
            }),
            ("[a-f]", prop::collection::vec(leaf(), 0..3)).prop_map(|(id, content)| {
                Block::ToolResult {
                    id,
                    name: "Read".into(),
                    content,
                    is_error: false,
                }
            }),
        ]
    }

    fn entries() -> impl Strategy<Value = Vec<Entry>> {
        prop::collection::vec(1usize..9, 0..12).prop_flat_map(|turns| {
            let count: usize = turns.iter().sum();
            prop::collection::vec(prop::collection::vec(block(), 1..3), count).prop_map(
                move |contents| {
                    let names = turns
                        .iter()
                        .enumerate()
                        .flat_map(|(i, n)| vec![format!("t{i}"); *n]);
                    names
                        .zip(contents)
                        .map(|(turn, content)| Entry {
                            turn,
                            at: 0,
                            message: ChatMessage {
                                role: ChatRole::User,
                                content,
                            },
                        })
                        .collect()
                },
            )
        })
    }

    fn text_entries(turns: &[usize]) -> Vec<Entry> {
        let mut out = Vec::new();
        for (turn, count) in turns.iter().enumerate() {
            for i in 0..*count {
                let message = ChatMessage::text(ChatRole::User, format!("{turn}.{i}"));
                out.push(Entry {
                    turn: turn.to_string(),
                    at: i as i64,
                    message,
                });
            }
        }
        out
    }

    fn texts(entries: &[Entry]) -> Vec<String> {
        entries.iter().map(|e| e.message.plain_text()).collect()
    }

    /// Pairs up, without what is empty then.
    fn paired(mut messages: Vec<ChatMessage>) -> Vec<ChatMessage> {
        pair_up(&mut messages);
        messages.retain(|message| !message.content.is_empty());
        messages
    }

    proptest! {
        #[test]
        fn a_fitted_message_keeps_the_bound_and_is_stable(
            content in prop::collection::vec(block(), 0..8), max in 256usize..6000,
        ) {
            let fitted = fit(&content, max);
            prop_assert!(size(&fitted) <= max, "{} > {max}", size(&fitted));
            prop_assert_eq!(fitted == content, size(&content) <= max);
            prop_assert_eq!(&fit(&fitted, max), &fitted);
            for block in &fitted {
                if let Block::ToolUse { arguments, .. } = block {
                    prop_assert!(serde_json::from_str::<serde_json::Value>(arguments).is_ok());
                }
            }
        }

        #[test]
        fn a_window_is_bounded_paired_and_a_suffix_of_whole_turns(entries in entries(), max in 1usize..40) {
            let out = window(&entries, max);
            prop_assert!(out.len() <= max);
            let messages: Vec<_> = out.iter().map(|e| e.message.clone()).collect();
            prop_assert_eq!(&paired(messages.clone()), &messages);
            // What a caller that loads only the newest max + 1 (and the opening of a long turn) sees is the same.
            let from = entries.len().saturating_sub(max + 1);
            let cut_turn = entries.get(from).map(|e| e.turn.clone());
            let single = entries[from..].iter().all(|e| Some(&e.turn) == cut_turn.as_ref());
            if !single {
                prop_assert_eq!(&window(&entries[from..], max), &out);
            }
        }

        #[test]
        fn pairing_leaves_no_half(entries in entries()) {
            let out = paired(entries.into_iter().map(|e| e.message).collect());
            let mut open: HashMap<String, i32> = HashMap::new();
            for block in out.iter().flat_map(|m| &m.content) {
                match block {
                    Block::ToolUse { id, .. } => *open.entry(id.clone()).or_default() += 1,
                    Block::ToolResult { id, .. } => {
                        let count = open.entry(id.clone()).or_default();
                        prop_assert!(*count > 0, "a result without its call");
                        *count -= 1;
                    }
                    _ => {}
                }
            }
            prop_assert!(open.values().all(|count| *count == 0), "a call without its result");
            prop_assert!(out.iter().all(|m| !m.content.is_empty()));
        }
    }

    #[test]
    fn windows_by_table() {
        let cases: [(&[usize], usize, &[&str]); 6] = [
            (&[2, 2, 2], 64, &["0.0", "0.1", "1.0", "1.1", "2.0", "2.1"]),
            (&[2, 2, 2], 4, &["1.0", "1.1", "2.0", "2.1"]),
            // The turn that would be halved goes as a whole.
            (&[2, 2, 2], 5, &["1.0", "1.1", "2.0", "2.1"]),
            (&[2, 2, 2], 3, &["2.0", "2.1"]),
            // One turn over the bound: what the person said, and the newest.
            (&[2, 6], 3, &["1.0", "1.4", "1.5"]),
            (&[], 3, &[]),
        ];
        for (turns, max, expected) in cases {
            assert_eq!(
                texts(&window(&text_entries(turns), max)),
                expected,
                "{turns:?} {max}"
            );
        }
    }

    #[test]
    fn hostile_shapes_become_the_fixed_text() {
        let long_id = Block::ToolUse {
            id: "x".repeat(300),
            name: "n".into(),
            arguments: "{}".into(),
        };
        let many = vec![
            Block::ToolUse {
                id: "x".into(),
                name: "n".into(),
                arguments: "{}".into()
            };
            5000
        ];
        for content in [vec![long_id], many] {
            assert_eq!(
                fit(&content, 65536),
                [Block::Text {
                    text: LEFT_OUT.into()
                }]
            );
        }
    }

    #[test]
    fn a_long_text_keeps_its_beginning_and_says_so() {
        let content = [Block::Text {
            text: "é\"".repeat(60_000),
        }];
        let fitted = fit(&content, 65536);
        let [Block::Text { text }] = fitted.as_slice() else {
            panic!("{fitted:?}")
        };
        assert!(text.starts_with("é\"é\"") && text.ends_with(MARK));
        assert!(size(&fitted) > 65536 - 16);
    }
}
