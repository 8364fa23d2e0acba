//! Interfaces of this machine, with the program in their receive path.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, LazyLock, Weak};

use libbpf_rs::libbpf_sys::{self, bpf_link_create_opts};
use libbpf_rs::query::ProgInfoIter;
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;
use parking_lot::Mutex;

use super::program::Program;
use crate::choose::XdpMode as Mode;
use crate::error::{Error, Result};

/// An interface that the program receives on, for as long as a node of this process holds it.
pub struct Interface {
    name: String,
    mode: Mode,
    program: Arc<Program>,
    /// When it is closed, by whatever end of the process, the interface is as it was.
    _link: OwnedFd,
}

/// By network namespace and number.
type Held = HashMap<(u64, u32), Weak<Interface>>;

static HELD: LazyLock<Mutex<Held>> = LazyLock::new(Mutex::default);

impl Interface {
    /// The interface of this name, with the program on it.
    ///
    /// # Errors
    /// [`Error::Unusable`] where there is none, where the driver cannot do what `mode` wants, and where another's program is, which is
    /// named.
    pub fn open(name: &str, mode: Mode) -> Result<Arc<Self>> {
        let number = number_of(name)?;
        let here = (namespace()?, number);
        let mut held = HELD.lock();
        held.retain(|_, interface| interface.strong_count() > 0);
        if let Some(known) = held.get(&here).and_then(Weak::upgrade) {
            return match mode {
                Mode::Auto => Ok(known),
                wanted if wanted == known.mode => Ok(known),
                wanted => Err(unusable(
                    name,
                    format!("another node of this process uses it in mode {}, not {wanted}", known.mode),
                    "Give both the same fabric.xdp_mode",
                )),
            };
        }
        let program = Program::load()?;
        let (link, mode) = attach(&program, name, number, mode)?;
        let interface = Arc::new(Interface { name: name.to_owned(), mode, program, _link: link });
        held.insert(here, Arc::downgrade(&interface));
        Ok(interface)
    }

    /// The name of the interface that has this address.
    ///
    /// # Errors
    /// [`Error::Unusable`] if none has.
    pub fn name_of(address: IpAddr) -> Result<String> {
        let all = getifaddrs().map_err(|error| Error::system("list the interfaces", error))?;
        let has = |one: &nix::ifaddrs::InterfaceAddress| {
            let address_of = one.address.as_ref()?;
            let v4 = address_of.as_sockaddr_in().map(|socket| IpAddr::V4(socket.ip()));
            v4.or_else(|| Some(IpAddr::V6(address_of.as_sockaddr_in6()?.ip())))
        };
        let found = all.into_iter().find(|one| has(one) == Some(address)).map(|one| one.interface_name);
        found.ok_or_else(|| Error::Unusable {
            provider: "xdp",
            reason: format!("no interface has the address {address}"),
            remedy: "Let cluster.members name an address of this machine".into(),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the program stands: never [`Mode::Auto`].
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }
}

/// Puts a program on an interface that passes everything: for the other end of a virtual link, where answers arrive only if some program
/// receives. Until what is given back is dropped.
pub fn pass_all(name: &str) -> Result<OwnedFd> {
    let number = number_of(name)?;
    let program = Program::load()?;
    link(program.pass().as_raw_fd(), number, Mode::Native).map_err(|error| refused(name, number, Mode::Native, error))
}

fn number_of(name: &str) -> Result<u32> {
    if_nametoindex(name).map_err(|error| unusable(name, error.to_string(), "ip link shows what there is"))
}

fn attach(program: &Program, name: &str, number: u32, mode: Mode) -> Result<(OwnedFd, Mode)> {
    let executor = program.executor().as_raw_fd();
    let native = match mode {
        Mode::Generic => None,
        _ => Some(link(executor, number, Mode::Native)),
    };
    match native {
        Some(Ok(link)) => Ok((link, Mode::Native)),
        Some(Err(error)) if mode == Mode::Native || error == Errno::EBUSY => Err(refused(name, number, mode, error)),
        _ => match link(executor, number, Mode::Generic) {
            Ok(link) => Ok((link, Mode::Generic)),
            Err(error) => Err(refused(name, number, Mode::Generic, error)),
        },
    }
}

fn link(program: i32, number: u32, mode: Mode) -> std::result::Result<OwnedFd, Errno> {
    let flags = if mode == Mode::Native { libbpf_sys::XDP_FLAGS_DRV_MODE } else { libbpf_sys::XDP_FLAGS_SKB_MODE };
    let options = bpf_link_create_opts {
        sz: size_of::<bpf_link_create_opts>() as libbpf_sys::size_t,
        flags,
        ..Default::default()
    };
    // SAFETY: `options` outlives the call, which keeps nothing of it.
    let link = unsafe { libbpf_sys::bpf_link_create(program, number as i32, libbpf_sys::BPF_XDP, &options) };
    if link < 0 {
        return Err(Errno::from_raw(-link));
    }
    // SAFETY: a descriptor that was just made for us, and that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

fn refused(name: &str, number: u32, mode: Mode, error: Errno) -> Error {
    if error == Errno::EBUSY {
        let holder = holder(number).unwrap_or_else(|| "another program".into());
        let remedy = format!("Where it is no longer needed, `ip link set dev {name} xdp off` takes it away");
        return unusable(name, format!("{holder} receives there"), &remedy);
    }
    let reason = format!("it does not take a program in mode {mode}: {error}");
    unusable(name, reason, "fabric.xdp_mode = \"generic\" works on every interface, and is slower")
}

/// Which program an interface has.
fn holder(number: u32) -> Option<String> {
    let mut found = libbpf_sys::bpf_xdp_query_opts {
        sz: size_of::<libbpf_sys::bpf_xdp_query_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: `found` outlives the call, which fills it and keeps nothing.
    let failed = unsafe { libbpf_sys::bpf_xdp_query(number as i32, 0, &mut found) };
    let id = [found.prog_id, found.drv_prog_id, found.skb_prog_id].into_iter().find(|id| *id != 0)?;
    if failed != 0 {
        return None;
    }
    let name = ProgInfoIter::default().find(|info| info.id == id).map(|info| info.name.to_string_lossy().into_owned());
    Some(format!("the program {:?} (number {id})", name.unwrap_or_default()))
}

fn unusable(name: &str, reason: String, remedy: &str) -> Error {
    Error::Unusable { provider: "xdp", reason: format!("interface {name}: {reason}"), remedy: remedy.to_owned() }
}

/// The network namespace that this thread is in.
fn namespace() -> Result<u64> {
    let named = std::fs::metadata("/proc/thread-self/ns/net");
    Ok(named.map_err(|error| Error::system("look at the network namespace", error))?.ino())
}
