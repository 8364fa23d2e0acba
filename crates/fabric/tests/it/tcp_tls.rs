//! Who is let in, and who is believed, on the provider `tcp`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::common::keys::{Keys, good};
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use verbena_fabric::tcp::{Found, Names, Roster, TcpConfig, TcpFabric, TlsIdentity};
use verbena_fabric::{Batch, Class, Error, Fabric, Operation, Port, Region, Result, Rights, SharedRemote, Views};
use verbena_terms::{Incarnation, Rank, ViewNumber};

const VIEW: ViewNumber = ViewNumber(1);

fn folder(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("verbena-tcp-tls-{name}-{}", std::process::id()))
}

fn node(rank: u32, tls: Option<TlsIdentity>) -> TcpFabric {
    let node = TcpFabric::open(Incarnation::new(rank, 1), TcpConfig { tls, ..TcpConfig::default() }).unwrap();
    node.set_view(VIEW);
    node
}

fn open(from: &TcpFabric, to: &TcpFabric, region: &dyn Region) -> Result<SharedRemote> {
    let peer = from.connect(to.identity(), &to.address())?;
    peer.open(&region.key(Rights::Change), from.clock().now() + Duration::from_secs(5))
}

/// Why `from` cannot reach `to`.
fn refusal(from: &TcpFabric, to: &TcpFabric) -> String {
    let region = to.register(64, VIEW).unwrap();
    match open(from, to, &*region) {
        Err(Error::Unreachable { reason, .. }) => reason,
        other => panic!("{:?}", other.map(|_| "it was let in")),
    }
}

/// Waits until a node has counted a refusal, which it does after it has told the caller.
fn refused(by: &TcpFabric) {
    let give_up = Instant::now() + Duration::from_secs(10);
    while by.counts().refused == 0 {
        assert!(Instant::now() < give_up, "{:?}", by.counts());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn nodes_of_one_authority_work_together_and_messages_say_who_sent_them() {
    let keys = Keys::new(folder("together"));
    (1..=2).for_each(|rank| keys.issue(Rank(rank)));
    let [a, b] = [1, 2].map(|rank| node(rank, Some(keys.identity(Rank(rank)))));
    let region = b.register(2 << 20, VIEW).unwrap();
    let remote = open(&a, &b, &*region).unwrap();
    let deadline = a.clock().now() + Duration::from_secs(10);
    let from = a.pool().copy_of(&vec![7; 1 << 20]).unwrap();
    remote.post(Batch::one(Operation::Write { at: 1, from }), Class::Bulk, deadline).wait().unwrap();
    let into = a.pool().take(1 << 20).unwrap();
    let done = remote.post(Batch::one(Operation::Read { at: 1, into }), Class::Control, deadline).wait().unwrap();
    assert!(matches!(&done[0], verbena_fabric::Done::Buffer(buffer) if buffer.bytes().iter().all(|byte| *byte == 7)));

    let inbox = b.listen(Port(1), Views::Current).unwrap();
    a.connect(b.identity(), &b.address()).unwrap().send(Class::Control, VIEW, Port(1), 9, b"hello").unwrap();
    let message = inbox.take(Duration::from_secs(5)).unwrap();
    assert_eq!((message.from, message.number, &message.body[..]), (a.identity(), 9, &b"hello"[..]));
}

#[test]
fn without_a_certificate_nobody_is_let_in_and_nobody_is_believed() {
    let keys = Keys::new(folder("without"));
    keys.issue(Rank(1));
    let (secured, plain) = (node(1, Some(keys.identity(Rank(1)))), node(2, None));
    let demanded = refusal(&plain, &secured);
    assert!(demanded.contains("demands a certificate") && demanded.contains("verbena keys"), "{demanded}");
    let missing = refusal(&secured, &plain);
    assert!(missing.contains("has no certificate"), "{missing}");
    refused(&secured);
    refused(&plain);
}

#[test]
fn a_foreign_authority_vouches_for_nobody() {
    let (ours, theirs) = (Keys::new(folder("ours")), Keys::new(folder("theirs")));
    ours.issue(Rank(1));
    theirs.issue(Rank(2));
    let (a, b) = (node(1, Some(ours.identity(Rank(1)))), node(2, Some(theirs.identity(Rank(2)))));
    for (from, to) in [(&a, &b), (&b, &a)] {
        let reason = refusal(from, to);
        assert!(reason.contains("certificate"), "{reason}");
        assert_eq!(to.counts().welcomed, 0);
    }
    // One that believes both is still not believed by the other.
    let both = folder("both");
    let authorities = [&ours, &theirs].map(|keys| std::fs::read_to_string(keys.pair("authority").certificate).unwrap());
    std::fs::write(&both, authorities.concat()).unwrap();
    let credulous = node(1, Some(TlsIdentity { authority: both.clone(), ..ours.identity(Rank(1)) }));
    let reason = refusal(&credulous, &b);
    assert!(reason.contains("alert"), "{reason}");
    refused(&b);
    assert_eq!(b.counts().welcomed, 0);
    std::fs::remove_file(both).unwrap();
}

#[test]
fn a_certificate_is_good_for_its_rank_only() {
    let keys = Keys::new(folder("rank"));
    (1..=3).for_each(|rank| keys.issue(Rank(rank)));
    // A node does not even begin with another's certificate.
    let config = TcpConfig { tls: Some(keys.identity(Rank(3))), ..TcpConfig::default() };
    let unusable = TcpFabric::open(Incarnation::new(2, 1), config).err().unwrap().to_string();
    assert!(unusable.contains("node-2.verbena") && unusable.contains("verbena keys"), "{unusable}");

    // A target that is node 3 is not node 2 to a caller, whatever it would say.
    let (a, c) = (node(1, Some(keys.identity(Rank(1)))), node(3, Some(keys.identity(Rank(3)))));
    let region = c.register(64, VIEW).unwrap();
    let two = Incarnation::new(2, 1);
    let key = verbena_fabric::RegionKey { owner: two, ..region.key(Rights::Change) };
    let deadline = a.clock().now() + Duration::from_secs(5);
    let error = a.connect(two, &c.address()).unwrap().open(&key, deadline).err().unwrap();
    assert!(matches!(&error, Error::Unreachable { reason, .. } if reason.contains("node-2.verbena")), "{error}");

    // A caller with the certificate of node 3 that says it is node 2 is refused, and as node 3 it is let in.
    let target: SocketAddr = a.address().rest().parse().unwrap();
    assert_eq!(greet_as(&keys, Rank(3), target, two, a.identity()), Some(6));
    assert_eq!(a.counts().welcomed, 0);
    assert_eq!(greet_as(&keys, Rank(3), target, Incarnation::new(3, 1), a.identity()), Some(0));
}

fn named(rank: u32, name: &str, keys: &Keys, roster: &Roster) -> Result<TcpFabric> {
    let names = Some(Names { own: name.into(), roster: roster.clone() });
    let config = TcpConfig { tls: Some(keys.named(name)), names, ..TcpConfig::default() };
    TcpFabric::open(Incarnation::new(rank, 1), config).inspect(|node| node.set_view(VIEW))
}

#[test]
fn a_certificate_for_a_name_is_good_for_the_ranks_of_that_node() {
    let keys = Keys::new(folder("names"));
    let asked: Arc<Mutex<Vec<(Rank, Found)>>> = Arc::default();
    let asks = asked.clone();
    let roster = Roster::new(move |rank, found| asks.lock().push((rank, found)));
    let everybody = Roster::new(|_, _| {});
    for (rank, name) in [(1, "app1"), (2, "app2"), (3, "app3"), (9, "app2")] {
        everybody.know(Rank(rank), name);
    }
    // The first knows nobody, and finds out.
    let a = named(1, "app1", &keys, &roster).unwrap();
    let [b, c] = [(2, "app2"), (3, "app3")].map(|(rank, name)| named(rank, name, &keys, &everybody).unwrap());
    let unknown = refusal(&a, &b);
    assert!(unknown.contains("rank 2") && unknown.contains("not known yet"), "{unknown}");
    let doubted = refusal(&b, &a);
    assert!(doubted.contains("does not take our certificate for that of rank 2"), "{doubted}");
    let (rank, found) = asked.lock().pop().unwrap();
    assert_eq!((rank, asked.lock().len()), (Rank(2), 0), "it is asked for once");
    found.is("app2");
    for (from, to) in [(&a, &b), (&b, &a)] {
        let region = to.register(64, VIEW).unwrap();
        open(from, to, &*region).unwrap();
    }
    // A later life of it, too; and nobody else by its name.
    roster.know(Rank(9), "app2");
    let later = named(9, "app2", &keys, &everybody).unwrap();
    let region = a.register(64, VIEW).unwrap();
    open(&later, &a, &*region).unwrap();
    roster.know(Rank(3), "app2");
    let reason = refusal(&c, &a);
    assert!(reason.contains("does not take our certificate for that of rank 3"), "{reason}");
    let reason = refusal(&a, &c);
    assert!(reason.contains("as app2.member.verbena"), "{reason}");

    // What is for a rank is for no name, and what can be in no certificate is refused at once.
    keys.issue(Rank(4));
    let names = Some(Names { own: "app4".into(), roster: roster.clone() });
    let config = TcpConfig { tls: Some(keys.identity(Rank(4))), names, ..TcpConfig::default() };
    let unusable = TcpFabric::open(Incarnation::new(4, 1), config.clone()).err().unwrap().to_string();
    assert!(unusable.contains("is not for app4.member.verbena"), "{unusable}");
    let names = Some(Names { own: "App_4".into(), roster });
    let unusable = TcpFabric::open(Incarnation::new(4, 1), TcpConfig { names, ..config }).err().unwrap().to_string();
    assert!(unusable.contains("\"App_4\" can be in no certificate"), "{unusable}");
}

#[test]
fn an_expired_certificate_is_refused_until_it_is_renewed() {
    let keys = Keys::new(folder("expired"));
    let hours = |hours: u64| SystemTime::now() - Duration::from_secs(hours * 3600);
    keys.issue(Rank(1));
    keys.issue_for(Rank(2), hours(2)..hours(1));
    let [a, b] = [1, 2].map(|rank| node(rank, Some(keys.identity(Rank(rank)))));
    for (from, to) in [(&a, &b), (&b, &a)] {
        let reason = refusal(from, to);
        assert!(reason.to_lowercase().contains("expired"), "{reason}");
    }
    // Renewed in place while both run: read at the next connection.
    keys.issue_for(Rank(2), good());
    let region = a.register(64, VIEW).unwrap();
    open(&b, &a, &*region).unwrap();
    let region = b.register(64, VIEW).unwrap();
    open(&a, &b, &*region).unwrap();
}

#[test]
fn new_files_that_do_not_go_together_leave_the_old_ones_in_use() {
    let keys = Keys::new(folder("mixed"));
    (1..=3).for_each(|rank| keys.issue(Rank(rank)));
    let [a, b] = [1, 2].map(|rank| node(rank, Some(keys.identity(Rank(rank)))));
    std::fs::copy(keys.identity(Rank(3)).key, keys.identity(Rank(1)).key).unwrap();
    let region = b.register(64, VIEW).unwrap();
    open(&a, &b, &*region).unwrap();
}

#[test]
fn beyond_loopback_there_is_a_certificate_or_somebody_wrote_insecure() {
    let anywhere = TcpConfig { listen: "0.0.0.0:0".parse().unwrap(), ..TcpConfig::default() };
    let error = TcpFabric::open(Incarnation::new(1, 1), anywhere.clone()).err().unwrap();
    let Error::Unusable { provider: "tcp", reason, remedy } = &error else { panic!("{error}") };
    assert!(reason.contains("0.0.0.0") && remedy.contains("verbena keys") && remedy.contains("insecure"), "{error}");

    let unreachable = TcpConfig { insecure: true, ..anywhere.clone() };
    assert!(TcpFabric::open(Incarnation::new(1, 1), unreachable).err().unwrap().to_string().contains("advertise"));
    let config = TcpConfig { insecure: true, advertise: Some("localhost:9".into()), ..anywhere };
    let node = TcpFabric::open(Incarnation::new(1, 1), config).unwrap();
    assert_eq!(node.address().0, "tcp://localhost:9");

    // Nor is a peer beyond loopback called without one: refused before a packet leaves.
    let plain = TcpFabric::open(Incarnation::new(2, 1), TcpConfig::default()).unwrap();
    let region = node.register(64, VIEW).unwrap();
    let address = verbena_fabric::Address("tcp://192.0.2.1:9".into());
    let deadline = plain.clock().now() + Duration::from_secs(5);
    let peer = plain.connect(node.identity(), &address).unwrap();
    let error = peer.open(&region.key(Rights::Read), deadline).err().unwrap().to_string();
    assert!(error.contains("192.0.2.1") && error.contains("verbena keys"), "{error}");
}

/// Says hello by hand, with the certificate of `rank` and in the name of `from`; the verdict.
fn greet_as(keys: &Keys, rank: Rank, target: SocketAddr, from: Incarnation, to: Incarnation) -> Option<u8> {
    let identity = keys.identity(rank);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(identity.authority).unwrap()).unwrap();
    let chain = vec![CertificateDer::from_pem_file(identity.certificate).unwrap()];
    let key = PrivateKeyDer::from_pem_file(identity.key).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .unwrap();
    let mut socket = TcpStream::connect(target).unwrap();
    socket.write_all(b"VTCP\x01\0\0\0\0\x01\0\0\0\0\0\0").unwrap();
    socket.read_exact(&mut [0; 16]).unwrap();
    let name = ServerName::try_from(format!("node-{}.verbena", to.rank)).unwrap();
    let mut stream = StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), socket);
    let mut hello = b"VTHI\x01\0\0\0".to_vec();
    for word in [from.to_word(), to.to_word(), 1, 0] {
        hello.extend_from_slice(&word.to_le_bytes());
    }
    stream.write_all(&hello).unwrap();
    let mut welcome = [0; 24];
    stream.read_exact(&mut welcome).ok()?;
    Some(welcome[16])
}
