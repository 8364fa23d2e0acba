//! Names of sites, for what runs in them: lines in the `/etc/hosts` that a command in a site sees, in a mount namespace of its own, as `ip netns exec`
//! does it with `/etc/netns`. Nothing else of the machine sees them.

use std::ffi::CStr;
use std::fmt::Write;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::panic::resume_unwind;
use std::ptr::null;
use std::sync::Arc;

use libc::{
    MNT_DETACH, MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_REC, MS_SLAVE, O_CLOEXEC, O_CREAT, O_EXCL, O_PATH, O_WRONLY,
};
use verbena_wan::Plan;

use crate::commands::child;

const HOSTS: &CStr = c"/etc/hosts";
const DIRECTORY: &CStr = c"/etc";

/// What a site has for `/etc/hosts`: the sites, and behind them what the machine has.
#[derive(Clone, Debug)]
pub struct Names(Arc<[u8]>);

/// The lines of all sites, with each address that they have, without sites named `localhost`, as every machine calls itself.
pub fn lines(plan: &Plan) -> String {
    let mut lines = String::new();
    for site in plan.sites.iter().filter(|site| !site.name.eq_ignore_ascii_case("localhost")) {
        for address in &site.addresses {
            writeln!(lines, "{address} {}", site.name).expect("invariant: a string takes all text");
        }
    }
    lines
}

impl Names {
    /// With these lines. Nothing, after it was said why, where this process may not mount what commands see, which a thread tries: commands run without
    /// names there.
    pub fn of(lines: &str) -> Option<Names> {
        let mut text = lines.as_bytes().to_vec();
        // Without the file there is no place to mount them over; the message below says so.
        text.extend(std::fs::read("/etc/hosts").unwrap_or_default());
        let names = Names(text.into());
        let tried = names.clone();
        // Its namespace ends with it.
        let tried = std::thread::spawn(move || tried.mount()).join().unwrap_or_else(|panic| resume_unwind(panic));
        if let Err(error) = tried {
            child::say(&format_args!(
                "the sites have no names here, since /etc/hosts cannot be another one for them: {error}; VERBENA_WAN_SITE_NAME has the addresses"
            ));
            return None;
        }
        Some(names)
    }

    /// Moves this thread into a mount namespace of its own, where `/etc/hosts` is this. It takes no lock and allocates nothing: for a process that is about
    /// to execute a command.
    ///
    /// # Errors
    /// What the system said. The thread may have neither the one file nor the other then.
    pub fn mount(&self) -> io::Result<()> {
        // SAFETY: files stay open, and memory as it is: only mounts are other ones.
        checked(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
        // What is mounted here from now on is seen here alone; without this nothing else may be done.
        mount(None, c"/", None, MS_REC | MS_SLAVE)?;
        let place = open(HOSTS, O_PATH | O_CLOEXEC)?;
        // A file system that ends with the last process that sees it, in a place that is there; the file is put into its own place from there.
        mount(Some(c"tmpfs"), DIRECTORY, Some(c"tmpfs"), MS_NOSUID | MS_NODEV | MS_NOEXEC)?;
        let file = open(HOSTS, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC)?;
        let mut rest = &self.0[..];
        while !rest.is_empty() {
            rest = &rest[rustix::io::write(&file, rest)?..];
        }
        // Whatever the mask of this process says.
        rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(0o644))?;
        let mut path = [0; PLACE_BYTES];
        mount(Some(HOSTS), path_of(&place, &mut path), None, MS_BIND)?;
        // SAFETY: the path ends with a zero.
        checked(unsafe { libc::umount2(DIRECTORY.as_ptr(), MNT_DETACH) })
    }
}

/// `/proc/self/fd/`, ten digits, and the zero behind them.
const PLACE_BYTES: usize = 25;

/// The path that stands for an open file.
fn path_of<'a>(file: &OwnedFd, path: &'a mut [u8; PLACE_BYTES]) -> &'a CStr {
    const BEFORE: &[u8] = b"/proc/self/fd/";
    path[..BEFORE.len()].copy_from_slice(BEFORE);
    let mut number = file.as_raw_fd().cast_unsigned();
    let digits = number.checked_ilog10().map_or(1, |log| log as usize + 1);
    for digit in path[BEFORE.len()..BEFORE.len() + digits].iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    CStr::from_bytes_until_nul(path).unwrap_or(c"")
}

fn checked(result: i32) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn mount(source: Option<&CStr>, target: &CStr, kind: Option<&CStr>, flags: libc::c_ulong) -> io::Result<()> {
    let pointer = |text: Option<&CStr>| text.map_or(null(), CStr::as_ptr);
    // SAFETY: the texts end with a zero, and there are no further options.
    checked(unsafe { libc::mount(pointer(source), target.as_ptr(), pointer(kind), flags, null()) })
}

fn open(path: &CStr, flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: the path ends with a zero; with O_CREAT there is a mode.
    let file = unsafe { libc::open(path.as_ptr(), flags, 0o644) };
    checked(file)?;
    // SAFETY: it is new, and nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

#[cfg(test)]
mod tests {
    use verbena_wan::Site;

    use super::*;

    #[test]
    fn each_site_has_a_line_for_each_address() {
        let sites = vec![Site::numbered("paris", 0), Site::numbered("localhost", 1)];
        let plan = Plan { sites, links: vec![], backend: Default::default() };
        assert_eq!(lines(&plan), "10.77.0.1 paris\nfd77::1 paris\n");
    }

    #[test]
    fn a_file_is_found_by_the_path_of_its_descriptor() {
        let file: OwnedFd = std::fs::File::open("/proc/self/stat").unwrap().into();
        let mut path = [0; PLACE_BYTES];
        let said = path_of(&file, &mut path).to_str().unwrap();
        assert_eq!(said, format!("/proc/self/fd/{}", file.as_raw_fd()));
    }
}
