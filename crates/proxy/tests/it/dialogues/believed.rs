//! Applications that speak TLS.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::scene::{PATIENCE, Scene, Site, next_head};

/// Listens with this certificate, says what it was asked, and answers with a page.
fn application(certificate: &Path, key: &Path) -> (SocketAddr, Receiver<String>) {
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let chain = vec![CertificateDer::from_pem_file(certificate).unwrap()];
    let config = Arc::new(builder.with_single_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap()).unwrap());
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (asks, asked) = channel();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let (asks, config) = (asks.clone(), config.clone());
            std::thread::spawn(move || {
                let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
                let mut read = vec![];
                while let Some(head) = next_head(&mut stream, &mut read) {
                    let page = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
                    if asks.send(head).is_err() || stream.write_all(page.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, asked)
}

#[test]
fn an_application_that_proves_its_name_is_asked() {
    let site = Site::new();
    for host in ["127.0.0.1", "localhost"] {
        let (certificate, key) = site.issues("app", &[host]);
        let (address, asked) = application(&certificate, &key);
        let scene = Scene::with(|config| {
            config.origin = vec![format!("https://{host}:{}", address.port())];
            config.origin_ca = Some(site.authority());
        });
        let mut client = scene.client();
        client.get("/");
        client.answer().is(200, "hello").said("stored");
        let head = asked.recv_timeout(PATIENCE).unwrap().to_lowercase();
        assert!(head.starts_with("get / http/1.1\r\n") && head.contains("host: shop\r\n"), "{head}");
        assert!(head.contains("x-forwarded-proto: http\r\n"), "of the client, not of this hop: {head}");
        scene.hits("/", "hello");
        client.post("/cart", "");
        client.answer().has(200);
        assert!(asked.recv_timeout(PATIENCE).unwrap().starts_with("POST /cart HTTP/1.1\r\n"));
        assert_eq!(scene.proxy.origins(), (1, 1));
    }
}

#[test]
fn one_that_does_not_is_sent_nothing() {
    let (site, others) = (Site::new(), Site::new());
    let (own, of_others) = (site.issues("app", &["localhost"]), others.issues("app", &["localhost"]));
    let elsewhere = site.issues("elsewhere", &["elsewhere"]);
    for (files, authority, why) in [
        (&of_others, Some(site.authority()), "another authority"),
        (&elsewhere, Some(site.authority()), "another name"),
        (&own, None, "no authority of the system"),
    ] {
        let (address, asked) = application(&files.0, &files.1);
        let scene = Scene::with(|config| {
            config.origin = vec![format!("https://localhost:{}", address.port())];
            config.origin_ca = authority;
        });
        let mut client = scene.client();
        client.get("/");
        client.answer().has(502).said("detail=origin-unreachable");
        client.post("/cart", "one");
        client.answer().has(502).said("detail=origin-unreachable");
        assert!(asked.try_recv().is_err(), "{why}");
        assert_eq!(scene.proxy.origins(), (0, 1), "{why}");
    }
}
