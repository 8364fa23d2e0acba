//! Certificates for the nodes of a cluster: what `verbena keys` makes and `verbena doctor` looks at.
//!
//! One authority, made once and kept away from the nodes, issues each node a certificate for the name of its rank
//! (`node-7.verbena`), or for its own name where every incarnation has a new rank (`app1.member.verbena`). Files are
//! PEM, readable by their owner only, appear whole or not at all, and never take the place of another: to renew a
//! certificate, issue it under a new name and rename both files over the old ones. A running node reads them when it
//! makes or takes its next connection.

use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use verbena_terms::Rank;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::tls::{member_name, name_of};
use crate::error::{Error, Result};

/// A certificate and its private key, as files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The certificate.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// What a certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The rank that it is for, if it is one's.
    pub rank: Option<Rank>,
    /// The name of the node that it is for, if it is one's.
    pub member: Option<String>,
    /// Whether it is an authority's.
    pub authority: bool,
    /// From when until when it is good.
    pub valid: Range<SystemTime>,
}

/// Makes an authority that is good for the time given.
pub fn create_authority(files: &Pair, valid: Range<SystemTime>) -> Result<()> {
    let mut params = params("verbena authority", vec![], &valid)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate().map_err(refused)?;
    let certificate = params.self_signed(&key).map_err(refused)?;
    write_pair(files, &certificate.pem(), &key.serialize_pem())
}

/// Issues the certificate of the node of this rank. It ends with its authority's at the latest.
pub fn issue(authority: &Pair, rank: Rank, files: &Pair, valid: Range<SystemTime>) -> Result<()> {
    issue_for(authority, name_of(rank), files, valid)
}

/// Issues the certificate of the node of this name, as [`issue`] does.
///
/// # Errors
/// Also if no certificate is possible for such a name.
pub fn issue_named(authority: &Pair, name: &str, files: &Pair, valid: Range<SystemTime>) -> Result<()> {
    issue_for(authority, member_name(name).map_err(refused)?, files, valid)
}

/// What keeps a node of this name from having a certificate, if something does.
pub fn refusal_of(name: &str) -> Option<String> {
    member_name(name).err()
}

fn issue_for(authority: &Pair, name: String, files: &Pair, valid: Range<SystemTime>) -> Result<()> {
    let until = inspect(&authority.certificate)?.valid.end.min(valid.end);
    let mut params = params(&name, vec![name.clone()], &(valid.start..until))?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;

    let signing = KeyPair::from_pem(&read(&authority.key)?).map_err(|error| unreadable(&authority.key, error))?;
    let issuer = Issuer::from_ca_cert_pem(&read(&authority.certificate)?, signing)
        .map_err(|error| unreadable(&authority.certificate, error))?;
    let key = KeyPair::generate().map_err(refused)?;
    let certificate = params.signed_by(&key, &issuer).map_err(refused)?;
    write_pair(files, &certificate.pem(), &key.serialize_pem())
}

/// Reads what a certificate says; of several in the file, the first. Does not check that an authority vouches for it.
pub fn inspect(certificate: &Path) -> Result<Inspection> {
    let der = CertificateDer::from_pem_file(certificate).map_err(|error| unreadable(certificate, error))?;
    let (_, parsed) = X509Certificate::from_der(&der).map_err(|error| unreadable(certificate, error))?;
    let names = parsed.subject_alternative_name().map_err(|error| unreadable(certificate, error))?;
    let names = names.map_or(&[][..], |extension| &extension.value.general_names);
    let mut names = names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(*name),
        _ => None,
    });
    let moment = |seconds: i64| SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    let validity = parsed.validity();
    Ok(Inspection {
        rank: names.clone().find_map(rank_of),
        member: names.find_map(member_of),
        authority: parsed.is_ca(),
        valid: moment(validity.not_before.timestamp())..moment(validity.not_after.timestamp()),
    })
}

fn params(name: &str, names: Vec<String>, valid: &Range<SystemTime>) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(names).map_err(refused)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let since_1970 = |moment: SystemTime| {
        moment.duration_since(SystemTime::UNIX_EPOCH).map_err(|_| refused("a validity that begins or ends before 1970"))
    };
    params.not_before = rcgen::date_time_ymd(1970, 1, 1) + since_1970(valid.start)?;
    params.not_after = rcgen::date_time_ymd(1970, 1, 1) + since_1970(valid.end)?;
    Ok(params)
}

fn rank_of(name: &str) -> Option<Rank> {
    let rank = Rank(name.strip_prefix("node-")?.strip_suffix(".verbena")?.parse().ok()?);
    (name_of(rank) == name).then_some(rank)
}

fn member_of(name: &str) -> Option<String> {
    let member = name.strip_suffix(".member.verbena")?;
    member_name(member).is_ok().then(|| member.to_owned())
}

/// Writes both or neither.
fn write_pair(files: &Pair, certificate: &str, key: &str) -> Result<()> {
    write_new(&files.key, key)?;
    write_new(&files.certificate, certificate).inspect_err(|_| {
        // Without its certificate the key is of no use; that it stays behind is the lesser trouble.
        let _ = fs::remove_file(&files.key);
    })
}

/// Writes a new file that only its owner reads, whole or not at all. Never replaces a file.
fn write_new(path: &Path, text: &str) -> Result<()> {
    let named = |error: std::io::Error| {
        let reason = match error.kind() {
            std::io::ErrorKind::AlreadyExists => "it exists, and is not overwritten: move it away first, or replace a node's with `verbena keys node --replace`".into(),
            _ => error.to_string(),
        };
        Error::System {
            what: "a key or certificate cannot be written",
            reason: format!("{}: {reason}", path.display()),
        }
    };
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".new-{}", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let written = (|| {
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        // A link, unlike a rename, refuses to replace.
        fs::hard_link(&temporary, path)
    })();
    let _ = fs::remove_file(&temporary);
    written.map_err(named)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| unreadable(path, error))
}

fn unreadable(path: &Path, error: impl std::fmt::Display) -> Error {
    Error::System {
        what: "a key or certificate cannot be read",
        reason: format!("{}: {error}; `verbena keys` makes them", path.display()),
    }
}

fn refused(error: impl std::fmt::Display) -> Error {
    Error::system("make a certificate", error)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn pair(folder: &Path, name: &str) -> Pair {
        Pair { certificate: folder.join(format!("{name}.pem")), key: folder.join(format!("{name}.key")) }
    }

    #[test]
    fn a_certificate_says_for_whom_and_how_long_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let (authority, node) = (pair(folder.path(), "authority"), pair(folder.path(), "node"));
        create_authority(&authority, now - DAY..now + 10 * DAY).unwrap();
        issue(&authority, Rank(7), &node, now - DAY..now + 100 * DAY).unwrap();
        let of = inspect(&node.certificate).unwrap();
        assert_eq!((of.rank, of.authority), (Some(Rank(7)), false));
        let end = inspect(&authority.certificate).unwrap();
        assert_eq!((end.rank, end.authority), (None, true));
        assert_eq!(of.valid.end, end.valid.end, "it ends with its authority");
        let error = end.valid.end.duration_since(now + 9 * DAY).unwrap();
        assert!(error <= DAY && error > DAY - Duration::from_secs(5));
    }

    #[test]
    fn nothing_is_overwritten_or_left_half_and_only_its_owner_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let files = pair(folder.path(), "authority");
        fs::write(&files.certificate, "precious").unwrap();
        let refused = create_authority(&files, now..now + DAY).unwrap_err().to_string();
        assert!(refused.contains("authority.pem") && refused.contains("not overwritten"), "{refused}");
        assert_eq!(fs::read_to_string(&files.certificate).unwrap(), "precious");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "neither a key nor a temporary file is left");

        fs::remove_file(&files.certificate).unwrap();
        create_authority(&files, now..now + DAY).unwrap();
        for file in [&files.certificate, &files.key] {
            assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert!(create_authority(&files, now..now + DAY).is_err());
    }

    #[test]
    fn a_certificate_may_be_for_the_name_of_a_node_if_that_can_be_in_one() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let (authority, node) = (pair(folder.path(), "authority"), pair(folder.path(), "node"));
        create_authority(&authority, now - DAY..now + DAY).unwrap();
        issue_named(&authority, "app-1", &node, now - DAY..now + DAY).unwrap();
        let of = inspect(&node.certificate).unwrap();
        assert_eq!((of.rank, of.member.as_deref()), (None, Some("app-1")));
        for name in ["", "App", "app_1", "a.b", "-a", "a-", "ä", &"a".repeat(64)] {
            let refused = issue_named(&authority, name, &pair(folder.path(), "other"), now..now + DAY).unwrap_err();
            assert!(refused.to_string().contains(&format!("{name:?} can be in no certificate")), "{refused}");
        }
        assert_eq!(refusal_of(&"a".repeat(63)), None);
    }

    #[test]
    fn a_file_that_is_no_certificate_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("junk.pem");
        for junk in ["", "junk", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            fs::write(&file, junk).unwrap();
            assert!(inspect(&file).unwrap_err().to_string().contains("junk.pem"));
        }
    }
}
