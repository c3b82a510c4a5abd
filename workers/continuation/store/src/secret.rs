//! The secret that tokens and MACs are derived from.

use crate::error::{OpenError, StoreError, damaged, io};
use crate::fs::{Folder, Fs, FsFile};
use crate::names;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use std::fmt;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// Bytes of the secret.
pub(crate) const SECRET_BYTES: usize = 32;
/// Longest file of it.
const MAX_FILE: u64 = 256;

/// 32 random bytes, made when the folder is first used and never changed. It is on the disk before
/// the first record is.
pub struct Secret(Zeroizing<[u8; SECRET_BYTES]>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// The bytes, for deriving tokens.
    #[must_use]
    pub fn bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }

    /// HMAC-SHA256 over a label and parts, each after its length.
    pub(crate) fn mac(&self, label: &str, parts: &[&[u8]]) -> [u8; 32] {
        // A key of any length is taken.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(self.0.as_slice()) else {
            return [0; 32];
        };
        for part in std::iter::once(label.as_bytes()).chain(parts.iter().copied()) {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }

    /// Compares in constant time.
    pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
        a.ct_eq(b).into()
    }

    /// Reads the file as upstream wrote it: base64url and a newline.
    pub(crate) fn read<F: Fs>(fs: &F) -> Result<Option<Self>, OpenError> {
        let file = fs
            .read(Folder::Root, names::SECRET, MAX_FILE)
            .map_err(io("reading the secret"))?;
        let Some(file) = file.map(Zeroizing::new) else {
            return Ok(None);
        };
        let text = file.trim_ascii();
        let bytes = URL_SAFE_NO_PAD
            .decode(text)
            .ok()
            .map(Zeroizing::new)
            .and_then(|bytes| <[u8; SECRET_BYTES]>::try_from(bytes.as_slice()).ok())
            .ok_or_else(|| damaged("the file continuation-secret"))?;
        Ok(Some(Self(Zeroizing::new(bytes))))
    }

    /// Makes one, durable before this returns.
    pub(crate) fn make<F: Fs>(fs: &F, bytes: [u8; SECRET_BYTES]) -> Result<Self, StoreError> {
        let secret = Self(Zeroizing::new(bytes));
        let mut text = Zeroizing::new(URL_SAFE_NO_PAD.encode(secret.0.as_slice()));
        text.push('\n');
        let temporary = names::temporary(names::SECRET);
        let doing = "writing the secret";
        let file = fs.create(Folder::Root, &temporary).map_err(io(doing))?;
        file.write_at(0, text.as_bytes()).map_err(io(doing))?;
        file.sync().map_err(io(doing))?;
        fs.rename(Folder::Root, &temporary, names::SECRET)
            .map_err(io(doing))?;
        fs.sync_folder(Folder::Root).map_err(io(doing))?;
        Ok(secret)
    }
}
