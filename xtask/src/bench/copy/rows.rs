//! What the program printed, as tables: all ways, and the cheapest beside larder's.

use crate::table::{NONE, Table};
use anyhow::{Context, Result};
use larder_samples::quantile;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// What one way cost in one place, for one size and state of the destination.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cost {
    place: String,
    way: String,
    /// Where the way stands among all.
    order: u64,
    size_bytes: usize,
    /// Or what is done with the bytes, where they are put nowhere.
    destination: String,
    refused: Option<String>,
    cpu: Vec<Duration>,
    wall: Vec<Duration>,
}

/// The system calls by which larder moved a file's bytes, in words.
#[derive(Clone, Debug)]
pub(crate) struct Did {
    pub(crate) place: String,
    pub(crate) size_bytes: usize,
    pub(crate) calls: String,
}

const FRESH: &str = "fresh";
/// The way that is larder's.
pub(crate) const LARDER: &str = "larder";
/// What the names of ways begin with that store files compressed.
const COMPRESSED: &[&str] = &["lz4", "zstd"];

impl Cost {
    fn cpu_median(&self) -> Duration {
        quantile(self.cpu.clone(), 1, 2)
    }

    /// Nothing was at the destination, and the way is possible there.
    pub(crate) fn is_fresh(&self) -> bool {
        self.destination == FRESH && !self.cpu.is_empty()
    }

    /// Of the same place and size, to the same end.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        (&self.place, self.size_bytes, &self.destination) == (&other.place, other.size_bytes, &other.destination)
    }

    pub(crate) fn spot(&self) -> &str {
        &self.place
    }

    pub(crate) fn way(&self) -> &str {
        &self.way
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// CPU time of each run, in s.
    pub(crate) fn cpu_s(&self) -> Vec<f64> {
        self.cpu.iter().map(Duration::as_secs_f64).collect()
    }

    fn is_same(&self, other: &Self) -> bool {
        (&self.place, &self.way, self.size_bytes, &self.destination)
            == (&other.place, &other.way, other.size_bytes, &other.destination)
    }

    fn cell(&self) -> String {
        if self.cpu.is_empty() {
            return NONE.to_owned();
        }
        let quartile = quantile(self.cpu.clone(), 1, 4);
        let wall = quantile(self.wall.clone(), 1, 2);
        format!("{} / {} / {}", micros(self.cpu_median()), micros(quartile), micros(wall))
    }

    /// For programs, with every sample.
    pub(crate) fn json(&self) -> Value {
        let ns = |times: &[Duration]| -> Vec<u128> { times.iter().map(Duration::as_nanos).collect() };
        json!({
            "place": self.place,
            "way": self.way,
            "size_bytes": self.size_bytes,
            "destination": self.destination,
            "refused": self.refused,
            "cpu_ns_median": self.cpu_median().as_nanos(),
            "cpu_ns": ns(&self.cpu),
            "wall_ns": ns(&self.wall),
        })
    }
}

/// Adds the lines that the program printed in `place`.
pub(crate) fn add(costs: &mut Vec<Cost>, place: &str, text: &str) -> Result<()> {
    for line in text.lines() {
        let cost = read(place, line).with_context(|| format!("the program printed: {line}"))?;
        match costs.iter_mut().find(|known| known.is_same(&cost)) {
            Some(known) => {
                known.cpu.extend(cost.cpu);
                known.wall.extend(cost.wall);
            }
            None => costs.push(cost),
        }
    }
    Ok(())
}

fn read(place: &str, line: &str) -> Result<Cost> {
    let json: Value = serde_json::from_str(line)?;
    let text = |name: &str| json[name].as_str().map(ToOwned::to_owned);
    let times = |name: &str| -> Vec<Duration> {
        let list = json[name].as_array().into_iter().flatten();
        list.filter_map(Value::as_u64).map(Duration::from_nanos).collect()
    };
    Ok(Cost {
        place: place.to_owned(),
        way: text("way").context("no way")?,
        order: json["order"].as_u64().context("no order")?,
        size_bytes: json["size_bytes"].as_u64().context("no size")? as usize,
        destination: text("destination").or(text("task")).context("no destination and no task")?,
        refused: text("refused"),
        cpu: times("cpu_ns"),
        wall: times("wall_ns"),
    })
}

/// A row for each place, way and state of the destination, or whatever else `third` says; a column for each size.
pub(crate) fn all(costs: &[Cost], sizes_bytes: &[usize], third: &str) -> Table {
    let mut header = vec!["place".to_owned(), "way".to_owned(), third.to_owned()];
    header.extend(sizes_bytes.iter().map(|&bytes| shown(bytes)));
    let mut table = Table { header, words: 3, rows: Vec::new() };
    let mut lines: Vec<(&str, &str, &str)> = Vec::new();
    let mut ordered: Vec<&Cost> = costs.iter().collect();
    ordered.sort_by_key(|cost| (place_in(costs, &cost.place), cost.order));
    for cost in ordered {
        let line = (cost.place.as_str(), cost.way.as_str(), cost.destination.as_str());
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    for (place, way, destination) in lines {
        let of = |size_bytes: &usize| {
            let same = |cost: &&Cost| {
                (cost.place.as_str(), cost.way.as_str(), cost.destination.as_str()) == (place, way, destination)
                    && cost.size_bytes == *size_bytes
            };
            costs.iter().find(same).map_or(NONE.to_owned(), Cost::cell)
        };
        let cells = sizes_bytes.iter().map(of);
        table.rows.push([place, way, destination].map(ToOwned::to_owned).into_iter().chain(cells).collect());
    }
    table
}

fn place_in(costs: &[Cost], place: &str) -> usize {
    costs.iter().position(|cost| cost.place == place).unwrap_or(usize::MAX)
}

const BEST_HEADER: &[&str] = &[
    "place",
    "size",
    "cheapest way",
    "larder does",
    "cheapest µs",
    "larder µs",
    "÷ cheapest",
    "copy_file_range µs",
    "cheapest compressed µs",
];

/// A row for each place and size: the cheapest way, and larder's.
pub(crate) fn best(costs: &[Cost], did: &[Did], sizes_bytes: &[usize]) -> (Table, Vec<Value>) {
    let mut table = Table::new(4, BEST_HEADER);
    let mut rows = Vec::new();
    let mut places: Vec<&str> = costs.iter().map(|cost| cost.place.as_str()).collect();
    places.dedup();
    places.sort_by_key(|place| place_in(costs, place));
    places.dedup();
    for (place, &size_bytes) in places.iter().flat_map(|place| sizes_bytes.iter().map(move |size| (*place, size))) {
        let here: Vec<&Cost> = costs
            .iter()
            .filter(|cost| cost.place == place && cost.size_bytes == size_bytes && cost.destination == FRESH)
            .filter(|cost| !cost.cpu.is_empty())
            .collect();
        let is_compressed = |cost: &Cost| COMPRESSED.iter().any(|name| cost.way.starts_with(name));
        let cheapest = |wanted: &dyn Fn(&Cost) -> bool| {
            here.iter().filter(|cost| wanted(cost)).min_by_key(|cost| cost.cpu_median()).copied()
        };
        let named = |name: &str| cheapest(&|cost| cost.way == name);
        let (Some(least), Some(larder)) = (cheapest(&|cost| cost.way != LARDER), named(LARDER)) else { continue };
        let calls = did.iter().find(|did| did.place == place && did.size_bytes == size_bytes);
        let calls = calls.map_or(NONE, |did| did.calls.as_str());
        let ratio = larder.cpu_median().as_secs_f64() / least.cpu_median().as_secs_f64().max(f64::EPSILON);
        let time = |cost: Option<&Cost>| cost.map_or(NONE.to_owned(), |cost| micros(cost.cpu_median()));
        table.rows.push(vec![
            place.to_owned(),
            shown(size_bytes),
            least.way.clone(),
            calls.to_owned(),
            time(Some(least)),
            time(Some(larder)),
            format!("{ratio:.2}"),
            time(named("copy_file_range")),
            time(cheapest(&is_compressed)),
        ]);
        rows.push(json!({
            "place": place,
            "size_bytes": size_bytes,
            "cheapest": least.way,
            "cheapest_cpu_ns": least.cpu_median().as_nanos(),
            "larder_does": calls,
            "larder_cpu_ns": larder.cpu_median().as_nanos(),
        }));
    }
    (table, rows)
}

/// The calls in strace's output that moved most of the bytes.
pub(crate) fn movers(trace: &str) -> String {
    let mut moved: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for line in trace.lines() {
        let Some((name, rest)) = line.split_once('(') else { continue };
        let result = rest.rsplit_once(" = ").and_then(|(_, result)| result.split(' ').next()?.parse::<u64>().ok());
        if rest.contains("FICLONE") && result == Some(0) {
            return "reflink".to_owned();
        }
        if let Some(bytes) = result.filter(|&bytes| bytes > 0 && !rest.starts_with("1,")) {
            let (calls, sum) = moved.entry(name).or_default();
            *calls += 1;
            *sum += bytes;
        }
    }
    // What is read is written as well: one name for both.
    let most = moved.into_iter().filter(|(name, _)| *name != "read").max_by_key(|(_, (_, bytes))| *bytes);
    match most {
        None => NONE.to_owned(),
        Some((name, (1, _))) => name.to_owned(),
        Some((name, (calls, bytes))) => format!("{name} × {calls}, {} each", shown((bytes / calls) as usize)),
    }
}

fn micros(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    if micros < 100.0 { format!("{micros:.1}") } else { format!("{micros:.0}") }
}

/// A size in words.
pub(crate) fn shown(bytes: usize) -> String {
    if bytes < 1_000_000 { format!("{} kB", bytes / 1000) } else { format!("{} MB", bytes / 1_000_000) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(way: &str, destination: &str, cpu_ns: &[u64]) -> String {
        let order = ["larder", "reflink", "sendfile", "lz4 64 KB, write"].iter().position(|known| *known == way);
        json!({ "order": order, "way": way, "size_bytes": 5000, "destination": destination, "cpu_ns": cpu_ns, "wall_ns": cpu_ns })
            .to_string()
    }

    #[test]
    fn the_cheapest_way_is_not_larders() {
        let mut costs = Vec::new();
        for text in [
            line("larder", "fresh", &[9_000]),
            line("sendfile", "fresh", &[12_000]),
            line("sendfile", "fresh", &[10_000, 14_000]),
            line("lz4 64 KB, write", "fresh", &[30_000]),
            line("reflink", "fresh", &[]),
            line("sendfile", "replaced", &[1_000]),
        ] {
            add(&mut costs, "ext4", &text).expect("is a line");
        }
        let did = [Did { place: "ext4".into(), size_bytes: 5000, calls: "sendfile".into() }];
        let (table, _) = best(&costs, &did, &[5000]);
        assert_eq!(table.rows, [["ext4", "5 kB", "sendfile", "sendfile", "12.0", "9.0", "0.75", NONE, "30.0"]]);
        let all = all(&costs, &[5000], "destination");
        assert_eq!(all.rows.len(), 5);
        assert_eq!(all.rows[2][3], "12.0 / 12.0 / 12.0");
        assert_eq!(all.rows[1][3], NONE);
    }

    #[test]
    fn the_calls_that_moved_most() {
        assert_eq!(
            movers("read(3, ..., 832) = 832\ncopy_file_range(3, NULL, 4, NULL, 5000, 0) = 5000\n"),
            "copy_file_range"
        );
        assert_eq!(movers("ioctl(4, BTRFS_IOC_CLONE or FICLONE, 3) = 0\n"), "reflink");
        let trace = "copy_file_range(3, NULL, 4, NULL, 9000, 0) = -1 EXDEV (Invalid cross-device link)\n\
                     write(4, \"\"..., 8000) = 8000\nwrite(4, \"\"..., 2000) = 2000\n";
        assert_eq!(movers(trace), "write × 2, 5 kB each");
    }
}
