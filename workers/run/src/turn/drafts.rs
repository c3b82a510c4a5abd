//! What is shown of calls while the model still writes their arguments: the app-bridge is asked for
//! the page that the tool declares, and then, a few times in a second, for what the arguments say so
//! far. All of it is for the eye alone: nothing here is called, kept or told to the model, and what
//! does not come in time is not waited for.

use super::Failure;
use super::hands::Hands;
use crate::owners::{Lost, Workers};
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use ipc_proto::Body;
use ipc_proto::edges::app_bridge::MAX_DRAFT_INPUT;
use ipc_proto::edges::events::RunEvent;
use ipc_proto::reply::ReplyPart;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// Calls of one answer that are shown so.
pub(super) const MAX_DRAFTS: usize = 4;
/// Between two looks at the arguments of one call.
const PAUSE: Duration = Duration::from_millis(100);

/// A call whose arguments are being written.
#[derive(Debug, Default)]
struct Draft {
    /// The part, once there is a page.
    id: Option<String>,
    /// The arguments so far.
    text: String,
    /// Bytes of them that were looked at, and when.
    seen: usize,
    at: Option<Instant>,
    /// What was told of them.
    told: String,
    /// Something is being asked.
    asking: bool,
}

/// What was asked, for the call of this number.
enum Answered {
    Page(u32, Result<Option<ReplyPart>, Lost>),
    Input(u32, Result<Option<String>, Lost>),
}

/// The calls of one answer.
pub(super) struct Drafts<'a, W> {
    hands: &'a Hands<'a, W>,
    by_call: HashMap<u32, Draft>,
    asked: FuturesUnordered<LocalBoxFuture<'a, Answered>>,
}

impl<'a, W: Workers> Drafts<'a, W> {
    pub(super) fn new(hands: &'a Hands<'a, W>) -> Self {
        Self {
            hands,
            by_call: HashMap::new(),
            asked: FuturesUnordered::new(),
        }
    }

    /// True while an answer is on its way.
    pub(super) fn is_asking(&self) -> bool {
        !self.asked.is_empty()
    }

    /// More of the arguments of a call.
    pub(super) fn add(&mut self, call: u32, name: &str, text: &str) {
        if !self.by_call.contains_key(&call) {
            let origin = self.hands.catalog.get().and_then(|all| all.shown(name));
            let Some(origin) = origin.filter(|_| self.by_call.len() < MAX_DRAFTS) else {
                return;
            };
            let workers = self.hands.workers;
            self.by_call.insert(
                call,
                Draft {
                    asking: true,
                    ..Draft::default()
                },
            );
            self.asked.push(Box::pin(async move {
                Answered::Page(call, workers.draft(&origin.server, &origin.tool).await)
            }));
        }
        if let Some(draft) = self.by_call.get_mut(&call)
            && draft.text.len() + text.len() <= MAX_DRAFT_INPUT
        {
            draft.text.push_str(text);
        }
        self.look(call);
    }

    /// Asks what the arguments say, where that is due.
    fn look(&mut self, call: u32) {
        let Some(draft) = self.by_call.get_mut(&call) else {
            return;
        };
        let Some(id) = draft.id.clone().filter(|_| !draft.asking) else {
            return;
        };
        let now = Instant::now();
        let early = draft.at.is_some_and(|at| now.duration_since(at) < PAUSE);
        if early || draft.seen == draft.text.len() {
            return;
        }
        (draft.at, draft.seen, draft.asking) = (Some(now), draft.text.len(), true);
        let (text, workers) = (draft.text.clone(), self.hands.workers);
        self.asked.push(Box::pin(async move {
            Answered::Input(call, workers.draft_input(&id, &text).await)
        }));
    }

    /// Waits for an answer and tells of it. Safe to drop while it waits.
    pub(super) async fn answered(
        &mut self,
    ) -> Option<(u32, RunEvent, Option<std::os::fd::OwnedFd>)> {
        let answer = self.asked.next().await?;
        let (Answered::Page(call, _) | Answered::Input(call, _)) = answer;
        let draft = self.by_call.get_mut(&call)?;
        draft.asking = false;
        match answer {
            Answered::Page(_, Ok(Some(part))) => {
                draft.id = Some(part.id().to_owned());
                let (part, fd) = Body::pack_json(&part).ok()?;
                Some((call, RunEvent::AppDraft { part }, fd))
            }
            Answered::Input(_, Ok(Some(arguments))) if arguments != draft.told => {
                draft.told.clone_from(&arguments);
                let id = draft.id.clone()?;
                let (arguments, fd) = Body::pack(arguments.into_bytes()).ok()?;
                Some((call, RunEvent::AppInput { id, arguments }, fd))
            }
            Answered::Page(_, Err(lost)) | Answered::Input(_, Err(lost)) => {
                // Whoever can't do without that worker notices by itself.
                tracing::debug!("what a call is about is not shown: {lost}");
                None
            }
            Answered::Page(_, Ok(None)) | Answered::Input(_, Ok(_)) => None,
        }
    }

    /// Tells what [`Drafts::answered`] gave.
    pub(super) async fn tell(
        &mut self,
        told: Option<(u32, RunEvent, Option<std::os::fd::OwnedFd>)>,
    ) -> Result<(), Failure> {
        let Some((call, event, body)) = told else {
            return Ok(());
        };
        self.hands.say_with(event, body).await?;
        self.look(call);
        Ok(())
    }

    /// The attempt is void, and its calls with it.
    pub(super) async fn drop_all(&mut self) -> Result<(), Failure> {
        self.asked = FuturesUnordered::new();
        for draft in std::mem::take(&mut self.by_call).into_values() {
            if let Some(id) = draft.id {
                self.hands.say(RunEvent::AppGone { id }).await?;
            }
        }
        Ok(())
    }

    /// The answer is whole: which of its calls have a page that is shown.
    pub(super) fn finish(self) -> HashMap<u32, String> {
        let all = self.by_call.into_iter();
        all.filter_map(|(call, draft)| Some((call, draft.id?)))
            .collect()
    }
}
