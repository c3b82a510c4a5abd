//! How a service ends: what was begun is finished where that is possible, and nothing more is begun.

use super::hostile::start;
use crate::host::Readiness;
use continuation_record::OriginContextState;
use std::time::Duration;
use tokio::net::TcpStream;

/// Whoever lets a request stand still holds the stop up; work that begins meanwhile would be cut with it.
#[tokio::test]
async fn a_request_that_stands_still_has_no_work_begun_while_the_service_stops() {
    let running = start(|_| ()).await;
    // It is asked again each second.
    running.host.0.lock().unwrap().ready = Some(Readiness::Later { retry_after: None });
    running.accepted("run-1", 1.into()).await;
    let host = running.host.clone();
    let asked = || host.0.lock().unwrap().asked_ready.len();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while asked() == 0 {
        assert!(tokio::time::Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
    let token = running.claim_token("run-2");
    let head = format!(
        "POST /v1/continuations/claim HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {}\r\ncontent-length: 100\r\n\r\n{{",
        token.as_str()
    );
    let stuck = running.open(&head).await;
    // It is taken: one that comes after it is answered.
    running.ask("GET", "/", "x", "").await;
    let address = running.address;
    let stopping = tokio::spawn(running.service.stop());
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    let before = asked();
    stopping.await.unwrap();
    assert_eq!(asked(), before);
    drop(stuck);
}

/// The turn may be committed at this moment, and only its history's owner can say.
#[tokio::test]
async fn a_stop_leaves_an_origin_with_its_snapshot_to_the_next_start() {
    let running = start(|_| ()).await;
    let mut ids = Vec::new();
    for run in ["open", "finalized"] {
        let claimed = running.claimed(run).await;
        ids.push(claimed["continuationId"].as_str().unwrap().to_owned());
    }
    running.finalized("finalized").await;
    let store = running.store.clone();
    running.service.stop().await;
    let states = [&ids[0], &ids[1]].map(|id| store.record(id).origin_context_state);
    assert_eq!(
        states,
        [OriginContextState::Abandoned, OriginContextState::Pending]
    );
}
