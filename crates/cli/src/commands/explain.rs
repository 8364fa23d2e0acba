//! `verbena explain`: what the proxy would do with a request, and why.

use std::io::Write;
use std::path::Path;

use clap::Args;
use serde_json::Value;
use verbena_client::api::Explain;
use verbena_client::{Error as Refusal, Place, Socket, Updates};

use crate::commands::address::{Fit, Port};
use crate::commands::reach::Reach;
use crate::commands::running::block_on;
use crate::error::{Error, Result};
use crate::output::{Format, output, write_json};

/// What is said, the most important first.
const ORDER: [&str; 16] = [
    "outcome",
    "says",
    "why",
    "detail",
    "route",
    "mode",
    "slice",
    "credentials",
    "coding",
    "copy",
    "words",
    "varies_by",
    "key",
    "variant",
    "page",
    "proxy",
];

/// Say what the proxy would do with a request, and why. Nothing is sent to the application, stored or counted.
///
/// The command asks the proxy of this user that listens at the address's port; if none does, the first proxy (`proxy` in the output says which, and
/// --cluster-name names another). The proxy looks at the request as if a client had sent it: its route, the page's key, what is stored for it and, of a
/// standard page, how old that is, what the words at its home say, and what would happen. `why` and `detail` are what `Cache-Status` would say;
/// docs/reference/HTTP.md says what to do about each.
///
/// Exit code 0 if the proxy has answered, 1 if it could not, 3 if no helper runs.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena explain http://shop.example/product/7
  verbena explain 'http://127.0.0.1:8080/shop?page=2' -H 'Cookie: lang=de' -H 'Accept-Encoding: gzip'
  verbena why -X POST http://shop.example/cart --json")]
pub struct Command {
    /// The address of the page, as clients ask for it: http://HOST/PATH?QUERY, with the port if they name one.
    #[arg(value_name = "URL")]
    url: String,
    /// A field of the request. May be given several times.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// The method of the request.
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "GET")]
    method: String,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    reach: Reach,
}

impl Command {
    /// Asks the proxy by its helper, and says what it said.
    pub fn run(self, file: Option<&Path>) -> Result<()> {
        let Command { url, headers, method, format, reach } = self;
        let field = |line: &String| match line.split_once(':') {
            Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
            None => Err(Error::Refused {
                problem: format!("-H {line:?} is no field of a request: write 'NAME: VALUE'"),
                exit_code: 2,
            }),
        };
        let fields = headers.iter().map(field).collect::<Result<Vec<_>>>()?;
        let (request, mut explained) = (Explain { method, url, fields }, Value::Null);
        let port = Port::of(&request.url)?;
        let sockets = reach.all(file)?;
        block_on(async {
            explained = ask(sockets, &request, &port).await?;
            Ok(())
        })?;
        let mut out = output();
        if format.json {
            return write_json(&mut out, &explained);
        }
        let Some(said) = explained.as_object() else { return Ok(writeln!(out, "{explained}")?) };
        for (name, value) in ORDER.iter().filter_map(|name| said.get_key_value(*name)) {
            let line = match value {
                Value::Object(parts) => {
                    parts.iter().map(|(name, value)| format!("{name} {}", text(value))).collect::<Vec<_>>().join(", ")
                }
                Value::Array(list) => list.iter().map(text).collect::<Vec<_>>().join(", "),
                Value::Null => "none can be read".into(),
                value => text(value),
            };
            let note = match name.as_str() {
                "proxy" if port.fits(value) == Fit::No => format!("; none listens at port {}", port.port),
                _ => String::new(),
            };
            writeln!(out, "{name:<12} {line}{note}")?;
        }
        Ok(())
    }
}

/// Asks the proxy that listens where the address says; if none does, the first one.
async fn ask(sockets: Vec<Socket>, request: &Explain, port: &Port<'_>) -> Result<Value> {
    let (mut best, mut failed) = (None, None);
    for socket in sockets {
        match Updates::at(Place::from(socket)).explain(request).await {
            Ok(explained) => {
                let fit = port.fits(&explained["proxy"]);
                if best.as_ref().is_none_or(|(known, _)| fit > *known) {
                    best = Some((fit, explained));
                }
                if fit == Fit::Address {
                    break;
                }
            }
            // A proxy's error goes before an error that says that no proxy is there.
            Err(error) if failed.as_ref().is_none_or(|failed| matches!(failed, Refusal::Unavailable(_))) => {
                failed = Some(error);
            }
            Err(_) => {}
        }
    }
    match (best, failed) {
        (Some((_, explained)), _) => Ok(explained),
        (None, Some(error)) => Err(error.into()),
        (None, None) => Ok(Value::Null),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(text).collect::<Vec<_>>().join(" "),
        value => value.to_string(),
    }
}
