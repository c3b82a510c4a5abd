//! `monoctl top`: a live view.

mod usage;
mod view;

use crate::daemon::Daemon;
use crate::error::CtlError;
use crate::screen::Screen;
use crate::status::Status;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use usage::{Sample, Units, Usage};
use view::View;

/// Between two views.
const REFRESH: Duration = Duration::from_secs(1);
/// Between the two samples that a single view's processor time comes from.
const GLANCE: Duration = Duration::from_millis(250);
/// Width of a single view that goes into a pipe.
const WIDTH: u16 = 120;

/// Asks again and again, with the processes' use beside each answer.
struct Watch {
    daemon: Daemon,
    units: Units,
    earlier: Option<Sample>,
}

/// One answer.
struct Seen {
    status: Status,
    value: Value,
    usage: Vec<Option<Usage>>,
}

impl Watch {
    async fn look(&mut self) -> Result<Seen, CtlError> {
        let (status, mut value) = Status::ask(&self.daemon).await?;
        let sample = Sample::take();
        let usage: Vec<_> = status
            .workers
            .iter()
            .map(|worker| sample.usage(worker.pid?, self.earlier.as_ref(), self.units))
            .collect();
        self.earlier = Some(sample);
        let workers = value.get_mut("workers").and_then(Value::as_array_mut);
        for (worker, usage) in workers.into_iter().flatten().zip(&usage) {
            if let Some(fields) = worker.as_object_mut() {
                let cpu = usage.and_then(|u| u.cpu_percent);
                fields.insert("cpu_percent".to_owned(), cpu.into());
                let tree = usage.map(|u| u.rss_bytes);
                fields.insert("tree_rss_bytes".to_owned(), tree.into());
            }
        }
        Ok(Seen {
            status,
            value,
            usage,
        })
    }
}

pub(crate) async fn run(
    socket: Option<&Path>,
    once: bool,
    screen: &mut Screen,
) -> Result<u8, CtlError> {
    let mut watch = Watch {
        daemon: Daemon::connect(socket).await?,
        units: Units::of_system(),
        earlier: None,
    };
    if screen.is_json() {
        return stream(&mut watch, once, screen).await;
    }
    if once {
        watch.look().await?;
        tokio::time::sleep(GLANCE).await;
        let seen = watch.look().await?;
        screen.line(&view(&seen, 0, "", screen.has_colour()).text(WIDTH))?;
        return Ok(0);
    }
    if !screen.is_terminal() {
        let message = "a live view needs a terminal; take --once or --json";
        return Err(CtlError::Usage(message.to_owned()));
    }
    // A panic leaves the terminal as it was, too.
    let mut terminal = ratatui::try_init()?;
    let result = live(&mut watch, &mut terminal, screen.has_colour()).await;
    ratatui::restore();
    result.map(|()| 0)
}

fn view<'a>(seen: &'a Seen, skip: usize, foot: &'a str, colour: bool) -> View<'a> {
    View {
        status: &seen.status,
        usage: &seen.usage,
        colour,
        skip,
        foot,
    }
}

/// A line each second, or one.
async fn stream(watch: &mut Watch, once: bool, screen: &mut Screen) -> Result<u8, CtlError> {
    watch.look().await?;
    tokio::time::sleep(GLANCE).await;
    let mut interrupt = signal(SignalKind::interrupt())?;
    loop {
        screen.json(&watch.look().await?.value)?;
        if once {
            return Ok(0);
        }
        tokio::select! {
            () = tokio::time::sleep(REFRESH) => {}
            // Its good end: nothing was waited for.
            _ = interrupt.recv() => return Ok(0),
        }
    }
}

async fn live(
    watch: &mut Watch,
    terminal: &mut ratatui::DefaultTerminal,
    colour: bool,
) -> Result<(), CtlError> {
    // Without this the signal would end the process before the terminal is set back.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut skip = 0;
    loop {
        let seen = tokio::select! {
            biased;
            _ = terminate.recv() => return Ok(()),
            seen = watch.look() => seen?,
        };
        let most = seen.status.workers.len().saturating_sub(1);
        let until = Instant::now() + REFRESH;
        // Keys are waited for without the runtime: nothing else is under way meanwhile.
        loop {
            skip = skip.min(most);
            let view = view(&seen, skip, "q quits, arrows scroll", colour);
            terminal.draw(|frame| view.draw(frame))?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || !event::poll(left)? {
                break;
            }
            // Anything else, such as a new size, is drawn at once.
            let Event::Key(key) = event::read()? else {
                continue;
            };
            match wish(key) {
                Some(Wish::Quit) => return Ok(()),
                Some(Wish::Down) => skip += 1,
                Some(Wish::Up) => skip = skip.saturating_sub(1),
                None => {}
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Wish {
    Quit,
    Up,
    Down,
}

fn wish(key: KeyEvent) -> Option<Wish> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Some(Wish::Quit),
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Wish::Quit),
        KeyCode::Down | KeyCode::Char('j') => Some(Wish::Down),
        KeyCode::Up | KeyCode::Char('k') => Some(Wish::Up),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_mean_something() {
        let key = |code, modifiers| wish(KeyEvent::new(code, modifiers));
        let plain = KeyModifiers::NONE;
        assert_eq!(key(KeyCode::Char('q'), plain), Some(Wish::Quit));
        assert_eq!(
            key(KeyCode::Char('c'), KeyModifiers::CONTROL),
            Some(Wish::Quit)
        );
        assert_eq!(key(KeyCode::Char('c'), plain), None);
        assert_eq!(key(KeyCode::Down, plain), Some(Wish::Down));
        assert_eq!(key(KeyCode::Up, plain), Some(Wish::Up));
    }
}
