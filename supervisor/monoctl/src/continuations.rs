//! `monoctl continuations` (spec s1, "Health and recovery"). What was captured is never printed, and
//! no command names a destination.

use crate::cli::{Continuations, Outcome};
use crate::daemon::Daemon;
use crate::error::CtlError;
use crate::screen::Screen;
use crate::table::Rows;
use crate::terminal::{safe_line, shell_word};
use ipc_proto::admin::Ask;
use ipc_proto::edges::continuation::Order;
use serde_json::Value;
use std::path::Path;

/// Longest word of a record that is shown.
const MAX_WORD: usize = 300;

/// Exit status 0 when it was done, 1 when it was refused or nobody could be asked.
pub(crate) async fn run(
    socket: Option<&Path>,
    command: Continuations,
    screen: &mut Screen,
) -> Result<u8, CtlError> {
    let order = order_of(command);
    let value = ask(socket, order.clone()).await?;
    if screen.is_json() {
        screen.json(&value)?;
        return Ok(0);
    }
    match order {
        Order::Health => health(&value, screen)?,
        Order::List { limit, .. } => list(&value, limit, screen)?,
        _ => record(&value, screen)?,
    }
    Ok(0)
}

/// What a command asks for.
fn order_of(command: Continuations) -> Order {
    match command {
        Continuations::Health => Order::Health,
        Continuations::List { limit, cursor } => Order::List { limit, cursor },
        Continuations::Show { id } => Order::Show { id },
        Continuations::Retry { id, allow_unknown } => Order::Retry { id, allow_unknown },
        Continuations::Cancel { id } => Order::Cancel { id },
        Continuations::Resolve { id, outcome } => resolve(id, outcome),
    }
}

async fn ask(socket: Option<&Path>, order: Order) -> Result<Value, CtlError> {
    // Whoever can't be asked has refused as well: scripts look for one status.
    let asked = async {
        let daemon = Daemon::connect(socket).await?;
        let (value, _) = daemon
            .ask::<Value>(&Ask::Continuations { order }, &[])
            .await?;
        Ok(value)
    };
    asked
        .await
        .map_err(|e: CtlError| CtlError::Unreached(Box::new(e)))
}

fn resolve(id: String, outcome: Outcome) -> Order {
    let (kind, delivery_id) = match outcome {
        Outcome::Delivered { delivery_id } => ("delivered", delivery_id),
        Outcome::NotDelivered => ("not_delivered", None),
        Outcome::DeadLettered => ("dead_lettered", None),
    };
    Order::Resolve {
        id,
        kind: kind.to_owned(),
        delivery_id,
    }
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => safe_line(text, MAX_WORD),
        Value::Null => String::new(),
        other => safe_line(&other.to_string(), MAX_WORD),
    }
}

fn health(value: &Value, screen: &mut Screen) -> Result<(), CtlError> {
    let status = word(&value["status"]);
    let pending = word(&value["pending"]);
    let due = word(&value["due"]);
    screen.line(&format!("{status}: {pending} pending, {due} due"))?;
    let mut rows = Rows::new(&["STATE", "RECORDS"]);
    for (state, count) in value["counts"].as_object().into_iter().flatten() {
        if count != 0 {
            rows.push([state.as_str(), &word(count)]);
        }
    }
    screen.line(&rows.text())?;
    if let Some(oldest) = value["oldestPendingAt"].as_str() {
        screen.line(&format!("oldest pending: {}", safe_line(oldest, MAX_WORD)))?;
    }
    let storage = &value["storage"];
    screen.line(&format!(
        "storage: {}, {} records, {} active of at most {}, {} without their history",
        word(&storage["format"]),
        word(&storage["records"]),
        word(&storage["active"]),
        word(&storage["limits"]["maxActiveRecords"]),
        word(&storage["historyDegraded"]),
    ))?;
    if storage["unresolvedDelivery"].as_u64() > Some(0) {
        screen.line(
            "some deliveries are unknown: look whether they arrived, then say so with `monoctl continuations resolve`",
        )?;
    }
    Ok(())
}

fn list(value: &Value, limit: Option<u32>, screen: &mut Screen) -> Result<(), CtlError> {
    let records = value["continuations"].as_array();
    let records = records.map(Vec::as_slice).unwrap_or_default();
    if records.is_empty() {
        return screen.line("no continuations");
    }
    let mut rows = Rows::new(&["ID", "STATE", "MODE", "UPDATED"]);
    for record in records {
        rows.push([
            word(&record["continuationId"]),
            word(&record["state"]),
            word(&record["mode"]),
            word(&record["updatedAt"]),
        ]);
    }
    screen.line(&rows.text())?;
    let Some(cursor) = value["nextCursor"].as_str() else {
        return Ok(());
    };
    let limit = limit.map_or_else(String::new, |limit| format!(" --limit {limit}"));
    screen.line(&format!(
        "more: monoctl continuations list{limit} --cursor {}",
        shell_word(cursor)
    ))
}

fn record(value: &Value, screen: &mut Screen) -> Result<(), CtlError> {
    let mut rows = Rows::new(&["FIELD", "VALUE"]);
    let mut row = |name: &str, value: &Value| {
        if !value.is_null() {
            rows.push([name, &word(value)]);
        }
    };
    row("id", &value["continuationId"]);
    row("state", &value["state"]);
    row("mode", &value["mode"]);
    row("task", &value["taskKey"]);
    row("created", &value["createdAt"]);
    row("updated", &value["updatedAt"]);
    row("deadline", &value["deadline"]);
    row("origin context", &value["originContext"]["state"]);
    row("syntheses", &value["attempts"]["synthesis"]);
    row("deliveries", &value["attempts"]["delivery"]);
    row("next attempt", &value["nextAttemptAt"]);
    row("completion", &value["completionKind"]);
    row("last error", &value["lastError"]["code"]);
    let receipt = &value["receipt"];
    row("receipt", &receipt["kind"]);
    row("delivered", &receipt["deliveredAt"]);
    row("delivery id", &receipt["deliveryId"]);
    row("in the history", &receipt["historyRecorded"]);
    screen.line(&rows.text())?;
    // A sentence: it says what to mend, and no column is wide enough for it.
    match value["lastError"]["reason"].as_str() {
        Some(reason) => screen.line(&format!("reason: {}", safe_line(reason, MAX_WORD))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser as _;
    use serde_json::json;

    #[test]
    fn each_command_is_one_order_and_names_no_destination() {
        for (words, order) in [
            ("health", json!({ "order": "health" })),
            (
                "list",
                json!({ "order": "list", "limit": null, "cursor": null }),
            ),
            (
                "list --limit 50 --cursor OPAQUE",
                json!({ "order": "list", "limit": 50, "cursor": "OPAQUE" }),
            ),
            ("show ID", json!({ "order": "show", "id": "ID" })),
            (
                "retry ID",
                json!({ "order": "retry", "id": "ID", "allow_unknown": false }),
            ),
            (
                "retry ID --allow-unknown",
                json!({ "order": "retry", "id": "ID", "allow_unknown": true }),
            ),
            ("cancel ID", json!({ "order": "cancel", "id": "ID" })),
            (
                "resolve ID delivered RECEIPT",
                json!({ "order": "resolve", "id": "ID", "kind": "delivered", "delivery_id": "RECEIPT" }),
            ),
            (
                "resolve ID delivered",
                json!({ "order": "resolve", "id": "ID", "kind": "delivered", "delivery_id": null }),
            ),
            (
                "resolve ID not-delivered",
                json!({ "order": "resolve", "id": "ID", "kind": "not_delivered", "delivery_id": null }),
            ),
            (
                "resolve ID dead-lettered",
                json!({ "order": "resolve", "id": "ID", "kind": "dead_lettered", "delivery_id": null }),
            ),
        ] {
            let line = ["monoctl", "continuations"]
                .into_iter()
                .chain(words.split(' '));
            let Command::Continuations { command } = Cli::try_parse_from(line).unwrap().command
            else {
                panic!("{words}")
            };
            assert_eq!(
                serde_json::to_value(order_of(command)).unwrap(),
                order,
                "{words}"
            );
        }
        for words in [
            "captured ID",
            "resolve ID delivered RECEIPT web:1",
            "resolve ID not-delivered RECEIPT",
            "retry ID --to web:1",
        ] {
            let line = ["monoctl", "continuations"]
                .into_iter()
                .chain(words.split(' '));
            assert!(Cli::try_parse_from(line).is_err(), "{words}");
        }
    }
}
