//! How requests say who we are. OAuth2 client credentials, Google, SigV4 and vended credentials get their place here.

use std::fmt;

use reqwest::RequestBuilder;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::super::CatalogError;
use super::super::properties::{Properties, property};

/// Properties of ways to authenticate that are not there yet.
const NOT_YET: [&str; 6] =
    ["credential", "oauth2-server-uri", "rest.sigv4-enabled", "rest.auth.type", "auth.type", "rest.signing-name"];

/// What stands for a secret in texts.
const HIDDEN: &str = "***";
/// Shorter values are too common to be replaced in other texts.
const SECRET_LENGTH_MIN: usize = 6;

/// How a request is authorised.
pub(super) enum Authorization {
    /// Not at all.
    None,
    /// By a token that does not change.
    Bearer(HeaderValue),
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Bearer(_) => "Bearer",
        })
    }
}

impl Authorization {
    /// What the properties ask for.
    pub(super) fn from_properties(properties: &Properties) -> Result<Self, CatalogError> {
        for key in NOT_YET {
            match properties.get(key) {
                None | Some("false" | "none") => {}
                Some(_) => return Err(property(key, "not supported yet; a token can be given as \"token\"")),
            }
        }
        let Some(token) = properties.get("token") else {
            return Ok(Self::None);
        };
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| property("token", "it has signs that cannot stand in a header"))?;
        value.set_sensitive(true);
        Ok(Self::Bearer(value))
    }

    /// The request with what it needs. Ways that fetch a token will do it here.
    pub(super) fn apply(&self, request: RequestBuilder) -> RequestBuilder {
        match self {
            Self::None => request,
            Self::Bearer(value) => request.header(reqwest::header::AUTHORIZATION, value.clone()),
        }
    }
}

/// The headers that `header.*` properties add to each request.
pub(super) fn headers(properties: &Properties) -> Result<HeaderMap, CatalogError> {
    let mut headers = HeaderMap::new();
    for (key, value) in &properties.0 {
        let Some(name) = key.strip_prefix("header.") else {
            continue;
        };
        let name: HeaderName = name.parse().map_err(|_| property(key, "it is not the name of a header"))?;
        let mut value =
            HeaderValue::from_str(value).map_err(|_| property(key, "its value cannot stand in a header"))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Secrets that must not show in messages, wherever the words of a message come from.
pub(super) struct Secrets(Vec<String>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Secrets {
    pub(super) fn of(properties: &Properties) -> Self {
        let secret = |key: &str| key == "token" || key == "credential" || key.starts_with("header.");
        let values = properties.0.iter().filter(|(key, _)| secret(key)).map(|(_, value)| value.trim());
        Self(values.filter(|value| value.len() >= SECRET_LENGTH_MIN).map(str::to_owned).collect())
    }

    /// The text with every secret replaced.
    pub(super) fn hide(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret, HIDDEN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(pairs: &[(&str, &str)]) -> Properties {
        Properties(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn ways_that_are_not_there_yet_are_refused_by_name() {
        for key in NOT_YET {
            let error = Authorization::from_properties(&properties(&[(key, "s3cr3t-value")])).unwrap_err();
            assert!(error.to_string().contains(key) && error.to_string().contains("not supported yet"), "{error}");
            assert!(!error.to_string().contains("s3cr3t-value"), "{error}");
        }
        assert!(Authorization::from_properties(&properties(&[("rest.sigv4-enabled", "false")])).is_ok());
    }

    #[test]
    fn secrets_do_not_show() {
        let given = properties(&[("token", "s3cr3t-token"), ("header.X-Key", "s3cr3t-key"), ("uri", "http://h")]);
        let hidden = Secrets::of(&given).hide("no s3cr3t-token and no s3cr3t-key at http://h");
        assert_eq!(hidden, "no *** and no *** at http://h");
        let headers = headers(&given).unwrap();
        let authorization = Authorization::from_properties(&given).unwrap();
        assert!(!format!("{headers:?} {authorization:?}").contains("s3cr3t"));
    }
}
