//! What a row of the key table says about one configuration key.
//!
//! The rows themselves stand in [`crate::table`]. Everything else in this crate (validation, the
//! environment, `config show`, the JSON Schema, the handbook's page) reads them from here, so a key
//! can't be accepted in one place and be unknown in another.

/// One key of the configuration.
///
/// `key` is a pattern: `runtime.model` is that key, `providers.<id>.baseUrl` is one member of a map,
/// `runtime.fallbacks[].model` one member of a list of objects.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    pub key: &'static str,
    pub kind: Kind,
    pub default: Fallback,
    /// Name of the environment variable, without [`ENV_PREFIX`].
    pub env: Option<&'static str>,
    pub required: bool,
    /// JSON `null` is a value of its own here (`interaction.askUser.timeoutMs`).
    pub nullable: bool,
    /// The value is never shown, only whether it is set.
    pub secret: bool,
    /// A set but empty variable means an empty list, not "unset".
    pub empty_env_is_empty_list: bool,
    pub doc: &'static str,
}

/// Every variable that overrides a key starts with this.
pub const ENV_PREFIX: &str = "MONO_AGENT_";

/// Type and bounds of a value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    Bool,
    /// A whole number within both bounds, inclusive.
    Int {
        min: i64,
        max: i64,
    },
    /// A duration in milliseconds within both bounds, inclusive.
    Millis {
        min: i64,
        max: i64,
    },
    /// A number within both bounds, inclusive.
    Number {
        min: f64,
        max: f64,
    },
    /// A non-empty string of at most `max` bytes that follows `form`.
    Text {
        max: usize,
        form: Form,
    },
    Choice(&'static [&'static str]),
    /// A name, or a whole number that stands for one (Telegram's chats); kept as a string.
    Id,
    IntChoice(&'static [i64]),
    /// A file system path, relative to a base.
    Path(Base),
    /// A list of at most `max` values.
    List {
        item: &'static Kind,
        max: usize,
    },
    /// An object whose values are strings (`env`, `headers`).
    TextMap {
        max: usize,
    },
    /// The name of the environment variable that holds a secret.
    SecretEnv,
    /// The path of the file that holds a secret.
    SecretFile,
    /// The name of the systemd credential that holds a secret.
    SecretCredential,
    /// Any JSON; the channel that owns it checks it.
    Payload,
    /// An object with keys of its own. An `optional` one gets no defaults while it is absent.
    Section {
        optional: bool,
    },
    /// A map from names of the given form to objects, at most `max`.
    Map {
        name: Form,
        max: usize,
    },
    /// A list of objects, at most `max`.
    Records {
        max: usize,
    },
}

/// What a relative path is relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// The folder of the configuration file.
    Config,
    /// `runtime.workspace`.
    Workspace,
}

/// The form of a string. Checked in [`crate::form`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Any,
    /// No control character; a single line.
    Line,
    /// `<provider>:<model>`.
    Model,
    /// `^[a-z0-9][a-z0-9._-]{0,63}$`.
    ProviderId,
    /// `^[A-Za-z0-9_-]{1,64}$`.
    ServerName,
    /// `^[A-Za-z0-9._-]{1,128}$`.
    Name,
    /// `^[A-Za-z_][A-Za-z0-9_]{0,127}$`.
    EnvName,
    /// `^[A-Za-z0-9_.@-]{1,255}$`, and not `.` or `..`: one file name below the credentials folder.
    CredentialName,
    /// An IP address or a host name, no port.
    Host,
    /// A loopback address or `localhost`.
    LoopbackHost,
    /// A host name or address with an optional `:port`.
    HostPort,
    /// A DNS suffix with at most one leading `*.`.
    HostSuffix,
    /// Scheme, host with at most one leading `*.`, port: `https` and `wss`, on loopback also `http`
    /// and `ws`.
    Origin,
    /// `@server/tool`, each part with at most one `*`, at its end.
    ToolRule,
    /// `http://` or `https://`, no user, no query, no fragment.
    BaseUrl,
    /// `http://` or `https://`, no user.
    Url,
    /// Starts with `/`, printable, no query.
    UrlPath,
    /// A name of the IANA time zone database.
    Zone,
    /// Five fields.
    Cron,
    /// `HH:MM`.
    Clock,
}

/// The value of a key that nobody set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fallback {
    Unset,
    /// Unset, with the meaning that the handbook gives to that.
    Meaning(&'static str),
    Bool(bool),
    Int(i64),
    Number(f64),
    Text(&'static str),
    Texts(&'static [&'static str]),
}

const fn field(key: &'static str, kind: Kind) -> Field {
    Field {
        key,
        kind,
        default: Fallback::Unset,
        env: None,
        required: false,
        nullable: false,
        secret: false,
        empty_env_is_empty_list: false,
        doc: "",
    }
}

/// One line of text, 1 KiB.
const LINE: Kind = Kind::Text {
    max: 1024,
    form: Form::Line,
};
/// A list of up to 256 single lines.
const LINES: Kind = Kind::List {
    item: &LINE,
    max: 256,
};

pub(crate) const fn flag(key: &'static str, default: bool) -> Field {
    let mut row = field(key, Kind::Bool);
    row.default = Fallback::Bool(default);
    row
}
/// A boolean whose absence has a meaning of its own.
pub(crate) const fn switch(key: &'static str) -> Field {
    field(key, Kind::Bool)
}
pub(crate) const fn int(key: &'static str, min: i64, max: i64) -> Field {
    field(key, Kind::Int { min, max })
}
pub(crate) const fn millis(key: &'static str, min: i64, max: i64) -> Field {
    field(key, Kind::Millis { min, max })
}
pub(crate) const fn number(key: &'static str, min: f64, max: f64) -> Field {
    field(key, Kind::Number { min, max })
}
pub(crate) const fn line(key: &'static str) -> Field {
    field(key, LINE)
}
pub(crate) const fn text(key: &'static str, max: usize, form: Form) -> Field {
    field(key, Kind::Text { max, form })
}
pub(crate) const fn choice(key: &'static str, of: &'static [&'static str]) -> Field {
    field(key, Kind::Choice(of))
}
pub(crate) const fn int_choice(key: &'static str, of: &'static [i64]) -> Field {
    field(key, Kind::IntChoice(of))
}
pub(crate) const fn path(key: &'static str, base: Base) -> Field {
    field(key, Kind::Path(base))
}
pub(crate) const fn lines(key: &'static str) -> Field {
    field(key, LINES)
}
pub(crate) const fn list(key: &'static str, item: &'static Kind, max: usize) -> Field {
    field(key, Kind::List { item, max })
}
pub(crate) const fn text_map(key: &'static str, max: usize) -> Field {
    field(key, Kind::TextMap { max }).secret()
}
pub(crate) const fn payload(key: &'static str) -> Field {
    field(key, Kind::Payload)
}
pub(crate) const fn optional(key: &'static str) -> Field {
    field(key, Kind::Section { optional: true })
}
pub(crate) const fn section(key: &'static str) -> Field {
    field(key, Kind::Section { optional: false })
}
pub(crate) const fn map(key: &'static str, name: Form, max: usize) -> Field {
    field(key, Kind::Map { name, max })
}
pub(crate) const fn records(key: &'static str, max: usize) -> Field {
    field(key, Kind::Records { max })
}
/// A secret written out in the file: accepted, and warned about.
pub(crate) const fn secret_text(key: &'static str) -> Field {
    text(key, 4096, Form::Line).secret()
}
pub(crate) const fn secret_env(key: &'static str) -> Field {
    field(key, Kind::SecretEnv)
}
pub(crate) const fn secret_file(key: &'static str) -> Field {
    field(key, Kind::SecretFile)
}
pub(crate) const fn secret_credential(key: &'static str) -> Field {
    field(key, Kind::SecretCredential)
}

impl Field {
    pub(crate) const fn or(mut self, value: i64) -> Field {
        self.default = Fallback::Int(value);
        self
    }
    pub(crate) const fn or_number(mut self, value: f64) -> Field {
        self.default = Fallback::Number(value);
        self
    }
    pub(crate) const fn or_text(mut self, value: &'static str) -> Field {
        self.default = Fallback::Text(value);
        self
    }
    pub(crate) const fn or_texts(mut self, value: &'static [&'static str]) -> Field {
        self.default = Fallback::Texts(value);
        self
    }
    pub(crate) const fn or_meaning(mut self, meaning: &'static str) -> Field {
        self.default = Fallback::Meaning(meaning);
        self
    }
    pub(crate) const fn env(mut self, name: &'static str) -> Field {
        self.env = Some(name);
        self
    }
    pub(crate) const fn required(mut self) -> Field {
        self.required = true;
        self
    }
    pub(crate) const fn nullable(mut self) -> Field {
        self.nullable = true;
        self
    }
    pub(crate) const fn secret(mut self) -> Field {
        self.secret = true;
        self
    }
    pub(crate) const fn empty_env_is_empty_list(mut self) -> Field {
        self.empty_env_is_empty_list = true;
        self
    }
    pub(crate) const fn doc(mut self, doc: &'static str) -> Field {
        self.doc = doc;
        self
    }

    /// The full name of the variable that overrides this key.
    pub fn env_name(&self) -> Option<String> {
        self.env.map(|name| format!("{ENV_PREFIX}{name}"))
    }

    /// True for an object, a map or a list of objects: it has rows of its own below it.
    pub fn is_container(&self) -> bool {
        matches!(
            self.kind,
            Kind::Section { .. } | Kind::Map { .. } | Kind::Records { .. }
        )
    }
}
