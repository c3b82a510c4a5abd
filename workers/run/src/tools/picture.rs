//! Image files for the model: told by their first bytes, scaled down when a model would not take
//! them (facts 4.1). The decoding of hostile bytes happens in the run's sandbox.

use super::Image;
use base64::Engine as _;
use image::codecs::jpeg::JpegEncoder;
use image::{DynamicImage, ImageFormat, ImageReader, Limits};
use std::io::Cursor;

/// Pixels of the longer edge.
const MAX_EDGE: u32 = 2000;
/// Pixels of either edge of an image that is still decoded.
const MAX_SOURCE_EDGE: u32 = 30_000;
/// Bytes that decoding may take.
const MAX_DECODED: u64 = 256 * 1024 * 1024;
/// Quality of a JPEG that was scaled down.
const JPEG_QUALITY: u8 = 85;

/// The format, when it is one that models take.
#[must_use]
pub fn format(bytes: &[u8]) -> Option<ImageFormat> {
    use ImageFormat::{Gif, Jpeg, Png, WebP};
    let told = image::guess_format(bytes).ok();
    told.filter(|format| matches!(format, Png | Jpeg | Gif | WebP))
}

/// The image for the model and a line about it. One that fits goes as it is.
///
/// # Errors
/// A sentence for the model when the file is broken or its picture too large to decode.
pub fn shown(bytes: &[u8], format: ImageFormat) -> Result<(Image, String), String> {
    let broken = |error| format!("is no picture that can be shown ({error})");
    let media_type = format.to_mime_type();
    let (width, height) = ImageReader::with_format(Cursor::new(bytes), format)
        .into_dimensions()
        .map_err(broken)?;
    if width.max(height) <= MAX_EDGE {
        let line = format!("{media_type}, {width}x{height}, {} bytes", bytes.len());
        return Ok((encoded(media_type, bytes), line));
    }
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_SOURCE_EDGE);
    limits.max_image_height = Some(MAX_SOURCE_EDGE);
    limits.max_alloc = Some(MAX_DECODED);
    reader.limits(limits);
    let small = reader
        .decode()
        .map_err(broken)?
        .thumbnail(MAX_EDGE, MAX_EDGE);
    let (media_type, scaled) = encode(&small, format).map_err(broken)?;
    let line = format!(
        "{media_type}, scaled from {width}x{height} to {}x{}",
        small.width(),
        small.height()
    );
    Ok((encoded(media_type, &scaled), line))
}

/// A photograph stays a JPEG; drawings and screens stay sharp.
fn encode(
    picture: &DynamicImage,
    from: ImageFormat,
) -> image::ImageResult<(&'static str, Vec<u8>)> {
    let mut out = Cursor::new(Vec::new());
    let format = if from == ImageFormat::Jpeg {
        picture
            .to_rgb8()
            .write_with_encoder(JpegEncoder::new_with_quality(&mut out, JPEG_QUALITY))?;
        ImageFormat::Jpeg
    } else {
        picture.write_to(&mut out, ImageFormat::Png)?;
        ImageFormat::Png
    };
    Ok((format.to_mime_type(), out.into_inner()))
}

fn encoded(media_type: &str, bytes: &[u8]) -> Image {
    let data = base64::engine::general_purpose::STANDARD.encode(bytes);
    Image {
        media_type: media_type.to_owned(),
        data,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn file(width: u32, height: u32, format: ImageFormat) -> Vec<u8> {
        let mut out = Cursor::new(Vec::new());
        DynamicImage::new_rgb8(width, height)
            .write_to(&mut out, format)
            .unwrap();
        out.into_inner()
    }

    fn size_of(image: &Image) -> (u32, u32) {
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(&image.data)
            .unwrap();
        let format = format(&bytes).unwrap();
        assert_eq!(format.to_mime_type(), image.media_type);
        ImageReader::with_format(Cursor::new(bytes), format)
            .into_dimensions()
            .unwrap()
    }

    #[test]
    fn a_picture_that_fits_goes_byte_by_byte_and_a_larger_one_is_scaled() {
        for kind in [
            ImageFormat::Png,
            ImageFormat::Jpeg,
            ImageFormat::Gif,
            ImageFormat::WebP,
        ] {
            let bytes = file(MAX_EDGE, 3, kind);
            assert_eq!(format(&bytes), Some(kind));
            let (image, line) = shown(&bytes, kind).unwrap();
            assert_eq!(image, encoded(kind.to_mime_type(), &bytes));
            assert!(line.contains("2000x3"), "{line}");
            let (image, line) = shown(&file(100, MAX_EDGE * 2, kind), kind).unwrap();
            assert_eq!(size_of(&image), (50, MAX_EDGE));
            assert!(line.contains("scaled from 100x4000"), "{line}");
        }
    }

    #[test]
    fn broken_and_monstrous_pictures_are_refused() {
        let mut broken = file(10, 10, ImageFormat::Png);
        broken.truncate(20);
        assert!(
            shown(&broken, ImageFormat::Png)
                .unwrap_err()
                .contains("no picture")
        );
        // The header alone says 60,000 x 60,000.
        let mut monstrous = file(10, 10, ImageFormat::Gif);
        monstrous[6..10].copy_from_slice(&[0x60, 0xea, 0x60, 0xea]);
        assert!(
            shown(&monstrous, ImageFormat::Gif)
                .unwrap_err()
                .contains("no picture")
        );
        assert_eq!(format(b"%PDF-1.7"), None);
    }
}
