//! One test for each service.

use crate::{many, need, sample, suite};
use bytes::Bytes;
use larder_model::Digest;
use larder_remote::{Abilities, Asked, Key, Memory, Put, Remote, RemoteUrl, connect, leaf};
use larder_testkit::{AZURE_KEYS, NGINX_PUT, S3_KEYS, Server};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Returns a runtime with two workers, so that races and missing `Send` bounds show.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Runs the suite on the leaf, then on the leaf with its decorators, then the test with many
/// writers.
fn conforms(url: &str) {
    conforms_with(url, &[]);
}

pub(crate) fn conforms_with(url: &str, variables: &'static [(&str, &str)]) {
    let url: RemoteUrl = url.parse().unwrap_or_else(|error| panic!("{error}"));
    runtime().block_on(async {
        let alone = leaf(&url, &sample::options(7, variables)).unwrap_or_else(|error| panic!("{error}"));
        suite::answers(&*alone).await.unwrap_or_else(|error| panic!("{error}"));
        suite::conforms(alone, "alone").await;
        let connected = connect(&url, &sample::options(7, variables)).unwrap_or_else(|error| panic!("{error}"));
        let stack = connected.remote;
        suite::conforms(stack.clone(), "stack").await;
        for size in [4 << 10, 1 << 20, 16 << 20] {
            let half_in = |asked| connected.counts.quantile(asked, size, 0.5).unwrap_or_default();
            println!(
                "{url}: up to {size} bytes, half in: put {:?}, get {:?}",
                half_in(Asked::Put),
                half_in(Asked::Get)
            );
        }
        many::none_is_lost(stack, "stack").await;
    });
}

#[test]
fn memory() {
    runtime().block_on(async {
        let all = Memory::new("memory://").abilities();
        for (name, abilities) in [
            ("all", all),
            ("last wins", Abilities { swap: false, create_new: false, ..all }),
            ("never changes", Abilities { swap: false, replace: false, ..all }),
        ] {
            let memory: Arc<dyn Remote> = Arc::new(Memory::with(name, abilities));
            // Skips the check that unsupported operations fail, because `Memory` always supports
            // compare-and-swap.
            if abilities.swap || !abilities.replace {
                many::none_is_lost(memory.clone(), name).await;
            }
            if abilities == all {
                suite::conforms(memory, name).await;
            }
        }
    });
}

#[test]
fn directory() {
    let place = tempfile::tempdir().expect("a directory");
    conforms(&format!("file://{}", place.path().join("cache").display()));
    let left: Vec<_> = std::fs::read_dir(place.path().join("cache/tmp")).expect("made").collect();
    assert!(left.is_empty(), "temporary files are left: {left:?}");
}

#[test]
fn redis_conforms() {
    need!("redis-server");
    let server = Server::redis(Some("hush")).expect("installed");
    conforms(&format!("redis://:hush@127.0.0.1:{}/2?prefix=team", server.port));
}

/// A server that answers after 600 ms. Other Redis clients give up after half a second.
#[test]
fn redis_that_answers_late() {
    need!("redis-server");
    let server = Server::redis(None).expect("installed");
    let proxy = larder_testkit::Proxy::before(([127, 0, 0, 1], server.port).into());
    proxy.set(larder_testkit::Way::Late(Duration::from_millis(600)));
    let url: RemoteUrl = format!("redis://{}", proxy.address()).parse().unwrap_or_else(|error| panic!("{error}"));
    let remote = leaf(&url, &sample::options(7, &[])).unwrap_or_else(|error| panic!("{error}"));
    runtime().block_on(async {
        let objects: Vec<(Key, Bytes)> = (0..100u64)
            .map(|number| (Key::blob(Digest::of(&number.to_le_bytes())), Bytes::from(format!("object {number}"))))
            .collect();
        let keys: Vec<Key> = objects.iter().map(|(key, _)| *key).collect();
        let began = Instant::now();
        remote.put_small(&objects, Put::Replace).await.unwrap_or_else(|error| panic!("{error}"));
        let found = remote.get_small(&keys).await.unwrap_or_else(|error| panic!("{error}"));
        assert!(found.into_iter().eq(objects.into_iter().map(|(_, bytes)| Some(bytes))));
        // Two hundred sequential round trips would take two minutes.
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    });
}

#[test]
fn memcached() {
    need!("memcached");
    let server = Server::memcached().expect("installed");
    conforms(&format!("memcached://127.0.0.1:{}/team/cache", server.port));
}

#[test]
fn http() {
    need!("nginx");
    let server = Server::nginx(NGINX_PUT).expect("installed");
    conforms(&format!("http://me:hush@127.0.0.1:{}/team/cache", server.port));
}

#[test]
fn webdav() {
    need!("nginx");
    let server = Server::nginx("location / { dav_methods PUT MKCOL DELETE; }").expect("installed");
    conforms(&format!("webdav://127.0.0.1:{}/team", server.port));
}

#[test]
fn s3_conforms() {
    need!("versitygw");
    let server = Server::s3().expect("installed");
    conforms_with(&format!("s3://team/some/prefix?endpoint=http://127.0.0.1:{}", server.port), S3_KEYS);
}

#[test]
fn google_cloud_storage() {
    need!("fake-gcs-server");
    let server = Server::gcs().expect("installed");
    conforms(&format!("gs://team/some/prefix?anonymous=yes&endpoint=http://127.0.0.1:{}", server.port));
}

#[test]
fn azure_blob_storage() {
    need!("azurite-blob");
    let server = Server::azurite().expect("installed");
    let url = format!("azblob://team/some/prefix?endpoint=http://127.0.0.1:{}/devstoreaccount1", server.port);
    conforms_with(&url, AZURE_KEYS);
}

#[test]
fn remote_execution() {
    need!("buildbox-casd");
    let server = Server::casd().expect("installed");
    conforms(&format!("grpc://127.0.0.1:{}", server.port));
}
