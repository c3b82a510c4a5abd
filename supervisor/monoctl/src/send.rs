//! `monoctl send`: a turn from the terminal.

mod view;

pub(crate) use view::part_line;

use crate::cli::Send;
use crate::daemon::Daemon;
use crate::error::CtlError;
use crate::image;
use crate::letters;
use crate::screen::Screen;
use ipc_proto::admin::{Ask, JsonBody};
use ipc_proto::chat::Block;
use ipc_proto::edges::control::{MAX_TURN_INPUT, TurnInput};
use ipc_proto::{ConversationId, EventReceiver};
use serde::Deserialize;
use std::io::Read;
use std::path::Path;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use view::{End, View};

/// Largest message in bytes.
const MAX_TEXT: u64 = 4 * 1024 * 1024;
/// What a shell says of a program that SIGINT ended.
pub(crate) const INTERRUPTED: u8 = 130;
/// How long the daemon may take to hear that the run is not wanted any more.
const CANCEL_WITHIN: Duration = Duration::from_secs(2);

#[derive(Deserialize)]
struct Started {
    run: String,
}

/// Exit status 0 for a committed answer, 1 for a failed run, 130 when interrupted.
pub(crate) async fn run(
    socket: Option<&Path>,
    send: Send,
    screen: &mut Screen,
) -> Result<u8, CtlError> {
    let conversation = if send.new {
        format!("terminal:{}", uuid::Uuid::new_v4())
    } else {
        ConversationId::parse(&send.conversation).map_err(|e| CtlError::Usage(e.to_string()))?;
        send.conversation.clone()
    };
    let input = input(&send, &mut std::io::stdin())?;
    let (input, memfd) = JsonBody::pack(&input)
        .map_err(|e| CtlError::Usage(format!("the message can't be sent: {e}")))?;
    if let JsonBody::Sealed(bytes) = input
        && bytes > MAX_TURN_INPUT as u64
    {
        return Err(CtlError::Usage(format!(
            "the message with its images has {bytes} bytes, at most {MAX_TURN_INPUT} are taken"
        )));
    }
    let daemon = Daemon::connect(socket).await?;
    // What comes after this belongs to this turn, or to an earlier one of the conversation.
    let letters = match send.follow {
        true => Some((letters::newest(&daemon).await?, conversation.clone())),
        false => None,
    };
    let fds: Vec<_> = memfd.into_iter().collect();
    // From here on an interrupt is ours to answer.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let ask = Ask::Send {
        conversation,
        input,
    };
    let (started, mut fds) = tokio::select! {
        started = daemon.ask::<Started>(&ask, &fds) => started?,
        // Nobody takes the event channel of the answer any more, which ends the run.
        _ = interrupt.recv() => return Ok(INTERRUPTED),
    };
    let events = fds
        .pop_back()
        .ok_or_else(|| CtlError::NoAnswer("no event channel came".to_owned()))?;
    let mut events = EventReceiver::new(events).map_err(|e| CtlError::NoAnswer(e.to_string()))?;
    let mut view = View::new(started.run.clone(), send.raw, screen);
    loop {
        let next = tokio::select! {
            next = events.next() => next,
            _ = interrupt.recv() => {
                // Closing the channel ends a run that works; one that still waits is told apart.
                drop(events);
                let ask = Ask::CancelRun { run: started.run };
                let _ = tokio::time::timeout(CANCEL_WITHIN, daemon.ask::<serde_json::Value>(&ask, &[])).await;
                view.interrupted()?;
                return Ok(INTERRUPTED);
            }
        };
        let end = match next {
            Ok(Some((event, fds))) => view.event(event, fds)?,
            Ok(None) => Some(
                view.lost("The run's process ended without an answer. Send the message again.")?,
            ),
            Err(e) => Some(view.lost(&e.to_string())?),
        };
        match end {
            Some(End::Committed) => break,
            Some(End::Failed) => return Ok(1),
            None => {}
        }
    }
    drop(view);
    match letters {
        Some((after, conversation)) => {
            letters::follow(&daemon, Some(&conversation), after, screen).await
        }
        None => Ok(0),
    }
}

fn input(send: &Send, stdin: &mut impl Read) -> Result<TurnInput, CtlError> {
    if send.files.len() > image::MAX_IMAGES {
        return Err(CtlError::Usage(format!(
            "at most {} images go with a message",
            image::MAX_IMAGES
        )));
    }
    let text = if send.text == "-" {
        let mut bytes = Vec::new();
        stdin
            .take(MAX_TEXT + 1)
            .read_to_end(&mut bytes)
            .map_err(|e| CtlError::file("standard input", e))?;
        String::from_utf8(bytes).map_err(|_| CtlError::file("standard input", "not UTF-8 text"))?
    } else {
        send.text.clone()
    };
    if text.len() as u64 > MAX_TEXT {
        return Err(CtlError::Usage(format!(
            "the message has more than {MAX_TEXT} bytes; put it into a file of the workspace and name it"
        )));
    }
    if text.trim().is_empty() {
        return Err(CtlError::Usage("the message is empty".to_owned()));
    }
    let mut content = vec![Block::Text { text }];
    for path in &send.files {
        content.push(image::read(path)?);
    }
    Ok(TurnInput {
        content,
        ..TurnInput::default()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn send(text: &str, files: Vec<std::path::PathBuf>) -> Send {
        Send {
            text: text.into(),
            conversation: "c".into(),
            new: false,
            files,
            raw: false,
            follow: false,
        }
    }

    #[test]
    fn a_message_comes_from_the_command_line_or_from_standard_input() {
        let got = input(&send("hi", vec![]), &mut &b"unread"[..]).unwrap();
        assert_eq!(got.content, [Block::Text { text: "hi".into() }]);
        let got = input(&send("-", vec![]), &mut "päth\n".as_bytes()).unwrap();
        assert_eq!(
            got.content,
            [Block::Text {
                text: "päth\n".into()
            }]
        );
    }

    #[test]
    fn a_message_is_bounded_text_that_says_something() {
        let most = usize::try_from(MAX_TEXT).unwrap();
        for (text, stdin) in [
            ("", vec![]),
            (" \n", vec![]),
            ("-", vec![]),
            ("-", vec![0xff]),
            ("-", vec![b'x'; most + 1]),
        ] {
            assert!(
                input(&send(text, vec![]), &mut &stdin[..]).is_err(),
                "{text:?}"
            );
        }
        assert!(input(&send("-", vec![]), &mut &vec![b'x'; most][..]).is_ok());
        let many = vec!["x".into(); image::MAX_IMAGES + 1];
        assert!(matches!(
            input(&send("x", many), &mut &b""[..]),
            Err(CtlError::Usage(_))
        ));
    }
}
