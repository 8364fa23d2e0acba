//! A headless Chromium, driven over the DevTools protocol.
//!
//! With `--remote-debugging-pipe` it speaks JSON that ends with a zero byte on descriptors 3 and 4; a shell puts our pipes there.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The longest wait for anything: Chromium takes long to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const NAMES: [&str; 4] = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];

/// A browser that runs, with one page at a time.
pub struct Browser {
    process: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    next: u64,
    session: Option<String>,
    /// What the page complained of since it was opened.
    pub complaints: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts one. `None` if there is none on this machine.
    pub fn start() -> Option<Browser> {
        let there = |name: &&&str| Command::new(name).arg("--version").stdin(Stdio::null()).output().is_ok();
        let name = NAMES.iter().find(there)?;
        let profile = tempfile::tempdir().unwrap();
        // Without its sandbox, which root cannot have: it opens our own page only.
        let flags = [
            "--headless",
            "--remote-debugging-pipe",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-extensions",
        ];
        let mut command = Command::new("sh");
        command.args(["-c", r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#, name]).args(flags);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, out) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let (tell, from) = channel();
        std::thread::spawn(move || {
            for message in out.split(0).map_while(Result::ok) {
                if tell.send(serde_json::from_slice(&message).expect("the browser speaks JSON")).is_err() {
                    return;
                }
            }
        });
        Some(Browser { process, to, from, next: 0, session: None, complaints: vec![], _profile: profile })
    }

    /// Opens a page, and listens to what it complains of.
    pub fn open(&mut self, address: &str) {
        self.session = None;
        self.complaints.clear();
        let target = self.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let session = self.call("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        self.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
        self.call("Page.navigate", json!({"url": address}));
    }

    /// A window of this size, of a phone or not, in light or dark.
    pub fn look_like(&mut self, width: u32, height: u32, is_phone: bool, scheme: &str) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone});
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", features);
    }

    /// The value of an expression in the page.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", asked);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer:#}");
        answer["result"]["value"].clone()
    }

    /// Asks again and again until an expression is true.
    pub fn wait_until(&mut self, expression: &str) {
        let began = Instant::now();
        while self.evaluate(&format!("Boolean({expression})")) != true {
            let shown = self.evaluate("document.body?.innerText");
            assert!(began.elapsed() < PATIENCE, "never {expression}; {:?}; on the page: {shown}", self.complaints);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// A picture of the whole page, `NAME.png` in the directory that VERBENA_PICTURES names, if it does.
    pub fn picture(&mut self, name: &str) {
        let Some(directory) = std::env::var_os("VERBENA_PICTURES") else { return };
        let picture = self.call("Page.captureScreenshot", json!({"captureBeyondViewport": true}));
        let file = std::fs::File::create(std::path::Path::new(&directory).join(format!("{name}.png"))).unwrap();
        let mut decode = Command::new("base64").arg("-d").stdin(Stdio::piped()).stdout(file).spawn().unwrap();
        decode.stdin.take().unwrap().write_all(picture["data"].as_str().unwrap().as_bytes()).unwrap();
        assert!(decode.wait().unwrap().success());
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next += 1;
        let mut message = json!({"id": self.next, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut heard =
                self.from.recv_timeout(left).unwrap_or_else(|_| panic!("{method}: no answer of the browser"));
            if heard["id"] == self.next {
                assert!(heard.get("error").is_none(), "{method}: {heard}");
                return heard["result"].take();
            }
            self.note(&heard);
        }
    }

    fn note(&mut self, event: &Value) {
        let (said, of) = (event["method"].as_str().unwrap_or_default(), &event["params"]);
        let is_bad = match said {
            "Runtime.exceptionThrown" => true,
            "Runtime.consoleAPICalled" => ["error", "warning", "assert"].iter().any(|kind| of["type"] == *kind),
            "Log.entryAdded" => ["error", "warning"].iter().any(|level| of["entry"]["level"] == *level),
            _ => false,
        };
        if is_bad {
            self.complaints.push(of.to_string());
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends when nobody is at the other end of the pipe; its profile goes after it.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
