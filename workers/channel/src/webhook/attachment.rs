//! Files that come with a request: images for the model, everything else for the run's folder.

use super::error::Refusal;
use super::fields::{First, is_object, text};
use crate::label::{PICTURES, is_media_type, is_name};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ipc_proto::chat::Block;
use ipc_proto::edges::control::InputFile;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Most files of one request.
pub const MAX_FILES: usize = 10;

/// The files of one request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// Images, in order.
    pub images: Vec<Block>,
    /// The other files, in order.
    pub files: Vec<InputFile>,
}

/// One file as it comes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    media_type: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

/// One more than are taken: enough to see that there are too many.
type Entries<'a> = First<'a, { MAX_FILES + 1 }>;

/// Reads `attachments`: a list of `{name, mediaType, data}` with base64 in `data`. `most` bounds the
/// bytes of one file.
///
/// # Errors
/// A refusal that names the entry.
pub fn read(list: Option<&RawValue>, most: u64) -> Result<Attached, Refusal> {
    let Some(list) = list else {
        return Ok(Attached::default());
    };
    let First(entries) = serde_json::from_str::<Entries<'_>>(list.get())
        .map_err(|_| Refusal::invalid("\"attachments\" must be a list."))?;
    if entries.len() > MAX_FILES {
        return Err(Refusal::invalid(format!(
            "A request may have at most {MAX_FILES} attachments."
        )));
    }
    let mut out = Attached::default();
    for (index, entry) in entries.into_iter().enumerate() {
        let wrong = |what: &str| Refusal::invalid(format!("\"attachments[{index}]\" {what}"));
        let too_large = || {
            Refusal::too_large(format!(
                "\"attachments[{index}]\" has more than {most} bytes."
            ))
        };
        let entry = Some(entry.get()).filter(|json| is_object(json));
        let entry = entry.and_then(|json| serde_json::from_str::<Entry<'_>>(json).ok());
        let entry = entry.ok_or_else(|| wrong("must be an object."))?;
        let name = entry.name.and_then(text);
        let name = name.ok_or_else(|| wrong("needs a \"name\"."))?;
        if !is_name(&name) {
            return Err(wrong(
                "has a \"name\" that is no plain file name of at most 240 bytes.",
            ));
        }
        let media_type = entry.media_type.and_then(text);
        let media_type = media_type.map_or_else(
            || "application/octet-stream".to_owned(),
            |own| own.to_ascii_lowercase(),
        );
        if !is_media_type(&media_type) {
            return Err(wrong("has a \"mediaType\" that is not type/subtype."));
        }
        let data = entry.data.and_then(text);
        let data = data.ok_or_else(|| wrong("needs \"data\" in base64."))?;
        // Before it is decoded: three bytes for four characters, less the padding.
        let bytes = (data.len() as u64 / 4) * 3;
        if bytes.saturating_sub(2) > most {
            return Err(too_large());
        }
        match STANDARD.decode(&*data) {
            Ok(bytes) if bytes.len() as u64 <= most => {}
            Ok(_) => return Err(too_large()),
            Err(_) => return Err(wrong("has \"data\" that is not base64.")),
        }
        let data = data.into_owned();
        if PICTURES.contains(&media_type.as_str()) {
            out.images.push(Block::Image { media_type, data });
        } else {
            out.files.push(InputFile {
                name: name.into_owned(),
                media_type,
                data,
            });
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::label::MAX_NAME;
    use serde_json::value::to_raw_value;
    use serde_json::{Value, json};

    fn read(list: Option<&Value>, most: u64) -> Result<Attached, Refusal> {
        let raw = list.map(|list| to_raw_value(list).unwrap());
        super::read(raw.as_deref(), most)
    }

    fn one(entry: Value) -> Result<Attached, u16> {
        read(Some(&json!([entry])), 6).map_err(|refusal| refusal.status)
    }

    #[test]
    fn images_go_to_the_model_and_files_to_the_run() {
        let both = json!([
            {"name": "a.png", "mediaType": "image/PNG", "data": "AAAA"},
            {"name": "b c.csv", "mediaType": "text/csv", "data": "YSxi"},
            {"name": "c", "data": ""},
        ]);
        let got = read(Some(&both), 6).unwrap();
        let image = Block::Image {
            media_type: "image/png".into(),
            data: "AAAA".into(),
        };
        assert_eq!(got.images, [image]);
        let names: Vec<_> = got
            .files
            .iter()
            .map(|f| (&*f.name, &*f.media_type, &*f.data))
            .collect();
        assert_eq!(
            names,
            [
                ("b c.csv", "text/csv", "YSxi"),
                ("c", "application/octet-stream", "")
            ]
        );
        assert_eq!(read(None, 6).unwrap(), Attached::default());
    }

    #[test]
    fn sizes_and_counts_are_bounded() {
        for (bytes, ok) in [(5, true), (6, true), (7, false), (8, false), (60, false)] {
            let data = STANDARD.encode(vec![0; bytes]);
            let got = one(json!({"name": "a", "data": data}));
            assert_eq!(got.err(), (!ok).then_some(413), "{bytes}");
        }
        let many = |n: usize| json!(vec![json!({"name": "a", "data": ""}); n]);
        assert!(read(Some(&many(MAX_FILES)), 6).is_ok());
        assert_eq!(read(Some(&many(MAX_FILES + 1)), 6).unwrap_err().status, 400);
        assert!(read(Some(&json!([{"name": "a", "data": ""}])), 0).is_ok());
        assert!(read(Some(&json!([{"name": "a", "data": "AA=="}])), 0).is_err());
    }

    #[test]
    fn what_is_no_file_is_refused() {
        for entry in [
            json!(null),
            json!("a"),
            json!(["a", "text/plain", ""]),
            json!({}),
            json!({"data": ""}),
            json!({"name": "a"}),
            json!({"name": "a", "data": 7}),
            json!({"name": "a", "data": "A"}),
            json!({"name": "a", "data": "AA AA"}),
            json!({"name": "", "data": ""}),
            json!({"name": "../a", "data": ""}),
            json!({"name": "..", "data": ""}),
            json!({"name": ".profile", "data": ""}),
            json!({"name": "a\\b", "data": ""}),
            json!({"name": "a\nb", "data": ""}),
            json!({"name": "a\u{202e}b", "data": ""}),
            json!({"name": "x".repeat(MAX_NAME + 1), "data": ""}),
            json!({"name": "a", "data": "", "mediaType": "text"}),
            json!({"name": "a", "data": "", "mediaType": "text/plain; charset=x"}),
            json!({"name": "a", "data": "", "mediaType": "a/b\n"}),
        ] {
            assert_eq!(one(entry.clone()).err(), Some(400), "{entry}");
        }
        assert_eq!(read(Some(&json!({})), 6).unwrap_err().status, 400);
    }
}
