//! A real browser that is driven by WebDriver: JSON over HTTP to `chromedriver`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

/// A headless browser. It is closed when the value is dropped.
pub(crate) struct Browser {
    driver: Child,
    session: String,
}

impl Browser {
    /// Starts a browser that prefers light or dark pages. Returns `None`, and prints the reason, if
    /// no browser can be started.
    pub(crate) fn start(home: &Path, dark: bool) -> Option<Browser> {
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").env("HOME", home).env("TMPDIR", home).stdout(Stdio::piped()).stderr(Stdio::null());
        let Ok(mut driver) = command.spawn() else {
            eprintln!("skipped: chromedriver is not installed (Debian: chromium-driver)");
            return None;
        };
        let lines = BufReader::new(driver.stdout.take().expect("not a pipe")).lines();
        let mut ports = lines.map_while(Result::ok).filter_map(|line| {
            line.split_once("started successfully on port ").map(|(_, port)| port.trim_end_matches('.').to_owned())
        });
        let Some(port) = ports.next() else {
            eprintln!("skipped: chromedriver does not start here");
            return None;
        };
        // `chromedriver` goes on writing, and would block if the pipe was not read.
        std::thread::spawn(move || ports.count());
        // Without a sandbox, because the tests run as any user and in containers, and the page is
        // our own.
        let mut arguments = vec![
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--window-size=1400,1000",
            "--disable-dev-shm-usage",
        ];
        if dark {
            arguments.push("--force-dark-mode");
            arguments.push("--blink-settings=preferredColorScheme=0");
        }
        let options = json!({ "goog:chromeOptions": { "args": arguments }, "goog:loggingPrefs": { "browser": "ALL" } });
        let base = format!("http://127.0.0.1:{port}");
        let made = post(&format!("{base}/session"), &json!({ "capabilities": { "alwaysMatch": options } }));
        let Some(id) = made["value"]["sessionId"].as_str() else {
            eprintln!("skipped: chromium does not start here: {}", made["value"]["message"]);
            let _ = driver.kill();
            let _ = driver.wait();
            return None;
        };
        Some(Browser { driver, session: format!("{base}/session/{id}") })
    }

    /// Opens a file.
    pub(crate) fn open(&self, page: &Path) {
        let answer = post(&format!("{}/url", self.session), &json!({ "url": format!("file://{}", page.display()) }));
        assert!(answer["value"].is_null(), "{answer}");
    }

    /// Returns the value of a script in the page.
    #[track_caller]
    pub(crate) fn ask(&self, script: &str) -> Value {
        let answer = post(&format!("{}/execute/sync", self.session), &json!({ "script": script, "args": [] }));
        assert!(answer["value"]["error"].is_null(), "{script}: {answer}");
        answer["value"].clone()
    }

    /// Waits until a script returns `true`.
    #[track_caller]
    pub(crate) fn wait(&self, script: &str) {
        for _ in 0..2400 {
            if self.ask(script) == true {
                return;
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        panic!("timed out waiting until the script returns true: {script}");
    }

    /// Types into the element that has the focus.
    pub(crate) fn keys(&self, keys: &str) {
        let each = keys.chars().flat_map(|key| {
            [
                json!({ "type": "keyDown", "value": key.to_string() }),
                json!({ "type": "keyUp", "value": key.to_string() }),
            ]
        });
        let actions = json!({ "actions": [{ "type": "key", "id": "k", "actions": each.collect::<Vec<_>>() }] });
        let answer = post(&format!("{}/actions", self.session), &actions);
        assert!(answer["value"].is_null(), "{answer}");
    }

    /// Returns the messages in the browser's console.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let answer = post(&format!("{}/se/log", self.session), &json!({ "type": "browser" }));
        let entries = answer["value"].as_array().cloned().unwrap_or_default();
        entries.iter().map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = ureq::delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn post(url: &str, body: &Value) -> Value {
    let request = ureq::post(url).config().http_status_as_error(false).build();
    let mut answer = request.send_json(body).unwrap_or_else(|error| panic!("{url}: {error}"));
    answer.body_mut().read_json().unwrap_or_else(|error| panic!("{url}: {error}"))
}
