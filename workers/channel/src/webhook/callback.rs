//! Sending a result to who wants to hear of it: signed, repeated within bounds, through `egress`.
//!
//! The signature is that of Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`. The id stays
//! the same in every attempt, so that a receiver can tell a repetition; the timestamp is each
//! attempt's own, so that it can refuse an old one.

use crate::bearer::{BearerError, read_secret};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::BoxFuture;
use hmac::{Hmac, KeyInit, Mac};
use ipc_proto::edges::delivery::TOO_LATE;
use ipc_proto::edges::egress::{Egress, Reply, Request};
use ipc_proto::{Body, CallError, Door, Until};
use sha2::Sha256;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Semaphore;
use url::Url;
use uuid::Uuid;
use zeroize::Zeroizing;

/// A signing key in this form is base64 behind the mark.
const MARK: &[u8] = b"whsec_";
/// Fewest bytes of a signing key.
const MIN_KEY: usize = 16;
/// Attempts under way at once; `egress` answers 12.
const AT_ONCE: usize = 8;
/// KiB of all results that wait to be sent.
const BUDGET_KIB: usize = 64 * 1024;
/// What `egress` may take beyond the time of an attempt.
const GRACE: Duration = Duration::from_secs(5);

/// What results are signed with.
pub struct SigningKey(Zeroizing<Vec<u8>>);

/// Why results can't be signed.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// As with any secret.
    #[error(transparent)]
    Secret(#[from] BearerError),
    /// Behind the mark stands something else.
    #[error("the callback secret begins with whsec_ and goes on with what is not base64")]
    Form,
    /// Guessable.
    #[error("the callback secret has fewer than {MIN_KEY} bytes")]
    Short,
}

impl SigningKey {
    /// Reads the key from its descriptor.
    ///
    /// # Errors
    /// [`KeyError`]; the worker must not serve then.
    pub fn read(fd: OwnedFd) -> Result<Self, KeyError> {
        let secret = read_secret(fd)?;
        let key = match secret.strip_prefix(MARK) {
            Some(coded) => Zeroizing::new(STANDARD.decode(coded).map_err(|_| KeyError::Form)?),
            None => secret,
        };
        if key.len() < MIN_KEY {
            return Err(KeyError::Short);
        }
        Ok(Self(key))
    }

    /// The value of `webhook-signature`.
    #[must_use]
    pub fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        // Any length makes a key.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else {
            return String::new();
        };
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

/// How often, and when again.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// Attempts in all.
    pub attempts: u32,
    /// The first wait; it doubles.
    pub backoff: Duration,
    /// The longest wait, also when the receiver asks for more.
    pub max_backoff: Duration,
    /// Time of one attempt.
    pub timeout: Duration,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempt {
    /// The receiver answered.
    Answered {
        /// HTTP status.
        status: u16,
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// It did not, or was not asked.
    Failed {
        /// A fixed code of `egress`, or `unavailable`.
        code: String,
        /// For the log.
        message: String,
    },
}

/// What follows from an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The receiver has it.
    Taken,
    /// Once more after this wait.
    Again(Duration),
    /// Never; the reason is for the log.
    GiveUp(String),
}

impl Policy {
    /// Decides about the `made`-th attempt, counted from 1.
    #[must_use]
    pub fn judge(&self, made: u32, attempt: &Attempt) -> Verdict {
        let (reason, again, asked) = match attempt {
            Attempt::Answered { status, .. } if (200..300).contains(status) => {
                return Verdict::Taken;
            }
            Attempt::Answered {
                status,
                retry_after,
            } => {
                let again = matches!(status, 408 | 425 | 429 | 500..=599);
                (format!("HTTP status {status}"), again, *retry_after)
            }
            Attempt::Failed { code, message } => {
                let again = matches!(
                    code.as_str(),
                    "dns" | "no_connection" | "timeout" | "network" | "unavailable"
                );
                (format!("{code}: {message}"), again, None)
            }
        };
        if !again || made >= self.attempts {
            return Verdict::GiveUp(reason);
        }
        let doubled = self
            .backoff
            .saturating_mul(1 << made.saturating_sub(1).min(20));
        Verdict::Again(doubled.max(asked.unwrap_or_default()).min(self.max_backoff))
    }
}

/// One attempt, as it goes out.
#[derive(Debug, Clone)]
pub struct Parcel {
    /// Where to.
    pub url: Url,
    /// `webhook-id`.
    pub id: String,
    /// `webhook-timestamp`.
    pub timestamp: u64,
    /// `webhook-signature`.
    pub signature: String,
    /// JSON.
    pub body: Arc<[u8]>,
}

/// Who carries attempts out: `egress`, or a test.
pub trait Post: Send + Sync + 'static {
    /// Carries one attempt out.
    fn post(&self, parcel: Parcel, timeout: Duration) -> BoxFuture<'_, Attempt>;
}

/// The channel to `egress`, which the supervisor grants, and again after a restart of it. Attempts
/// under way keep the old one until they end.
pub type WayOut = Door<Egress>;

impl Post for WayOut {
    fn post(&self, parcel: Parcel, timeout: Duration) -> BoxFuture<'_, Attempt> {
        Box::pin(async move {
            let failed = |message: String| Attempt::Failed {
                code: "unavailable".to_owned(),
                message,
            };
            let not_asked = |message: String| Attempt::Failed {
                code: "no_connection".to_owned(),
                message,
            };
            let Some(client) = self.now() else {
                return not_asked("the way out is not there yet".to_owned());
            };
            let (body, fd) = match Body::pack(parcel.body.to_vec()) {
                Ok(packed) => packed,
                Err(e) => return failed(e.to_string()),
            };
            let request = Request::Deliver {
                url: parcel.url.into(),
                id: parcel.id,
                timestamp: parcel.timestamp,
                signature: parcel.signature,
                body,
                until: Until::after(timeout),
            };
            let fds: Vec<_> = fd.into_iter().collect();
            // The deadline of the call bounds the attempt there; an answer to that is waited for.
            match tokio::time::timeout(timeout + GRACE, client.call(&request, &fds, timeout)).await
            {
                Ok(Ok((
                    Reply::Delivered {
                        status,
                        retry_after,
                    },
                    _,
                ))) => Attempt::Answered {
                    status,
                    retry_after: retry_after.map(|s| Duration::from_secs(s.into())),
                },
                Ok(Ok((Reply::DeliveryFailed { code, message }, _))) => {
                    Attempt::Failed { code, message }
                }
                Ok(Ok(_)) => failed("egress gave another answer".to_owned()),
                Ok(Err(CallError::Fault(fault))) if fault.code == "busy" => {
                    not_asked(fault.message)
                }
                Ok(Err(e)) => failed(e.to_string()),
                Err(_) => failed("egress gave no answer in time".to_owned()),
            }
        })
    }
}

/// Sends results.
pub struct Callbacks {
    post: Arc<dyn Post>,
    policy: Policy,
    at_once: Semaphore,
    budget: Semaphore,
}

impl Callbacks {
    /// Through this way, by this policy.
    #[must_use]
    pub fn new(post: Arc<dyn Post>, policy: Policy) -> Self {
        Self {
            post,
            policy,
            at_once: Semaphore::new(AT_ONCE),
            budget: Semaphore::new(BUDGET_KIB),
        }
    }

    /// One attempt, when its turn comes: `parcel` is made then. Not after `until`, and not for longer.
    pub async fn once(&self, until: Until, parcel: impl FnOnce() -> Parcel) -> Attempt {
        let turn = tokio::time::timeout(until.left(), self.at_once.acquire()).await;
        let left = until.left();
        let (Ok(Ok(_turn)), false) = (turn, left.is_zero()) else {
            return Attempt::Failed {
                code: TOO_LATE.to_owned(),
                message: "its time was over before its turn came".to_owned(),
            };
        };
        self.post
            .post(parcel(), self.policy.timeout.min(left))
            .await
    }

    /// Sends one result until it is taken or given up. Says so in the log and nowhere else: a
    /// callback changes nothing about the request.
    pub async fn send(&self, request: Uuid, url: Url, key: &SigningKey, body: Vec<u8>) {
        let host = url.host_str().unwrap_or_default().to_owned();
        let kib = u32::try_from(body.len().div_ceil(1024)).unwrap_or(u32::MAX);
        let Ok(_room) = self.budget.try_acquire_many(kib) else {
            tracing::error!(%request, host, "a result is not sent: too many are waiting to be");
            return;
        };
        let id = request.to_string();
        let body: Arc<[u8]> = body.into();
        for made in 1.. {
            let attempt = {
                let Ok(_turn) = self.at_once.acquire().await else {
                    return;
                };
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                let timestamp = now.map_or(0, |now| now.as_secs());
                let parcel = Parcel {
                    url: url.clone(),
                    id: id.clone(),
                    timestamp,
                    signature: key.sign(&id, timestamp, &body),
                    body: body.clone(),
                };
                self.post.post(parcel, self.policy.timeout).await
            };
            match self.policy.judge(made, &attempt) {
                Verdict::Taken => {
                    tracing::info!(%request, host, attempts = made, "the result was delivered");
                    return;
                }
                Verdict::GiveUp(reason) => {
                    tracing::warn!(%request, host, attempts = made, "the result was not delivered: {reason}");
                    return;
                }
                Verdict::Again(wait) => tokio::time::sleep(wait).await,
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::VecDeque;
    use std::io::{Seek, Write};
    use std::sync::Mutex;

    /// Answers attempts from a list, then with 200, and keeps them.
    #[derive(Default)]
    pub(crate) struct FakePost {
        pub(crate) answers: Mutex<VecDeque<Attempt>>,
        pub(crate) sent: Mutex<Vec<Parcel>>,
    }

    impl Post for FakePost {
        fn post(&self, parcel: Parcel, _: Duration) -> BoxFuture<'_, Attempt> {
            self.sent.lock().unwrap().push(parcel);
            let answer = self.answers.lock().unwrap().pop_front();
            Box::pin(async move { answer.unwrap_or_else(|| answered(200)) })
        }
    }

    pub(crate) fn key(secret: &str) -> Result<SigningKey, KeyError> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(secret.as_bytes()).unwrap();
        file.rewind().unwrap();
        SigningKey::read(file.into())
    }

    pub(crate) fn policy() -> Policy {
        Policy {
            attempts: 4,
            backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
        }
    }

    fn answered(status: u16) -> Attempt {
        Attempt::Answered {
            status,
            retry_after: None,
        }
    }

    fn failed(code: &str) -> Attempt {
        Attempt::Failed {
            code: code.into(),
            message: "m".into(),
        }
    }

    /// The example of the Standard Webhooks specification.
    #[test]
    fn the_signature_is_that_of_standard_webhooks() {
        let key = key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        let body = br#"{"test": 2432232314}"#;
        assert_eq!(
            key.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
    }

    #[test]
    fn a_key_is_checked() {
        assert!(key("0123456789abcdef").is_ok());
        assert!(matches!(key("0123456789abcde"), Err(KeyError::Short)));
        assert!(matches!(key("whsec_MfKQ"), Err(KeyError::Short)));
        assert!(matches!(
            key("whsec_???????????????????????"),
            Err(KeyError::Form)
        ));
        assert!(matches!(
            key(" \n"),
            Err(KeyError::Secret(BearerError::Empty))
        ));
    }

    #[test]
    fn what_may_get_better_is_tried_again_and_the_rest_is_not() {
        for (attempt, again) in [
            (answered(408), true),
            (answered(425), true),
            (answered(429), true),
            (answered(500), true),
            (answered(503), true),
            (answered(301), false),
            (answered(307), false),
            (answered(400), false),
            (answered(401), false),
            (answered(404), false),
            (answered(410), false),
            (answered(100), false),
            (failed("dns"), true),
            (failed("no_connection"), true),
            (failed("timeout"), true),
            (failed("network"), true),
            (failed("unavailable"), true),
            (failed("undeclared_host"), false),
            (failed("private_address"), false),
            (failed("invalid_url"), false),
            (failed("too_large"), false),
            (failed("surprise"), false),
        ] {
            let verdict = policy().judge(1, &attempt);
            assert_eq!(matches!(verdict, Verdict::Again(_)), again, "{attempt:?}");
            assert!(matches!(policy().judge(4, &attempt), Verdict::GiveUp(_)));
        }
        for status in [200, 202, 204, 299] {
            assert_eq!(policy().judge(1, &answered(status)), Verdict::Taken);
        }
    }

    #[test]
    fn waits_double_and_are_bounded() {
        let policy = Policy {
            attempts: 10,
            ..policy()
        };
        let wait = |made, seconds: Option<u64>| {
            let attempt = Attempt::Answered {
                status: 503,
                retry_after: seconds.map(Duration::from_secs),
            };
            match policy.judge(made, &attempt) {
                Verdict::Again(wait) => wait.as_secs(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(
            [1, 2, 3, 4, 9].map(|made| wait(made, None)),
            [1, 2, 4, 5, 5]
        );
        assert_eq!([0, 3, 9_999].map(|asked| wait(1, Some(asked))), [1, 3, 5]);
    }

    #[tokio::test(start_paused = true)]
    async fn every_attempt_is_signed_anew_under_one_id() {
        let post = Arc::new(FakePost::default());
        post.answers
            .lock()
            .unwrap()
            .extend([answered(503), failed("timeout")]);
        let callbacks = Callbacks::new(post.clone(), policy());
        let key = key("0123456789abcdef").unwrap();
        let url = Url::parse("https://hooks.example/x").unwrap();
        let begin = tokio::time::Instant::now();
        callbacks.send(Uuid::nil(), url, &key, b"{}".to_vec()).await;
        assert_eq!(begin.elapsed().as_secs(), 3);
        let sent = post.sent.lock().unwrap();
        assert_eq!(sent.len(), 3);
        for parcel in sent.iter() {
            assert_eq!(parcel.id, Uuid::nil().to_string());
            assert_eq!(*parcel.body, *b"{}");
            assert_eq!(
                parcel.signature,
                key.sign(&parcel.id, parcel.timestamp, b"{}")
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_are_counted() {
        let post = Arc::new(FakePost::default());
        post.answers.lock().unwrap().extend(vec![answered(500); 9]);
        let callbacks = Callbacks::new(post.clone(), policy());
        let url = Url::parse("https://hooks.example/x").unwrap();
        let key = key("0123456789abcdef").unwrap();
        callbacks.send(Uuid::nil(), url, &key, vec![]).await;
        assert_eq!(post.sent.lock().unwrap().len(), 4);
    }

    /// Answers when it is told to, and keeps how long each attempt may take.
    struct Slow {
        times: Mutex<Vec<Duration>>,
        open: Semaphore,
    }

    impl Post for Slow {
        fn post(&self, _: Parcel, timeout: Duration) -> BoxFuture<'_, Attempt> {
            self.times.lock().unwrap().push(timeout);
            Box::pin(async move {
                self.open.acquire().await.unwrap().forget();
                answered(200)
            })
        }
    }

    #[tokio::test]
    async fn an_attempt_is_made_in_time_or_not_at_all_and_takes_no_longer() {
        let post = Arc::new(Slow {
            times: Mutex::default(),
            open: Semaphore::new(0),
        });
        let callbacks = Callbacks::new(post.clone(), policy());
        let parcel = || Parcel {
            url: Url::parse("https://hooks.example/x").unwrap(),
            id: "m".into(),
            timestamp: 1,
            signature: String::new(),
            body: Arc::new([]),
        };
        let never = || panic!("it was made too late");
        let over = Until::after(Duration::ZERO);
        assert_eq!(callbacks.once(over, never).await, too_late());
        // All turns are taken for longer than the next may wait.
        let until = Until::after(policy().timeout * 6);
        let first = (0..AT_ONCE).map(|_| callbacks.once(until, parcel));
        let next = async {
            let short = Until::after(Duration::from_millis(50));
            let waited = callbacks.once(short, never).await;
            post.open.add_permits(AT_ONCE + 1);
            waited
        };
        let (ended, waited) = tokio::join!(futures_util::future::join_all(first), next);
        assert_eq!(waited, too_late());
        assert_eq!(ended, vec![answered(200); AT_ONCE]);
        let times = post.times.lock().unwrap().clone();
        assert_eq!(times, vec![policy().timeout; AT_ONCE]);
        // What is left is less than an attempt's own time.
        let until = Until::after(policy().timeout - Duration::from_secs(1));
        assert_eq!(callbacks.once(until, parcel).await, answered(200));
        let time = post.times.lock().unwrap().pop();
        assert!(time.is_some_and(|time| time < policy().timeout));
    }

    fn too_late() -> Attempt {
        Attempt::Failed {
            code: TOO_LATE.into(),
            message: "its time was over before its turn came".into(),
        }
    }

    #[tokio::test]
    async fn results_that_wait_have_64_mebibytes_together() {
        let post = Arc::new(FakePost::default());
        let callbacks = Callbacks::new(post.clone(), policy());
        let url = Url::parse("https://hooks.example/x").unwrap();
        let key = key("0123456789abcdef").unwrap();
        let send = |bytes| callbacks.send(Uuid::nil(), url.clone(), &key, vec![0; bytes]);
        send((64 << 20) + 1).await;
        assert_eq!(post.sent.lock().unwrap().len(), 0);
        send(64 << 20).await;
        assert_eq!(post.sent.lock().unwrap().len(), 1);
        // While one waits for another attempt it holds its room; then there is room again.
        post.answers.lock().unwrap().push_back(answered(500));
        tokio::time::pause();
        tokio::join!(send(63 << 20), send((1 << 20) + 1), send(1 << 20));
        let lengths = |sent: &[Parcel]| sent.iter().map(|p| p.body.len() >> 20).collect::<Vec<_>>();
        assert_eq!(lengths(&post.sent.lock().unwrap()), [64, 63, 1, 63]);
        send(64 << 20).await;
        assert_eq!(post.sent.lock().unwrap().len(), 5);
    }
}
