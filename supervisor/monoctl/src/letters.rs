//! Letters: answers of background tasks for conversations of the terminal, which nobody may be
//! looking at when they come.

use crate::cli::Letters;
use crate::daemon::Daemon;
use crate::error::CtlError;
use crate::screen::Screen;
use crate::terminal::safe_line;
use ipc_proto::admin::Ask;
use ipc_proto::edges::store::{Letter, LetterPage};
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Letters of one request.
const PAGE: u32 = 100;
/// Between two looks for new ones.
const LOOK: Duration = Duration::from_millis(300);
/// Longest conversation that is shown.
const MAX_NAME: usize = 200;

pub(crate) async fn run(
    socket: Option<&Path>,
    letters: Letters,
    screen: &mut Screen,
) -> Result<u8, CtlError> {
    let daemon = Daemon::connect(socket).await?;
    let conversation = letters.conversation.as_deref();
    let mut shown = 0;
    let after = show(&daemon, conversation, letters.after, &mut shown, screen).await?;
    if letters.follow {
        return follow(&daemon, conversation, after, screen).await;
    }
    if shown == 0 && !screen.is_json() {
        screen.line("no letters")?;
    }
    Ok(0)
}

/// Shows new letters as they come, until it is interrupted.
pub(crate) async fn follow(
    daemon: &Daemon,
    conversation: Option<&str>,
    mut after: u64,
    screen: &mut Screen,
) -> Result<u8, CtlError> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            _ = interrupt.recv() => return Ok(0),
        }
        after = show(daemon, conversation, after, &mut 0, screen).await?;
    }
}

/// The number of the newest letter of all.
pub(crate) async fn newest(daemon: &Daemon) -> Result<u64, CtlError> {
    let ask = Ask::Letters {
        conversation: None,
        after: u64::MAX,
        limit: 1,
    };
    Ok(daemon.ask::<LetterPage>(&ask, &[]).await?.0.newest)
}

/// Shows all letters after a number; gives the number to go on from.
async fn show(
    daemon: &Daemon,
    conversation: Option<&str>,
    mut after: u64,
    shown: &mut usize,
    screen: &mut Screen,
) -> Result<u64, CtlError> {
    loop {
        let ask = Ask::Letters {
            conversation: conversation.map(str::to_owned),
            after,
            limit: PAGE,
        };
        let (page, _) = daemon.ask::<LetterPage>(&ask, &[]).await?;
        let Some(last) = page.letters.last() else {
            return Ok(after.max(page.newest));
        };
        after = last.number;
        *shown += page.letters.len();
        for letter in &page.letters {
            print(letter, screen)?;
        }
    }
}

fn print(letter: &Letter, screen: &mut Screen) -> Result<(), CtlError> {
    if screen.is_json() {
        return screen.json(&json!({ "type": "letter", "letter": letter }));
    }
    let conversation = safe_line(&letter.conversation_id, MAX_NAME);
    screen.aside(&format!("{}  {conversation}", letter.at))?;
    screen.answer(&letter.text, false)?;
    screen.answer("\n", false)
}
