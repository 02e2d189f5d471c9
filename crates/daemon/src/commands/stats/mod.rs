//! `larder stats`: how many commands were hits, misses, bypasses and fallbacks so far, and why, and
//! how much time the hits saved.
//!
//! | file | holds |
//! |---|---|
//! | `saved.rs` | the time saved, in total, today and by family |
//! | `watch.rs` | the view of a running build |

mod saved;
mod watch;

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::{Context, Result};
use comfy_table::{Cell, Table};
use indicatif::HumanCount;
use jiff::Zoned;
use larder_ipc::ask_remotes;
use larder_model::Outcome;
use larder_store::{Counters, Remote, Saved, Store, Totals};
use serde_json::{Map, Value, json};

use self::saved::{Clock, crates, families, percent, today, total};
use super::advice::advice;
use super::doctor::uncreatable;
use super::{FINE, PROBLEM, number, plain_table, print_json, print_table};
use crate::cli::Stats;
use crate::say;
use crate::surroundings::Surroundings;

/// Prints the counters, resets them, or both. With `--json --zero` the printed counts are from
/// before the reset.
pub(crate) fn run(around: &Surroundings, options: &Stats, out: &mut dyn Write) -> Result<u8> {
    if options.last_build {
        return super::last_build::stats(around, options.json, options.markdown, out);
    }
    let limit_bytes = around.settings().max_size_bytes;
    let store = match around.store() {
        Ok(store) => store,
        // A program that reads the counters expects numbers even if the store cannot be used.
        Err(error) if options.json => {
            say::tell(&say::one_line(&format!("{error:#}")));
            print_json(&object(&Totals::default(), limit_bytes), out)?;
            return Ok(if options.zero { PROBLEM } else { FINE });
        }
        Err(error) => return Err(error),
    };
    if options.watch {
        return watch::run(&store);
    }
    let totals = Counters::read(&store);
    if options.json {
        let mut object = object(&totals, limit_bytes);
        object["remotes"] = remotes(&store);
        print_json(&object, out)?;
    } else if !options.zero {
        show(&store, &totals, limit_bytes, out)?;
        show_switches(around, out)?;
    }
    if options.zero {
        zero(&store)?;
        if !options.json {
            writeln!(out, "{}: counters set to zero", store.directory().display())?;
        }
    }
    Ok(FINE)
}

/// Resets the counters. If there is no store yet, none is created.
fn zero(store: &Store) -> Result<()> {
    if store.directory().exists() {
        let counters = Counters::open(store).context("the counters cannot be written: `larder doctor` says more")?;
        counters.zero();
    }
    Ok(())
}

fn object(totals: &Totals, limit_bytes: u64) -> Value {
    fn table<R: Copy>(reasons: &[(R, u64)], code: impl Fn(R) -> &'static str) -> Value {
        let pairs = reasons.iter().map(|&(reason, count)| (code(reason).to_owned(), count.into()));
        Value::Object(pairs.collect::<Map<_, _>>())
    }
    let clock = Clock::measured();
    let counts = |saved: &Saved| json!({ "hit": saved.hit, "miss": saved.miss, "saved_us": clock.saved_us(saved), "bytes": saved.bytes });
    let by_family = families(totals).into_iter().map(|(name, saved)| (name.to_owned(), counts(&saved)));
    let of_crate = |(name, saved): (&str, Saved)| (name.to_owned(), json!({ "hit": saved.hit, "miss": saved.miss }));
    let mut of_today = counts(&today(totals, &Zoned::now()));
    of_today.as_object_mut().map(|object| object.remove("bytes"));
    json!({
        "saved_us": clock.saved_us(&total(totals)),
        "today": of_today,
        "families": by_family.collect::<Map<_, _>>(),
        "crates": crates(totals).into_iter().map(of_crate).collect::<Map<_, _>>(),
        "hit": totals.hit,
        "waited": totals.waited,
        "remote_hit": totals.remote_hit,
        "remote": remote(totals),
        "token_waits": totals.token_waits,
        "memory_waits": totals.memory_waits,
        "token_waited_ms": totals.token_waited_ms,
        "miss": totals.miss,
        "bypass": totals.bypass,
        "fallback": totals.fallback,
        "store_bytes": totals.store_bytes,
        "limit_bytes": limit_bytes,
        "bypass_reasons": table(&totals.bypass_reasons, |reason| reason.code()),
        "fallback_reasons": table(&totals.fallback_reasons, |cause| cause.code()),
        "unrecorded_reasons": table(&totals.unrecorded_reasons, |why| why.code()),
    })
}

/// Returns the counters of remotes. The durations of downloads are in microseconds and exact to a
/// factor of two.
fn remote(totals: &Totals) -> Value {
    let counts = Remote::ALL.iter().zip(totals.remote).map(|(what, count)| (what.code().to_owned(), count.into()));
    let mut object: Map<String, Value> = counts.collect();
    object.insert("fetch_median_us".to_owned(), fetch_us(totals, 5).into());
    object.insert("fetch_p90_us".to_owned(), fetch_us(totals, 9).into());
    Value::Object(object)
}

/// Returns an upper bound for the duration of this many tenths of all downloads, in microseconds.
fn fetch_us(totals: &Totals, tenths: u64) -> Option<u64> {
    let all: u64 = totals.fetches.iter().sum();
    let mut before = 0;
    let class = totals.fetches.iter().position(|count| {
        before += count;
        before > 0 && before * 10 >= all * tenths
    });
    class.map(|class| 2 << class)
}

/// Returns each remote's latencies since larderd started, from the store. A running larderd is
/// asked first, because that makes it write the current ones.
fn remotes(store: &Store) -> Value {
    if store.daemon_runs() {
        let _ = ask_remotes(&store.daemon_socket());
    }
    let said = store.latencies().and_then(|text| serde_json::from_slice(&text).ok());
    said.filter(Value::is_array).unwrap_or(Value::Array(Vec::new()))
}

/// Adds a row for each remote, and one for each size class of its downloads.
fn show_each(remotes: &Value, table: &mut Table) {
    let array = |value: &Value| value.as_array().cloned().unwrap_or_default();
    for remote in array(remotes) {
        let asked = array(&remote["asked"]);
        let sum = |what: &str| asked.iter().filter_map(|one| one[what].as_u64()).sum::<u64>();
        let name = say::one_line(remote["remote"].as_str().unwrap_or_default());
        let why = format!("requests answered, {} failed: {name}", sum("failed"));
        row(table, "  asked", sum("answered"), &why);
        let gets = asked.iter().filter(|one| matches!(one["what"].as_str(), Some("get" | "get-small")));
        for size in gets.flat_map(|one| array(&one["sizes"])) {
            let of = size["bytes_max"].as_u64().map_or("more".to_owned(), |most| format!("up to {}", say::bytes(most)));
            let ms = |us: &Value| us.as_u64().unwrap_or(0) as f64 / 1e3;
            let (median, p90) = (ms(&size["median_us"]), ms(&size["p90_us"]));
            let why = format!("of {of}: half took at most {median:.1} ms, nine of ten {p90:.1} ms");
            row(table, "    got", size["count"].as_u64().unwrap_or(0), &why);
        }
    }
}

/// Adds the rows about remotes, if there was any traffic.
fn show_remote(totals: &Totals, table: &mut Table) {
    let of = |what: Remote| totals.remote[what as usize];
    if totals.remote.iter().all(|count| *count == 0) {
        return;
    }
    let came = format!("downloaded, {} uploaded", say::bytes(of(Remote::BytesOut)));
    table.add_row(vec![Cell::new("remotes"), Cell::new(say::bytes(of(Remote::BytesIn))), Cell::new(came)]);
    for what in Remote::ALL.into_iter().filter(|what| !matches!(what, Remote::BytesIn | Remote::BytesOut)) {
        if of(what) > 0 {
            row(table, &format!("  {}", what.code()), of(what), what.sentence());
        }
    }
    if let (Some(median), Some(p90)) = (fetch_us(totals, 5), fetch_us(totals, 9)) {
        let ms = |us: u64| us as f64 / 1e3;
        let latency = format!("half of the downloads took at most {:.1} ms, nine of ten {:.1} ms", ms(median), ms(p90));
        table.add_row(vec![Cell::new("  fetches"), Cell::new(""), Cell::new(latency)]);
    }
}

fn show(store: &Store, totals: &Totals, limit_bytes: u64, out: &mut dyn Write) -> Result<()> {
    let mut table = plain_table();
    let rate = if totals.hit + totals.miss > 0 { hit_rate(totals.hit, totals.miss) } else { String::new() };
    row(&mut table, "hit", totals.hit, &rate);
    show_saved(totals, &mut table);
    if totals.waited > 0 {
        row(&mut table, "  waited", totals.waited, "for another process that ran the same action");
    }
    if totals.remote_hit > 0 {
        row(&mut table, "  remote", totals.remote_hit, "downloaded from a remote on request");
    }
    row(&mut table, "miss", totals.miss, "");
    if totals.token_waits > 0 {
        let seconds = totals.token_waited_ms as f64 / 1e3;
        let why = format!("waited for other tools to end or for memory, {seconds:.1} s in total: docs/scheduling.md");
        row(&mut table, "  queued", totals.token_waits, &why);
    }
    for (why, count) in &totals.unrecorded_reasons {
        row(&mut table, "  not recorded", *count, why.sentence());
    }
    row(&mut table, "bypass", totals.bypass, "");
    for (reason, count) in &totals.bypass_reasons {
        row(&mut table, &format!("  {}", reason.code()), *count, reason.sentence());
    }
    row(&mut table, "fallback", totals.fallback, "");
    for (cause, count) in &totals.fallback_reasons {
        row(&mut table, &format!("  {}", cause.code()), *count, cause.sentence());
    }
    show_remote(totals, &mut table);
    show_each(&remotes(store), &mut table);
    print_table(&table, out)?;
    let size = format!("about {} of {}", say::bytes(totals.store_bytes), say::limit(limit_bytes));
    let there = match uncreatable(store.directory()) {
        _ if store.directory().exists() => size,
        None => "not created yet".to_owned(),
        Some(parent) => format!("cannot be created in {}, so nothing is cached: set LARDER_DIR", parent.display()),
    };
    writeln!(out, " store: {}, {there}", store.directory().display())?;
    for path in store.old_formats() {
        writeln!(out, " not counted: {}, of an earlier version of larder (`larder doctor`)", path.display())?;
    }
    show_families(totals, out)?;
    show_crates(totals, out)?;
    show_causes(store, out)?;
    show_advice(totals, out)
}

/// Says that nothing is counted at present, if a setting has that effect.
fn show_switches(around: &Surroundings, out: &mut dyn Write) -> Result<()> {
    let settings = around.settings();
    let effect = match (settings.disable, settings.read_only) {
        (true, _) => "disable is set: larder runs every tool untouched, and counts nothing",
        (false, true) => "read_only is set: larder records nothing, and counts nothing",
        (false, false) => return Ok(()),
    };
    writeln!(out, "\n {effect} (`larder config` says where)")?;
    Ok(())
}

/// Adds the rows about the time that hits saved.
fn show_saved(totals: &Totals, table: &mut Table) {
    let all = total(totals);
    if all.hit == 0 {
        return;
    }
    let (clock, now) = (Clock::measured(), today(totals, &Zoned::now()));
    let mut line = |name: &str, saved: &Saved, what: String| {
        let time = number(say::span_us(clock.saved_us(saved)));
        table.add_row(vec![Cell::new(name), time, Cell::new(what)]);
    };
    line("  saved", &all, "of the time that tools ran, minus what the hits took".to_owned());
    if now.hit + now.miss > 0 {
        line("  today", &now, format!("of this; {}", hit_rate(now.hit, now.miss)));
    }
}

/// Prints a row for each family of tools.
fn show_families(totals: &Totals, out: &mut dyn Write) -> Result<()> {
    let clock = Clock::measured();
    let more = |saved: &Saved| vec![say::span_us(clock.saved_us(saved)), say::bytes(saved.bytes)];
    show_rates(&["by tool", "hits", "misses", "hit rate", "saved", "put in place"], &families(totals), more, out)
}

/// Prints a row for each kind of crate of Rust.
fn show_crates(totals: &Totals, out: &mut dyn Write) -> Result<()> {
    show_rates(&["by crate type", "hits", "misses", "hit rate"], &crates(totals), |_| Vec::new(), out)
}

/// Prints a table of hits and misses, with the columns that `more` adds, unless it has no row.
fn show_rates(
    header: &[&str],
    rows: &[(&str, Saved)],
    more: impl Fn(&Saved) -> Vec<String>,
    out: &mut dyn Write,
) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut table = plain_table();
    table.set_header(header);
    for (name, saved) in rows {
        let rate = percent(saved.hit, saved.miss).map_or(String::new(), |rate| format!("{rate:.1} %"));
        let counts = [HumanCount(saved.hit).to_string(), HumanCount(saved.miss).to_string(), rate];
        let cells = counts.into_iter().chain(more(saved)).map(number);
        table.add_row([Cell::new(name)].into_iter().chain(cells));
    }
    writeln!(out)?;
    print_table(&table, out)
}

/// The number of causes and reasons that are listed.
const LISTED_MAX: usize = 5;
/// The width of a line that fits any terminal.
const COLUMNS: usize = 80;

/// Prints the most frequent causes of recent misses.
fn show_causes(store: &Store, out: &mut dyn Write) -> Result<()> {
    let recents = Counters::recents(store);
    let missed = recents.iter().map(|found| found.recent());
    let missed = missed.filter(|recent| matches!(recent.outcome, Outcome::Miss(_)) && !recent.cause.is_empty());
    let mut causes: BTreeMap<String, u64> = BTreeMap::new();
    for recent in missed {
        *causes.entry(say::clean(recent.cause)).or_default() += 1;
    }
    if causes.is_empty() {
        return Ok(());
    }
    let mut causes: Vec<(u64, String)> = causes.into_iter().map(|(cause, count)| (count, cause)).collect();
    causes.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    writeln!(out, "\n why recent misses were no hits (`larder explain FILE.o` says it for one)")?;
    for (count, cause) in causes.iter().take(LISTED_MAX) {
        writeln!(out, " {count:>7}  {}", say::shortened(cause, COLUMNS - 12))?;
    }
    Ok(())
}

/// Prints what to do about the most frequent reasons.
fn show_advice(totals: &Totals, out: &mut dyn Write) -> Result<()> {
    let mut reasons: Vec<(u64, &str)> = Vec::new();
    reasons.extend(totals.bypass_reasons.iter().map(|(reason, count)| (*count, reason.code())));
    reasons.extend(totals.unrecorded_reasons.iter().map(|(reason, count)| (*count, reason.code())));
    reasons.extend(totals.fallback_reasons.iter().map(|(reason, count)| (*count, reason.code())));
    let troubles = [Remote::Failed, Remote::SendFailed, Remote::Refused];
    let trouble = troubles.into_iter().find(|what| totals.remote[*what as usize] > 0);
    if reasons.is_empty() && trouble.is_none() {
        return Ok(());
    }
    reasons.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    writeln!(out, "\n what to do about the most frequent reasons")?;
    for (_, code) in reasons.into_iter().take(LISTED_MAX) {
        writeln!(out, "   {code:<17} {}", advice(code))?;
    }
    if let Some(trouble) = trouble {
        writeln!(out, "   {:<17} `larder remote check` says what is wrong", trouble.code())?;
    }
    Ok(())
}

fn row(table: &mut Table, name: &str, count: u64, why: &str) {
    table.add_row(vec![Cell::new(name), number(HumanCount(count)), Cell::new(why)]);
}

/// Returns the share of hits among the commands that were looked up.
fn hit_rate(hit: u64, miss: u64) -> String {
    let Some(percent) = percent(hit, miss) else { return "nothing looked up".to_owned() };
    format!("{percent:.1} % of {} looked up", HumanCount(hit + miss))
}
