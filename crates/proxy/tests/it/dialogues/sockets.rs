//! An application on a unix socket.

use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::scene::{PATIENCE, Scene, next_head};

/// Listens there, says what it was asked, and answers each request of a connection with the number that it has among all.
fn application(path: &Path) -> Receiver<String> {
    let listener = UnixListener::bind(path).unwrap();
    let (asks, asked) = channel();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let asks = asks.clone();
            std::thread::spawn(move || answer(stream, &asks));
        }
    });
    asked
}

fn answer(mut stream: UnixStream, asks: &Sender<String>) {
    let mut read = vec![];
    while let Some(head) = next_head(&mut stream, &mut read) {
        let page = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello";
        if asks.send(head).is_err() || stream.write_all(page.as_bytes()).is_err() {
            return;
        }
    }
}

#[test]
fn an_application_on_a_unix_socket_is_one_like_others() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("app.sock");
    let asked = application(&path);
    let scene = Scene::with(|config| config.origin = vec![format!("unix:{}", path.display())]);
    let mut client = scene.client();
    client.get("/");
    client.answer().has(200).said("stored");
    let head = asked.recv_timeout(PATIENCE).unwrap();
    assert!(head.starts_with("GET / HTTP/1.1\r\n") && head.to_lowercase().contains("host: shop"), "{head}");
    scene.hits("/", "hello");
    client.post("/cart", "");
    client.answer().has(200);
    assert!(asked.recv_timeout(PATIENCE).unwrap().starts_with("POST /cart HTTP/1.1\r\n"));
    client.get("/other");
    client.answer().has(200);
    assert!(asked.recv_timeout(PATIENCE).unwrap().starts_with("GET /other HTTP/1.1\r\n"));
    // A client that names no host: the application gets one all the same.
    let mut old = scene.client();
    old.send("GET /old HTTP/1.0\r\n\r\n");
    old.answer().has(200);
    let head = asked.recv_timeout(PATIENCE).unwrap();
    assert!(head.to_lowercase().contains("host: localhost\r\n"), "{head}");
    assert_eq!(scene.proxy.origins(), (1, 1));

    // It is started again, as a deployment does.
    std::fs::remove_file(&path).unwrap();
    client.post("/cart", "");
    client.answer().has(502).said("detail=origin-unreachable");
    assert_eq!(scene.proxy.origins(), (0, 1));
    let again = application(&path);
    scene.comes("the application", |scene| scene.proxy.origins() == (1, 1));
    client.post("/cart", "");
    client.answer().has(200);
    assert!(again.recv_timeout(PATIENCE).unwrap().starts_with("POST /cart HTTP/1.1\r\n"));
}
