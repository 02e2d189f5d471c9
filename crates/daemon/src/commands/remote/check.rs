//! `larder remote check`: tries every operation that larder needs on each remote.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use larder_config::masked;
use larder_model::Digest;
use larder_remote::{Key, Put, Remote, RemoteError, Trouble, collect, whole};
use serde_json::json;

use super::super::{FINE, PROBLEM, plain_table, print_json, print_table};
use crate::cli::AsJson;
use crate::remote::keys::exposed;
use crate::remote::remote_client::open;
use crate::say;
use crate::surroundings::Surroundings;

/// The number of requests whose median is the latency.
const ASKED: usize = 7;
/// The size of the test object, with which throughput is measured, in bytes.
const PROBE_BYTES: usize = 1 << 20;
/// A third of the time in which all steps of a remote must succeed.
const PATIENCE: Duration = Duration::from_secs(10);

/// The results for one remote.
#[derive(Default)]
struct CheckResult {
    name: String,
    latency: Option<Duration>,
    read: Option<f64>,
    write: Option<f64>,
    read_only: bool,
    problem: Option<String>,
}

/// Checks all remotes.
pub(super) fn run(around: &Surroundings, options: &AsJson, out: &mut dyn Write) -> Result<u8> {
    let settings = around.settings();
    let runtime = crate::remote::runtime()?;
    let mut all = Vec::new();
    exposed(settings).iter().for_each(|why| say::tell(why));
    for url in &settings.remote {
        let _inside = runtime.enter();
        let mut found = CheckResult { name: masked(url), ..CheckResult::default() };
        match open(url, settings) {
            Ok((remote, read_only)) => {
                found.read_only = read_only;
                runtime.block_on(ask(&remote, &mut found));
            }
            Err(error) => found.problem = Some(error.to_string()),
        }
        all.push(found);
    }
    runtime.shutdown_background();
    if options.json {
        let object = |found: &CheckResult| {
            json!({
                "remote": found.name,
                "latency_ms": found.latency.map(|latency| latency.as_secs_f64() * 1e3),
                "read_bytes_per_s": found.read.map(|rate| rate as u64),
                "write_bytes_per_s": found.write.map(|rate| rate as u64),
                "read_only": found.read_only,
                "problem": found.problem,
            })
        };
        print_json(&json!({ "remotes": all.iter().map(object).collect::<Vec<_>>() }), out)?;
    } else {
        show(&all, out)?;
    }
    Ok(if all.iter().all(|found| found.problem.is_none()) { FINE } else { PROBLEM })
}

/// Runs the steps in the order in which larder needs them. The first failing step is the problem.
async fn ask(remote: &Arc<dyn Remote>, found: &mut CheckResult) {
    found.read_only |= !remote.abilities().writable;
    let asked = tokio::time::timeout(PATIENCE * 3, steps(remote, found)).await;
    let failed = match asked {
        Ok(Ok(())) => return,
        Ok(Err(error)) => format!("{error}; {}", advice(&error, found)),
        Err(_) => format!("no answer within {} s; is there a firewall in between?", (PATIENCE * 3).as_secs()),
    };
    found.problem = Some(say::one_line(&failed));
}

async fn steps(remote: &Arc<dyn Remote>, found: &mut CheckResult) -> Result<(), RemoteError> {
    // The object is the same on every machine, so that a remote has it only once. It cannot be
    // compressed.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    let probe: Bytes = next.take(PROBE_BYTES / 8).flatten().collect::<Vec<u8>>().into();
    let key = Key::blob(Digest::of(&probe));
    // A `get` comes first, because its errors say more than those of `has`, which most services
    // send without a text.
    drop(remote.get(key).await?);
    let mut latencies = Vec::new();
    let mut there = false;
    for _ in 0..ASKED {
        let began = Instant::now();
        there = remote.has(&[key]).await?.first().copied().unwrap_or(false);
        latencies.push(began.elapsed());
    }
    latencies.sort();
    found.latency = Some(latencies[ASKED / 2]);
    if !found.read_only {
        let began = Instant::now();
        remote.put(key, probe.len() as u64, whole(probe.clone()), Put::Replace).await?;
        found.write = Some(PROBE_BYTES as f64 / began.elapsed().as_secs_f64());
        there = true;
    }
    let odd = |why| Err(RemoteError::failed(&remote.name().into(), Some(key), Trouble::Damaged, why));
    let began = Instant::now();
    // Read even if nothing was written, because a missing permission to read does not show in
    // `has`.
    let Some((_, body)) = remote.get(key).await? else {
        return if there { odd("the object exists but cannot be read") } else { Ok(()) };
    };
    if collect(remote.name(), key, body, PROBE_BYTES as u64).await? != probe {
        return odd("the bytes that were read differ from those written");
    }
    found.read = Some(PROBE_BYTES as f64 / began.elapsed().as_secs_f64());
    Ok(())
}

/// Returns what to do about an error.
fn advice(error: &RemoteError, found: &CheckResult) -> String {
    let writing = found.latency.is_some() && found.write.is_none() && !found.read_only;
    let what = match error.trouble() {
        Some(Trouble::Unreachable) => "is the server running, and are host and port right?",
        Some(Trouble::Denied) if writing => {
            "it can be read but not written: set read_only=true in its URL, or use other credentials"
        }
        Some(Trouble::Denied) if found.name.starts_with("file:") => {
            "its users need read and write permission for its directory; new files get the permissions of the directory"
        }
        Some(Trouble::Denied) => {
            return format!("{} must be those of this service, and in larder's environment", credentials(&found.name));
        }
        Some(Trouble::Tls) => "the connection is not secure: see the message above for what to change",
        Some(Trouble::NoPlace) if found.name.starts_with("http") || found.name.starts_with("webdav") => {
            "check the scheme, host, port and path of its URL"
        }
        Some(Trouble::NoPlace) => {
            "larder never creates it: check the name, or ask the administrator of the service to create it"
        }
        Some(Trouble::Busy) => "it is overloaded, or limits the rate of requests",
        Some(Trouble::Stalled) => "it accepts requests but does not answer them: check the server",
        Some(Trouble::Full) => "it can be read, but nothing is uploaded until it has free space again",
        Some(Trouble::TooLarge) => "it accepts only small objects: larger outputs will not be shared",
        Some(Trouble::Damaged | Trouble::Cut) => {
            "its answer failed verification: check the server, and proxies in between"
        }
        _ => "builds go on without it",
    };
    what.to_owned()
}

/// Returns which credentials a service needs and where they come from.
fn credentials(url: &str) -> &'static str {
    match url.split("://").next().unwrap_or_default() {
        "s3" => "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the credentials in AWS' own files,",
        "gs" | "gcs" => "GOOGLE_APPLICATION_CREDENTIALS, or the machine's own credentials,",
        "azblob" => "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_STORAGE_SAS_TOKEN,",
        "redis" | "rediss" => "user and password of the URL, or REDISCLI_AUTH,",
        "ghac" => "ACTIONS_RUNTIME_TOKEN and ACTIONS_RESULTS_URL, which a step of the job exports,",
        _ => "user and password of the URL, its header or its client certificate",
    }
}

fn show(all: &[CheckResult], out: &mut dyn Write) -> Result<()> {
    let mut table = plain_table();
    let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{}/s", say::bytes(rate as u64)));
    table.add_row(["remote", "latency", "read", "write", ""]);
    for found in all {
        let latency = found.latency.map_or("-".to_owned(), |latency| format!("{:.2} ms", latency.as_secs_f64() * 1e3));
        let write = if found.read_only { "read only".to_owned() } else { rate(found.write) };
        let state = found.problem.as_deref().map_or("ok".to_owned(), |problem| format!("problem: {problem}"));
        table.add_row([say::one_line(&found.name), latency, rate(found.read), write, state]);
    }
    print_table(&table, out)
}
