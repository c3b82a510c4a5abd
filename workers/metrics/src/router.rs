//! The one route, behind the check of who asks.

use crate::format::Format;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, StatusCode};
use ipc_proto::figures::Figures;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use worker_web::origin::{Admission, Refused};

/// The route.
pub const METRICS: &str = "/metrics";
/// Time for the supervisor's answer, those before it included; a collector gives up after ten
/// seconds by default.
const ANSWER_WITHIN: Duration = Duration::from_secs(8);

/// What the supervisor says; `None` when it says nothing.
pub type Answer = Pin<Box<dyn Future<Output = Option<Figures>> + Send>>;
/// Asks the supervisor.
pub type Ask = Arc<dyn Fn() -> Answer + Send + Sync>;

#[derive(Clone)]
struct Shared {
    admission: Admission,
    ask: Ask,
    /// The supervisor is asked one question at a time, however many ask here.
    turn: Arc<Mutex<()>>,
}

/// `GET /metrics`, for clients that address this machine by a loopback name.
pub fn router(admission: Admission, ask: Ask) -> Router {
    let shared = Shared {
        admission,
        ask,
        turn: Arc::default(),
    };
    Router::new()
        .route(METRICS, get(scrape))
        .fallback(|| async { plain(StatusCode::NOT_FOUND, "metrics are at /metrics\n") })
        .method_not_allowed_fallback(|| async {
            plain(
                StatusCode::METHOD_NOT_ALLOWED,
                "metrics are read with GET\n",
            )
        })
        .layer(middleware::from_fn_with_state(shared.clone(), admit))
        .with_state(shared)
}

async fn admit(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let mut response = match shared.admission.check(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refused) => {
            let status = match refused {
                Refused::NoHost => StatusCode::BAD_REQUEST,
                Refused::Host | Refused::Origin => StatusCode::FORBIDDEN,
            };
            plain(status, format!("{refused}\n"))
        }
    };
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn scrape(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    let asked = async {
        let _turn = shared.turn.lock().await;
        (shared.ask)().await
    };
    let Ok(Some(figures)) = tokio::time::timeout(ANSWER_WITHIN, asked).await else {
        return plain(
            StatusCode::SERVICE_UNAVAILABLE,
            "the supervisor gave no answer\n",
        );
    };
    let format = Format::accepted(&headers);
    match format.write(figures) {
        Ok(text) => ([(CONTENT_TYPE, format.content_type())], text).into_response(),
        Err(_) => {
            tracing::error!("the supervisor's figures don't fit their families");
            plain(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the figures can't be written\n",
            )
        }
    }
}

fn plain(status: StatusCode, text: impl Into<String>) -> Response {
    (status, text.into()).into_response()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use axum::body::Body;
    use http_body_util::BodyExt;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tower::ServiceExt;

    fn answering(figures: Option<Figures>) -> Router {
        let ask: Ask = Arc::new(move || {
            let figures = figures.clone();
            Box::pin(async move { figures })
        });
        router(Admission::new([127, 0, 0, 1].into()), ask)
    }

    async fn get(
        router: Router,
        request: http::request::Builder,
    ) -> (StatusCode, HeaderMap, String) {
        let response = router
            .oneshot(request.body(Body::empty()).unwrap())
            .await
            .unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (
            head.status,
            head.headers,
            String::from_utf8(body.to_vec()).unwrap(),
        )
    }

    fn request(method: &str, path: &str, host: &str) -> http::request::Builder {
        http::Request::builder()
            .method(method)
            .uri(path)
            .header("host", host)
    }

    #[tokio::test]
    async fn only_the_route_answers_and_only_to_loopback_names() {
        for (method, path, host, status) in [
            ("GET", "/metrics", "localhost:9464", 200),
            ("HEAD", "/metrics", "127.0.0.1:9464", 200),
            ("GET", "/metrics?name=x", "[::1]:9464", 200),
            ("POST", "/metrics", "localhost", 405),
            ("DELETE", "/metrics", "localhost", 405),
            ("GET", "/", "localhost", 404),
            ("GET", "/metrics/", "localhost", 404),
            ("GET", "/metrics", "evil.example", 403),
            ("GET", "/", "evil.example", 403),
            ("GET", "http://evil.example/metrics", "localhost", 403),
        ] {
            let router = answering(Some(Figures::default()));
            let (found, headers, _) = get(router, request(method, path, host)).await;
            assert_eq!(found, status, "{method} {path} {host}");
            assert_eq!(headers[CACHE_CONTROL], "no-store");
        }
        let router = answering(Some(Figures::default()));
        let without = http::Request::builder().uri("/metrics");
        assert_eq!(get(router, without).await.0, 400);
        let router = answering(Some(Figures::default()));
        let page = request("GET", "/metrics", "localhost").header("origin", "http://evil.example");
        assert_eq!(get(router, page).await.0, 403);
    }

    #[tokio::test]
    async fn the_format_is_the_one_that_is_accepted() {
        let router = answering(Some(Figures::default()));
        let wish = request("GET", "/metrics", "localhost")
            .header("accept", "application/openmetrics-text; version=1.0.0");
        let (_, headers, text) = get(router, wish).await;
        assert_eq!(
            (headers[CONTENT_TYPE].to_str().unwrap(), text.as_str()),
            (crate::format::OPENMETRICS, "# EOF\n")
        );
        let router = answering(Some(Figures::default()));
        let (_, headers, text) = get(router, request("GET", "/metrics", "localhost")).await;
        assert_eq!(
            (headers[CONTENT_TYPE].to_str().unwrap(), text.as_str()),
            (crate::format::PROMETHEUS, "")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_supervisor_without_an_answer_is_no_success() {
        let request = || request("GET", "/metrics", "localhost");
        assert_eq!(get(answering(None), request()).await.0, 503);
        let silent: Ask = Arc::new(|| Box::pin(std::future::pending()));
        let router = router(Admission::new([127, 0, 0, 1].into()), silent);
        assert_eq!(get(router, request()).await.0, 503);
    }

    #[tokio::test]
    async fn the_supervisor_is_asked_one_question_at_a_time() {
        let (under_way, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (now, peak) = (under_way.clone(), most.clone());
        let ask: Ask = Arc::new(move || {
            let (now, peak) = (now.clone(), peak.clone());
            Box::pin(async move {
                peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                now.fetch_sub(1, Ordering::SeqCst);
                Some(Figures::default())
            })
        });
        let router = router(Admission::new([127, 0, 0, 1].into()), ask);
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..8 {
            all.spawn(get(router.clone(), request("GET", "/metrics", "localhost")));
        }
        while let Some(answer) = all.join_next().await {
            assert_eq!(answer.unwrap().0, 200);
        }
        assert_eq!(most.load(Ordering::SeqCst), 1);
    }
}
