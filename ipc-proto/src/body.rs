//! Bodies that may be larger than a packet: inline when small, else a sealed memfd.
//!
//! The descriptor of a sealed body is always the **first** one of its packet.

use mono_sys::memfd;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

/// Bytes that still travel inside the packet.
pub const MAX_INLINE: usize = 32 * 1024;

/// Bytes of any length up to the reader's bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// The bytes themselves, at most [`MAX_INLINE`].
    Inline(#[serde(with = "serde_bytes")] Vec<u8>),
    /// The packet's first descriptor is a sealed memfd with this many bytes.
    Sealed(u64),
}

/// Why a body can't be packed or unpacked.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The kernel gave no memfd.
    #[error("the memfd of a large body failed: {0}")]
    Memfd(#[from] std::io::Error),
    /// The descriptor is no sealed memfd, or its bytes can't be read.
    #[error("the descriptor of a large body is refused: {0}")]
    Sealed(#[from] memfd::SealedError),
    /// Over the reader's bound.
    #[error("the body has {found} bytes, at most {max} are taken")]
    TooLarge {
        /// Size found in bytes.
        found: u64,
        /// The reader's bound in bytes.
        max: usize,
    },
    /// `Sealed` without a descriptor.
    #[error("the body says it is a memfd, but no descriptor came with it")]
    NoDescriptor,
    /// The memfd's size is not the announced one.
    #[error("the memfd has {found} bytes, {announced} were announced")]
    Length {
        /// Size announced in the message.
        announced: u64,
        /// Size found.
        found: u64,
    },
    /// Not JSON of the expected type.
    #[error("the body is not the expected JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// Not UTF-8.
    #[error("the body is not text: {0}")]
    Text(#[from] std::string::FromUtf8Error),
}

impl Body {
    /// Packs bytes; returns the descriptor that must go first with the packet, if one is needed.
    ///
    /// # Errors
    /// When the kernel gives no memfd.
    pub fn pack(bytes: Vec<u8>) -> Result<(Self, Option<OwnedFd>), BodyError> {
        if bytes.len() <= MAX_INLINE {
            return Ok((Self::Inline(bytes), None));
        }
        let fd = memfd::sealed_memfd(c"mono-body", &bytes)?;
        Ok((Self::Sealed(bytes.len() as u64), Some(fd)))
    }

    /// Packs a value as JSON.
    ///
    /// # Errors
    /// When it can't be serialised or the kernel gives no memfd.
    pub fn pack_json<T: Serialize>(value: &T) -> Result<(Self, Option<OwnedFd>), BodyError> {
        Self::pack(serde_json::to_vec(value)?)
    }

    /// Takes the bytes, and the memfd off the front of `fds` when the body needs one.
    ///
    /// # Errors
    /// When the body is over `max` bytes, not sealed, or not there.
    pub fn unpack(self, fds: &mut VecDeque<OwnedFd>, max: usize) -> Result<Vec<u8>, BodyError> {
        match self {
            Self::Inline(bytes) if bytes.len() <= max => Ok(bytes),
            Self::Inline(bytes) => Err(BodyError::TooLarge {
                found: bytes.len() as u64,
                max,
            }),
            Self::Sealed(announced) => {
                let fd = fds.pop_front().ok_or(BodyError::NoDescriptor)?;
                if announced > max as u64 {
                    return Err(BodyError::TooLarge {
                        found: announced,
                        max,
                    });
                }
                let bytes = memfd::read_sealed(fd.as_fd(), max)?;
                if bytes.len() as u64 != announced {
                    return Err(BodyError::Length {
                        announced,
                        found: bytes.len() as u64,
                    });
                }
                Ok(bytes)
            }
        }
    }

    /// The bytes unread, as a sealed memory file, and how many there are: to be handed on or copied.
    ///
    /// # Errors
    /// As [`Body::unpack`], and when the kernel gives no memfd.
    pub fn sealed(
        self,
        fds: &mut VecDeque<OwnedFd>,
        max: usize,
    ) -> Result<(OwnedFd, u64), BodyError> {
        let (fd, announced) = match self {
            Self::Inline(bytes) => (
                memfd::sealed_memfd(c"mono-body", &bytes)?,
                bytes.len() as u64,
            ),
            Self::Sealed(announced) => (fds.pop_front().ok_or(BodyError::NoDescriptor)?, announced),
        };
        let found = memfd::sealed_length(&fd, max)? as u64;
        if found != announced {
            return Err(BodyError::Length { announced, found });
        }
        Ok((fd, found))
    }

    /// [`Body::unpack`], then UTF-8.
    ///
    /// # Errors
    /// As [`Body::unpack`], or when the bytes are no text.
    pub fn unpack_text(self, fds: &mut VecDeque<OwnedFd>, max: usize) -> Result<String, BodyError> {
        Ok(String::from_utf8(self.unpack(fds, max)?)?)
    }

    /// [`Body::unpack`], then JSON.
    ///
    /// # Errors
    /// As [`Body::unpack`], or when the bytes are other JSON.
    pub fn unpack_json<T: DeserializeOwned>(
        self,
        fds: &mut VecDeque<OwnedFd>,
        max: usize,
    ) -> Result<T, BodyError> {
        Ok(serde_json::from_slice(&self.unpack(fds, max)?)?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn small_bodies_stay_inline_and_large_ones_are_sealed() {
        let (body, fd) = Body::pack(vec![1; MAX_INLINE]).unwrap();
        assert!(fd.is_none() && matches!(body, Body::Inline(_)));
        let (body, fd) = Body::pack(vec![2; MAX_INLINE + 1]).unwrap();
        let mut fds: VecDeque<OwnedFd> = fd.into_iter().collect();
        assert_eq!(
            body.unpack(&mut fds, 1 << 20).unwrap(),
            vec![2; MAX_INLINE + 1]
        );
    }

    #[test]
    fn a_body_is_handed_on_unread_and_only_sealed_and_whole() {
        for bytes in [vec![], vec![1; 7], vec![2; MAX_INLINE + 1]] {
            let (body, fd) = Body::pack(bytes.clone()).unwrap();
            let mut fds: VecDeque<OwnedFd> = fd.into_iter().collect();
            let (fd, length) = body.sealed(&mut fds, MAX_INLINE + 1).unwrap();
            assert_eq!(length, bytes.len() as u64);
            let on = Body::Sealed(length).unpack(&mut VecDeque::from([fd]), MAX_INLINE + 1);
            assert_eq!(on.unwrap(), bytes);
        }
        let sealed = |announced, most| {
            let (_, fd) = Body::pack(vec![0; 40_000]).unwrap();
            let mut fds: VecDeque<OwnedFd> = fd.into_iter().collect();
            Body::Sealed(announced)
                .sealed(&mut fds, most)
                .map(|(_, length)| length)
        };
        assert_eq!(sealed(40_000, 40_000).unwrap(), 40_000);
        assert!(matches!(
            sealed(40_001, 1 << 20),
            Err(BodyError::Length { .. })
        ));
        assert!(matches!(sealed(40_000, 39_999), Err(BodyError::Sealed(_))));
        let plain = tempfile::tempfile().unwrap();
        let mut fds = VecDeque::from([OwnedFd::from(plain)]);
        assert!(matches!(
            Body::Sealed(0).sealed(&mut fds, 9),
            Err(BodyError::Sealed(_))
        ));
        assert!(matches!(
            Body::Sealed(0).sealed(&mut VecDeque::new(), 9),
            Err(BodyError::NoDescriptor)
        ));
        let most = Body::Inline(vec![0; 10]).sealed(&mut VecDeque::new(), 9);
        assert!(matches!(most, Err(BodyError::Sealed(_))));
    }

    #[test]
    fn an_unsealed_or_missing_or_lying_memfd_is_refused() {
        let plain = tempfile::tempfile().unwrap();
        plain.set_len(40_000).unwrap();
        let mut fds = VecDeque::from([OwnedFd::from(plain)]);
        assert!(matches!(
            Body::Sealed(40_000).unpack(&mut fds, 1 << 20),
            Err(BodyError::Sealed(_))
        ));
        assert!(matches!(
            Body::Sealed(1).unpack(&mut VecDeque::new(), 10),
            Err(BodyError::NoDescriptor)
        ));
        let (_, fd) = Body::pack(vec![0; 40_000]).unwrap();
        let mut fds: VecDeque<OwnedFd> = fd.into_iter().collect();
        assert!(matches!(
            Body::Sealed(39_999).unpack(&mut fds, 1 << 20),
            Err(BodyError::Length { .. })
        ));
        assert!(matches!(
            Body::Sealed(u64::MAX).unpack(
                &mut VecDeque::from([OwnedFd::from(tempfile::tempfile().unwrap())]),
                10
            ),
            Err(BodyError::TooLarge { .. })
        ));
    }
}
