//! What a user can do about an error of the client: the end of its sentence, or nothing.

use std::io::{Error, ErrorKind};

use rustls::CertificateError;
use verbena_transfer::FileError;

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
            // Of the form of an authority's, which no server's may have.
            CertificateError::Other(_) => {
                "; if this is the server's own certificate, as `openssl req -x509` makes it, give its PEM file by --ca"
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
        _ if error.to_string().starts_with("failed to lookup") => "; correct the host's name, or write its IP address",
        _ => "",
    }
}

/// The words of an error of a file, which FTP's replies end with a full stop, within a sentence.
pub(crate) fn in_a_sentence(error: FileError) -> String {
    error.to_string().trim_end_matches('.').to_owned()
}

/// Of a file or directory on this side.
pub(crate) fn of_local(error: FileError) -> &'static str {
    match error {
        FileError::NotFound => "; correct the path, or make the directory first (mkdir -p)",
        FileError::NotDirectory => "; a tree goes into a directory: choose one",
        FileError::Denied => "; choose a path that this user can use",
        FileError::Full | FileError::Quota => "; make room, and run the same command again",
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
            "; look at the path by `verbena ftp ls`. The user needs the right to write there: `verbena ftp serve` gives it in its file of users"
        }
        ("DELE" | "RMD" | "RNFR" | "RNTO", 550) => {
            "; look at the path by `verbena ftp ls`. The user needs the right to delete there: `verbena ftp serve` gives it in its file of users"
        }
        ("STOR" | "APPE", 452) => {
            "; remove files there, or have the quota raised: it is `quota` in the file of users of `verbena ftp serve`"
        }
        ("RETR" | "MLSD" | "LIST" | "MLST" | "CWD" | "SIZE" | "HASH", 550) => "; look at the path by `verbena ftp ls`",
        _ => "",
    }
}
