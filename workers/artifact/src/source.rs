//! Which files may be published, judged by their path alone.
//!
//! Everything here is text: what the path names on disk is judged by [`crate::verify`].

use crate::skeleton::{cased_skeleton, skeleton};

/// Longest path in bytes (the kernel's `PATH_MAX`).
pub const MAX_PATH: usize = 4096;
/// Longest path component in bytes (the kernel's `NAME_MAX`).
pub const MAX_COMPONENT: usize = 255;
/// Deepest path in components; each costs one system call to verify.
pub const MAX_DEPTH: usize = 64;

/// Extensions of files that hold keys, certificates, databases or environments. Every extension
/// of a name counts (`key.pem.bak`), and only its leading letters and digits (`app.db-wal`).
const EXTENSIONS: [&str; 42] = [
    // Private keys and key stores.
    "key", "pem", "p8", "pk8", "p12", "pfx", "pkcs12", "ppk", "jks", "keystore", "kdb", "kdbx",
    "gpg", "pgp", "asc", "age", "agekey", "keychain", "keytab", "ovpn",
    // Certificates.
    "crt", "cer", "cert", "der", "p7b", "p7c", // Databases.
    "db", "db3", "sqlite", "sqlite3", "s3db", "sl3", "mdb", "accdb", "ldb", "rdb", "mdf", "ibd",
    "dbf", // Environments.
    "env", "envrc", "dotenv",
];

/// Names of private keys and of access files, with everything but letters and digits removed.
const STEMS: [&str; 14] = [
    "idrsa",
    "iddsa",
    "idecdsa",
    "idecdsask",
    "ided25519",
    "ided25519sk",
    "idxmss",
    "privkey",
    "authorizedkeys",
    "htpasswd",
    "netrc",
    "pgpass",
    "shadow",
    "passwd",
];

/// Parts of a name that give it away wherever they stand, punctuation removed.
const FRAGMENTS: [&str; 4] = ["privatekey", "kubeconfig", "monoagentconfig", "mcpconfig"];

/// Files that configure the agent or its MCP servers, punctuation removed.
const CONFIGS: [&str; 3] = ["mcpjson", "mcpserversjson", "kubeconf"];

/// Why a path can't be published.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SourceError {
    /// No component at all.
    #[error("the path names nothing; give a file below the root")]
    Empty,
    /// Over [`MAX_PATH`], [`MAX_COMPONENT`] or [`MAX_DEPTH`].
    #[error(
        "the path is longer than {MAX_PATH} bytes, {MAX_DEPTH} components or {MAX_COMPONENT} bytes in one"
    )]
    TooLong,
    /// Begins with `/`: paths are relative to the root that the request names.
    #[error("the path is absolute; give it relative to its root")]
    Absolute,
    /// Has a `..` component.
    #[error("the path climbs with `..`")]
    Climbs,
    /// Has a NUL, which no file name can hold.
    #[error("the path holds a NUL")]
    Nul,
    /// Hidden, or named like a key, a certificate, a database, an environment or a secret.
    #[error("{component:?} is named like {reason}; publish a copy under another name if it is not")]
    Sensitive {
        /// The offending component.
        component: String,
        /// What it is named like.
        reason: &'static str,
    },
}

/// A path that passed: relative, at least one component, no `.` or `..`, nothing sensitive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePath {
    components: Vec<String>,
}

impl SourcePath {
    /// Checks a path relative to an authorised root. `.` and empty components say nothing and are
    /// dropped.
    ///
    /// # Errors
    /// [`SourceError`], the first that applies from the left.
    pub fn parse(path: &str) -> Result<Self, SourceError> {
        if path.len() > MAX_PATH {
            return Err(SourceError::TooLong);
        }
        if path.contains('\0') {
            return Err(SourceError::Nul);
        }
        if path.starts_with('/') {
            return Err(SourceError::Absolute);
        }
        let mut components = Vec::new();
        for component in path.split('/').filter(|c| !c.is_empty() && *c != ".") {
            if component == ".." {
                return Err(SourceError::Climbs);
            }
            if component.len() > MAX_COMPONENT || components.len() == MAX_DEPTH {
                return Err(SourceError::TooLong);
            }
            if let Some(reason) = sensitive(component) {
                return Err(SourceError::Sensitive {
                    component: component.to_owned(),
                    reason,
                });
            }
            components.push(component.to_owned());
        }
        if components.is_empty() {
            return Err(SourceError::Empty);
        }
        Ok(Self { components })
    }

    /// The directories on the way, outermost first.
    #[must_use]
    pub fn directories(&self) -> &[String] {
        &self.components[..self.components.len() - 1]
    }

    /// The file's own name.
    #[must_use]
    pub fn file_name(&self) -> &str {
        &self.components[self.components.len() - 1]
    }
}

/// What a component is named like, or `None` when it may be published.
#[must_use]
fn sensitive(component: &str) -> Option<&'static str> {
    let cased = cased_skeleton(component);
    let cased = cased.trim();
    let plain = skeleton(cased);
    if plain.starts_with('.') || plain.is_empty() {
        return Some("a hidden file");
    }
    let squashed = squash(&plain);
    let mut parts = plain.split('.');
    let stem = parts.next().map(squash).unwrap_or_default();
    if STEMS.contains(&stem.as_str()) || (squashed.starts_with("sshhost") && stem.ends_with("key"))
    {
        return Some("a key or an access file");
    }
    if FRAGMENTS.iter().any(|f| squashed.contains(f)) || CONFIGS.contains(&squashed.as_str()) {
        return Some("a private key or a configuration");
    }
    if parts.any(|part| EXTENSIONS.contains(&leading_word(part))) {
        return Some("a key, a certificate, a database or an environment");
    }
    if words(cased).iter().any(|word| is_secret_word(word)) {
        return Some("a secret");
    }
    None
}

/// Letters and digits only.
fn squash(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).collect()
}

/// `wal` is not an extension of its own in `app.db-wal`, nor is the tilde in `id.pem~`.
fn leading_word(part: &str) -> &str {
    let part = part.trim_start_matches(|c: char| !c.is_alphanumeric());
    let end = part
        .find(|c: char| !c.is_alphanumeric())
        .unwrap_or(part.len());
    &part[..end]
}

/// The words of a name in lower case: `apiToken_v2.txt` is `api`, `token`, `v2`, `txt`.
fn words(cased: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in cased.chars() {
        let border = !c.is_alphanumeric() || (before.is_lowercase() && c.is_uppercase());
        if border && words.last().is_some_and(|w| !w.is_empty()) {
            words.push(String::new());
        }
        if let (true, Some(word)) = (c.is_alphanumeric(), words.last_mut()) {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words
}

/// `secret`, `token`, `auth` and `credential`, alone or at the end of a compound (`clientsecret`,
/// `oauth2`), but not `secretary` or `author`.
fn is_secret_word(word: &str) -> bool {
    let word = word.trim_end_matches(|c: char| c.is_numeric());
    let word = word.strip_suffix('s').unwrap_or(word);
    ["secret", "token", "auth", "credential"]
        .iter()
        .any(|kind| word.ends_with(kind))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ordinary_names_pass() {
        for path in [
            "reports/weekly.csv",
            "./reports//weekly.csv",
            "a b/c.d/résumé.pdf",
            "author.csv",
            "authority.txt",
            "secretary.docx",
            "tokenizer.py",
            "environment.md",
            "keyboard.png",
            "monkey.txt",
            "turnkey",
            "database.md",
            "certificate.pdf",
            "会議.xlsx",
            "archive.tar.gz",
            "v1.2.3/notes.txt",
            "mcp.md",
            "shadows.png",
        ] {
            assert!(
                SourcePath::parse(path).is_ok(),
                "{path}: {:?}",
                SourcePath::parse(path)
            );
        }
    }

    #[test]
    fn sensitive_names_are_refused() {
        for path in [
            ".env",
            "a/.git/config",
            "．env",
            "\u{200b}.env",
            "\u{2024}ssh/x",
            "\u{301}.x",
            "…/x",
            "id_rsa",
            "keys/id_ed25519",
            "ID_RSA.txt",
            "id-rsa.pub",
            "ssh_host_rsa_key",
            "server.pem",
            "server.PEM",
            "server.pem.bak",
            "server.pem~",
            "server.pem ",
            "server.pem (1)",
            "server.ｐｅｍ",
            "server.p\u{301}em",
            "server.k\u{ad}ey",
            "ca.crt",
            "app.db",
            "app.db-wal",
            "app.sqlite3-shm",
            "app.sqlite.gz",
            "prod.env",
            "prod.env.local",
            "secret.txt",
            "Secrets/list.csv",
            "client_secret.json",
            "clientsecret.json",
            "my-token.txt",
            "apiToken.txt",
            "APITOKENS2.txt",
            "auth.json",
            "oauth2.json",
            "credentials",
            "aws-credential.csv",
            "ＳＥＣＲＥＴ.txt",
            "sécret.txt",
            "to\u{200d}ken.txt",
            "private-key.txt",
            "server.private_key.txt",
            "mono-agent.config.json",
            "mono-agent.config.json.bak",
            "mcp.json",
            "mcp-config.json",
            "mcp_servers.json",
            "kubeconfig",
            "kubeconfig.yaml",
            "\u{200b}",
        ] {
            let refused = matches!(SourcePath::parse(path), Err(SourceError::Sensitive { .. }));
            assert!(refused, "{path:?}: {:?}", SourcePath::parse(path));
        }
    }

    #[test]
    fn shapes_that_are_no_relative_file_are_refused() {
        let long = "a".repeat(MAX_COMPONENT + 1);
        let deep = vec!["a"; MAX_DEPTH + 1].join("/");
        let wide = vec!["aaaa"; 1000].join("/");
        for (path, error) in [
            ("", SourceError::Empty),
            (".", SourceError::Empty),
            ("./", SourceError::Empty),
            ("/etc/passwd", SourceError::Absolute),
            ("..", SourceError::Climbs),
            ("a/../b", SourceError::Climbs),
            ("a/b\0c", SourceError::Nul),
            (long.as_str(), SourceError::TooLong),
            (deep.as_str(), SourceError::TooLong),
            (wide.as_str(), SourceError::TooLong),
        ] {
            assert_eq!(SourcePath::parse(path), Err(error), "{path:?}");
        }
        assert!(SourcePath::parse(&"a".repeat(MAX_COMPONENT)).is_ok());
        assert!(SourcePath::parse(&vec!["a"; MAX_DEPTH].join("/")).is_ok());
    }

    proptest! {
        #[test]
        fn what_passes_is_relative_and_bounded(path in "\\PC{0,80}|([a-c./ ]|\\.\\.){0,40}") {
            if let Ok(source) = SourcePath::parse(&path) {
                let all = source.directories().iter().map(String::as_str).chain([source.file_name()]);
                for component in all {
                    prop_assert!(!component.is_empty() && component != "." && component != "..");
                    prop_assert!(!component.contains(['/', '\0']));
                    prop_assert!(!skeleton(component).starts_with('.'));
                }
            }
        }

        #[test]
        fn no_disguise_lets_a_sensitive_name_through(
            name in prop::sample::select(vec![".env", "server.pem", "id_rsa", "secret.txt", "app.db", "mcp.json", "auth"]),
            hidden in prop::collection::vec((0usize..12, prop::sample::select(vec!['\u{200b}', '\u{301}', '\u{feff}', '\u{ad}', '\u{180e}'])), 0..6),
            wide in any::<bool>(),
        ) {
            let mut chars: Vec<char> = name.chars().collect();
            if wide {
                // The full-width forms of printable ASCII stand at a fixed distance.
                chars = chars.iter().map(|c| char::from_u32(*c as u32 + 0xfee0).unwrap()).collect();
            }
            for (at, c) in hidden {
                chars.insert(at.min(chars.len()), c);
            }
            let disguised: String = chars.into_iter().collect();
            prop_assert!(sensitive(&disguised).is_some(), "{:?}", disguised);
        }
    }
}
