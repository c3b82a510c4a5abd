//! Logins, kept with the store so that they outlive this worker.

use super::error::ApiError;
use super::keeper::Keeper;
use super::login::Logins;
use super::turn::now;
use http::HeaderMap;
use ipc_proto::console::{Ask, Session};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OnceCell, watch};

/// Who is logged in.
#[derive(Debug)]
pub struct Sessions {
    logins: Mutex<Logins>,
    loaded: OnceCell<()>,
    keeper: Arc<Keeper>,
    /// Grows whenever a session ends, so that its streams end too.
    ended: watch::Sender<u64>,
}

impl Sessions {
    /// Nobody yet; the store is asked when it is needed.
    #[must_use]
    pub fn new(keeper: Arc<Keeper>) -> Self {
        Self {
            logins: Mutex::default(),
            loaded: OnceCell::new(),
            keeper,
            ended: watch::Sender::new(0),
        }
    }

    fn logins(&self) -> MutexGuard<'_, Logins> {
        self.logins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes sure that the store's sessions are known.
    ///
    /// # Errors
    /// When the store doesn't answer.
    pub async fn load(&self) -> Result<(), ApiError> {
        let load = || async {
            let sessions: Vec<Session> = self.keeper.ask(&Ask::Sessions).await?;
            self.logins().load(sessions);
            Ok(())
        };
        self.loaded.get_or_try_init(load).await.map(drop)
    }

    /// The session of a request.
    ///
    /// # Errors
    /// When the store doesn't answer.
    pub async fn admit(&self, headers: &HeaderMap) -> Result<Option<String>, ApiError> {
        self.load().await?;
        let admitted = self.logins().admit(headers, now());
        let Some((session, news)) = admitted else {
            return Ok(None);
        };
        let id = session.id.clone();
        if news {
            let keeper = self.keeper.clone();
            tokio::spawn(async move {
                if let Err(e) = keeper.ask::<()>(&Ask::KeepSession { session }).await {
                    tracing::debug!("when a session was seen is not kept: {}", e.message);
                }
            });
        }
        Ok(Some(id))
    }

    /// A new one-time token.
    #[must_use]
    pub fn mint(&self) -> String {
        self.logins().mint(now())
    }

    /// True while a token may be used.
    #[must_use]
    pub fn holds_link(&self, token: &str) -> bool {
        self.logins().holds_link(token, now())
    }

    /// Uses a token up; the cookie's secret. `None` when it may not be used.
    ///
    /// # Errors
    /// When the store doesn't answer; the token is used up then too.
    pub async fn log_in(&self, token: &str, user_agent: &str) -> Result<Option<String>, ApiError> {
        self.load().await?;
        let spent = self.logins().spend(token, user_agent, now());
        let Some((secret, session)) = spent else {
            return Ok(None);
        };
        let ask = Ask::KeepSession {
            session: session.clone(),
        };
        self.keeper.ask::<()>(&ask).await?;
        tracing::info!(session = session.id, "a browser logged in");
        self.logins().enter(session);
        Ok(Some(secret))
    }

    /// Ends a session, and its streams.
    ///
    /// # Errors
    /// 404 when there is none, 503 when the store doesn't answer.
    pub async fn end(&self, id: &str) -> Result<(), ApiError> {
        self.load().await?;
        // Here first: whatever the store says, it no longer holds.
        let known = self.logins().end(id);
        self.ended.send_modify(|n| *n += 1);
        let ask = Ask::RemoveSession { id: id.to_owned() };
        match self.keeper.ask::<()>(&ask).await {
            Err(e) if e.status == 404 && known => Ok(()),
            Err(e) if e.status == 404 => Err(ApiError::not_found("session")),
            other => other,
        }
    }

    /// True while a session may be used.
    #[must_use]
    pub fn holds(&self, id: &str) -> bool {
        self.logins().holds(id, now())
    }

    /// Tells when a session ends.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.ended.subscribe()
    }

    /// Those that hold, as people see them.
    #[must_use]
    pub fn list(&self, current: Option<&str>) -> serde_json::Value {
        let sessions = self.logins().list(now());
        let shown = sessions.iter().map(|session| {
            let mut shown = serde_json::json!({
                "id": session.id, "createdAt": session.created_at,
                "lastSeenAt": session.last_seen_at, "userAgent": session.user_agent,
            });
            if let Some(current) = current {
                shown["current"] = (session.id == current).into();
            }
            shown
        });
        serde_json::json!({ "sessions": shown.collect::<Vec<_>>() })
    }
}
