//! A REST catalog's configuration: what is given, what the server adds, and what it insists on.

use std::collections::HashMap;

use url::Url;

use super::super::CatalogError;
use super::super::properties::{Properties, property};
use super::http::Http;
use super::{paths, wire};

/// The address as it may be shown.
pub(super) fn shown(uri: &str) -> Result<String, CatalogError> {
    // What the parser says could repeat a part of the address, so it is not passed on.
    let mut url = Url::parse(uri).map_err(|_| property("uri", "it is not an address, such as https://host/path"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(property("uri", format!("a REST catalog is at http or https, not {}", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(property("uri", "it must not hold a user or password; give a token as \"token\""));
    }
    url.set_query(None);
    url.set_fragment(None);
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

/// What the server says about itself and the warehouse.
pub(super) async fn ask_config(
    http: &Http,
    uri: &str,
    warehouse: Option<&str>,
    shown: &str,
) -> Result<wire::Config, CatalogError> {
    let mut act = format!("ask {shown} for its configuration");
    if let Some(warehouse) = warehouse {
        act = format!("{act} of warehouse {warehouse}");
    }
    let body = http.get(&paths::config(uri, warehouse)).await.map_err(|failure| failure.into_error(&act))?;
    serde_json::from_slice(&body).map_err(|error| CatalogError::Corrupt {
        act,
        problem: format!("the answer is not a catalog's configuration: {error}"),
    })
}

/// Defaults of the server, over them what is given, over that what the server insists on. A null takes a key away.
pub(super) fn merge(config: wire::Config, given: &Properties) -> Properties {
    // How to get a token is the server's offer to those who want one; only the user's own wish is refused.
    let mut merged: HashMap<String, Option<String>> =
        config.defaults.into_iter().filter(|(key, _)| key != "oauth2-server-uri" && key != "credential").collect();
    merged.extend(given.0.iter().map(|(key, value)| (key.clone(), Some(value.clone()))));
    merged.extend(config.overrides.into_iter().filter(|(key, _)| key != "oauth2-server-uri"));
    Properties(merged.into_iter().filter_map(|(key, value)| Some((key, value?))).collect())
}
