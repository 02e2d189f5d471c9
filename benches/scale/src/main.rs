//! What a remote sees of teams of several sizes, and what an object store asks for that: the figures of
//! `docs/scale.md`.
//!
//! `team` draws what a team does, `remote` lets its builds ask; here it is counted and shown as tables. Unaware of:
//! larder's programs. What they do is told by constants with the place in the code where they stand.
#![forbid(unsafe_code)]

mod remote;
mod team;

use clap::Parser;

use remote::{Measured, Seen, Way};
use team::Team;

/// Simulates teams that build over one remote, and prints what that sees and costs.
#[derive(Parser)]
struct Options {
    /// Machines of the team, four of ten of them CI's; several with commas between
    #[arg(long, default_values_t = [5, 50], value_delimiter = ',', value_name = "N")]
    machines: Vec<usize>,
    /// Builds of each machine a day
    #[arg(long, default_value_t = 20, value_name = "N")]
    builds: usize,
    /// Days
    #[arg(long, default_value_t = 5, value_name = "N")]
    days: usize,
    /// Units of the project
    #[arg(long, default_value_t = 2000, value_name = "N")]
    units: usize,
    /// A record with its outputs, bytes
    #[arg(long, default_value_t = 18_500, value_name = "BYTES")]
    unit_bytes: u64,
    /// By what a bundle is smaller than what it holds
    #[arg(long, default_value_t = 4, value_name = "N")]
    packs_by: u64,
    /// Dollars for 1,000 requests that read
    #[arg(long, default_value_t = 0.0004, value_name = "USD")]
    get_price: f64,
    /// Dollars for 1,000 requests that write
    #[arg(long, default_value_t = 0.005, value_name = "USD")]
    put_price: f64,
    /// Dollars for a GB that leaves the region
    #[arg(long, default_value_t = 0.09, value_name = "USD")]
    out_price: f64,
    /// Dollars for a GB kept for a month
    #[arg(long, default_value_t = 0.023, value_name = "USD")]
    kept_price: f64,
    /// Another seed is another team
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
}

const GB: f64 = 1e9;
/// Days for which prices are shown.
const MONTH_DAYS: f64 = 30.0;
const BUNDLE_BYTES: u64 = 1 << 20;
/// A build takes about so long; others find what it recorded then.
const PUBLISHED_S: u64 = 300;

fn main() {
    let options = Options::parse();
    println!(
        "| machines | how records come | builds a day | hit rate | of it ahead | GET a build | PUT a build | MB a build out | \
         waits a build | requests, $ a month | kept, $ | out, $ |"
    );
    println!("|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for &machines in &options.machines {
        let team = Team { machines, builds: options.builds, days: options.days, units: options.units };
        let work = team.work(options.seed);
        for (way, name) in
            [(Way::Asked, "asked for"), (Way::Ahead, "ahead, one by one"), (Way::Bundles, "ahead, bundles")]
        {
            let measured = Measured {
                unit_bytes: options.unit_bytes,
                packs_by: options.packs_by,
                bundle_bytes: BUNDLE_BYTES,
                published_s: PUBLISHED_S,
            };
            println!("{}", row(&options, machines, name, &remote::seen(&work, way, &measured)));
        }
    }
}

fn row(options: &Options, machines: usize, name: &str, seen: &Seen) -> String {
    let builds = seen.builds as f64;
    let months = options.days as f64 / MONTH_DAYS;
    let hits = (seen.local + seen.remote) as f64 / seen.asked as f64;
    let requests = (seen.gets as f64 * options.get_price + seen.puts as f64 * options.put_price) / 1000.0 / months;
    // What a month puts there is kept for a month.
    let kept = seen.bytes_in as f64 / GB / months * options.kept_price;
    let out = seen.bytes_out as f64 / GB / months * options.out_price;
    format!(
        "| {machines} | {name} | {:.0} | {:.2} % | {:.1} % | {:.0} | {:.0} | {:.2} | {:.1} | {requests:.2} | {kept:.2} | {out:.2} |",
        builds / options.days as f64,
        100.0 * hits,
        100.0 * seen.ahead as f64 / seen.asked as f64,
        seen.gets as f64 / builds,
        seen.puts as f64 / builds,
        seen.bytes_out as f64 / builds / 1e6,
        seen.waited as f64 / builds,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEASURED: Measured = Measured { unit_bytes: 18_500, packs_by: 4, bundle_bytes: 1 << 20, published_s: 300 };

    /// How records come decides about requests, not about what is found; and every question has one answer.
    #[test]
    fn ways_find_the_same() {
        let work = Team { machines: 10, builds: 10, days: 2, units: 300 }.work(7);
        let [asked, ahead, bundles] =
            [Way::Asked, Way::Ahead, Way::Bundles].map(|way| remote::seen(&work, way, &MEASURED));
        for seen in [asked, ahead, bundles] {
            assert_eq!(seen.asked, seen.local + seen.remote + seen.runs);
            assert_eq!((seen.builds, seen.runs), (200, asked.runs));
        }
        assert_eq!(asked.ahead, 0);
        assert!(bundles.gets < ahead.gets && bundles.waited < asked.waited, "{asked:?} {ahead:?} {bundles:?}");
        assert!(ahead.bytes_out >= asked.bytes_out, "some of what comes ahead is for nothing");
    }

    /// A seed is a whole team.
    #[test]
    fn the_same_seed_is_the_same_team() {
        let team = Team { machines: 3, builds: 5, days: 1, units: 100 };
        let seen = |seed: u64| format!("{:?}", remote::seen(&team.work(seed), Way::Bundles, &MEASURED));
        assert_eq!(seen(1), seen(1));
        assert_ne!(seen(1), seen(2));
    }
}
