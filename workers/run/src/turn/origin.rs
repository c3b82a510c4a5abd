//! What a turn had seen, for the claims that it leaves behind: text alone, each message with its
//! turn. The continuation worker makes the snapshot of it.

use ipc_proto::chat::ChatMessage;
use ipc_proto::edges::continuation::OriginMessage;
use ipc_proto::edges::store::History;

/// The history's messages with their turns.
pub(super) fn before(history: &History) -> Vec<OriginMessage> {
    let mut marks = history.turns.iter();
    let told = history.messages.iter().map(|message| {
        let mark = marks.next();
        OriginMessage {
            role: message.role,
            text: message.plain_text(),
            turn: mark.map(|mark| mark.turn.clone()),
            at: mark.map(|mark| mark.at),
        }
    });
    told.filter(|message| !message.text.is_empty()).collect()
}

/// A message of the caller's transcript, of which no turn is known.
pub(super) fn untold(message: &ChatMessage) -> OriginMessage {
    OriginMessage {
        role: message.role,
        text: message.plain_text(),
        turn: None,
        at: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipc_proto::chat::{Block, ChatRole};
    use ipc_proto::edges::store::TurnMark;

    #[test]
    fn every_text_keeps_its_turn() {
        let call = ChatMessage {
            role: ChatRole::Assistant,
            content: vec![Block::ToolUse {
                id: "1".into(),
                name: "n".into(),
                arguments: "{}".into(),
            }],
        };
        let mark = |turn: &str, at| TurnMark {
            turn: turn.into(),
            at,
        };
        let history = History {
            messages: vec![
                ChatMessage::text(ChatRole::User, "a"),
                call,
                ChatMessage::text(ChatRole::Assistant, "b"),
                ChatMessage::text(ChatRole::User, "c"),
            ],
            turns: vec![mark("r1", 1), mark("r1", 2), mark("r1", 3)],
            account: None,
            epoch: String::new(),
            revision: 0,
        };
        let got: Vec<_> = before(&history)
            .into_iter()
            .map(|m| (m.text, m.turn, m.at))
            .collect();
        let one = || Some("r1".to_owned());
        assert_eq!(
            got,
            [
                ("a".into(), one(), Some(1)),
                ("b".into(), one(), Some(3)),
                ("c".into(), None, None)
            ]
        );
    }
}
