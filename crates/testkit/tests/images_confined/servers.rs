//! Images that processes without rights fetch from real servers: TLS, names of hosts, credentials
//! in files and variables.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use larder_testkit::{
    NGINX_PUT, Place, Run, S3_KEYS, Server, Tree, is_root, larder, make_certificates, probe_skip, program,
};

use super::{USER, noise, processes, status};

/// The variables of a command.
type Variables<'a> = &'a [(&'a str, &'a str)];

fn image(place: &Place, (url, variables): (&str, Variables), words: &[&str]) -> Run {
    let run = place.image(words).env("LARDER_REMOTE", url);
    variables.iter().fold(run, |run, (name, value)| run.env(name, value))
}

/// Saves an image to a remote, and removes everything here. Returns what was saved.
fn saved(place: &Place, remote: (&str, Variables)) -> Tree {
    for number in 0..6u8 {
        place.put(&format!("deps/large/{number}"), noise(number, 1 << 19));
    }
    place.put("deps/small", "of the job");
    let before = Tree::of(&place.path("work/deps"));
    let saved = image(place, remote, &["save", "--strict", "--key", "k", "deps"]).run().ends(0);
    assert!(!saved.stderr.contains("not used"), "{}: {saved:#?}", remote.0);
    fs::remove_dir_all(place.path("store")).expect("cannot remove the store");
    fs::remove_dir_all(place.path("work/deps")).expect("cannot remove the directory");
    before
}

/// Mounts the image, which only the remote has, and compares it with what was saved.
fn is_fetched(place: &Place, remote: (&str, Variables)) {
    let before = saved(place, remote);
    for (via, word) in [("lazy", "fetch"), ("lazy-fuse", "serve")] {
        let mounted = image(place, remote, &["mount", "--strict", "--key", "k", "--via", via, "m"]).run();
        if mounted.code != Some(0) && mounted.stderr.contains("Linux") {
            eprintln!("skipped: {via}: {}", mounted.stderr);
            continue;
        }
        let tested = std::panic::catch_unwind(|| {
            assert_eq!(mounted.code, Some(0), "{}: {via}: {mounted:#?}", remote.0);
            let users = processes(place, word).iter().map(|process| status(process, "Uid")).collect::<Vec<_>>();
            assert!(users.iter().all(|user| user.starts_with(USER)) && !users.is_empty(), "{users:?}");
            assert_eq!(Tree::of(&place.path("work/m")), before, "{}: {via}", remote.0);
        });
        image(place, remote, &["unmount", "m"]).run();
        tested.expect("an assertion on the mount failed");
        // The next method has to fetch again.
        image(place, remote, &["evict", "--max-size", "0"]).run();
    }
}

/// Starts nginx with TLS, which demands this header or the client's certificate.
fn nginx_with_tls(certificates: &Path) -> Option<Server> {
    let here = certificates.display();
    Server::nginx(&format!(
        "listen 127.0.0.1:TLS ssl; ssl_certificate \"{here}/server.pem\"; ssl_certificate_key \"{here}/server.key\";\n\
         ssl_client_certificate \"{here}/ca.pem\"; ssl_verify_client optional;\n\
         location / {{ dav_methods PUT; create_full_put_path on; set $who \"\";\n\
         if ($http_x_key = hush) {{ set $who header; }} if ($ssl_client_verify = SUCCESS) {{ set $who certificate; }}\n\
         if ($who = \"\") {{ return 403; }} }}"
    ))
}

/// Creates certificates in a directory with a space in its name.
fn certificates(place: &Place) -> Option<String> {
    let directory = place.path("our certificates");
    fs::create_dir(&directory).expect("cannot create the directory");
    make_certificates(&program("openssl")?, &directory);
    fs::write(directory.join("headers"), "X-Key: hush\n").expect("cannot write the file");
    for entry in fs::read_dir(&directory).expect("cannot list the directory").flatten() {
        fs::set_permissions(entry.path(), PermissionsExt::from_mode(0o600)).expect("cannot set the mode");
    }
    Some(directory.to_str().expect("not UTF-8").to_owned())
}

#[test]
fn over_http() {
    probe_skip!(is_root(), "only root can mount without a broker");
    let Some(server) = Server::nginx(NGINX_PUT) else { return eprintln!("skipped: nginx is not installed") };
    let place = Place::new();
    // Names are resolved, too.
    is_fetched(&place, (&format!("http://me:hush@localhost:{}/cache", server.port), &[]));
}

#[test]
fn over_https_with_files_of_certificates_and_headers() {
    probe_skip!(is_root(), "only root can mount without a broker");
    for (query, variables) in [
        ("ca=HERE/ca.pem&header_env=CACHE_HEADERS", &[("CACHE_HEADERS", "X-Key: hush")][..]),
        ("ca=HERE/ca.pem&header_file=HERE/headers", &[]),
        ("ca=HERE/ca.pem&client_certificate=HERE/client.pem&client_key=HERE/client.key", &[]),
    ] {
        let place = Place::new();
        let Some(here) = certificates(&place) else { return eprintln!("skipped: openssl is not installed") };
        let Some(server) = nginx_with_tls(here.as_ref()) else { return eprintln!("skipped: nginx is not installed") };
        let query = query.replace("HERE", &here.replace(' ', "%20"));
        is_fetched(&place, (&format!("https://localhost:{}/x?{query}", server.tls_port()), variables));
    }
}

#[test]
fn over_https_with_certificates_that_variables_name() {
    probe_skip!(is_root(), "only root can mount without a broker");
    for (name, value) in [("SSL_CERT_FILE", "HERE/ca.pem"), ("SSL_CERT_DIR", "/nowhere:HERE/all")] {
        let place = Place::new();
        let Some(here) = certificates(&place) else { return eprintln!("skipped: openssl is not installed") };
        let Some(server) = nginx_with_tls(here.as_ref()) else { return eprintln!("skipped: nginx is not installed") };
        fs::create_dir(format!("{here}/all")).expect("cannot create the directory");
        // The name that OpenSSL gives to files of such a directory. Only its form matters here.
        fs::copy(format!("{here}/ca.pem"), format!("{here}/all/0a1b2c3d.0")).expect("cannot copy the file");
        let value = value.replace("HERE", &here);
        let url = format!("https://127.0.0.1:{}/x?header_env=H", server.tls_port());
        is_fetched(&place, (&url, &[(name, &value), ("H", "X-Key: hush")]));
    }
}

/// The host's name is in `/etc/hosts`, and the CA is among those of the system. Both are files that
/// are mounted, as in a container.
#[test]
fn over_https_with_names_and_certificates_of_the_system() {
    probe_skip!(is_root() && larder_testkit::can_mount(), "only root can mount without a broker");
    let bundle = "/etc/ssl/certs/ca-certificates.crt";
    probe_skip!(Path::new(bundle).exists(), "this system has no {bundle}");
    let place = Place::new();
    let Some(here) = certificates(&place) else { return eprintln!("skipped: openssl is not installed") };
    let Some(server) = nginx_with_tls(here.as_ref()) else { return eprintln!("skipped: nginx is not installed") };
    let local = (
        &*format!("https://127.0.0.1:{}/x?ca={}/ca.pem&header_env=H", server.tls_port(), here.replace(' ', "%20")),
        &[("H", "X-Key: hush")][..],
    );
    let before = saved(&place, local);
    // Files of the system can be read by every user.
    let ca = fs::read(format!("{here}/ca.pem")).expect("cannot read the file");
    fs::write(place.path("tmp/ca.pem"), ca).expect("cannot write the file");
    fs::write(place.path("tmp/hosts"), "127.0.0.1 localhost cache.test\n").expect("cannot write the file");
    let script = format!(
        "mount --bind \"$TMPDIR/ca.pem\" {bundle} && mount --bind \"$TMPDIR/hosts\" /etc/hosts || exit 77\n\
         '{larder}' image mount --strict --key k --via lazy m || exit 1\n\
         cp -a m back; copied=$?; '{larder}' image unmount m; exit $copied",
        larder = larder().display()
    );
    let run = place.run(&["unshare", "-m", "sh", "-c", &script]).env("H", "X-Key: hush");
    let run = run.env("LARDER_REMOTE", format!("https://cache.test:{}/x?header_env=H", server.tls_port())).run();
    probe_skip!(run.code != Some(77), "these files cannot be mounted: {}", run.stderr);
    run.ends(0);
    assert_eq!(Tree::of(&place.path("work/back")), before);
}

#[test]
fn from_s3_with_keys_in_variables_or_a_file() {
    probe_skip!(is_root(), "only root can mount without a broker");
    let Some(server) = Server::s3() else { return eprintln!("skipped: versitygw is not installed") };
    let url = |prefix: &str| format!("s3://team/{prefix}?endpoint=http://localhost:{}", server.port);
    is_fetched(&Place::new(), (&url("variables"), S3_KEYS));
    let place = Place::new();
    let keys = format!("[ci]\naws_access_key_id = {}\naws_secret_access_key = {}\n", S3_KEYS[0].1, S3_KEYS[1].1);
    fs::create_dir(place.path("home/.aws")).expect("cannot create the directory");
    fs::write(place.path("home/.aws/credentials"), keys).expect("cannot write the file");
    fs::set_permissions(place.path("home/.aws/credentials"), PermissionsExt::from_mode(0o600))
        .expect("cannot set the mode");
    is_fetched(&place, (&url("file"), &[("AWS_PROFILE", "ci")]));
}

#[test]
fn from_redis_also_with_tls() {
    probe_skip!(is_root(), "only root can mount without a broker");
    let Some(server) = Server::redis(Some("hush")) else { return eprintln!("skipped: redis-server is not installed") };
    is_fetched(&Place::new(), (&format!("redis://localhost:{}", server.port), &[("REDISCLI_AUTH", "hush")]));
    let place = Place::new();
    let Some(here) = certificates(&place) else { return eprintln!("skipped: openssl is not installed") };
    let Some(server) = Server::redis_with_tls(here.as_ref()) else { return };
    let ca = format!("{here}/ca.pem");
    is_fetched(&place, (&format!("rediss://:hush@localhost:{}", server.tls_port()), &[("SSL_CERT_FILE", &ca)]));
}

#[test]
fn from_the_other_services() {
    probe_skip!(is_root(), "only root can mount without a broker");
    let started = [
        ("memcached", Server::memcached(), "memcached://localhost:PORT"),
        ("fake-gcs-server", Server::gcs(), "gs://team/x?endpoint=http://127.0.0.1:PORT&anonymous=true"),
        ("buildbox-casd", Server::casd(), "grpc://localhost:PORT"),
    ];
    for (name, server, url) in started {
        let Some(server) = server else {
            eprintln!("skipped: {name} is not installed");
            continue;
        };
        is_fetched(&Place::new(), (&url.replace("PORT", &server.port.to_string()), &[]));
    }
}

#[test]
fn from_a_directory_with_a_space_in_its_name() {
    probe_skip!(is_root(), "only root can mount without a broker");
    let place = Place::new();
    is_fetched(&place, (&format!("file://{}/our%20remote", place.text("tmp")), &[]));
}
