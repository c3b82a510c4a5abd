//! The run worker: serves one run and ends.
#![forbid(unsafe_code)]

use ipc_proto::Role;
use ipc_proto::edges::control::{EdgeName, RunScope, Trigger, TurnInput};
use ipc_proto::request_context::OUTBOUND;
use ipc_proto::settings::{RoleSettings, RunSettings};
use mono_run::app_endpoint::{AppEndpoint, URL_VARIABLE};
use mono_run::cancel::Cancel;
use mono_run::context::{MAX_FILE, Skill};
use mono_run::policy::ToolPolicy;
use mono_run::process::Runner;
use mono_run::tools::Builtin;
use mono_run::tools::path::Places;
use mono_run::turn::{self, Job, Opening, Outcome};
use mono_run::wire::Wire;
use mono_run::words_only::WordsOnly;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::process::ExitCode;
use worker_kit::{Event, Inbox, KitError, Starting};

fn main() -> ExitCode {
    worker_kit::run(&[Role::Run], work)
}

/// Everything that is known before the run is.
struct Prepared {
    settings: RunSettings,
    policy: ToolPolicy,
    places: Places,
    runner: Runner,
    identity: String,
    soul: Option<String>,
    skills: Vec<Skill>,
}

/// What the supervisor assigned.
struct Assignment {
    scope: RunScope,
    trigger: Trigger,
    reader: Role,
    input: Box<TurnInput>,
    channels: Vec<(EdgeName, OwnedFd)>,
}

async fn work(mut starting: Starting) -> Result<(), KitError> {
    let prepared = prepare(&mut starting);
    let mut prepared = starting.prepared(prepared).await?;
    let (control, mut inbox) = starting.ready().await?;
    let Some(assignment) = assignment(&mut inbox).await else {
        return Ok(());
    };
    let Some(outcome) = serve(&mut prepared, assignment, &mut inbox).await? else {
        // Told to stop now: the end of this process ends every command with it.
        return Ok(());
    };
    control
        .run_done(outcome.status, outcome.failure_kind)
        .await
        .map_err(KitError::worker)
}

fn prepare(starting: &mut Starting) -> Result<Prepared, String> {
    let RoleSettings::Run(settings) = starting.settings.clone() else {
        return Err("these are not the settings of a run worker".to_owned());
    };
    let policy = ToolPolicy::new(
        settings.allowed_tools.as_deref(),
        &settings.disallowed_tools,
    )
    .map_err(|e| e.to_string())?;
    let places = Places::new(&settings.workspace, &settings.scratch);
    let runner = Runner::new(places.scratch(), std::env::vars_os())
        .map_err(|e| format!("no subreaper: {e}"))?;
    let outbound = places.scratch().join(OUTBOUND);
    std::fs::create_dir_all(&outbound).map_err(|e| format!("{}: {e}", outbound.display()))?;
    let identity = starting
        .descriptor("identity")
        .ok_or("the identity file did not come along")?;
    let identity = read_text("context.identityPath", identity)?;
    let soul = starting
        .descriptor("soul")
        .map(|fd| read_text("context.soulPath", fd))
        .transpose()?;
    let skills = starting
        .descriptors("skill:")
        .into_iter()
        .map(|(name, fd)| {
            let text = read_text("context.selectedSkills", fd)?;
            let text = text[..text.floor_char_boundary(settings.skill_max_bytes)].to_owned();
            Ok(Skill { name, text })
        })
        .collect::<Result<_, String>>()?;
    Ok(Prepared {
        skills,
        settings,
        policy,
        places,
        runner,
        identity,
        soul,
    })
}

fn read_text(key: &str, fd: OwnedFd) -> Result<String, String> {
    let mut text = String::new();
    let read = File::from(fd)
        .take(MAX_FILE as u64 + 1)
        .read_to_string(&mut text);
    match read {
        Ok(bytes) if bytes <= MAX_FILE => Ok(text),
        Ok(_) => Err(format!("the file of {key} has more than {MAX_FILE} bytes")),
        Err(e) => Err(format!(
            "the file of {key} can't be read as UTF-8 text: {e}"
        )),
    }
}

/// Waits for the one run; none when this worker is no longer needed.
async fn assignment(inbox: &mut Inbox) -> Option<Assignment> {
    loop {
        match inbox.recv().await? {
            Event::Assigned {
                scope,
                trigger,
                reader,
                input,
                channels,
            } => {
                return Some(Assignment {
                    scope,
                    trigger,
                    reader,
                    input,
                    channels,
                });
            }
            Event::Drain | Event::Shutdown => return None,
            _ => {}
        }
    }
}

/// Opens the endpoint for commands if it is asked for and the policy lets its tool through.
async fn open_endpoint(prepared: &mut Prepared) -> Opening {
    let permitted = prepared.policy.permits(Builtin::PublishReplyFile.gated());
    if !prepared.settings.app_endpoint || !permitted {
        return Ok(None);
    }
    let endpoint = AppEndpoint::open().await?;
    let url = endpoint.url().reveal();
    prepared.runner.set_variable(URL_VARIABLE, url);
    Ok(Some(endpoint))
}

/// Runs the turn; none when the supervisor wants this process gone at once.
async fn serve(
    prepared: &mut Prepared,
    assignment: Assignment,
    inbox: &mut Inbox,
) -> Result<Option<Outcome>, KitError> {
    let Assignment {
        scope,
        trigger,
        reader,
        mut input,
        channels,
    } = assignment;
    let attached = mono_run::attached::unpack(&mut input, prepared.places.scratch());
    let accompanied = prepared.settings.accompanies && reader != Role::Continuation;
    let source = trigger.source.clone();
    let cancel = Cancel::default();
    // Who puts a later answer into words has no tools, no store and no files.
    let words_only = reader == Role::Continuation;
    if words_only {
        prepared.policy = ToolPolicy::new(Some(&[]), &[]).map_err(KitError::worker)?;
        prepared.settings.claim_servers.clear();
    }
    let opening = open_endpoint(prepared).await;
    let prepared = &*prepared;
    let today = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
    let job = Job {
        run: scope.run,
        source: &source,
        input: &input,
        model: &prepared.settings.model,
        policy: &prepared.policy,
        max_turns: prepared.settings.max_turns,
        soul: prepared.soul.as_deref(),
        identity: &prepared.identity,
        skills: &prepared.skills,
        skills_by_name: prepared.settings.skill_index,
        today: &today,
        claim_servers: &prepared.settings.claim_servers,
        attached: accompanied.then_some(&attached[..]),
    };
    let Prepared { places, runner, .. } = prepared;
    if words_only {
        let wire = WordsOnly::new(channels, reader).map_err(KitError::worker)?;
        let turn = turn::run(&wire, &job, places, runner, &cancel, opening);
        return Ok(follow(turn, wire.nobody_listens(), &cancel, inbox).await);
    }
    let wire = Wire::new(channels, reader, trigger).map_err(KitError::worker)?;
    let turn = turn::run(&wire, &job, places, runner, &cancel, opening);
    Ok(follow(turn, wire.nobody_listens(), &cancel, inbox).await)
}

/// Follows a turn to its end; none when the supervisor wants this process gone at once.
async fn follow(
    turn: impl Future<Output = Outcome>,
    nobody_listens: impl Future<Output = ()>,
    cancel: &Cancel,
    inbox: &mut Inbox,
) -> Option<Outcome> {
    let (mut turn, mut nobody_listens) = (pin!(turn), pin!(nobody_listens));
    let mut listening = true;
    loop {
        tokio::select! {
            biased;
            outcome = &mut turn => return Some(outcome),
            event = inbox.recv() => match event {
                Some(Event::CancelRun { reason }) => cancel.cancel(&reason),
                Some(Event::Shutdown) | None => return None,
                // A run under way is finished; nothing else is meant for a run worker.
                Some(_) => {}
            },
            () = &mut nobody_listens, if listening => {
                listening = false;
                cancel.cancel("the channel is gone");
            }
        }
    }
}
