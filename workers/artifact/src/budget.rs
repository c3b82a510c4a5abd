//! Twenty rich parts per run: who gets a slot, who reuses one, who is turned away.
//!
//! Spec s0, "Publishing a reply file": a retry with the same integrity identity reuses the first
//! part; the twenty-first distinct request fails and replaces nothing; a later success with the
//! same display name takes the place of the failure. Pure: no files, no clock.

use crate::Code;
use ipc_proto::reply::{MAX_PARTS, ReplyPart, failure_message};
use sha2::{Digest as _, Sha256};

/// A published file as the budget knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The visible part.
    pub part: ReplyPart,
    /// `sha256:<hex>` of the bytes: the identity `attachment:<integrityId>`.
    pub integrity_id: String,
    /// Size in bytes.
    pub size: u64,
}

/// What identifies a failed request: the same request failing in the same way is one failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailureIdentity([u8; 32]);

impl FailureIdentity {
    /// The digest of (path, name, media type, code), each with its length so that no two requests
    /// run together.
    #[must_use]
    pub fn of(path: &str, name: Option<&str>, media_type: Option<&str>, code: Code) -> Self {
        let mut hash = Sha256::new();
        for field in [Some(path), name, media_type, Some(code.as_str())] {
            match field {
                Some(text) => {
                    hash.update([1]);
                    hash.update((text.len() as u64).to_le_bytes());
                    hash.update(text.as_bytes());
                }
                None => hash.update([0]),
            }
        }
        Self(hash.finalize().into())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Slot {
    Published(Attachment),
    /// A part of another owner, which knows what it is.
    Entered(ReplyPart),
    Failed {
        identity: FailureIdentity,
        display_name: String,
        part: ReplyPart,
    },
}

/// All slots are taken by other requests: `reply_part_too_large`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the run has {MAX_PARTS} reply parts already")]
pub struct Full;

/// What became of a successful copy.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admitted {
    /// The bytes were published before in this run: the new copy is not needed.
    Reused(Box<ReplyPart>),
    /// The copy has a slot.
    Added,
}

/// The parts of one run.
#[derive(Debug, Default)]
pub struct Budget {
    slots: Vec<Slot>,
}

impl Budget {
    /// True when some published file of this run has this size, so that a retry is possible.
    #[must_use]
    pub fn knows_size(&self, size: u64) -> bool {
        self.attachments().any(|a| a.size == size)
    }

    /// The part that these bytes have already, freeing the failures of the same display name.
    pub fn reuse(&mut self, integrity_id: &str, display_name: &str) -> Option<ReplyPart> {
        let part = self
            .attachments()
            .find(|a| a.integrity_id == integrity_id)?
            .part
            .clone();
        self.forget_failures(display_name);
        Some(part)
    }

    /// True when a new file with this display name would find a slot, free or freed.
    #[must_use]
    pub fn has_room_for(&self, display_name: &str) -> bool {
        self.slots.len() < MAX_PARTS || self.slots.iter().any(|slot| slot.failed_as(display_name))
    }

    /// Gives a published file its slot; failures of the same display name make way for it.
    ///
    /// # Errors
    /// [`Full`]; nothing has changed then.
    pub fn admit(&mut self, attachment: Attachment, display_name: &str) -> Result<Admitted, Full> {
        if let Some(part) = self.reuse(&attachment.integrity_id, display_name) {
            return Ok(Admitted::Reused(Box::new(part)));
        }
        if !self.has_room_for(display_name) {
            return Err(Full);
        }
        let place = self
            .slots
            .iter()
            .position(|slot| slot.failed_as(display_name));
        self.forget_failures(display_name);
        // The first of the failures that go, so nothing before it has moved.
        self.slots.insert(
            place.unwrap_or(self.slots.len()),
            Slot::Published(attachment),
        );
        Ok(Admitted::Added)
    }

    /// Records a failure and gives its visible part; the same failure again gives the same part.
    ///
    /// # Errors
    /// [`Full`]; nothing has changed then.
    pub fn fail(
        &mut self,
        identity: FailureIdentity,
        display_name: &str,
        code: Code,
        new_part_id: impl FnOnce() -> String,
    ) -> Result<ReplyPart, Full> {
        let known = self.slots.iter().find_map(|slot| match slot {
            Slot::Failed {
                identity: known,
                part,
                ..
            } if *known == identity => Some(part.clone()),
            _ => None,
        });
        if let Some(part) = known {
            return Ok(part);
        }
        if self.slots.len() >= MAX_PARTS {
            return Err(Full);
        }
        let part = failed(new_part_id(), code);
        let display_name = display_name.to_owned();
        self.slots.push(Slot::Failed {
            identity,
            display_name,
            part: part.clone(),
        });
        Ok(part)
    }

    /// Gives a part of another owner its slot; the same id again has it already.
    ///
    /// # Errors
    /// [`Full`]; nothing has changed then.
    pub fn enter(&mut self, part: ReplyPart) -> Result<(), Full> {
        let known = |slot: &Slot| matches!(slot, Slot::Entered(own) if own.id() == part.id());
        if self.slots.iter().any(known) {
            return Ok(());
        }
        if self.slots.len() >= MAX_PARTS {
            return Err(Full);
        }
        self.slots.push(Slot::Entered(part));
        Ok(())
    }

    /// Every published file could not be kept after all: each makes way for a failure, in its place.
    pub fn lose(&mut self, code: Code, mut new_part_id: impl FnMut() -> String) {
        for slot in &mut self.slots {
            if let Slot::Published(lost) = slot {
                *slot = Slot::Failed {
                    identity: FailureIdentity::of(&lost.integrity_id, None, None, code),
                    // Nothing is published any more that could take its place.
                    display_name: String::new(),
                    part: failed(new_part_id(), code),
                };
            }
        }
    }

    /// The visible parts in order.
    #[must_use]
    pub fn parts(&self) -> Vec<ReplyPart> {
        self.slots
            .iter()
            .map(|slot| match slot {
                Slot::Published(attachment) => attachment.part.clone(),
                Slot::Entered(part) | Slot::Failed { part, .. } => part.clone(),
            })
            .collect()
    }

    fn attachments(&self) -> impl Iterator<Item = &Attachment> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Published(attachment) => Some(attachment),
            Slot::Entered(_) | Slot::Failed { .. } => None,
        })
    }

    fn forget_failures(&mut self, display_name: &str) {
        self.slots.retain(|slot| !slot.failed_as(display_name));
    }
}

fn failed(id: String, code: Code) -> ReplyPart {
    ReplyPart::Failure {
        id,
        code: code.as_str().to_owned(),
        message: failure_message(code.as_str()).to_owned(),
        related_part_id: None,
    }
}

impl Slot {
    fn failed_as(&self, name: &str) -> bool {
        matches!(self, Self::Failed { display_name, .. } if display_name == name)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ipc_proto::reply::ArtifactReference;
    use proptest::prelude::*;

    fn attachment(content: u8, name: &str) -> Attachment {
        let integrity_id = format!("sha256:{content:064x}");
        let part = ReplyPart::Attachment {
            id: format!("part-{content}-{name}"),
            reference: ArtifactReference {
                scheme: "mono-agent-artifact".into(),
                id: "a".into(),
            },
            name: name.into(),
            media_type: "text/plain".into(),
            size_bytes: u64::from(content),
            integrity_id: integrity_id.clone(),
            expires_at: None,
        };
        Attachment {
            part,
            integrity_id,
            size: u64::from(content),
        }
    }

    fn fail(budget: &mut Budget, path: &str, name: &str) -> Result<ReplyPart, Full> {
        let code = Code::PublishFailed;
        budget.fail(
            FailureIdentity::of(path, Some(name), None, code),
            name,
            code,
            || path.to_owned(),
        )
    }

    #[test]
    fn a_retry_of_the_same_bytes_reuses_the_first_part() {
        let mut budget = Budget::default();
        let first = attachment(1, "a.txt");
        assert_eq!(budget.admit(first.clone(), "a.txt"), Ok(Admitted::Added));
        assert_eq!(
            budget.admit(attachment(1, "b.txt"), "b.txt"),
            Ok(Admitted::Reused(Box::new(first.part.clone())))
        );
        assert_eq!(budget.parts(), vec![first.part]);
        assert!(budget.knows_size(1) && !budget.knows_size(2));
    }

    fn app(n: usize) -> ReplyPart {
        ReplyPart::McpApp {
            id: format!("app-{n}"),
            invocation_id: format!("app-{n}"),
            connection_id: "c".into(),
            server_name: "s".into(),
            tool_name: "t".into(),
            resource_uri: "ui://s/t".into(),
            media_type: "text/html;profile=mcp-app".into(),
            protocol_version: "2026-01-26".into(),
            title: None,
            description: None,
            expires_at: None,
        }
    }

    #[test]
    fn apps_and_files_share_the_twenty_places_in_one_order() {
        let mut budget = Budget::default();
        for n in 0..10 {
            assert_eq!(budget.admit(attachment(n, "x"), "x"), Ok(Admitted::Added));
            budget.enter(app(usize::from(n))).unwrap();
        }
        assert_eq!(budget.enter(app(99)), Err(Full));
        assert_eq!(budget.admit(attachment(99, "y"), "y"), Err(Full));
        // The same again costs nothing, and a lost file takes no app with it.
        budget.enter(app(3)).unwrap();
        budget.lose(Code::PublishFailed, || "f".into());
        let parts = budget.parts();
        assert_eq!(parts.len(), MAX_PARTS);
        assert_eq!((parts[1].clone(), parts[19].clone()), (app(0), app(9)));
    }

    #[test]
    fn the_twenty_first_distinct_request_replaces_nothing_and_a_retry_still_works() {
        let mut budget = Budget::default();
        for n in 0..19 {
            assert_eq!(budget.admit(attachment(n, "x"), "x"), Ok(Admitted::Added));
        }
        fail(&mut budget, "p", "failed.txt").unwrap();
        let before = budget.parts();
        assert_eq!(before.len(), MAX_PARTS);
        assert_eq!(budget.admit(attachment(30, "y"), "y"), Err(Full));
        assert_eq!(fail(&mut budget, "q", "other.txt"), Err(Full));
        assert!(matches!(
            budget.admit(attachment(3, "z"), "z"),
            Ok(Admitted::Reused(_))
        ));
        assert_eq!(
            fail(&mut budget, "p", "failed.txt").as_ref(),
            Ok(&before[19])
        );
        assert_eq!(budget.parts(), before);
        assert!(budget.has_room_for("failed.txt") && !budget.has_room_for("y"));
    }

    #[test]
    fn a_success_with_the_same_display_name_takes_the_failure_s_place() {
        let mut budget = Budget::default();
        fail(&mut budget, "p1", "a.txt").unwrap();
        fail(&mut budget, "p2", "a.txt").unwrap();
        fail(&mut budget, "p3", "b.txt").unwrap();
        let a = attachment(1, "a.txt");
        assert_eq!(budget.admit(a.clone(), "a.txt"), Ok(Admitted::Added));
        let parts = budget.parts();
        assert_eq!((parts.len(), &parts[0]), (2, &a.part));
        assert!(matches!(&parts[1], ReplyPart::Failure { id, .. } if id == "p3"));
        // A failure after the success is additive.
        fail(&mut budget, "p4", "a.txt").unwrap();
        assert_eq!(budget.parts().len(), 3);
    }

    #[test]
    fn files_that_can_not_be_kept_are_failures_in_their_places() {
        let mut budget = Budget::default();
        fail(&mut budget, "p1", "a.txt").unwrap();
        for content in [1, 2] {
            assert_eq!(
                budget.admit(attachment(content, "b.txt"), "b.txt"),
                Ok(Admitted::Added)
            );
        }
        let mut ids = ["n1", "n2"].into_iter();
        budget.lose(Code::PublishFailed, || ids.next().unwrap().to_owned());
        let shown: Vec<_> = budget
            .parts()
            .into_iter()
            .map(|part| match part {
                ReplyPart::Failure { id, code, .. } => (id, code),
                other => panic!("{other:?}"),
            })
            .collect();
        let expected =
            ["p1", "n1", "n2"].map(|id| (id.to_owned(), "artifact_publish_failed".to_owned()));
        assert_eq!(shown, expected);
    }

    #[test]
    fn the_failure_identity_covers_every_field_and_its_borders() {
        let code = Code::PublishFailed;
        let all = [
            FailureIdentity::of("ab", Some("c"), None, code),
            FailureIdentity::of("a", Some("bc"), None, code),
            FailureIdentity::of("ab", None, Some("c"), code),
            FailureIdentity::of("ab", Some("c"), Some(""), code),
            FailureIdentity::of("ab", Some("c"), None, Code::TooLarge),
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|other| other != one));
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Publish(u8, u8),
        Fail(u8, u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = (any::<bool>(), 0u8..40, 0u8..12).prop_map(|(ok, what, name)| {
            if ok {
                Step::Publish(what, name)
            } else {
                Step::Fail(what, name)
            }
        });
        prop::collection::vec(step, 0..80)
    }

    proptest! {
        #[test]
        fn parts_are_bounded_and_a_published_part_never_goes(steps in steps()) {
            let mut budget = Budget::default();
            for step in steps {
                let before = budget.parts();
                let kept: Vec<_> = before.iter().filter(|p| matches!(p, ReplyPart::Attachment { .. })).cloned().collect();
                match step {
                    Step::Publish(content, name) => {
                        let name = format!("n{name}");
                        let new = attachment(content, &name);
                        let room = budget.has_room_for(&name);
                        match budget.admit(new.clone(), &name) {
                            Ok(Admitted::Added) => prop_assert!(room && budget.parts().contains(&new.part)),
                            Ok(Admitted::Reused(part)) => prop_assert!(before.contains(&part)),
                            Err(Full) => prop_assert!(!room && budget.parts() == before),
                        }
                    }
                    Step::Fail(path, name) => {
                        let outcome = fail(&mut budget, &format!("p{path}"), &format!("n{name}"));
                        match outcome {
                            Ok(part) => prop_assert!(budget.parts().contains(&part)),
                            Err(Full) => prop_assert!(before.len() == MAX_PARTS && budget.parts() == before),
                        }
                    }
                }
                let after = budget.parts();
                prop_assert!(after.len() <= MAX_PARTS);
                // Earlier files stay, in their order.
                let still: Vec<_> = after.iter().filter(|p| kept.contains(p)).cloned().collect();
                prop_assert_eq!(still, kept);
                let mut identities: Vec<_> = budget.attachments().map(|a| a.integrity_id.clone()).collect();
                identities.sort();
                identities.dedup();
                prop_assert_eq!(identities.len(), budget.attachments().count());
            }
        }
    }
}
