//! `monoctl policy`: what a role may do, as its profile says and as the kernel enforces.

use crate::cli::Policy;
use crate::daemon::Daemon;
use crate::error::CtlError;
use crate::screen::Screen;
use crate::status::Status;
use crate::table::Rows;
use crate::worker::{facts, of_role};
use ipc_proto::Role;
use policy::{Network, Profile};

use serde_json::{Value, json};
use std::path::Path;

pub(crate) async fn run(
    socket: Option<&Path>,
    command: Policy,
    screen: &mut Screen,
) -> Result<u8, CtlError> {
    match command {
        Policy::List => list(screen)?,
        Policy::Explain { role } => {
            let (profile, text) = of(&role)?;
            if screen.is_json() {
                screen.json(&object(&profile, &text))?;
            } else {
                screen.line(text.trim_end())?;
            }
        }
        Policy::Show { role } => {
            let (profile, text) = of(&role)?;
            let daemon = Daemon::connect(socket).await?;
            let (status, value) = Status::ask(&daemon).await?;
            if screen.is_json() {
                let mut shown = object(&profile, &text);
                shown["workers"] = json!(of_role(&value, &role));
                screen.json(&shown)?;
            } else {
                screen.line(text.trim_end())?;
                in_force(&status, &role, screen)?;
            }
        }
    }
    Ok(0)
}

fn of(name: &str) -> Result<(Profile, String), CtlError> {
    let role = Role::ALL.into_iter().find(|role| role.name() == name);
    let role = role.ok_or_else(|| CtlError::Usage(format!("{name} is no role")))?;
    let broken = |e: policy::ProfileError| CtlError::Usage(e.to_string());
    let profile = Profile::of(role).map_err(broken)?;
    Ok((profile, policy::explain(role).map_err(broken)?))
}

fn network(profile: &Profile) -> &'static str {
    match profile.network {
        Network::None => "none",
        Network::Host => "outward",
        Network::Declared => "if declared",
    }
}

fn summary(profile: &Profile) -> Value {
    json!({
        "role": profile.role.name(),
        "summary": profile.summary,
        "network": network(profile),
        "landlock_floor": profile.landlock_floor,
    })
}

fn object(profile: &Profile, text: &str) -> Value {
    let mut shown = summary(profile);
    shown["text"] = json!(text);
    shown
}

fn list(screen: &mut Screen) -> Result<(), CtlError> {
    let roles = Role::ALL.into_iter();
    let profiles: Vec<_> = roles.filter_map(|role| Profile::of(role).ok()).collect();
    if screen.is_json() {
        let all: Vec<_> = profiles.iter().map(summary).collect();
        return screen.json(&json!({ "profiles": all }));
    }
    let mut rows = Rows::new(&["ROLE", "NETWORK", "LANDLOCK", "WHAT IT IS FOR"]);
    for profile in &profiles {
        rows.push([
            profile.role.name(),
            network(profile),
            &format!("ABI {}", profile.landlock_floor),
            &profile.summary,
        ]);
    }
    screen.line(&rows.text())
}

fn in_force(status: &Status, role: &str, screen: &mut Screen) -> Result<(), CtlError> {
    screen.line("\n== in force now, as the kernel says")?;
    let mut some = false;
    for worker in status.of(role).filter(|worker| worker.pid.is_some()) {
        if some {
            screen.line("")?;
        }
        some = true;
        for (name, text) in facts(worker) {
            screen.line(&format!("{name:<13}{text}"))?;
        }
    }
    if !some {
        screen.line("no process of this role runs")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::screen::tests::screen;

    #[test]
    fn every_role_but_the_supervisor_is_explained() {
        for role in Role::ALL {
            assert_eq!(of(role.name()).is_ok(), role != Role::Monod, "{role}");
        }
        assert!(of("nobody").is_err());
        let (mut screen, out, _) = screen(true, false);
        list(&mut screen).unwrap();
        let shown: Value = serde_json::from_str(&out.text()).unwrap();
        assert_eq!(
            shown["profiles"].as_array().unwrap().len(),
            Role::ALL.len() - 1
        );
    }

    #[test]
    fn what_is_in_force_is_each_workers_own() {
        let status = json!({"workers": [
            {"role": "egress", "pid": 5, "state": "serving", "sandbox": {"seccomp": 2}},
            {"role": "store", "pid": 6, "state": "serving"},
            {"role": "run", "state": "parked"}
        ]});
        let status: Status = serde_json::from_value(status).unwrap();
        for (role, pid, none) in [("egress", true, false), ("run", false, true)] {
            let (mut screen, out, _) = screen(false, false);
            in_force(&status, role, &mut screen).unwrap();
            let text = out.text();
            assert_eq!(text.contains("pid          5"), pid, "{text}");
            assert_eq!(text.contains("no process"), none, "{text}");
            assert!(!text.contains("pid          6"), "{text}");
        }
    }
}
