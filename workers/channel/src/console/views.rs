//! Apps of an answer that is still being written: what pages are told of them. No I/O.

use super::live::object;
use super::shown::shown_part;
use crate::runs::Early;
use ipc_proto::operator_frames::Frame;
use ipc_proto::reply::{MAX_PARTS, ReplyPart};
use serde_json::{Map, Value, json};

/// How far the call of an app is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The model still writes its arguments.
    Draft,
    /// It is made.
    Called,
    /// It has a result.
    Whole,
}

#[derive(Debug)]
struct View {
    part: ReplyPart,
    stage: Stage,
    /// What its arguments say so far, and the number of the frame that told it.
    input: Option<(Map<String, Value>, u64)>,
}

/// All of them, in the order in which they came.
#[derive(Debug, Default)]
pub struct Views(Vec<View>);

impl View {
    fn frame(&self, message: &str) -> Frame {
        let mut part = object(shown_part(message, &self.part));
        let stage = match self.stage {
            Stage::Draft => Some("draft"),
            Stage::Called => Some("called"),
            Stage::Whole => None,
        };
        if let Some(stage) = stage {
            part.insert("stage".to_owned(), stage.into());
        }
        Frame::View { part }
    }
}

impl Views {
    fn find(&mut self, id: &str) -> Option<&mut View> {
        self.0.iter_mut().find(|view| view.part.id() == id)
    }

    /// What pages are told of it, if it says something.
    pub fn take(&mut self, early: Early, message: &str) -> Option<Frame> {
        match early {
            Early::Draft(part) => self.add(part, Stage::Draft, message),
            Early::Whole(part) => match self.find(part.id()) {
                Some(view) if view.stage == Stage::Whole => None,
                Some(view) => {
                    (view.part, view.stage, view.input) = (part, Stage::Whole, None);
                    Some(view.frame(message))
                }
                None => self.add(part, Stage::Whole, message),
            },
            Early::Input { id, arguments } => {
                let view = self.find(&id).filter(|view| view.stage == Stage::Draft)?;
                view.input = Some((arguments.clone(), 0));
                Some(Frame::Input { id, arguments })
            }
            Early::Called { id } => {
                let view = self.find(&id).filter(|view| view.stage == Stage::Draft)?;
                (view.stage, view.input) = (Stage::Called, None);
                Some(view.frame(message))
            }
            Early::Gone { id } => {
                let at = self.0.iter().position(|view| view.part.id() == id)?;
                if self.0[at].stage == Stage::Whole {
                    return None;
                }
                self.0.remove(at);
                Some(Frame::View {
                    part: object(json!({ "id": id, "stage": "gone" })),
                })
            }
        }
    }

    fn add(&mut self, part: ReplyPart, stage: Stage, message: &str) -> Option<Frame> {
        if self.find(part.id()).is_some() || self.0.len() == MAX_PARTS {
            return None;
        }
        let view = View {
            part,
            stage,
            input: None,
        };
        let frame = view.frame(message);
        self.0.push(view);
        Some(frame)
    }

    /// The number of the frame that told the latest input of an app.
    pub fn told_input(&mut self, id: &str) -> Option<u64> {
        self.find(id)?.input.as_ref().map(|(_, number)| *number)
    }

    /// The latest input of an app was told by this frame.
    pub fn tell_input(&mut self, id: &str, frame: u64) {
        if let Some((_, number)) = self.find(id).and_then(|view| view.input.as_mut()) {
            *number = frame;
        }
    }

    /// What tells a page all of them.
    pub fn frames(&self, message: &str) -> Vec<Frame> {
        let mut frames = Vec::new();
        for view in &self.0 {
            frames.push(view.frame(message));
            if let Some((arguments, _)) = view.input.clone() {
                let id = view.part.id().to_owned();
                frames.push(Frame::Input { id, arguments });
            }
        }
        frames
    }

    /// Their parts.
    pub fn parts(&self) -> impl Iterator<Item = &ReplyPart> {
        self.0.iter().map(|view| &view.part)
    }

    /// Those of calls that have a result.
    pub fn whole(&self) -> impl Iterator<Item = &ReplyPart> {
        let whole = self.0.iter().filter(|view| view.stage == Stage::Whole);
        whole.map(|view| &view.part)
    }

    /// The answer has ended.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
