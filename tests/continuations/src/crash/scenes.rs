//! What is done to the store while it is watched.

use super::images::{Camera, Images, Lie, Records};
use super::look::LIMITS;
use anyhow::{Result, ensure};
use continuation_record::sample::{
    at, bound, claimed, context, delivered, expired, id, ready, received, retrying, unknown,
};
use continuation_record::{OriginContextState, Record, State};
use continuation_store::fs::{Chance, Folder, SimFs, World};
use continuation_store::{Origin, Store, Txn};
use std::convert::Infallible;
use std::sync::Arc;

/// Something that is done to the store.
pub(super) trait Scene {
    fn name(&self) -> &'static str;

    /// Plays it, on a disk that may lie.
    fn play(&self, lie: Option<Lie>) -> Result<Images>;
}

struct Play {
    name: &'static str,
    /// The disk as it begins, and the records on it.
    begin: fn() -> Result<(World, Records)>,
    act: fn(&mut Stage) -> Result<()>,
}

/// The store, and who writes down what happens to it.
pub(super) struct Stage {
    fs: SimFs,
    camera: Camera,
    store: Option<Store<SimFs>>,
}

impl Stage {
    fn store(&self) -> Result<&Store<SimFs>> {
        self.store
            .as_ref()
            .ok_or_else(|| anyhow::anyhow!("the store is closed"))
    }

    /// The state that the next change leads to.
    fn expect(&self, change: impl FnOnce(&mut Records)) {
        self.camera.story(|story| {
            let mut next = story
                .states
                .last()
                .map(|last| (**last).clone())
                .unwrap_or_default();
            change(&mut next);
            story.states.push(Arc::new(next));
        });
    }

    /// All that was begun is promised.
    fn promise(&self) {
        self.camera
            .story(|story| story.promised = story.states.len() - 1);
    }

    fn change(
        &self,
        change: impl FnOnce(&mut Txn<'_, SimFs>),
        after: impl FnOnce(&mut Records),
    ) -> Result<()> {
        self.expect(after);
        self.store()?
            .update(|txn| {
                change(txn);
                Ok::<_, Infallible>(())
            })
            .wait()?;
        self.promise();
        Ok(())
    }

    fn put(&self, record: Record) -> Result<()> {
        let copy = record.clone();
        self.change(
            |txn| txn.put(record),
            |records| {
                records.insert(copy.continuation_id.clone(), copy);
            },
        )
    }

    fn delete(&self, number: usize) -> Result<()> {
        self.change(
            |txn| txn.delete(&id(number)),
            |records| {
                records.remove(&id(number));
            },
        )
    }

    fn get(&self, number: usize) -> Result<Record> {
        let record = self.store()?.get(&id(number))?;
        record
            .map(Arc::unwrap_or_clone)
            .ok_or_else(|| anyhow::anyhow!("record {number} is gone"))
    }

    /// Claims that are bound to one snapshot.
    fn bind(&self, numbers: std::ops::Range<usize>) -> Result<()> {
        let text = context("turn");
        let digest = snapshot_digest(&text);
        let records: Vec<_> = numbers
            .map(|number| bound(claimed(number), &digest, &text))
            .collect();
        let copies = records.clone();
        self.change(
            |txn| {
                txn.put_blob(text);
                records.into_iter().for_each(|record| txn.put(record));
            },
            |all| {
                for record in copies {
                    all.insert(record.continuation_id.clone(), record);
                }
            },
        )
    }

    fn activate(&self, ms: i64) -> Result<()> {
        let pin = |record: &mut Record| {
            let waits = record.origin_context_state == OriginContextState::Pending
                && record.origin_context_ref.is_some()
                && record.state.is_pending();
            if waits {
                record.origin_context_state = OriginContextState::Pinned;
                record.updated_at = at(ms);
                record.next_attempt_at = None;
            }
        };
        self.expect(|records| records.values_mut().for_each(pin));
        let origin = Origin {
            run: "run-1".to_owned(),
            conversation: "slack:D1:1.1#2026-07-14".to_owned(),
            boundary: "run-1".to_owned(),
        };
        self.store()?.activate(&origin, at(ms)).wait()?;
        self.promise();
        Ok(())
    }

    fn checkpoint(&self) -> Result<()> {
        while self.store()?.checkpoint()? {}
        Ok(())
    }

    /// Several changes in one write.
    fn together(&self, records: Vec<Record>) -> Result<()> {
        let store = self.store()?;
        store.hold(true);
        let mut updates = Vec::new();
        for record in records {
            let copy = record.clone();
            self.expect(|all| {
                all.insert(copy.continuation_id.clone(), copy);
            });
            updates.push(store.update(|txn| {
                txn.put(record);
                Ok::<_, Infallible>(())
            }));
        }
        store.hold(false);
        store.flush()?;
        for update in updates {
            update.wait()?;
        }
        self.promise();
        Ok(())
    }

    fn reopen(&mut self) -> Result<()> {
        drop(self.store.take());
        let (store, _) = Store::open_manual(self.fs.clone(), LIMITS)?;
        let secret = *store.secret().bytes();
        self.camera.story(|story| story.secret = Some(secret));
        self.store = Some(store);
        Ok(())
    }
}

fn snapshot_digest(text: &str) -> String {
    let labelled = format!("mono-agent-origin-context-v1\0{text}");
    continuation_record::canonical::sha256_hex(labelled.as_bytes())
}

impl Scene for Play {
    fn name(&self) -> &'static str {
        self.name
    }

    fn play(&self, lie: Option<Lie>) -> Result<Images> {
        play((self.begin)()?, lie, self.act)
    }
}

fn play(
    (world, records): (World, Records),
    lie: Option<Lie>,
    act: impl FnOnce(&mut Stage) -> Result<()>,
) -> Result<Images> {
    let fs = SimFs::new(world);
    if let Some(lie) = lie {
        lie.tell(&fs);
    }
    let camera = Camera::default();
    camera.story(|story| story.states.push(Arc::new(records)));
    camera.watch(&fs);
    let mut stage = Stage {
        fs: fs.clone(),
        camera: camera.clone(),
        store: None,
    };
    stage.reopen()?;
    act(&mut stage)?;
    drop(stage);
    Ok(camera.develop(&fs))
}

fn empty() -> Result<(World, Records)> {
    Ok((World::new(), Records::new()))
}

pub(super) fn all() -> Vec<Box<dyn Scene>> {
    let play = |name, begin, act| -> Box<dyn Scene> { Box::new(Play { name, begin, act }) };
    vec![
        play("claim", empty, claim),
        play("early_result", empty, early_result),
        play("activation", empty, activation),
        play("synthesis", empty, synthesis),
        play("delivery", empty, delivery),
        play("resolve", empty, resolve),
        play("retention", empty, retention),
        play("turnover", empty, turnover),
        play("migration", legacy, migration),
        Box::new(Mixed(1)),
        Box::new(Mixed(2)),
        Box::new(Mixed(3)),
    ]
}

/// Disks that lie, and a scene that has to suffer from it.
pub(super) fn controls() -> Vec<(Lie, Box<dyn Scene>)> {
    let scene = |name: &str| all().into_iter().find(|scene| scene.name() == name);
    [
        (Lie::Log, "claim"),
        (Lie::Packs, "retention"),
        (Lie::Files, "claim"),
        (Lie::Names, "claim"),
        (Lie::Root, "claim"),
    ]
    .into_iter()
    .filter_map(|(lie, name)| Some((lie, scene(name)?)))
    .collect()
}

fn claim(stage: &mut Stage) -> Result<()> {
    for number in 0..3 {
        stage.put(claimed(number))?;
    }
    stage.together((3..8).map(claimed).collect())?;
    stage.checkpoint()?;
    stage.put(claimed(8))?;
    stage.reopen()?;
    stage.together((9..30).map(claimed).collect())?;
    stage.checkpoint()
}

fn early_result(stage: &mut Stage) -> Result<()> {
    stage.put(claimed(0))?;
    stage.checkpoint()?;
    stage.put(received(stage.get(0)?, r#"{"summary":"early"}"#))?;
    stage.put(claimed(1))?;
    stage.checkpoint()?;
    stage.bind(0..1)?;
    stage.put(received(stage.get(0)?, r#"{"summary":"early"}"#))?;
    stage.activate(50)?;
    stage.checkpoint()
}

fn activation(stage: &mut Stage) -> Result<()> {
    stage.bind(0..4)?;
    stage.put(claimed(9))?;
    stage.put(received(stage.get(1)?, "[1]"))?;
    stage.put(expired(stage.get(2)?, at(40)))?;
    stage.activate(50)?;
    stage.checkpoint()?;
    // Once more with so much that a marker is needed; the members follow it in several changes.
    let long = format!("\"{}\"", "x".repeat(5_000));
    stage.bind(4..8)?;
    for number in 4..8 {
        stage.put(received(stage.get(number)?, &long))?;
        stage.checkpoint()?;
    }
    stage.activate_by_marker(60)?;
    stage.checkpoint()
}

impl Stage {
    /// With a marker, every number of members may have followed it; once it is opened, all have.
    fn activate_by_marker(&self, ms: i64) -> Result<()> {
        self.activate(ms)?;
        ensure!(
            self.fs.world().names(Folder::Groups).is_empty(),
            "the marker is still there"
        );
        Ok(())
    }
}

fn synthesis(stage: &mut Stage) -> Result<()> {
    stage.bind(0..2)?;
    stage.activate(10)?;
    for number in 0..2 {
        stage.put(received(stage.get(number)?, r#"{"a":1}"#))?;
        let leased = Record {
            state: State::Synthesizing,
            synthesis_attempts: 1,
            synthesis_started_at: Some(at(20)),
            lease_owner: Some("process".to_owned()),
            lease_until: Some(at(1_800_020)),
            ..stage.get(number)?
        };
        stage.put(leased)?;
        stage.checkpoint()?;
        let done = Record {
            lease_owner: None,
            lease_until: None,
            ..ready(stage.get(number)?, &"An answer. ".repeat(200))
        };
        stage.put(done)?;
        if number == 0 {
            stage.reopen()?;
        }
    }
    stage.checkpoint()
}

fn delivery(stage: &mut Stage) -> Result<()> {
    stage.bind(0..3)?;
    stage.activate(10)?;
    for number in 0..3 {
        stage.put(ready(received(stage.get(number)?, r#"{"a":1}"#), "text"))?;
        if number == 1 {
            stage.checkpoint()?;
            stage.put(retrying(stage.get(number)?, at(500)))?;
        }
        let sending = Record {
            delivery_started_at: Some(at(30)),
            delivery_attempts: 1,
            ..stage.get(number)?
        };
        stage.put(sending)?;
        if number == 2 {
            stage.checkpoint()?;
        }
        let sent = Record {
            delivery_started_at: None,
            ..stage.get(number)?
        };
        stage.put(delivered(sent, at(40)))?;
    }
    stage.checkpoint()?;
    stage.reopen()
}

fn resolve(stage: &mut Stage) -> Result<()> {
    stage.put(claimed(0))?;
    stage.put(claimed(1))?;
    for number in 0..2 {
        let text = ready(received(stage.get(number)?, "1"), "text");
        stage.put(unknown(text, at(30)))?;
    }
    stage.checkpoint()?;
    stage.put(delivered(stage.get(0)?, at(60)))?;
    let back = Record {
        state: State::ReadyToDeliver,
        ..stage.get(1)?
    };
    // What was scrubbed stays so: the text is there.
    stage.put(Record {
        origin_context_state: OriginContextState::Abandoned,
        ..back
    })?;
    stage.checkpoint()?;
    stage.put(delivered(stage.get(1)?, at(70)))?;
    stage.checkpoint()
}

fn retention(stage: &mut Stage) -> Result<()> {
    for number in 0..8 {
        let kept = Record {
            mode: continuation_record::Mode::Capture,
            synthesized_text: Some("captured ".repeat(40)),
            ..delivered(received(claimed(number), "1"), at(9))
        };
        stage.put(kept)?;
    }
    stage.checkpoint()?;
    for number in 0..4 {
        let bare = Record {
            synthesized_text: None,
            ..stage.get(number)?
        };
        stage.put(bare)?;
    }
    stage.checkpoint()?;
    for number in 0..3 {
        stage.delete(number)?;
    }
    stage.checkpoint()?;
    // The same name and claim again, after the tombstone is gone.
    stage.put(claimed(1))?;
    stage.delete(5)?;
    stage.put(claimed(5))?;
    stage.checkpoint()?;
    stage.reopen()
}

/// Packs fill, are copied and removed; the log goes round.
fn turnover(stage: &mut Stage) -> Result<()> {
    for round in 0..50_usize {
        let number = round % 7;
        let record = if round % 3 == 0 {
            delivered(received(claimed(number), "1"), at(9))
        } else {
            Record {
                updated_at: at(i64::try_from(round).unwrap_or(0)),
                ..claimed(number)
            }
        };
        stage.put(record)?;
        if round % 4 == 3 {
            stage.checkpoint()?;
        }
        if round % 11 == 10 {
            stage.delete(number)?;
        }
        if round % 17 == 16 {
            stage.reopen()?;
        }
    }
    stage.checkpoint()
}

/// Changes, checkpoints and restarts in any order.
struct Mixed(u64);

impl Scene for Mixed {
    fn name(&self) -> &'static str {
        "mixed"
    }

    fn play(&self, lie: Option<Lie>) -> Result<Images> {
        let seed = self.0;
        play(empty()?, lie, |stage| mixed(stage, &mut Chance::new(seed)))
    }
}

fn mixed(stage: &mut Stage, chance: &mut Chance) -> Result<()> {
    for step in 0..110 {
        let number = chance.below(12);
        let ms = at(step);
        let there = stage.store()?.get(&id(number))?.map(Arc::unwrap_or_clone);
        match (chance.below(16), there) {
            (0 | 1, _) => stage.checkpoint()?,
            (2, _) => {
                stage.store()?.checkpoint()?;
            }
            (3, _) => stage.reopen()?,
            (4, _) => {
                let first = 20 + chance.below(40);
                stage.together((first..first + 3).map(claimed).collect())?;
            }
            (5, Some(_)) => stage.delete(number)?,
            (_, None) => stage.put(claimed(number))?,
            (6..=9, Some(record)) if record.state == State::Claimed => {
                let payload = format!("\"{}\"", "x".repeat(chance.below(3_000)));
                stage.put(received(record, &payload))?;
            }
            (6..=9, Some(record)) if record.state == State::ResultReceived => {
                stage.put(ready(record, "An answer."))?;
            }
            (_, Some(record)) if record.state == State::ReadyToDeliver => {
                stage.put(delivered(record, ms))?;
            }
            (_, Some(record)) => stage.put(Record {
                updated_at: ms,
                ..record
            })?,
        }
    }
    stage.checkpoint()
}

/// Records of three versions, some of them twice, with transactions that were interrupted.
fn legacy() -> Result<(World, Records)> {
    super::legacy::folder()
}

fn migration(stage: &mut Stage) -> Result<()> {
    // It is done when the store is open.
    stage.promise();
    stage.put(claimed(70))?;
    stage.checkpoint()?;
    stage.reopen()
}
