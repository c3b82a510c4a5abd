//! Commands of a turn that publish over MCP, beside the model that does so itself.

use super::fake::{Bench, Fake, call, done, text, wants};
use crate::app_endpoint::{AppEndpoint, MAX_APP_CALLS};
use app_tools::OpenError;
use ipc_proto::edges::control::RunStatus;
use ipc_proto::edges::events::RunEvent;
use ipc_proto::reply::{MAX_PARTS, ReplyPart};
use serde_json::{Value, json};
use std::io;

/// A shell function that publishes a file over MCP and prints the answer's last line.
const PUBLISH: &str = r#"
publish() {
  local rest=${MONO_AGENT_ADAPTER_TOOLS_URL#http://} body
  local host=${rest%%/*} path=/${rest#*/}
  body='{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"PublishReplyFile","arguments":'$1'}}'
  exec 3<>"/dev/tcp/${host%:*}/${host#*:}" || return 1
  printf 'POST %s HTTP/1.1\r\nhost: %s\r\naccept: application/json, text/event-stream\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %s\r\n\r\n%s' \
    "$path" "$host" "${#body}" "$body" >&3
  tail -n 1 <&3
  echo
}
"#;

async fn bench() -> (Bench, String) {
    let bench = Bench::new();
    for n in 0..=MAX_PARTS {
        std::fs::write(bench.dir.path().join(format!("f{n}.txt")), n.to_string()).unwrap();
    }
    let endpoint = AppEndpoint::open().await.unwrap();
    let secret = endpoint.url().secret().to_owned();
    *bench.opening.borrow_mut() = Some(Ok(Some(endpoint)));
    (bench, secret)
}

/// What the command's only `Bash` call printed, line by line, as the tool's own answers.
fn printed(fake: &Fake) -> Vec<Value> {
    let preview = fake.events.borrow().iter().find_map(|event| match event {
        RunEvent::ToolCompleted { name, preview, .. } if name == "Bash" => Some(preview.clone()),
        _ => None,
    });
    let lines = preview.unwrap();
    lines
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| {
            let answer: Value = serde_json::from_str(line).unwrap();
            let text = answer["result"]["content"][0]["text"].as_str().unwrap();
            serde_json::from_str(text).unwrap_or_else(|_| json!(text))
        })
        .collect()
}

#[tokio::test]
async fn both_ways_share_one_budget_and_know_the_same_file() {
    let (bench, secret) = bench().await;
    let commands = format!(
        "{PUBLISH}
        publish '{{\"path\":\"f0.txt\"}}'
        publish '{{\"path\":\"f1.txt\"}}'
        publish '{{\"path\":\"f1.txt\"}}'
        publish '{{\"path\":\"f1.txt\",\"surplus\":1}}'"
    );
    let mut first = vec![call("1", "PublishReplyFile", json!({"path": "f0.txt"}))];
    first.push(call("2", "Bash", json!({"command": commands})));
    first.push(wants());
    // The model goes on where its commands stopped, and one file is too many.
    let mut second: Vec<_> = (1..=MAX_PARTS)
        .map(|n| {
            let path = format!("f{n}.txt");
            call(&format!("b{n}"), "PublishReplyFile", json!({"path": path}))
        })
        .collect();
    second.push(wants());
    let fake = Fake::answering([first, second, vec![text("Here."), done()]]);
    assert_eq!(bench.run(&fake).await.status, RunStatus::Succeeded);

    let said = printed(&fake);
    assert_eq!(said.len(), 4, "{said:?}");
    assert_eq!(said[0]["attachmentId"], "part-0");
    assert_eq!((&said[1], &said[1]["published"]), (&said[2], &json!(true)));
    assert!(said[3].as_str().unwrap().contains("surplus"), "{said:?}");
    let parts = fake.commit().parts.clone();
    assert_eq!(parts.len(), MAX_PARTS);
    // Each part was told of once, whichever way it came.
    let told = fake.events.borrow();
    let told = told.iter().filter(|e| matches!(e, RunEvent::Part { .. }));
    assert_eq!(told.count(), MAX_PARTS);
    let log = fake.log();
    let refused = format!("tool_ended b{MAX_PARTS} error");
    assert!(log.contains(&refused), "{log:?}");
    let own = |line: &&String| line.starts_with("tool_started app-");
    assert_eq!(log.iter().filter(own).count(), 4, "{log:?}");
    assert!(!format!("{log:?} {:?}", fake.events.borrow()).contains(&secret));
    assert!(matches!(&parts[0], ReplyPart::Attachment { id, .. } if id == "part-0"));
}

#[tokio::test]
async fn a_command_that_prints_the_address_leaves_it_in_no_record() {
    let (bench, secret) = bench().await;
    let fake = Fake::answering([
        vec![
            call("1", "Bash", json!({"command": "env"})),
            call("2", "Bash", json!({"command": format!(": {secret}")})),
            wants(),
        ],
        vec![done()],
    ]);
    bench.run(&fake).await;
    let events = format!("{:?}", fake.events.borrow());
    assert!(events.contains("/mcp/[withheld]"), "{events}");
    assert!(!events.contains(&secret) && !format!("{:?}", fake.log()).contains(&secret));
}

#[tokio::test]
async fn a_program_in_a_loop_is_refused_in_the_end_and_the_turn_goes_on() {
    let (bench, _) = bench().await;
    let commands = format!(
        "{PUBLISH}
        for n in $(seq {MAX_APP_CALLS}); do publish '{{\"path\":\"f0.txt\"}}' >> all; done
        publish '{{\"path\":\"f0.txt\"}}'"
    );
    let fake = Fake::answering([
        vec![call("1", "Bash", json!({"command": commands})), wants()],
        vec![text("Done."), done()],
    ]);
    assert_eq!(bench.run(&fake).await.status, RunStatus::Succeeded);
    let refusal = json!({"published": false, "code": "reply_part_too_large"});
    assert_eq!(printed(&fake), [refusal]);
    let all = std::fs::read_to_string(bench.dir.path().join("all")).unwrap();
    assert_eq!(all.matches("part-0").count(), MAX_APP_CALLS);
    assert_eq!(fake.commit().parts.len(), 1);
}

#[tokio::test]
async fn the_endpoint_is_gone_before_anything_is_settled() {
    let (bench, _) = bench().await;
    let at = {
        let opening = bench.opening.borrow();
        let Some(Ok(Some(endpoint))) = &*opening else {
            panic!("no endpoint")
        };
        let url = endpoint.url().reveal().strip_prefix("http://").unwrap();
        url.split('/').next().unwrap().to_owned()
    };
    let mut open = tokio::net::TcpStream::connect(&at).await.unwrap();
    let fake = Fake::answering([vec![text("x"), done()]]);
    *fake.at_finalise.borrow_mut() = Some(Box::new({
        let at = at.clone();
        move || {
            assert!(
                std::net::TcpStream::connect(&at).is_err(),
                "still listening"
            )
        }
    }));
    assert_eq!(bench.run(&fake).await.status, RunStatus::Succeeded);
    assert!(fake.at_finalise.borrow().is_none());
    let mut rest = [0; 1];
    let read = tokio::io::AsyncReadExt::read(&mut open, &mut rest).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

#[tokio::test]
async fn an_endpoint_that_can_not_open_is_a_warning_and_the_turn_goes_on() {
    let bench = Bench::new();
    let refused = OpenError::from(io::Error::from(io::ErrorKind::PermissionDenied));
    *bench.opening.borrow_mut() = Some(Err(refused));
    let command = "echo ${MONO_AGENT_ADAPTER_TOOLS_URL-none}";
    let fake = Fake::answering([
        vec![call("1", "Bash", json!({"command": command})), wants()],
        vec![text("x"), done()],
    ]);
    assert_eq!(bench.run(&fake).await.status, RunStatus::Succeeded);
    assert_eq!(fake.warnings(), ["app_endpoint_failed"]);
    let events = format!("{:?}", fake.events.borrow());
    assert!(events.contains("preview: \"none"), "{events}");
}
