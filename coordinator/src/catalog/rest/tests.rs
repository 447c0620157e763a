//! The REST catalog against a scripted server, and against a real one where there is one.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use iceferry_common::fault::{Class, Classified};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::super::testing::{self, chain_in_parallel, committed, number, set, set_once, table};
use super::*;

const TOKEN: &str = "s3cr3t-token";

/// What the server does with a request.
enum Reply {
    Answer(u16, String),
    With(u16, &'static str, String),
    /// Takes the request and closes the connection.
    HangUp,
    /// Takes the request and says nothing.
    Silence,
}

/// A server that follows a script and remembers what it was asked.
struct Script {
    uri: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Script {
    async fn new(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        tokio::spawn(async move {
            let mut replies = VecDeque::from(replies);
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !complete(&request) {
                    let mut part = [0; 4096];
                    let read = stream.read(&mut part).await.unwrap();
                    assert!(read > 0, "the client hung up");
                    request.extend_from_slice(&part[..read]);
                }
                log.lock().unwrap().push(String::from_utf8(request).unwrap());
                let (status, more, body) = match replies.pop_front() {
                    Some(Reply::Answer(status, body)) => (status, "X-Plain: 1", body),
                    Some(Reply::With(status, more, body)) => (status, more, body),
                    Some(Reply::HangUp) => continue,
                    Some(Reply::Silence) => {
                        tokio::time::sleep(Duration::from_secs(60)).await;
                        continue;
                    }
                    None => (418, "X-Plain: 1", "the script is over".to_owned()),
                };
                let answer = format!(
                    "HTTP/1.1 {status} X\r\n{more}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Self { uri, asked }
    }

    /// The first line of each request.
    fn lines(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|request| request.lines().next().unwrap().to_owned()).collect()
    }

    fn body(&self, index: usize) -> Value {
        let asked = self.asked.lock().unwrap();
        serde_json::from_str(asked[index].split_once("\r\n\r\n").unwrap().1).unwrap()
    }
}

fn complete(request: &[u8]) -> bool {
    let Some(end) = request.windows(4).position(|four| four == b"\r\n\r\n") else {
        return false;
    };
    let head = String::from_utf8_lossy(&request[..end]).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
    request.len() >= end + 4 + length
}

fn ok(body: Value) -> Reply {
    Reply::Answer(200, body.to_string())
}

fn no(status: u16, message: &str) -> Reply {
    Reply::Answer(status, json!({"error": {"message": message, "type": "X", "code": status}}).to_string())
}

fn no_config() -> Reply {
    ok(json!({"defaults": {}, "overrides": {}}))
}

fn answer(properties: &[(&str, &str)]) -> Value {
    let metadata = metadata::create(&table(&["ns"], "t"), "/w/ns/t", testing::creation(properties)).unwrap();
    json!({"metadata-location": "/w/ns/t/metadata/1.json", "metadata": metadata,
           "config": {"s3.region": "r", "s3.secret": "s3cr3t-key", "token": "t", "null": null}})
}

fn properties(uri: &str, more: &[(&str, &str)]) -> Properties {
    let pairs = [("uri", uri), ("token", TOKEN)];
    let pairs = pairs.iter().chain(more).map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Properties(pairs.collect())
}

async fn open(script: &Script, more: &[(&str, &str)]) -> Result<RestCatalog, CatalogError> {
    RestCatalog::open(&properties(&script.uri, more)).await
}

#[tokio::test]
async fn the_configuration_is_defaults_then_ours_then_overrides() {
    let config = json!({"defaults": {"prefix": "no", "header.X-A": "1", "oauth2-server-uri": "o"},
                        "overrides": {"prefix": "ws 1", "s3.endpoint": "e"}});
    let script = Script::new(vec![ok(config), ok(answer(&[]))]).await;
    let catalog = open(&script, &[("prefix", "mine"), ("warehouse", "s3://b/w"), ("header.X-B", "2")]).await.unwrap();
    let loaded = catalog.load_table(&table(&["my ns", "b"], "t#1")).await.unwrap();
    assert_eq!(
        script.lines(),
        [
            "GET /v1/config?warehouse=s3%3A%2F%2Fb%2Fw HTTP/1.1",
            "GET /v1/ws%201/namespaces/my%20ns%1Fb/tables/t%231 HTTP/1.1"
        ]
    );
    let second = script.asked.lock().unwrap()[1].to_lowercase();
    for header in ["authorization: bearer s3cr3t-token", "x-a: 1", "x-b: 2"] {
        assert!(second.contains(header), "{second}");
    }
    let keys: Vec<&str> = loaded.storage.properties().0.keys().map(String::as_str).collect();
    assert_eq!(keys, ["s3.endpoint", "s3.region", "s3.secret"]);
    assert!(!format!("{catalog:?} {loaded:?} {}", catalog.description()).contains("s3cr3t"));
}

#[tokio::test]
async fn what_a_commits_answer_means() {
    #[derive(Debug, PartialEq)]
    enum Meaning {
        Conflicted,
        Refused(Class),
        Unknown,
    }
    for (reply, meaning) in [
        (no(409, "moved"), Meaning::Conflicted),
        (no(400, "bad"), Meaning::Refused(Class::Refused)),
        (no(401, "who"), Meaning::Refused(Class::Denied)),
        (no(403, "no"), Meaning::Refused(Class::Denied)),
        (no(404, "gone"), Meaning::Refused(Class::NotFound)),
        (no(406, "cannot"), Meaning::Refused(Class::Refused)),
        (no(419, "expired"), Meaning::Refused(Class::Denied)),
        (no(429, "slow"), Meaning::Refused(Class::Transient)),
        (no(500, "oops"), Meaning::Unknown),
        (no(502, "oops"), Meaning::Unknown),
        (no(503, "oops"), Meaning::Unknown),
        (no(504, "oops"), Meaning::Unknown),
        (Reply::HangUp, Meaning::Unknown),
        (Reply::With(307, "Location: http://elsewhere/", String::new()), Meaning::Refused(Class::Refused)),
    ] {
        let script = Script::new(vec![no_config(), ok(answer(&[])), reply]).await;
        let catalog = open(&script, &[]).await.unwrap();
        let base = catalog.load_table(&table(&["ns"], "t")).await.unwrap();
        let found = match catalog.commit(&base, vec![], vec![set("a", 1)]).await {
            CommitOutcome::Committed(_) => panic!("committed"),
            CommitOutcome::Conflicted => Meaning::Conflicted,
            CommitOutcome::Refused(error) => Meaning::Refused(error.class()),
            CommitOutcome::Unknown(_) => Meaning::Unknown,
        };
        assert_eq!(found, meaning);
        assert_eq!(script.lines().len(), 3, "a commit is sent once");
    }
}

#[tokio::test]
async fn a_commit_that_times_out_is_unknown_and_one_that_never_left_is_refused() {
    let script = Script::new(vec![no_config(), ok(answer(&[])), Reply::Silence]).await;
    let mut catalog = open(&script, &[]).await.unwrap();
    let base = catalog.load_table(&table(&["ns"], "t")).await.unwrap();
    catalog.http = Http::with_timeout(&properties(&script.uri, &[]), Duration::from_millis(300)).unwrap();
    let outcome = catalog.commit(&base, vec![], vec![set("a", 1)]).await;
    let CommitOutcome::Unknown(error) = outcome else { panic!("{outcome:?}") };
    assert!(error.to_string().contains("no answer in time"), "{error}");
    // Nobody listens there: the port was given back.
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    catalog.paths = Paths::new(&format!("http://{free}"), &properties("", &[]));
    let outcome = catalog.commit(&base, vec![], vec![set("a", 1)]).await;
    let CommitOutcome::Refused(error) = outcome else { panic!("{outcome:?}") };
    assert_eq!(error.class(), Class::Transient);
}

#[tokio::test]
async fn a_success_that_cannot_be_read_is_settled_by_loading() {
    let garbled = || Reply::Answer(200, "{".into());
    let script =
        Script::new(vec![no_config(), ok(answer(&[])), garbled(), ok(answer(&[("a", "1")])), garbled(), no(404, "x")]);
    let script = script.await;
    let catalog = open(&script, &[]).await.unwrap();
    let base = catalog.load_table(&table(&["ns"], "t")).await.unwrap();
    assert_eq!(number(&committed(catalog.commit(&base, vec![], vec![set("a", 1)]).await), "a"), 1);
    let outcome = catalog.commit(&base, vec![], vec![set("a", 1)]).await;
    assert!(matches!(outcome, CommitOutcome::Unknown(_)), "{outcome:?}");
}

#[tokio::test]
async fn a_commit_carries_requirements_and_updates_and_keeps_the_storage() {
    let script = Script::new(vec![no_config(), ok(answer(&[])), ok(answer(&[("n", "1")]))]).await;
    let catalog = open(&script, &[]).await.unwrap();
    let base = catalog.load_table(&table(&["a", "b"], "t")).await.unwrap();
    let requirements = vec![TableRequirement::UuidMatch { uuid: base.metadata.uuid() }];
    let after = committed(catalog.commit(&base, requirements, vec![set("n", 1)]).await);
    assert_eq!(after.storage.properties(), base.storage.properties());
    assert_eq!(script.lines()[2], "POST /v1/namespaces/a%1Fb/tables/t HTTP/1.1");
    let expected = json!({
        "identifier": {"namespace": ["a", "b"], "name": "t"},
        "requirements": [{"type": "assert-table-uuid", "uuid": base.metadata.uuid()}],
        "updates": [{"action": "set-properties", "updates": {"n": "1"}}],
    });
    assert_eq!(script.body(2), expected);
}

#[tokio::test]
async fn reads_are_tried_again_when_that_may_help() {
    let slow = || Reply::With(503, "Retry-After: 0", String::new());
    let script = Script::new(vec![slow(), no_config(), Reply::HangUp, no(429, "slow"), ok(answer(&[]))]).await;
    let catalog = open(&script, &[]).await.unwrap();
    catalog.load_table(&table(&["ns"], "t")).await.unwrap();
    assert_eq!(script.lines().len(), 5);
    let script = Script::new(vec![no_config(), slow(), slow(), slow(), slow(), slow()]).await;
    let error = open(&script, &[]).await.unwrap().load_table(&table(&["ns"], "t")).await.unwrap_err();
    assert_eq!(error.class(), Class::Transient);
    assert_eq!(script.lines().len(), 5, "and not for ever");
}

#[tokio::test]
async fn errors_are_one_line_in_the_servers_words_without_the_token() {
    for (reply, class, words) in [
        (no(404, "Table does not exist: ns.t"), Class::NotFound, "table ns.t is not in the rest catalog at http://"),
        (no(401, "token s3cr3t-token is not valid"), Class::Denied, "token *** is not valid (HTTP 401)"),
        (Reply::Answer(400, "<p>\n no </p>".into()), Class::Refused, "load table ns.t: <p> no </p> (HTTP 400)"),
        (Reply::Answer(200, "[]".into()), Class::Corrupt, "answer is not a table"),
        (ok(json!({"metadata": {"format-version": 9}})), Class::Refused, "format version 9"),
    ] {
        let script = Script::new(vec![no_config(), reply]).await;
        let error = open(&script, &[]).await.unwrap().load_table(&table(&["ns"], "t")).await.unwrap_err();
        assert_eq!(error.class(), class, "{error}");
        assert!(error.to_string().contains(words) && !error.to_string().contains(TOKEN), "{error}");
    }
    let script = Script::new(vec![no(404, "Warehouse nope not found")]).await;
    let error = open(&script, &[("warehouse", "nope")]).await.unwrap_err();
    assert_eq!(error.class(), Class::NotFound);
    assert!(error.to_string().contains("warehouse nope"), "{error}");
}

#[tokio::test]
async fn what_cannot_be_opened_is_refused_before_anything_is_sent() {
    for (key, value) in [
        ("credential", "id:s3cr3t"),
        ("oauth2-server-uri", "http://o"),
        ("rest.sigv4-enabled", "true"),
        ("rest.auth.type", "google"),
        ("uri", "ftp://h"),
        ("uri", "nonsense"),
        ("uri", "http://u:s3cr3t@h"),
    ] {
        let mut given = properties("http://127.0.0.1:1", &[]);
        given.0.insert(key.to_owned(), value.to_owned());
        let error = RestCatalog::open(&given).await.unwrap_err();
        assert_eq!(error.class(), Class::Config, "{error}");
        assert!(error.to_string().contains(key) && !error.to_string().contains("s3cr3t"), "{error}");
    }
}

/// The answer for a namespace that is there.
fn namespace() -> Reply {
    ok(json!({"namespace": ["ns"], "properties": {}}))
}

#[tokio::test]
async fn a_table_is_staged_and_then_made_with_our_ids() {
    let staged = answer(&[("server", "x")]);
    let creation = testing::creation(&[("a", "1")]);
    let made = answer(&[("a", "1")]);
    let script = Script::new(vec![no_config(), namespace(), no(404, "none"), ok(staged.clone()), ok(made)]).await;
    let catalog = open(&script, &[]).await.unwrap();
    let schema = creation.schema.clone();
    let table = catalog.ensure_table(&table(&["ns"], "t"), creation).await.unwrap();
    assert!(metadata::same_columns(table.metadata.current_schema(), &schema));
    assert_eq!(script.body(3)["stage-create"], json!(true));
    assert_eq!(script.body(3)["properties"], json!({"a": "1", "format-version": "2"}));
    let commit = script.body(4);
    assert_eq!(commit["requirements"], json!([{"type": "assert-create"}]));
    let actions: Vec<&str> =
        commit["updates"].as_array().unwrap().iter().map(|update| update["action"].as_str().unwrap()).collect();
    assert_eq!(
        actions,
        [
            "assign-uuid",
            "upgrade-format-version",
            "add-schema",
            "set-current-schema",
            "add-spec",
            "set-default-spec",
            "add-sort-order",
            "set-default-sort-order",
            "set-location",
            "set-properties"
        ]
    );
    assert_eq!(commit["updates"][0]["uuid"], staged["metadata"]["table-uuid"]);
    assert_eq!(commit["updates"][2]["schema"]["fields"][0]["id"], json!(9));
    assert_eq!(commit["updates"][9]["updates"], json!({"a": "1", "server": "x"}));
}

#[tokio::test]
async fn a_creator_that_lost_or_lost_its_answer_takes_what_is_there() {
    let there = || ok(answer(&[("other", "1")]));
    let lost_at_commit = [no(409, "exists"), no(500, "oops"), Reply::HangUp]
        .map(|reply| vec![no_config(), namespace(), no(404, "none"), ok(answer(&[])), reply, there()]);
    let lost_at_staging = vec![no_config(), namespace(), no(404, "none"), no(409, "exists"), there()];
    for replies in lost_at_commit.into_iter().chain([lost_at_staging]) {
        let script = Script::new(replies).await;
        let catalog = open(&script, &[]).await.unwrap();
        let table = catalog.ensure_table(&table(&["ns"], "t"), testing::creation(&[])).await.unwrap();
        assert_eq!(number(&table, "other"), 1);
    }
}

#[tokio::test]
async fn a_namespace_is_made_with_its_parents_unless_it_is_there() {
    let there = || ok(json!({"namespace": ["a"], "properties": {}}));
    let none = || no(404, "none");
    let raced = || no(409, "exists");
    let script =
        Script::new(vec![no_config(), none(), none(), there(), raced(), there(), there(), none(), raced(), none()]);
    let script = script.await;
    let catalog = open(&script, &[]).await.unwrap();
    let namespace = NamespaceIdent::from_strs(["a", "b"]).unwrap();
    catalog.ensure_namespace(&namespace).await.unwrap();
    catalog.ensure_namespace(&namespace).await.unwrap();
    assert_eq!(script.body(3)["namespace"], json!(["a"]));
    assert_eq!(script.body(4)["namespace"], json!(["a", "b"]));
    assert_eq!(script.lines().len(), 7);
    let error = catalog.ensure_namespace(&NamespaceIdent::new("c".into())).await.unwrap_err();
    assert!(error.to_string().contains("make namespace c") && error.to_string().contains("exists"), "{error}");
}

/// A server that is not ours, at `ICEFERRY_TEST_REST_URI`.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_real_server_keeps_ids_and_one_chain() {
    let Ok(uri) = std::env::var("ICEFERRY_TEST_REST_URI") else {
        eprintln!("LEFT OUT: a_real_server_keeps_ids_and_one_chain, for ICEFERRY_TEST_REST_URI is not set");
        return;
    };
    let space = format!("test {}", uuid::Uuid::new_v4().simple());
    let mut catalogs = Vec::new();
    for _ in 0..4 {
        let catalog = RestCatalog::open(&properties(&uri, &[])).await.unwrap();
        catalogs.push(Arc::new(catalog) as Arc<dyn Catalog>);
    }
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let table = table(&[&space, "b"], &format!("data#{version} x"));
        let creators = catalogs.iter().map(|catalog| async {
            catalog.ensure_namespace(table.namespace()).await.unwrap();
            let creation = TableCreation { format_version: version, ..testing::creation(&[("a", "1")]) };
            catalog.ensure_table(&table, creation).await.unwrap()
        });
        let made = futures::future::join_all(creators).await;
        for table in &made {
            assert_eq!(table.metadata.uuid(), made[0].metadata.uuid());
            assert_eq!(table.metadata.format_version(), version);
            assert!(metadata::same_columns(table.metadata.current_schema(), &testing::creation(&[]).schema));
            assert_eq!(number(table, "a"), 1);
        }
        chain_in_parallel(catalogs.clone(), &table, 5).await;
        let outcome = set_once(&*catalogs[0], &table, "b", "2").await;
        assert_eq!(number(&committed(outcome), "b"), 2);
    }
    let error = catalogs[0].load_table(&table(&[&space], "none")).await.unwrap_err();
    assert_eq!(error.class(), Class::NotFound, "{error}");
}
