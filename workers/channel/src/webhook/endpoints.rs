//! The routes, and who may use each: a path, a key, a signing key.

use super::callback::SigningKey;
use crate::bearer::Bearer;
use http::HeaderMap;
use ipc_proto::settings::WebhookEndpoint;
use std::collections::HashMap;
use std::sync::Arc;
use uuid::Uuid;

/// The channel as the source of runs.
const SOURCE: &str = "webhook";
/// Bytes of an endpoint's name that tell it from others there: the store takes 256 with the channel's.
const MAX_NAME: usize = 240;
/// Below the folder of an endpoint's path.
const REQUESTS: &str = "/requests/";

/// One route with its keys, its own or the channel's.
pub struct Endpoint {
    /// What is configured.
    pub settings: WebhookEndpoint,
    /// What callers send.
    pub bearer: Option<Arc<Bearer>>,
    /// What results are signed with.
    pub signing: Option<Arc<SigningKey>>,
}

/// All routes.
pub struct Endpoints {
    all: Vec<Endpoint>,
    by_path: HashMap<String, usize>,
}

/// What a path means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route<'a> {
    /// A request to this endpoint.
    Invoke(usize),
    /// The status of a request to one of the endpoints of this folder.
    Status {
        /// The endpoints' folder: `/webhook` for `/webhook/invoke`.
        folder: &'a str,
        /// The request.
        id: Uuid,
    },
    /// Neither.
    Unknown,
}

impl Endpoints {
    /// Takes the endpoints in order.
    ///
    /// # Errors
    /// A sentence for the operator when a path is no path, or stands twice.
    pub fn new(all: Vec<Endpoint>) -> Result<Self, String> {
        let mut by_path = HashMap::new();
        for (index, endpoint) in all.iter().enumerate() {
            let path = &endpoint.settings.path;
            if !path.starts_with('/') || path.contains(['?', '#']) {
                return Err(format!(
                    "the webhook path {path:?} is no path of an address"
                ));
            }
            if by_path.insert(path.clone(), index).is_some() {
                return Err(format!("the webhook path {path:?} stands twice"));
            }
        }
        Ok(Self { all, by_path })
    }

    /// The source of an endpoint's runs: conversations that callers name belong to those who hold the
    /// same key. One that the endpoint was given is the configuration's, whatever keys there are.
    #[must_use]
    pub fn source(&self, index: usize) -> String {
        let settings = &self.all[index].settings;
        // The first one's key is the channel's.
        if index > 0 && settings.bearer && settings.conversation.is_none() {
            let name = &settings.name;
            format!("{SOURCE}:{}", &name[..name.floor_char_boundary(MAX_NAME)])
        } else {
            SOURCE.to_owned()
        }
    }

    /// One endpoint.
    #[must_use]
    pub fn get(&self, index: usize) -> &Endpoint {
        &self.all[index]
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Endpoint> {
        self.all.iter()
    }

    /// True when every endpoint asks for a key.
    #[must_use]
    pub fn all_protected(&self) -> bool {
        self.all.iter().all(|endpoint| endpoint.bearer.is_some())
    }

    /// What a path means. An endpoint's own path comes first.
    #[must_use]
    pub fn route<'a>(&self, path: &'a str) -> Route<'a> {
        if let Some(index) = self.by_path.get(path) {
            return Route::Invoke(*index);
        }
        let status = path.rsplit_once(REQUESTS).and_then(|(folder, id)| {
            let known = self.all.iter().any(|e| parent(&e.settings.path) == folder);
            // One way to write an id, so that one address names it.
            let parsed = Uuid::try_parse(id)
                .ok()
                .filter(|uuid| uuid.to_string() == id);
            parsed
                .filter(|_| known)
                .map(|id| Route::Status { folder, id })
        });
        status.unwrap_or(Route::Unknown)
    }

    /// True when a caller may use an endpoint.
    #[must_use]
    pub fn accepts(&self, index: usize, headers: &HeaderMap) -> bool {
        let bearer = &self.all[index].bearer;
        bearer.as_ref().is_none_or(|bearer| bearer.accepts(headers))
    }

    /// The endpoints of a folder that a caller may use.
    #[must_use]
    pub fn accepting(&self, folder: &str, headers: &HeaderMap) -> Vec<usize> {
        (0..self.all.len())
            .filter(|index| parent(&self.all[*index].settings.path) == folder)
            .filter(|index| self.accepts(*index, headers))
            .collect()
    }

    /// Where the status of a request is read.
    #[must_use]
    pub fn status_path(&self, index: usize, id: Uuid) -> String {
        format!("{}{REQUESTS}{id}", parent(&self.all[index].settings.path))
    }
}

/// `/a` for `/a/b`, nothing for `/a`.
fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::bearer::tests::read;
    use http::HeaderValue;
    use http::header::AUTHORIZATION;

    fn endpoint(path: &str, key: Option<&str>) -> Endpoint {
        Endpoint {
            settings: WebhookEndpoint {
                name: path.into(),
                path: path.into(),
                bearer: false,
                secret: false,
                wait: true,
                conversation: None,
                model: None,
                effort: None,
                prompt: None,
                callback_url: None,
            },
            bearer: key.map(|key| Arc::new(read(key.as_bytes()).unwrap())),
            signing: None,
        }
    }

    fn endpoints(all: &[(&str, Option<&str>)]) -> Endpoints {
        Endpoints::new(all.iter().map(|(p, k)| endpoint(p, *k)).collect()).unwrap()
    }

    #[test]
    fn a_path_is_an_endpoint_or_the_status_of_a_request() {
        let id = Uuid::from_u128(7);
        let all = endpoints(&[
            ("/webhook/invoke", None),
            ("/hook", None),
            ("/a/b:c/*", None),
        ]);
        let status = |folder| Route::Status { folder, id };
        for (path, expected) in [
            ("/webhook/invoke".to_owned(), Route::Invoke(0)),
            ("/hook".to_owned(), Route::Invoke(1)),
            ("/a/b:c/*".to_owned(), Route::Invoke(2)),
            (format!("/webhook/requests/{id}"), status("/webhook")),
            (format!("/requests/{id}"), status("")),
            (format!("/a/b:c/requests/{id}"), status("/a/b:c")),
            ("/webhook/invoke/".to_owned(), Route::Unknown),
            ("/webhook".to_owned(), Route::Unknown),
            ("/".to_owned(), Route::Unknown),
            ("/webhook/requests/".to_owned(), Route::Unknown),
            ("/webhook/requests/7".to_owned(), Route::Unknown),
            (format!("/webhook/requests/{}", id.simple()), Route::Unknown),
            (format!("/webhook/requests/{{{id}}}"), Route::Unknown),
            (format!("/other/requests/{id}"), Route::Unknown),
            (format!("/webhook/requests/{id}/x"), Route::Unknown),
        ] {
            assert_eq!(all.route(&path), expected, "{path}");
        }
        for index in 0..3 {
            let path = all.status_path(index, id);
            assert!(matches!(all.route(&path), Route::Status { id: found, .. } if found == id));
        }
    }

    #[test]
    fn each_endpoint_has_its_key() {
        let all = endpoints(&[("/w/a", Some("one")), ("/w/b", Some("two")), ("/x/c", None)]);
        let with = |key: &str| {
            let mut headers = HeaderMap::new();
            let value = HeaderValue::from_str(&format!("Bearer {key}")).unwrap();
            headers.insert(AUTHORIZATION, value);
            headers
        };
        assert!(all.accepts(0, &with("one")) && !all.accepts(0, &with("two")));
        assert!(all.accepts(1, &with("two")) && all.accepts(2, &HeaderMap::new()));
        assert_eq!(all.accepting("/w", &with("two")), [1]);
        assert!(all.accepting("/w", &with("three")).is_empty());
        assert_eq!(all.accepting("/x", &HeaderMap::new()), [2]);
        assert!(!all.all_protected());
        assert!(endpoints(&[("/a", Some("k"))]).all_protected());
    }

    #[test]
    fn runs_of_one_key_have_one_source() {
        let with = |path: &str, bearer, conversation: Option<&str>| {
            let mut endpoint = endpoint(path, None);
            endpoint.settings.bearer = bearer;
            endpoint.settings.conversation = conversation.map(str::to_owned);
            endpoint
        };
        let all = Endpoints::new(vec![
            with("/webhook", true, None),
            with("/shared", false, None),
            with("/own", true, None),
            with("/given", true, Some("deploys")),
        ]);
        let all = all.unwrap();
        let sources: Vec<String> = (0..4).map(|index| all.source(index)).collect();
        assert_eq!(sources, ["webhook", "webhook", "webhook:/own", "webhook"]);
        let long = Endpoints::new(vec![
            endpoint("/", None),
            with(&format!("/{}", "é".repeat(127)), true, None),
        ]);
        assert!(long.unwrap().source(1).len() <= 256);
    }

    #[test]
    fn paths_are_checked() {
        for paths in [vec!["a"], vec![""], vec!["/a?b"], vec!["/a", "/a"]] {
            let all = paths.into_iter().map(|path| endpoint(path, None)).collect();
            assert!(Endpoints::new(all).is_err());
        }
    }
}
