//! `Write` and `Edit`: a file is replaced as a whole or not at all.

use super::ToolOutput;
use super::path::{PathError, Places, io_error, refuse_special};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs::{self, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Bytes that `Write` takes: what `Read` would still show.
const MAX_CONTENT: usize = 16 * 1024 * 1024;
/// Bytes of a file that `Edit` takes (facts 4.1).
const MAX_EDIT_FILE: u64 = 4 * 1024 * 1024;
/// Bytes of either string of `Edit` (facts 4.1).
const MAX_EDIT_STRING: usize = 256 * 1024;

/// What the model is told about `Write`.
pub const WRITE_DESCRIPTION: &str = "Write a file: create it, or replace its whole content at once. \
Missing directories are made. Paths are relative to the workspace or absolute.";
/// What the model is told about `Edit`.
pub const EDIT_DESCRIPTION: &str = "Replace text in a file (UTF-8, up to 4 MiB). old_string must occur \
exactly once, unless replace_all is true; give enough surrounding text to make it unique.";

/// Arguments of `Write`.
#[derive(Debug, Deserialize)]
pub struct WriteArgs {
    file_path: String,
    content: String,
}

/// Arguments of `Edit`.
#[derive(Debug, Deserialize)]
pub struct EditArgs {
    file_path: String,
    old_string: String,
    new_string: String,
    #[serde(default)]
    replace_all: bool,
}

/// JSON Schema of [`WriteArgs`].
#[must_use]
pub fn write_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "file_path": { "type": "string", "minLength": 1, "maxLength": super::path::MAX_PATH },
            "content": { "type": "string", "maxLength": MAX_CONTENT, "description": "The whole new content." }
        },
        "required": ["file_path", "content"],
        "additionalProperties": false
    })
}

/// JSON Schema of [`EditArgs`].
#[must_use]
pub fn edit_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "file_path": { "type": "string", "minLength": 1, "maxLength": super::path::MAX_PATH },
            "old_string": { "type": "string", "minLength": 1, "maxLength": MAX_EDIT_STRING, "description": "The exact text to replace." },
            "new_string": { "type": "string", "maxLength": MAX_EDIT_STRING },
            "replace_all": { "type": "boolean", "default": false, "description": "Replace every occurrence." }
        },
        "required": ["file_path", "old_string", "new_string"],
        "additionalProperties": false
    })
}

/// Writes the file.
///
/// # Errors
/// A sentence for the model.
pub fn write(places: &Places, args: &WriteArgs) -> Result<ToolOutput, String> {
    if args.content.len() > MAX_CONTENT {
        return Err(format!(
            "content has {} bytes; at most {MAX_CONTENT} are taken",
            args.content.len()
        ));
    }
    let path = places
        .resolve("file_path", &args.file_path)
        .map_err(|e| e.to_string())?;
    let existed = replace(places, &path, args.content.as_bytes()).map_err(|e| e.to_string())?;
    let verb = if existed { "Replaced" } else { "Created" };
    Ok(ToolOutput::success(format!(
        "{verb} {} ({} bytes).",
        places.show(&path),
        args.content.len()
    )))
}

/// Edits the file.
///
/// # Errors
/// A sentence for the model.
pub fn edit(places: &Places, args: &EditArgs) -> Result<ToolOutput, String> {
    for (name, text) in [
        ("old_string", &args.old_string),
        ("new_string", &args.new_string),
    ] {
        if text.len() > MAX_EDIT_STRING {
            return Err(format!(
                "{name} has {} bytes; at most {MAX_EDIT_STRING} are taken",
                text.len()
            ));
        }
    }
    if args.old_string == args.new_string {
        return Err("old_string and new_string are the same; nothing would change.".to_owned());
    }
    let path = places
        .resolve("file_path", &args.file_path)
        .map_err(|e| e.to_string())?;
    let shown = places.show(&path);
    let (bytes, _) = places
        .read_file(&path, MAX_EDIT_FILE)
        .map_err(|e| e.to_string())?;
    let text = String::from_utf8(bytes).map_err(|_| {
        PathError::NotText {
            path: shown.clone(),
        }
        .to_string()
    })?;
    let found = text.matches(args.old_string.as_str()).count();
    if found == 0 {
        return Err(not_found(&shown, &text, &args.old_string));
    }
    if found > 1 && !args.replace_all {
        return Err(format!(
            "old_string occurs {found} times in {shown}; add surrounding text until it occurs once, or set replace_all."
        ));
    }
    let new = text.replace(args.old_string.as_str(), &args.new_string);
    replace(places, &path, new.as_bytes()).map_err(|e| e.to_string())?;
    let times = if found == 1 {
        "once".to_owned()
    } else {
        format!("{found} times")
    };
    Ok(ToolOutput::success(format!(
        "Edited {shown}: replaced {times}."
    )))
}

fn not_found(shown: &str, text: &str, old: &str) -> String {
    let hint = if text.contains("\r\n") && text.replace("\r\n", "\n").contains(old) {
        "; its lines end in \\r\\n, so old_string must too"
    } else {
        "; it must match exactly, white space included. Read the file again"
    };
    format!("old_string does not occur in {shown}{hint}.")
}

/// Puts `bytes` at `path` by a rename, keeping the mode of a file that was there; a symbolic link
/// stays and the file behind it is replaced. Returns whether there was one.
fn replace(places: &Places, path: &Path, bytes: &[u8]) -> Result<bool, PathError> {
    let shown = places.show(path);
    let fail = |source| io_error(&shown, source);
    let (target, mode) = match fs::metadata(path) {
        Ok(metadata) => {
            refuse_special(&shown, &metadata)?;
            let target = fs::canonicalize(path).map_err(fail)?;
            let same_owner = metadata.uid() == nix::unistd::geteuid().as_raw();
            (
                target,
                Some(kept_mode(metadata.permissions().mode(), same_owner)),
            )
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if fs::symlink_metadata(path).is_ok() {
                return Err(PathError::Missing {
                    path: format!("{shown} is a link to a file that"),
                });
            }
            (path.to_owned(), None)
        }
        Err(error) => return Err(fail(error)),
    };
    let parent = target.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent).map_err(fail)?;
    let temporary = Temporary(parent.join(format!(".mono-{}.tmp", uuid::Uuid::new_v4().simple())));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        // The profile's umask decides, as for every other program of the run.
        .mode(0o666)
        .open(&temporary.0)
        .map_err(fail)?;
    file.write_all(bytes).map_err(fail)?;
    if let Some(mode) = mode {
        file.set_permissions(Permissions::from_mode(mode))
            .map_err(fail)?;
    }
    // Without it, a rename can survive a power cut that the content doesn't.
    file.sync_data().map_err(fail)?;
    fs::rename(&temporary.0, &target).map_err(fail)?;
    Ok(mode.is_some())
}

/// The mode of a replaced file. Set-user-id and set-group-id go: they were given to the old
/// content. A file of another user becomes this run's, and that user keeps its rights as a member
/// of the workspace's group.
const fn kept_mode(mode: u32, same_owner: bool) -> u32 {
    let mode = mode & 0o777;
    if same_owner {
        mode
    } else {
        mode | (mode & 0o700) >> 3
    }
}

/// A file that is removed unless it was renamed away.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::args::check;
    use super::*;

    struct Desk {
        dir: tempfile::TempDir,
        places: Places,
    }

    impl Desk {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let places = Places::new(dir.path(), "/scratch");
            Self { dir, places }
        }
        fn at(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }
        fn write(&self, path: &str, content: &str) -> Result<ToolOutput, String> {
            write(
                &self.places,
                &check(
                    &write_schema(),
                    json!({"file_path": path, "content": content}),
                )?,
            )
        }
        fn edit(&self, old: &str, new: &str, all: bool) -> Result<ToolOutput, String> {
            let args =
                json!({"file_path": "f", "old_string": old, "new_string": new, "replace_all": all});
            edit(&self.places, &check(&edit_schema(), args)?)
        }
        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.dir.path()).unwrap();
            entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect()
        }
    }

    #[test]
    fn a_file_is_made_with_its_directories_and_replaced_with_its_mode() {
        let desk = Desk::new();
        assert!(
            desk.write("a/b/c.sh", "one")
                .unwrap()
                .text
                .starts_with("Created a/b/c.sh")
        );
        fs::set_permissions(desk.at("a/b/c.sh"), Permissions::from_mode(0o750)).unwrap();
        let mut old = fs::File::open(desk.at("a/b/c.sh")).unwrap();
        assert!(
            desk.write("a/b/c.sh", "two")
                .unwrap()
                .text
                .starts_with("Replaced")
        );
        assert_eq!(fs::read(desk.at("a/b/c.sh")).unwrap(), b"two");
        assert_eq!(
            fs::metadata(desk.at("a/b/c.sh"))
                .unwrap()
                .permissions()
                .mode()
                & 0o7777,
            0o750
        );
        let mut kept = String::new();
        std::io::Read::read_to_string(&mut old, &mut kept).unwrap();
        assert_eq!(
            kept, "one",
            "an open reader keeps the old file: the replacement was a rename"
        );
        assert_eq!(
            fs::read_dir(desk.at("a/b")).unwrap().count(),
            1,
            "no temporary file is left"
        );
    }

    #[test]
    fn whose_file_is_replaced_does_not_lose_it() {
        for (mode, same, other) in [
            (0o644, 0o644, 0o664),
            (0o4755, 0o755, 0o775),
            (0o600, 0o600, 0o660),
            (0o440, 0o440, 0o440),
        ] {
            assert_eq!(
                (kept_mode(mode, true), kept_mode(mode, false)),
                (same, other),
                "{mode:o}"
            );
        }
    }

    #[test]
    fn a_link_stays_a_link() {
        let desk = Desk::new();
        fs::write(desk.at("real"), "x").unwrap();
        std::os::unix::fs::symlink("real", desk.at("link")).unwrap();
        desk.write("link", "new").unwrap();
        assert!(fs::symlink_metadata(desk.at("link")).unwrap().is_symlink());
        assert_eq!(fs::read(desk.at("real")).unwrap(), b"new");
        std::os::unix::fs::symlink("nowhere", desk.at("dangling")).unwrap();
        assert!(desk.write("dangling", "x").unwrap_err().contains("link"));
    }

    #[test]
    fn what_is_no_regular_file_is_not_replaced() {
        let desk = Desk::new();
        nix::unistd::mkfifo(&desk.at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::create_dir(desk.at("dir")).unwrap();
        fs::write(desk.at("plain"), "").unwrap();
        assert!(desk.write("fifo", "x").unwrap_err().contains("FIFO"));
        assert!(desk.write("dir", "x").unwrap_err().contains("directory"));
        assert!(
            desk.write("plain/x", "x")
                .unwrap_err()
                .contains("not a directory")
        );
        assert_eq!(desk.names().len(), 3);
    }

    #[test]
    fn an_edit_needs_one_place_or_says_all() {
        let desk = Desk::new();
        fs::write(desk.at("f"), "one two two").unwrap();
        assert!(
            desk.edit("two", "2", false)
                .unwrap_err()
                .contains("occurs 2 times")
        );
        assert!(
            desk.edit("three", "3", false)
                .unwrap_err()
                .contains("does not occur")
        );
        assert!(
            desk.edit("one", "one", false)
                .unwrap_err()
                .contains("the same")
        );
        assert!(
            desk.edit("", "x", false)
                .unwrap_err()
                .contains("old_string")
        );
        assert!(desk.edit("one", "1", false).unwrap().text.contains("once"));
        assert!(
            desk.edit("two", "2", true)
                .unwrap()
                .text
                .contains("2 times")
        );
        assert_eq!(fs::read(desk.at("f")).unwrap(), b"1 2 2");
        fs::write(desk.at("f"), "a\r\nb\r\n").unwrap();
        assert!(
            desk.edit("a\nb", "x", false)
                .unwrap_err()
                .contains("\\r\\n")
        );
        fs::write(desk.at("f"), b"\xff\xfe").unwrap();
        assert!(desk.edit("a", "b", false).unwrap_err().contains("UTF-8"));
    }

    #[test]
    fn bounds_of_edit_and_write() {
        let desk = Desk::new();
        let limit = usize::try_from(MAX_EDIT_FILE).unwrap();
        fs::write(desk.at("f"), "x".repeat(limit - 1) + "y").unwrap();
        assert!(desk.edit("y", "z", false).is_ok());
        fs::write(desk.at("f"), "x".repeat(limit) + "y").unwrap();
        assert!(
            desk.edit("y", "z", false)
                .unwrap_err()
                .contains("at most 4194304")
        );
        fs::write(desk.at("f"), "y").unwrap();
        assert!(
            desk.edit("y", &"é".repeat(MAX_EDIT_STRING / 2), false)
                .is_ok()
        );
        fs::write(desk.at("f"), "y").unwrap();
        assert!(
            desk.edit("y", &"é".repeat(MAX_EDIT_STRING / 2 + 1), false)
                .unwrap_err()
                .contains("new_string")
        );
        assert!(
            desk.edit("y", &"e".repeat(MAX_EDIT_STRING + 1), false)
                .unwrap_err()
                .contains("new_string")
        );
        assert!(desk.write("big", &"w".repeat(MAX_CONTENT)).is_ok());
        assert!(
            desk.write("big", &"w".repeat(MAX_CONTENT + 1))
                .unwrap_err()
                .contains("content")
        );
    }
}
