//! What a turn acts with: workers, tools, events. Shared by the loop, which asks the model, and by
//! the calls that the run's own commands make meanwhile.

use super::stream::ModelCall;
use super::{Failure, LISTENER_TIME};
use crate::app_endpoint::{AppCall, MAX_APP_CALLS};
use crate::cancel::Cancel;
use crate::catalog::{Catalog, Target};
use crate::owners::Workers;
use crate::process::Runner;
use crate::tools::Builtin;
use crate::tools::path::Places;
use app_tools::CapabilityUrl;
use ipc_proto::chat::Block;
use ipc_proto::edges::events::RunEvent;
use ipc_proto::text::cut;
use serde_json::Value;
use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashSet;
use std::future::Future;
use std::os::fd::OwnedFd;
use tokio::sync::mpsc;
use uuid::Uuid;

/// Shown where the address of the endpoint stood.
const WITHHELD: &str = "[withheld]";

#[derive(Debug)]
pub(super) struct Hands<'a, W> {
    pub(super) workers: &'a W,
    pub(super) places: &'a Places,
    pub(super) runner: &'a Runner,
    pub(super) cancel: &'a Cancel,
    /// Known once the servers have listed their tools.
    pub(super) catalog: OnceCell<Catalog>,
    /// Parts that the listener was told of.
    pub(super) announced: RefCell<HashSet<String>>,
    /// A result came with an app, which the app-bridge keeps only when told to.
    pub(super) has_apps: Cell<bool>,
    /// MCP servers that may claim continuations.
    pub(super) claim_servers: &'a [String],
    /// One of them was called.
    pub(super) may_have_claimed: Cell<bool>,
    /// Where commands reach [`Hands::serve_commands`], if they may.
    pub(super) url: Option<CapabilityUrl>,
}

impl<W: Workers> Hands<'_, W> {
    /// Serves calls of the run's commands, one after the other, as long as it is polled. Returns
    /// only when the turn can't go on.
    pub(super) async fn serve_commands(&self, mut calls: mpsc::Receiver<AppCall>) -> Failure {
        let mut taken = 0;
        while let Some(call) = calls.recv().await {
            if call.is_abandoned() {
                continue;
            }
            if taken == MAX_APP_CALLS {
                call.refuse();
                continue;
            }
            taken += 1;
            let own = ModelCall {
                id: format!("app-{}", Uuid::new_v4()),
                name: Builtin::PublishReplyFile.name().to_owned(),
                arguments: Value::Object(call.arguments.clone()).to_string(),
                draft: None,
            };
            match self.execute_one(&own).await {
                Ok(Block::ToolResult {
                    content, is_error, ..
                }) => call.answer(&content, is_error),
                Ok(_) => call.answer(&[], true),
                Err(failure) => return failure,
            }
        }
        std::future::pending().await
    }

    /// Tells what servers post, as long as it is polled. Returns only when the turn can't go on.
    pub(super) async fn pass_posts_on(&self) -> Failure {
        loop {
            let told = match self.workers.posted().await {
                Ok(event) => self.say(event).await,
                Err(lost) => Err(Failure::Lost(lost)),
            };
            if let Err(failure) = told {
                return failure;
            }
        }
    }

    /// Where a call of this name goes.
    pub(super) fn target(&self, name: &str) -> Result<&Target, String> {
        match self.catalog.get() {
            Some(catalog) => catalog.target(name),
            None => Err("The tools of this turn are not known yet.".to_owned()),
        }
    }

    /// A text as it may be recorded and shown: a command that prints its environment doesn't
    /// put the address of the endpoint there.
    pub(super) fn recordable<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match &self.url {
            Some(url) if text.contains(url.secret()) => {
                Cow::Owned(text.replace(url.secret(), WITHHELD))
            }
            _ => Cow::Borrowed(text),
        }
    }

    /// Waits for `future`, but not past a cancellation.
    pub(super) async fn unless_cancelled<T>(
        &self,
        future: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            () = self.cancel.token().cancelled() => Err(self.cancelled()),
            done = future => Ok(done),
        }
    }

    pub(super) fn cancelled(&self) -> Failure {
        Failure::Cancelled {
            reason: self.cancel.reason(),
        }
    }

    pub(super) async fn say(&self, event: RunEvent) -> Result<(), Failure> {
        self.say_with(event, None).await
    }

    pub(super) async fn say_with(
        &self,
        event: RunEvent,
        body: Option<OwnedFd>,
    ) -> Result<(), Failure> {
        let sent = tokio::time::timeout(LISTENER_TIME, self.workers.send(event, body));
        match self.unless_cancelled(sent).await? {
            Ok(Ok(())) => Ok(()),
            gone => {
                let why = if gone.is_err() {
                    "the channel takes no events"
                } else {
                    "the channel is gone"
                };
                self.cancel.cancel(why);
                Err(self.cancelled())
            }
        }
    }

    pub(super) async fn warn(&self, code: &str, message: &str) -> Result<(), Failure> {
        let message = cut(message, 2048).to_owned();
        self.say(RunEvent::Warning {
            code: cut(code, 128).to_owned(),
            message,
        })
        .await
    }
}
