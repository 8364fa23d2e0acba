//! What the servers of others are started with.

use std::net::SocketAddr;
use std::path::Path;

/// Lines for nginx: what it keeps for a while lies in this directory.
pub(super) fn nginx_temporary(directory: &Path) -> String {
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    kinds.iter().map(|kind| format!("{kind}_temp_path {}/{kind};\n", directory.display())).collect()
}

/// Arguments of `varnishd` with this file of rules, this directory of its own, this store and this address.
pub(super) fn varnish<'a>(rules: &'a str, directory: &'a str, store: &'a str, address: &'a str) -> [&'a str; 13] {
    ["-F", "-j", "none", "-T", "none", "-f", rules, "-n", directory, "-s", store, "-a", address]
}

/// The beginning of its rules, which are all there must be: the application.
pub(super) fn varnish_backend(origin: SocketAddr) -> String {
    format!("vcl 4.1;\nbackend default {{ .host = \"{}\"; .port = \"{}\"; }}\n", origin.ip(), origin.port())
}
