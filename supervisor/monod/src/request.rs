//! What a server of `tools.mcpRequestContextServers` is told of the request that it works for, and
//! the folders that it shares with the run (spec s3, "Trusted request context for a stdio server").
//!
//! The run says which files came with its request, the app-bridge what the server may post progress
//! with, and whose request it is the supervisor knows. None of them can say it for another run.

use crate::input::ProcessId;
use crate::run::Stage;
use crate::supervisor::Supervisor;
use ipc_proto::edges::control::RunScope;
use ipc_proto::request_context::{
    ATTACHMENTS, AttachedFile, MAX_ATTACHED, MAX_ATTACHED_NAME, OUTBOUND, ProgressAccess,
    RequestContext,
};
use ipc_proto::{Role, RunId};
use mono_config::{Config, McpTransport, ServerNetwork};
use nix::unistd::{Uid, chown};
use policy::RequestFolders;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fs::{DirBuilder, Permissions};
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// True for a server that is told of its request: a stdio server on the list.
pub(crate) fn is_told(config: &Config, server: &str) -> bool {
    let listed = &config.tools.mcp_request_context_servers;
    let declared = config.tools.mcp_servers.get(server);
    listed.iter().any(|name| name == server)
        && declared.is_some_and(|s| matches!(s.transport, McpTransport::Stdio { .. }))
}

/// True for one that may post progress: one that can reach a listener of this machine.
fn may_post(config: &Config, server: &str) -> bool {
    let network = config.tools.mcp_servers.get(server);
    config.interaction.progress.enabled
        && is_told(config, server)
        && network.is_some_and(|s| s.sandbox.network == ServerNetwork::All)
}

/// True where progress is to be listened for.
pub(crate) fn listens(config: &Config) -> bool {
    let mut listed = config.tools.mcp_request_context_servers.iter();
    listed.any(|name| may_post(config, name))
}

/// The directory that a path leads to, through no link at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Directory {
    dev: u64,
    ino: u64,
}

impl Directory {
    /// `None` when there is none.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        let found = std::fs::symlink_metadata(path).ok()?;
        found.is_dir().then(|| Self {
            dev: found.dev(),
            ino: found.ino(),
        })
    }
}

/// The folders that were made for a run: exactly these are given to its servers and removed after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunFolders {
    scratch: Directory,
    outbound: Directory,
    attachments: Directory,
}

impl RunFolders {
    /// Makes them in a scratch folder. Where each process is another user they are the owner's, and open
    /// to the scratch folder's group, which servers have; who sees them is a matter of views.
    ///
    /// # Errors
    /// When one can't be made.
    pub(crate) fn make(scratch: &Path, owner: Option<u32>) -> io::Result<Self> {
        let make = |name: &str, shared: u32| {
            let path = scratch.join(name);
            DirBuilder::new().mode(0o700).create(&path)?;
            if let Some(owner) = owner {
                chown(&path, Some(Uid::from_raw(owner)), None)?;
                std::fs::set_permissions(&path, Permissions::from_mode(shared))?;
            }
            found(&path)
        };
        Ok(Self {
            outbound: make(OUTBOUND, 0o2770)?,
            attachments: make(ATTACHMENTS, 0o2750)?,
            scratch: found(scratch)?,
        })
    }

    /// True while the scratch folder itself is there.
    pub(crate) fn is_at(&self, scratch: &Path) -> bool {
        Directory::at(scratch) == Some(self.scratch)
    }

    /// The two for a server, unless one is no longer what was made.
    fn within(&self, scratch: &Path) -> Option<RequestFolders> {
        let (outbound, attachments) = (scratch.join(OUTBOUND), scratch.join(ATTACHMENTS));
        let same = Directory::at(&outbound) == Some(self.outbound)
            && Directory::at(&attachments) == Some(self.attachments);
        same.then_some(RequestFolders {
            outbound,
            attachments,
        })
    }
}

fn found(path: &Path) -> io::Result<Directory> {
    Directory::at(path).ok_or_else(|| io::Error::from(io::ErrorKind::NotADirectory))
}

/// A run's scratch folder that outlives its process, because servers of the run have parts of it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Leftover {
    run: RunId,
    process: u64,
    scratch: PathBuf,
    folders: Option<RunFolders>,
}

/// What a server gets beside its declaration.
#[derive(Debug, Default)]
pub(crate) struct Given {
    pub(crate) variables: Vec<(String, String)>,
    pub(crate) folders: Option<RequestFolders>,
}

/// Where a run's scratch folder is for the run and for each of its servers.
pub(crate) struct Paths {
    /// As the run says it.
    pub(crate) inside: PathBuf,
    /// Without any link.
    pub(crate) canonical: PathBuf,
}

/// All names are set, whatever is known: nothing else can be taken for the host's word.
fn variables(
    scope: &RunScope,
    paths: &Paths,
    attachments: &[AttachedFile],
    progress: Option<&ProgressAccess>,
) -> Vec<(String, String)> {
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let lies_at = |file: &AttachedFile| text(paths.inside.join(ATTACHMENTS).join(&file.name));
    let allowed: Vec<_> = attachments.iter().map(lies_at).collect();
    let identity =
        |file: &AttachedFile| json!({ "path": lies_at(file), "dev": file.dev, "ino": file.ino });
    let identities: Vec<_> = attachments.iter().map(identity).collect();
    let (url, token) = progress.map_or(("", ""), |p| (&p.url, &p.token.0));
    [
        // Where the person is, whatever day the agent's history of it is from.
        (
            "MCP_PRODUCING_CONVERSATION_ID",
            scope.delivery.as_str().to_owned(),
        ),
        ("MCP_PRODUCING_RUN_ID", scope.run.as_str().to_owned()),
        ("MCP_RUN_OUTPUT_DIR", text(paths.inside.join(OUTBOUND))),
        (
            "MCP_ATTACHMENTS_ROOT",
            text(paths.canonical.join(ATTACHMENTS)),
        ),
        ("MCP_ALLOWED_ATTACHMENT_PATHS", json!(allowed).to_string()),
        (
            "MCP_ALLOWED_ATTACHMENT_IDENTITIES",
            json!(identities).to_string(),
        ),
        ("INTERACTION_PROGRESS_URL", url.to_owned()),
        ("INTERACTION_PROGRESS_TOKEN", token.to_owned()),
        // These would let it ask in the name of any run.
        ("INTERACTION_BRIDGE_URL", String::new()),
        ("INTERACTION_BRIDGE_TOKEN", String::new()),
    ]
    .map(|(name, value)| (format!("MONO_AGENT_{name}"), value))
    .into()
}

/// A file of a folder, and nothing above or below it.
fn is_name(name: &str) -> bool {
    (1..=MAX_ATTACHED_NAME).contains(&name.len())
        && !name.contains(['/', '\0'])
        && !matches!(name, "." | "..")
}

impl Supervisor {
    /// What a server of this name is told of the run that it is started for; nothing where it is to be told
    /// nothing.
    ///
    /// # Errors
    /// For people: it must not start.
    pub(crate) fn given(
        &self,
        server: &str,
        run: Option<&RunId>,
        context: Option<&RequestContext>,
    ) -> Result<Given, String> {
        if !is_told(&self.config, server) {
            return Ok(Given::default());
        }
        let run = run.and_then(|run| self.runs.get(run));
        let at_work = run.and_then(|run| match run.stage {
            Stage::Working(worker) => Some((run, self.processes.get(&worker)?)),
            _ => None,
        });
        let (run, worker) = at_work.ok_or("the run that it would work for is not under way")?;
        let nothing = RequestContext::default();
        let RequestContext {
            attachments,
            progress,
        } = context.unwrap_or(&nothing);
        if attachments.len() > MAX_ATTACHED || !attachments.iter().all(|file| is_name(&file.name)) {
            return Err("the files of its request are not as they should be".into());
        }
        let scratch = worker.scratch.as_deref();
        let folders = scratch.zip(worker.folders).and_then(|(scratch, folders)| {
            let shared = folders.within(scratch)?;
            Some((scratch, shared))
        });
        let (scratch, folders) =
            folders.ok_or("the folders of the run that it would work for were replaced")?;
        let paths = self.launcher.paths_of_run(worker.id, scratch);
        let progress = progress.as_ref().filter(|_| may_post(&self.config, server));
        Ok(Given {
            variables: variables(&run.scope, &paths, attachments, progress),
            folders: Some(folders),
        })
    }

    /// A process with a scratch folder has ended: the folder goes, or stays as long as servers of its
    /// run have parts of it.
    pub(crate) fn leave_scratch(
        &mut self,
        process: ProcessId,
        run: Option<&RunId>,
        scratch: PathBuf,
        folders: Option<RunFolders>,
    ) {
        let shared = |run: &&RunId| self.servers.values().any(|s| s.run.as_ref() == Some(run));
        match run.filter(shared) {
            Some(run) => self.leftovers.push(Leftover {
                run: run.clone(),
                process: process.0,
                scratch,
                folders,
            }),
            None => {
                crate::launch::remove_scratch(scratch, process, folders);
            }
        }
    }

    /// A server of a run has ended; with the last one goes what was kept for them.
    pub(crate) fn settle_run(&mut self, run: &RunId) {
        if self.servers.values().any(|s| s.run.as_ref() == Some(run)) {
            return;
        }
        for left in self.leftovers.extract_if(.., |left| left.run == *run) {
            crate::launch::remove_scratch(left.scratch, ProcessId(left.process), left.folders);
        }
    }

    /// What the app-bridge accepts progress on, where any server may post some. With a port that is not
    /// configured each process gets one of its own: none answers for what another one knows.
    ///
    /// # Errors
    /// For people.
    pub(crate) fn progress_listener(&mut self) -> Result<Option<OwnedFd>, String> {
        if !listens(&self.config) {
            return Ok(None);
        }
        if let Some(listener) = self.listeners.get(&Role::AppBridge) {
            let listener = listener.try_clone().map_err(|e| e.to_string())?;
            return Ok(Some(listener.into()));
        }
        let bridge = &self.config.interaction.bridge;
        let place = (bridge.host.as_str(), bridge.port);
        let failed = |e: io::Error| format!("interaction.bridge: {}:{}: {e}", place.0, place.1);
        let listener = TcpListener::bind(place).map_err(failed)?;
        if !listener.local_addr().map_err(failed)?.ip().is_loopback() {
            return Err("interaction.bridge.host leads beyond loopback".into());
        }
        if bridge.port != 0 {
            let kept = listener.try_clone().map_err(failed)?;
            self.listeners.insert(Role::AppBridge, kept);
        }
        Ok(Some(listener.into()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ipc_proto::ConversationId;
    use ipc_proto::request_context::ProgressToken;
    use std::collections::BTreeMap;

    fn told(
        attachments: &[AttachedFile],
        progress: Option<&ProgressAccess>,
    ) -> BTreeMap<String, String> {
        let scope = RunScope {
            run: RunId::parse("r1").unwrap(),
            conversation: ConversationId::parse("slack:C1#2026-01-02").unwrap(),
            delivery: ConversationId::parse("slack:C1").unwrap(),
        };
        let paths = Paths {
            inside: "/pool-1".into(),
            canonical: "/r1".into(),
        };
        let all = variables(&scope, &paths, attachments, progress);
        assert_eq!(all.len(), 10);
        let all = all.into_iter();
        all.map(|(name, value)| (name.replace("MONO_AGENT_", ""), value))
            .collect()
    }

    #[test]
    fn every_name_is_set_and_blank_where_nothing_is_to_be_had() {
        let all = told(&[], None);
        for (name, value) in [
            ("MCP_PRODUCING_CONVERSATION_ID", "slack:C1"),
            ("MCP_PRODUCING_RUN_ID", "r1"),
            ("MCP_RUN_OUTPUT_DIR", "/pool-1/outbound"),
            ("MCP_ATTACHMENTS_ROOT", "/r1/attachments"),
            ("MCP_ALLOWED_ATTACHMENT_PATHS", "[]"),
            ("MCP_ALLOWED_ATTACHMENT_IDENTITIES", "[]"),
            ("INTERACTION_PROGRESS_URL", ""),
            ("INTERACTION_PROGRESS_TOKEN", ""),
            ("INTERACTION_BRIDGE_URL", ""),
            ("INTERACTION_BRIDGE_TOKEN", ""),
        ] {
            assert_eq!(all[name], value, "{name}");
        }
    }

    #[test]
    fn files_are_named_with_what_they_are() {
        let files = [AttachedFile {
            name: "1-a \"b\".png".into(),
            dev: u64::MAX,
            ino: 7,
        }];
        let access = ProgressAccess {
            url: "http://127.0.0.1:1/v1/progress".into(),
            token: ProgressToken("t".into()),
        };
        let all = told(&files, Some(&access));
        let path = "/pool-1/attachments/1-a \"b\".png";
        let parsed = |name: &str| serde_json::from_str::<serde_json::Value>(&all[name]).unwrap();
        assert_eq!(parsed("MCP_ALLOWED_ATTACHMENT_PATHS"), json!([path]));
        assert_eq!(
            parsed("MCP_ALLOWED_ATTACHMENT_IDENTITIES"),
            json!([{ "path": path, "dev": u64::MAX, "ino": 7 }])
        );
        assert_eq!(all["INTERACTION_PROGRESS_URL"], access.url);
        assert_eq!(all["INTERACTION_PROGRESS_TOKEN"], "t");
    }

    #[test]
    fn a_file_is_one_name_in_its_folder() {
        for name in ["a", "1-a b.png", "..."] {
            assert!(is_name(name), "{name}");
        }
        let long = "a".repeat(MAX_ATTACHED_NAME + 1);
        for name in ["", ".", "..", "/etc/passwd", "a/b", "../a", "a\0", &long] {
            assert!(!is_name(name), "{name:?}");
        }
        assert!(is_name(&long[1..]));
    }

    #[test]
    fn only_the_folders_that_were_made_are_given() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = dir.path().join("run");
        std::fs::create_dir(&scratch).unwrap();
        let folders = RunFolders::make(&scratch, None).unwrap();
        for name in [OUTBOUND, ATTACHMENTS] {
            let mode = std::fs::metadata(scratch.join(name)).unwrap().mode();
            assert_eq!(mode & 0o7777, 0o700, "{name}");
        }
        let given = folders.within(&scratch).unwrap();
        assert_eq!(given.outbound, scratch.join("outbound"));
        // Its name may change, what is in it may not.
        let named = dir.path().join("named");
        std::fs::rename(&scratch, &named).unwrap();
        assert!(folders.is_at(&named) && folders.within(&named).is_some());
        std::fs::rename(named.join(OUTBOUND), named.join("aside")).unwrap();
        assert_eq!(folders.within(&named), None);
        std::fs::create_dir(named.join(OUTBOUND)).unwrap();
        assert_eq!(folders.within(&named), None);
        std::fs::remove_dir(named.join(OUTBOUND)).unwrap();
        std::os::unix::fs::symlink(named.join("aside"), named.join(OUTBOUND)).unwrap();
        assert_eq!(folders.within(&named), None);
        assert!(folders.is_at(&named) && !folders.is_at(&scratch));
    }

    #[tokio::test]
    async fn only_the_folder_that_was_made_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (scratch, other) = (dir.path().join("run"), dir.path().join("other"));
        for folder in [&scratch, &other] {
            std::fs::create_dir(folder).unwrap();
        }
        let folders = RunFolders::make(&scratch, None).unwrap();
        std::fs::rename(&scratch, dir.path().join("aside")).unwrap();
        std::fs::rename(&other, &scratch).unwrap();
        let remove = || crate::launch::remove_scratch(scratch.clone(), ProcessId(1), Some(folders));
        remove().await.unwrap();
        assert!(scratch.exists());
        std::fs::remove_dir(&scratch).unwrap();
        std::fs::rename(dir.path().join("aside"), &scratch).unwrap();
        remove().await.unwrap();
        assert!(!scratch.exists());
    }
}
