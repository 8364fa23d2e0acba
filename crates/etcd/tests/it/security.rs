//! TLS and authentication to etcd, and what is said where they fail.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::asking::{PATIENT, config, enrol, look};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use verbena_cluster::Question;
use verbena_etcd::{Etcd, EtcdConfig};
use verbena_terms::Rank;
use verbena_testkit::etcds::{Etcds, Tls};

/// An authority and a certificate that it issued for loopback, both ends'.
fn make(folder: &Path, name: &str) -> Tls {
    let file = |ending: &str| folder.join(format!("{name}{ending}"));
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::from_params(&params, &key);
    let mut params = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let own = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&own, &issuer).unwrap();
    let tls = Tls { authority: file("-authority.pem"), certificate: file(".pem"), key: file(".key") };
    fs::write(&tls.authority, authority.pem()).unwrap();
    fs::write(&tls.certificate, certificate.pem()).unwrap();
    fs::write(&tls.key, own.serialize_pem()).unwrap();
    tls
}

fn with(endpoints: Vec<String>, authority: &Tls, own: Option<&Tls>) -> EtcdConfig {
    EtcdConfig {
        authority: Some(authority.authority.clone()),
        certificate: own.map(|own| own.certificate.clone()),
        key: own.map(|own| own.key.clone()),
        ..config(endpoints)
    }
}

fn refusal(config: &EtcdConfig) -> String {
    let etcd = Etcd::start(config, PATIENT).unwrap();
    etcd.ask_now(Question::Look, PATIENT.question).unwrap_err().to_string()
}

fn password_file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let file = folder.join(name);
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    file
}

#[test]
fn certificates_prove_each_end_to_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, others) = (make(folder.path(), "ours"), make(folder.path(), "others"));
    let Some(etcds) = Etcds::start_with(Some(ours.clone())) else { return };
    let good = with(etcds.endpoints(), &ours, Some(&ours));
    let etcd = Etcd::start(&good, PATIENT).unwrap();
    assert_eq!(enrol(&etcd, "app1").rank, Rank(1));

    for (config, key) in [
        (with(etcds.endpoints(), &others, Some(&ours)), "look at etcd.authority"),
        (with(etcds.endpoints(), &ours, Some(&others)), "look at etcd.certificate and etcd.key"),
        (with(etcds.endpoints(), &ours, None), "look at etcd.certificate and etcd.key"),
    ] {
        let refused = refusal(&config);
        assert!(refused.contains(key), "expected {key}: {refused}");
    }
    // The clear port of somebody else, where TLS was expected.
    let plain = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = plain.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut client, _)) = plain.accept() {
            let _ = std::io::Write::write_all(&mut client, b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let refused = refusal(&with(vec![format!("https://{address}")], &ours, Some(&ours)));
    assert!(refused.contains("is it http, and not https?"), "{refused}");
}

#[test]
fn a_certificate_is_read_again_for_the_next_connection() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, others) = (make(folder.path(), "ours"), make(folder.path(), "others"));
    let Some(etcds) = Etcds::start_with(Some(ours.clone())) else { return };
    let own = Tls { certificate: folder.path().join("own.pem"), key: folder.path().join("own.key"), ..ours.clone() };
    let take = |from: &Tls| {
        fs::copy(&from.certificate, &own.certificate).unwrap();
        fs::copy(&from.key, &own.key).unwrap();
    };
    take(&others);
    let etcd = Etcd::start(&with(etcds.endpoints(), &ours, Some(&own)), PATIENT).unwrap();
    assert!(etcd.ask_now(Question::Look, PATIENT.question).is_err());
    take(&ours);
    assert_eq!(look(&etcd), None);
}

#[test]
fn files_that_cannot_be_used_are_named_with_their_keys() {
    let folder = tempfile::tempdir().unwrap();
    let ours = make(folder.path(), "ours");
    let (junk, absent) = (folder.path().join("junk.pem"), folder.path().join("absent"));
    fs::write(&junk, "junk").unwrap();
    let open = password_file(folder.path(), "open", "secret\n");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o640)).unwrap();
    let empty = password_file(folder.path(), "empty", "\nsecret");
    let good = with(vec!["https://127.0.0.1:1".into()], &ours, Some(&ours));
    let user = |file: &Path| EtcdConfig {
        user: Some("app".into()),
        password_file: Some(file.to_owned()),
        ..config(vec!["http://127.0.0.1:1".into()])
    };
    for (config, expected) in [
        (
            EtcdConfig { authority: Some(junk.clone()), ..good.clone() },
            ["etcd.authority: ", "junk.pem: no certificate in it"],
        ),
        (EtcdConfig { authority: Some(absent.clone()), ..good.clone() }, ["etcd.authority: ", "absent: No such file"]),
        (
            EtcdConfig { certificate: Some(junk.clone()), ..good.clone() },
            ["etcd.certificate: ", "junk.pem: no certificate in it"],
        ),
        (EtcdConfig { key: Some(junk), ..good }, ["etcd.key: ", "junk.pem: "]),
        (user(&absent), ["etcd.password_file: ", "absent: No such file"]),
        (user(&open), ["etcd.password_file: ", "open: mode 640 lets others at it: chmod 600"]),
        (user(&empty), ["etcd.password_file: ", "empty: its first line is empty"]),
        (EtcdConfig::default(), ["etcd.endpoints: ", "none"]),
    ] {
        let refused = Etcd::start(&config, PATIENT).err().unwrap().to_string();
        assert!(refused.starts_with(expected[0]) && refused.contains(expected[1]), "{refused}");
    }
}

#[test]
fn a_user_proves_who_it_is_and_does_so_again_when_etcd_has_forgotten() {
    let Some(etcds) = Etcds::start() else { return };
    let root = ["--user", "root:top"];
    let as_root = |arguments: &[&str]| etcds.controlled(0, &[&root, arguments].concat());
    etcds.controlled(0, &["user", "add", "root:top"]);
    etcds.controlled(0, &["user", "grant-role", "root", "root"]);
    etcds.controlled(0, &["user", "add", "app:secret"]);
    etcds.controlled(0, &["user", "add", "guest:secret"]);
    etcds.controlled(0, &["role", "add", "verbena"]);
    etcds.controlled(0, &["role", "grant-permission", "--prefix=true", "verbena", "readwrite", "/verbena/"]);
    etcds.controlled(0, &["user", "grant-role", "app", "verbena"]);
    etcds.controlled(0, &["auth", "enable"]);

    let file = password_file(etcds.folder(), "password", "secret\n");
    let user = |name: &str, file: &Path| EtcdConfig {
        user: Some(name.into()),
        password_file: Some(file.to_owned()),
        ..config(etcds.endpoints())
    };
    let app = user("app", &file);
    // One endpoint, so that no other is asked instead.
    let etcd = Etcd::start(&EtcdConfig { endpoints: vec![etcds.endpoint(0)], ..app.clone() }, PATIENT).unwrap();
    assert_eq!(enrol(&etcd, "app1").rank, Rank(1));
    // This forgets every token, as their end does.
    as_root(&["auth", "disable"]);
    etcds.controlled(0, &["auth", "enable"]);
    assert_eq!(enrol(&etcd, "app1").rank, Rank(2));

    let wrong = password_file(etcds.folder(), "wrong", "guessed");
    let elsewhere = EtcdConfig { prefix: "/other".into(), ..app.clone() };
    for (config, key) in [
        (user("app", &wrong), "look at etcd.user and etcd.password_file"),
        (user("nobody", &file), "look at etcd.user and etcd.password_file"),
        (user("guest", &file), "look at etcd.user, which needs to read and write what begins with etcd.prefix"),
        (elsewhere, "look at etcd.user, which needs to read and write what begins with etcd.prefix"),
        (config(etcds.endpoints()), "look at etcd.user: etcd's authentication is enabled"),
    ] {
        let refused = refusal(&config);
        assert!(refused.contains(key), "expected {key}: {refused}");
    }

    // A new password is read from its file when the old one is of no use any more.
    as_root(&["user", "delete", "app"]);
    as_root(&["user", "add", "app:renewed"]);
    as_root(&["user", "grant-role", "app", "verbena"]);
    fs::write(&file, "renewed\n").unwrap();
    etcds.wait("the new password", || etcd.ask_now(Question::Look, PATIENT.question).is_ok());
}
