//! The folders in which the scenes begin, and the vault that stands in them.

use super::{RECLAIM, ROTATE, START, open};
use anyhow::Result;
use ipc_proto::apps::AppTool;
use jiff::Timestamp;
use mono_app_bridge::apps::audit::{Method, Phase};
use mono_app_bridge::apps::manifest::{Manifest, SCHEMA, State};
use mono_app_bridge::apps::meta::Wishes;
use mono_app_bridge::apps::quota::Bounds;
use mono_app_bridge::apps::vault::{NewApp, Vault, hash};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// When scenes happen, in milliseconds since 1970.
pub(super) const NOW: i64 = 1_000;
/// When the first app has expired.
pub(super) const LATER: i64 = 3_000;
/// Bytes of one log file of the scenes: a few entries.
const SEGMENT: u64 = 1_200;
/// Bytes of all logs.
const RESERVE: u64 = 4_000;

pub(super) fn id(n: usize) -> String {
    format!("{n:032x}")
}

pub(super) fn page(n: usize) -> String {
    format!("<p>{n}").repeat(400)
}

pub(super) fn app(n: usize, run: &str) -> NewApp {
    let html = page(n);
    let tool = AppTool {
        name: "t".into(),
        title: None,
        description: None,
        input_schema: None,
    };
    NewApp {
        manifest: Manifest {
            schema: SCHEMA,
            id: id(n),
            connection: "c".repeat(32),
            pool: "p".into(),
            capability: "k".into(),
            server: "s".into(),
            tool,
            tools: vec![],
            uri: "ui://s/t".into(),
            run: run.to_owned(),
            conversation: "web:t".into(),
            delivery: "web:t".into(),
            created_at: NOW,
            // The first goes early.
            expires_at: if n == 1 { 2_000 } else { 9_000 },
            html_bytes: html.len(),
            html_hash: hash(html.as_bytes()),
            wishes: Wishes::default(),
        },
        html,
        state: State {
            input: json!({ "n": n }),
            result: json!({ "content": [] }),
        },
    }
}

/// The owner, opened anew on a scene's folder.
pub(super) fn vault(folder: &Path, now: i64) -> Result<Arc<Vault>> {
    let bounds = Bounds {
        reserve: RESERVE,
        segment: SEGMENT,
        ..Bounds::default()
    };
    let root = open(&folder.join("state"))?;
    Ok(Arc::new(Vault::with(root, now, bounds, None)?))
}

fn fill(vault: &Arc<Vault>, n: usize, entries: usize) -> Result<()> {
    for _ in 0..entries {
        let now = Timestamp::UNIX_EPOCH;
        vault.note(&id(n), Method::Call, Phase::Rejected, now, &|_| true)?;
    }
    Ok(())
}

pub(super) fn prepare(scene: &str, folder: &Path) -> Result<()> {
    fs::create_dir(folder.join("state"))?;
    let vault = vault(folder, NOW)?;
    for n in [1, 2, 3] {
        let run = format!("before-{n}");
        vault.publish(&app(n, &run), NOW)?;
        vault.keep(&run, &[id(n)])?;
    }
    match scene {
        ROTATE => fill(&vault, 1, 5)?,
        RECLAIM => {
            fill(&vault, 2, 8)?;
            fill(&vault, 3, 8)?;
            // Until nothing more finds room without making some.
            while vault.usage().audit + 250 < RESERVE {
                fill(&vault, 3, 1)?;
            }
        }
        START => {
            // A run that is over left one that is not kept, one half written, and a torn line.
            fill(&vault, 1, 1)?;
            vault.publish(&app(20, "torn"), NOW)?;
            let half = folder.join("state/staging").join(id(21));
            fs::create_dir(&half)?;
            fs::write(half.join("resource.html"), "<p>")?;
            let log = folder.join("state/apps").join(id(1)).join("audit.jsonl");
            let mut line = fs::read(&log)?;
            line.extend_from_slice(b"{\"at\":");
            fs::write(&log, line)?;
        }
        _ => {}
    }
    Ok(())
}
