//! Servers as the supervisor starts and ends them.

use crate::servers::{Started, Starter};
use ipc_proto::RunId;
use ipc_proto::edges::continuation::Claim;
use ipc_proto::request_context::RequestContext;
use worker_kit::{Control, ControlError, ServerPipes};

/// Starts servers by asking the supervisor.
pub(crate) struct Supervisor(pub(crate) Control);

impl Starter for Supervisor {
    async fn start(
        &self,
        name: &str,
        run: Option<&RunId>,
        claim: Option<Claim>,
    ) -> Result<Started, String> {
        let pipes = match (run, claim) {
            (Some(run), Some(claim)) => {
                self.0.start_claiming_server(name, run.clone(), claim).await
            }
            _ => self.0.start_server(name, run.cloned()).await,
        };
        started(pipes)
    }

    async fn start_told(
        &self,
        name: &str,
        run: &RunId,
        context: RequestContext,
        claim: Option<Claim>,
    ) -> Result<Started, String> {
        let told = self
            .0
            .start_server_of_request(name, run.clone(), context, claim);
        started(told.await)
    }

    async fn stop(&self, process: u64) {
        // It ends all of them itself when it ends us, and answers nobody then.
        if let Err(error) = self.0.stop_server(process).await {
            tracing::debug!(process, "a server could not be stopped: {error}");
        }
    }
}

fn started(pipes: Result<ServerPipes, ControlError>) -> Result<Started, String> {
    let pipes = pipes.map_err(|error| error.to_string())?;
    Ok(Started {
        process: pipes.server,
        stdin: pipes.stdin,
        stdout: pipes.stdout,
        stderr: pipes.stderr,
    })
}
