//! The file of `verbena wan up`: sites, links, and what happens on these.
//!
//! ```toml
//! seed = 7
//!
//! [[site]]
//! name = "paris"
//!
//! [[site]]
//! name = "tokyo"
//! addresses = ["10.2.0.1", "fd02::1"]
//!
//! [[link]]
//! name = "sea"
//! between = ["paris", "tokyo"]
//! delay = "120ms"
//! there = { rate = "20mbit" }
//! ```

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::path::Path;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use verbena_wan::router::{DataPath, Mode};
use verbena_wan::{
    Backend, BackendName, DEFINITIONS, Link, OptionError, Plan, PlanError, Reader, RouterOptions, Site, Way, read_file,
};

use crate::config::{self, Document, closest};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    backend: BackendName,
    mode: Option<Mode>,
    path: Option<DataPath>,
    seed: Option<u64>,
    core: Option<usize>,
    #[serde(default)]
    site: Vec<SiteTable>,
    #[serde(default)]
    link: Vec<LinkTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SiteTable {
    name: String,
    addresses: Option<Vec<IpAddr>>,
}

#[derive(Debug, Deserialize)]
struct LinkTable {
    name: String,
    between: [String; 2],
    #[serde(default = "usual_mtu")]
    mtu: u32,
    #[serde(default)]
    there: Options,
    #[serde(default)]
    back: Options,
    #[serde(flatten)]
    both: Options,
}

type Options = BTreeMap<String, Text>;

/// The value of an option, as on a command line. Numbers need no quotes.
#[derive(Debug)]
struct Text(String);

fn usual_mtu() -> u32 {
    1500
}

/// The plan in a file. Files that it names are relative to its directory.
pub fn read(file: &Path) -> Result<Plan, config::Error> {
    let folder = file.parent().unwrap_or(Path::new(""));
    plan(Document::open(file)?, &|path| read_file(folder, path))
}

/// Reads any bytes as such a file; how many mistakes there are. What the fuzz target runs.
///
/// # Panics
/// If a mistake cannot be shown, or a plan does not read the same when it is written again.
pub fn try_bytes(bytes: &[u8]) -> usize {
    let reader = |path: &str| match path.strip_prefix("no") {
        Some(_) => Err(format!("{path}: there is none")),
        None if path.starts_with("trace") => Ok("0s 10ms 1mbit\n".into()),
        None => Ok("1ms\n3ms\n".into()),
    };
    let read = |bytes: &[u8]| Document::of("fuzzed.toml".into(), bytes).and_then(|document| plan(document, &reader));
    match read(bytes) {
        Ok(plan) => {
            let text = written(&plan);
            assert!(read(text.as_bytes()).is_ok_and(|again| again == plan), "{text}");
            0
        }
        Err(config::Error::Mistaken { mistakes, source_text }) => {
            config::try_to_show(&mistakes, &source_text);
            mistakes.len()
        }
        Err(other) => panic!("{other}"),
    }
}

/// A file with this plan.
fn written(plan: &Plan) -> String {
    // As JSON escapes it, but for one character that TOML does not take as it is.
    let quoted = |text: &str| serde_json::json!(text).to_string().replace('\u{7f}', "\\u007f");
    let mut text = match plan.backend {
        Backend::Router { mode, path, seed, core } => {
            let core = core.map_or_else(String::new, |core| format!("core = {core}\n"));
            let [mode, path] = [serde_json::json!(mode), serde_json::json!(path)];
            format!("mode = {mode}\npath = {path}\nseed = {seed}\n{core}")
        }
        Backend::Kernel => "backend = \"kernel\"\n".into(),
    };
    for site in &plan.sites {
        let addresses = serde_json::json!(site.addresses);
        text += &format!("[[site]]\nname = {}\naddresses = {addresses}\n", quoted(&site.name));
    }
    for link in &plan.links {
        let [first, second] = link.between.map(|site| quoted(&plan.sites[site].name));
        text +=
            &format!("[[link]]\nname = {}\nbetween = [{first}, {second}]\nmtu = {}\n", quoted(&link.name), link.mtu);
        for (way, options) in ["there", "back"].iter().zip(&link.ways) {
            let options: Vec<_> =
                options.options().map(|(name, value)| format!("{name} = {}", quoted(&value))).collect();
            text += &format!("{way} = {{ {} }}\n", options.join(", "));
        }
    }
    text
}

fn plan(document: Document, reader: Reader<'_>) -> Result<Plan, config::Error> {
    let (read, mut document) = document.read::<File>()?;
    let sites = read.site.iter().enumerate().map(|(number, table)| site(table, number)).collect();
    let numbers: HashMap<&str, usize> = read.site.iter().map(|table| table.name.as_str()).zip(0..).collect();
    let mut links = vec![];
    for (number, table) in read.link.iter().enumerate() {
        let mut between = [0; 2];
        for (end, name) in table.between.iter().enumerate() {
            match numbers.get(name.as_str()) {
                Some(site) => between[end] = *site,
                None => document.mistake(
                    format!("link.{number}.between.{end}"),
                    format!("there is no site {name:?}"),
                    closest(name, numbers.keys().copied()).map(|name| format!("{name:?}")),
                ),
            }
        }
        let ways = ways(number, table, reader, &mut document);
        links.push(Link { name: table.name.clone(), between, mtu: table.mtu, ways });
    }
    let options = RouterOptions { mode: read.mode, path: read.path, seed: read.seed, core: read.core };
    let backend = Backend::new(read.backend, options).unwrap_or_else(|refused| {
        document.mistake(refused.option.into(), refused.problem, None);
        Backend::default()
    });
    let plan = Plan { sites, links, backend };
    // Whether all goes together is asked when each by itself does.
    let mut document = document.unmistaken()?;
    if let Err(error) = plan.check() {
        document.mistake(place_in(&plan, &error), error.to_string(), None);
    }
    document.unmistaken().map(|_| plan)
}

fn site(table: &SiteTable, number: usize) -> Site {
    // More than fit into a byte are refused with the plan.
    let site = Site::numbered(&table.name, u8::try_from(number).unwrap_or(u8::MAX));
    match &table.addresses {
        Some(addresses) => Site { addresses: addresses.clone(), ..site },
        None => site,
    }
}

fn ways(number: usize, table: &LinkTable, reader: Reader<'_>, document: &mut Document) -> [Way; 2] {
    let mut set = |way: &mut Way, at: &str, options: &Options| {
        for (name, Text(text)) in options {
            let Err(error) = way.set(name, text, reader) else { continue };
            let (problem, suggestion) = match error {
                OptionError::Value { problem, .. } => (problem, None),
                OptionError::Unknown { .. } => {
                    ("there is no such option".into(), closest(name, DEFINITIONS.iter().map(|option| option.name)))
                }
                other => (other.to_string(), None),
            };
            document.mistake(format!("link.{number}.{at}{name}"), problem, suggestion);
        }
    };
    let mut both = Way::default();
    set(&mut both, "", &table.both);
    let mut ways = [both.clone(), both];
    set(&mut ways[0], "there.", &table.there);
    set(&mut ways[1], "back.", &table.back);
    ways
}

/// The key that an error of a plan is about.
fn place_in(plan: &Plan, error: &PlanError) -> String {
    // Of two that are called alike the second one is wrong.
    let site = |name: &str| plan.sites.iter().rposition(|site| site.name == name);
    let link = |name: &str| plan.links.iter().rposition(|link| link.name == name);
    let of = |what: &str, number: Option<usize>, key: &str| number.map(|number| format!("{what}.{number}{key}"));
    let place = match error {
        PlanError::Name { name } => of("site", site(name), ".name").or_else(|| of("link", link(name), ".name")),
        PlanError::Twice { what: "sites", name } => of("site", site(name), ".name"),
        PlanError::Twice { name, .. } => of("link", link(name), ".name"),
        PlanError::Many { .. } => None,
        PlanError::Core { .. } => Some("core".into()),
        PlanError::Overlap { second, .. } => of("site", site(second), ".addresses"),
        PlanError::Address { site: name, .. } => of("site", site(name), ".addresses"),
        PlanError::Loop { link: name, .. } => of("link", link(name), ".between"),
        PlanError::Mtu { link: name, .. } => of("link", link(name), ".mtu"),
        PlanError::Options { link: name, .. } => of("link", link(name), ""),
    };
    place.unwrap_or_default()
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reads;
        impl Visitor<'_> for Reads {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an option's value: text in quotes, or a number")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }
        }
        deserializer.deserialize_any(Reads)
    }
}
