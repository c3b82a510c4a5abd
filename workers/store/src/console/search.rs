//! Search over titles and texts (facts 2.9: FTS5, bm25).

use super::{cursor, page, read_cursor};
use crate::db::Store;
use crate::error::StoreError;
use crate::record::at_most;
use ipc_proto::console::{Hit, SearchPage, Snippet};
use rusqlite::params;

/// Places on one page.
const PAGE: u32 = 50;
/// Places that can be paged through: nobody reads further.
const REACH: i64 = 500;
/// Longest query in bytes. Refused.
const QUERY: usize = 1024;
/// Words of a query. What is more is left out.
const WORDS: usize = 16;
/// Stand before and after a word that was found.
const MARKS: [char; 2] = ['\u{2}', '\u{3}'];

/// What a person typed, as an FTS5 query: every word as a phrase, the last one as a beginning.
/// `None` when there is no word in it.
fn phrases(query: &str) -> Option<String> {
    let words = query
        .split_whitespace()
        .filter(|word| word.chars().any(char::is_alphanumeric))
        .take(WORDS);
    // In quotes nothing is syntax.
    let phrases: Vec<String> = words
        .map(|word| format!("\"{}\"", word.replace('"', "\"\"").replace('\0', " ")))
        .collect();
    let all = phrases.join(" ");
    (!all.is_empty()).then(|| format!("{all}*"))
}

/// Takes a marked text apart.
fn pieces(marked: &str) -> Vec<Snippet> {
    let mut out = Vec::new();
    let mut hit = false;
    for piece in marked.split_inclusive(MARKS) {
        let text = piece.trim_end_matches(MARKS);
        if !text.is_empty() {
            out.push(Snippet {
                text: text.to_owned(),
                hit,
            });
        }
        hit = match piece.chars().next_back() {
            Some(last) if last == MARKS[0] => true,
            Some(last) if last == MARKS[1] => false,
            _ => hit,
        };
    }
    out
}

impl Store {
    pub(super) fn search(
        &mut self,
        query: &str,
        limit: u32,
        after: Option<&str>,
    ) -> Result<SearchPage, StoreError> {
        let limit = i64::from(page(limit, PAGE)?);
        at_most("query in bytes", query.len(), QUERY)?;
        let [offset] = match after {
            Some(text) => read_cursor('s', text)?,
            None => [0],
        };
        let none = SearchPage {
            hits: vec![],
            next: None,
        };
        let Some(phrases) = phrases(query).filter(|_| (0..REACH).contains(&offset)) else {
            return Ok(none);
        };
        // Each half is sorted by the index itself, so no more rows are worked out than are wanted.
        // Titles come first: measures of two indexes can't be compared.
        let mut statement = self.db.prepare_cached(
            "SELECT *, 0 AS half FROM (
                 SELECT t.id, t.title, NULL, snippet(console_titles, 0, ?2, ?3, '…', 16),
                     t.updated_at, console_titles.rank AS place
                 FROM console_titles JOIN console_threads AS t ON t.key = console_titles.rowid
                 WHERE console_titles MATCH ?1 ORDER BY console_titles.rank LIMIT ?4)
             UNION ALL SELECT *, 1 FROM (
                 SELECT t.id, t.title, m.id, snippet(console_texts, 0, ?2, ?3, '…', 24),
                     m.created_at, console_texts.rank AS place
                 FROM console_texts JOIN console_messages AS m ON m.key = console_texts.rowid
                     JOIN console_threads AS t ON t.key = m.thread
                 WHERE console_texts MATCH ?1 ORDER BY console_texts.rank LIMIT ?4)
             ORDER BY half, place LIMIT ?5 OFFSET ?6",
        )?;
        let wanted = offset + limit + 1;
        let [open, close] = MARKS.map(String::from);
        let mut hits = statement
            .query_map(
                params![phrases, open, close, wanted, limit + 1, offset],
                |row| {
                    Ok(Hit {
                        thread_id: row.get(0)?,
                        title: row.get(1)?,
                        message_id: row.get(2)?,
                        snippet: pieces(&row.get::<_, String>(3)?),
                        at: row.get(4)?,
                    })
                },
            )?
            .collect::<Result<Vec<_>, _>>()?;
        let more = hits.len() as i64 > limit && offset + limit < REACH;
        hits.truncate(usize::try_from(limit).unwrap_or(0));
        let next = more.then(|| cursor('s', &[offset + limit]));
        Ok(SearchPage { hits, next })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_person_types_is_never_syntax() {
        let table = [
            ("two words", Some("\"two\" \"words\"*")),
            ("a OR b", Some("\"a\" \"OR\" \"b\"*")),
            ("say \"hi\"", Some("\"say\" \"\"\"hi\"\"\"*")),
            ("NEAR(a)", Some("\"NEAR(a)\"*")),
            ("- * \"", None),
            ("", None),
        ];
        for (query, expected) in table {
            assert_eq!(phrases(query).as_deref(), expected, "{query}");
        }
    }

    #[test]
    fn marks_become_pieces() {
        let piece = |text: &str, hit| Snippet {
            text: text.into(),
            hit,
        };
        let got = pieces("a \u{2}word\u{3} and \u{2}more\u{3}");
        let expected = [
            piece("a ", false),
            piece("word", true),
            piece(" and ", false),
            piece("more", true),
        ];
        assert_eq!(got, expected);
    }

    proptest! {
        #[test]
        fn pieces_keep_every_character(text in "[a-c\u{2}\u{3}]{0,30}") {
            let kept: String = pieces(&text).into_iter().map(|piece| piece.text).collect();
            prop_assert_eq!(kept, text.replace(MARKS, ""));
        }
    }
}
