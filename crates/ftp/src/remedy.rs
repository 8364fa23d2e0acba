//! What a user can do about an error of the client: the end of its sentence, or nothing.

use std::io::{Error, ErrorKind};

use rustls::CertificateError;

/// Of a connection.
pub(crate) fn of_io(error: &Error) -> &'static str {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match (tls, error.kind()) {
        (Some(rustls::Error::InvalidCertificate(why)), _) => match why {
            CertificateError::UnknownIssuer => {
                "; no authority that is trusted here vouches for the server: give the PEM file of its authority, or its own \
                 certificate, by --ca"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "; the server's certificate is for another name: write the address as the certificate names it"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "; the server needs a new certificate, or the clock here is wrong"
            }
            _ => "",
        },
        (_, ErrorKind::ConnectionRefused) => "; no server listens there: look at the host and the port",
        (_, ErrorKind::TimedOut | ErrorKind::WouldBlock) => {
            "; the server was silent for too long: look at the address and at firewalls, or give it more time by --timeout"
        }
        (_, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
            "; the server closed the connection: run it again"
        }
        _ => "",
    }
}

/// Of a reply.
pub(crate) fn of_reply(command: &str, code: u16) -> &'static str {
    match (command.split(' ').next().unwrap_or_default(), code) {
        ("USER" | "PASS", 530) => "; name and password stand in the address: ftp://USER:PASSWORD@HOST/PATH",
        ("AUTH", 500..=504) => "; this server does not encrypt: leave out --tls to send everything in clear",
        ("USER", 331 | 421 | 500..=599) => "; some servers take logins by TLS alone: --tls",
        ("STOR" | "APPE" | "MKD" | "MFMT", 550) => {
            "; look at the path by `verbena ftp ls`, and at what the user may do there"
        }
        ("DELE" | "RMD" | "RNFR" | "RNTO", 550) => {
            "; look at the path by `verbena ftp ls`, and at what the user may do there"
        }
        ("RETR" | "MLSD" | "LIST" | "MLST" | "CWD" | "SIZE", 550) => "; look at the path by `verbena ftp ls`",
        _ => "",
    }
}
