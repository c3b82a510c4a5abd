#![allow(clippy::unwrap_used)]

use super::*;
use ipc_proto::{Body, CallError, Client};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

/// Posts that were begun, and whether what is begun ends.
struct Wall {
    begun: Mutex<Vec<String>>,
    open: Semaphore,
}

impl Wall {
    fn new(open: usize) -> Arc<Self> {
        Arc::new(Self {
            begun: Mutex::default(),
            open: Semaphore::new(open),
        })
    }

    fn begun(&self) -> Vec<String> {
        self.begun.lock().unwrap().clone()
    }

    async fn has_begun(&self, count: usize) {
        let waiting = Instant::now();
        while self.begun().len() < count {
            assert!(waiting.elapsed() < LONG, "{:?}", self.begun());
            tokio::task::yield_now().await;
        }
    }
}

impl Later for Wall {
    fn reach(&self, _: ConversationId) -> BoxFuture<'_, Reply> {
        Box::pin(async { Reply::Reachable })
    }

    fn deliver(&self, _: ConversationId, key: String, _: String, _: Until) -> BoxFuture<'_, Reply> {
        Box::pin(async move {
            self.begun.lock().unwrap().push(key.clone());
            self.open.acquire().await.unwrap().forget();
            posted(key)
        })
    }
}

fn channel(wall: &Arc<Wall>) -> (Client<Delivery>, tokio::task::JoinHandle<()>) {
    let (ours, theirs) = ipc_proto::link::pair().unwrap();
    let server = Server::new(theirs, Role::Continuation).unwrap();
    let serving = tokio::spawn(serve(server, wall.clone()));
    (Client::new(ours, Role::ChannelWebhook).unwrap(), serving)
}

fn request(key: &str, until: Until) -> Request {
    Request::Deliver {
        destination: ConversationId::parse("web:1").unwrap(),
        key: key.to_owned(),
        text: Body::Inline(b"text".to_vec()),
        until,
    }
}

async fn deliver(
    client: Client<Delivery>,
    key: String,
    until: Until,
    within: Duration,
) -> Result<Reply, CallError> {
    let asked = client.call(&request(&key, until), &[], within).await;
    asked.map(|(reply, _)| reply)
}

/// Takes all turns, and returns when each has begun.
async fn fill(client: &Client<Delivery>, wall: &Wall) -> JoinSet<Result<Reply, CallError>> {
    let mut calls = JoinSet::new();
    for n in 0..AT_ONCE {
        let key = format!("first{n}");
        calls.spawn(deliver(client.clone(), key, Until::after(LONG), LONG));
    }
    wall.has_begun(AT_ONCE).await;
    calls
}

#[tokio::test]
async fn a_post_begins_before_its_moment_or_not_at_all() {
    let wall = Wall::new(usize::MAX >> 4);
    let (client, _serving) = channel(&wall);
    let ask = |key: &str, until| deliver(client.clone(), key.to_owned(), until, LONG);
    let early = ask("early", Until::after(LONG)).await.unwrap();
    assert_eq!(early, posted("early".to_owned()));
    // However long its caller seems to wait: the request lay in the socket meanwhile.
    let late = ask("late", Until::after(Duration::ZERO)).await.unwrap();
    assert_eq!(late, too_late());
    assert_eq!(wall.begun(), ["early"]);
}

#[tokio::test]
async fn who_waits_behind_others_until_it_is_too_late_is_told_so_and_not_posted() {
    let wall = Wall::new(0);
    let (client, _serving) = channel(&wall);
    let mut first = fill(&client, &wall).await;
    let until = Until::after(Duration::from_millis(50));
    let waited = deliver(client, "waits".into(), until, LONG).await;
    assert_eq!(waited.unwrap(), too_late());
    assert!(until.is_over());
    wall.open.add_permits(2 * AT_ONCE);
    while let Some(ended) = first.join_next().await {
        assert!(matches!(ended.unwrap(), Ok(Reply::Delivered { .. })));
    }
    assert_eq!(wall.begun().len(), AT_ONCE);
}

/// Returns when all that was said before has been heard.
async fn heard(client: &Client<Delivery>) {
    // What the tasks of this test have to say, they say now.
    tokio::task::yield_now().await;
    let late = deliver(
        client.clone(),
        "late".into(),
        Until::after(Duration::ZERO),
        LONG,
    );
    assert_eq!(late.await.unwrap(), too_late());
}

/// Whoever withdraws has written down that nobody knows. An operator who finds nothing has it posted again, and the
/// one that waited came out later, as a second one.
#[tokio::test]
async fn what_was_withdrawn_while_it_waited_is_never_posted() {
    let wall = Wall::new(0);
    let (client, _serving) = channel(&wall);
    let mut first = fill(&client, &wall).await;
    let (until, short) = (Until::after(LONG), Duration::from_millis(50));
    let withdrawn = deliver(client.clone(), "withdrawn".into(), until, short).await;
    assert!(matches!(withdrawn, Err(CallError::Timeout { .. })));
    heard(&client).await;
    let next = tokio::spawn(deliver(client, "next".into(), until, LONG));
    wall.open.add_permits(2 * AT_ONCE);
    assert!(matches!(next.await.unwrap(), Ok(Reply::Delivered { .. })));
    while first.join_next().await.is_some() {}
    assert_eq!(wall.begun().len(), AT_ONCE + 1);
    assert!(!wall.begun().contains(&"withdrawn".to_owned()));
}

/// The worker that comes after one that was killed takes all that it finds begun for unknown, at once.
#[tokio::test]
async fn of_whoever_is_gone_nothing_more_is_posted() {
    let wall = Wall::new(0);
    let (client, serving) = channel(&wall);
    let first = fill(&client, &wall).await;
    let mut waiting = JoinSet::new();
    for n in 0..AT_ONCE {
        let key = format!("waits{n}");
        waiting.spawn(deliver(client.clone(), key, Until::after(LONG), LONG));
    }
    heard(&client).await;
    // All of them end with their process. What was begun is broken off, too.
    drop((client, first, waiting));
    tokio::time::timeout(LONG, serving).await.unwrap().unwrap();
    wall.open.add_permits(4 * AT_ONCE);
    assert_eq!(wall.begun().len(), AT_ONCE);
}
