//! The cache of GitHub Actions, against a stand-in server, because the service runs only at GitHub.
//!
//! The stand-in implements version 2 of the protocol: entries are reserved, uploaded as blobs,
//! finalised, and then never change. Limits, scopes and delays of the real service are not
//! simulated.

use crate::leaves;
use bytes::Bytes;
use ghac::v1 as api;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_RANGE, RANGE};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use prost::Message;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

const CALLS: &str = "/twirp/github.actions.results.api.v1.CacheService/";

#[derive(Default)]
struct Entry {
    blocks: HashMap<String, Bytes>,
    bytes: Bytes,
    is_final: bool,
}

#[derive(Clone, Default)]
struct Cache {
    entries: Arc<Mutex<HashMap<String, Entry>>>,
    port: u16,
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

    fn url(&self, name: &str) -> String {
        format!("http://127.0.0.1:{}/blobs/{name}?sig=hush", self.port)
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Answer, hyper::Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let path = parts.uri.path().to_owned();
        let query = parts.uri.query().unwrap_or_default().to_owned();
        if let Some(call) = path.strip_prefix(CALLS) {
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

/// Starts a server that runs until the process ends, and returns its port.
pub(crate) fn serve() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it has one").port();
    listener.set_nonblocking(true).expect("for the runtime");
    let cache = Cache { port, ..Cache::default() };
    std::thread::spawn(move || {
        leaves::runtime().block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).expect("it listens");
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                let cache = cache.clone();
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
    port
}

/// The library reads the version of the protocol from the environment, so the test starts itself
/// with that variable set.
#[test]
fn actions_cache() {
    const VERSION: &str = "ACTIONS_CACHE_SERVICE_V2";
    if std::env::var_os(VERSION).is_none() {
        let this = std::env::current_exe().expect("this test");
        let status = std::process::Command::new(this)
            .args(["--exact", "actions::actions_cache", "--nocapture"])
            .env(VERSION, "true")
            .env_remove("GITHUB_SERVER_URL")
            .status();
        assert!(status.expect("it starts").success());
        return;
    }
    let url: &'static str = Box::leak(format!("http://127.0.0.1:{}/", serve()).into_boxed_str());
    let variables = Box::leak(Box::new([("ACTIONS_RUNTIME_TOKEN", "hush-token"), ("ACTIONS_RESULTS_URL", url)]));
    leaves::conforms_with("ghac://team/x", variables);
}
