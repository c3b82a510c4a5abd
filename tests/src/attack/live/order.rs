//! A hostile run that is told by the person's message what to do: the attack's name, and the file in
//! the workspace that takes what came of it.

use crate::attack::live::control;
use crate::attack::live::edges::{self, sweep_name};
use crate::attack::live::wire::packet;
use crate::attack::live::worker::{Session, report};
use anyhow::{Context as _, Result, bail};
use ipc_proto::Role;
use ipc_proto::chat::Block;
use ipc_proto::edges::control::{EdgeName, ToWorker, TurnInput};
use ipc_proto::table::{Guard, Phase, RULES};
use std::fs;
use std::os::fd::OwnedFd;

/// What the run is told.
#[derive(Debug)]
pub struct Order {
    /// The attack.
    pub name: String,
    told: String,
    /// The run's channels to others.
    pub channels: Vec<(EdgeName, OwnedFd)>,
}

impl Order {
    /// Serves as an honest worker would, until a run comes; none when the daemon ends.
    ///
    /// # Errors
    /// When the supervisor doesn't do its part.
    pub fn taken(session: &mut Session) -> Result<Option<Self>> {
        session.greet()?;
        session.handed.clear();
        session.become_ready()?;
        let Some((_, message, mut fds)) = session.next_but_ping()? else {
            return Ok(None);
        };
        let ToWorker::Assign { input, edges, .. } = message else {
            bail!("expected a run, got {message:?}");
        };
        let input: TurnInput = input.unpack_json(&mut fds, 1 << 20)?;
        let text = input.content.iter().find_map(|block| match block {
            Block::Text { text } => Some(text.as_str()),
            _ => None,
        });
        let (name, told) = text.and_then(|t| t.split_once(' ')).context("no order")?;
        report(&format!("made {name}"));
        Ok(Some(Self {
            name: name.to_owned(),
            told: told.to_owned(),
            channels: edges.into_iter().zip(fds).collect(),
        }))
    }

    /// Says what came of it. The last line of a process that ends may be lost; a file in the
    /// workspace is not.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn tell(&self, words: &str) -> Result<()> {
        let whole = format!("{}.whole", self.told);
        fs::write(&self.told, words)?;
        Ok(fs::rename(&self.told, whole)?)
    }
}

/// What a run that serves may do to the supervisor, by name: every kind that it has no right to, and
/// what else is wrong on a control channel.
pub fn control_names() -> impl Iterator<Item = String> {
    let kinds = RULES.iter().map(|row| row.kind);
    let kinds = kinds.filter(|kind| *kind > 0x00ff && !is_allowed(*kind));
    kinds.map(sweep_name).chain(listed())
}

/// Those that no other channel has.
#[must_use]
pub fn own_names() -> Vec<String> {
    let others = edges::names();
    listed().filter(|name| !others.contains(name)).collect()
}

/// Those without a kind of their own.
fn listed() -> impl Iterator<Item = String> {
    let all = control::ATTACKS.iter();
    all.filter(|attack| attack.phase == Phase::Serving)
        .map(|attack| attack.name.to_owned())
}

fn is_allowed(kind: u16) -> bool {
    let control = kind & 0xff00 == 0x0100;
    control && Guard::serving(Role::Run).admit(kind, 0).is_ok()
}

/// Attacks the supervisor over its own control channel, as it is told. A supervisor that ends this
/// process leaves it no word of that.
///
/// # Errors
/// When the supervisor doesn't do its part.
pub fn attack_supervisor(session: &mut Session) -> Result<()> {
    let Some(order) = Order::taken(session)? else {
        return Ok(());
    };
    let sweep = RULES.iter().find(|row| sweep_name(row.kind) == order.name);
    let listed = control::ATTACKS.iter().find(|a| a.name == order.name);
    match (sweep, listed) {
        (Some(row), _) => {
            let body = session
                .seeds
                .of(row.kind)
                .map_or(&[][..], |seed| &seed.body);
            session.insist(&packet(row.kind, 1, 0, body), &[])?;
        }
        (None, Some(attack)) => (attack.act)(session)?,
        (None, None) => bail!("there is no attack {}", order.name),
    }
    // After two heartbeats: the first may have been on its way already.
    if session.answers_a_ping()? && session.answers_a_ping()? {
        order.tell(&format!("{}=nothing", edges::SUPERVISOR))?;
    }
    Ok(())
}
