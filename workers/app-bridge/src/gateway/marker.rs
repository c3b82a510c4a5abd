//! Marks the result of a call with its app, for whoever reads the transcript of an agent that is not
//! ours (spec s2, "Marker and spool record"). Pure.

use ipc_proto::marker::marker;
use serde_json::{Value, json};

/// Appends a marker to the first text of a result, or as a text of its own where there is none.
pub fn append(result: &mut Value, id: &str) {
    let marker = marker(id);
    let Some(members) = result.as_object_mut() else {
        return;
    };
    let content = members.entry("content").or_insert_with(|| json!([]));
    let Some(items) = content.as_array_mut() else {
        return;
    };
    let is_text = |item: &&mut Value| item["type"] == "text" && item["text"].is_string();
    match items.iter_mut().find(is_text) {
        Some(item) => {
            let text = item["text"].as_str().unwrap_or_default();
            let apart = if text.is_empty() { "" } else { "\n" };
            item["text"] = format!("{text}{apart}{marker}").into();
        }
        None => items.push(json!({ "type": "text", "text": marker })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn a_marker_goes_to_the_first_text() {
        let marked = |mut result: Value| {
            append(&mut result, ID);
            result["content"].clone()
        };
        let image = json!({ "type": "image", "data": "" });
        let text = |text: &str| json!({ "type": "text", "text": text });
        let own = marker(ID);
        assert_eq!(
            marked(json!({ "content": [image, text("a"), text("b")] })),
            json!([image, text(&format!("a\n{own}")), text("b")])
        );
        assert_eq!(
            marked(json!({ "content": [image] })),
            json!([image, text(&own)])
        );
        assert_eq!(
            marked(json!({ "structuredContent": {} })),
            json!([text(&own)])
        );
        assert_eq!(marked(json!({ "content": 1 })), json!(1));
    }
}
