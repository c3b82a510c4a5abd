//! Files that came with the message: they lie in the scratch folder, and the message says where.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ipc_proto::chat::Block;
use ipc_proto::edges::control::{InputFile, TurnInput};
use ipc_proto::request_context::{ATTACHMENTS, AttachedFile, MAX_ATTACHED_NAME};
use std::fmt::Write as _;
use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Writes the files of a message into the scratch folder and appends where they are to its text.
/// One that can't be written is named too: the agent should not look for it in vain.
///
/// Gives what was stored, for servers that are told of it.
pub fn unpack(input: &mut TurnInput, scratch: &Path) -> Vec<AttachedFile> {
    let files = std::mem::take(&mut input.attachments);
    let mut stored = Vec::new();
    if files.is_empty() {
        return stored;
    }
    let folder = scratch.join(ATTACHMENTS);
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder);
    let mut text = String::from("\n\nAttached files:");
    for (index, file) in files.iter().enumerate() {
        let written = match &made {
            Ok(()) => write(&folder, index, file),
            Err(e) => Err(io::Error::new(e.kind(), e.to_string())),
        };
        // Writing into a string can't fail.
        let _ = match written {
            Ok(Written {
                path,
                bytes,
                file: own,
            }) => {
                stored.push(own);
                write!(
                    text,
                    "\n- {} ({}, {bytes} bytes)",
                    path.display(),
                    file.media_type
                )
            }
            Err(e) => {
                tracing::error!("an attachment can't be written: {e}");
                write!(text, "\n- {} could not be stored", plain(&file.name))
            }
        };
    }
    input.content.push(Block::Text { text });
    stored
}

struct Written {
    path: PathBuf,
    bytes: usize,
    file: AttachedFile,
}

fn write(folder: &Path, index: usize, file: &InputFile) -> io::Result<Written> {
    let bytes = STANDARD
        .decode(&file.data)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
    // The number keeps equal names apart.
    let number = index + 1;
    let name = format!("{number}-{}", plain(&file.name));
    let name = ipc_proto::text::cut(&name, MAX_ATTACHED_NAME).to_owned();
    let path = folder.join(&name);
    let mut to = File::options()
        .write(true)
        .create_new(true)
        // Servers of this run are other users of the folder's group, where there is one.
        .mode(0o640)
        .open(&path)?;
    to.write_all(&bytes)?;
    to.sync_all()?;
    let found = to.metadata()?;
    Ok(Written {
        path,
        bytes: bytes.len(),
        file: AttachedFile {
            name,
            dev: found.dev(),
            ino: found.ino(),
        },
    })
}

/// One component of a path, on one line, whatever the channel passed on.
fn plain(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_control() || c == '/' { '_' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn input(files: &[(&str, &str)]) -> TurnInput {
        TurnInput {
            content: vec![Block::Text { text: "hi".into() }],
            attachments: files
                .iter()
                .map(|(name, data)| InputFile {
                    name: (*name).into(),
                    media_type: "text/plain".into(),
                    data: (*data).into(),
                })
                .collect(),
            ..TurnInput::default()
        }
    }

    fn told(input: &TurnInput) -> &str {
        match &input.content[..] {
            [_, Block::Text { text }] => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn files_lie_in_the_folder_and_the_message_says_where() {
        let scratch = tempfile::tempdir().unwrap();
        let mut two = input(&[("a.txt", "YWI="), ("a.txt", "Yw==")]);
        let stored = unpack(&mut two, scratch.path());
        let folder = scratch.path().join(ATTACHMENTS);
        assert_eq!(std::fs::read(folder.join("1-a.txt")).unwrap(), b"ab");
        assert_eq!(std::fs::read(folder.join("2-a.txt")).unwrap(), b"c");
        let shown = folder.display();
        assert_eq!(
            told(&two),
            format!(
                "\n\nAttached files:\n- {shown}/1-a.txt (text/plain, 2 bytes)\n- {shown}/2-a.txt (text/plain, 1 bytes)"
            )
        );
        assert!(two.attachments.is_empty());
        // What servers are told is what lies there.
        assert_eq!(stored.len(), 2);
        for file in stored {
            let found = std::fs::metadata(folder.join(&file.name)).unwrap();
            assert_eq!((found.dev(), found.ino()), (file.dev, file.ino));
        }
        let mut none = input(&[]);
        unpack(&mut none, scratch.path());
        assert_eq!(none, input(&[]));
    }

    #[test]
    fn a_name_never_leads_out_of_the_folder() {
        let scratch = tempfile::tempdir().unwrap();
        let long = "ä".repeat(200);
        let mut hostile = input(&[
            ("../../x", "YQ=="),
            ("/etc/passwd", "YQ=="),
            ("a\nb", "YQ=="),
            (&long, "YQ=="),
            ("b", "?"),
        ]);
        unpack(&mut hostile, scratch.path());
        let names = std::fs::read_dir(scratch.path().join(ATTACHMENTS)).unwrap();
        assert_eq!(names.count(), 4);
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);
        assert!(told(&hostile).ends_with("\n- b could not be stored"));
        assert_eq!(told(&hostile).lines().count(), 2 + 1 + 5);
    }
}
