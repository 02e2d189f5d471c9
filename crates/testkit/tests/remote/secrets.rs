//! No value of a variable or argument is uploaded. No object on a remote holds one, neither as text
//! nor as a plain digest.

use std::fs;
use std::path::Path;

use larder_testkit::{Run, has, larder_text, probe_skip};

use crate::far::{FIRST, Far, SECOND};

/// Variables whose names and values no list of secrets would recognise.
const VARIABLES: [(&str, &str); 17] = [
    ("SLACK_WEBHOOK_URL", "https://hooks.slack.invalid/services/T0AAA/B0BBB/s3cr3tWebhookPart"),
    ("UPLOAD_URL", "https://blob.invalid/c?sv=2024&sig=SASsignatureSecret%3D"),
    ("DEPLOY_PIN", "pin-471147114711"),
    ("LICENSE", "ABCD-EFGH-1234-lic3nse"),
    ("OTP", "otp-998877665544"),
    ("DATABASE", "postgres://app:pgPassw0rd@db.invalid/prod"),
    ("DSN", "https://0123abcdDSN@o1.ingest.invalid/2"),
    ("NETRC_LINE", "machine git.invalid login me passwd netrcPassw0rd"),
    ("SESSION", "c00kie=sessionCookieValue"),
    ("SEED", "correct horse battery staple seedWords"),
    ("CERT", "-----BEGIN CERT-----MIIBcertBytes"),
    ("KUBE", "{\"user\":\"client-kube-data-xyzzy\"}"),
    ("PLAIN", "justAStringNobodyKnows"),
    ("X", "x-value-unguessable-42"),
    // Search paths: what was looked for along them is recorded in another way than other variables.
    ("PATH", "/usr/local/bin:/usr/bin:/bin:/opt/pathEntrySecret"),
    ("PKG_CONFIG_PATH", "/opt/pkgConfigEntrySecret"),
    ("PYTHONPATH", "/opt/pythonEntrySecret"),
];
/// Arguments that hold secrets.
const ARGUMENTS: [&str; 6] = [
    "-pArgPassw0rd",
    "--connect=argConnectString",
    "argBareWord17",
    "-DWORD=argDefineValue",
    "https://u:argUrlPart@host.invalid/",
    "arg with blanks secretBlanks",
];

/// Returns the texts that must be nowhere: each value, and each part of it that is a secret.
fn needles() -> Vec<String> {
    let values = VARIABLES.iter().map(|(_, value)| (*value).to_owned());
    let parts = ["s3cr3tWebhookPart", "SASsignatureSecret", "pgPassw0rd", "netrcPassw0rd", "ArgPassw0rd", "argUrlPart"];
    let parts = parts.into_iter().chain(["pathEntrySecret"]);
    values.chain(ARGUMENTS.map(str::to_owned)).chain(parts.map(str::to_owned)).collect()
}

fn files(dir: &Path, found: &mut Vec<Vec<u8>>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => files(&entry.path(), found),
            false => found.extend(fs::read(entry.path())),
        }
    }
}

/// Returns the object itself and everything in it that can be decompressed.
fn unpacked(object: &[u8]) -> Vec<Vec<u8>> {
    const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
    let starts = (0..object.len()).filter(|&at| object[at..].starts_with(ZSTD));
    let mut all: Vec<Vec<u8>> = starts.filter_map(|at| unzstd(&object[at..])).collect();
    all.push(object.to_vec());
    all
}

fn unzstd(bytes: &[u8]) -> Option<Vec<u8>> {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let mut child = Command::new("zstd")
        .args(["-d", "-c", "-q"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut stdin = child.stdin.take()?;
    let bytes = bytes.to_vec();
    let writing = std::thread::spawn(move || drop(stdin.write_all(&bytes)));
    let output = child.wait_with_output().ok()?;
    let _ = writing.join();
    Some(output.stdout).filter(|bytes| !bytes.is_empty())
}

#[test]
fn no_value_of_a_variable_or_argument_leaves_the_machine() {
    probe_skip!(has("cc") && has("git"), "no compiler, or no git");
    probe_skip!(has("zstd"), "no zstd, and bundles are compressed");
    let far = Far::directory();
    let place = &far.place;
    // Make a commit, so that the list and the bundle of what the build used are uploaded as well.
    let git = "git init -q . && git add -A && git -c user.name=n -c user.email=e@invalid commit -q -m m";
    place.put("y.c", "int y;\n".repeat(40));
    // The tool asks for each variable, and a script gets all of them.
    let asks: String = VARIABLES.iter().map(|(name, _)| format!("test -n \"${name}\"; ")).collect();
    place.tool("work/gen", &format!("{asks} cat x.c x.c x.c x.c x.c x.c x.c x.c > gen.out; echo done"));
    place.tool("work/gcc", &format!("{asks} cat x.c x.c x.c x.c x.c x.c x.c x.c > x.o"));
    assert_eq!(far.command(FIRST, &["sh", "-c", git]).run().code, Some(0));
    let with = |run: Run| VARIABLES.iter().fold(run, |run, (name, value)| run.env(name, value));
    let larder = larder_text().to_owned();
    let build = |store: &str| {
        let mut out = String::new();
        let _ = fs::remove_file(place.path("log"));
        for argv in [
            vec!["cc", "-DSECRET_NAME=\"argDefineValue\"", "-DWORD=argDefineValue", "-c", "y.c", "-o", "y.o"],
            [vec!["./gcc", "-c", "x.c", "-o", "x.o"], ARGUMENTS[3..4].to_vec()].concat(),
            [vec!["run", "--", "./gen"], ARGUMENTS.to_vec()].concat(),
            [vec!["run", "--", "sh", "./gen"], ARGUMENTS.to_vec()].concat(),
        ] {
            // Only the first machine uploads.
            let mode = if store == FIRST { "READ_WRITE" } else { "READ_ONLY" };
            let run = far.command(store, &[vec![larder.as_str()], argv].concat());
            let ran = with(run.env("LARDER_REMOTE_RW_MODE", mode)).run();
            assert_eq!(ran.code, Some(0), "{ran:?}");
            out.push_str(&ran.stderr);
        }
        fs::read_to_string(place.path("log")).expect("cannot read the log")
    };
    let hits = |log: &str| log.lines().filter(|line| line.contains(" hit: ")).count();
    far.larder(FIRST, &["daemon", "start"]).run().ends(0);
    let all_recorded = (0..8).any(|_| hits(&build(FIRST)) == 4);
    assert!(all_recorded, "{}", build(FIRST));
    with(far.larder(FIRST, &["remote", "push"])).run().ends(0);
    with(far.larder(FIRST, &["remote", "flush"])).run().ends(0);
    let mut objects = Vec::new();
    files(&place.path("far"), &mut objects);
    assert!(objects.len() >= 8, "records and blobs must be uploaded, but there are only {} objects", objects.len());
    let needles = needles();
    let digests: Vec<(&str, [u8; 32])> =
        VARIABLES.iter().map(|(name, value)| (*name, *blake3::hash(value.as_bytes()).as_bytes())).collect();
    let holds = |bytes: &[u8], needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
    for object in objects.iter().flat_map(|object| unpacked(object)) {
        for needle in &needles {
            assert!(
                !holds(&object, needle.as_bytes()),
                "{needle} is on the remote: {}",
                String::from_utf8_lossy(&object)
            );
        }
        for (name, digest) in &digests {
            assert!(!holds(&object, digest), "a plain digest of {name} is on the remote");
        }
    }
    // Another machine hits without any of these values. On a busy machine its tools may be faster
    // than the remote.
    let mut log = String::new();
    let has_hits = (0..10).any(|_| {
        far.larder(SECOND, &["daemon", "start"]).run().ends(0);
        far.larder(SECOND, &["clear"]).run().ends(0);
        log = build(SECOND);
        hits(&log) >= 3 && log.contains("fetched from a remote")
    });
    assert!(has_hits, "{log} {}", far.daemon_log(SECOND));
}
