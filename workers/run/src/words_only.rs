//! The owners of a run that only puts a later answer into words (spec s1, "Synthesis and delivery").
//!
//! It was given the model and its listener, and no other channel. So it has no tools, publishes
//! nothing and changes no history, whatever the text says that it is to put into words.

use crate::owners::{
    Artifacts, Claims, Denied, Events, Fetch, Fetched, Handover, Lost, Mcp, McpCall, McpEvent,
    Model, NobodyListens, Publication, Store, Watch,
};
use crate::wire::channels::{Channels, say};
use crate::wire::{EGRESS, WireError, WireStream, complete, gone};
use ipc_proto::chat::ModelRequest;
use ipc_proto::edges::app_bridge::ToolListing;
use ipc_proto::edges::continuation::Origin;
use ipc_proto::edges::control::EdgeName;
use ipc_proto::edges::egress::Egress;
use ipc_proto::edges::events::RunEvent;
use ipc_proto::edges::store::{History, RunCommit, RunFailure};
use ipc_proto::reply::ReplyPart;
use ipc_proto::{Client, EventSender, Role};
use serde_json::Value;
use std::os::fd::OwnedFd;

/// The model and the listener.
#[derive(Debug)]
pub struct WordsOnly {
    egress: Client<Egress>,
    events: EventSender,
}

impl WordsOnly {
    /// Takes the two channels of an assignment. Others are closed.
    ///
    /// # Errors
    /// When one is missing or can't be used.
    pub fn new(channels: Vec<(EdgeName, OwnedFd)>, reader: Role) -> Result<Self, WireError> {
        let mut channels = Channels(channels);
        Ok(Self {
            egress: channels.client(EdgeName::Egress, Role::Egress)?,
            events: channels.events(reader)?,
        })
    }

    /// Waits until nobody reads the events any more.
    pub async fn nobody_listens(&self) {
        self.events.closed().await;
    }
}

fn no_tools() -> Denied {
    Denied {
        code: "forbidden".to_owned(),
        message: "This run has no tools.".to_owned(),
    }
}

impl Model for WordsOnly {
    type Stream = WireStream;

    async fn complete(&self, request: &ModelRequest) -> Result<WireStream, Lost> {
        complete(&self.egress, request).await
    }
}

impl Fetch for WordsOnly {
    async fn fetch(
        &self,
        _: &str,
        _: Vec<(String, String)>,
        _: u64,
    ) -> Result<Result<Fetched, Denied>, Lost> {
        Ok(Err(no_tools()))
    }
}

impl Artifacts for WordsOnly {
    async fn publish(&self, _: Handover) -> Result<Publication, Lost> {
        Ok(Publication::Refused {
            code: "artifact_publish_failed".to_owned(),
            part: None,
        })
    }

    async fn finalise(&self) -> Result<Vec<ReplyPart>, Lost> {
        Ok(vec![])
    }

    async fn discard(&self) -> Result<(), Lost> {
        Ok(())
    }
}

/// A call that was never made.
#[derive(Debug)]
pub struct NoCall;

impl McpCall for NoCall {
    async fn next(&mut self) -> Result<McpEvent, Lost> {
        Ok(McpEvent::Ended(Err(no_tools())))
    }
}

impl Mcp for WordsOnly {
    type Call = NoCall;

    async fn list(&self) -> Result<ToolListing, Lost> {
        Ok(ToolListing {
            tools: vec![],
            warnings: vec![],
        })
    }

    async fn call(&self, _: &str, _: &str, _: &Value, _: Option<&str>) -> Result<NoCall, Lost> {
        Ok(NoCall)
    }
}

/// Its text is kept by the continuation worker; a history gets it when it was delivered.
impl Store for WordsOnly {
    async fn begin(&self, _: &str, _: &str) -> Result<History, Lost> {
        Ok(History {
            messages: vec![],
            account: None,
            epoch: String::new(),
            revision: 0,
            turns: vec![],
        })
    }

    async fn tool_started(&self, _: &str, _: &str, _: &str) -> Result<(), Lost> {
        Ok(())
    }

    async fn tool_ended(&self, _: &str, _: &str, _: &str) -> Result<(), Lost> {
        Ok(())
    }

    async fn commit(&self, _: &RunCommit) -> Result<(), Lost> {
        Ok(())
    }

    async fn fail(&self, _: &RunFailure) -> Result<(), Lost> {
        Ok(())
    }
}

impl Claims for WordsOnly {
    async fn close_claims(&self) -> Result<u32, Lost> {
        Ok(0)
    }

    async fn pin(&self, _: &Origin) -> Result<(), Lost> {
        Ok(())
    }

    async fn activate(&self) -> Result<Vec<String>, Lost> {
        Ok(vec![])
    }

    async fn abandon(&self) -> Result<(), Lost> {
        Ok(())
    }
}

impl Watch for WordsOnly {
    async fn lost(&self) -> Lost {
        self.egress.closed().await;
        gone(EGRESS)
    }
}

impl Events for WordsOnly {
    async fn send(&self, event: RunEvent, body: Option<OwnedFd>) -> Result<(), NobodyListens> {
        say(&self.events, &event, body).await
    }
}
