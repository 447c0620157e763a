//! Values that must not be seen: secrets, and the catalog properties among which they stand.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::{Serialize, Serializer};

/// What stands in place of a value that is not shown.
const HIDDEN: &str = "***";

/// A value that prints as `***`, however it is printed.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Secret(String);

impl Secret {
    /// Keeps `value` from being printed.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one who needs it. Not for messages.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

/// The properties of a catalog, as the job file gives them: every key and value unchanged, whatever the key.
///
/// Debug, Display and Serialize show each key; a value is shown for the few keys that are known to be harmless and to
/// help ([`SHOWN_KEYS`]), without what may be a password in it, and is `***` for every other key.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CatalogProperties(BTreeMap<String, Secret>);

/// Keys whose values are shown. A key that is not here may hold a secret, in this version of a catalog or the next.
pub const SHOWN_KEYS: &[&str] = &[
    "type",
    "uri",
    "warehouse",
    "prefix",
    "io-impl",
    "catalog-impl",
    "client.region",
    "s3.endpoint",
    "s3.region",
    "s3.path-style-access",
    "gcs.project-id",
];

impl CatalogProperties {
    /// The value of `key`, in clear.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(Secret::expose)
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Every key with its value in clear: what opens a catalog.
    pub fn expose(&self) -> HashMap<String, String> {
        self.0.iter().map(|(key, value)| (key.clone(), value.expose().to_owned())).collect()
    }

    /// What may be seen: every key, with its value or with `***`.
    fn visible(&self) -> BTreeMap<&str, String> {
        let visible = |(key, value): (&'_ String, &Secret)| {
            let is_shown = SHOWN_KEYS.contains(&key.as_str());
            if is_shown { without_password(value.expose()) } else { HIDDEN.to_owned() }
        };
        self.0.iter().map(|entry| (entry.0.as_str(), visible(entry))).collect()
    }
}

impl FromIterator<(String, String)> for CatalogProperties {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(properties: I) -> Self {
        Self(properties.into_iter().map(|(key, value)| (key, Secret::new(value))).collect())
    }
}

impl fmt::Debug for CatalogProperties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.visible()).finish()
    }
}

impl fmt::Display for CatalogProperties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let visible = self.visible();
        let properties: Vec<String> = visible.iter().map(|(key, value)| format!("{key}: {value}")).collect();
        write!(f, "{{ {} }}", properties.join(", "))
    }
}

impl Serialize for CatalogProperties {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.visible())
    }
}

/// Schemes in which the part before `@` names a container, and never a person.
const CONTAINER_SCHEMES: [&str; 4] = ["abfs", "abfss", "wasb", "wasbs"];

/// A location or connection string without what may be a password in it: the part before an `@`, a query, and the whole
/// when it has settings of its own that sound like secrets.
///
/// It rather hides too much: passwords are written into such strings without escapes, so everything up to the last `@`
/// counts.
pub fn without_password(location: &str) -> String {
    let (shown, query) = match location.split_once('?') {
        // An `@` behind a `?` is more likely one of an unescaped password than of a query.
        Some((_, query)) if query.contains('@') => (location, ""),
        Some((before, _)) => (before, "?***"),
        None => (location, ""),
    };
    let lower = shown.to_ascii_lowercase();
    if ["password", "passwd", "pwd", "secret", "token", "credential"].iter().any(|word| lower.contains(word)) {
        return HIDDEN.to_owned();
    }
    let (scheme, rest) = match shown.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), shown),
    };
    match rest.rsplit_once('@') {
        Some((user, host))
            if user.contains([':', '/']) || !CONTAINER_SCHEMES.iter().any(|s| scheme == format!("{s}://")) =>
        {
            // A query may follow the host when the `?` was taken for a part of the password.
            let host = host.split_once('?').map_or(host.to_owned(), |(host, _)| format!("{host}?***"));
            format!("{scheme}***@{host}{query}")
        }
        _ => format!("{scheme}{rest}{query}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_prints() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret} {secret:?} {}", serde_json::to_string(&secret).unwrap()), "*** *** \"***\"");
        assert_eq!(secret.expose(), "hunter2");
    }

    #[test]
    fn properties_are_kept_as_they_are_and_printed_without_secrets() {
        let secret_keys = [
            "token",
            "credential",
            "password",
            "jdbc.password",
            "s3.secret-access-key",
            "s3.access-key-id",
            "s3.session-token",
            "adls.sas-token.account",
            "gcs.oauth2.token",
            "header.Authorization",
            "header.X-Api",
            "oauth2-server-uri",
            "client_secret",
            "Token",
            "TYPE",
            "anything-new",
        ];
        let mut given: BTreeMap<String, String> =
            secret_keys.iter().map(|key| ((*key).to_owned(), format!("hunter2-{key}"))).collect();
        given.insert("uri".into(), "postgresql://ferry:hunter2@db:5432/cat?sslmode=require".into());
        given.insert("warehouse".into(), "s3://bucket/wh".into());
        given.insert("type".into(), "sql".into());
        let properties = CatalogProperties::from_iter(given.clone());
        assert_eq!(properties.expose(), given.into_iter().collect::<HashMap<_, _>>());
        assert_eq!(properties.get("token"), Some("hunter2-token"));
        for text in [
            format!("{properties:?}"),
            format!("{properties:#?}"),
            properties.to_string(),
            serde_json::to_string(&properties).unwrap(),
        ] {
            assert!(!text.contains("hunter2"), "{text}");
            assert!(text.contains("anything-new") && text.contains("s3://bucket/wh"), "{text}");
        }
        let few = CatalogProperties::from_iter([("type".into(), "rest".into()), ("token".into(), "x".into())]);
        assert_eq!(few.to_string(), "{ token: ***, type: rest }");
    }

    #[test]
    fn a_location_loses_its_password_and_little_else() {
        let cases = [
            ("/data/wh", "/data/wh"),
            ("file:///data/wh", "file:///data/wh"),
            ("sqlite:///data/cat.db", "sqlite:///data/cat.db"),
            ("sqlite::memory:", "sqlite::memory:"),
            ("s3://bucket/wh", "s3://bucket/wh"),
            ("https://host:8181/catalog", "https://host:8181/catalog"),
            ("abfss://box@account.dfs.core.windows.net/wh", "abfss://box@account.dfs.core.windows.net/wh"),
            ("postgresql://u:hunter2@host/db", "postgresql://***@host/db"),
            ("postgresql://u:hun@ter/2@host/db", "postgresql://***@host/db"),
            ("postgresql://u:hun?ter2@host/db", "postgresql://***@host/db"),
            ("postgresql://u:hun?ter2@host/db?a=hunter2", "postgresql://***@host/db?***"),
            ("postgresql://u:hunter2@host/db?sslmode=require", "postgresql://***@host/db?***"),
            ("postgresql://host/db?user=u&password=hunter2", "postgresql://host/db?***"),
            ("https://hunter2@host/catalog", "https://***@host/catalog"),
            ("u:hunter2@host/db", "***@host/db"),
            ("abfss://box:hunter2@account/wh", "abfss://***@account/wh"),
            ("host=db user=u password=hunter2", "***"),
            ("jdbc:sqlserver://host;user=u;PWD=hunter2", "***"),
        ];
        for (location, shown) in cases {
            assert_eq!(without_password(location), shown, "{location}");
        }
    }
}
