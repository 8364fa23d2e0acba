//! The channels that a client offers with `TPRT` (rules T1, T2 and T13).

use verbena_transfer::{ChannelKind, Endpoint};

use crate::client::CopyError;

/// What a client offers.
pub(crate) struct Offer {
    channels: Vec<ChannelKind>,
    /// Whether the user has named no channel: one session has all of them.
    is_open: bool,
    is_private: bool,
}

impl Offer {
    /// Of the channels that a user has named, or of all. `is_private`: nothing may go in clear between machines (rule T2). `is_one_machine`: descriptors
    /// may be handed over (rule T3).
    pub(crate) fn of(named: &[ChannelKind], is_private: bool, is_one_machine: bool) -> Result<Offer, CopyError> {
        let (is_open, is_private) = (named.is_empty(), is_private && !is_one_machine);
        let all = if is_open { &ChannelKind::ALL } else { named };
        let fits = |kind: &ChannelKind| match kind.is_local() {
            true => is_one_machine,
            false => !is_private || kind.is_encrypted(),
        };
        let channels: Vec<ChannelKind> = all.iter().copied().filter(fits).collect();
        if channels.is_empty() {
            let names: Vec<&str> = named.iter().map(|kind| kind.name()).collect();
            return Err(CopyError::NoChannel(names.join(" and ")));
        }
        Ok(Offer { channels, is_open, is_private })
    }

    /// As `TPRT` has it.
    pub(crate) fn argument(&self) -> String {
        let names = |channels: &[ChannelKind], between: &str| {
            channels.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(between)
        };
        match self.channels.split_first() {
            Some((first, rest)) if self.is_open && first.is_local() && !rest.is_empty() => {
                format!("{first},{}", names(rest, "+"))
            }
            _ => names(&self.channels, if self.is_open { "+" } else { "," }),
        }
    }

    /// Leaves out the channels of one machine, where they turned out not to work. False if there is no other.
    pub(crate) fn drop_local(&mut self) -> bool {
        self.channels.retain(|kind| !kind.is_local());
        !self.channels.is_empty()
    }

    /// Whether a channel of one machine is offered.
    pub(crate) fn has_local(&self) -> bool {
        self.channels.iter().any(|kind| kind.is_local())
    }

    pub(crate) fn without_local(mut self) -> Offer {
        self.drop_local();
        self
    }

    /// Leaves out what two servers do not have with each other. `None` if there is nothing else.
    pub(crate) fn for_servers(mut self) -> Option<Offer> {
        self.channels.retain(|kind| kind.is_for_servers());
        (!self.channels.is_empty()).then_some(self)
    }

    /// Whether a server's answer has nothing that was not offered.
    pub(crate) fn has(&self, endpoints: &[Endpoint]) -> bool {
        let is_offered = endpoints.iter().all(|endpoint| self.channels.contains(&endpoint.channel));
        let is_alone = endpoints.len() == 1;
        is_offered && (is_alone || self.is_open && !endpoints.iter().any(|endpoint| endpoint.channel.is_local()))
    }

    /// Why the session has these channels, where the user has named none.
    pub(crate) fn reason(&self, channels: &[ChannelKind]) -> Option<String> {
        let why = match channels {
            _ if !self.is_open => return None,
            [only] if only.is_local() => format!(
                "{only}: both sides are on this machine and of one user, so that the receiver copies from the files"
            ),
            [only] if self.is_private => format!("{only}: with TLS nothing goes in clear between machines"),
            [only] => format!("{only}: the server has no other channel"),
            [first, rest @ ..] => {
                let rest: Vec<&str> = rest.iter().map(|kind| kind.name()).collect();
                format!(
                    "{first}, which takes the least processor time; {} where packets are lost and it pays",
                    rest.join(" or ")
                )
            }
            [] => return None,
        };
        Some(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ChannelKind::{Descriptor, Quic, Tcp, Udp};

    fn endpoint(channel: ChannelKind) -> Endpoint {
        Endpoint { channel, address: ([127, 0, 0, 1], 1).into(), token: [0; 16], fingerprint: None, secret: None }
    }

    #[test]
    fn with_tls_nothing_in_clear_is_offered_or_taken() {
        let offer = Offer::of(&[], true, false).unwrap();
        assert_eq!(offer.argument(), "quic+udp");
        assert!(offer.has(&[endpoint(Quic)]) && offer.has(&[endpoint(Udp), endpoint(Quic)]));
        assert!(!offer.has(&[endpoint(Tcp)]) && !offer.has(&[endpoint(Quic), endpoint(Tcp)]));
        assert!(offer.reason(&[Quic]).unwrap().contains("with TLS"));
        assert_eq!(Offer::of(&[Tcp, Quic], true, false).unwrap().argument(), "quic");
        assert_eq!(Offer::of(&[Udp, Tcp], true, false).unwrap().argument(), "udp");
        assert!(matches!(Offer::of(&[Tcp], true, false), Err(CopyError::NoChannel(names)) if names == "tcp"));
        // On one machine nothing is between the two.
        assert_eq!(Offer::of(&[Tcp], true, true).unwrap().argument(), "tcp");
    }

    #[test]
    fn what_is_named_is_an_order_and_what_is_not_is_one_session() {
        assert_eq!(Offer::of(&[], false, false).unwrap().argument(), "tcp+quic+udp");
        assert_eq!(Offer::of(&[Quic, Tcp], false, false).unwrap().argument(), "quic,tcp");
        let named = Offer::of(&[Quic, Tcp], false, false).unwrap();
        assert!(named.has(&[endpoint(Tcp)]) && !named.has(&[endpoint(Tcp), endpoint(Quic)]));
        assert_eq!(named.reason(&[Tcp]), None);
    }

    #[test]
    fn descriptors_are_offered_on_one_machine_and_first() {
        let mut offer = Offer::of(&[], true, true).unwrap();
        assert_eq!(offer.argument(), "descriptor,tcp+quic+udp");
        assert!(offer.has(&[endpoint(Descriptor)]) && offer.has(&[endpoint(Tcp), endpoint(Quic)]));
        assert!(!offer.has(&[endpoint(Descriptor), endpoint(Tcp)]));
        assert!(offer.reason(&[Descriptor]).unwrap().contains("one user"));
        // It may be that they turn out not to work.
        assert!(offer.drop_local() && offer.argument() == "tcp+quic+udp" && !offer.has(&[endpoint(Descriptor)]));
        assert!(!Offer::of(&[], false, false).unwrap().has(&[endpoint(Descriptor)]));
        assert!(matches!(Offer::of(&[Descriptor], false, false), Err(CopyError::NoChannel(_))));
        assert!(!Offer::of(&[Descriptor], false, true).unwrap().drop_local());
    }
}
