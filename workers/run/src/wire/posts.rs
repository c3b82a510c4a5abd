//! What servers post that are told of this run's request (spec s3, "Trusted request context for a stdio server").

use super::{BRIDGE, broken, lost};
use crate::owners::Lost;
use ipc_proto::Client;
use ipc_proto::channel::Replies;
use ipc_proto::edges::app_bridge::{AppBridge, Reply, Request};
use ipc_proto::edges::events::RunEvent;
use ipc_proto::marker::strip;
use ipc_proto::request_context::{
    AttachedFile, MAX_ATTACHED, MAX_PROGRESS_KEY, MAX_PROGRESS_MESSAGE,
};
use ipc_proto::text::cut;
use std::cell::RefCell;

/// Bytes of the key of a post.
const MAX_KEY: usize = 4 * MAX_PROGRESS_KEY;

/// The stream of posts, once it was asked for.
#[derive(Debug, Default)]
pub(super) struct Posts(RefCell<Option<Replies<AppBridge>>>);

impl Posts {
    pub(super) async fn open(
        &self,
        bridge: &Client<AppBridge>,
        attached: &[AttachedFile],
    ) -> Result<(), Lost> {
        // No channel lets a request have more than this.
        let attachments = attached[..attached.len().min(MAX_ATTACHED)].to_vec();
        let request = Request::Accompany { attachments };
        let posts = bridge.stream(&request, &[], None);
        let posts = posts.await.map_err(lost(BRIDGE))?;
        *self.0.borrow_mut() = Some(posts);
        Ok(())
    }

    pub(super) async fn next(&self) -> Result<RunEvent, Lost> {
        let Some(mut posts) = self.0.take() else {
            return std::future::pending().await;
        };
        let posted = posts.next().await;
        *self.0.borrow_mut() = Some(posts);
        match posted {
            Some(Ok((
                Reply::Posted {
                    server,
                    key,
                    message,
                    state,
                },
                _,
            ))) => Ok(RunEvent::Posted {
                server,
                key: cut(&strip(&key), MAX_KEY).to_owned(),
                message: cut(&strip(&message), MAX_PROGRESS_MESSAGE).to_owned(),
                state,
            }),
            Some(Ok((other, _))) => Err(broken(BRIDGE, format!("{other:?}"))),
            Some(Err(error)) => Err(lost(BRIDGE)(error)),
            None => Err(broken(BRIDGE, "what servers post came to an end")),
        }
    }

    /// The app-bridge takes nothing more from them.
    pub(super) fn close(&self) {
        self.0.take();
    }
}
