//! Who may post progress, and where it goes (spec s3, "Trusted request context for a stdio server").
//!
//! A bearer is made for one server of one run when that server is started, and is good for nothing else.
//! What is posted with it goes to the run, which tells whoever started it: a post names no place, and
//! none that it might name is looked at. With the run all its bearers are gone.

pub mod route;

use ipc_proto::RunId;
use ipc_proto::channel::Responder;
use ipc_proto::edges::app_bridge::{AppBridge, Reply};
use ipc_proto::request_context::{
    AttachedFile, ProgressAccess, ProgressState, ProgressToken, RequestContext,
};
use sha2::{Digest as _, Sha256};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use uuid::Uuid;

/// Keys of one bearer: each is a line of its own where it is shown.
pub const MAX_KEYS: usize = 32;
/// Posts that a bearer may send at once; after that one each [`EVERY`].
pub const BURST: u32 = 20;
/// Time until a bearer may post once more.
pub const EVERY: Duration = Duration::from_millis(200);
/// Posts that wait for a run to take them.
const QUEUE: usize = 64;

/// What a server says of its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    /// What of its work this is about.
    pub key: String,
    /// For people.
    pub message: String,
    /// Where it stands.
    pub state: ProgressState,
}

/// A post on its way to its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posted {
    /// The server's configured name.
    pub server: String,
    /// What it says.
    pub post: Post,
}

/// Why a post was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// No bearer of a run under way.
    Bearer,
    /// Too many posts, or the run is slow to take them.
    Busy,
    /// More keys than are shown.
    Keys,
}

type Name = [u8; 32];

struct Bearer {
    run: RunId,
    server: String,
    keys: HashSet<String>,
    allowance: Allowance,
}

struct Accompanied {
    attachments: Vec<AttachedFile>,
    posts: mpsc::Sender<Posted>,
}

#[derive(Default)]
struct Books {
    runs: HashMap<RunId, Accompanied>,
    /// By digest, so that looking one up says nothing about how far a guess was right.
    bearers: HashMap<Name, Bearer>,
}

/// Runs that are accompanied, and the bearers of their servers.
#[derive(Default)]
pub struct Board {
    url: OnceLock<String>,
    books: Mutex<Books>,
}

impl Board {
    /// Posts are accepted at this address.
    pub fn listen_at(&self, url: String) {
        // There is one listener at most, from the worker's start on.
        let _ = self.url.set(url);
    }

    /// A run tells what came with its request; gives what its servers post.
    pub fn accompany(&self, run: &RunId, attachments: Vec<AttachedFile>) -> mpsc::Receiver<Posted> {
        let (posts, taken) = mpsc::channel(QUEUE);
        let accompanied = Accompanied { attachments, posts };
        self.books().runs.insert(run.clone(), accompanied);
        taken
    }

    /// The run takes nothing any more, and no bearer of its servers is one.
    pub fn leave(&self, run: &RunId) {
        let mut books = self.books();
        books.runs.remove(run);
        books.bearers.retain(|_, bearer| bearer.run != *run);
    }

    /// What a server that starts for a run is told. A bearer that it was given before is none any more.
    pub fn context(&self, run: &RunId, server: &str) -> RequestContext {
        let mut books = self.books();
        let Some(accompanied) = books.runs.get(run) else {
            return RequestContext::default();
        };
        let attachments = accompanied.attachments.clone();
        books
            .bearers
            .retain(|_, bearer| bearer.run != *run || bearer.server != server);
        let progress = self.url.get().map(|url| {
            // Twice 122 random bits of the kernel.
            let token = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
            let bearer = Bearer {
                run: run.clone(),
                server: server.to_owned(),
                keys: HashSet::new(),
                allowance: Allowance::new(Instant::now()),
            };
            books.bearers.insert(name(&token), bearer);
            ProgressAccess {
                url: url.clone(),
                token: ProgressToken(token),
            }
        });
        RequestContext {
            attachments,
            progress,
        }
    }

    /// True for the bearer of a run under way.
    pub fn knows(&self, token: &str) -> bool {
        self.books().bearers.contains_key(&name(token))
    }

    /// Takes a post, if its bearer is one at this moment.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn post(&self, token: &str, post: Post) -> Result<(), Refused> {
        let mut books = self.books();
        let Books { runs, bearers } = &mut *books;
        let bearer = bearers.get_mut(&name(token)).ok_or(Refused::Bearer)?;
        let run = runs.get(&bearer.run).ok_or(Refused::Bearer)?;
        if !bearer.keys.contains(&post.key) && bearer.keys.len() >= MAX_KEYS {
            return Err(Refused::Keys);
        }
        if !bearer.allowance.take(Instant::now()) {
            return Err(Refused::Busy);
        }
        let key = post.key.clone();
        let server = bearer.server.clone();
        run.posts
            .try_send(Posted { server, post })
            .map_err(|e| match e {
                mpsc::error::TrySendError::Full(_) => Refused::Busy,
                mpsc::error::TrySendError::Closed(_) => Refused::Bearer,
            })?;
        bearer.keys.insert(key);
        Ok(())
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // A panic while it was held can't have left it half changed: each change is one call.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(token: &str) -> Name {
    Sha256::digest(token).into()
}

/// How many posts are left: [`BURST`] at most, one more each [`EVERY`].
#[derive(Debug, Clone, Copy)]
struct Allowance {
    left: u32,
    since: Instant,
}

impl Allowance {
    fn new(now: Instant) -> Self {
        Self {
            left: BURST,
            since: now,
        }
    }

    fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.since);
        let more = u32::try_from(passed.as_millis() / EVERY.as_millis()).unwrap_or(u32::MAX);
        self.since += EVERY * more.min(1 << 20);
        self.left = self.left.saturating_add(more).min(BURST);
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        true
    }
}

/// Tells a run what its servers post, until it hears no more; then nothing can be posted.
pub async fn pass_on(
    board: Arc<Board>,
    run: RunId,
    mut posts: mpsc::Receiver<Posted>,
    responder: Responder<AppBridge>,
) {
    loop {
        let posted = tokio::select! {
            biased;
            () = responder.cancelled() => break,
            posted = posts.recv() => posted,
        };
        let Some(Posted { server, post }) = posted else {
            break;
        };
        let reply = Reply::Posted {
            server,
            key: post.key,
            message: post.message,
            state: post.state,
        };
        if responder.send(&reply, &[]).await.is_err() {
            break;
        }
    }
    board.leave(&run);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    pub(super) fn post(key: &str) -> Post {
        Post {
            key: key.into(),
            message: "m".into(),
            state: ProgressState::Running,
        }
    }

    fn board() -> Board {
        let board = Board::default();
        board.listen_at("http://127.0.0.1:1/v1/progress".into());
        board
    }

    fn token(board: &Board, run: &RunId, server: &str) -> String {
        board.context(run, server).progress.unwrap().token.0
    }

    #[tokio::test]
    async fn a_post_goes_to_the_run_of_its_bearer_and_to_no_other() {
        let board = board();
        let (one, two) = (RunId::new(), RunId::new());
        let mut of_one = board.accompany(&one, vec![]);
        let mut of_two = board.accompany(&two, vec![]);
        let (a, b) = (token(&board, &one, "s"), token(&board, &two, "s"));
        assert_ne!(a, b);
        board.post(&a, post("k")).unwrap();
        assert_eq!(of_one.try_recv().unwrap().server, "s");
        assert!(of_two.try_recv().is_err());
        assert_eq!(board.post("", post("k")), Err(Refused::Bearer));
        assert_eq!(board.post(&a[1..], post("k")), Err(Refused::Bearer));
        board.leave(&one);
        assert_eq!(board.post(&a, post("k")), Err(Refused::Bearer));
        assert!(!board.knows(&a) && board.knows(&b));
        board.post(&b, post("k")).unwrap();
        // A run that takes nothing any more is as good as over.
        drop(of_two);
        assert_eq!(board.post(&b, post("k")), Err(Refused::Bearer));
    }

    #[tokio::test]
    async fn a_server_has_one_bearer_and_the_files_of_its_own_request() {
        let board = board();
        let (one, two) = (RunId::new(), RunId::new());
        let file = AttachedFile {
            name: "1-a".into(),
            dev: 1,
            ino: 2,
        };
        let _of_one = board.accompany(&one, vec![file.clone()]);
        let _of_two = board.accompany(&two, vec![]);
        assert_eq!(board.context(&one, "s").attachments, [file]);
        assert_eq!(board.context(&two, "s").attachments, []);
        let (first, other) = (token(&board, &one, "s"), token(&board, &one, "other"));
        let second = token(&board, &one, "s");
        assert!(!board.knows(&first) && board.knows(&second) && board.knows(&other));
        // After a run, and for one that never said a word, nothing is known.
        board.leave(&one);
        assert_eq!(board.context(&one, "s"), RequestContext::default());
        let silent = Board::default();
        let _run = silent.accompany(&one, vec![]);
        assert_eq!(silent.context(&one, "s").progress, None);
    }

    #[tokio::test(start_paused = true)]
    async fn posts_are_bounded_in_keys_in_time_and_by_what_the_run_takes() {
        let board = board();
        let run = RunId::new();
        let mut posts = board.accompany(&run, vec![]);
        let bearer = token(&board, &run, "s");
        for _ in 0..BURST {
            board.post(&bearer, post("k")).unwrap();
        }
        assert_eq!(board.post(&bearer, post("k")), Err(Refused::Busy));
        tokio::time::advance(EVERY).await;
        board.post(&bearer, post("k")).unwrap();
        assert_eq!(board.post(&bearer, post("k")), Err(Refused::Busy));
        tokio::time::advance(EVERY * 1_000).await;
        for n in 1..MAX_KEYS {
            tokio::time::advance(EVERY).await;
            board.post(&bearer, post(&n.to_string())).unwrap();
        }
        assert_eq!(board.post(&bearer, post("more")), Err(Refused::Keys));
        let mut waiting = BURST as usize + MAX_KEYS;
        while waiting < QUEUE {
            tokio::time::advance(EVERY).await;
            board.post(&bearer, post("k")).unwrap();
            waiting += 1;
        }
        tokio::time::advance(EVERY).await;
        assert_eq!(board.post(&bearer, post("k")), Err(Refused::Busy));
        posts.recv().await.unwrap();
        tokio::time::advance(EVERY).await;
        board.post(&bearer, post("k")).unwrap();
    }
}
