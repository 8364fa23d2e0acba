//! Interfaces of this machine, with the program in their receive path.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, LazyLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::libbpf_sys::{self, bpf_link_create_opts};
use libbpf_rs::query::ProgInfoIter;
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;
use parking_lot::Mutex;

use super::program::{EXECUTOR, Program, load_pass};
use super::share::Share;
use super::sharing::{self, Found, Link, Newcomer};
use crate::config::XdpMode as Mode;
use crate::error::{Error, Result};

/// How long a process that is ending may take to give back its link.
const LEAVING: Duration = Duration::from_secs(1);

/// An interface that the program receives on, for as long as a node of any process holds it.
pub struct Interface {
    name: String,
    // Dropped before the share: a process that finds no share of ours finds no link of ours either.
    link: Arc<Link>,
    share: Arc<Share>,
}

/// This process's share in the program of each network namespace that it is in. Locked while one is come by: others of this process wait.
static SHARES: LazyLock<Mutex<HashMap<u64, Weak<Share>>>> = LazyLock::new(Mutex::default);

impl Interface {
    /// The interface of this name, with the program on it: that of this process or of another one, if there is one in this network.
    ///
    /// # Errors
    /// [`Error::Unusable`] without such an interface, where the driver cannot do what `mode` wants, and where another's
    /// program is, which is named.
    pub(super) fn open(name: &str, mode: Mode) -> Result<Self> {
        let number = number_of(name)?;
        let here = namespace()?;
        let mut shares = SHARES.lock();
        shares.retain(|_, share| share.strong_count() > 0);
        let known = shares.get(&here).and_then(Weak::upgrade);
        let claim = known.as_deref().and_then(Share::claim);
        if let (Some(share), Some(link)) = (&known, claim.and_then(|claim| claim.link(number))) {
            return Interface { name: name.to_owned(), share: share.clone(), link }.in_mode(mode);
        }
        let _turn = Newcomer::enter()?;
        let (share, link) = share_and_link(name, number, mode, known)?;
        let interface = Interface { name: name.to_owned(), link: Arc::new(link), share }.in_mode(mode)?;
        if let Some(claim) = interface.share.claim() {
            claim.add(&interface.link);
            claim.serve(interface.share.program())?;
        }
        shares.insert(here, Arc::downgrade(&interface.share));
        Ok(interface)
    }

    fn in_mode(self, wanted: Mode) -> Result<Self> {
        if wanted == Mode::Auto || wanted == self.mode() {
            return Ok(self);
        }
        let reason = format!("another node uses it in mode {}, not {wanted}", self.mode());
        Err(unusable(&self.name, reason, "Give all nodes of the machine the same fabric.xdp_mode"))
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
        self.link.mode
    }

    /// What this process has of the program.
    pub(super) fn share(&self) -> &Arc<Share> {
        &self.share
    }
}

/// Puts a program on an interface that passes everything: for the other end of a virtual link, where answers arrive only if some program
/// receives. Until what is given back is dropped.
pub fn pass_all(name: &str) -> Result<OwnedFd> {
    let number = number_of(name)?;
    let pass = load_pass()?;
    link(pass.as_fd(), number, Mode::Native).map_err(|error| refused(name, number, Mode::Native, error))
}

fn number_of(name: &str) -> Result<u32> {
    if_nametoindex(name).map_err(|error| unusable(name, error.to_string(), "ip link shows what there is"))
}

/// A share, `known` if this process has one, and the program on an interface.
fn share_and_link(name: &str, number: u32, mode: Mode, known: Option<Arc<Share>>) -> Result<(Arc<Share>, Link)> {
    let until = Instant::now() + LEAVING;
    loop {
        let own = known.as_ref().map(|share| share.program());
        let Found { program, link, silent, has_others } = sharing::look_for(number, own)?;
        if let (None, Some(why)) = (&program, silent) {
            let remedy = "The nodes of a network share one program: let that process go on, or end it";
            return Err(unusable(name, why, remedy));
        }
        let program = program.map_or_else(Program::load, Ok)?;
        let link = match link.map_or_else(|| attach(&program, number, mode), Ok) {
            Ok(link) => link,
            // A process that is ending has given its socket back before its link, or is stopped in between.
            Err((_, Errno::EBUSY))
                if !has_others && holder(number).is_none_or(|(_, name)| is_ours(&name)) && Instant::now() < until =>
            {
                thread::sleep(Duration::from_millis(20));
                continue;
            }
            Err((mode, error)) => return Err(refused(name, number, mode, error)),
        };
        return Ok((known.map_or_else(|| Share::claimed(program), Ok)?, link));
    }
}

fn attach(program: &Program, interface: u32, mode: Mode) -> std::result::Result<Link, (Mode, Errno)> {
    let attach = |mode| {
        let link = link(program.executor(), interface, mode);
        link.map(|descriptor| Link { interface, mode, descriptor }).map_err(|error| (mode, error))
    };
    match mode {
        Mode::Auto => attach(Mode::Native).or_else(|refused| match refused {
            (_, Errno::EBUSY) => Err(refused),
            _ => attach(Mode::Generic),
        }),
        mode => attach(mode),
    }
}

fn link(program: BorrowedFd<'_>, number: u32, mode: Mode) -> std::result::Result<OwnedFd, Errno> {
    let flags = if mode == Mode::Native { libbpf_sys::XDP_FLAGS_DRV_MODE } else { libbpf_sys::XDP_FLAGS_SKB_MODE };
    let options = bpf_link_create_opts {
        sz: size_of::<bpf_link_create_opts>() as libbpf_sys::size_t,
        flags,
        ..Default::default()
    };
    // SAFETY: `options` outlives the call, which keeps nothing of it.
    let link =
        unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), number as i32, libbpf_sys::BPF_XDP, &options) };
    if link < 0 {
        return Err(Errno::from_raw(-link));
    }
    // SAFETY: a descriptor that was just made for us, and that no other code has.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

fn refused(name: &str, number: u32, mode: Mode, error: Errno) -> Error {
    if error != Errno::EBUSY {
        let reason = format!("it does not take a program in mode {mode}: {error}");
        return unusable(name, reason, "fabric.xdp_mode = \"generic\" works on every interface, and is slower");
    }
    let Some((id, holder)) = holder(number) else {
        return unusable(name, "another program receives there".into(), "Try again: it may just have gone");
    };
    if is_ours(&holder) {
        let remedy = "It may be verbena's, of another user or version, or of a process that is stopped: `ss -xlp` shows who has a name that \
                      begins with @verbena.xdp. Processes of one user and version share an interface";
        return unusable(name, format!("the program {holder:?} (number {id}) receives there"), remedy);
    }
    let remedy = format!("Where it is no longer needed, `ip link set dev {name} xdp off` takes it away");
    unusable(name, format!("the program {holder:?} (number {id}) receives there"), &remedy)
}

/// Whether it may be. Only root learns the names of programs.
fn is_ours(program: &str) -> bool {
    program.is_empty() || program == EXECUTOR
}

/// The program that an interface has: its number and name.
fn holder(interface: u32) -> Option<(u32, String)> {
    let mut found = libbpf_sys::bpf_xdp_query_opts {
        sz: size_of::<libbpf_sys::bpf_xdp_query_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: `found` outlives the call, which fills it and keeps nothing.
    let failed = unsafe { libbpf_sys::bpf_xdp_query(interface as i32, 0, &mut found) };
    let id = [found.prog_id, found.drv_prog_id, found.skb_prog_id].into_iter().find(|id| *id != 0)?;
    if failed != 0 {
        return None;
    }
    let name = ProgInfoIter::default().find(|info| info.id == id).map(|info| info.name.to_string_lossy().into_owned());
    Some((id, name.unwrap_or_default()))
}

fn unusable(name: &str, reason: String, remedy: &str) -> Error {
    Error::Unusable { provider: "xdp", reason: format!("interface {name}: {reason}"), remedy: remedy.to_owned() }
}

/// The network namespace that this thread is in.
fn namespace() -> Result<u64> {
    let named = std::fs::metadata("/proc/thread-self/ns/net");
    Ok(named.map_err(|error| Error::system("look at the network namespace", error))?.ino())
}
