//! The handbook's table of keys, from the key table.

use crate::field::{Fallback, Field, Kind};
use crate::{table, value};
use std::fmt::Write;

/// Markdown: one table for each section, in the order of the key table.
pub fn docs_markdown() -> String {
    let mut out = String::new();
    let mut section = "";
    for field in table::fields() {
        let first = field.key.split('.').next().unwrap_or_default();
        let first = first.strip_suffix("[]").unwrap_or(first);
        if first != section {
            section = first;
            let title = if field.is_container() { field.doc } else { "" };
            // Writing to a string can't fail.
            let _ = write!(out, "\n### `{section}`\n\n");
            if !title.is_empty() {
                let _ = write!(out, "{}\n\n", cell(title));
            }
            out.push_str("| Key | Type | Default | Variable | Meaning |\n|---|---|---|---|---|\n");
        }
        let is_title = field.key == section && matches!(field.kind, Kind::Section { .. });
        if !is_title {
            row(&mut out, field);
        }
    }
    out.trim_start().to_string()
}

fn row(out: &mut String, field: &Field) {
    let default = match field.default {
        Fallback::Unset if field.required => "**required**".to_string(),
        Fallback::Unset => "–".to_string(),
        Fallback::Meaning(meaning) => meaning.to_string(),
        _ => value::default(field)
            .map(|default| format!("`{default}`"))
            .unwrap_or_default(),
    };
    let variable = field
        .env_name()
        .map(|name| format!("`{name}`"))
        .unwrap_or_default();
    let _ = writeln!(
        out,
        "| `{}` | {} | {} | {} | {} |",
        field.key,
        cell(&value::expected(&field.kind)),
        cell(&default),
        variable,
        cell(field.doc),
    );
}

/// Text that can't end its cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_its_line() {
        let page = docs_markdown();
        for field in table::fields() {
            let top = !field.key.contains('.') && matches!(field.kind, Kind::Section { .. });
            let line = if top {
                format!("### `{}`", field.key)
            } else {
                format!("| `{}` |", field.key)
            };
            assert_eq!(page.matches(&line).count(), 1, "{line}");
        }
        for line in page.lines().filter(|line| line.starts_with("| ")) {
            assert_eq!(line.replace("\\|", "").matches('|').count(), 6, "{line}");
            // `<name>` outside of code would be taken for HTML.
            let outside: String = line.split('`').step_by(2).collect();
            assert!(!outside.contains('<'), "{line}");
        }
        assert!(page.contains("| `runtime.retry.primaryAttempts` | a whole number from 1 to 10 | `2` | `MONO_AGENT_RETRY_PRIMARY_ATTEMPTS` |"));
    }
}
