//! `verbena pool get`, `set` and the others: a client of a pool that runs.

mod tenants;
mod top;

use std::io::{Read, Write, stdin};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Map, Value};
use verbena_coop::SchemeName;
use verbena_pool::Client;
use verbena_terms::Lapse;

use crate::error::{Error, Result};
use crate::output::{Format, output, write_json};

/// Ask a pool that runs, or another server of memcached's text protocol.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print the value of a key. Exit code 1 if the key has no value.
    #[command(after_long_help = "Examples:\n  verbena pool get greeting --server 127.0.0.1:11212")]
    Get(Get),
    /// Set a key, to VALUE or to what standard input holds.
    #[command(
        after_long_help = "Examples:\n  verbena pool set greeting hello --expires 1h\n  verbena pool set photo < photo.jpg"
    )]
    Set(Set),
    /// Delete keys. Exit code 1 if one of them had no value.
    #[command(after_long_help = "Examples:\n  verbena pool rm greeting photo")]
    Rm(Rm),
    /// Give a key another time of expiry. Exit code 1 if it has no value.
    #[command(after_long_help = "Examples:\n  verbena pool touch greeting 2h")]
    Touch(Touch),
    /// List the valid objects in the memory of the pool at --server: bytes, time of expiry (seconds since 1970), key. At most the first 10000 objects are looked at.
    #[command(after_long_help = "Examples:\n  verbena pool ls --json")]
    Ls(Ls),
    /// Show the counters of the pool at --server.
    #[command(after_long_help = "Examples:\n  verbena pool stat --json")]
    Stat(Stat),
    /// Show the scheme that says where objects go, or choose another for all nodes while they run.
    #[command(
        after_long_help = "Schemes: ac, bcc, ccwr, mtacc, hybcc, adaptive. docs/concepts/pool.md says what each does.\n\nExamples:\n  verbena pool scheme\n  verbena pool scheme mtacc --server 127.0.0.1:11212"
    )]
    Scheme(Scheme),
    /// Show reads, hits and memory of all nodes of the pool, and the keys that are read most, as they change. Ctrl-C ends it.
    #[command(
        after_long_help = "The keys are those of the pool at --server. Where standard output is no terminal, each reading goes below the one before.\n\nExamples:\n  verbena pool top\n  verbena pool top --count 1 --json | jq .nodes"
    )]
    Top(top::Top),
    /// Show what each tenant has of the memory of the pool at --server, and what its clients do there. A client of a tenant sees that tenant alone.
    #[command(
        after_long_help = "Bytes, items and connections stand beside what the tenant may have at most.\n\nExamples:\n  verbena pool tenants\n  verbena pool tenants --json --server /run/user/1000/pool.sock"
    )]
    Tenants(tenants::Tenants),
    /// Delete all keys of this client's tenant in the whole pool.
    #[command(after_long_help = "Examples:\n  verbena pool flush\n  verbena pool flush --server 127.0.0.1:11213")]
    Flush(Flush),
}

/// Which pool.
#[derive(Args, Debug)]
pub struct Reach {
    /// HOST:PORT of the pool, or the path of its unix socket.
    #[arg(long, value_name = "SERVER", default_value = "127.0.0.1:11211")]
    server: String,
    /// How long to wait for an answer.
    #[arg(long, value_name = "TIME", default_value_t = Lapse::seconds(5), value_parser = Lapse::or_seconds)]
    patience: Lapse,
    /// The authorities that may vouch for the pool's certificate, PEM. With it the command speaks TLS.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// A user of the pool's file of users. The command then sees the keys of the tenant with that name.
    #[arg(long, value_name = "NAME", requires = "password_file")]
    user: Option<String>,
    /// A file whose first line is the user's password.
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) format: Format,
}

#[derive(Args, Debug)]
pub struct Get {
    /// The key.
    key: String,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Args, Debug)]
pub struct Set {
    /// The key.
    key: String,
    /// The value. Without it, standard input to its end.
    value: Option<String>,
    /// After how long it expires, in whole seconds; 0s: never.
    #[arg(long, value_name = "TIME", default_value_t = Lapse(Duration::ZERO), value_parser = whole_seconds)]
    expires: Lapse,
    /// The flags that memcached clients store with a value.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    flags: u32,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Args, Debug)]
pub struct Rm {
    /// The keys.
    #[arg(required = true)]
    keys: Vec<String>,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Args, Debug)]
pub struct Touch {
    /// The key.
    key: String,
    /// After how long it expires, in whole seconds; 0s: never.
    #[arg(value_name = "TIME", value_parser = whole_seconds)]
    expires: Lapse,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Args, Debug)]
pub struct Ls {
    #[command(flatten)]
    reach: Reach,
}

#[derive(Args, Debug)]
pub struct Stat {
    #[command(flatten)]
    reach: Reach,
}

#[derive(Args, Debug)]
pub struct Scheme {
    /// The scheme from now on. Without it, the present one is printed.
    name: Option<SchemeName>,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Args, Debug)]
pub struct Flush {
    #[command(flatten)]
    reach: Reach,
}

impl Reach {
    pub(super) fn client(&self) -> Result<Client> {
        // A file that is not there is named before a server is asked.
        let login = match (&self.user, &self.password_file) {
            (Some(user), Some(path)) => {
                let text = std::fs::read_to_string(path);
                let failed = |source| Error::File { doing: "read the password in", path: path.clone(), source };
                Some((user, text.map_err(failed)?))
            }
            _ => None,
        };
        let mut client = match &self.tls_ca {
            Some(authorities) => Client::connect_secure(&self.server, authorities, self.patience.0)?,
            None => Client::connect(&self.server, self.patience.0)?,
        };
        if let Some((user, text)) = login {
            client.authenticate(user, text.lines().next().unwrap_or_default())?;
        }
        Ok(client)
    }
}

/// What `get --json` prints.
#[derive(Serialize)]
struct Got<'a> {
    key: &'a str,
    found: bool,
    flags: Option<u32>,
    cas: Option<u64>,
    /// Bytes of the value that are not text are replaced.
    value: Option<String>,
}

/// What the others print with `--json`.
#[derive(Serialize)]
struct Done<'a> {
    done: &'a str,
    key: Option<&'a str>,
    was_there: Option<bool>,
}

/// What `scheme --json` prints.
#[derive(Serialize)]
struct Shown {
    scheme: String,
}

/// What `ls --json` prints of each.
#[derive(Serialize)]
struct Listed {
    key: String,
    bytes: u64,
    /// Seconds of the Unix clock; 0 is never.
    expires: u64,
}

/// A time that the protocol can say.
fn whole_seconds(given: &str) -> std::result::Result<Lapse, String> {
    let lapse = Lapse::or_seconds(given).map_err(|error| error.to_string())?;
    match (lapse.0.subsec_nanos(), u32::try_from(lapse.0.as_secs())) {
        (0, Ok(_)) => Ok(lapse),
        (0, Err(_)) => Err("too long: 0s is never".into()),
        _ => Err(format!("memcached counts whole seconds: for example {}s", lapse.0.as_secs() + 1)),
    }
}

/// The protocol takes more seconds than these for a moment since 1970.
const LONGEST_LAPSE_S: u64 = 30 * 24 * 60 * 60;

/// What [`whole_seconds`] let through, as the protocol has it.
fn seconds(lapse: Lapse) -> u32 {
    let seconds = lapse.0.as_secs();
    let since_1970 = || std::time::UNIX_EPOCH.elapsed().map_or(0, |now| now.as_secs());
    let said = if seconds > LONGEST_LAPSE_S { since_1970().saturating_add(seconds) } else { seconds };
    u32::try_from(said).unwrap_or(u32::MAX)
}

fn report(format: Format, done: &Done<'_>) -> Result<()> {
    let mut out = output();
    if format.json {
        return write_json(&mut out, done);
    }
    match (done.key, done.was_there) {
        (Some(key), Some(false)) => writeln!(out, "{key} has no value")?,
        (Some(key), _) => writeln!(out, "{} {key}", done.done)?,
        (None, _) => writeln!(out, "{}", done.done)?,
    }
    Ok(())
}

impl Command {
    /// Asks.
    pub fn run(self) -> Result<()> {
        match self {
            Command::Get(Get { key, reach }) => get(&key, &reach),
            Command::Set(Set { key, value, expires, flags, reach }) => {
                let value = match value {
                    Some(value) => value.into_bytes(),
                    None => {
                        let mut value = vec![];
                        let read = stdin().lock().read_to_end(&mut value);
                        read.map_err(|source| Error::System { doing: "read the value from standard input", source })?;
                        value
                    }
                };
                reach.client()?.set(&key, flags, seconds(expires), &value)?;
                report(reach.format, &Done { done: "set", key: Some(&key), was_there: None })
            }
            Command::Rm(Rm { keys, reach }) => {
                let (mut client, mut all) = (reach.client()?, true);
                for key in keys {
                    let was_there = client.delete(&key)?;
                    all &= was_there;
                    report(reach.format, &Done { done: "deleted", key: Some(&key), was_there: Some(was_there) })?;
                }
                if all { Ok(()) } else { Err(Error::No) }
            }
            Command::Touch(Touch { key, expires, reach }) => {
                let was_there = reach.client()?.touch(&key, seconds(expires))?;
                report(reach.format, &Done { done: "touched", key: Some(&key), was_there: Some(was_there) })?;
                if was_there { Ok(()) } else { Err(Error::No) }
            }
            Command::Ls(Ls { reach }) => list(&reach),
            Command::Stat(Stat { reach }) => {
                let all = reach.client()?.statistics("")?;
                let mut out = output();
                if reach.format.json {
                    let all = all.into_iter().map(|(name, value)| {
                        let number = value.parse::<u64>().map(Value::from);
                        (name, number.unwrap_or(Value::String(value)))
                    });
                    return write_json(&mut out, &Map::from_iter(all));
                }
                Ok(all.iter().try_for_each(|(name, value)| writeln!(out, "{name:<20} {value}"))?)
            }
            Command::Scheme(Scheme { name, reach }) => {
                let mut client = reach.client()?;
                if let Some(name) = name {
                    client.choose_scheme(&name.to_string())?;
                }
                let (scheme, mut out) = (client.scheme()?, output());
                if reach.format.json {
                    return write_json(&mut out, &Shown { scheme });
                }
                Ok(writeln!(out, "{scheme}")?)
            }
            Command::Top(top) => top.run(),
            Command::Tenants(tenants) => tenants.run(),
            Command::Flush(Flush { reach }) => {
                reach.client()?.flush()?;
                report(reach.format, &Done { done: "flushed", key: None, was_there: None })
            }
        }
    }
}

fn get(key: &str, reach: &Reach) -> Result<()> {
    let found = reach.client()?.get(key)?;
    let mut out = output();
    if reach.format.json {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (flags, cas) = (found.as_ref().map(|value| value.flags), found.as_ref().map(|value| value.cas));
        let value = found.as_ref().map(|value| text(&value.bytes));
        write_json(&mut out, &Got { key, found: found.is_some(), flags, cas, value })?;
    } else if let Some(value) = &found {
        // As it is: nothing is added to a value, and no colour is taken out of it.
        let mut out = std::io::stdout().lock();
        out.write_all(&value.bytes)?;
        out.flush()?;
    }
    if found.is_some() { Ok(()) } else { Err(Error::No) }
}

fn list(reach: &Reach) -> Result<()> {
    let mut client = reach.client()?;
    let mut listed = Vec::new();
    for (key, rest) in client.statistics("objects")? {
        let numbers: Vec<u64> = rest.split(' ').filter_map(|number| number.parse().ok()).collect();
        // A copy whose key has another value by now lies there until its room is needed.
        if let [bytes, expires, cas] = numbers[..]
            && client.cas(&key)? == Some(cas)
        {
            listed.push(Listed { key, bytes, expires });
        }
    }
    let mut out = output();
    if reach.format.json {
        return write_json(&mut out, &listed);
    }
    for Listed { key, bytes, expires } in &listed {
        let until = if *expires == 0 { "never".into() } else { expires.to_string() };
        writeln!(out, "{bytes:>10} {until:>12} {key}")?;
    }
    Ok(())
}
