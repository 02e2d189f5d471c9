//! The services, a test each.

use crate::server::Server;
use crate::{many, need, sample, suite};
use bytes::Bytes;
use larder_model::Digest;
use larder_remote::{Abilities, Asked, Key, Memory, Put, Remote, RemoteUrl, connect, leaf};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A runtime with two workers, so that what is not `Send` or races shows.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// The leaf by itself, then with all that is put around it, then many writers.
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

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).into()
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
            // Without the check of what it cannot do: memory can always compare.
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

pub(crate) fn redis(password: Option<&str>) -> Option<Server> {
    let program = crate::server::program("redis-server")?;
    Some(Server::start(&program, |port, place| {
        let place = place.display().to_string();
        let mut all = words(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir", &place, "--save", ""]);
        if let Some(password) = password {
            all.extend(words(["--requirepass", password]));
        }
        all
    }))
}

#[test]
fn redis_conforms() {
    need!("redis-server");
    let server = redis(Some("hush")).expect("it is there");
    conforms(&format!("redis://:hush@127.0.0.1:{}/2?prefix=team", server.port));
}

/// An answer that takes longer than half a second, which other clients of Redis give up.
#[test]
fn redis_that_answers_late() {
    need!("redis-server");
    let server = redis(None).expect("it is there");
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
        // Two hundred round trips, one after the other, would take two minutes.
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    });
}

#[test]
fn memcached() {
    let program = need!("memcached");
    let server = Server::start(&program, |port, _| {
        words(["-l", "127.0.0.1", "-p", &port.to_string(), "-U", "0", "-m", "512", "-u", "nobody"])
    });
    conforms(&format!("memcached://127.0.0.1:{}/team/cache", server.port));
}

pub(crate) fn nginx(program: &Path, locations: &str) -> Server {
    let tls_port = crate::server::free_port();
    let started = Server::start(program, |port, place| {
        let here = place.display();
        std::fs::create_dir_all(place.join("data/team")).expect("made");
        std::fs::write(place.join("passwords"), "me:{PLAIN}hush\n").expect("written");
        let config = format!(
            "daemon off; worker_processes 2; user root; pid {here}/pid; error_log {here}/error.log;\n\
             events {{ worker_connections 256; }}\n\
             http {{\n  access_log off; client_body_temp_path {here}/body; proxy_temp_path {here}/proxy;\n  \
             fastcgi_temp_path {here}/fastcgi; uwsgi_temp_path {here}/uwsgi; scgi_temp_path {here}/scgi;\n  \
             server {{ listen 127.0.0.1:{port}; root {here}/data; client_max_body_size 0;\n  \
             {locations}\n  }}\n}}\n",
            locations = locations.replace("HERE", &here.to_string()).replace("TLS", &tls_port.to_string()),
        );
        std::fs::write(place.join("nginx.conf"), config).expect("written");
        words(["-e", &format!("{here}/error.log"), "-c", &format!("{here}/nginx.conf")])
    });
    started.with_second_port(tls_port)
}

pub(crate) const NGINX_PUT: &str = "location / { dav_methods PUT; create_full_put_path on; \
                             auth_basic cache; auth_basic_user_file HERE/passwords; }";

#[test]
fn http() {
    let program = need!("nginx");
    let server = nginx(&program, NGINX_PUT);
    conforms(&format!("http://me:hush@127.0.0.1:{}/team/cache", server.port));
}

#[test]
fn webdav() {
    let program = need!("nginx");
    let server = nginx(&program, "location / { dav_methods PUT MKCOL DELETE; }");
    conforms(&format!("webdav://127.0.0.1:{}/team", server.port));
}

/// An S3 server that checks signatures, with one bucket.
pub(crate) fn s3(program: &Path) -> Server {
    let keys = [("ROOT_ACCESS_KEY", "larder"), ("ROOT_SECRET_KEY", "hush-hush")];
    Server::start_with(program, &keys, |port, place| {
        let data: PathBuf = place.join("data");
        std::fs::create_dir_all(data.join("team")).expect("made");
        words(["--port", &format!("127.0.0.1:{port}"), "--quiet", "posix", &data.display().to_string()])
    })
}

#[test]
fn s3_conforms() {
    let program = need!("versitygw");
    let server = s3(&program);
    let keys = &[("AWS_ACCESS_KEY_ID", "larder"), ("AWS_SECRET_ACCESS_KEY", "hush-hush")];
    conforms_with(&format!("s3://team/some/prefix?endpoint=http://127.0.0.1:{}", server.port), keys);
}

#[test]
fn remote_execution() {
    let program = need!("buildbox-casd");
    let server = Server::start(&program, |port, place| {
        words([&format!("--bind=127.0.0.1:{port}"), &place.join("cas").display().to_string()].map(String::as_str))
    });
    conforms(&format!("grpc://127.0.0.1:{}", server.port));
}
