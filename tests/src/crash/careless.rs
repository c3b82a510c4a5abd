//! The control: an owner that does it wrong. Were it found faultless, the others would prove
//! nothing.

use super::{Step, Subject, mark, say};
use anyhow::Result;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

const HALVES: [&str; 2] = ["one half, ", "the other half"];

/// Writes in place, promises before it is written, and takes an error for success.
#[derive(Debug)]
pub struct Careless;

impl Subject for Careless {
    fn name(&self) -> &'static str {
        "careless"
    }

    fn scenes(&self) -> &'static [&'static str] {
        &["write"]
    }

    fn prepare(&self, _: &str, _: &Path) -> Result<()> {
        Ok(())
    }

    fn drive(&self, _: &str, folder: &Path) -> Result<()> {
        // Opened before, so that every call of the scene is one of the two writes or the answer.
        let mut file = File::create(folder.join("file"))?;
        mark();
        let _ = file.write(HALVES[0].as_bytes());
        say("done");
        let _ = file.write(HALVES[1].as_bytes());
        mark();
        Ok(())
    }

    fn check(&self, _: &str, folder: &Path, said: &[&str], _: bool) -> Result<Vec<String>> {
        let text = fs::read_to_string(folder.join("file"))?;
        let whole = text == HALVES.concat();
        let mut wrong = Vec::new();
        if !whole && !text.is_empty() {
            wrong.push("half of it is there".to_owned());
        }
        if !whole && said.contains(&"done") {
            wrong.push("it was promised and is lost".to_owned());
        }
        Ok(wrong)
    }

    fn order(&self, _: &str, _: &[Step]) -> Vec<String> {
        Vec::new()
    }
}
