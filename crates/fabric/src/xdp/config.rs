//! What an xdp fabric is opened with.

use crate::config::XdpMode as Mode;
use crate::tcp::TcpConfig;

/// What an xdp fabric is opened with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XdpConfig {
    /// The channels for messages, for [`Class::Bulk`](crate::Class::Bulk) and for introductions. One-sided operations come to the address that they
    /// listen at, and its port.
    pub tcp: TcpConfig,
    /// The interfaces to receive on; none, the one that has the address.
    pub interfaces: Vec<String>,
    /// Where in their receive paths.
    pub mode: Mode,
}
