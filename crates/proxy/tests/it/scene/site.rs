//! A site with a certificate, and curl as its visitor.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use super::client::Answer;

/// An authority, and a directory for what it issues.
pub struct Site {
    directory: TempDir,
    authority: Issuer<'static, KeyPair>,
}

impl Site {
    pub fn new() -> Site {
        let directory = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        fs::write(directory.path().join("authority.pem"), certificate.pem()).unwrap();
        Site { directory, authority: Issuer::new(params, key) }
    }

    pub fn authority(&self) -> PathBuf {
        self.path("authority.pem")
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    /// A certificate for these names and its key, in files of this stem. What was there is replaced.
    pub fn issues(&self, stem: &str, names: &[&str]) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
        params.distinguished_name.push(DnType::CommonName, stem);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        let files = (self.path(&format!("{stem}.pem")), self.path(&format!("{stem}.key")));
        fs::write(&files.0, certificate.pem()).unwrap();
        fs::write(&files.1, key.serialize_pem()).unwrap();
        files
    }
}

/// One visit by curl. None where there is no curl.
pub struct Curl(Child);

impl Curl {
    /// Begins to ask for `https://HOST:PORT/PATH`, whose host is at `address`.
    pub fn asks(address: SocketAddr, authority: &Path, host: &str, path: &str, more: &[&str]) -> Option<Curl> {
        let port = address.port();
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--include", "--max-time", "60"])
            .args(["--resolve", &format!("{host}:{port}:127.0.0.1")])
            .arg("--cacert")
            .arg(authority)
            .args(more)
            .arg(format!("https://{host}:{port}{path}"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        match curl.spawn() {
            Ok(child) => Some(Curl(child)),
            Err(error) => {
                eprintln!("skipped: curl cannot be started: {error}");
                None
            }
        }
    }

    /// What it got; or what it said, if that is no answer.
    pub fn tries(self) -> Result<Answer, String> {
        let output = self.0.wait_with_output().unwrap();
        let Some(end) = output.stdout.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        };
        let head = String::from_utf8(output.stdout[..end + 4].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Ok(Answer { status, head, body: output.stdout[end + 4..].to_vec(), whole: output.status.success() })
    }

    #[track_caller]
    pub fn answer(self) -> Answer {
        self.tries().unwrap()
    }
}
