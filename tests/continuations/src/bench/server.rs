//! The service with a host that answers at once, or never.

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use continuation_record::Mode;
use continuation_record::snapshot::SnapshotMessage;
use continuation_record::token::TokenDigest;
use continuation_service::ambient::Machine;
use continuation_service::desk::Parts;
use continuation_service::host::{
    Commitment, Delivery, DeliveryRequest, Host, Readiness, Synthesis, SynthesisRequest,
};
use continuation_service::{Kept, Route, Service, Settings};
use continuation_store::fs::RealFs;
use continuation_store::{Limits, Retention, Store};
use std::collections::HashMap;
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::oneshot;

pub(super) const SERVICE: &str = "work-control";
pub(super) const BEARER: &str = "a bearer of enough characters";
pub(super) const ROUTE: &str = "attention";

/// When each continuation was delivered, by the key of its delivery.
pub(super) type Deliveries = Arc<Mutex<HashMap<String, Instant>>>;

/// The rest of the host.
#[derive(Debug, Default)]
pub(super) struct Stub {
    /// Models are never done: what is accepted stays where it is.
    pub(super) stuck: bool,
    pub(super) deliveries: Deliveries,
}

#[async_trait]
impl Host for Stub {
    async fn run_committed(&self, _: &str, _: &str, _: &str) -> Commitment {
        Commitment::Committed
    }

    async fn latest_history(&self, _: &str) -> Result<Vec<SnapshotMessage>, String> {
        Ok(Vec::new())
    }

    async fn commit_history(&self, _: &str, _: &str, _: &str) -> Result<(), String> {
        Ok(())
    }

    async fn preflight(&self, _: &str) -> Readiness {
        Readiness::Ready
    }

    async fn synthesize(&self, _: SynthesisRequest) -> Synthesis {
        if self.stuck {
            std::future::pending::<()>().await;
        }
        Synthesis::Text("The work is done.".to_owned())
    }

    async fn deliver(&self, request: DeliveryRequest) -> Delivery {
        self.deliveries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(request.key, Instant::now());
        Delivery::Delivered {
            delivery_id: Some("1".to_owned()),
            channel_id: None,
            history: Some(Ok(())),
        }
    }
}

pub(super) fn settings(port: u16) -> Settings {
    let mut settings = Settings::new("127.0.0.1", port);
    // What is measured is the store and not its admission.
    settings.limits.max_active = 1_000_000;
    settings.limits.max_active_per_origin = 1_000_000;
    settings.routes.insert(
        ROUTE.to_owned(),
        Route {
            mode: Mode::NotifyIfActionable,
            conversation: Some("slack:C1:T1".to_owned()),
        },
    );
    settings
        .services
        .insert(SERVICE.to_owned(), TokenDigest::of(BEARER));
    settings
}

/// Opens the store in a folder.
pub(super) fn open(folder: &Path) -> Result<Store<RealFs>> {
    let fs = RealFs::open(folder)?;
    Ok(Store::open(fs, Limits::default())?.0)
}

/// Serves until the process ends. One thread, as in the product.
///
/// # Errors
/// When the folder can't be opened or the listener not used.
pub fn serve(folder: &Path, listener: TcpListener) -> Result<()> {
    let stub = Stub {
        stuck: true,
        ..Stub::default()
    };
    let (_never, end) = oneshot::channel();
    run(folder, listener, stub, end)
}

/// Serves until the other end of `end` says so.
pub(super) fn run(
    folder: &Path,
    listener: TcpListener,
    host: Stub,
    end: oneshot::Receiver<()>,
) -> Result<()> {
    let store = open(folder)?;
    let kept = Arc::new(Kept::new(store, Retention::default()));
    let port = listener.local_addr()?.port();
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let parts = Parts {
            secret: kept.secret(),
            keeper: kept,
            settings: settings(port),
            host: Arc::new(host),
            ambient: Arc::new(Machine::default()),
        };
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let service = Service::start(listener, parts)
            .await
            .context("the service can't be started")?;
        tokio::select! {
            () = service.failed() => anyhow::bail!("the store failed"),
            _ = end => service.stop().await,
        }
        Ok(())
    })
}
