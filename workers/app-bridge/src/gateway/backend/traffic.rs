//! What callers and the server say to each other, and whose it is.

use super::{Backend, Caller, Inner};
use crate::gateway::job::Job;
use crate::gateway::ledger::{Asked, CallerId, Shape, Taken, Waits};
use crate::gateway::outbox::Outbox;
use crate::gateway::params::{NotAnObject, Stamp, Who, call_of, member, stamped, with_member};
use crate::gateway::surface::narrow;
use mono_mcp_stub::frame::{
    Frame, INVALID_REQUEST, METHOD_NOT_FOUND, Outcome, answer, failure, notification, request,
};
use mono_mcp_stub::wire::Control;
use serde_json::Value;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use tokio::time::Instant;

/// Questions of a server that its caller has not answered.
const MAX_ASKED: usize = 64;
/// Subscriptions of one caller (facts 6.5).
const MAX_SUBSCRIPTIONS: usize = 1024;

impl Backend {
    /// A caller says something; `initialize` is not for here. The error is a line for the caller.
    ///
    /// # Errors
    /// When it is not handed on.
    pub async fn from_caller(&self, caller: CallerId, frame: Frame<'_>) -> Result<(), String> {
        match frame {
            Frame::Request { id, method, params } => {
                let line = self.enter(caller, id, &method, params);
                let line = line.map_err(|error| failure(id, INVALID_REQUEST, &error))?;
                self.send(line).await;
            }
            Frame::Notification { method, params } => {
                if let Some(line) = self.note(caller, &method, params) {
                    self.send(line).await;
                }
            }
            Frame::Answer { id, outcome } => {
                let Some(id) = id else { return Ok(()) };
                let wanted = {
                    let mut inner = self.inner();
                    let own = inner.asked.get(id) == Some(&caller);
                    own && inner.asked.remove(id).is_some()
                };
                if wanted {
                    self.send(answer(id, outcome)).await;
                }
            }
        }
        Ok(())
    }

    fn enter(
        &self,
        caller: CallerId,
        id: &str,
        method: &str,
        params: Option<&str>,
    ) -> Result<String, String> {
        let mut inner = self.inner();
        let member = inner.callers.get(&caller).ok_or("this session has ended")?;
        let (internal, session) = (member.caller.internal, member.caller.session.clone());
        let shape = match method {
            "tools/list" => Shape::List {
                first: params.is_none_or(|p| member_is_absent(p, "cursor")),
            },
            "tools/call" if self.show.is_some() && !internal => match call_of(params) {
                Some((tool, arguments)) => Shape::Call { tool, arguments },
                None => Shape::Plain,
            },
            _ => Shape::Plain,
        };
        // Its server's word is a boundary, and no matter of what a model is shown (spec s2).
        if method == "tools/call" && !internal && !inner.hidden.is_empty() {
            let (tool, _) = call_of(params).ok_or("a call names one tool")?;
            if inner.hidden.contains(&tool) {
                return Err("this tool is not for a model".to_owned());
            }
        }
        self.subscribe(&mut inner, caller, method, params)?;
        let asked = Asked {
            caller,
            id: id.to_owned(),
            shape,
            token: None,
        };
        let most = self.limits.outstanding;
        let who = Who {
            session: Some(&*session).filter(|_| !(internal && self.settings.shared)),
            is_app: internal,
        };
        let stamp = |number| Stamp {
            number,
            caller: self.wants_caller.load(Ordering::Relaxed).then_some(who),
            apps: self.apps,
        };
        // The number is known before the request is entered, for it stands in its parameters.
        let (params, token) = stamped(params, stamp(inner.ledger.next()))
            .map_err(|error: NotAnObject| error.to_string())?;
        let number = inner
            .ledger
            .enter(Asked { token, ..asked }, most, Instant::now())
            .map_err(|error: Taken| error.to_string())?;
        Ok(request(&number.to_string(), method, params.as_deref()))
    }

    fn subscribe(
        &self,
        inner: &mut Inner,
        caller: CallerId,
        method: &str,
        params: Option<&str>,
    ) -> Result<(), String> {
        let subscribes = match method {
            "resources/subscribe" => true,
            "resources/unsubscribe" => false,
            _ => return Ok(()),
        };
        let Some(uri) = member(params, "uri").filter(|uri| uri.len() <= 8 << 10) else {
            return Err("a subscription needs a uri of at most 8 KiB".to_owned());
        };
        if let Some(member) = inner.callers.get_mut(&caller) {
            if !subscribes {
                member.subscriptions.remove(&uri);
            } else if member.subscriptions.len() < MAX_SUBSCRIPTIONS {
                member.subscriptions.insert(uri);
            } else {
                return Err(format!(
                    "{MAX_SUBSCRIPTIONS} subscriptions are there already"
                ));
            }
        }
        Ok(())
    }

    /// The line that a caller's notification becomes, if it becomes one.
    fn note(&self, caller: CallerId, method: &str, params: Option<&str>) -> Option<String> {
        match method {
            // Hands were shaken for everybody.
            "notifications/initialized" => None,
            "notifications/cancelled" => {
                let id = member(params, "requestId")?;
                let mut inner = self.inner();
                let number = inner.ledger.find(caller, &id)?;
                // Who cancels waits no longer; a late answer is for nobody.
                inner.ledger.take(number);
                drop(inner);
                let params = with_member(params, "requestId", &number.to_string())?;
                Some(notification(method, Some(&params)))
            }
            // Of a server's own question, or of the client's roots: there is one client only.
            _ if !self.shared => Some(notification(method, params)),
            _ => None,
        }
    }

    /// The server says something. What is not understood is left out, as rmcp does.
    pub(super) async fn from_server(self: &Arc<Self>, line: &[u8]) {
        self.inner().heard = Some(Instant::now());
        let frame = match Frame::parse(line) {
            Ok(frame) => frame,
            Err(error) => {
                let server = &self.settings.name;
                tracing::debug!(server, "a line of a server is no message: {error}");
                return;
            }
        };
        match frame {
            Frame::Answer { id, outcome } => {
                let number = id.and_then(|id| id.parse().ok());
                let waits = number.and_then(|number| self.inner().ledger.take(number));
                match waits {
                    Some(Waits::Caller(asked)) => self.deliver(asked, outcome),
                    Some(Waits::Own(tell)) => {
                        // Nobody may wait any more.
                        let _ = tell.send(match outcome {
                            Outcome::Result(result) => Ok(result.to_owned()),
                            Outcome::Error(error) => Err(error.to_owned()),
                        });
                    }
                    // Late: who asked has cancelled, or is gone.
                    None => {}
                }
            }
            Frame::Request { id, method, .. } => {
                if let Some(own) = self.asked_by_server(id, &method, line) {
                    self.send(own).await;
                }
            }
            Frame::Notification { method, params } => self.noted_by_server(&method, params, line),
        }
    }

    /// A question of the server goes to its only caller. The answer of ours, where there is none.
    fn asked_by_server(&self, id: &str, method: &str, line: &[u8]) -> Option<String> {
        if method == "ping" {
            return Some(answer(id, Outcome::Result("{}")));
        }
        let mut inner = self.inner();
        let only = if self.shared { None } else { inner.only() };
        let room = inner.asked.len() < MAX_ASKED && !inner.asked.contains_key(id);
        match only.filter(|_| room) {
            Some((caller, out)) => {
                inner.asked.insert(id.to_owned(), caller);
                out.send(String::from_utf8_lossy(line).into_owned());
                None
            }
            None => Some(failure(id, METHOD_NOT_FOUND, "nobody here can answer that")),
        }
    }

    fn noted_by_server(&self, method: &str, params: Option<&str>, line: &[u8]) {
        let text = || String::from_utf8_lossy(line).into_owned();
        let mut inner = self.inner();
        match method {
            "notifications/progress" => {
                let number = member(params, "progressToken").and_then(|token| token.parse().ok());
                let Some((caller, token)) = number.and_then(|n| inner.ledger.progress(n)) else {
                    return;
                };
                let params = with_member(params, "progressToken", token);
                if let (Some(params), Some(member)) = (params, inner.callers.get(&caller)) {
                    member.caller.out.send(notification(method, Some(&params)));
                }
            }
            "notifications/resources/updated" if self.shared => {
                let Some(uri) = member(params, "uri") else {
                    return;
                };
                for member in inner
                    .callers
                    .values()
                    .filter(|m| m.subscriptions.contains(&uri))
                {
                    member.caller.out.send(text());
                }
            }
            _ if method.ends_with("/list_changed") => {
                if method == "notifications/tools/list_changed" {
                    inner.pages = None;
                }
                for member in inner.callers.values() {
                    member.caller.out.send(text());
                }
            }
            "notifications/cancelled" if !self.shared => {
                let id = member(params, "requestId");
                if let Some(caller) = id.and_then(|id| inner.asked.remove(&id))
                    && let Some(member) = inner.callers.get(&caller)
                {
                    member.caller.out.send(text());
                }
            }
            // Whose it is can't be told where several share.
            _ if self.shared => {}
            _ => {
                if let Some((_, out)) = inner.only() {
                    out.send(text());
                }
            }
        }
    }

    fn deliver(self: &Arc<Self>, asked: Asked, outcome: Outcome<'_>) {
        let caller = {
            let inner = self.inner();
            let Some(member) = inner.callers.get(&asked.caller) else {
                return;
            };
            member.caller.clone()
        };
        match (asked.shape, outcome) {
            (Shape::List { first }, Outcome::Result(result)) if !caller.internal => {
                let result = self.listed(&caller, first, result);
                caller.out.send(answer(&asked.id, Outcome::Result(&result)));
            }
            (Shape::Call { tool, arguments }, Outcome::Result(result))
                if self.may_have_app(&tool, result) =>
            {
                let job = Job {
                    backend: self.clone(),
                    caller,
                    id: asked.id,
                    tool,
                    arguments,
                    result: result.to_owned(),
                };
                match &self.show {
                    Some(show) => show(job),
                    None => job.deliver(None),
                }
            }
            (_, outcome) => caller.out.send(answer(&asked.id, outcome)),
        }
    }

    /// A listing without what is not for the model; its caller's anchor is what it shows.
    fn listed(&self, caller: &Caller, first: bool, result: &str) -> String {
        let Ok(mut listing) = serde_json::from_str::<Value>(result) else {
            return result.to_owned();
        };
        let mut seen = narrow(&mut listing);
        let whole = first && listing.get("nextCursor").is_none_or(Value::is_null);
        if let Some(seen) = &mut seen {
            let mut inner = self.inner();
            if first {
                inner.hidden.clear();
            }
            inner.hidden.append(&mut seen.hidden);
        }
        let mut anchor = caller.anchor.lock().unwrap_or_else(PoisonError::into_inner);
        match seen.filter(|_| whole) {
            Some(seen) => {
                caller
                    .out
                    .send(Control::Anchor(seen.anchor.to_text()).to_line());
                *anchor = Some(seen.anchor);
                self.inner().pages = Some(seen.pages);
            }
            // What comes in pages is not compared.
            None => *anchor = None,
        }
        listing.to_string()
    }

    /// False only where it is sure that there is none.
    fn may_have_app(&self, tool: &str, result: &str) -> bool {
        let inner = self.inner();
        let declared = inner
            .pages
            .as_ref()
            .is_none_or(|pages| pages.contains(tool));
        declared || result.contains("resourceUri")
    }
}

impl Inner {
    /// The one caller that is not ourselves.
    fn only(&self) -> Option<(CallerId, Outbox)> {
        let mut others = self
            .callers
            .iter()
            .filter(|(_, member)| !member.caller.internal);
        let (id, member) = others.next()?;
        others
            .next()
            .is_none()
            .then(|| (*id, member.caller.out.clone()))
    }
}

fn member_is_absent(params: &str, name: &str) -> bool {
    member(Some(params), name).is_none_or(|value| value == "null")
}
