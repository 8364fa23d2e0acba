//! A WAN in a box.

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::Path;
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use verbena_wan::router::{DataPath, Mode};
use verbena_wan::{Backend, BackendName, Error, OptionError, Plan, PlanError, RouterOptions, Way, read_file};

use crate::errors::{Failed, Forked, NotPermitted};

/// The one link that there is.
const LINK: &str = "wan";

/// What takes the rights: the words that follow what the system said.
const RIGHTS: &str = "It takes root (CAP_SYS_ADMIN and CAP_NET_ADMIN), or a user namespace for the whole program: \
                      unshare --user --map-root-user --net COMMAND";

/// Options by name, in the order in which they are set.
type Options = Vec<(String, String)>;

/// Two sites, a and b, with one link. For verbena._wan.
#[pyclass(frozen, module = "verbena._native")]
pub(crate) struct Wan {
    wan: Mutex<Option<verbena_wan::Wan>>,
    /// In a child after a fork the router has no thread.
    maker: u32,
}

fn raised(error: Error) -> PyErr {
    let words = error.to_string();
    match error {
        Error::Plan(PlanError::Options { source, .. }) | Error::Options { source, .. } => wrong(&source),
        error if error.is_not_permitted() => NotPermitted::new_err(format!("{words}. {RIGHTS}")),
        Error::NoSite { .. } | Error::Plan(_) => PyValueError::new_err(words),
        _ => Failed::new_err(words),
    }
}

fn wrong(error: &OptionError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn set(way: &mut Way, options: &Options) -> PyResult<()> {
    let read = |path: &str| read_file(Path::new(""), path);
    options.iter().try_for_each(|(name, value)| way.set(name, value, &read).map_err(|error| wrong(&error)))
}

impl Wan {
    /// Does something with it, while others have the interpreter.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        what: impl FnOnce(&mut verbena_wan::Wan) -> PyResult<T> + Send,
    ) -> PyResult<T> {
        if self.maker != std::process::id() {
            return Err(Forked::new_err(format!("process {} made this WAN, and has it", self.maker)));
        }
        let closed = || Err(PyValueError::new_err("the WAN is closed: its `with` has ended"));
        py.detach(|| self.wan.lock().as_mut().map_or_else(closed, what))
    }
}

/// The one of these that has this name.
fn named<T: Copy>(what: &str, name: &str, known: &[(&str, T)]) -> PyResult<T> {
    let found = known.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(known, _)| *known).collect();
        PyValueError::new_err(format!("{name:?} is no {what}; there are {}", names.join(", ")))
    })
}

/// What may be said of the router: a dictionary with all of these.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct RouterChoice {
    mode: Option<String>,
    path: Option<String>,
    seed: Option<u64>,
    core: Option<usize>,
}

#[pymethods]
impl Wan {
    #[new]
    fn new(py: Python<'_>, there: Options, back: Options, backend: &str, router: RouterChoice) -> PyResult<Self> {
        let RouterChoice { mode, path, seed, core } = router;
        let backend = named("backend", backend, &[("router", BackendName::Router), ("kernel", BackendName::Kernel)])?;
        let modes = [("precise", Mode::Precise), ("sleep", Mode::Sleep)];
        let mode = mode.map(|name| named("mode", &name, &modes)).transpose()?;
        let paths = [("packet", DataPath::Packet), ("nfqueue", DataPath::Nfqueue)];
        let path = path.map(|name| named("path", &name, &paths)).transpose()?;
        let backend = Backend::new(backend, RouterOptions { mode, path, seed, core })
            .map_err(|refused| wrong(&refused.into()))?;
        let mut ways = [Way::default(), Way::default()];
        for (way, options) in ways.iter_mut().zip([there, back]) {
            set(way, &options)?;
        }
        let plan = Plan { backend, ..Plan::two_sites(ways, Mode::default(), 1) };
        let wan = py.detach(|| verbena_wan::Wan::up(plan)).map_err(raised)?;
        Ok(Wan { wan: Mutex::new(Some(wan)), maker: std::process::id() })
    }

    /// Of IPv4 and IPv6.
    fn addresses(&self, py: Python<'_>, site: &str) -> PyResult<(String, String)> {
        self.with(py, |wan| {
            let site = wan.plan().sites.iter().find(|known| known.name == site);
            let of = |is_ipv4| {
                let address = site?.addresses.iter().find(|address| address.is_ipv4() == is_ipv4);
                address.map(ToString::to_string)
            };
            of(true).zip(of(false)).ok_or_else(|| PyValueError::new_err("there are the sites a and b"))
        })
    }

    /// The descriptors of the two networks, for as long as the WAN is there.
    fn sites(&self, py: Python<'_>) -> PyResult<Vec<RawFd>> {
        self.with(py, |wan| {
            let sites =
                wan.plan().sites.iter().map(|site| Ok(wan.site(&site.name).map_err(raised)?.as_fd().as_raw_fd()));
            sites.collect()
        })
    }

    /// Moves the thread that calls it into a site, and off the router's core, for good.
    fn join(&self, py: Python<'_>, site: &str) -> PyResult<()> {
        self.with(py, |wan| {
            wan.site(site).and_then(|site| Ok(site.join()?)).map_err(raised)?;
            Ok(wan.keep_off()?)
        })
    }

    /// Sets options of the way from a to b, and of the way back.
    fn change(&self, py: Python<'_>, there: Options, back: Options) -> PyResult<()> {
        self.with(py, |wan| {
            let mut ways = wan.plan().links[0].ways.clone();
            for (way, options) in ways.iter_mut().zip([there, back]) {
                set(way, &options)?;
            }
            wan.put(LINK, ways).map_err(raised)
        })
    }

    /// What the two ways have done, as JSON.
    fn look(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |wan| {
            let seen = wan.look().map_err(raised)?;
            serde_json::to_string(&seen[0]).map_err(|error| Failed::new_err(error.to_string()))
        })
    }

    /// Takes it down.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.take());
    }
}

impl Wan {
    fn take(&self) {
        // A child has no thread that could be waited for; the descriptors go with it.
        if self.maker == std::process::id() {
            drop(self.wan.lock().take());
        } else if let Some(wan) = self.wan.try_lock().and_then(|mut wan| wan.take()) {
            std::mem::forget(wan);
        }
    }
}

impl Drop for Wan {
    fn drop(&mut self) {
        self.take();
    }
}

/// Plays the process that ends who is in these networks when the one that made them has ended. It says so by a line when it watches. For verbena/_guard.py.
#[pyfunction]
pub(crate) fn guard(py: Python<'_>, maker: u32, sites: Vec<u32>) -> PyResult<()> {
    let watches = || {
        let mut output = std::io::stdout();
        output.write_all(b"\n")?;
        output.flush()
    };
    Ok(py.detach(|| verbena_wan::guard(maker, Duration::ZERO, &sites, watches))?)
}
