//! Listeners and threads.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use http::Version;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use verbena_caching::{Routes, Writes};
use verbena_content::service::Content;
use verbena_coop::service::PoolService;
use verbena_listening::{Certificates, Files, Port};
use verbena_metrics::Registry;
use verbena_monitor::Loads;
use verbena_terms::Section;

use crate::alpn;
use crate::cache::Cache;
use crate::config::ProxyConfig;
use crate::error::ProxyError;
use crate::exchange::{Exchange, via};
use crate::explaining::Explainer;
use crate::inbound::Inbound;
use crate::observed::Observed;
use crate::origin::{Address, Connections, Machines, Manner, Origins, Secure};
use crate::page_pool::PagePool;
use crate::proxy_protocol::Network;
use crate::purging::Purgers;
use crate::queries::Queries;
use crate::tunnel::Tunnels;

/// How often the files of certificates are looked at.
const CERTIFICATES_EVERY: Duration = Duration::from_secs(1);

/// A running proxy.
pub struct Proxy {
    address: SocketAddr,
    cache: Arc<Cache>,
    routes: Arc<Routes>,
    origins: Arc<Origins>,
    certificates: Option<Arc<Certificates>>,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

impl Proxy {
    /// Whether a proxy could be started so: an application to stand in front of, an address that nobody else listens on.
    ///
    /// # Errors
    /// What stands in the way.
    pub fn check(config: &ProxyConfig) -> Result<(), ProxyError> {
        if let Some(found) = config.contradictions().into_iter().next() {
            return Err(ProxyError::Setting { key: found.key, problem: found.problem });
        }
        if config.origin.is_empty() {
            let problem =
                "no application to stand in front of: give --origin http://HOST:PORT, https://HOST:PORT or unix:/PATH"
                    .into();
            return Err(ProxyError::Setting { key: "origin".into(), problem });
        }
        certificates(config)?;
        secure(config)?;
        Purgers::new(&config.purge_from, config.purge_token_file.as_deref())?;
        look_for_another(config.listen)
    }

    /// Listens, and answers from then on. `loads` says how loaded the machines of the origins are, `queries` what the application asks its database, where relays see it, `pool` is this node's part in the cooperative cache, where it has one.
    pub fn start(
        config: &ProxyConfig,
        content: Content,
        loads: &Loads,
        (queries, pool): (Option<Queries>, Option<&PoolService>),
        registry: &Registry,
    ) -> Result<Proxy, ProxyError> {
        Proxy::check(config)?;
        let addresses = config.origin.iter().map(|origin| origin.parse());
        let addresses = addresses.collect::<Result<Vec<Address>, _>>();
        let addresses = addresses.map_err(|problem| ProxyError::Setting { key: "origin".into(), problem })?;
        let certificates = certificates(config)?;
        let tls = certificates.as_ref().map(|certificates| certificates.server(&alpn::BOTH)).transpose()?;
        let observed = Observed::new(registry)?;
        let pool = pool.map(|pool| PagePool::new(pool.clone(), registry)).transpose()?;
        let largest = usize::try_from(config.largest.0).unwrap_or(usize::MAX / 2);
        let cache = Arc::new(Cache::new(content, (observed, pool), config.replacement, config.memory.0, largest));
        let all = cache.budget.left();
        let kept = cache.clone();
        registry.gauge_from(
            "verbena_proxy_fill_bytes",
            "Memory of pages on their way into the store, and of what their clients have not taken yet.",
            move || (all - kept.budget.left()) as f64,
        )?;
        let kept = cache.clone();
        registry.gauge_from("verbena_proxy_pages", "Pages in the store.", move || kept.kept().0 as f64)?;
        let kept = cache.clone();
        registry.gauge_from(
            "verbena_proxy_store_bytes",
            "Memory of the store, headers and bodies included.",
            move || kept.kept().1 as f64,
        )?;
        let manner = Manner {
            http: config.origin_http,
            introduces: config.origin_proxy_protocol,
            connect_timeout: config.connect_timeout.0,
            answer_timeout: config.origin_timeout.0,
        };
        let secure = secure(config)?;
        let machines = Machines::new(&addresses, &config.origin_nodes, loads.clone());
        let origins = Origins::new(addresses, machines, secure, config.fills, manner, &cache.observed);
        let origins = Arc::new(origins);
        let threads = match config.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let first = listen(config.listen)?;
        let address = first.local_addr().map_err(|reason| ProxyError::Listen { address: config.listen, reason })?;
        let mut listeners = vec![first];
        for _ in 1..threads {
            listeners.push(listen(address)?);
        }
        let writes = if queries.as_ref().is_some_and(|queries| queries.has_relay) {
            Writes::Database
        } else {
            Writes::default()
        };
        let routes = Arc::new(Routes::of(&config.routes, writes, config.mode));
        let tunnels = routes.has_upgrades().then(|| Tunnels::new(config.tunnels, config.tunnel_timeout.0));
        let tunnels = tunnels.map(Arc::new);
        let purgers = Purgers::new(&config.purge_from, config.purge_token_file.as_deref())?;
        let balancers: Vec<Network> = config.proxy_protocol_from.iter().filter_map(|from| from.parse().ok()).collect();
        let (stop, stopped) = watch::channel(false);
        let mut proxy = Proxy { address, cache, routes, origins, certificates, stop, threads: Vec::new() };
        let connections = Arc::new(Semaphore::new(config.connections.min(Semaphore::MAX_PERMITS)));
        for (at, listener) in listeners.into_iter().enumerate() {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ProxyError::Thread)?;
            let worker = Worker {
                cache: proxy.cache.clone(),
                origins: proxy.origins.clone(),
                config: config.clone(),
                routes: proxy.routes.clone(),
                queries: queries.clone(),
                tls: tls.clone(),
                balancers: balancers.clone(),
                purgers: purgers.clone(),
                tunnels: tunnels.clone(),
                certificates: proxy.certificates.clone().filter(|_| at == 0),
                probes: at == 0,
                connections: connections.clone(),
                stopped: stopped.clone(),
            };
            let thread = std::thread::Builder::new().name(format!("proxy-{at}"));
            let run = move || runtime.block_on(worker.run(listener));
            proxy.threads.push(thread.spawn(run).map_err(ProxyError::Thread)?);
        }
        Ok(proxy)
    }

    /// Reads the certificates again that it shows to clients, which otherwise happens when their files change. New connections get them.
    pub fn reload_certificates(&self) {
        if let Some(certificates) = &self.certificates {
            certificates.refresh(true);
        }
    }

    /// Says what it would do with a request.
    pub fn explainer(&self) -> Explainer {
        Explainer { cache: self.cache.clone(), routes: self.routes.clone() }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Origins that take connections, and all.
    pub fn origins(&self) -> (usize, usize) {
        self.origins.health()
    }

    /// Connects to each application once, so that one that does not answer is warned of when the proxy starts, and not by its first client.
    pub fn look_for_origins(&self) -> impl Future<Output = ()> + Send + use<> {
        let origins = self.origins.clone();
        async move { origins.look().await }
    }

    /// Takes no more connections, lets requests under way end for at most [`ProxyConfig::drain`], and returns.
    pub fn stop(self) {
        // The threads hold receivers until they end; if they have ended, there is nobody to tell.
        let _ = self.stop.send(true);
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the proxy panicked");
            }
        }
    }
}

/// Sockets that share a port by `SO_REUSEPORT` share it with another process of the same user too, which would then get a part of the
/// clients. One that does not share is refused if anybody listens.
fn look_for_another(address: SocketAddr) -> Result<(), ProxyError> {
    Port::take(address).map(drop).map_err(|reason| ProxyError::Listen { address, reason })
}

/// The certificates for clients, if there are to be any.
fn certificates(config: &ProxyConfig) -> Result<Option<Arc<Certificates>>, ProxyError> {
    let pairs = config.tls_cert.iter().zip(&config.tls_key);
    let files: Vec<Files> =
        pairs.map(|(certificate, key)| Files { certificate: certificate.clone(), key: key.clone() }).collect();
    if files.is_empty() { Ok(None) } else { Ok(Some(Certificates::open(files)?)) }
}

/// What connections with TLS to applications are made with, if there is one that speaks it.
fn secure(config: &ProxyConfig) -> Result<Option<Secure>, ProxyError> {
    let speaks_tls = |origin: &String| matches!(origin.parse(), Ok(Address::Tls(_)));
    config.origin.iter().any(speaks_tls).then(|| Secure::new(config.origin_ca.as_deref())).transpose()
}

fn listen(address: SocketAddr) -> Result<StdListener, ProxyError> {
    Port::share(address).and_then(Port::listen).map_err(|reason| ProxyError::Listen { address, reason })
}

/// One thread.
struct Worker {
    cache: Arc<Cache>,
    origins: Arc<Origins>,
    config: ProxyConfig,
    routes: Arc<Routes>,
    queries: Option<Queries>,
    tls: Option<Arc<ServerConfig>>,
    balancers: Vec<Network>,
    purgers: Purgers,
    tunnels: Option<Arc<Tunnels>>,
    /// If it is the one that looks after the certificates.
    certificates: Option<Arc<Certificates>>,
    probes: bool,
    connections: Arc<Semaphore>,
    stopped: watch::Receiver<bool>,
}

impl Worker {
    async fn run(mut self, listener: StdListener) {
        let listener = match TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "a listener of the proxy cannot be used"),
        };
        if self.probes {
            tokio::spawn(self.origins.clone().probe());
        }
        if let Some(certificates) = self.certificates {
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(CERTIFICATES_EVERY).await;
                    certificates.refresh(false);
                }
            });
        }
        let exchange = Arc::new(Exchange {
            cache: self.cache.clone(),
            connections: Connections::new(self.origins.clone()),
            routes: self.routes.clone(),
            queries: self.queries.clone(),
            largest: usize::try_from(self.config.largest.0).unwrap_or(usize::MAX / 2),
            pass_dependencies: self.config.pass_dependencies,
            patience: self.config.origin_timeout.0,
            client_patience: self.config.client_timeout.0,
            unfinished: watch::Sender::new(()),
            via: via(Version::HTTP_11),
            via_http2: via(Version::HTTP_2),
            purgers: self.purgers,
        });
        let inbound = Arc::new(Inbound {
            exchange: exchange.clone(),
            tls: self.tls,
            balancers: self.balancers,
            tunnels: self.tunnels,
            patience: self.config.client_timeout.0,
            introduces: self.config.origin_proxy_protocol.is_some(),
            streams: u32::try_from(self.config.streams).unwrap_or(u32::MAX),
            observed: self.cache.observed.clone(),
            hits: self.config.hits,
            ending: watch::Sender::new(()),
        });
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = self.stopped.changed() => break,
            };
            let (stream, client) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors, mostly: it passes when connections close.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            };
            let permit = match self.connections.clone().try_acquire_owned() {
                Ok(permit) => permit,
                Err(_) => {
                    self.cache.observed.delayed.increment();
                    tokio::select! {
                        permit = self.connections.clone().acquire_owned() => permit.expect("invariant: never closed"),
                        _ = self.stopped.changed() => break,
                    }
                }
            };
            let serving = inbound.clone().serve(stream, client, inbound.ending.subscribe());
            tokio::spawn(async move {
                serving.await;
                drop(permit);
            });
        }
        drop(listener);
        // Whoever is not done by then is cut off when the runtime ends.
        let drained = async {
            inbound.end().await;
            // Updates whose clients have gone.
            exchange.unfinished.closed().await;
        };
        let _: Result<(), _> = tokio::time::timeout(self.config.drain.0, drained).await;
    }
}
