//! One answer out of the chain of models: attempts, waits, fallbacks.

use crate::attempt::attempt;
use crate::demo;
use crate::event::{Broken, Gone, ModelEvent, Sink};
use crate::failover::{Decision, Position, RetryPolicy, decide};
use crate::failure::{ErrorClass, Failure};
use crate::provider::{Provider, ProviderError, Service};
use bytes::Bytes;
use ipc_proto::chat::{Failover, ModelRequest};
use ipc_proto::edges::egress::{FinishReason, ProviderStage};
use ipc_proto::settings::{EgressSettings, ModelChoice};
use std::collections::BTreeMap;
use std::time::Duration;

/// The failure kind when no model of the chain answered (spec facts 3.3).
pub const EXHAUSTED: &str = "provider_unavailable_exhausted";

/// After each piece of arguments of the demo model.
const PIECE_PAUSE: Duration = Duration::from_millis(120);

/// Answers requests with the configured models.
pub struct Completer {
    client: reqwest::Client,
    providers: BTreeMap<String, Provider>,
    chain: Vec<ModelChoice>,
    offered: Vec<ModelChoice>,
    policy: RetryPolicy,
    idle: Duration,
}

/// How one model fared.
enum Outcome {
    Answered(FinishReason),
    /// It failed for good; the last failure, and how often it was asked.
    Failed {
        last: Failure,
        attempts: u32,
        refused: bool,
    },
}

impl Completer {
    /// Prepares the providers of the settings. `keys` gives the key of a provider once.
    ///
    /// # Errors
    /// When a provider can't be used.
    pub fn new(
        client: reqwest::Client,
        settings: &EgressSettings,
        mut keys: impl FnMut(&str) -> Option<crate::key::Key>,
    ) -> Result<Self, ProviderError> {
        let mut providers = BTreeMap::new();
        for (id, provider) in &settings.providers {
            providers.insert(id.clone(), Provider::new(id, provider, keys(id))?);
        }
        Ok(Self {
            client,
            providers,
            chain: settings.chain.clone(),
            offered: settings.offered.clone(),
            policy: RetryPolicy {
                backoff: Duration::from_millis(settings.backoff_ms),
                max_backoff: Duration::from_millis(settings.max_backoff_ms),
                max_retry_delay: Duration::from_millis(settings.max_retry_delay_ms),
            },
            idle: Duration::from_millis(settings.idle_timeout_ms),
        })
    }

    /// Streams one answer. The last event is `Done` or `Failed`. Dropping the future cancels it.
    ///
    /// # Errors
    /// [`Gone`] when the reader of the events has gone.
    pub async fn complete<S: Sink>(
        &self,
        request: &ModelRequest,
        sink: &mut S,
    ) -> Result<(), Gone> {
        let Some(chain) = chain_for(&self.chain, &self.offered, request) else {
            let asked = request.model.as_deref().unwrap_or("no model");
            return sink
                .send(ModelEvent::Failed {
                    kind: ErrorClass::ModelUnavailable.code().to_owned(),
                    message: format!("the configuration names no model {asked}"),
                    failovers: Vec::new(),
                })
                .await;
        };
        let mut failovers: Vec<Failover> = Vec::new();
        let mut last_message = String::new();
        for (index, choice) in chain.iter().enumerate() {
            let name = label(choice);
            let has_next = index + 1 < chain.len();
            match self.ask(choice, has_next, request, sink).await? {
                Outcome::Answered(finish) => {
                    if !failovers.is_empty() {
                        status(sink, ProviderStage::FailoverCompleted, &name, None).await?;
                    }
                    return sink
                        .send(ModelEvent::Done {
                            finish,
                            model: name,
                            failovers,
                        })
                        .await;
                }
                Outcome::Failed {
                    last,
                    attempts,
                    refused,
                } => {
                    last_message = format!("{name}: {last}");
                    failovers.push(Failover {
                        model: name,
                        failure_kind: last.class.code().to_owned(),
                        attempts,
                    });
                    if refused {
                        break;
                    }
                    if let Some(next) = chain.get(index + 1) {
                        let detail = Some(last.class.code().to_owned());
                        status(sink, ProviderStage::FailoverStarted, &label(next), detail).await?;
                    }
                }
            }
        }
        let kind = failure_kind(&failovers).to_owned();
        let tried = failovers.len();
        let message = if tried > 1 {
            format!("none of {tried} models answered; the last said: {last_message}")
        } else {
            last_message
        };
        sink.send(ModelEvent::Failed {
            kind,
            message,
            failovers,
        })
        .await
    }

    /// Asks one model as often as it may be asked.
    async fn ask<S: Sink>(
        &self,
        choice: &ModelChoice,
        has_next: bool,
        request: &ModelRequest,
        sink: &mut S,
    ) -> Result<Outcome, Gone> {
        let name = label(choice);
        let allowed = choice.attempts.max(1);
        let service = match self.providers.get(&choice.provider) {
            Some(Provider::Service(service)) => service,
            Some(Provider::Demo) => {
                status(sink, ProviderStage::RequestStarted, &name, None).await?;
                let finish = play(demo::answer(request), sink).await?;
                status(sink, ProviderStage::RequestCompleted, &name, None).await?;
                return Ok(Outcome::Answered(finish));
            }
            None => {
                let last = Failure::new(
                    ErrorClass::ModelUnavailable,
                    "the provider is not configured",
                );
                return Ok(Outcome::Failed {
                    last,
                    attempts: 0,
                    refused: false,
                });
            }
        };
        let body = body_for(service, choice, request);
        for made in 1.. {
            let stage = if made == 1 {
                ProviderStage::RequestStarted
            } else {
                ProviderStage::RetryStarted
            };
            status(
                sink,
                stage,
                &name,
                Some(format!("attempt {made} of {allowed}")),
            )
            .await?;
            let mut streamed = false;
            let tried = attempt(
                &self.client,
                service,
                body.clone(),
                self.idle,
                &request.streamed,
                sink,
                &mut streamed,
            )
            .await;
            let failure = match tried {
                Ok(finish) => {
                    status(sink, ProviderStage::RequestCompleted, &name, None).await?;
                    return Ok(Outcome::Answered(finish));
                }
                Err(Broken::Gone) => return Err(Gone),
                Err(Broken::Failure(failure)) => failure,
            };
            tracing::warn!(model = %name, attempt = made, error = %failure, "a model attempt failed");
            let position = Position {
                made,
                allowed,
                has_next,
            };
            let decision = decide(&failure, position, &self.policy, jitter());
            let goes_on = matches!(decision, Decision::Retry { .. } | Decision::NextModel);
            if streamed && goes_on {
                sink.send(ModelEvent::Restart {
                    reason: failure.class.code().to_owned(),
                })
                .await?;
            }
            match decision {
                Decision::Retry { after } => tokio::time::sleep(after).await,
                Decision::NextModel | Decision::Exhausted => {
                    return Ok(Outcome::Failed {
                        last: failure,
                        attempts: made,
                        refused: false,
                    });
                }
                Decision::Refused => {
                    return Ok(Outcome::Failed {
                        last: failure,
                        attempts: made,
                        refused: true,
                    });
                }
            }
        }
        unreachable!("the loop over attempts ends by a decision")
    }
}

fn label(choice: &ModelChoice) -> String {
    format!("{}:{}", choice.provider, choice.model)
}

/// The chain that a request goes through: the configured one, or the asked model in place of the
/// first choice. `None` when the configuration names no such model.
fn chain_for(
    configured: &[ModelChoice],
    offered: &[ModelChoice],
    request: &ModelRequest,
) -> Option<Vec<ModelChoice>> {
    let mut chain = configured.to_vec();
    if let Some(asked) = &request.model {
        let is_asked = |choice: &ModelChoice| label(choice) == *asked;
        match chain.iter().position(is_asked) {
            Some(0) => {}
            Some(at) => {
                chain.swap(0, at);
                chain.remove(at);
            }
            None => {
                let choice = offered.iter().find(|choice| is_asked(choice))?;
                *chain.first_mut()? = choice.clone();
            }
        }
    }
    let first = chain.first_mut()?;
    if request.effort.is_some() {
        first.effort.clone_from(&request.effort);
    }
    Some(chain)
}

/// The kind of a failure without an answer. Models that all failed alike, in a way that a person or
/// the run can mend, are named by that way; otherwise the chain is exhausted.
fn failure_kind(failovers: &[Failover]) -> &str {
    let same = |class: ErrorClass| failovers.iter().all(|f| f.failure_kind == class.code());
    let refused = [ErrorClass::InvalidRequest, ErrorClass::AnswerTooLarge];
    if let Some(last) = failovers.last()
        && refused
            .iter()
            .any(|class| last.failure_kind == class.code())
    {
        return &last.failure_kind;
    }
    [
        ErrorClass::ContextLimit,
        ErrorClass::ProviderAuth,
        ErrorClass::ModelUnavailable,
    ]
    .into_iter()
    .find(|class| !failovers.is_empty() && same(*class))
    .map_or(EXHAUSTED, ErrorClass::code)
}

fn body_for(service: &Service, choice: &ModelChoice, request: &ModelRequest) -> Bytes {
    let target = service.target(&choice.model, choice.effort.as_deref());
    service.api.body(request, &target).to_string().into()
}

async fn status<S: Sink>(
    sink: &mut S,
    stage: ProviderStage,
    model: &str,
    detail: Option<String>,
) -> Result<(), Gone> {
    sink.send(ModelEvent::Status {
        stage,
        model: model.to_owned(),
        detail,
    })
    .await
}

async fn play<S: Sink>(answer: demo::Answer, sink: &mut S) -> Result<FinishReason, Gone> {
    for event in answer.events {
        let is_piece = matches!(event, ModelEvent::Arguments { .. });
        sink.send(event).await?;
        if is_piece {
            // As slow as a model writes them, or nobody could see it.
            tokio::time::sleep(PIECE_PAUSE).await;
        }
    }
    Ok(answer.finish)
}

/// Chance in 0..1 from the randomness of a fresh id: spreading waits needs no better source.
fn jitter() -> f64 {
    let bytes = *uuid::Uuid::new_v4().as_bytes();
    f64::from(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn choice(model: &str) -> ModelChoice {
        ModelChoice {
            provider: "p".into(),
            model: model.into(),
            effort: None,
            attempts: 1,
        }
    }

    fn request(model: Option<&str>, effort: Option<&str>) -> ModelRequest {
        ModelRequest {
            model: model.map(str::to_owned),
            effort: effort.map(str::to_owned),
            system: String::new(),
            messages: vec![],
            tools: vec![],
            streamed: vec![],
            max_output_tokens: None,
        }
    }

    #[test]
    fn an_asked_model_takes_the_place_of_the_first() {
        let configured = [choice("a"), choice("b"), choice("c")];
        let names = |model: Option<&str>| {
            chain_for(&configured, &[choice("o")], &request(model, None)).map(|chain| {
                chain
                    .into_iter()
                    .map(|c| c.model)
                    .collect::<Vec<_>>()
                    .join(" ")
            })
        };
        assert_eq!(names(None).unwrap(), "a b c");
        assert_eq!(names(Some("p:a")).unwrap(), "a b c");
        assert_eq!(names(Some("p:c")).unwrap(), "c b");
        assert_eq!(
            names(Some("p:x")),
            None,
            "only what the configuration names"
        );
        assert_eq!(names(Some("p:o")).unwrap(), "o b c");
        assert_eq!(chain_for(&[], &[], &request(None, None)), None);
    }

    #[test]
    fn asked_effort_is_for_the_first_choice() {
        let chain = chain_for(
            &[choice("a"), choice("b")],
            &[],
            &request(None, Some("high")),
        )
        .unwrap();
        assert_eq!(chain[0].effort.as_deref(), Some("high"));
        assert_eq!(chain[1].effort, None);
    }

    #[test]
    fn the_kind_names_what_can_be_mended() {
        let kind = |classes: &[&str]| {
            let all: Vec<Failover> = classes
                .iter()
                .map(|c| Failover {
                    model: "m".into(),
                    failure_kind: (*c).into(),
                    attempts: 1,
                })
                .collect();
            failure_kind(&all).to_owned()
        };
        assert_eq!(kind(&["provider_auth"]), "provider_auth");
        assert_eq!(kind(&["context_limit", "context_limit"]), "context_limit");
        assert_eq!(kind(&["provider_auth", "network"]), EXHAUSTED);
        assert_eq!(kind(&["overloaded"]), EXHAUSTED);
        assert_eq!(kind(&["overloaded", "invalid_request"]), "invalid_request");
        assert_eq!(kind(&[]), EXHAUSTED);
    }
}
