//! Images in messages: inline ones are taken, remote ones are never fetched.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ipc_proto::chat::Block;

/// Media types that models take.
const MEDIA_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// Longest address in characters that is repeated to the model.
const MAX_SHOWN: usize = 2_048;

/// Why a `data:` URL is no image.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// No comma, or not base64.
    #[error("A data: URL must be data:MEDIA/TYPE;base64,DATA.")]
    Form,
    /// Another media type.
    #[error("An image must be image/png, image/jpeg, image/gif or image/webp.")]
    MediaType,
    /// Empty or not decodable.
    #[error("The image's base64 can't be decoded.")]
    Data,
}

/// True for the `data:` scheme, in any case.
#[must_use]
pub fn is_data_url(url: &str) -> bool {
    url.get(..5)
        .is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"))
}

/// The image inside a `data:` URL.
///
/// # Errors
/// [`ImageError`].
pub fn inline(url: &str) -> Result<Block, ImageError> {
    let (head, data) = url
        .get(5..)
        .and_then(|rest| rest.split_once(','))
        .ok_or(ImageError::Form)?;
    let mut fields = head
        .split(';')
        .map(|field| field.trim().to_ascii_lowercase());
    let media_type = fields.next().unwrap_or_default();
    if fields.next_back().as_deref() != Some("base64") {
        return Err(ImageError::Form);
    }
    if !MEDIA_TYPES.contains(&media_type.as_str()) {
        return Err(ImageError::MediaType);
    }
    match STANDARD.decode(data) {
        Ok(bytes) if !bytes.is_empty() => Ok(Block::Image {
            media_type,
            data: data.to_owned(),
        }),
        _ => Err(ImageError::Data),
    }
}

/// What stands in a remote image's place: a server that fetched what a client names would be the
/// client's way into the network here.
#[must_use]
pub fn not_fetched(url: &str) -> String {
    let shown: String = url
        .chars()
        .filter(|c| !c.is_control())
        .take(MAX_SHOWN)
        .collect();
    format!("[image not fetched: {shown}]")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn data_urls_are_checked() {
        for (url, expected) in [
            ("data:image/png;base64,AAAA", Ok("image/png")),
            (
                "DATA:Image/JPEG;charset=utf-8;BASE64,AAAA",
                Ok("image/jpeg"),
            ),
            ("data:image/png,AAAA", Err(ImageError::Form)),
            ("data:image/png;base64", Err(ImageError::Form)),
            ("data:,x", Err(ImageError::Form)),
            ("data:;base64,AAAA", Err(ImageError::MediaType)),
            ("data:image/svg+xml;base64,AAAA", Err(ImageError::MediaType)),
            ("data:text/html;base64,AAAA", Err(ImageError::MediaType)),
            ("data:image/png;base64,", Err(ImageError::Data)),
            ("data:image/png;base64,A", Err(ImageError::Data)),
            ("data:image/png;base64,AA AA", Err(ImageError::Data)),
        ] {
            assert!(is_data_url(url));
            let got = inline(url).map(|block| match block {
                Block::Image { media_type, data } => {
                    assert_eq!(data, "AAAA");
                    media_type
                }
                other => panic!("{other:?}"),
            });
            assert_eq!(got, expected.map(str::to_owned), "{url}");
        }
        assert!(!is_data_url("https://a") && !is_data_url("data") && !is_data_url("dät:x"));
    }

    #[test]
    fn a_remote_address_is_shown_bounded_and_in_one_line() {
        let shown = not_fetched(&format!("http://a/\n{}", "x".repeat(5_000)));
        assert!(!shown.contains('\n'));
        assert_eq!(
            shown.chars().count(),
            MAX_SHOWN + "[image not fetched: ]".len()
        );
    }
}
