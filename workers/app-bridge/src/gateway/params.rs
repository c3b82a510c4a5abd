//! What is changed in a request's parameters on its way: metadata only. The rest stays as it was
//! written.

use ipc_proto::apps::{EXTENSION, MEDIA_TYPE};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Who calls, told to servers that ask for it. A caller's own word is taken out.
pub const CALLER: &str = "mono-agent/caller";
/// A server that wants it says so among its experimental capabilities.
pub const WANTS_CALLER: &str = "mono-agent/caller-identity";
/// A stateless client's capabilities.
const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const TOKEN: &str = "progressToken";

/// Parameters that are no object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the parameters are no object")]
pub struct NotAnObject;

type Members<'a> = BTreeMap<Cow<'a, str>, Cow<'a, RawValue>>;

/// Who calls.
#[derive(Debug, Clone, Copy)]
pub struct Who<'a> {
    /// Whose request it is. None for an app of a process that several share: its sessions have the same rights,
    /// and their apps one connection.
    pub session: Option<&'a str>,
    /// In the name of an app, and not of a model (spec s2, "App-originated tool calls").
    pub is_app: bool,
}

/// What is put into the metadata of a request.
#[derive(Debug, Clone, Copy)]
pub struct Stamp<'a> {
    /// The request's number, in the place of a progress token.
    pub number: u64,
    /// Who calls, where the server wants to know it.
    pub caller: Option<Who<'a>>,
    /// Apps are shown.
    pub apps: bool,
}

/// The parameters with our metadata, and the progress token that they had.
///
/// # Errors
/// [`NotAnObject`].
pub fn stamped(
    params: Option<&str>,
    stamp: Stamp<'_>,
) -> Result<(Option<String>, Option<String>), NotAnObject> {
    let Some(text) = params else {
        let added = stamp
            .caller
            .map(|caller| json!({ "_meta": { CALLER: caller_of(caller) } }).to_string());
        return Ok((added, None));
    };
    let says_something = text.contains("\"_meta\"") || text.contains("\\u");
    if !says_something && stamp.caller.is_none() {
        return if text.trim_start().starts_with('{') {
            Ok((Some(text.to_owned()), None))
        } else {
            Err(NotAnObject)
        };
    }
    let mut members: Members<'_> = serde_json::from_str(text).map_err(|_| NotAnObject)?;
    let meta = members.get("_meta").map(|meta| meta.get());
    let mut meta: Map<String, Value> = match meta {
        None | Some("null") => Map::new(),
        Some(meta) => serde_json::from_str(meta).map_err(|_| NotAnObject)?,
    };
    meta.remove(CALLER);
    let token = meta.remove(TOKEN);
    if token.is_some() {
        meta.insert(TOKEN.to_owned(), stamp.number.into());
    }
    if let Some(caller) = stamp.caller {
        meta.insert(CALLER.to_owned(), caller_of(caller));
    }
    if let Some(Value::Object(capabilities)) = meta.get_mut(CLIENT_CAPABILITIES) {
        announce(capabilities, stamp.apps);
    }
    if meta.is_empty() {
        members.remove("_meta");
    } else {
        let meta = serde_json::value::to_raw_value(&meta).map_err(|_| NotAnObject)?;
        members.insert("_meta".into(), Cow::Owned(meta));
    }
    let text = serde_json::to_string(&members).map_err(|_| NotAnObject)?;
    Ok((Some(text), token.map(|token| token.to_string())))
}

fn caller_of(who: Who<'_>) -> Value {
    let kind = if who.is_app { "mcp-app" } else { "gateway" };
    match who.session {
        Some(session) => json!({ "session": session, "kind": kind }),
        None => json!({ "kind": kind }),
    }
}

/// Says that apps are shown, or that they are not.
fn announce(capabilities: &mut Map<String, Value>, apps: bool) {
    let extensions = capabilities
        .entry("extensions")
        .or_insert_with(|| json!({}));
    if let Value::Object(extensions) = extensions {
        if apps {
            let about = json!({ "mimeTypes": [MEDIA_TYPE] });
            extensions.insert(EXTENSION.to_owned(), about);
        } else {
            extensions.remove(EXTENSION);
        }
        if extensions.is_empty() {
            capabilities.remove("extensions");
        }
    }
}

/// The parameters of `initialize` as they go to the server. A server that several share is told of
/// no client and of no capability: none of them could answer for all.
///
/// # Errors
/// [`NotAnObject`].
pub fn greeting(params: Option<&str>, shared: bool, apps: bool) -> Result<String, NotAnObject> {
    let mut params: Map<String, Value> =
        serde_json::from_str(params.unwrap_or("{}")).map_err(|_| NotAnObject)?;
    if shared {
        params.retain(|key, _| key == "protocolVersion");
        let version = env!("CARGO_PKG_VERSION");
        let info = json!({ "name": crate::client::CLIENT_NAME, "version": version });
        params.insert("clientInfo".to_owned(), info);
    }
    let capabilities = params.entry("capabilities").or_insert_with(|| json!({}));
    let capabilities = capabilities.as_object_mut().ok_or(NotAnObject)?;
    announce(capabilities, apps);
    Ok(Value::Object(params).to_string())
}

/// The name and the arguments of a tool call.
#[must_use]
pub fn call_of(params: Option<&str>) -> Option<(String, String)> {
    #[derive(serde::Deserialize)]
    struct Call<'a> {
        name: String,
        #[serde(borrow, default)]
        arguments: Option<&'a RawValue>,
    }
    let call: Call<'_> = serde_json::from_str(params?).ok()?;
    let arguments = call.arguments.map_or("{}", RawValue::get);
    Some((call.name, arguments.to_owned()))
}

/// One string or number of the parameters, as it was written.
#[must_use]
pub fn member(params: Option<&str>, name: &str) -> Option<String> {
    let members: Members<'_> = serde_json::from_str(params?).ok()?;
    members.get(name).map(|value| value.get().to_owned())
}

/// Parameters with one member exchanged; `value` is JSON.
#[must_use]
pub fn with_member(params: Option<&str>, name: &str, value: &str) -> Option<String> {
    let mut members: Members<'_> = serde_json::from_str(params?).ok()?;
    let value = RawValue::from_string(value.to_owned()).ok()?;
    members.insert(Cow::Owned(name.to_owned()), Cow::Owned(value));
    serde_json::to_string(&members).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const STAMP: Stamp<'_> = Stamp {
        number: 7,
        caller: None,
        apps: true,
    };

    fn read(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_has_no_metadata_stays_to_the_byte() {
        let text = r#"{"name":"a","arguments":{"n":1.000,"z":1,"a":2}}"#;
        let (params, token) = stamped(Some(text), STAMP).unwrap();
        assert_eq!((params.as_deref(), token), (Some(text), None));
        assert_eq!(stamped(None, STAMP), Ok((None, None)));
        assert_eq!(stamped(Some("[1]"), STAMP), Err(NotAnObject));
        assert_eq!(stamped(Some(r#"["_meta"]"#), STAMP), Err(NotAnObject));
    }

    #[test]
    fn a_progress_token_is_exchanged_and_the_arguments_are_not_looked_at() {
        let text = r#"{"arguments":{"n":1.000},"_meta":{"progressToken":"mine","x":1}}"#;
        let (params, token) = stamped(Some(text), STAMP).unwrap();
        let params = params.unwrap();
        assert!(params.contains(r#""n":1.000"#), "{params}");
        assert_eq!(
            read(&params)["_meta"],
            json!({ "progressToken": 7, "x": 1 })
        );
        assert_eq!(token.as_deref(), Some("\"mine\""));
    }

    #[test]
    fn nobody_says_who_calls_but_we() {
        let forged = r#"{"_meta":{"mono-agent/caller":{"session":"another's"}}}"#;
        let (params, _) = stamped(Some(forged), STAMP).unwrap();
        assert_eq!(params.as_deref(), Some("{}"));
        // Written in another way, it is the same key.
        let forged = r#"{"\u005fmeta":{"mono-agent\/caller":{"session":"another's"}}}"#;
        assert_eq!(
            stamped(Some(forged), STAMP).unwrap().0.as_deref(),
            Some("{}")
        );
        let who = |session, is_app| Who { session, is_app };
        for (who, told) in [
            (
                who(Some("s1"), false),
                json!({ "session": "s1", "kind": "gateway" }),
            ),
            (
                who(Some("s1"), true),
                json!({ "session": "s1", "kind": "mcp-app" }),
            ),
            (who(None, true), json!({ "kind": "mcp-app" })),
        ] {
            let stamp = Stamp {
                caller: Some(who),
                ..STAMP
            };
            for params in [None, Some("{}"), Some(forged)] {
                let (params, _) = stamped(params, stamp).unwrap();
                assert_eq!(read(&params.unwrap())["_meta"][CALLER], told);
            }
        }
    }

    #[test]
    fn a_stateless_client_says_of_apps_what_we_do() {
        for (apps, declares) in [(true, true), (true, false), (false, true), (false, false)] {
            let extensions = match declares {
                true => json!({ EXTENSION: {}, "x": {} }),
                false => json!({ "x": {} }),
            };
            let text = json!({ "_meta": { CLIENT_CAPABILITIES: { "extensions": extensions } } });
            let stamp = Stamp { apps, ..STAMP };
            let (params, _) = stamped(Some(&text.to_string()), stamp).unwrap();
            let params = read(&params.unwrap());
            let told = &params["_meta"][CLIENT_CAPABILITIES]["extensions"];
            assert_eq!(told.get(EXTENSION).is_some(), apps);
            assert!(told.get("x").is_some());
        }
    }

    #[test]
    fn a_shared_server_hears_of_no_client() {
        let text = json!({ "protocolVersion": "2025-11-25", "clientInfo": { "name": "c" },
            "capabilities": { "sampling": {} }, "extra": 1 })
        .to_string();
        let own = read(&greeting(Some(&text), false, false).unwrap());
        assert_eq!(own, read(&text));
        let shown = read(&greeting(Some(&text), false, true).unwrap());
        assert_eq!(
            shown["capabilities"]["extensions"][EXTENSION]["mimeTypes"],
            json!([MEDIA_TYPE])
        );
        let shared = read(&greeting(Some(&text), true, false).unwrap());
        assert_eq!(shared["capabilities"], json!({}));
        assert_eq!(shared["clientInfo"]["name"], "mono");
        assert_eq!(shared["protocolVersion"], "2025-11-25");
        assert!(shared.get("extra").is_none());
        assert!(greeting(Some(r#"{"capabilities":1}"#), false, true).is_err());
    }

    #[test]
    fn a_call_is_read_and_members_are_exchanged() {
        let call = call_of(Some(r#"{"name":"t","arguments":{"a":1.0}}"#));
        assert_eq!(call, Some(("t".into(), r#"{"a":1.0}"#.into())));
        assert_eq!(call_of(Some(r#"{"name":"t"}"#)).unwrap().1, "{}");
        assert_eq!(call_of(Some(r#"{"name":1}"#)), None);
        let params = Some(r#"{"requestId":"a","reason":"r"}"#);
        assert_eq!(member(params, "requestId").as_deref(), Some("\"a\""));
        let changed = with_member(params, "requestId", "9").unwrap();
        assert_eq!(read(&changed), json!({ "requestId": 9, "reason": "r" }));
    }
}
