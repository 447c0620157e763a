//! Statements on SQLite and PostgreSQL. All that a catalog keeps is text, so one small door serves both.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use iceferry_common::fault::chain;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use sqlx::{Connection, Row as _};
use tokio::sync::OnceCell;

use super::super::CatalogError;
use super::address::Address;

/// How long a SQLite writer waits for the others.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a statement, or getting a connection for it, may take.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the first connection to a server may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Connections that one catalog holds.
const CONNECTIONS_MAX: u32 = 4;

/// A row; columns may be null.
pub(super) type Row = Vec<Option<String>>;

/// Why a change is not known to be made.
#[derive(Debug)]
pub(super) enum NotChanged {
    /// A row with this key is there already.
    Duplicate,
    /// The database made another transaction win.
    Conflicted,
    /// Certainly not made.
    Before(CatalogError),
    /// The answer to COMMIT was lost or an error.
    AtCommit(CatalogError),
}

/// An open database. Connections are made when they are needed.
#[derive(Clone)]
pub(super) enum Database {
    Sqlite { pool: SqlitePool, path: PathBuf },
    Postgres { pool: PgPool, options: Box<PgConnectOptions>, reached: Arc<OnceCell<()>> },
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sqlite { .. } => "Sqlite",
            Self::Postgres { .. } => "Postgres",
        })
    }
}

fn sqlite_options(path: &std::path::Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new().filename(path).create_if_missing(false).busy_timeout(BUSY_TIMEOUT)
}

impl Database {
    pub(super) fn open(address: &Address) -> Self {
        match address {
            Address::Sqlite(path) => {
                let pool = SqlitePoolOptions::new().max_connections(CONNECTIONS_MAX).acquire_timeout(STATEMENT_TIMEOUT);
                Self::Sqlite { pool: pool.connect_lazy_with(sqlite_options(path)), path: path.clone() }
            }
            Address::Postgres { options, .. } => {
                let pool = PgPoolOptions::new().max_connections(CONNECTIONS_MAX).acquire_timeout(STATEMENT_TIMEOUT);
                let pool = pool.connect_lazy_with((**options).clone());
                Self::Postgres { pool, options: options.clone(), reached: Arc::new(OnceCell::new()) }
            }
        }
    }

    /// Whether there is a database to ask. A SQLite file that is missing is not one, and is not made by asking.
    pub(super) async fn is_there(&self) -> bool {
        match self {
            Self::Sqlite { path, .. } => tokio::fs::try_exists(path).await.unwrap_or(true),
            Self::Postgres { .. } => true,
        }
    }

    /// Whether a SQLite file that is missing could be made: its folder is not made with it.
    pub(super) async fn can_be_made(&self, act: &str) -> Result<(), CatalogError> {
        let Self::Sqlite { path, .. } = self else {
            return Ok(());
        };
        match path.parent() {
            Some(folder) if !tokio::fs::try_exists(folder).await.unwrap_or(true) => Err(CatalogError::NotFound {
                act: act.to_owned(),
                missing: format!("the folder {} of the database {}", folder.display(), path.display()),
            }),
            _ => Ok(()),
        }
    }

    /// Makes the SQLite file, unless it is there.
    pub(super) async fn make(&self, act: &str) -> Result<(), CatalogError> {
        self.can_be_made(act).await?;
        let Self::Sqlite { path, .. } = self else {
            return Ok(());
        };
        let made = sqlx::SqliteConnection::connect_with(&sqlite_options(path).create_if_missing(true)).await;
        let closed = match made {
            Ok(connection) => connection.close().await,
            Err(error) => Err(error),
        };
        closed.map_err(|error| failed(act, &error))
    }

    /// Connects once, to have the reason at once when that fails: the pool tries for as long as it may, and then only
    /// says that it timed out.
    async fn reach(&self, act: &str) -> Result<(), CatalogError> {
        let Self::Postgres { options, reached, .. } = self else {
            return Ok(());
        };
        let connect = async {
            let connected = tokio::time::timeout(CONNECT_TIMEOUT, PgConnection::connect_with(options)).await;
            let connection = connected.map_err(|_| CatalogError::Unavailable {
                act: act.to_owned(),
                problem: format!("the database server did not answer within {} seconds", CONNECT_TIMEOUT.as_secs()),
            })?;
            let closed = connection.map_err(|error| failed(act, &error))?.close().await;
            closed.map_err(|error| failed(act, &error))
        };
        reached.get_or_try_init(|| connect).await.copied()
    }

    /// The rows of a query. Parameters are written `$1`, `$2`, which both databases take.
    pub(super) async fn rows(&self, act: &str, sql: &str, values: &[&str]) -> Result<Vec<Row>, CatalogError> {
        self.reach(act).await?;
        let rows = async {
            let rows: Result<Vec<Row>, sqlx::Error> = match self {
                Self::Sqlite { pool, .. } => {
                    let query = values.iter().fold(sqlx::query(sql), |query, value| query.bind(*value));
                    let rows = query.fetch_all(pool).await?;
                    rows.iter().map(|row| (0..row.len()).map(|index| row.try_get(index)).collect()).collect()
                }
                Self::Postgres { pool, .. } => {
                    let query = values.iter().fold(sqlx::query(sql), |query, value| query.bind(*value));
                    let rows = query.fetch_all(pool).await?;
                    rows.iter().map(|row| (0..row.len()).map(|index| row.try_get(index)).collect()).collect()
                }
            };
            rows
        };
        in_time(act, rows).await?.map_err(|error| failed(act, &error))
    }

    /// Changes rows in a transaction of its own, and says how many. What failed before COMMIT was sent has certainly
    /// not happened.
    pub(super) async fn change(&self, act: &str, sql: &str, values: &[&str]) -> Result<u64, NotChanged> {
        self.reach(act).await.map_err(NotChanged::Before)?;
        match self {
            Self::Sqlite { pool, .. } => {
                let run = async {
                    let mut transaction = pool.begin().await?;
                    let query = values.iter().fold(sqlx::query(sql), |query, value| query.bind(*value));
                    let changed = query.execute(&mut *transaction).await?.rows_affected();
                    Ok((transaction, changed))
                };
                let (transaction, changed) = before_commit(act, in_time(act, run).await)?;
                at_commit(act, in_time(act, transaction.commit()).await)?;
                Ok(changed)
            }
            Self::Postgres { pool, .. } => {
                let run = async {
                    let mut transaction = pool.begin().await?;
                    let query = values.iter().fold(sqlx::query(sql), |query, value| query.bind(*value));
                    let changed = query.execute(&mut *transaction).await?.rows_affected();
                    Ok((transaction, changed))
                };
                let (transaction, changed) = before_commit(act, in_time(act, run).await)?;
                at_commit(act, in_time(act, transaction.commit()).await)?;
                Ok(changed)
            }
        }
    }
}

async fn in_time<T>(act: &str, work: impl Future<Output = T>) -> Result<T, CatalogError> {
    tokio::time::timeout(STATEMENT_TIMEOUT, work).await.map_err(|_| CatalogError::Unavailable {
        act: act.to_owned(),
        problem: format!("the database did not answer within {} seconds", STATEMENT_TIMEOUT.as_secs()),
    })
}

fn before_commit<T>(act: &str, run: Result<Result<T, sqlx::Error>, CatalogError>) -> Result<T, NotChanged> {
    run.map_err(NotChanged::Before)?.map_err(|error| sort_out(act, &error, NotChanged::Before))
}

fn at_commit(act: &str, run: Result<Result<(), sqlx::Error>, CatalogError>) -> Result<(), NotChanged> {
    run.map_err(NotChanged::AtCommit)?.map_err(|error| sort_out(act, &error, NotChanged::AtCommit))
}

fn sort_out(act: &str, error: &sqlx::Error, otherwise: fn(CatalogError) -> NotChanged) -> NotChanged {
    if let Some(database) = error.as_database_error() {
        if database.is_unique_violation() {
            return NotChanged::Duplicate;
        }
        // PostgreSQL's serialization failure and deadlock: this transaction was rolled back for another's sake.
        if matches!(database.code().as_deref(), Some("40001" | "40P01")) {
            return NotChanged::Conflicted;
        }
    }
    otherwise(failed(act, error))
}

fn failed(act: &str, error: &sqlx::Error) -> CatalogError {
    let act = act.to_owned();
    let words = chain(error);
    let Some(database) = error.as_database_error() else {
        return CatalogError::Unavailable { act, problem: words };
    };
    let code = database.code().unwrap_or_default();
    match &*code {
        // SQLite: not a database, corrupt.
        "26" | "11" => CatalogError::Corrupt { act, problem: words },
        // SQLite: cannot open the file, of a folder that is missing or closed to us.
        "14" => CatalogError::NotFound { act, missing: "the SQLite file, its folder or the right to open it".into() },
        // SQLite: read-only, in its several forms; permission.
        "8" | "264" | "520" | "776" | "1032" | "1288" | "1544" | "3" | "23" => {
            CatalogError::Denied { act, answer: words }
        }
        // PostgreSQL: wrong password or user, missing privilege.
        "28P01" | "28000" | "42501" => CatalogError::Denied { act, answer: words },
        // PostgreSQL: no such database or schema.
        "3D000" | "3F000" => CatalogError::NotFound { act, missing: format!("the database or schema ({words})") },
        // PostgreSQL: a value that does not fit; a statement that does not fit the tables that are there.
        code if code.len() == 5 && (code.starts_with("22") || code.starts_with("42")) => {
            CatalogError::Refused { act, problem: words }
        }
        _ => CatalogError::Unavailable { act, problem: words },
    }
}
