//! The parameters of an address.

use super::error::ApiError;
use http::request::Parts;

/// A parameter of the address, decoded.
pub(super) fn parameter(parts: &Parts, name: &str) -> Option<String> {
    let query = parts.uri.query()?;
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    pairs.find_map(|(key, value)| (key == name).then(|| value.into_owned()))
}

pub(super) fn number<T: std::str::FromStr>(
    parts: &Parts,
    name: &str,
) -> Result<Option<T>, ApiError> {
    let text = parameter(parts, name).filter(|text| !text.is_empty());
    text.map(|text| text.parse())
        .transpose()
        .map_err(|_| ApiError::invalid(format!("\"{name}\" must be a number.")))
}

pub(super) fn limit(parts: &Parts, usual: u32) -> Result<u32, ApiError> {
    Ok(number(parts, "limit")?.unwrap_or(usual))
}

pub(super) fn cursor(parts: &Parts, name: &str) -> Option<String> {
    parameter(parts, name).filter(|text| !text.is_empty())
}
