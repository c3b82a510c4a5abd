//! The MCP server that one HTTP request gets.

use crate::tool_set::{Answer, Call, Progress, ToolSet};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ErrorData, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What all requests of an endpoint share: nothing that a request could change.
#[derive(Debug)]
pub(crate) struct Offer<T> {
    set: T,
    tools: Vec<Tool>,
    closing: CancellationToken,
}

impl<T: ToolSet> Offer<T> {
    pub(crate) fn new(set: T, closing: CancellationToken) -> Self {
        let tools = set.tools().into_iter().map(|tool| tool.into_tool());
        Self {
            tools: tools.collect(),
            set,
            closing,
        }
    }
}

/// A server without state of its own, so that a second client can initialise again.
#[derive(Debug)]
pub(crate) struct RequestServer<T>(Arc<Offer<T>>);

impl<T> RequestServer<T> {
    pub(crate) fn new(offer: Arc<Offer<T>>) -> Self {
        Self(offer)
    }
}

impl<T: ToolSet> ServerHandler for RequestServer<T> {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build()).with_server_info(
            Implementation::new(self.0.set.server_name(), env!("CARGO_PKG_VERSION")),
        )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.0.tools.clone()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.0.tools.iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if self.get_tool(&request.name).is_none() {
            let told = format!("no tool is called {:?}", request.name);
            return Err(ErrorData::invalid_params(told, None));
        }
        // Dropped with this future, however it ends: the tool set sees that nobody waits.
        let cancelled = self.0.closing.child_token();
        let _guard = cancelled.clone().drop_guard();
        let token = context.meta.get_progress_token();
        let call = Call {
            name: request.name.into_owned(),
            arguments: request.arguments.unwrap_or_default(),
            progress: Progress(token.map(|token| (context.peer.clone(), token))),
            cancelled,
        };
        let answer = tokio::select! {
            biased;
            answer = self.0.set.call(call) => answer,
            () = context.ct.cancelled() => Answer::error("The call was cancelled."),
            () = self.0.closing.cancelled() => Answer::error("The request that offered this tool is over."),
        };
        Ok(answer.into_result().into())
    }
}
