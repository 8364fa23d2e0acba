//! `TPRT` and `TCON`: where the streams of a session come from (rules T1 and T17).
//!
//! A session is between the client and the server, or between two servers, of which one listens by `TPRT` and the other one connects by `TCON`, as a client
//! tells both. To listen for another server harms no third host: its streams bring the token, or are closed. To connect to one could be used against it,
//! as `PORT` could (the *bounce attack*): so the same list of the user allows both.

use std::net::IpAddr;

use verbena_transfer::{ChannelKind, Endpoint};

use crate::address::canonical;
use crate::machine::{Action, DataPlace, Machine, Waiting};
use crate::rights::Login;

/// Lower ports are those of servers that believe who connects to them.
pub(crate) const LOWEST_PORT: u16 = 1024;

impl Machine {
    /// Whether the user may have this server connect to a host: the client's own, or one that the administrator has listed for the user.
    pub(crate) fn may_connect(&self, host: IpAddr, fxp: &[IpAddr]) -> bool {
        host == canonical(self.settings.peer) || fxp.contains(&host)
    }

    /// Whether nothing between a host and this server is a network (rule T2).
    fn is_one_machine(&self, other: IpAddr) -> bool {
        let other = canonical(other);
        other.is_loopback() || other == canonical(self.settings.local)
    }

    /// Whether a session with a host may have a channel. Where data is private, none in clear between machines (rule T2). Descriptors stay on the machine (rule T3), and no
    /// rate of a user counts what is copied.
    fn fits(&self, kind: ChannelKind, other: IpAddr, login: &Login) -> bool {
        let is_near = self.is_one_machine(other);
        match kind.is_local() {
            true => is_near && login.rate.is_none(),
            false => !self.is_private || is_near || kind.is_encrypted(),
        }
    }

    pub(crate) fn on_tprt(
        &mut self,
        channels: &[Vec<u8>],
        (first, most): (u16, u16),
        from: Option<IpAddr>,
        login: &Login,
    ) {
        self.close_listener();
        let other = from.unwrap_or(self.settings.peer);
        let fits = |kind: &ChannelKind| self.fits(*kind, other, login) && (from.is_none() || kind.is_for_servers());
        let groups = channels.iter().map(|names| group(names, fits)).filter(|group| !group.is_empty());
        let channels: Vec<Vec<ChannelKind>> = groups.collect();
        if channels.is_empty() {
            let names: Vec<&str> = ChannelKind::ALL.into_iter().filter(fits).map(ChannelKind::name).collect();
            self.reply(504, &format!("The channels are {}.", names.join(" and ")));
        } else {
            self.waiting = Some(Waiting::Session);
            self.actions.push(Action::ListenSession { channels, first, most, from: from.map(canonical) });
        }
    }

    pub(crate) fn on_tcon(&mut self, endpoints: &[Endpoint], (first, most): (u16, u16), login: &Login) {
        self.close_listener();
        let is_allowed = |endpoint: &Endpoint| {
            self.may_connect(canonical(endpoint.address.ip()), &login.fxp)
                && (endpoint.channel.is_local() || endpoint.address.port() >= LOWEST_PORT)
        };
        if !endpoints.iter().all(is_allowed) {
            return self
                .reply(504, "Streams go to your own address, or to one that your fxp lists, to ports from 1024.");
        }
        if !endpoints.iter().all(|endpoint| self.fits(endpoint.channel, endpoint.address.ip(), login)) {
            return self
                .reply(504, "Behind PROT P no channel is in clear between machines; descriptor is for one machine.");
        }
        if !endpoints.iter().all(|endpoint| endpoint.channel.is_for_servers()) {
            return self.reply(504, "Two servers have no udp with each other.");
        }
        self.data = Some(DataPlace::Session);
        self.actions.push(Action::ConnectSession { endpoints: endpoints.to_vec(), first, most });
        self.reply(200, "The streams of the next session go there.");
    }
}

/// The channels of one session in an argument of `TPRT`, `tcp+quic`: those that this server knows and that fit. Where files are handed over, there is
/// no other channel beside that.
fn group(names: &[u8], fits: impl Fn(&ChannelKind) -> bool) -> Vec<ChannelKind> {
    let mut group = Vec::new();
    for name in names.split(|byte| *byte == b'+') {
        let kind = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
        group.extend(kind.filter(|kind| fits(kind) && !group.contains(kind)));
    }
    if group.len() > 1 {
        group.retain(|kind: &ChannelKind| !kind.is_local());
    }
    group
}
