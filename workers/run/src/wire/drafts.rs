//! Drafts of apps, asked of the app-bridge.

use super::{BRIDGE, MAX_PARTS_BODY, Wire, broken, lost, unpackable};
use crate::owners::Lost;
use ipc_proto::Body;
use ipc_proto::channel::CallError;
use ipc_proto::edges::app_bridge::{MAX_DRAFT_INPUT, Reply, Request};
use ipc_proto::reply::ReplyPart;
use serde_json::{Map, Value};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Time for a page, which the app-bridge reads within less, and for what its arguments say.
const WITHIN: Duration = Duration::from_secs(30);
/// Largest arguments that come back: what was taken out may be longer than what it was.
const MAX_ANSWER: usize = 8 * MAX_DRAFT_INPUT;

/// The request for a call, which may have a draft.
pub(super) fn call_request(
    (server, tool): (&str, &str),
    arguments: Body,
    draft: Option<&str>,
) -> Request {
    let (server, tool) = (server.to_owned(), tool.to_owned());
    match draft.map(str::to_owned) {
        Some(draft) => Request::CallDrafted {
            draft,
            server,
            tool,
            arguments,
        },
        None => Request::CallTool {
            server,
            tool,
            arguments,
        },
    }
}

impl Wire {
    pub(super) async fn draft_app(
        &self,
        server: &str,
        tool: &str,
    ) -> Result<Option<ReplyPart>, Lost> {
        let request = Request::DraftApp {
            server: server.to_owned(),
            tool: tool.to_owned(),
        };
        match self.bridge.call(&request, &[], WITHIN).await {
            Ok((Reply::Draft { part }, mut fds)) => part
                .unpack_json(&mut fds, MAX_PARTS_BODY)
                .map_err(|e| broken(BRIDGE, e)),
            Ok((other, _)) => Err(broken(BRIDGE, format!("{other:?}"))),
            Err(CallError::Fault(_)) => Ok(None),
            Err(error) => Err(lost(BRIDGE)(error)),
        }
    }

    pub(super) async fn draft_arguments(
        &self,
        draft: &str,
        text: &str,
    ) -> Result<Option<String>, Lost> {
        let (text, fd) = Body::pack(text.as_bytes().to_vec()).map_err(unpackable)?;
        let fds: Vec<OwnedFd> = fd.into_iter().collect();
        let draft = draft.to_owned();
        let request = Request::DraftInput { draft, text };
        match self.bridge.call(&request, &fds, WITHIN).await {
            Ok((Reply::DraftInput { arguments }, mut fds)) => {
                let arguments: Option<Map<String, Value>> = arguments
                    .unpack_json(&mut fds, MAX_ANSWER)
                    .map_err(|e| broken(BRIDGE, e))?;
                Ok(arguments.map(|arguments| Value::Object(arguments).to_string()))
            }
            Ok((other, _)) => Err(broken(BRIDGE, format!("{other:?}"))),
            Err(CallError::Fault(_)) => Ok(None),
            Err(error) => Err(lost(BRIDGE)(error)),
        }
    }
}
