//! What an app asks of its server, in the order in which it is judged: (session and ownership,
//! record, capability: in [`super::desk`]) server and pool, live connection, a fresh listing,
//! visibility, the arguments against the fresh schema, the rules, the person, the rate, the size,
//! the audit. Only then the server is asked (spec s2, "App-originated tool calls").

use super::audit::{Method, Phase, Protected, Ticket};
use super::desk::{Asked, Desk, locked, method_of};
use super::proposals::preview;
use super::redact::redact;
use super::refusal::{Refusal, Stop, closed};
use super::rules::judge;
use super::security::security;
use super::vault::Card;
use crate::call::CallRequest;
use crate::error::{CallError, ListError};
use crate::limits::printable;
use crate::listing::{Declared, size};
use crate::servers::{Lease, Servers, Starter};
use ipc_proto::apps::{CONFIRM_MS, Confirmation, Kind, MAX_REQUEST, MAX_RESULT, RpcError};
use ipc_proto::settings::{McpServerSettings, Verdict};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Longest name of a tool that is looked for.
const MAX_NAME: usize = 128;
/// What a server says of its own error, in bytes.
const MAX_RPC: usize = 1024;

fn invalid(message: impl Into<String>) -> Refusal {
    Refusal::new("app_request_invalid", message)
}

fn forbidden(message: impl Into<String>) -> Refusal {
    Refusal::new("app_tool_forbidden", message)
}

fn too_large() -> Refusal {
    let message = format!("The request has more than the {MAX_REQUEST} bytes that are taken.");
    Refusal::new("app_request_too_large", message)
}

impl Desk {
    /// One request of a page whose asker was checked.
    pub(super) async fn request<S: Starter>(
        &self,
        servers: &Arc<Servers<S>>,
        asked: Asked,
    ) -> Result<Value, Stop> {
        let method = method_of(&asked.method)
            .ok_or_else(|| invalid("This is nothing that an app may ask for."))?;
        self.may_try(&asked.manifest.connection)?;
        let manifest = &*asked.manifest;
        let result = match method {
            Method::Call => self.call(servers, &asked).await,
            Method::List => self.list(servers, &asked).await,
            Method::Read => self.read(servers, &asked).await,
            Method::Link => self.link(servers, &asked).await,
            Method::Context => self.context(servers, &asked).await,
            Method::Message => self.message(servers, &asked).await,
            Method::Download => self.download(servers, &asked).await,
        };
        match &result {
            Ok(_) => security(manifest, &asked.method, "allow", ""),
            Err(Stop::Refused(refusal)) => security(manifest, &asked.method, "deny", refusal.code),
            Err(Stop::Confirm(_)) => {}
        }
        result
    }

    async fn call<S: Starter>(
        &self,
        servers: &Arc<Servers<S>>,
        asked: &Asked,
    ) -> Result<Value, Stop> {
        let (settings, lease) = self.connected(servers, &asked.manifest)?;
        let tools = fresh(&lease).await?;
        let (name, arguments) = call_params(&asked.params)?;
        let tool = tools
            .iter()
            .find(|tool| tool.name == name && tool.visibility.app)
            .ok_or_else(|| forbidden("The app may not call this tool."))?;
        self.fits(&settings.name, tool, &arguments)?;
        let verdict = judge(&self.settings.rules, &settings.name, &tool.name).map_err(|error| {
            tracing::error!("{error}; what it is about is denied");
            forbidden("The configuration's rules can't be applied.")
        })?;
        if verdict == Verdict::Deny {
            self.note(servers, &asked.manifest.id, Method::Call, Phase::Rejected);
            return Err(forbidden("The configuration does not allow this tool to apps.").into());
        }
        let reference = format!("@{}/{}", settings.name, tool.name);
        let remembered = verdict == Verdict::Allow;
        let holds = remembered && locked(&self.views).holds(&asked.view, &reference);
        if !(asked.confirmed || holds) {
            let shown = Value::Object(arguments);
            return Err(self
                .confirm(
                    servers,
                    asked,
                    Method::Call,
                    remembered.then_some(reference),
                    |question| {
                        question.tool = Some(tool.name.clone());
                        (question.preview, question.truncated) = preview(shown);
                    },
                )
                .await);
        }
        self.may_execute(&asked.manifest.connection)?;
        if size(&asked.params) > MAX_REQUEST {
            return Err(too_large().into());
        }
        let ticket = self.begin(servers, &asked.manifest.id, Method::Call, Phase::Confirmed)?;
        let result = execute(&lease, tool, arguments, &asked.life).await;
        let result = result.and_then(|result| self.for_app(settings, asked, result));
        complete(ticket)?;
        Ok(result?)
    }

    async fn list<S: Starter>(
        &self,
        servers: &Arc<Servers<S>>,
        asked: &Asked,
    ) -> Result<Value, Stop> {
        let (_, lease) = self.connected(servers, &asked.manifest)?;
        let tools = fresh(&lease).await?;
        self.may_execute(&asked.manifest.connection)?;
        if size(&asked.params) > MAX_REQUEST {
            return Err(too_large().into());
        }
        let ticket = self.begin(servers, &asked.manifest.id, Method::List, Phase::Requested)?;
        complete(ticket)?;
        let visible = tools.iter().filter(|tool| tool.visibility.app);
        let tools: Vec<_> = visible
            .map(|tool| super::capture::app_tool(tool, true))
            .collect();
        bounded(json!({ "tools": tools })).map_err(Stop::from)
    }

    async fn read<S: Starter>(
        &self,
        servers: &Arc<Servers<S>>,
        asked: &Asked,
    ) -> Result<Value, Stop> {
        let (settings, lease) = self.connected(servers, &asked.manifest)?;
        let uri = asked.params.get("uri").and_then(Value::as_str);
        if uri != Some(asked.manifest.uri.as_str()) {
            let message = "The app may only read its own page.";
            return Err(Refusal::new("app_resource_forbidden", message).into());
        }
        self.may_execute(&asked.manifest.connection)?;
        if size(&asked.params) > MAX_REQUEST {
            return Err(too_large().into());
        }
        let ticket = self.begin(servers, &asked.manifest.id, Method::Read, Phase::Requested)?;
        let within = servers.limits().page;
        let reading = lease.connection.read_resource(&asked.manifest.uri, within);
        let read = tokio::select! {
            biased;
            () = asked.life.cancelled() => Err(closed()),
            read = reading => read.map_err(|error| self.lost(&lease, &error.to_string())),
        };
        complete(ticket)?;
        let result =
            serde_json::to_value(read?).map_err(|_| failed("The answer can't be read."))?;
        Ok(self.for_app(settings, asked, result)?)
    }

    fn lost<S: Starter>(&self, lease: &Lease<S>, told: &str) -> Refusal {
        if lease.connection.is_usable() {
            return failed(format!("The server did not answer as it should: {told}."));
        }
        closed()
    }

    /// A result as the app may have it: bounded, and without credentials unless the configuration
    /// says otherwise.
    fn for_app(
        &self,
        settings: &McpServerSettings,
        asked: &Asked,
        result: Value,
    ) -> Result<Value, Refusal> {
        let exact = settings
            .apps
            .as_ref()
            .is_some_and(|apps| apps.exact_results);
        let result = bounded(result)?;
        if exact {
            return Ok(result);
        }
        let egress = self.granted(&asked.manifest).egress();
        Ok(redact(result, egress).0)
    }

    /// A question to the person.
    pub(super) async fn confirm<S: Starter>(
        &self,
        servers: &Arc<Servers<S>>,
        asked: &Asked,
        method: Method,
        grant: Option<String>,
        fill: impl FnOnce(&mut Confirmation),
    ) -> Stop {
        let may_remember = grant.is_some();
        if size(&asked.params) > ipc_proto::apps::MAX_PARAMS {
            return too_large().into();
        }
        let params = asked.params.clone();
        let id = locked(&self.views).ask(&asked.view, &asked.method, params, grant, Instant::now());
        let Some(id) = id else {
            let message = "The app has enough questions waiting for an answer.";
            return Refusal::new("app_rate_limited", message).into();
        };
        let app = &asked.manifest.id;
        if let Err(refusal) = self.write(servers, app, method, Phase::Requested) {
            let _ = locked(&self.views).answer(&asked.view, &id, Instant::now());
            return refusal.into();
        }
        let mut confirmation = Confirmation {
            id,
            kind: match method {
                Method::Link => Kind::Link,
                Method::Context => Kind::Context,
                Method::Download => Kind::Download,
                _ => Kind::Tool,
            },
            server: asked.manifest.server.clone(),
            tool: None,
            host: None,
            url: None,
            files: Vec::new(),
            preview: String::new(),
            truncated: false,
            may_remember,
            expires_in_ms: CONFIRM_MS,
        };
        fill(&mut confirmation);
        Stop::Confirm(Box::new(confirmation))
    }

    /// Does something with the logs that takes nothing of an app that somebody looks at, or whose
    /// connection is there.
    fn guarded<S: Starter, T>(
        &self,
        servers: &Arc<Servers<S>>,
        write: impl FnOnce(Protected<'_>) -> T,
    ) -> T {
        // Looked at only where room must be made.
        let known = OnceLock::new();
        write(&|card: &Card| {
            let (viewed, live) = known.get_or_init(|| self.protected(servers));
            viewed.contains(&card.id) || live.contains(&card.connection)
        })
    }

    /// Writes that something begins, or refuses it.
    pub(super) fn begin<S: Starter>(
        &self,
        servers: &Arc<Servers<S>>,
        app: &str,
        method: Method,
        phase: Phase,
    ) -> Result<Ticket, Refusal> {
        // A few hundred bytes for the page cache: to hand them to another thread takes longer.
        let begun = self.guarded(servers, |protected| {
            self.vault
                .begin(app, method, phase, Timestamp::now(), protected)
        });
        begun.map_err(|error| {
            tracing::error!("an app's action is refused: {error}");
            let message = "What the app does could not be written down, so it is not done.";
            Refusal::new("app_audit_failed", message)
        })
    }

    fn write<S: Starter>(
        &self,
        servers: &Arc<Servers<S>>,
        app: &str,
        method: Method,
        phase: Phase,
    ) -> Result<(), Refusal> {
        let noted = self.guarded(servers, |protected| {
            self.vault
                .note(app, method, phase, Timestamp::now(), protected)
        });
        noted.map_err(|error| {
            tracing::error!("an app's request is refused: {error}");
            let message = "What the app asks could not be written down, so it is not done.";
            Refusal::new("app_audit_failed", message)
        })
    }

    /// Writes that something was refused; when that fails, it stays refused.
    pub(super) fn note<S: Starter>(
        &self,
        servers: &Arc<Servers<S>>,
        app: &str,
        method: Method,
        phase: Phase,
    ) {
        let _ = self.write(servers, app, method, phase);
    }
}

/// Writes that something is over.
pub(super) fn complete(ticket: Ticket) -> Result<(), Refusal> {
    ticket.complete(Timestamp::now()).map_err(|error| {
        tracing::error!("the end of an app's action was not written: {error}");
        let message = "It may have been done, but that could not be written down. Don't repeat it.";
        Refusal::new("app_audit_incomplete", message)
    })
}

fn failed(message: impl Into<String>) -> Refusal {
    Refusal::new("app_tool_failed", message)
}

/// The server's tools as it declares them now: what an app may do can be taken back at any time.
async fn fresh<S: Starter>(lease: &Lease<S>) -> Result<Arc<Vec<Declared>>, Refusal> {
    let within = lease.connection.limits.page;
    lease
        .connection
        .fresh_tools(within)
        .await
        .map_err(|error| match error {
            ListError::TimedOut(_) => {
                Refusal::new("app_timeout", "The server did not list its tools in time.")
            }
            ListError::Gone => {
                lease.connection.mark_broken();
                closed()
            }
            other => failed(format!(
                "The server did not list its tools: {}.",
                printable(&other.to_string(), MAX_RPC)
            )),
        })
}

fn call_params(params: &Value) -> Result<(&str, Map<String, Value>), Refusal> {
    let name = params.get("name").and_then(Value::as_str);
    let name = name.filter(|name| !name.is_empty() && name.len() <= MAX_NAME);
    let name = name.ok_or_else(|| invalid("A call needs the name of a tool."))?;
    match params.get("arguments") {
        None | Some(Value::Null) => Ok((name, Map::new())),
        Some(Value::Object(arguments)) => Ok((name, arguments.clone())),
        Some(_) => Err(invalid("A tool's arguments are an object.")),
    }
}

/// A validator, and the schema that it was made of.
pub(super) type Compiled = (Value, Arc<jsonschema::Validator>);
/// Tools whose validators are kept.
const MAX_COMPILED: usize = 256;

impl Desk {
    /// The arguments against the schema as it is now. What was made of the very same schema before
    /// is used again.
    fn fits(
        &self,
        server: &str,
        tool: &Declared,
        arguments: &Map<String, Value>,
    ) -> Result<(), Refusal> {
        let name = (server.to_owned(), tool.name.clone());
        let known = locked(&self.compiled).get(&name).cloned();
        let validator = match known {
            Some((schema, validator)) if schema == tool.schema => validator,
            _ => {
                let validator = Arc::new(compile(tool)?);
                let mut compiled = locked(&self.compiled);
                if compiled.len() >= MAX_COMPILED {
                    compiled.clear();
                }
                compiled.insert(name, (tool.schema.clone(), validator.clone()));
                validator
            }
        };
        check(&validator, arguments)
    }
}

fn unfit(message: String) -> Refusal {
    Refusal::new("app_arguments_invalid", message)
}

/// What a schema refers to elsewhere is not fetched; one that can't be read lets nothing pass.
fn compile(tool: &Declared) -> Result<jsonschema::Validator, Refusal> {
    let options = jsonschema::options().offline();
    options.build(&tool.schema).map_err(|error| {
        tracing::warn!(tool = tool.name, "its schema can't be used: {error}");
        unfit("The tool's schema can't be used, so no call of an app is allowed.".to_owned())
    })
}

fn check(validator: &jsonschema::Validator, arguments: &Map<String, Value>) -> Result<(), Refusal> {
    let arguments = Value::Object(arguments.clone());
    validator.validate(&arguments).map_err(|error| {
        let told = printable(&error.to_string(), 256);
        let at = printable(&error.instance_path().to_string(), 256);
        unfit(format!("The arguments don't fit at {at:?}: {told}."))
    })
}

/// Calls the tool, within its time and the view's life. What is withdrawn is cancelled at the
/// server before this ends.
async fn execute<S: Starter>(
    lease: &Lease<S>,
    tool: &Declared,
    arguments: Map<String, Value>,
    life: &CancellationToken,
) -> Result<Value, Refusal> {
    let cancel = life.child_token();
    // Nobody listens to its progress; that it shows some counts all the same.
    let (progress, _unheard) = mpsc::channel(1);
    let request = CallRequest {
        tool: tool.name.clone(),
        arguments,
        progress,
        cancel: cancel.clone(),
    };
    let within = lease.connection.limits.app_call;
    let late = async {
        tokio::time::sleep(within).await;
        cancel.cancel();
        std::future::pending::<Infallible>().await
    };
    let called = tokio::select! {
        called = lease.connection.call_raw(request) => called,
        never = late => match never {},
    };
    let result = called.map_err(|error| match error {
        CallError::Refused {
            rpc_code, message, ..
        } => Refusal {
            rpc: Some(RpcError {
                code: rpc_code,
                message: printable(&message, MAX_RPC),
            }),
            ..failed("The server refused the call.")
        },
        CallError::Gone { .. } | CallError::Silent { .. } => closed(),
        CallError::Inactive { .. } | CallError::TooLong { .. } => late_call(),
        CallError::Cancelled { .. } if life.is_cancelled() => {
            Refusal::new("app_connection_closed", "The view was closed meanwhile.")
        }
        CallError::Cancelled { .. } => late_call(),
        CallError::TooLarge { .. } => large_result(),
        CallError::Busy { .. } => Refusal::new(
            "app_rate_limited",
            "The server has too many calls under way.",
        ),
        other => failed(other.message()),
    })?;
    let mut result =
        serde_json::to_value(result).map_err(|_| failed("The result can't be read."))?;
    if let Some(result) = result.as_object_mut() {
        // Of the transport's, not of the result's.
        result.remove("resultType");
    }
    Ok(result)
}

fn late_call() -> Refusal {
    Refusal::new("app_timeout", "The tool took too long and was cancelled.")
}

fn large_result() -> Refusal {
    let message = format!("The result has more than the {MAX_RESULT} bytes that an app gets.");
    Refusal::new("app_result_too_large", message)
}

fn bounded(result: Value) -> Result<Value, Refusal> {
    if size(&result) > MAX_RESULT {
        Err(large_result())
    } else {
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::apps::meta::Visibility;

    fn tool(schema: Value) -> Declared {
        Declared {
            name: "t".into(),
            title: None,
            description: String::new(),
            schema,
            visibility: Visibility::BOTH,
            page: None,
        }
    }

    #[test]
    fn arguments_fit_the_schema_or_nothing_passes() {
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } },
            "required": ["n"], "additionalProperties": false });
        for (schema, arguments, ok) in [
            (schema.clone(), json!({ "n": 1 }), true),
            (schema.clone(), json!({ "n": "1" }), false),
            (schema.clone(), json!({}), false),
            (schema, json!({ "n": 1, "m": 2 }), false),
            (json!({ "type": "object" }), json!({ "any": [1] }), true),
            (json!({ "type": 7 }), json!({}), false),
            (
                json!({ "$ref": "https://example.invalid/s" }),
                json!({}),
                false,
            ),
            (json!({ "$ref": "file:///etc/passwd" }), json!({}), false),
        ] {
            let shown = schema.to_string();
            let got = compile(&tool(schema))
                .and_then(|validator| check(&validator, arguments.as_object().unwrap()));
            assert_eq!(got.is_ok(), ok, "{shown} {arguments}");
            if let Err(refusal) = got {
                assert_eq!(refusal.code, "app_arguments_invalid");
            }
        }
    }

    #[test]
    fn a_call_has_a_name_and_an_object() {
        assert_eq!(call_params(&json!({ "name": "t" })).unwrap().1, Map::new());
        assert!(call_params(&json!({ "name": "t", "arguments": null })).is_ok());
        for params in [
            json!({}),
            json!({ "name": "" }),
            json!({ "name": 1 }),
            json!({ "name": "n".repeat(129) }),
            json!({ "name": "t", "arguments": [] }),
            json!({ "name": "t", "arguments": "{}" }),
            json!([]),
        ] {
            assert_eq!(
                call_params(&params).unwrap_err().code,
                "app_request_invalid"
            );
        }
    }

    #[test]
    fn a_result_has_one_mebibyte_at_most() {
        let of = |bytes: usize| bounded(Value::String("x".repeat(bytes - 2)));
        assert!(of(MAX_RESULT).is_ok());
        assert_eq!(of(MAX_RESULT + 1).unwrap_err().code, "app_result_too_large");
    }
}
