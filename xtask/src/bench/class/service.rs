//! `benches/beside` as a process beside the build.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Until it is at work.
const WARM_UP: Duration = Duration::from_millis(300);

pub(crate) struct Service {
    child: Child,
    is_hog: bool,
}

/// How it fared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fared {
    pub(crate) pings_ms: Vec<f64>,
    pub(crate) missed: f64,
    pub(crate) mb_per_s: f64,
}

impl Service {
    pub(crate) fn start(program: &Path, processors: &str, is_hog: bool) -> Result<Self> {
        let mut command = Command::new("taskset");
        command.args(["-c", processors]).arg(program);
        if is_hog {
            command.arg("--hog");
        }
        let child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("taskset cannot be started")?;
        sleep(WARM_UP);
        Ok(Self { child, is_hog })
    }

    pub(crate) fn end(mut self) -> Result<Option<Fared>> {
        drop(self.child.stdin.take());
        let output = self.child.wait_with_output()?;
        ensure!(output.status.success(), "what ran beside the build ended with {}", output.status);
        if self.is_hog {
            return Ok(None);
        }
        let json: Value = serde_json::from_slice(&output.stdout).context("what ran beside the build said no JSON")?;
        let number = |name: &str| json[name].as_f64().with_context(|| format!("it says nothing of {name}"));
        let pings = json["pings_us"].as_array().into_iter().flatten().filter_map(Value::as_f64);
        Ok(Some(Fared {
            pings_ms: pings.map(|us| us / 1000.0).collect(),
            missed: number("missed")? / number("frames")?.max(1.0),
            mb_per_s: number("received_bytes")? / 1e6 / number("seconds")?,
        }))
    }
}
