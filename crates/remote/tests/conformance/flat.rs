//! Memory of 64 concurrent transfers. Blobs are streamed, so it must not grow with their size.

use crate::leaves::runtime;
use crate::need;
use crate::sample::{bytes, options};
use bytes::Bytes;
use futures::future::{BoxFuture, join_all};
use larder_model::Digest;
use larder_remote::{Connected, Key, Put, RemoteUrl, Remotes, Sink, connect, file_body};
use larder_testkit::{AZURE_KEYS, NGINX_PUT, S3_KEYS, Server};
use std::io;
use std::path::Path;

const TRANSFERS: usize = 64;
/// Large enough that holding all of them in memory would take three times the limit.
const BLOB_BYTES: usize = 7 << 20;
/// The limit for the whole process, including the tests.
const RESIDENT_KB_MAX: u64 = 150_000;

/// A sink that only counts bytes.
struct Nowhere(u64);

impl Sink for Nowhere {
    fn begin(&mut self) -> BoxFuture<'_, io::Result<()>> {
        self.0 = 0;
        Box::pin(async { Ok(()) })
    }

    fn more(&mut self, bytes: Bytes) -> BoxFuture<'_, io::Result<()>> {
        self.0 += bytes.len() as u64;
        Box::pin(async { Ok(()) })
    }

    fn end(&mut self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// Returns the highest resident memory since the last call, in kB.
fn peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux says it");
    let peak = line.trim().trim_end_matches(" kB").parse().expect("a number");
    std::fs::write("/proc/self/clear_refs", "5").expect("our own");
    peak
}

async fn transfers(url: &str, variables: &'static [(&str, &str)], place: &Path) {
    let url: RemoteUrl = url.parse().unwrap_or_else(|error| panic!("{error}"));
    let options = options(7, variables);
    let connected = || -> Connected { connect(&url, &options).unwrap_or_else(|error| panic!("{error}")) };
    let remotes = Remotes::of(vec![(connected(), false)], &options);
    let remote = &remotes.each()[0].remote;
    let mut digests = Vec::new();
    for number in 0..TRANSFERS {
        let content = bytes(&format!("flat {number}"), BLOB_BYTES);
        let digest = Digest::of(&content);
        std::fs::write(place.join(digest.hex()), content).expect("written");
        digests.push(digest);
    }
    peak_kb();
    let put = |digest: &Digest| {
        let key = Key::blob(*digest);
        remote.put(key, BLOB_BYTES as u64, file_body(key, place.join(digest.hex())), Put::IfAbsent)
    };
    for outcome in join_all(digests.iter().map(put)).await {
        outcome.unwrap_or_else(|error| panic!("{error}"));
    }
    let up = peak_kb();
    let get = |digest: Digest| {
        let remotes = &remotes;
        async move {
            let mut nowhere = Nowhere(0);
            let fetched = remotes.blob(&digest, BLOB_BYTES as u64, &mut nowhere).await;
            assert!(fetched.unwrap_or_else(|error| panic!("{error}")).is_some());
            assert_eq!(nowhere.0, BLOB_BYTES as u64);
        }
    };
    join_all(digests.iter().copied().map(get)).await;
    let down = peak_kb();
    println!("{url}: {TRANSFERS} transfers of {BLOB_BYTES} bytes: at most {up} kB resident up, {down} kB down");
    assert!(up.max(down) < RESIDENT_KB_MAX, "{url}: {up} kB up, {down} kB down");
}

/// Runs each service in its own process, because not all memory of an earlier one is given back.
#[test]
fn memory_stays_flat() {
    const ALONE: &str = "LARDER_TEST_ALONE";
    let Ok(service) = std::env::var(ALONE) else {
        for service in ["file", "redis", "memcached", "http", "s3", "azblob", "grpc"] {
            let this = std::env::current_exe().expect("this test");
            let mut again = std::process::Command::new(this);
            again.args(["--exact", "flat::memory_stays_flat", "--nocapture"]).env(ALONE, service);
            assert!(again.status().expect("it starts").success(), "{service}");
        }
        return;
    };
    let place = tempfile::tempdir().expect("a directory");
    let run = |url: &str, variables: &'static [(&str, &str)]| {
        runtime().block_on(transfers(url, variables, place.path()));
    };
    match &*service {
        "file" => run(&format!("file://{}", place.path().join("cache").display()), &[]),
        "redis" => {
            need!("redis-server");
            let server = Server::redis(None).expect("installed");
            run(&format!("redis://127.0.0.1:{}", server.port), &[]);
        }
        "memcached" => {
            need!("memcached");
            let server = Server::memcached().expect("installed");
            run(&format!("memcached://127.0.0.1:{}", server.port), &[]);
        }
        "azblob" => {
            need!("azurite-blob");
            let server = Server::azurite().expect("installed");
            run(&format!("azblob://team?endpoint=http://127.0.0.1:{}/devstoreaccount1", server.port), AZURE_KEYS);
        }
        "http" => {
            need!("nginx");
            let server = Server::nginx(NGINX_PUT).expect("installed");
            run(&format!("http://me:hush@127.0.0.1:{}/x", server.port), &[]);
        }
        "s3" => {
            need!("versitygw");
            let server = Server::s3().expect("installed");
            run(&format!("s3://team?endpoint=http://127.0.0.1:{}", server.port), S3_KEYS);
        }
        _ => {
            need!("buildbox-casd");
            let server = Server::casd().expect("installed");
            run(&format!("grpc://127.0.0.1:{}", server.port), &[]);
        }
    }
}
