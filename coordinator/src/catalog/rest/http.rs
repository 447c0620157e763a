//! Requests to a REST catalog: time limits, bounded retries of what may be repeated, and what a failure means.

use std::time::Duration;

use bytes::Bytes;
use iceferry_common::fault::chain;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use serde::Serialize;
use uuid::Uuid;

use super::super::CatalogError;
use super::super::properties::{Properties, property};
use super::authorization::{Authorization, Secrets, headers};
use super::wire::ErrorBody;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A whole exchange; large tables have large metadata, and some servers take long to write it.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(120);
/// How often a read is tried.
const TRIES_MAX: u32 = 4;
/// Longest wait before another try, whatever the server asks for.
const WAIT_MAX: Duration = Duration::from_secs(10);
const WAIT_MIN: Duration = Duration::from_millis(200);
/// Signs of a foreign text that go into an error.
const WORDS_MAX: usize = 500;

/// A failed exchange.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server answered with another status than success.
    Answer { status: StatusCode, words: String },
    /// The request certainly did not reach the server.
    NotSent(String),
    /// It may have reached the server; the answer was lost.
    Lost(String),
}

impl Failure {
    /// The error that it is, when it was certainly not carried out or was a read.
    pub(super) fn into_error(self, act: &str) -> CatalogError {
        let act = act.to_owned();
        match self {
            Self::NotSent(problem) | Self::Lost(problem) => CatalogError::Unavailable { act, problem },
            Self::Answer { status, words } => match status.as_u16() {
                401 | 403 | 419 => CatalogError::Denied { act, answer: words },
                404 => CatalogError::NotFound { act, missing: format!("what was asked for ({words})") },
                408 | 429 | 500.. => CatalogError::Unavailable { act, problem: words },
                _ => CatalogError::Refused { act, problem: words },
            },
        }
    }

    pub(super) fn is_status(&self, wanted: StatusCode) -> bool {
        matches!(self, Self::Answer { status, .. } if *status == wanted)
    }
}

/// A client with the catalog's headers and authorisation.
#[derive(Debug)]
pub(super) struct Http {
    client: Client,
    authorization: Authorization,
    secrets: Secrets,
    exchange_timeout: Duration,
}

impl Http {
    pub(super) fn new(properties: &Properties) -> Result<Self, CatalogError> {
        Self::with_timeout(properties, EXCHANGE_TIMEOUT)
    }

    pub(super) fn with_timeout(properties: &Properties, exchange_timeout: Duration) -> Result<Self, CatalogError> {
        let client = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("iceferry/", env!("CARGO_PKG_VERSION")))
            .default_headers(default_headers(properties)?)
            // A redirect would send tokens to where nobody asked for, and turn a commit into a read.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| property("uri", format!("no HTTP client can be made: {error}")))?;
        Ok(Self {
            client,
            authorization: Authorization::from_properties(properties)?,
            secrets: Secrets::of(properties),
            exchange_timeout,
        })
    }

    /// Reads, again when that may help: a read changes nothing, however often it is made.
    pub(super) async fn get(&self, url: &str) -> Result<Bytes, Failure> {
        let mut tried = 1;
        loop {
            let (failure, asked) = match self.exchange(self.client.request(Method::GET, url)).await {
                Ok(body) => return Ok(body),
                Err(failed) => failed,
            };
            let passing = match &failure {
                Failure::Answer { status, .. } => matches!(status.as_u16(), 429 | 502 | 503 | 504),
                Failure::NotSent(_) | Failure::Lost(_) => true,
            };
            if !passing || tried >= TRIES_MAX {
                return Err(failure);
            }
            let wait = wait(tried, asked, Uuid::new_v4().as_u128());
            tracing::info!(tried, wait_ms = wait.as_millis(), ?failure, "a catalog read was put off");
            tokio::time::sleep(wait).await;
            tried += 1;
        }
    }

    /// Sends a change, once.
    pub(super) async fn post(&self, url: &str, body: &impl Serialize) -> Result<Bytes, Failure> {
        self.exchange(self.client.request(Method::POST, url).json(body)).await.map_err(|(failure, _)| failure)
    }

    async fn exchange(&self, request: RequestBuilder) -> Result<Bytes, (Failure, Option<Duration>)> {
        let request = self.authorization.apply(request.timeout(self.exchange_timeout));
        let answer = request.send().await.map_err(|error| (self.unanswered(error), None))?;
        let (status, asked) = (answer.status(), retry_after(&answer));
        let redirect =
            answer.headers().get(reqwest::header::LOCATION).and_then(|to| to.to_str().ok()).map(str::to_owned);
        let body = answer.bytes().await;
        if status.is_success() {
            return body.map_err(|error| (Failure::Lost(self.words(error)), None));
        }
        let words = match redirect.filter(|_| status.is_redirection()) {
            Some(to) => format!("it redirects to {to}; give that as uri"),
            None => error_words(&body.unwrap_or_default()),
        };
        let words = self.secrets.hide(&words);
        Err((Failure::Answer { status, words: format!("{words} (HTTP {})", status.as_u16()) }, asked))
    }

    fn unanswered(&self, error: reqwest::Error) -> Failure {
        // A builder's error is one of our own request; a connect error says that no connection came about.
        let sent = !error.is_builder() && !error.is_connect();
        let words = self.words(error);
        if sent { Failure::Lost(words) } else { Failure::NotSent(words) }
    }

    /// What is wrong, without the address: it may hold a user and password.
    fn words(&self, error: reqwest::Error) -> String {
        let timeout = error.is_timeout();
        let words = self.secrets.hide(&chain(&error.without_url()));
        if timeout { format!("no answer in time: {words}") } else { words }
    }
}

fn default_headers(properties: &Properties) -> Result<HeaderMap, CatalogError> {
    let mut all = headers(properties)?;
    all.entry(reqwest::header::ACCEPT).or_insert(reqwest::header::HeaderValue::from_static("application/json"));
    Ok(all)
}

fn retry_after(answer: &Response) -> Option<Duration> {
    answer.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// How long to wait before another try: what the server asks for, else twice as long each time; and up to half of it
/// more by chance, so that many who failed together do not come back together.
fn wait(tried: u32, asked: Option<Duration>, chance: u128) -> Duration {
    let wait = asked.unwrap_or_else(|| WAIT_MIN.saturating_mul(1 << tried.min(10))).clamp(WAIT_MIN, WAIT_MAX);
    let half = u64::try_from(wait.as_millis() / 2).unwrap_or(u64::MAX).max(1);
    let more = u64::try_from(chance % u128::from(half)).unwrap_or(0);
    wait + Duration::from_millis(more)
}

/// The words of an error's body: those of the specification's error, else the beginning of whatever it is.
fn error_words(body: &[u8]) -> String {
    let words = match serde_json::from_slice::<ErrorBody>(body) {
        Ok(ErrorBody { error }) => match (error.message, error.kind) {
            (Some(message), _) if !message.trim().is_empty() => message,
            (_, Some(kind)) => kind,
            _ => String::new(),
        },
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    };
    let line: Vec<&str> = words.split_whitespace().collect();
    let line = line.join(" ");
    if line.is_empty() { "no reason given".to_owned() } else { line.chars().take(WORDS_MAX).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_an_error_are_found() {
        for (body, expected) in [
            (
                r#"{"error":{"message":"Table does not exist: a.b","type":"NoSuchTableException","code":404}}"#,
                "Table does not exist: a.b",
            ),
            (r#"{"error":{"type":"Gone","code":404}}"#, "Gone"),
            ("<html>\n  bad gateway</html>", "<html> bad gateway</html>"),
            ("", "no reason given"),
        ] {
            assert_eq!(error_words(body.as_bytes()), expected);
        }
        assert_eq!(error_words(&[b'x'; 9000]).len(), WORDS_MAX);
    }

    #[test]
    fn waits_grow_have_bounds_and_follow_the_server() {
        let least = |tried, asked| wait(tried, asked, 0);
        assert_eq!(least(1, None), Duration::from_millis(400));
        assert_eq!(least(2, None), Duration::from_millis(800));
        assert_eq!(least(60, None), WAIT_MAX);
        assert_eq!(least(1, Some(Duration::from_secs(3))), Duration::from_secs(3));
        assert_eq!(least(1, Some(Duration::from_secs(3600))), WAIT_MAX);
        assert_eq!(least(1, Some(Duration::ZERO)), WAIT_MIN);
        for chance in [0, 1, 99, u128::MAX] {
            let wait = wait(1, None, chance);
            assert!(wait >= Duration::from_millis(400) && wait < Duration::from_millis(600), "{wait:?}");
        }
    }
}
