//! Secrets, and where they come from.

use serde::Deserialize;
use std::fmt;
use std::path::PathBuf;
use zeroize::Zeroizing;

/// A string that is never printed, and overwritten when it is dropped.
#[derive(Clone, Deserialize)]
#[serde(from = "String")]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// The text itself. Whoever calls this answers for where it goes.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Secret {
        Secret(Zeroizing::new(text))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(set)")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("set")
    }
}

/// Where a secret is found. Nothing here has read it, but for [`SecretSource::Literal`].
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "from", rename_all = "camelCase", deny_unknown_fields)]
pub enum SecretSource {
    /// Written out in the configuration; loading warns about it.
    Literal { value: Secret },
    /// The environment variable of this name.
    Env { name: String },
    /// A file, opened by the supervisor and handed on as a descriptor.
    File { path: PathBuf },
    /// A systemd credential. `path` is absent where `$CREDENTIALS_DIRECTORY` is.
    Credential { name: String, path: Option<PathBuf> },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_shows_nothing_of_itself() {
        let secret = Secret::from("hunter2hunter2".to_string());
        let source = SecretSource::Literal {
            value: secret.clone(),
        };
        let shown = format!("{secret} {secret:?} {source:?} {:?}", Some(&secret));
        assert!(!shown.contains("hunter2"), "{shown}");
        assert_eq!(secret.expose(), "hunter2hunter2");
    }
}
