//! What clients call the files that they send: a name, and a media type.

/// Longest name in bytes, as of a reply file.
pub const MAX_NAME: usize = 240;
/// What models take as pictures.
pub const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// Longest media type in bytes.
const MAX_MEDIA_TYPE: usize = 128;

/// A plain file name: what is shown is what it is.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let shown = |c: char| {
        !(c.is_control()
            || matches!(c, '/' | '\\' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'))
    };
    (1..=MAX_NAME).contains(&name.len()) && !name.starts_with('.') && name.chars().all(shown)
}

/// `type/subtype`.
#[must_use]
pub fn is_media_type(text: &str) -> bool {
    let token = |part: &str| {
        let known = |b: u8| b.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&b);
        !part.is_empty() && part.bytes().all(known)
    };
    let parts = text.split_once('/');
    text.len() <= MAX_MEDIA_TYPE && parts.is_some_and(|(kind, sub)| token(kind) && token(sub))
}
