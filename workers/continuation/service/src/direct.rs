//! The service without its listener and its loop: what a program calls that sets the pace itself, as a
//! simulation does. Each call is what a request does whose body is complete.

use crate::engine::Engine;
use crate::error::Rejection;
use crate::intake::{Accepted, Claimed, Intake};

impl Intake {
    /// A claim with a run's capability.
    ///
    /// # Errors
    /// As the answer to the request would be.
    pub async fn claim_with(&self, bearer: &str, body: &[u8]) -> Result<Claimed, Rejection> {
        let binding = self.capability(bearer)?;
        self.claim(&binding, body).await
    }

    /// A detached service's claim.
    ///
    /// # Errors
    /// As the answer to the request would be.
    pub async fn detached_with(
        &self,
        service: &str,
        bearer: &str,
        body: &[u8],
    ) -> Result<Claimed, Rejection> {
        self.service(service, bearer)?;
        self.detached(service, body).await
    }

    /// A result.
    ///
    /// # Errors
    /// As the answer to the request would be.
    pub async fn submit(&self, id: &str, bearer: &str, body: &[u8]) -> Result<Accepted, Rejection> {
        self.authorize(id, bearer)?;
        self.result(id, bearer, body).await
    }
}

impl Engine {
    /// What can be worked on now, oldest change first.
    #[must_use]
    pub fn due(&self, count: usize) -> Vec<String> {
        let desk = self.desk();
        desk.due(count)
    }

    /// What has passed its deadline.
    #[must_use]
    pub fn overdue(&self, count: usize) -> Vec<String> {
        let desk = self.desk();
        desk.keeper.overdue(desk.now(), count)
    }
}
