//! The worker's process is killed in the middle of its work, again and again.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Place, published};
use jiff::{SignedDuration, Timestamp};
use mono_artifact::index::Retention;
use mono_artifact::quota::charge;
use mono_artifact::reading::Wish;
use mono_artifact::shelf::STAGING_GRACE;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

const SIZE: usize = 700 * 1024;
const ROUNDS: usize = 40;

/// The victim: publishes and finalises for ever, and says which artifacts it finished.
#[test]
#[ignore = "the child process of the test below, which names it"]
fn victim() {
    let root = std::env::var_os("MONO_ARTIFACT_VICTIM").unwrap();
    let root = Path::new(&root);
    let place = Place {
        temp: tempfile::tempdir().unwrap(),
    };
    let own = common::dir(&root.join("state")).id().unwrap();
    let roots =
        mono_artifact::verify::Roots::new(Some(common::dir(&root.join("w"))), None, &[], own);
    let shelf =
        mono_artifact::Shelf::open(&common::dir(&root.join("state")), 1 << 28, Timestamp::now())
            .unwrap();
    let retention = Retention {
        max_age_days: 365,
        max_count: 50_000,
        dry_run: false,
    };
    let desk = std::sync::Arc::new(mono_artifact::session::Desk {
        shelf,
        roots,
        retention,
    });
    println!("ready");
    for n in 0u64.. {
        // A new content each time; the file is replaced and not rewritten, as an editor would.
        let mut bytes = vec![7; SIZE];
        bytes[..8].copy_from_slice(&n.to_le_bytes());
        std::fs::write(root.join("w/next"), &bytes).unwrap();
        std::fs::rename(root.join("w/next"), root.join("w/a.bin")).unwrap();
        let mut session = place.session(&desk);
        let mut request = place.request("a.bin", None);
        request.source = Some(std::fs::File::open(root.join("w/a.bin")).unwrap().into());
        let (id, _) = published(
            &session
                .publish(request, Timestamp::now(), &|_| true)
                .unwrap(),
        );
        session.finalise().unwrap().unwrap();
        println!("done {id}");
        if n % 3 == 2 {
            println!("taking {id}");
            session.discard().unwrap();
        }
    }
}

#[test]
fn kill_9_leaves_no_half_visible_artifact_no_lost_one_and_no_leaked_byte() {
    let place = Place::new();
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["victim", "--exact", "--ignored", "--nocapture"])
            .env("MONO_ARTIFACT_VICTIM", place.temp.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        while lines.next().unwrap().unwrap() != "ready" {}
        let (mut done, mut taken) = (Vec::new(), Vec::new());
        let mut hear = |line: String, done: &mut Vec<String>| match line.split_once(' ') {
            Some(("done", id)) => done.push(id.to_owned()),
            Some(("taking", id)) => taken.push(id.to_owned()),
            _ => {}
        };
        while done.len() < round % 4 {
            hear(lines.next().unwrap().unwrap(), &mut done);
        }
        // Any moment of the next publication will do, another one each round.
        std::thread::sleep(std::time::Duration::from_micros(
            round as u64 * 397 % 16_000,
        ));
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines.map_while(Result::ok) {
            hear(line, &mut done);
        }

        let now = Timestamp::now();
        let desk = place.desk_with(1 << 28, now);
        let (live, _) = place.names();
        for id in &live {
            // Complete: every manifest agrees with every byte.
            let (manifest, _) = desk
                .shelf
                .read(
                    Wish {
                        id,
                        integrity_id: None,
                        delivery: None,
                    },
                    now,
                )
                .unwrap();
            assert_eq!(manifest.size_bytes, SIZE as u64, "round {round}");
        }
        for id in done.iter().filter(|id| !taken.contains(id)) {
            assert!(
                live.contains(id),
                "round {round}: {id} was finalised and is gone"
            );
        }
        let retention = Retention {
            max_age_days: 365,
            max_count: 50_000,
            dry_run: false,
        };
        desk.shelf.clean(
            &retention,
            now + SignedDuration::from_secs(STAGING_GRACE + 60),
        );
        assert_eq!(place.names().1, [] as [String; 0], "round {round}");
        assert_eq!(
            desk.shelf.used(),
            live.len() as u64 * charge(SIZE as u64),
            "round {round}"
        );
        // Make room for the next round.
        let all: Vec<_> = live.iter().map(|id| id.parse().unwrap()).collect();
        desk.shelf.discard(&all).unwrap();
        place.assert_empty(&desk);
    }
}
