//! Applications that speak HTTP/2, and those that are told who the client is.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use http::Version;
use verbena_proxy::{OriginHttp, ProxyVersion};

use crate::scene::{Multiplexer, PATIENCE, Scene, Site};

/// An application with TLS, and one without.
fn scenes() -> Vec<(Scene, Multiplexer, Site, &'static str)> {
    [true, false]
        .map(|is_secure| {
            let site = Site::new();
            let origin = Multiplexer::start(is_secure.then_some(&site));
            let (scheme, http) = if is_secure { ("https", OriginHttp::Auto) } else { ("http", OriginHttp::Http2) };
            let scene = Scene::with(|config| {
                config.origin = vec![format!("{scheme}://{}", origin.address)];
                config.origin_ca = is_secure.then(|| site.authority());
                (config.origin_http, config.threads) = (http, 1);
            });
            (scene, origin, site, scheme)
        })
        .into()
}

#[test]
fn reads_share_a_connection_of_http2_and_a_write_has_one_of_its_own() {
    for (scene, origin, _site, scheme) in scenes() {
        let mut client = scene.client();
        for path in ["/a", "/b", "/c"] {
            client.get_with(path, &["TE: gzip", "Connection: te, close-not"]);
            client.answer().is(200, "of frames").said("stored");
            let (head, _) = origin.asked();
            assert_eq!((head.version, head.uri.to_string()), (Version::HTTP_2, format!("{scheme}://shop{path}")));
            let field = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
            assert_eq!((field("host"), field("te").as_deref(), field("connection")), (None, Some("trailers"), None));
            assert_eq!(field("x-forwarded-host").as_deref(), Some("shop"));
            scene.hits(path, "of frames");
        }
        assert_eq!(origin.connections(), 1);
        client.post("/a", "seven");
        let answer = client.answer();
        answer.is(200, "of frames");
        assert_eq!(answer.field("via").as_deref(), Some("2 verbena"));
        let (head, body) = origin.asked();
        assert_eq!((head.version, &body[..]), (Version::HTTP_2, &b"seven"[..]));
        assert_eq!(head.headers["content-length"], "5");
        assert_eq!(origin.connections(), 2);
    }
}

#[test]
fn trailers_of_http2_are_passed_and_what_has_them_is_not_stored() {
    for (scene, origin, _site, _) in scenes() {
        let mut client = TcpStream::connect(scene.proxy.address()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let fields = "Host: shop\r\nTE: trailers\r\nConnection: close, TE";
        write!(client, "GET /trailers HTTP/1.1\r\n{fields}\r\n\r\n").unwrap();
        let mut said = String::new();
        client.read_to_string(&mut said).unwrap();
        assert!(said.ends_with("0\r\ngrpc-status: 0\r\n\r\n"), "{said}");
        origin.asked();
        scene.misses("/trailers");
    }
}

#[test]
fn a_body_that_breaks_off_is_cut_and_not_stored() {
    for (scene, origin, _site, _) in scenes() {
        let mut client = scene.client();
        client.get_with("/broken", &["Connection: close"]);
        client.is_cut();
        origin.asked();
        scene.misses("/broken");
        client = scene.client();
        client.get("/whole");
        client.answer().is(200, "of frames");
    }
}

#[test]
fn each_connection_says_who_the_client_is() {
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        let application = TcpListener::bind("127.0.0.1:0").unwrap();
        let scene = Scene::with(|config| {
            config.origin = vec![format!("http://{}", application.local_addr().unwrap())];
            config.origin_proxy_protocol = Some(version);
        });
        for request in ["GET / HTTP/1.1", "POST / HTTP/1.1", "GET / HTTP/1.1"] {
            let mut client = TcpStream::connect(scene.proxy.address()).unwrap();
            let (here, there) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
            write!(client, "{request}\r\nHost: shop\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
            let expected = match version {
                ProxyVersion::V1 => {
                    format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\n", here.port(), there.port()).into_bytes()
                }
                ProxyVersion::V2 => {
                    let fixed = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x01";
                    [&fixed[..], &here.port().to_be_bytes(), &there.port().to_be_bytes()].concat()
                }
            };
            // The first ones only look whether something listens, or have gone already.
            let mut asked = loop {
                let (mut stream, _) = application.accept().unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let mut header = vec![0; expected.len()];
                if stream.read_exact(&mut header).is_ok() {
                    assert_eq!(header, expected, "{version:?}");
                    break stream;
                }
            };
            let mut first = vec![0; request.len()];
            asked.read_exact(&mut first).unwrap();
            assert_eq!(String::from_utf8_lossy(&first), request);
            asked.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
            let mut said = String::new();
            client.read_to_string(&mut said).unwrap();
            assert!(said.ends_with("ok"), "{said}");
            let _ = asked.shutdown(Shutdown::Both);
        }
    }
}
