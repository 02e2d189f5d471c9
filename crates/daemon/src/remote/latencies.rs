//! Response times of each remote by kind of request and size, kept in the store for `larder stats`.
//! They count since larderd started, for all scheduling classes together.
//!
//! Unaware of: which program reads them.

use std::sync::Arc;
use std::time::Duration;

use larder_remote::{Asked, Counts, SIZE_CLASSES};
use serde_json::{Value, json};

use super::remote_client::RemoteClient;
use super::shared::{Shared, on_disk};

/// How often to check for new requests.
const EVERY: Duration = Duration::from_secs(1);

/// Writes the latencies whenever there were new requests, for ever.
pub(super) async fn keep(shared: Arc<Shared>) {
    let mut last = 0;
    loop {
        tokio::time::sleep(EVERY).await;
        let now = requests(&shared);
        if now != last {
            last = now;
            let its = Arc::clone(&shared);
            let _ = on_disk(&tokio::runtime::Handle::current(), move || its.keep_latencies()).await;
        }
    }
}

fn requests(shared: &Shared) -> u64 {
    let opened = shared.client.iter().filter_map(|client| client.get());
    let counts =
        opened.flat_map(RemoteClient::counts).flat_map(|(_, counts)| Asked::ALL.map(|asked| counts.sum(asked)));
    counts.map(|sum| sum.answered + sum.failed + sum.cancelled).sum()
}

impl Shared {
    /// Writes the latencies to the store. An error only loses statistics.
    pub(super) fn keep_latencies(&self) {
        let fars: Vec<_> = self.client.iter().filter_map(|client| client.get()).map(RemoteClient::counts).collect();
        let Some(first) = fars.first() else { return };
        let together = |at: usize| Counts::together(fars.iter().filter_map(|client| Some(client.get(at)?.1)));
        let all = first.iter().enumerate().map(|(at, (name, _))| object(name, &together(at)));
        let text = Value::Array(all.collect()).to_string();
        let _ = self.store().map(|store| store.keep_latencies(text.as_bytes()));
    }
}

/// Returns the JSON object of one remote: each kind of request that was made, with its latencies
/// for each size.
fn object(name: &str, counts: &Counts) -> Value {
    let asked = Asked::ALL.into_iter().filter_map(|asked| {
        let sum = counts.sum(asked);
        let made = sum.answered + sum.failed + sum.cancelled > 0;
        made.then(|| {
            json!({
                "what": asked.word(), "answered": sum.answered, "absent": sum.absent, "failed": sum.failed,
                "cancelled": sum.cancelled, "bytes": sum.bytes, "sizes": sizes(counts, asked),
            })
        })
    });
    json!({ "remote": name, "asked": asked.collect::<Vec<_>>() })
}

/// Returns the latencies for each size class. The last class has no upper bound. Times come from a
/// histogram and are at most twice the measured ones.
fn sizes(counts: &Counts, asked: Asked) -> Vec<Value> {
    let bounds = SIZE_CLASSES.into_iter().map(|most| (Some(most), most)).chain([(None, u64::MAX)]);
    let timed = bounds.filter_map(|(most, size)| {
        let count = counts.timed(asked, size);
        let us = |share| counts.quantile(asked, size, share).map(|time: Duration| time.as_micros() as u64);
        (count > 0).then(|| json!({ "bytes_max": most, "count": count, "median_us": us(0.5), "p90_us": us(0.9) }))
    });
    timed.collect()
}

#[cfg(test)]
mod tests {
    use larder_model::Digest;
    use larder_remote::{Key, Memory, Options, Put, stacked, whole};

    use super::*;

    #[test]
    fn each_remote_says_how_it_answered() {
        let silent = Counts::default();
        assert_eq!(object("redis://near", &silent), json!({ "remote": "redis://near", "asked": [] }));

        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("builds");
        let near = stacked(Arc::new(Memory::new("memory://near")), &Options::default());
        let key = Key::blob(Digest::of(b"bytes"));
        runtime.block_on(async {
            assert!(near.remote.get(key).await.expect("asked").is_none());
            near.remote.put(key, 5, whole(b"bytes"[..].into()), Put::Replace).await.expect("put");
        });
        let said = object(near.remote.name(), &Counts::together([&*near.counts, &silent, &*near.counts]));
        let [get, put] = said["asked"].as_array().expect("a list").as_slice() else { panic!("{said}") };
        assert_eq!(
            (&said["remote"], &get["what"], &put["what"]),
            (&json!("memory://near"), &json!("get"), &json!("put"))
        );
        assert_eq!((&get["answered"], &get["absent"], &put["bytes"]), (&json!(2), &json!(2), &json!(10)));
        let sizes = put["sizes"].as_array().expect("a list");
        assert_eq!((sizes.len(), &sizes[0]["bytes_max"], &sizes[0]["count"]), (1, &json!(4096), &json!(2)));
        assert!(sizes[0]["median_us"].as_u64() <= sizes[0]["p90_us"].as_u64());
    }
}
