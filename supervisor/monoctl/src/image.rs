//! Images that go with a message.

use crate::error::CtlError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ipc_proto::chat::Block;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Images of one message.
pub(crate) const MAX_IMAGES: usize = 10;
/// Bytes of one image. What a turn may hold at all is checked when it is packed.
pub(crate) const MAX_BYTES: u64 = 20 * 1024 * 1024;

/// Reads an image; its kind is what its first bytes say.
pub(crate) fn read(path: &Path) -> Result<Block, CtlError> {
    let failed = |e: std::io::Error| CtlError::file(path, e);
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(CtlError::file(path, format!("more than {MAX_BYTES} bytes")));
    }
    let Some(media_type) = media_type(&bytes) else {
        return Err(CtlError::file(
            path,
            "no PNG, JPEG, GIF or WebP image; put other files into the workspace and name them in the message",
        ));
    };
    Ok(Block::Image {
        media_type: media_type.to_owned(),
        data: STANDARD.encode(&bytes),
    })
}

fn media_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => Some("image/webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_kind_is_what_the_bytes_say() {
        let folder = tempfile::tempdir().unwrap();
        for (bytes, kind) in [
            (&b"\x89PNG\r\n\x1a\nx"[..], Some("image/png")),
            (b"\xff\xd8\xff\xe0", Some("image/jpeg")),
            (b"GIF89a", Some("image/gif")),
            (b"RIFF\0\0\0\0WEBPVP8 ", Some("image/webp")),
            (b"%PDF-1.7", None),
            (b"<svg>", None),
            (b"", None),
        ] {
            let path = folder.path().join("x.png");
            std::fs::write(&path, bytes).unwrap();
            match (read(&path), kind) {
                (Ok(Block::Image { media_type, data }), Some(kind)) => {
                    assert_eq!(
                        (
                            media_type.as_str(),
                            STANDARD.decode(data).unwrap().as_slice()
                        ),
                        (kind, bytes)
                    );
                }
                (Err(e), None) => assert!(e.to_string().contains("workspace")),
                other => panic!("{other:?}"),
            }
        }
        assert!(read(&folder.path().join("missing")).is_err());
        assert!(read(folder.path()).is_err());
    }

    #[test]
    fn an_image_over_the_bound_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.png");
        std::fs::write(&path, b"\x89PNG\r\n\x1a\n").unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(MAX_BYTES).unwrap();
        assert!(read(&path).is_ok());
        file.set_len(MAX_BYTES + 1).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("more than"));
    }
}
