//! The claims of this run's servers, with the continuation worker.

use super::{Wire, broken, lost, unpackable};
use crate::owners::{Claims, Lost};
use ipc_proto::Body;
use ipc_proto::edges::continuation::{self, Origin};
use std::os::fd::OwnedFd;
use std::time::Duration;

const CONTINUATION: &str = "continuation";
/// Time for claims under way to end, or for a snapshot to be durable.
const CLAIM_TIME: Duration = Duration::from_secs(60);

impl Wire {
    async fn ask_continuation(
        &self,
        request: continuation::Request,
        body: Option<OwnedFd>,
    ) -> Result<Option<continuation::Reply>, Lost> {
        let Some(claims) = &self.claims else {
            return Ok(None);
        };
        let fds: Vec<OwnedFd> = body.into_iter().collect();
        let answer = claims.call(&request, &fds, CLAIM_TIME).await;
        Ok(Some(answer.map_err(lost(CONTINUATION))?.0))
    }

    async fn settle(
        &self,
        request: continuation::Request,
        body: Option<OwnedFd>,
    ) -> Result<(), Lost> {
        match self.ask_continuation(request, body).await? {
            None | Some(continuation::Reply::Settled) => Ok(()),
            Some(other) => Err(broken(CONTINUATION, format!("{other:?}"))),
        }
    }
}

impl Claims for Wire {
    async fn close_claims(&self) -> Result<u32, Lost> {
        match self
            .ask_continuation(continuation::Request::Close, None)
            .await?
        {
            None => Ok(0),
            Some(continuation::Reply::Closed { active }) => Ok(active),
            Some(other) => Err(broken(CONTINUATION, format!("{other:?}"))),
        }
    }

    async fn pin(&self, origin: &Origin) -> Result<(), Lost> {
        let (origin, fd) = Body::pack_json(origin).map_err(unpackable)?;
        self.settle(continuation::Request::Pin { origin }, fd).await
    }

    async fn activate(&self) -> Result<Vec<String>, Lost> {
        match self
            .ask_continuation(continuation::Request::Activate, None)
            .await?
        {
            None => Ok(vec![]),
            Some(continuation::Reply::Activated { continuations }) => Ok(continuations),
            Some(other) => Err(broken(CONTINUATION, format!("{other:?}"))),
        }
    }

    async fn abandon(&self) -> Result<(), Lost> {
        self.settle(continuation::Request::Abandon, None).await
    }
}
