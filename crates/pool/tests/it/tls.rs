//! TLS with a client that is not ours: Python's `ssl`, and our own commands.

use std::process::Command;

use verbena_testkit::programs::{verbena, wait_for};

use crate::processes::pool_with;

/// Reads and writes by TLS; then the file of the certificate is another one, and the client is shown it.
const SESSION: &str = r#"
import socket, ssl, sys
host, port = sys.argv[1].rsplit(":", 1)
context = ssl.create_default_context(cafile=sys.argv[2])
context.minimum_version = getattr(ssl.TLSVersion, sys.argv[3])
context.maximum_version = getattr(ssl.TLSVersion, sys.argv[3])
with socket.create_connection((host, int(port)), timeout=60) as plain:
    with context.wrap_socket(plain, server_hostname="localhost") as stream:
        value = b"x" * 200_000
        stream.sendall(b"set key 0 0 %d\r\n%s\r\nget key\r\nquit\r\n" % (len(value), value))
        said = b""
        while True:
            part = stream.recv(65536)
            if not part:
                break
            said += part
        assert said == b"STORED\r\nVALUE key 0 %d\r\n%s\r\nEND\r\n" % (len(value), value), said[:100]
        print(stream.version())
"#;

/// An authority, and a certificate of it for `localhost`.
fn make_keys(directory: &std::path::Path, name: &str) {
    let run = |words: &[&str]| {
        let output = Command::new("openssl").args(words).current_dir(directory).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let (key, certificate) = (format!("{name}.key"), format!("{name}.pem"));
    run(&[
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
        "-keyout",
        &key,
        "-out",
        &certificate,
    ]);
}

#[test]
fn clients_speak_tls_and_are_shown_the_certificate_of_now() {
    if Command::new("openssl").arg("version").output().is_err() {
        println!("skipped: openssl is not installed");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    make_keys(directory.path(), "pool");
    make_keys(directory.path(), "next");
    let flags = ["--memory", "4MiB", "--tls-cert", &path("pool.pem"), "--tls-key", &path("pool.key")];
    let (_process, serving) = pool_with(directory.path(), "a", "127.0.0.1:0", &flags);
    let at = serving["address"].as_str().unwrap();
    let ask = |words: &[&str], authority: &str| {
        let words = [&["pool"], words, &["--server", at, "--tls-ca", authority]].concat();
        verbena(&words).output().unwrap()
    };
    std::fs::copy(path("pool.pem"), path("first.pem")).unwrap();
    wait_for("a value to be set by TLS", || ask(&["set", "greeting", "hello"], &path("first.pem")).status.success());
    assert_eq!(ask(&["get", "greeting"], &path("first.pem")).stdout, b"hello");
    assert_eq!(
        ask(&["get", "greeting"], &path("next.pem")).status.code(),
        Some(3),
        "an authority that does not vouch for it"
    );
    for version in ["TLSv1_2", "TLSv1_3"] {
        let output =
            Command::new("/usr/bin/python3").args(["-c", SESSION, at, &path("first.pem"), version]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).replace('.', "_");
        assert!(said.trim().ends_with(version), "{said}{}", String::from_utf8_lossy(&output.stderr));
    }
    // One that speaks none gets no answer.
    let plain = verbena(&["pool", "get", "greeting", "--server", at, "--patience", "5s"]).output().unwrap();
    assert_eq!(plain.status.code(), Some(3));
    // Half of a new pair changes nothing; both do.
    std::fs::rename(path("next.key"), path("pool.key")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    wait_for("the certificate of before", || ask(&["set", "greeting", "hello"], &path("first.pem")).status.success());
    std::fs::copy(path("next.pem"), path("pool.pem")).unwrap();
    wait_for("the new certificate to be shown", || {
        ask(&["set", "greeting", "hello"], &path("next.pem")).status.success()
    });
    assert_eq!(ask(&["get", "greeting"], &path("first.pem")).status.code(), Some(3));
}
