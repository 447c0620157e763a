//! Where a SQL catalog's database is, from the several ways in which tools write it.

use std::fmt;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use url::Url;

use super::super::CatalogError;
use super::super::properties::{Properties, property};

const KNOWN: &str = "sqlite:///path.db, sqlite:path.db and postgresql://user:password@host:port/database are known, \
                     also as SQLAlchemy and JDBC write them";

/// A database.
#[derive(Clone)]
pub(super) enum Address {
    /// A file.
    Sqlite(PathBuf),
    /// A server; `shown` is the address without secrets.
    Postgres { options: Box<PgConnectOptions>, shown: String },
}

/// Shows no password, unlike the options inside.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres { shown, .. } => f.write_str(shown),
        }
    }
}

/// The database that the property `uri` names.
pub(super) fn parse(properties: &Properties) -> Result<Address, CatalogError> {
    let uri = properties.required("uri", "sql")?;
    let plain = uri.strip_prefix("jdbc:").unwrap_or(uri);
    let (scheme, rest) = plain.split_once(':').unwrap_or((plain, ""));
    // SQLAlchemy adds the driver to the scheme: postgresql+psycopg2.
    match scheme.split('+').next().unwrap_or(scheme) {
        "sqlite" => sqlite(rest),
        "postgresql" | "postgres" => postgres(rest, properties),
        other => Err(property("uri", format!("no database is known for {other:?}; {KNOWN}"))),
    }
}

fn sqlite(rest: &str) -> Result<Address, CatalogError> {
    let path = rest.split('?').next().unwrap_or(rest);
    let path = path.strip_prefix("file:").unwrap_or(path);
    if path.trim_matches('/').is_empty() || path.contains(":memory:") {
        return Err(property("uri", "a SQLite catalog is a file; name it as sqlite:///path.db"));
    }
    let path = path.strip_prefix("//").unwrap_or(path);
    if !path.starts_with('/') {
        return Ok(Address::Sqlite(path.into()));
    }
    let absolute = PathBuf::from(format!("/{}", path.trim_start_matches('/')));
    // SQLAlchemy reads three slashes as a relative path, others as an absolute one. Whichever is there is meant.
    let relative = PathBuf::from(path.trim_start_matches('/'));
    let three = !path.starts_with("//");
    let path = if three && !absolute.exists() && relative.exists() { relative } else { absolute };
    Ok(Address::Sqlite(path))
}

fn postgres(rest: &str, properties: &Properties) -> Result<Address, CatalogError> {
    // What the address parser says could repeat a part of the address, so it is not passed on.
    let unreadable = || property("uri", format!("the PostgreSQL address cannot be read; {KNOWN}"));
    let url = Url::parse(&format!("postgresql:{rest}")).map_err(|_| unreadable())?;
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let in_query = |wanted: &str| url.query_pairs().find(|(key, _)| key == wanted).map(|(_, value)| value.into_owned());
    let host = decoded(url.host_str().filter(|host| !host.is_empty()).ok_or_else(unreadable)?);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = url.port().unwrap_or(5432);
    let database = decoded(url.path().trim_start_matches('/'));
    let in_url = Some(url.username()).filter(|user| !user.is_empty()).map(decoded);
    let user = properties.get("jdbc.user").map(str::to_owned).or_else(|| in_query("user")).or(in_url);
    let in_url = url.password().map(decoded);
    let password = properties.get("jdbc.password").map(str::to_owned).or_else(|| in_query("password")).or(in_url);

    let mut options = PgConnectOptions::new().host(host).port(port);
    if let Some(user) = &user {
        options = options.username(user);
    }
    if let Some(password) = &password {
        options = options.password(password);
    }
    if !database.is_empty() {
        options = options.database(&database);
    }
    if let Some(mode) = in_query("sslmode") {
        let mode: PgSslMode = mode.parse().map_err(|_| property("uri", format!("sslmode {mode:?} is not known")))?;
        options = options.ssl_mode(mode);
    }
    if let Some(root) = in_query("sslrootcert") {
        options = options.ssl_root_cert(root);
    }
    let shown = format!("postgresql://{host}:{port}/{database}");
    Ok(Address::Postgres { options: Box::new(options), shown })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(uri: &str, more: &[(&str, &str)]) -> Result<Address, CatalogError> {
        let pairs = more.iter().copied().chain([("uri", uri)]);
        parse(&Properties(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()))
    }

    #[test]
    fn sqlite_files_are_written_in_many_ways() {
        for (uri, expected) in [
            ("sqlite:///abs/path.db", "/abs/path.db"),
            ("sqlite:////abs/path.db", "/abs/path.db"),
            ("sqlite:/abs/path.db", "/abs/path.db"),
            ("sqlite:path.db", "path.db"),
            ("sqlite://path.db", "path.db"),
            ("sqlite+pysqlite:////abs/a b.db", "/abs/a b.db"),
            ("jdbc:sqlite:/abs/path.db", "/abs/path.db"),
            ("jdbc:sqlite:file:/abs/path.db?cache=shared", "/abs/path.db"),
        ] {
            let Address::Sqlite(path) = address(uri, &[]).unwrap() else { panic!("{uri}") };
            assert_eq!(path.to_str(), Some(expected), "{uri}");
        }
        for uri in ["sqlite:", "sqlite://", "sqlite:///", "sqlite:///:memory:", "mysql://h/d", "nothing"] {
            assert!(address(uri, &[]).is_err(), "{uri}");
        }
    }

    #[test]
    fn postgres_servers_are_written_in_many_ways() {
        let jdbc = [("jdbc.user", "u@x"), ("jdbc.password", "p/w")];
        for (uri, more) in [
            ("postgresql://u%40x:p%2Fw@h:77/d", &[][..]),
            ("postgres://u%40x:p%2Fw@h:77/d", &[]),
            ("postgresql+psycopg2://u%40x:p%2Fw@h:77/d?sslmode=disable", &[]),
            ("jdbc:postgresql://h:77/d", &jdbc),
            ("jdbc:postgresql://h:77/d?user=u%40x&password=p%2Fw", &[]),
        ] {
            let found = address(uri, more).unwrap();
            assert_eq!(format!("{found} {found:?}"), "postgresql://h:77/d postgresql://h:77/d");
            let Address::Postgres { options, .. } = found else { panic!("{uri}") };
            assert_eq!((options.get_host(), options.get_port(), options.get_database()), ("h", 77, Some("d")));
            assert_eq!(options.get_username(), "u@x");
        }
        let error = address("postgresql://u:hunter2@:x/d", &[]).unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}
