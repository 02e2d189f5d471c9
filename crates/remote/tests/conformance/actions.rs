//! The cache of GitHub Actions, against a stand-in server, because the service runs only at GitHub.
//!
//! The stand-in implements version 2 of the protocol: entries are reserved, uploaded as blobs,
//! finalised, and then never change. It counts requests, and can answer that there were too many.
//! Scopes and delays of the real service are not simulated.

use crate::{leaves, many, sample};
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use ghac::v1 as api;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_RANGE, RANGE, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use larder_model::{Blob, Digest, Manifest};
use larder_remote::{Options, PackPolicy, RemoteUrl, Remotes, connect};
use prost::Message;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const CALLS: &str = "/twirp/github.actions.results.api.v1.CacheService/";

#[derive(Default)]
struct Entry {
    blocks: HashMap<String, Bytes>,
    bytes: Bytes,
    is_final: bool,
}

/// The requests that clients made, and the answers that they get next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// Entries that clients began to write.
    pub(crate) writes: u32,
    /// Entries that clients looked up.
    pub(crate) lookups: u32,
    /// So many of the next writes are refused with status 429.
    refused: u32,
    /// Writes are refused until then.
    refused_until: Option<Instant>,
    /// Writes that came before that time.
    too_early: u32,
    /// Every third entry can be read only this long after its writer has uploaded it.
    late: Duration,
    /// Entries whose writers have uploaded them.
    uploaded: u32,
}

/// How long clients are told to wait after status 429.
const RETRY_AFTER_S: u64 = 2;

#[derive(Clone, Default)]
pub(crate) struct Cache {
    entries: Arc<Mutex<HashMap<String, Entry>>>,
    asked: Arc<Mutex<Asked>>,
    pub(crate) port: u16,
}

type Answer = Response<Full<Bytes>>;

fn said(status: StatusCode, bytes: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(bytes.into()));
    *answer.status_mut() = status;
    answer
}

/// Returns a name for a key that can be part of a path.
fn name_of(key: &str) -> String {
    larder_model::Digest::of(key.as_bytes()).hex()
}

impl Cache {
    fn entries(&self) -> std::sync::MutexGuard<'_, HashMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an upload, and returns how long its entry cannot be read.
    fn lateness(&self) -> Duration {
        let mut asked = self.asked();
        asked.uploaded += 1;
        if asked.uploaded.is_multiple_of(3) { asked.late } else { Duration::ZERO }
    }

    /// Counts a write, and returns true if it is refused.
    fn refuses(&self) -> bool {
        let mut asked = self.asked();
        asked.writes += 1;
        let is_early = asked.refused_until.is_some_and(|until| Instant::now() < until);
        asked.too_early += u32::from(is_early);
        let is_refused = is_early || asked.refused > 0;
        if is_refused && !is_early {
            asked.refused -= 1;
            asked.refused_until = Some(Instant::now() + Duration::from_secs(RETRY_AFTER_S));
        }
        is_refused
    }

    fn url(&self, name: &str) -> String {
        format!("http://127.0.0.1:{}/blobs/{name}?sig=hush", self.port)
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Answer, hyper::Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let path = parts.uri.path().to_owned();
        let query = parts.uri.query().unwrap_or_default().to_owned();
        if let Some(call) = path.strip_prefix(CALLS) {
            if call == "FinalizeCacheEntryUpload" {
                let late = self.lateness();
                tokio::time::sleep(late).await;
            }
            let authorised = parts.headers.get(AUTHORIZATION).is_some_and(|value| value == "Bearer hush-token");
            return Ok(if authorised { self.call(call, &body) } else { said(StatusCode::UNAUTHORIZED, "") });
        }
        let name = path.trim_start_matches("/blobs/").to_owned();
        if !query.contains("sig=hush") {
            return Ok(said(StatusCode::FORBIDDEN, ""));
        }
        let range = parts.headers.get(RANGE).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Ok(match parts.method {
            Method::PUT => self.upload(&name, &query, body),
            Method::GET => self.download(&name, range.as_deref()),
            _ => said(StatusCode::METHOD_NOT_ALLOWED, ""),
        })
    }

    fn call(&self, call: &str, body: &[u8]) -> Answer {
        match call {
            "CreateCacheEntry" if self.refuses() => {
                let mut answer = said(StatusCode::TOO_MANY_REQUESTS, "");
                answer.headers_mut().insert(RETRY_AFTER, RETRY_AFTER_S.into());
                answer
            }
            "CreateCacheEntry" => {
                let asked = api::CreateCacheEntryRequest::decode(body).expect("a valid message");
                let name = name_of(&(asked.key + &asked.version));
                let mut entries = self.entries();
                let ok = !entries.contains_key(&name);
                entries.entry(name.clone()).or_default();
                let answer = api::CreateCacheEntryResponse { ok, signed_upload_url: self.url(&name) };
                said(StatusCode::OK, answer.encode_to_vec())
            }
            "FinalizeCacheEntryUpload" => {
                let asked = api::FinalizeCacheEntryUploadRequest::decode(body).expect("a valid message");
                let name = name_of(&(asked.key + &asked.version));
                let mut entries = self.entries();
                let entry = entries.get_mut(&name).expect("the entry was reserved");
                assert!(!entry.is_final, "finalised twice");
                entry.is_final = entry.bytes.len() as i64 == asked.size_bytes;
                let answer = api::FinalizeCacheEntryUploadResponse { ok: entry.is_final, entry_id: 1 };
                said(StatusCode::OK, answer.encode_to_vec())
            }
            "GetCacheEntryDownloadURL" => {
                self.asked().lookups += 1;
                let asked = api::GetCacheEntryDownloadUrlRequest::decode(body).expect("a valid message");
                let name = name_of(&(asked.key.clone() + &asked.version));
                let ok = self.entries().get(&name).is_some_and(|entry| entry.is_final);
                let answer = api::GetCacheEntryDownloadUrlResponse {
                    ok,
                    signed_download_url: self.url(&name),
                    matched_key: asked.key,
                };
                said(StatusCode::OK, answer.encode_to_vec())
            }
            _ => said(StatusCode::NOT_FOUND, ""),
        }
    }

    /// Stores a whole blob, a block of one, or the list of its blocks.
    fn upload(&self, name: &str, query: &str, body: Bytes) -> Answer {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(name).filter(|entry| !entry.is_final) else {
            return said(StatusCode::CONFLICT, "");
        };
        let option = |wanted: &str| {
            let mut pairs = url::form_urlencoded::parse(query.as_bytes());
            pairs.find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned())
        };
        match option("comp").as_deref() {
            Some("block") => drop(entry.blocks.insert(option("blockid").expect("a block has one"), body)),
            Some("blocklist") => {
                let list = String::from_utf8_lossy(&body).into_owned();
                let names = list.split("<Latest>").skip(1).filter_map(|rest| rest.split("</Latest>").next());
                entry.bytes = names.flat_map(|name| entry.blocks[name].to_vec()).collect::<Vec<u8>>().into();
            }
            _ => entry.bytes = body,
        }
        said(StatusCode::CREATED, "")
    }

    fn download(&self, name: &str, range: Option<&str>) -> Answer {
        let entries = self.entries();
        let Some(entry) = entries.get(name) else { return said(StatusCode::NOT_FOUND, "") };
        let Some((from, to)) = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-')) else {
            return said(StatusCode::OK, entry.bytes.clone());
        };
        let length = entry.bytes.len();
        let from: usize = from.parse().expect("a range");
        let to = to.parse().map_or(length, |to: usize| (to + 1).min(length));
        if from >= length {
            return said(StatusCode::RANGE_NOT_SATISFIABLE, "");
        }
        let mut answer = said(StatusCode::PARTIAL_CONTENT, entry.bytes.slice(from..to));
        let range = format!("bytes {from}-{}/{length}", to - 1);
        answer.headers_mut().insert(CONTENT_RANGE, range.parse().expect("a header"));
        answer
    }
}

/// Starts a server that runs until the process ends.
pub(crate) fn serve() -> Cache {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it has one").port();
    listener.set_nonblocking(true).expect("for the runtime");
    let cache = Cache { port, ..Cache::default() };
    let shared = cache.clone();
    std::thread::spawn(move || {
        leaves::runtime().block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).expect("it listens");
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                let cache = shared.clone();
                tokio::spawn(async move {
                    let service = hyper::service::service_fn(move |request| cache.clone().answer(request));
                    // It does not matter here if a client closes the connection.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
    });
    cache
}

/// Returns true if the library uses version 2 of the protocol. It reads that from the environment,
/// so otherwise this starts the test again with the variable set, and returns false.
fn has_version_2(test: &str) -> bool {
    const VERSION: &str = "ACTIONS_CACHE_SERVICE_V2";
    if std::env::var_os(VERSION).is_some() {
        return true;
    }
    let this = std::env::current_exe().expect("this test");
    let status = std::process::Command::new(this)
        .args(["--exact", test, "--nocapture"])
        .env(VERSION, "true")
        .env_remove("GITHUB_SERVER_URL")
        .status();
    assert!(status.expect("it starts").success());
    false
}

fn variables(cache: &Cache) -> &'static [(&'static str, &'static str)] {
    let url: &'static str = Box::leak(format!("http://127.0.0.1:{}/", cache.port).into_boxed_str());
    Box::leak(Box::new([("ACTIONS_RUNTIME_TOKEN", "hush-token"), ("ACTIONS_RESULTS_URL", url)]))
}

#[test]
fn actions_cache() {
    if has_version_2("actions::actions_cache") {
        leaves::conforms_with("ghac://team/x", variables(&serve()));
    }
}

/// Between the reservation of an entry and its end, other writers see neither the entry nor a free
/// place.
#[test]
fn no_record_is_lost_if_writers_finish_late() {
    if has_version_2("actions::no_record_is_lost_if_writers_finish_late") {
        let cache = serve();
        cache.asked().late = Duration::from_millis(800);
        let url: RemoteUrl = "ghac://team/x".parse().unwrap_or_else(|error| panic!("{error}"));
        let connected = connect(&url, &sample::options(7, variables(&cache))).unwrap_or_else(|error| panic!("{error}"));
        leaves::runtime().block_on(many::none_is_lost(connected.remote, "late"));
    }
}

/// Returns the records of a build: weak fingerprint, manifest, the blob of the output, and its bytes.
fn build(units: usize) -> Vec<(Digest, Vec<u8>, Blob, Bytes)> {
    let unit = |number: usize| {
        let bytes = sample::bytes(&format!("output {number}"), 9_000 + number);
        let blob = Blob { digest: Digest::of(&bytes), size_bytes: bytes.len() as u64 };
        let weak = Digest::of(&number.to_le_bytes());
        let manifest = sample::manifest(&weak, &[sample::Run { name: "unit", exit_code: 0, output: Some(blob) }]);
        (weak, manifest, blob, bytes)
    };
    (0..units).map(unit).collect()
}

/// GitHub accepts 200 uploads a minute. The 300 records of a build and their blobs are 600 objects.
#[test]
fn a_build_of_300_units_takes_few_uploads_and_comes_back() {
    if !has_version_2("actions::a_build_of_300_units_takes_few_uploads_and_comes_back") {
        return;
    }
    let cache = serve();
    cache.asked().refused = 2;
    let url: RemoteUrl = "ghac://team/x".parse().unwrap_or_else(|error| panic!("{error}"));
    let runner = |seed| {
        let packs = PackPolicy { gather: Duration::from_millis(300), ..PackPolicy::default() };
        let options = Options { packs, ..sample::options(seed, variables(&cache)) };
        Remotes::open(std::slice::from_ref(&url), &options).unwrap_or_else(|error| panic!("{error}"))
    };
    let (place, units) = (tempfile::tempdir().expect("a directory"), build(300));
    for (_, _, blob, bytes) in &units {
        std::fs::write(place.path().join(blob.digest.hex()), bytes).expect("written");
    }
    leaves::runtime().block_on(async {
        let first = runner(1);
        let publish = async |(_, manifest, _, _): &(Digest, Vec<u8>, Blob, Bytes)| {
            let manifest = Manifest::decode(manifest).expect("it was encoded here");
            first.publish(&manifest, |digest: &Digest| Some(place.path().join(digest.hex()))).await
        };
        let published: Vec<_> = stream::iter(&units).map(publish).buffer_unordered(128).collect().await;
        for one in published {
            assert_eq!((one.entries, one.blobs, one.failed.len()), (1, 1, 0), "{:?}", one.failed);
        }
        let written = cache.asked().clone();
        println!("{written:?}");
        assert!(written.writes < 40, "{written:?}");
        assert_eq!((written.refused, written.too_early), (0, 0), "a client wrote before the time of Retry-After");
        let fresh = runner(2);
        for (weak, manifest, blob, bytes) in &units {
            let found = fresh.manifest(weak).await.unwrap_or_else(|error| panic!("{error}"));
            assert!(found.is_some_and(|(found, _)| sample::names(&found) == sample::names(manifest)));
            let mut content = Vec::new();
            let fetched = fresh.blob(&blob.digest, blob.size_bytes, &mut content).await;
            assert!(fetched.unwrap_or_else(|error| panic!("{error}")).is_some() && content == *bytes);
        }
        let lookups = cache.asked().lookups - written.lookups;
        println!("{lookups} lookups for {} records", units.len());
        assert!(lookups < 100, "{lookups} lookups");
        assert_eq!(cache.asked().writes, written.writes, "reading writes nothing");
    });
}
