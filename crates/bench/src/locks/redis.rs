//! A lock as its users have it in Redis: `SET key token NX PX`, and a script that deletes the key if the token is still one's own.
//!
//! A client that finds it taken tries again after a pause, because Redis does not notify it when the lock is free.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::client::{PATIENCE, Service};

/// It is free again after this long, whatever its holder does.
const LASTS_MS: u32 = 10_000;
const SCRIPT: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

pub(super) struct Redis {
    answers: BufReader<TcpStream>,
    script: String,
    token: String,
    taken: u64,
    /// The longest pause, of which a random part is waited.
    pause: Duration,
    dice: u64,
}

impl Redis {
    /// Of a server at `address`.
    pub(super) fn connect(address: &str, pause: Duration) -> Result<Self, String> {
        let until = Instant::now() + PATIENCE;
        let stream = loop {
            match TcpStream::connect(address) {
                Ok(stream) => break stream,
                Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
                Err(error) => return Err(format!("{address}: {error}")),
            }
        };
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
        let dice = u64::from(std::process::id());
        let mut redis = Redis {
            answers: BufReader::new(stream),
            script: String::new(),
            token: String::new(),
            taken: 0,
            pause,
            dice,
        };
        redis.script = redis.ask(&["SCRIPT", "LOAD", SCRIPT])?.ok_or("no script was loaded")?;
        Ok(redis)
    }

    /// Sends a command, and gives the answer: a text, a number as text, or nothing.
    fn ask(&mut self, words: &[&str]) -> Result<Option<String>, String> {
        let text = |error: std::io::Error| error.to_string();
        let mut command = format!("*{}\r\n", words.len());
        for word in words {
            command.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.answers.get_mut().write_all(command.as_bytes()).map_err(text)?;
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(text)?;
        let line = line.trim_end();
        match line.split_at_checked(1) {
            Some(("+" | ":", rest)) => Ok(Some(rest.to_owned())),
            Some(("$", "-1")) => Ok(None),
            Some(("$", length)) => {
                let length: usize = length.parse().map_err(|_| format!("no length: {line}"))?;
                if length > SCRIPT.len() {
                    return Err(format!("an answer of {length} bytes"));
                }
                let mut bytes = vec![0; length + 2];
                self.answers.read_exact(&mut bytes).map_err(text)?;
                Ok(Some(String::from_utf8_lossy(&bytes[..length]).into_owned()))
            }
            _ => Err(format!("no answer: {line}")),
        }
    }

    fn wait(&mut self) {
        if self.pause.is_zero() {
            return;
        }
        // Knuth's multiplier for 64 bits: clients only have to differ.
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let part = (self.dice >> 33) as f64 / f64::from(1_u32 << 31);
        std::thread::sleep(self.pause.mul_f64(part));
    }
}

impl Service for Redis {
    fn acquire(&mut self, name: &str) -> Result<(), String> {
        self.taken += 1;
        self.token = format!("{}-{}", std::process::id(), self.taken);
        let (token, lasts) = (self.token.clone(), LASTS_MS.to_string());
        let until = Instant::now() + PATIENCE;
        while self.ask(&["SET", name, &token, "NX", "PX", &lasts])?.is_none() {
            if Instant::now() > until {
                return Err(format!("not free within {PATIENCE:?}"));
            }
            self.wait();
        }
        Ok(())
    }

    fn release(&mut self, name: &str) -> Result<(), String> {
        let (script, token) = (self.script.clone(), self.token.clone());
        match self.ask(&["EVALSHA", &script, "1", name, &token])?.as_deref() {
            Some("1") => Ok(()),
            other => Err(format!("a release ended with {other:?}")),
        }
    }
}
