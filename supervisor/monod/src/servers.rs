//! Stdio MCP servers: started here under their declared profile, spoken to by `app-bridge`.

use crate::capacity::admit_server;
use crate::input::ProcessId;
use crate::memory::Bound;
use crate::process::{Process, State};
use crate::supervisor::Supervisor;
use crate::violations::Ear;
use ipc_proto::edges::continuation::{CLAIM_VARIABLES, Claim};
use ipc_proto::edges::control::ToWorker;
use ipc_proto::request_context::RequestContext;
use ipc_proto::{Role, RunId};
use mono_config::McpTransport;
use std::os::fd::OwnedFd;

/// A started server program.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) process: ProcessId,
    pub(crate) owner: ProcessId,
    /// The run that it is for, if it is for one alone.
    pub(crate) run: Option<RunId>,
}

fn claim_variables(claim: &Claim) -> Vec<(String, String)> {
    let values = claim.values().into_iter().map(str::to_owned);
    let names = CLAIM_VARIABLES.into_iter().map(str::to_owned);
    names.zip(values).collect()
}

/// What the app-bridge says of a server that it wants.
#[derive(Debug)]
pub(crate) struct Wish<'a> {
    pub(crate) name: &'a str,
    /// The run that it is for, if it is for one alone.
    pub(crate) run: Option<&'a RunId>,
    pub(crate) context: Option<&'a RequestContext>,
    pub(crate) claim: Option<&'a Claim>,
}

impl Supervisor {
    /// The app-bridge wants a configured server.
    pub(crate) fn start_server(&mut self, owner: ProcessId, request: u64, wish: &Wish<'_>) {
        let answer = match self.launch_server(owner, wish) {
            Ok((server, pipes)) => (ToWorker::ServerStarted { server }, pipes.into()),
            Err(message) => (ToWorker::ServerFailed { message }, vec![]),
        };
        if let Some(process) = self.processes.get(&owner) {
            process.send(request, answer.0, answer.1);
        }
    }

    fn launch_server(
        &mut self,
        owner: ProcessId,
        &Wish {
            name,
            run,
            context,
            claim,
        }: &Wish<'_>,
    ) -> Result<(u64, [OwnedFd; 3]), String> {
        if self.is_stopping() {
            return Err("the daemon is stopping".into());
        }
        admit_server(self.servers.len())?;
        let spec = self
            .config
            .tools
            .mcp_servers
            .get(name)
            .filter(|s| matches!(s.transport, McpTransport::Stdio { .. }))
            .ok_or("no stdio server of this name is configured")?
            .clone();
        let claiming = &self.config.tools.continuation_servers;
        if claim.is_some() && !claiming.iter().any(|n| n == name) {
            return Err("it may not claim continuations".into());
        }
        // What is configured may be of anybody's choice; these names are the host's.
        let mut given = self.given(name, run, context)?;
        given
            .variables
            .extend(claim.map(claim_variables).unwrap_or_default());
        let id = self.next_process_id(Role::McpServer);
        let scratch = self.launcher.make_scratch(id).map_err(|e| e.to_string())?;
        let started = match self.launcher.server(&spec, given, id, &scratch) {
            Ok(started) => started,
            Err(e) => {
                crate::launch::remove_scratch(scratch, id, None);
                return Err(e.to_string());
            }
        };
        let mut process = Process::new(id, Role::McpServer, started.child, Some(scratch));
        process.memory = Some(started.memory);
        process.state = State::Serving;
        process.last_line = name.to_owned();
        process.hear(Ear::awaiting(started.violations), &self.tell);
        self.processes.insert(id, process);
        let server = self.next_server;
        self.next_server += 1;
        self.servers.insert(
            server,
            Server {
                name: name.to_owned(),
                process: id,
                owner,
                run: run.cloned(),
            },
        );
        self.watch_memory();
        Ok((server, started.pipes))
    }

    /// The app-bridge ends a server; with its process namespace the whole tree goes.
    pub(crate) fn stop_server(&mut self, owner: ProcessId, request: u64, server: u64) {
        if let Some(found) = self.servers.get(&server)
            && found.owner == owner
        {
            self.end(found.process);
        }
        if let Some(process) = self.processes.get(&owner) {
            process.send(request, ToWorker::Done, vec![]);
        }
    }

    /// A server's process ended; `over` is the limit of memory that it went over, if it did.
    pub(crate) fn server_exited(&mut self, id: ProcessId, status: &str, over: Option<&Bound>) {
        let Some(server) = self
            .servers
            .iter()
            .find(|(_, s)| s.process == id)
            .map(|(n, _)| *n)
        else {
            return;
        };
        if let Some(gone) = self.servers.remove(&server) {
            let status = match over {
                Some(bound) => bound.words_of_server(&gone.name),
                None => status.to_owned(),
            };
            tracing::info!(role = "mcp-server", server = gone.name, "{status}");
            if let Some(process) = self.processes.get(&gone.owner) {
                process.send(0, ToWorker::ServerExited { server, status }, vec![]);
            }
            if let Some(run) = gone.run {
                self.settle_run(&run);
            }
        }
    }

    /// The app-bridge is gone: nobody speaks to its servers any more.
    pub(crate) fn end_servers_of(&mut self, owner: ProcessId) {
        let orphans: Vec<_> = self
            .servers
            .values()
            .filter(|s| s.owner == owner)
            .map(|s| s.process)
            .collect();
        for id in orphans {
            self.end(id);
        }
    }
}
