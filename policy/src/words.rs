//! What the placeholders of the data files stand for in one process, and its environment.

use crate::compile::CompileError;
use crate::context::{Context, Inside};
use crate::plan::TEMPORARY;
use crate::profile::{Profile, Variant};
use ipc_proto::Role;
use std::collections::BTreeMap;

/// The user's name inside a view.
const USER: &str = "mono";
/// Tells a worker of ours which variant of its profile it was started under.
pub(crate) const VARIANT: &str = "MONO_SANDBOX";

/// What stands for what in data files.
pub(crate) struct Words<'a> {
    pub(crate) inside: &'a Inside,
    pub(crate) degraded: bool,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Words<'_> {
    fn home(&self) -> &str {
        let scratch = self.inside.scratch.as_ref().and_then(|path| path.to_str());
        scratch.unwrap_or(if self.degraded {
            "/nonexistent"
        } else {
            TEMPORARY
        })
    }

    /// True of a text that another user would have otherwise.
    pub(crate) fn names_the_user(&self, text: &str) -> bool {
        ["@uid", "@gid"].iter().any(|word| text.contains(word))
    }

    pub(crate) fn fill(&self, text: &str) -> String {
        let workspace = self
            .inside
            .workspace
            .as_ref()
            .and_then(|path| path.to_str());
        text.replace("@workspace", workspace.unwrap_or("/nonexistent"))
            .replace("@scratch", self.home())
            .replace("@home", self.home())
            .replace("@user", USER)
            .replace("@uid", &self.uid.to_string())
            .replace("@gid", &self.gid.to_string())
    }

    pub(crate) fn environment(
        &self,
        profile: &Profile,
        context: &Context,
        variant: Variant,
    ) -> Result<Vec<String>, CompileError> {
        let mut variables: BTreeMap<String, String> = BTreeMap::new();
        for variable in &profile.environment {
            variables.insert(variable.name.clone(), self.fill(&variable.value));
        }
        let ours = profile.role != Role::McpServer;
        for (name, value) in &context.environment {
            let refuse = |reason| {
                let name = name.clone();
                Err(CompileError::Variable {
                    name,
                    role: profile.role,
                    reason,
                })
            };
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return refuse("a name has no `=`, and neither part a zero byte");
            }
            if ours && !name.starts_with("MONO_") {
                return refuse("workers have the environment of their profile");
            }
            // These would load code into the program before its first line.
            if name.starts_with("LD_") {
                return refuse("it controls the dynamic loader");
            }
            variables.insert(name.clone(), value.clone());
        }
        if ours {
            let mut words = vec![if variant.degraded {
                "degraded"
            } else {
                "isolated"
            }];
            words.extend(variant.network.then_some("network"));
            variables.insert(VARIANT.into(), words.join(","));
        }
        Ok(variables
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect())
    }
}
