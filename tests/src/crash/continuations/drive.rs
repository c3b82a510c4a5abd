//! What the traced process does.

use super::office::{BEARER, Done, Office, Others, SERVICE};
use super::{FIRST, KEEP_UP, LIFE, START};
use crate::crash::{mark, say};
use anyhow::{Context as _, Result, bail};
use continuation_record::Mode;
use continuation_service::engine::{Question, Step};
use continuation_service::intake::Claimed;
use continuation_service::keeper::Keeper as _;
use continuation_service::{Bound, Verdict};
use continuation_store::Retention;
use serde_json::json;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

/// Settled records that are kept in the scene that forgets.
const FEW: usize = 2;

fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    Ok(builder.enable_time().build()?)
}

/// Runs what is asynchronous, in one thread beside the store's.
pub(super) fn block<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    runtime()?.block_on(future)
}

pub(super) fn prepare(scene: &str, folder: &Path) -> Result<()> {
    let state = folder.join("state");
    DirBuilder::new().mode(0o700).create(state)?;
    if scene == FIRST {
        return Ok(());
    }
    // What is promised here no line of the traced process tells.
    let quiet = Others::after(Done::default());
    let office = Office::open(folder, quiet, Retention::default())?;
    block(async {
        match scene {
            LIFE => settled(&office, "before", 3).await?,
            KEEP_UP => {
                settled(&office, "old", 4).await?;
                office.store.close()?;
                settled(&office, "new", 3).await?;
                turn(&office, "open", &["waiting"]).await?;
            }
            START => {
                settled(&office, "before", 2).await?;
                office.store.close()?;
                interrupted(&office).await?;
            }
            other => bail!("there is no scene {other:?}"),
        }
        Ok(())
    })
}

pub(super) fn drive(scene: &str, folder: &Path) -> Result<()> {
    if scene == FIRST || scene == START {
        mark();
        let outcome = open_and_recover(folder, scene);
        mark();
        if let Err(error) = outcome {
            say(&format!("not started: {error:#}"));
        }
        return Ok(());
    }
    let retention = match scene {
        KEEP_UP => Retention {
            terminal_max_records: FEW,
            ..Retention::default()
        },
        _ => Retention::default(),
    };
    let office = Office::open(folder, Others::default(), retention)?;
    mark();
    let outcome = block(async {
        match scene {
            LIFE => life(&office).await,
            _ => keep_up(&office).await,
        }
    });
    mark();
    if let Err(error) = outcome {
        say(&format!("ended: {error:#}"));
    }
    Ok(())
}

fn open_and_recover(folder: &Path, scene: &str) -> Result<()> {
    let office = Office::open(folder, Others::default(), Retention::default())?;
    block(async {
        office.recover().await?;
        if scene == FIRST {
            detached(&office, "attention", "first").await?;
        }
        office.work().await?;
        office.store.close()?;
        Ok(())
    })
}

async fn keep_up(office: &Office) -> Result<()> {
    office.store.checkpoint()?;
    office.kept.retain(office.desk.now()).await?;
    say("forgotten");
    office.store.close()?;
    settled(office, "later", 1).await?;
    office.store.close()?;
    Ok(())
}

/// Everything that a service, a turn and an operator do.
async fn life(office: &Office) -> Result<()> {
    let own = turn(office, "now", &["one", "two"]).await?;
    for claimed in &own {
        submit(office, claimed, "done").await?;
    }
    office.work().await?;
    let failed = begin(office, "failed", &["three"]).await?;
    submit(office, &failed[0], "done").await?;
    office.origins.close("failed").await?;
    office.origins.abandon("failed", "the turn failed").await?;
    for route in ["verification", "index", "attention", "unheard"] {
        let claimed = detached(office, route, route).await?;
        submit(office, &claimed, "done").await?;
    }
    office.work().await?;
    let given_up = detached(office, "attention", "given-up").await?;
    office.operator.cancel(&given_up.continuation_id).await?;
    for (task, verdict) in [
        ("again", Verdict::NotDelivered),
        ("left", Verdict::DeadLettered),
        ("seen", Verdict::Delivered { delivery_id: None }),
    ] {
        let claimed = detached(office, "unheard", task).await?;
        submit(office, &claimed, "done").await?;
        office.work().await?;
        let id = &claimed.continuation_id;
        // From here on it may be posted once more.
        if matches!(verdict, Verdict::NotDelivered) {
            say(&format!("again {id}"));
        }
        office.operator.resolve(id, verdict).await?;
    }
    office.work().await?;
    office.store.close()?;
    Ok(())
}

/// So many that are over.
async fn settled(office: &Office, name: &str, count: usize) -> Result<()> {
    for n in 0..count {
        let claimed = detached(office, "attention", &format!("{name}-{n}")).await?;
        submit(office, &claimed, "done").await?;
    }
    office.work().await
}

/// A post that was begun, a model that was asked, a turn that is committed and not activated, one that is
/// open, and a result that nobody looked at.
async fn interrupted(office: &Office) -> Result<()> {
    for (task, last) in [("posting", "deliver"), ("asking", "synthesize")] {
        let claimed = detached(office, "attention", task).await?;
        submit(office, &claimed, "done").await?;
        let mut step = office.engine.start(&claimed.continuation_id).await?;
        while let Step::Ask(job, question) = step {
            let here = match &question {
                Question::Synthesize(_) => "synthesize",
                Question::Deliver(_) => "deliver",
                _ => "",
            };
            if here == last {
                break;
            }
            let answer = office.put(question).await;
            step = office.engine.advance(job, answer).await?;
        }
    }
    let pinned = begin(office, "pinned", &["early"]).await?;
    submit(office, &pinned[0], "done").await?;
    office.origins.close("pinned").await?;
    office
        .origins
        .finalize("pinned", "the question", "the answer", &[])
        .await?;
    office.host.commit("pinned");
    begin(office, "open", &["late"]).await?;
    let waiting = detached(office, "attention", "waiting").await?;
    submit(office, &waiting, "done").await
}

fn deadline(office: &Office) -> String {
    office.desk.now().plus_ms(20 * 24 * 3_600_000).to_string()
}

fn told(office: &Office, claimed: Claimed) -> Claimed {
    office.host.say(&format!(
        "claimed {} {}",
        claimed.continuation_id, claimed.token
    ));
    claimed
}

async fn detached(office: &Office, route: &str, task: &str) -> Result<Claimed> {
    let body = json!({
        "route": route, "taskKey": task, "taskHash": "h", "deadline": deadline(office),
    });
    let body = body.to_string();
    let claimed = office
        .intake
        .detached_with(SERVICE, BEARER, body.as_bytes());
    Ok(told(office, claimed.await?))
}

/// A turn that has claimed.
async fn begin(office: &Office, run: &str, tasks: &[&str]) -> Result<Vec<Claimed>> {
    let binding = office.origins.issue(Bound {
        run: run.to_owned(),
        server: "control".to_owned(),
        conversation: "slack:D1:1.1#2026-11-30".to_owned(),
        reply_to: Some("slack:D1:1.1".to_owned()),
        boundary: None,
        mode: Mode::Reply,
    })?;
    let mut all = Vec::new();
    for task in tasks {
        let body = json!({ "taskKey": task, "taskHash": "h", "deadline": deadline(office) });
        let body = body.to_string();
        let claimed = office
            .intake
            .claim_with(binding.token.as_str(), body.as_bytes());
        all.push(told(office, claimed.await?));
    }
    Ok(all)
}

/// A turn from its claims to its activation.
async fn turn(office: &Office, run: &str, tasks: &[&str]) -> Result<Vec<Claimed>> {
    let all = begin(office, run, tasks).await?;
    office.origins.close(run).await?;
    let pinned = office
        .origins
        .finalize(run, "the question", "the answer", &[]);
    pinned.await.context("the origin is not pinned")?;
    office.host.commit(run);
    office.origins.activate(run).await?;
    Ok(all)
}

/// The body that is submitted for every claim.
pub(super) fn result(summary: &str) -> String {
    json!({ "idempotencyKey": "key", "payload": { "summary": summary } }).to_string()
}

async fn submit(office: &Office, claimed: &Claimed, summary: &str) -> Result<()> {
    let id = &claimed.continuation_id;
    let body = result(summary);
    office
        .intake
        .submit(id, &claimed.token, body.as_bytes())
        .await?;
    office.host.say(&format!("accepted {id}"));
    Ok(())
}
