//! The channels that a client offers with `TPRT` (rules T1, T2 and T13).

use verbena_transfer::{ChannelKind, Endpoint};

use crate::client::CopyError;

/// What a client offers.
pub(crate) struct Offer {
    /// As `TPRT` has it.
    pub argument: String,
    channels: Vec<ChannelKind>,
    /// Whether the user has named no channel: one session has all of them.
    is_open: bool,
    is_private: bool,
}

impl Offer {
    /// Of the channels that a user has named, or of all. `is_private`: nothing may go in clear (rule T2).
    pub(crate) fn of(named: &[ChannelKind], is_private: bool) -> Result<Offer, CopyError> {
        let is_open = named.is_empty();
        let all = if is_open { &ChannelKind::ALL } else { named };
        let fits = |kind: &ChannelKind| !is_private || kind.is_encrypted();
        let channels: Vec<ChannelKind> = all.iter().copied().filter(fits).collect();
        let names = |channels: &[ChannelKind], between| {
            channels.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(between)
        };
        if channels.is_empty() {
            return Err(CopyError::Clear(names(named, " and ")));
        }
        Ok(Offer { argument: names(&channels, if is_open { "+" } else { "," }), channels, is_open, is_private })
    }

    /// Whether a server's answer has nothing that was not offered.
    pub(crate) fn has(&self, endpoints: &[Endpoint]) -> bool {
        let is_offered = endpoints.iter().all(|endpoint| self.channels.contains(&endpoint.channel));
        is_offered && (self.is_open || endpoints.len() == 1)
    }

    /// Why the session has these channels, where the user has named none.
    pub(crate) fn reason(&self, channels: &[ChannelKind]) -> Option<String> {
        let why = match channels {
            _ if !self.is_open => return None,
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
    use ChannelKind::{Quic, Tcp};

    fn endpoint(channel: ChannelKind) -> Endpoint {
        Endpoint { channel, address: ([127, 0, 0, 1], 1).into(), token: [0; 16], fingerprint: None }
    }

    #[test]
    fn with_tls_nothing_in_clear_is_offered_or_taken() {
        let offer = Offer::of(&[], true).unwrap();
        assert_eq!(offer.argument, "quic");
        assert!(
            offer.has(&[endpoint(Quic)])
                && !offer.has(&[endpoint(Tcp)])
                && !offer.has(&[endpoint(Quic), endpoint(Tcp)])
        );
        assert!(offer.reason(&[Quic]).unwrap().contains("with TLS"));
        assert_eq!(Offer::of(&[Tcp, Quic], true).unwrap().argument, "quic");
        assert!(matches!(Offer::of(&[Tcp], true), Err(CopyError::Clear(names)) if names == "tcp"));
    }

    #[test]
    fn what_is_named_is_an_order_and_what_is_not_is_one_session() {
        assert_eq!(Offer::of(&[], false).unwrap().argument, "tcp+quic");
        assert_eq!(Offer::of(&[Quic, Tcp], false).unwrap().argument, "quic,tcp");
        let named = Offer::of(&[Quic, Tcp], false).unwrap();
        assert!(named.has(&[endpoint(Tcp)]) && !named.has(&[endpoint(Tcp), endpoint(Quic)]));
        assert_eq!(named.reason(&[Tcp]), None);
    }
}
