//! The fixed header in front of every body.
//!
//! Layout, little-endian, 20 bytes: version u16, kind u16, request id u64, deadline u32
//! (milliseconds from receipt, 0 = none), descriptor count u8, three reserved zero bytes.

/// Largest packet in bytes, header and body together.
pub const MAX_PACKET: usize = 64 * 1024;
/// Size of the header in bytes.
pub const HEADER: usize = 20;
/// Largest body in bytes.
pub const MAX_BODY: usize = MAX_PACKET - HEADER;

/// The decoded header of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Protocol version of the body.
    pub version: u16,
    /// Message kind; its row in [`crate::table`] says who may send it.
    pub kind: u16,
    /// Correlates a request with its replies. 0 for messages that expect none.
    pub id: u64,
    /// Milliseconds that the sender waits for the answer; 0 for no bound.
    pub deadline_ms: u32,
    /// Descriptors attached to the packet.
    pub descriptors: u8,
}

/// Why bytes are no header.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameError {
    /// Shorter than the header.
    #[error("a packet has at least {HEADER} bytes, this one has {0}")]
    Short(usize),
    /// Longer than the cap.
    #[error("a packet has at most {MAX_PACKET} bytes, this one has {0}")]
    Long(usize),
    /// The reserved bytes carry something.
    #[error("the reserved header bytes must be zero")]
    Reserved,
}

impl Header {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[0..2].copy_from_slice(&self.version.to_le_bytes());
        out[2..4].copy_from_slice(&self.kind.to_le_bytes());
        out[4..12].copy_from_slice(&self.id.to_le_bytes());
        out[12..16].copy_from_slice(&self.deadline_ms.to_le_bytes());
        out[16] = self.descriptors;
        out
    }

    /// Splits a packet into header and body.
    ///
    /// # Errors
    /// [`FrameError`] when the packet is too short, too long or uses reserved bytes.
    pub fn decode(packet: &[u8]) -> Result<(Self, &[u8]), FrameError> {
        if packet.len() > MAX_PACKET {
            return Err(FrameError::Long(packet.len()));
        }
        let Some((head, body)) = packet.split_first_chunk::<HEADER>() else {
            return Err(FrameError::Short(packet.len()));
        };
        if head[17..] != [0, 0, 0] {
            return Err(FrameError::Reserved);
        }
        let [
            v0,
            v1,
            k0,
            k1,
            i0,
            i1,
            i2,
            i3,
            i4,
            i5,
            i6,
            i7,
            d0,
            d1,
            d2,
            d3,
            descriptors,
            ..,
        ] = *head;
        Ok((
            Self {
                version: u16::from_le_bytes([v0, v1]),
                kind: u16::from_le_bytes([k0, k1]),
                id: u64::from_le_bytes([i0, i1, i2, i3, i4, i5, i6, i7]),
                deadline_ms: u32::from_le_bytes([d0, d1, d2, d3]),
                descriptors,
            },
            body,
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(version: u16, kind: u16, id: u64, deadline_ms: u32, descriptors: u8) {
            let header = Header { version, kind, id, deadline_ms, descriptors };
            let bytes = header.encode();
            let (back, body) = Header::decode(&bytes).unwrap();
            prop_assert_eq!(back, header);
            prop_assert!(body.is_empty());
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Header::decode(&bytes);
        }
    }

    #[test]
    fn sizes_and_reserved_bytes_are_checked() {
        assert_eq!(Header::decode(&[0; 19]), Err(FrameError::Short(19)));
        assert_eq!(
            Header::decode(&vec![0; MAX_PACKET + 1]),
            Err(FrameError::Long(MAX_PACKET + 1))
        );
        assert!(Header::decode(&vec![0; MAX_PACKET]).is_ok());
        let mut packet = [0; HEADER];
        packet[19] = 1;
        assert_eq!(Header::decode(&packet), Err(FrameError::Reserved));
    }
}
