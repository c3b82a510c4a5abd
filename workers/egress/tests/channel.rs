//! The worker's edge as a run sees it: packed replies, credit, withdrawal, bounds.
#![allow(clippy::unwrap_used)]

use ipc_proto::callbacks::CallbackHosts;
use ipc_proto::chat::{ChatMessage, ChatRole, ModelRequest, ToolSpec};
use ipc_proto::edges::egress::{Egress, FinishReason, Reply, Request};
use ipc_proto::settings::{EgressSettings, ModelChoice, ProviderSettings, Wire};
use ipc_proto::{Body, CallError, Client, Role, Server};
use mono_egress::complete::Completer;
use mono_egress::deliver::Deliverer;
use mono_egress::fetch::Fetcher;
use mono_egress::http_client::Tls;
use mono_egress::resolver::PrivateHosts;
use mono_egress::serve::{Egresses, MAX_CONCURRENT, serve};
use mono_tests::mock_model::MockModel;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A run's end of a channel that is served with the mock as its only model.
async fn channel() -> (Client<Egress>, MockModel) {
    let mock = MockModel::start().await.unwrap();
    let settings = EgressSettings {
        providers: BTreeMap::from([(
            "mock".into(),
            ProviderSettings {
                wire: Wire::OpenaiChat,
                base_url: mock.base_url(),
                has_key: false,
            },
        )]),
        chain: vec![ModelChoice {
            provider: "mock".into(),
            model: "m".into(),
            effort: None,
            attempts: 2,
        }],
        offered: vec![],
        backoff_ms: 1,
        max_backoff_ms: 1,
        max_retry_delay_ms: 1,
        idle_timeout_ms: 20_000,
        allow_private_hosts: vec![],
        callback_hosts: CallbackHosts::default(),
    };
    let tls = Tls::from_system();
    let allowed = PrivateHosts::new(&[mock.address().to_string()]);
    let out = Egresses {
        completer: Completer::new(tls.model_client().unwrap(), &settings, |_| None).unwrap(),
        fetcher: Fetcher::new(&tls, allowed, Duration::from_secs(60)).unwrap(),
        deliverer: Deliverer::new(&tls, CallbackHosts::default(), Duration::from_secs(60)).unwrap(),
    };
    let (ours, theirs) = ipc_proto::link::pair().unwrap();
    let server = Server::new(theirs, Role::Run).unwrap();
    tokio::spawn(serve(server, Arc::new(out), stay()));
    (Client::new(ours, Role::Egress).unwrap(), mock)
}

/// Nobody asks to leave.
fn stay() -> tokio::sync::watch::Receiver<bool> {
    tokio::sync::watch::channel(false).1
}

fn complete(text: &str) -> (Request, Vec<std::os::fd::OwnedFd>) {
    let request = ModelRequest {
        model: None,
        effort: None,
        system: String::new(),
        messages: vec![ChatMessage::text(ChatRole::User, text)],
        tools: vec![ToolSpec {
            name: "echo".into(),
            description: String::new(),
            input_schema: json!({"type": "object"}),
        }],
        streamed: vec![],
        max_output_tokens: None,
    };
    let (request, fd) = Body::pack_json(&request).unwrap();
    (Request::Complete { request }, fd.into_iter().collect())
}

#[tokio::test]
async fn a_long_answer_arrives_whole_through_a_small_window() {
    let (client, _mock) = channel().await;
    let padding = "p".repeat(100_000);
    let (request, fds) = complete(&format!("{padding} [[mock:long 100000]]"));
    let mut replies = client.stream(&request, &fds, None).await.unwrap();
    let (mut text, mut done) = (String::new(), None);
    while let Some(reply) = replies.next().await {
        match reply.unwrap().0 {
            Reply::TextDelta { text: piece } => {
                assert!(piece.len() <= 16 * 1024);
                text.push_str(&piece);
            }
            Reply::Done { finish, model, .. } => done = Some((finish, model)),
            _ => {}
        }
    }
    assert_eq!(text.split(' ').count(), 100_000);
    assert_eq!(done, Some((FinishReason::Stop, "mock:m".into())));
}

#[tokio::test]
async fn a_large_tool_call_travels_in_a_sealed_body() {
    let (client, _mock) = channel().await;
    let (request, fds) = complete("[[mock:bigtool echo 2097152]]");
    let mut replies = client.stream(&request, &fds, None).await.unwrap();
    let mut size = 0;
    while let Some(reply) = replies.next().await {
        let (reply, mut fds) = reply.unwrap();
        if let Reply::ToolCall { arguments, .. } = reply {
            assert!(matches!(arguments, Body::Sealed(_)));
            size = arguments.unpack(&mut fds, 8 << 20).unwrap().len();
        }
    }
    assert_eq!(size, 2_097_152 + 14);
}

#[tokio::test]
async fn what_is_no_request_is_refused() {
    let (client, mock) = channel().await;
    let request = Request::Complete {
        request: Body::Inline(b"{}".to_vec()),
    };
    let refused = client
        .call(&request, &[], Duration::from_secs(60))
        .await
        .unwrap_err();
    assert!(matches!(refused, CallError::Fault(fault) if fault.code == "invalid_request"));
    assert_eq!(mock.stats().requests, 0);
}

#[tokio::test]
async fn a_withdrawn_call_makes_room_and_the_bound_holds() {
    let (client, mock) = channel().await;
    let mut waiting = Vec::new();
    for _ in 0..MAX_CONCURRENT {
        let (request, fds) = complete("[[mock:hang]]");
        let mut replies = client.stream(&request, &fds, None).await.unwrap();
        // The status says that the call is under way.
        assert!(matches!(
            replies.next().await.unwrap().unwrap().0,
            Reply::Status { .. }
        ));
        waiting.push(replies);
    }
    let busy = |error: &CallError| matches!(error, CallError::Fault(fault) if fault.code == "busy");
    let (request, fds) = complete("hello");
    let refused = client
        .call(&request, &fds, Duration::from_secs(60))
        .await
        .unwrap_err();
    assert!(busy(&refused), "{refused}");

    waiting.pop();
    let answered = async {
        loop {
            let (request, fds) = complete("hello");
            match client.call(&request, &fds, Duration::from_secs(60)).await {
                Ok((reply, _)) => return reply,
                // The withdrawal is on its way.
                Err(e) => assert!(busy(&e), "{e}"),
            }
        }
    };
    let reply = tokio::time::timeout(Duration::from_secs(60), answered)
        .await
        .unwrap();
    assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    assert!(mock.stats().requests > MAX_CONCURRENT as u64);
}

#[tokio::test]
async fn a_deadline_ends_the_call_with_a_kind() {
    let (client, _mock) = channel().await;
    let (request, fds) = complete("[[mock:hang]]");
    let deadline = Some(Duration::from_millis(200));
    let mut replies = client.stream(&request, &fds, deadline).await.unwrap();
    let mut last = None;
    while let Some(reply) = replies.next().await {
        last = Some(reply.unwrap().0);
    }
    assert!(matches!(last, Some(Reply::ModelFailed { kind, .. }) if kind == "timeout"));
}

#[tokio::test]
async fn fetches_come_back_with_a_code_or_a_body() {
    let (client, mock) = channel().await;
    let fetch = |url: String, max_bytes| Request::Fetch {
        url,
        headers: vec![],
        max_bytes,
    };
    let call = async |request| {
        client
            .call(&request, &[], Duration::from_secs(60))
            .await
            .unwrap()
    };

    let (reply, mut fds) = call(fetch(
        format!("http://{}/v1/models", mock.address()),
        1 << 20,
    ))
    .await;
    let Reply::Fetched {
        status: 200,
        body,
        content_type,
        truncated: false,
        ..
    } = reply
    else {
        panic!("{reply:?}");
    };
    assert_eq!(content_type.as_deref(), Some("application/json"));
    let body = body.unpack(&mut fds, 1 << 20).unwrap();
    assert!(String::from_utf8(body).unwrap().contains("mock-1"));

    for (url, expected) in [
        ("http://127.0.0.1:9/", "private_address"),
        ("file:///etc/passwd", "invalid_url"),
        ("http://no-such-host.invalid/", "dns"),
    ] {
        let (reply, _) = call(fetch(url.to_owned(), 1000)).await;
        assert!(
            matches!(&reply, Reply::FetchFailed { code, .. } if code == expected),
            "{reply:?}"
        );
    }
}
