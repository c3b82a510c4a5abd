//! Relative paths become absolute ones, by their base.

use crate::env::Env;
use crate::field::Base;
use std::path::{Path, PathBuf};

/// The folders that paths of a configuration are relative to.
#[derive(Debug, Clone)]
pub(crate) struct Bases {
    /// The folder of the configuration file, absolute.
    pub(crate) config: PathBuf,
    /// `runtime.workspace`, absolute; known as soon as that key is read, which is the first path.
    pub(crate) workspace: PathBuf,
    home: Option<PathBuf>,
}

impl Bases {
    pub(crate) fn new(config: PathBuf, env: &Env) -> Bases {
        let home = env
            .get("HOME")
            .map(PathBuf::from)
            .filter(|home| home.is_absolute());
        Bases {
            workspace: config.clone(),
            config,
            home,
        }
    }

    /// The absolute path that `text` names. `..` stays: what it means depends on symbolic links.
    pub(crate) fn resolve(&self, base: Base, text: &str) -> Result<PathBuf, &'static str> {
        let path = match text.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                let home = self
                    .home
                    .as_ref()
                    .ok_or("`~` needs HOME to be an absolute path")?;
                home.join(rest.trim_start_matches('/'))
            }
            _ => PathBuf::from(text),
        };
        let base = match base {
            Base::Config => &self.config,
            Base::Workspace => &self.workspace,
        };
        Ok(tidy(&base.join(path)))
    }

    /// A path as a report shows it: below the configuration's folder or the home folder when it is
    /// there, so that a report can be passed on without telling whose machine it is.
    pub(crate) fn show(&self, path: &Path) -> String {
        let below = |base: &Path, mark: &str| {
            let rest = path.strip_prefix(base).ok()?;
            Some(if rest.as_os_str().is_empty() {
                mark.to_string()
            } else {
                format!("{mark}/{}", rest.display())
            })
        };
        below(&self.config, ".")
            .or_else(|| below(self.home.as_deref()?, "~"))
            .unwrap_or_else(|| path.display().to_string())
    }
}

/// Without `.` and doubled slashes.
pub(crate) fn tidy(path: &Path) -> PathBuf {
    path.components().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn paths_resolve_by_their_base() {
        let env = Env::from([("HOME".to_string(), "/home/a".to_string())]);
        let mut bases = Bases::new("/etc/mono".into(), &env);
        bases.workspace = "/srv/work".into();
        let resolve = |base, text| bases.resolve(base, text).unwrap().display().to_string();
        assert_eq!(resolve(Base::Config, "./a//b/./c"), "/etc/mono/a/b/c");
        assert_eq!(resolve(Base::Config, "."), "/etc/mono");
        assert_eq!(resolve(Base::Workspace, "mcp.json"), "/srv/work/mcp.json");
        assert_eq!(resolve(Base::Workspace, "/abs"), "/abs");
        assert_eq!(resolve(Base::Config, "~/x"), "/home/a/x");
        assert_eq!(resolve(Base::Config, "~"), "/home/a");
        assert_eq!(resolve(Base::Config, "~b"), "/etc/mono/~b");
        assert_eq!(resolve(Base::Config, "../x"), "/etc/mono/../x");
        assert!(
            Bases::new("/".into(), &Env::new())
                .resolve(Base::Config, "~/x")
                .is_err()
        );
        assert_eq!(bases.show(Path::new("/etc/mono/a")), "./a");
        assert_eq!(bases.show(Path::new("/home/a/b")), "~/b");
        assert_eq!(bases.show(Path::new("/var/x")), "/var/x");
    }
}
