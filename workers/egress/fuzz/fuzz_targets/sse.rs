//! Server-sent events: the same for every way of cutting the stream.
//!
//! The first byte says where to cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mono_egress::sse::SseDecoder;

fuzz_target!(|bytes: &[u8]| {
    let Some((step, stream)) = bytes.split_first() else {
        return;
    };
    let mut whole = Vec::new();
    let taken = SseDecoder::default().push(stream, &mut whole);
    let mut pieces = Vec::new();
    let mut decoder = SseDecoder::default();
    let in_pieces = stream
        .chunks(usize::from(*step).max(1))
        .try_for_each(|piece| decoder.push(piece, &mut pieces));
    assert_eq!(taken, in_pieces);
    assert_eq!(whole, pieces);
});
