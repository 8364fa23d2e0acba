//! `httpd.verify`: what it costs Apache that no hit is stale.
//!
//! After section 5.2 of the dissertation, where the proxy server asks its module about each hit (IPC-Verify). Apache with its own cache and the module for it, beside the same cache
//! that checks nothing, and beside no cache.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use verbena_fabric::Provider;

use super::lab::{Lab, Turn, Work};
use super::machines::{Cores, Running};
use super::measured::{Measured, Quantity, Said, axis, measurements, median, panel, ratio, rounds};
use super::schemes::best_fabric;
use super::stack::{free_addresses, get};
use crate::child::{ON_CORE, Target};
use crate::error::BenchError;
use crate::helpers::member_address;
use crate::programs::in_path;
use crate::report::{Findings, Ratio};
use crate::run::Plan;
use crate::web::{self, Order, PROGRAM, Workload};

const MODULES: &str = "/usr/lib/apache2/modules";
/// As in `content.load`.
const CONNECTIONS: usize = 9;
/// Threads that compute on the core of the application and the home.
const LEVELS: [usize; 3] = [0, 50, 200];
const MOST: f64 = 200.0;
/// The page.
const BYTES: usize = 8 << 10;
const PATH: &str = "/8192/0";
/// How long Apache may take until its first hit.
const PATIENCE: Duration = Duration::from_secs(30);
/// What is wanted: of the hits without a check, and of a hit's time.
const KEPT: f64 = 0.85;
const VERIFY: f64 = 0.1;

const GROUP: &str = "single 8 KB file";
const ALONE: &str = "one connection";
const ASKS: &str = "IPC-Verify";

/// What Apache does for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Passes,
    Unchecked,
    Checked,
}

impl Variant {
    const ALL: [Variant; 3] = [Variant::Passes, Variant::Unchecked, Variant::Checked];

    fn name(self) -> &'static str {
        match self {
            Variant::Passes => "no cache",
            Variant::Unchecked => "mod_cache, checks nothing",
            Variant::Checked => "mod_verbena",
        }
    }

    /// The lines of its configuration.
    fn lines(self, helper: &Path) -> String {
        match self {
            Variant::Passes => String::new(),
            Variant::Unchecked => "CacheEnable socache /\n".to_owned(),
            Variant::Checked => format!(
                "LoadModule verbena_module {MODULES}/mod_verbena.so\nCacheEnable verbena /\nVerbenaStore socache\n\
                 VerbenaHelper {}\nVerbenaTimeout 2000\n",
                helper.display()
            ),
        }
    }
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let verbena = plan.verbena.ok_or(BenchError::NoProgram { name: plan.name })?;
    let apache = apache(plan.name)?;
    let cores = Cores::choose(plan.name)?;
    let (provider, fabric) = best_fabric(plan.name)?;
    let folder = crate::run::directory()?;
    let place = folder.path();
    let [origin, home_node, web_node] = free_addresses()?;
    let mut application =
        Running::start("application", &cores.servers, &[web::PAGES, "--listen", &origin.to_string()], place)?;
    application.listens(origin)?;
    let (helper, mut nodes) = nodes(verbena, provider, [home_node, web_node], &cores, place)?;

    let mut servers = Vec::new();
    for variant in Variant::ALL {
        servers.push((variant, Server::start(&apache, variant, origin, &helper, &cores, place)?));
    }
    for (variant, server) in &mut servers {
        nodes.iter_mut().try_for_each(Running::look)?;
        server.is_ready(*variant)?;
    }
    let mut turns = Vec::new();
    for busy in LEVELS {
        for (variant, server) in &servers {
            let order = Order {
                address: server.address,
                workload: Workload::Single { bytes: BYTES },
                // Apache says a hit in a field of its own.
                cached: true,
                connections: CONNECTIONS,
                sweep: Duration::ZERO,
                updates: None,
                length: Duration::ZERO,
            };
            let mut add = |group, connections| {
                let order = Order { connections, ..order.clone() };
                let work = Work::Pages { order, sweep: false, stack: None };
                turns.push(Turn { group, variant: variant.name().to_owned(), x: busy as f64, busy, work });
            };
            add(GROUP, CONNECTIONS);
            if *variant == Variant::Checked {
                add(ALONE, 1);
            }
        }
        turns.push(Turn { group: ALONE, variant: ASKS.to_owned(), x: busy as f64, busy, work: Work::Reads(0) });
    }
    let mut lab = Lab::open(&plan, &cores, vec![], &[])?;
    let socket = helper.display().to_string();
    lab.add_reader(Target::start(&[ON_CORE, &cores.proxies, web::VERIFY, "--socket", &socket, "--path", PATH])?);
    let measured = lab.measure(plan, turns)?;

    Ok(Findings {
        fabrics: vec![fabric],
        ratios: ratios(&measured),
        panels: panels(&measured),
        measurements: measurements(&measured),
        notes: vec![
            "Application, home and busy threads share one core; Apache, its helper and the client the other.".to_owned(),
            "IPC-Verify is asked by a program of its own beside Apache, one question after the other: what the module asks before each hit.".to_owned(),
        ],
    })
}

/// Debian's Apache with the module, and the right to be another user.
fn apache(name: &'static str) -> Result<PathBuf, BenchError> {
    let missing = |what: &str| BenchError::NothingToMeasure { name, reason: format!("there is no {what}") };
    let apache = in_path("apache2").ok_or_else(|| missing("apache2 (Debian: apache2-bin)"))?;
    if !Path::new(MODULES).join("mod_verbena.so").exists() {
        return Err(missing("module for Apache: `make -C adapters/httpd install` puts it there"));
    }
    if !rustix::process::geteuid().is_root() {
        return Err(missing("right to be another user: Apache's processes are not root's, and this takes root"));
    }
    Ok(apache)
}

/// A home on the application's core, and Apache's helper on the other.
fn nodes(
    verbena: &Path,
    provider: Provider,
    at: [SocketAddr; 2],
    cores: &Cores,
    place: &Path,
) -> Result<(PathBuf, Vec<Running>), BenchError> {
    let member = |name: &str, at, roles: &str| {
        format!("{{ name = \"{name}\", address = \"{}\", roles = [{roles}] }},\n", member_address(provider, name, at))
    };
    let content = format!(
        "[cluster]\nlease = \"10s\"\nmembers = [\n{}{}]\n[fabric]\nprovider = \"{}\"\n[node]\nruntime = \"{}\"\n",
        member("web", at[1], "\"reader\", \"updater\""),
        member("home", at[0], "\"home\", \"updater\""),
        provider.name(),
        place.join("run").display(),
    );
    let config = place.join("verbena.toml");
    std::fs::write(&config, content).map_err(|error| BenchError::io(&config, error))?;
    let start = |name: &str, core: &str| {
        let text = |path: &Path| path.display().to_string();
        let (verbena, config, state) = (text(verbena), text(&config), text(&place.join(name)));
        let words = [PROGRAM, &verbena, "node", "--config", &config, "--cluster-name", name, "--node-state", &state];
        Running::start(name, core, &words, place)
    };
    let nodes = vec![start("web", &cores.proxies)?, start("home", &cores.servers)?];
    Ok((place.join("run/web.sock"), nodes))
}

/// An Apache.
struct Server {
    running: Running,
    address: SocketAddr,
}

impl Server {
    fn start(
        apache: &Path,
        variant: Variant,
        origin: SocketAddr,
        helper: &Path,
        cores: &Cores,
        place: &Path,
    ) -> Result<Server, BenchError> {
        let [address] = free_addresses()?;
        let kind = variant as usize;
        let folder = place.join(format!("apache-{kind}"));
        std::fs::create_dir(&folder).map_err(|error| BenchError::io(&folder, error))?;
        let at = folder.display();
        let loaded = ["mpm_event", "authz_core", "proxy", "proxy_http", "cache", "cache_socache", "socache_shmcb"];
        let load: String =
            loaded.iter().map(|name| format!("LoadModule {name}_module {MODULES}/mod_{name}.so\n")).collect();
        let text = format!(
            "ServerRoot {at}\nListen {address}\nServerName shop.example\nPidFile {at}/pid\nDefaultRuntimeDir {at}\n\
             ErrorLog {at}/log\nLogLevel warn\nUser www-data\nGroup www-data\n{load}\
             StartServers 1\nServerLimit 1\nThreadsPerChild 25\nMaxRequestWorkers 25\nMinSpareThreads 1\nMaxSpareThreads 25\n\
             MaxKeepAliveRequests 0\nKeepAliveTimeout 60\nMutex file:{at}\nCacheSocache shmcb:{at}/cache(33554432)\n\
             CacheSocacheMaxSize 1048576\nCacheHeader on\n{}ProxyPass / http://{origin}/\n",
            variant.lines(helper)
        );
        let config = folder.join("apache.conf");
        std::fs::write(&config, text).map_err(|error| BenchError::io(&config, error))?;
        // Apache does not work as root, and the helper answers its own user alone: it is another user for itself.
        let (apache, config) = (apache.display().to_string(), config.display().to_string());
        let user = ["unshare", "-U", "--map-user=33", "--map-group=33"];
        let words = [&[PROGRAM], &user[..], &[&apache, "-DFOREGROUND", "-f", &config]].concat();
        let running = Running::start(&format!("apache-{kind}"), &cores.proxies, &words, place)?;
        let mut running = running.ended_in_order();
        running.listens(address)?;
        Ok(Server { running, address })
    }

    /// Waits until it answers as it is to: from its cache, if it has one.
    fn is_ready(&mut self, variant: Variant) -> Result<(), BenchError> {
        let until = Instant::now() + PATIENCE;
        loop {
            self.running.look()?;
            let last = get(self.address, PATH).unwrap_or_else(|error| error.to_string());
            let is_hit = last.lines().any(|line| line.to_ascii_lowercase().starts_with("x-cache: hit"));
            if last.starts_with("HTTP/1.1 200") && (is_hit || variant == Variant::Passes) {
                return Ok(());
            }
            if Instant::now() > until {
                let head = last.split("\r\n\r\n").next().unwrap_or_default();
                return Err(self.running.failed(&format!("gave no hit within {PATIENCE:?}; its last answer: {head}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn ratios(measured: &[Measured]) -> Vec<Ratio> {
    let of = |variant: &str, busy: usize, quantity| rounds(measured, GROUP, variant, busy as f64, quantity);
    let rate = |variant: Variant, busy| of(variant.name(), busy, Quantity::Throughput);
    let mut ratios = Vec::new();
    for busy in LEVELS {
        let under = format!("{busy} busy threads");
        let (checked, unchecked) = (rate(Variant::Checked, busy), rate(Variant::Unchecked, busy));
        let reason = format!("{} requests a second against {}", median(&checked), median(&unchecked));
        let said = if busy == 0 { Said::AtLeast(KEPT, "at least 0.85, our own", reason) } else { Said::Nothing };
        ratios.push(ratio("hits a second, with the check over without", &under, &checked, &unchecked, said));
        ratios.push(ratio(
            "throughput, mod_verbena over no cache",
            &under,
            &checked,
            &rate(Variant::Passes, busy),
            Said::Nothing,
        ));
        let alone = |variant: &str, quantity| rounds(measured, ALONE, variant, busy as f64, quantity);
        let (ask, whole) = (alone(ASKS, Quantity::Read), alone(Variant::Checked.name(), Quantity::Mean));
        let reason = format!("{} of {} us", median(&ask), median(&whole));
        let said = if busy == 0 { Said::AtMost(VERIFY, "below 0.1", reason) } else { Said::Nothing };
        ratios.push(ratio("IPC-Verify, of a hit", &under, &ask, &whole, said));
    }
    let (loaded, idle) = (rate(Variant::Checked, MOST as usize), rate(Variant::Checked, 0));
    let reason = format!("{} requests a second against {}", median(&loaded), median(&idle));
    let said = Said::AtLeast(0.95, "flat: at least 0.95", reason);
    ratios.push(ratio(
        "hits a second that are kept",
        &format!("{MOST} busy threads at the home"),
        &loaded,
        &idle,
        said,
    ));
    ratios.into_iter().flatten().collect()
}

fn panels(measured: &[Measured]) -> Vec<crate::report::Panel> {
    let names: Vec<String> = Variant::ALL.map(Variant::name).map(str::to_owned).to_vec();
    let threads = axis("compute threads on the core of the application and the home", false);
    let rate = axis("throughput (requests/s)", true);
    let title = "hits of Apache, 8 KB";
    let response = axis("microseconds", true);
    let parts = [Variant::Checked.name().to_owned()];
    vec![
        panel(measured, GROUP, Quantity::Throughput, title, &threads, &rate, &names),
        panel(measured, ALONE, Quantity::Mean, "response time of a hit, one connection", &threads, &response, &parts),
        panel(measured, ALONE, Quantity::Read, ASKS, &threads, &response, &[ASKS.to_owned()]),
    ]
}
