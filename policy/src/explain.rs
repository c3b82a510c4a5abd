//! A profile spelled out, for people and for the test that turns every change into a difference.

use crate::bundle::Bundle;
use crate::profile::{Access, Network, Proc, Profile, ProfileError, Variant};
use crate::rights;
use crate::seccomp::{Action, Condition, Decision, Filter, name_of};
use ipc_proto::Role;
use std::fmt::Write as _;

/// Everything that a role's profile grants, as text.
///
/// # Errors
/// [`ProfileError`] when the role has no profile.
pub fn explain(role: Role) -> Result<String, ProfileError> {
    let profile = Profile::of(role)?;
    let mut text = String::new();
    // Writing to a string can't fail.
    let _ = summary(&mut text, &profile);
    let _ = paths(&mut text, &profile);
    let mut before = None;
    for (degraded, network) in [(false, false), (false, true), (true, false), (true, true)] {
        let fits = match profile.network {
            Network::None => !network,
            Network::Host => network,
            Network::Declared => true,
        };
        if !fits {
            continue;
        }
        let variant = Variant { network, degraded };
        let both = (
            profile.stage1_filter(variant)?,
            profile.stage2_filter(variant)?,
        );
        let _ = writeln!(
            text,
            "\n== system calls, {}, {} the machine's network",
            if degraded {
                "without namespaces"
            } else {
                "with namespaces of its own"
            },
            if network { "sharing" } else { "without" },
        );
        if before.as_ref() == Some(&both) {
            text.push_str("as above\n");
            continue;
        }
        filter(&mut text, "stage 1", &both.0);
        if let Some(stage2) = &both.1 {
            filter(&mut text, "stage 2", stage2);
        }
        before = Some(both);
    }
    Ok(text)
}

fn summary(text: &mut String, profile: &Profile) -> std::fmt::Result {
    writeln!(text, "{}: {}", profile.role, profile.summary)?;
    let network = match profile.network {
        Network::None => "none",
        Network::Host => "the machine's",
        Network::Declared => "the machine's if the configuration declares a use, else none",
    };
    writeln!(text, "network: {network}")?;
    writeln!(text, "loopback of its own: {}", profile.loopback)?;
    let proc = match profile.proc {
        Proc::Own => "its own processes",
        Proc::Full => "its own processes and the machine's public files",
    };
    writeln!(text, "/proc: {proc}")?;
    writeln!(text, "umask: {:03o}", profile.umask.0)?;
    writeln!(text, "Landlock: ABI {} or newer", profile.landlock_floor)?;
    writeln!(text, "\n== limits")?;
    for limit in &profile.limits {
        writeln!(
            text,
            "{:?} {}: {}",
            limit.resource, limit.value, limit.reason
        )?;
    }
    writeln!(text, "\n== environment")?;
    for variable in &profile.environment {
        writeln!(text, "{}={}", variable.name, variable.value)?;
    }
    writeln!(text, "\n== probes")?;
    for probe in &profile.probes {
        writeln!(text, "{:?}: {}", probe.attempt, probe.errors.join(" or "))?;
    }
    Ok(())
}

fn paths(text: &mut String, profile: &Profile) -> std::fmt::Result {
    writeln!(text, "\n== files")?;
    for name in &profile.devices {
        writeln!(text, "/dev/{name}: {}", right_names(rights::device()))?;
    }
    if profile.temporary_bytes > 0 {
        let rights = right_names(rights::of(Access::WriteExec, true));
        writeln!(
            text,
            "/tmp, {} bytes of its own: {rights}",
            profile.temporary_bytes
        )?;
    }
    for grant in &profile.grants {
        match (grant.what.bundle().and_then(Bundle::named), grant.access) {
            (Some(bundle), _) => {
                writeln!(text, "{:?}: {}", grant.what, grant.reason)?;
                writeln!(text, "  shown: {}", bundle.shown.join(" "))?;
                writeln!(text, "  read: {}", bundle.read.join(" "))?;
                writeln!(text, "  read and executed: {}", bundle.read_exec.join(" "))?;
                writeln!(text, "  copied: {}", bundle.copied.join(" "))?;
                for (path, content) in &bundle.written {
                    writeln!(text, "  written: {path} {content:?}")?;
                }
            }
            (None, Some(access)) => {
                let rights = right_names(rights::of(access, true));
                writeln!(text, "{:?}: {}\n  {rights}", grant.what, grant.reason)?;
            }
            (None, None) => writeln!(text, "{:?}: {}", grant.what, grant.reason)?,
        }
    }
    Ok(())
}

fn right_names(bits: u64) -> String {
    let rights = rights::of_files(bits).into_iter().flatten();
    rights
        .map(|right| format!("{right:?}"))
        .collect::<Vec<_>>()
        .join(" ")
}

fn filter(text: &mut String, stage: &str, filter: &Filter) {
    let named = |action| {
        let calls = filter
            .calls
            .iter()
            .filter(|(_, call)| call.constant() == Some(action));
        let mut names: Vec<&str> = calls.map(|(number, _)| name(*number)).collect();
        names.sort_unstable();
        names
    };
    wrap(text, &format!("{stage} allows: "), named(Action::Allow));
    if filter.unlisted == Action::Allow {
        let _ = writeln!(
            text,
            "{stage} leaves what it doesn't list to the stage before"
        );
    }
    let (verb, ending) = match filter.foreign {
        Action::Before => ("leaves to the stage before", Action::Before),
        _ => ("kills", Action::Kill),
    };
    let names = named(ending);
    if !names.is_empty() || ending == Action::Kill {
        wrap(text, &format!("{stage} {verb}: "), names);
    }
    let mut rows: Vec<String> = filter
        .calls
        .iter()
        .filter(|(_, call)| call.constant().is_none())
        .map(|(number, call)| format!("{stage} {}: {}", name(*number), rules(call)))
        .collect();
    rows.sort();
    for row in rows {
        let _ = writeln!(text, "{row}");
    }
}

/// A list in lines of at most 100 columns, each with the same beginning.
fn wrap(text: &mut String, beginning: &str, words: Vec<&str>) {
    let mut line = beginning.trim_end().to_owned();
    for word in words {
        if line.len() + 1 + word.len() > 100 {
            let _ = writeln!(text, "{line}");
            line = beginning.trim_end().to_owned();
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(text, "{line}");
}

fn name(number: u32) -> &'static str {
    name_of(number).unwrap_or("?")
}

fn rules(call: &Decision) -> String {
    let mut text = String::new();
    for rule in &call.rules {
        let tests: Vec<String> = rule.conditions.iter().map(test).collect();
        let tests = if tests.is_empty() {
            "always".to_owned()
        } else {
            tests.join(" and ")
        };
        let _ = write!(text, "{} if {tests}; ", action(rule.action));
    }
    text + &format!("else {}", action(call.otherwise))
}

fn test(condition: &Condition) -> String {
    let Condition {
        argument,
        mask,
        value,
        equal,
    } = condition;
    let relation = if *equal { "=" } else { "≠" };
    match *mask {
        u64::MAX => format!("argument {argument} (64 bits) {relation} {value:#x}"),
        mask if mask == u64::from(u32::MAX) => format!("argument {argument} {relation} {value:#x}"),
        mask => format!("argument {argument} & {mask:#x} {relation} {value:#x}"),
    }
}

fn action(action: Action) -> String {
    match action {
        Action::Allow => "allowed".into(),
        Action::Kill => "killed".into(),
        Action::Before => "left to the stage before".into(),
        Action::Errno(number) => {
            format!("{:?}", nix::errno::Errno::from_raw(i32::from(number)))
        }
    }
}
