use super::*;

fn read(text: &str) -> Service {
    match text.parse::<RemoteUrl>() {
        Ok(url) => url.service,
        Err(error) => panic!("{error}"),
    }
}

/// Checks which part the error names, and that no message shows a secret (`hush`).
fn check(text: &str, part: &str) {
    let error = text.parse::<RemoteUrl>().expect_err(text);
    let RemoteError::Url { part: found, .. } = &error else { panic!("{error}") };
    assert_eq!(*found, part, "{text}: {error}");
    assert!(!error.to_string().contains("hush"), "{error}");
    assert!(!format!("{error:?}").contains("hush"), "{error:?}");
}

#[test]
fn every_scheme() {
    assert!(matches!(read("file:///var/cache/larder"), Service::File { directory } if directory.ends_with("larder")));
    let Service::S3 { bucket, prefix, endpoint, region, .. } =
        read("s3://team.cache/a/b/?endpoint=http://127.0.0.1:9000/&region=eu-north-1")
    else {
        panic!()
    };
    assert_eq!((&*bucket, &*prefix), ("team.cache", "a/b"));
    assert_eq!((endpoint.as_deref(), region.as_deref()), (Some("http://127.0.0.1:9000"), Some("eu-north-1")));
    assert!(matches!(read("gs://b"), Service::Gcs { prefix, .. } if prefix.is_empty()));
    assert!(read("gcs://b/p") == read("gs://b/p"));
    assert!(matches!(read("azblob://c/p?account=a"), Service::Azblob { account: Some(a), .. } if a == "a"));
    assert!(matches!(read("redis://h"), Service::Redis { address, database: 0, .. } if address == "h:6379"));
    assert!(matches!(read("redis://[::1]"), Service::Redis { address, .. } if address == "[::1]:6379"));
    assert!(matches!(read("rediss://h:1/3"), Service::Redis { database: 3, tls: Some(_), .. }));
    assert!(matches!(read("memcached://h?ttl=30"), Service::Memcached { address, .. } if address == "h:11211"));
    assert!(matches!(read("http://h/c/"), Service::Http { base, webdav: false, .. } if base == "http://h:80/c"));
    assert!(matches!(read("webdavs://h"), Service::Http { base, webdav: true, .. } if base == "https://h:443"));
    assert!(matches!(read("ghac://"), Service::Ghac { prefix } if prefix.is_empty()));
    assert!(matches!(read("ghac://team/x"), Service::Ghac { prefix } if prefix == "team/x"));
    assert!(matches!(read("grpc://h:8980/main/linux"), Service::Grpc { instance, .. } if instance == "main/linux"));
    let Service::Grpc { tls: Some(tls), address, .. } = read("grpcs://h?client_certificate=/c&client_key=/k") else {
        panic!()
    };
    assert_eq!((tls.client_key, &*address), (Some("/k".into()), "h:443"));
}

#[test]
fn what_is_wrong_is_named_by_its_part() {
    for (text, part) in [
        ("", "scheme"),
        ("/some/directory", "scheme"),
        ("ftp://h/x", "scheme"),
        ("s3:bucket", "scheme"),
        ("s3://", "bucket"),
        ("s3://bucket:9000/p", "port"),
        ("s3://me:hush@bucket", "user"),
        ("s3://bucket?secret_access_key=hush", "query"),
        ("s3://bucket?endpoint=127.0.0.1:9000", "query"),
        ("s3://bucket?endpoint=http://me:hush@h", "query"),
        ("s3://bucket?region=a&region=b", "query"),
        ("s3://bucket?anonymous=perhaps", "query"),
        ("s3://bucket/a/b c", "path"),
        ("redis://", "host"),
        ("redis://h:0", "port"),
        ("redis://h:70000", "port"),
        ("redis://:hush@h/main", "path"),
        ("redis://me:hush/x@h/main", "port"),
        ("redis://h?ttl=soon", "query"),
        ("memcached://me:hush@h", "user"),
        ("memcached://[::1]", "host"),
        ("memcached://h?ttl=31", "query"),
        ("http://h?unknown", "query"),
        ("http://h/#x", "fragment"),
        ("https://h?client_key=/k", "query"),
        ("https://h?ca=relative.pem", "query"),
        ("http://h?ca=/x.pem", "query"),
        ("grpc://hush@h", "user"),
        ("grpc://h?header=hush", "query"),
        ("file://host/dir", "host"),
        ("file:///", "path"),
        ("ghac://x:1", "port"),
        ("s3://b?read_only=2", "query"),
        ("s3://b?requests=0", "query"),
        ("redis://h?requests=many", "query"),
    ] {
        check(text, part);
    }
}

#[test]
fn no_credential_is_shown() {
    for text in
        ["redis://me:hush@h/1", "redis://:hush@h", "https://me:hush@h:8443/p?ca=/ca.pem", "webdav://hush:hush@h"]
    {
        let url: RemoteUrl = text.parse().expect(text);
        let shown = format!("{url} {url:?}");
        assert!(!shown.contains("hush"), "{shown}");
        assert!(shown.contains("***@h"), "{shown}");
    }
    let Service::Redis { login, .. } = read("redis://me:hu%2Fsh%40@h") else { panic!() };
    assert_eq!((login.user.as_deref(), login.password.as_deref()), (Some("me"), Some("hu/sh@")));
    assert_eq!(format!("{login:?}"), "Login(given)");
    assert!(!RemoteUrl::masked("redis://me:hu/sh@h").contains("sh"));
    for text in ["redis://me:hu/sh@h", "redis://me:hu?sh@h", "redis://me:hu#sh@h"] {
        let error = text.parse::<RemoteUrl>().expect_err(text).to_string();
        assert!(error.contains("in a password / is %2F") && !error.contains("hu"), "{error}");
    }
}

/// Every scheme that the settings accept can be parsed here. Otherwise only a log would say that it
/// cannot.
#[test]
fn all_that_settings_know_is_known() {
    for scheme in larder_config::REMOTE_SCHEMES {
        let url = format!("{scheme}://{}", if *scheme == "file" { "/dir" } else { "host" });
        assert!(url.parse::<RemoteUrl>().is_ok(), "{url}");
    }
}

#[test]
fn some_options_are_of_each() {
    assert!("s3://b?read_only=true".parse::<RemoteUrl>().expect("valid").read_only);
    assert!(!"file:///d?read_only=no".parse::<RemoteUrl>().expect("valid").read_only);
    assert_eq!("ghac://team?requests=8".parse::<RemoteUrl>().expect("valid").requests_max, Some(8));
    assert_eq!("http://h".parse::<RemoteUrl>().expect("valid").requests_max, None);
    for scheme in ["s3", "gs", "azblob", "ghac"] {
        let url: RemoteUrl = format!("{scheme}://b?ca=/ca.pem").parse().expect(scheme);
        assert_eq!(url.ca.as_deref(), Some(std::path::Path::new("/ca.pem")));
    }
    let Service::Redis { tls: Some(tls), .. } = read("rediss://h?ca=/ca.pem") else { panic!("not encrypted") };
    assert_eq!(tls.ca.as_deref(), Some(std::path::Path::new("/ca.pem")));
    assert!("redis://h?ca=/ca.pem".parse::<RemoteUrl>().is_err());
}

#[test]
fn the_files_of_a_url_are_named() {
    let files = |text: &str| {
        let url: RemoteUrl = text.parse().unwrap_or_else(|error| panic!("{error}"));
        (url.directory().map(ToOwned::to_owned), url.files().into_iter().map(ToOwned::to_owned).collect::<Vec<_>>())
    };
    let paths = |all: &[&str]| all.iter().map(std::path::PathBuf::from).collect::<Vec<_>>();
    let all = "?ca=/a%20b/ca.pem&client_certificate=/c.pem&client_key=/k.pem&header_file=/h";
    for scheme in ["https", "webdavs", "grpcs"] {
        let found = files(&format!("{scheme}://host/x{all}"));
        assert_eq!(found, (None, paths(&["/a b/ca.pem", "/c.pem", "/k.pem", "/h"])), "{scheme}");
    }
    assert_eq!(files("http://host/x?header_file=/h"), (None, paths(&["/h"])));
    assert_eq!(files("redis://host"), (None, Vec::new()));
    assert_eq!(files("file:///far%20away"), (Some("/far away".into()), Vec::new()));
}
