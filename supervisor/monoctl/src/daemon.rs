//! Asking the daemon.

use crate::error::CtlError;
use crate::socket;
use ipc_proto::admin::{Admin, Answer, Ask};
use ipc_proto::{CallError, Client, Role, VERSION_MAX, VERSION_MIN};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// How long the daemon may take for an answer.
const WITHIN: Duration = Duration::from_secs(30);
/// Largest answer in bytes.
const MAX_ANSWER: usize = 64 * 1024 * 1024;

/// A greeted daemon.
pub(crate) struct Daemon {
    client: Client<Admin>,
}

impl Daemon {
    /// Connects to the socket that was named or found, and greets.
    pub(crate) async fn connect(named: Option<&Path>) -> Result<Self, CtlError> {
        let path = socket::find(named, std::env::var_os("MONO_SOCKET"), |path| {
            std::fs::symlink_metadata(path).is_ok()
        })?;
        let fd = socket::open(&path)?;
        let client =
            Client::new(fd, Role::Monod).map_err(|source| CtlError::Connect { path, source })?;
        let daemon = Self { client };
        let hello = Ask::Hello {
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
        };
        daemon.ask::<Value>(&hello, &[]).await?;
        Ok(daemon)
    }

    /// Asks; gives the result and the descriptors that came beside it.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        ask: &Ask,
        fds: &[OwnedFd],
    ) -> Result<(T, VecDeque<OwnedFd>), CtlError> {
        let (answer, mut fds) = self
            .client
            .call(ask, fds, WITHIN)
            .await
            .map_err(no_answer)?;
        match answer {
            Answer::Ok { result } => {
                let value = result
                    .unpack(&mut fds, MAX_ANSWER)
                    .map_err(|e| CtlError::NoAnswer(e.to_string()))?;
                Ok((value, fds))
            }
            Answer::Error { code, message } => Err(CtlError::Refused { code, message }),
        }
    }

    /// Waits until the daemon closes the connection; false when it takes longer than `most`.
    pub(crate) async fn closed(&self, most: Duration) -> bool {
        tokio::time::timeout(most, self.client.closed())
            .await
            .is_ok()
    }
}

fn no_answer(error: CallError) -> CtlError {
    match error {
        CallError::Fault(fault) => CtlError::Refused {
            code: fault.code,
            message: fault.message,
        },
        CallError::Gone(_) => CtlError::NoAnswer("it closed the connection".to_owned()),
        other => CtlError::NoAnswer(other.to_string()),
    }
}
