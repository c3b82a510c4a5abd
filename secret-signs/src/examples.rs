//! What counts and what doesn't, for the tests of whoever uses the signs.

/// Names of what is a secret.
pub const SECRET_NAMES: [&str; 17] = [
    "password",
    "dbPassword",
    "db_passwd",
    "passphrase",
    "clientSecret",
    "aws_secret_access_key",
    "credentials",
    "API-Key",
    "api_key",
    "X-Api-Key",
    "accessKey",
    "private_key",
    "bearer",
    "id-jwt",
    "access_token",
    "Authorization",
    "Set-Cookie",
];

/// Names of what is a figure or a kind more often than a secret.
pub const FIGURES: [&str; 3] = ["tokens", "max_tokens", "tokenCount"];

/// Names of what is no secret.
pub const ORDINARY_NAMES: [&str; 6] = ["author", "name", "key", "passage", "apiVersion", "Accept"];

/// Credentials, none of them in use: at least one for each form and each of its beginnings.
pub const CREDENTIALS: [&str; 27] = [
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\nMIIE",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
    "eyJhbGciOiJI.eyJzdWIiOiIx",
    "sk-proj-abcdefghijklmnop1234",
    "sk-ant-abc03-abcdefghijklmnop1234_a-bcd-ef",
    "sk_test_abcdefghijklmnop",
    "pk_test_abcdefghijklmnop",
    "rk_test_abcdefghijklmnop",
    "ghp_abcdefghijklmnopqrstuvwxyz0123",
    "gho_abcdefghijklmnopqrstuvwxyz0123",
    "ghu_abcdefghijklmnopqrstuvwxyz0123",
    "ghs_abcdefghijklmnopqrstuvwxyz0123",
    "ghr_abcdefghijklmnopqrstuvwxyz0123",
    "github_pat_abcdefghijklmnopqrst_uv",
    "glpat-abcdefghijklmnop_q-r",
    "xoxb-1234567890-abcdef",
    "xapp-1-A0123456789-abcdef",
    "AKIAABCDEFGHIJKLMNOP",
    "ASIAABCDEFGHIJKLMNOP",
    "AIzaabcdefghijklmnopqrstuvwxyz_0123-45",
    "hf_abcdefghijklmnopqrstuvwxyz",
    "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw0",
    "Bearer abcdefghijklmnop",
    "basic YWxhZGRpbjpvcGVuc2VzYW1l",
    "postgres://user:pw@db/x",
    "redis://:pw@db",
];

/// What is no credential, though it has something of one.
pub const ORDINARY: [&str; 16] = [
    "",
    "sk-",
    "skills",
    "task-management-of-the-day",
    "The basic idea: sk8 and bear.",
    "The key idea: tokens are words.",
    "application/json",
    "openai:gpt-5",
    "Asia/Singapore",
    "12:00:00",
    "127.0.0.1:4319",
    "1700000000:0123456789abcdef",
    "git@example.org:a/b.git",
    "https://example.com/a?b=c",
    "https://example.org:8080/a:b@c",
    "-----BEGIN CERTIFICATE-----",
];
