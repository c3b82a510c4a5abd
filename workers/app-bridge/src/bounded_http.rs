//! reqwest as rmcp's HTTP backend, with a note when an event was over the size limit.
//!
//! rmcp ends the connection then, and all that a waiting call learns is that it closed; the person
//! would be told that the server ended.

use crate::pipes::Overflow;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::{HeaderName, HeaderValue};
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
    StreamableHttpResponseLimits,
};
use sse_stream::Sse;
use std::collections::HashMap;
use std::sync::Arc;

type Headers = HashMap<HeaderName, HeaderValue>;
type Events = BoxStream<'static, Result<Sse, SseError>>;
type Failure = StreamableHttpError<reqwest::Error>;

/// The backend of one connection.
#[derive(Debug, Clone)]
pub struct BoundedHttp {
    client: reqwest::Client,
    overflow: Overflow,
}

impl BoundedHttp {
    /// `overflow` is set when an event or an answer is over the limit.
    pub fn new(client: reqwest::Client, overflow: Overflow) -> Self {
        Self { client, overflow }
    }

    fn watch(&self, events: Events) -> Events {
        let overflow = self.overflow.clone();
        events
            .inspect(move |event| {
                // The type behind this error is private to rmcp; its text is tested here.
                if let Err(SseError::Body(error)) = event
                    && error.to_string().contains("maximum size")
                {
                    overflow.set();
                }
            })
            .boxed()
    }
}

impl StreamableHttpClient for BoundedHttp {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(uri, message, session, auth, headers, limits)
            .await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: Headers,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let posted = self
            .client
            .post_message_with_response_limits(uri, message, session, auth, headers, limits)
            .await?;
        Ok(match posted {
            StreamableHttpPostResponse::Sse(events, session) => {
                StreamableHttpPostResponse::Sse(self.watch(events), session)
            }
            other => other,
        })
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<(), Failure> {
        self.client
            .delete_session(uri, session, auth, headers)
            .await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<Events, Failure> {
        let max = StreamableHttpResponseLimits::default().max_sse_event_size;
        self.get_stream_with_max_sse_event_size(uri, session, last_event, auth, headers, max)
            .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth: Option<String>,
        headers: Headers,
        max: usize,
    ) -> Result<Events, Failure> {
        let events = self
            .client
            .get_stream_with_max_sse_event_size(uri, session, last_event, auth, headers, max)
            .await?;
        Ok(self.watch(events))
    }
}
