//! Real clients against the server: get, put, resume, list, rename, times, odd names, empty and huge files.

use std::path::Path;
use std::process::Command;

use crate::bench::{Running, has, options, run, succeed};

/// Bytes in which a shift or a swap shows.
fn content(length: usize) -> Vec<u8> {
    (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

struct Place {
    _directory: tempfile::TempDir,
    root: std::path::PathBuf,
    local: std::path::PathBuf,
    server: Running,
}

impl Place {
    fn new() -> Place {
        let directory = tempfile::tempdir().unwrap();
        let (root, local) = (directory.path().join("root"), directory.path().join("local"));
        std::fs::create_dir(&root).unwrap();
        std::fs::create_dir(&local).unwrap();
        let server = Running::start(options(&root));
        Place { _directory: directory, root, local, server }
    }

    fn url(&self, path: &str) -> String {
        format!("ftp://{}/{path}", self.server.address)
    }

    fn port(&self) -> String {
        self.server.address.port().to_string()
    }
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn curl() {
    if !has("curl") {
        return;
    }
    let place = Place::new();
    let (bytes, local) = (content(3_000_001), &place.local);
    std::fs::write(local.join("a"), &bytes).unwrap();
    succeed("curl", &["-sS", "-T", "a", &place.url("in/b"), "--ftp-create-dirs"], local);
    assert_eq!(read(&place.root.join("in/b")), bytes);
    succeed("curl", &["-sS", "-R", "-o", "c", &place.url("in/b")], local);
    assert_eq!(read(&local.join("c")), bytes);
    // Resume both ways.
    std::fs::write(local.join("d"), &bytes[..1_000_000]).unwrap();
    succeed("curl", &["-sS", "-C", "-", "-o", "d", &place.url("in/b")], local);
    assert_eq!(read(&local.join("d")), bytes);
    std::fs::write(place.root.join("half"), &bytes[..1_000_000]).unwrap();
    succeed("curl", &["-sS", "-C", "-", "-T", "a", &place.url("half")], local);
    assert_eq!(read(&place.root.join("half")), bytes);
    succeed("curl", &["-sS", "-a", "-T", "a", &place.url("half")], local);
    assert_eq!(read(&place.root.join("half")), [bytes.clone(), bytes.clone()].concat());
    assert_eq!(succeed("curl", &["-sS", "-r", "10-19", &place.url("in/b")], local), &bytes[10..20]);
    // Active, by PORT and by EPRT; in lines, whose ends curl takes back.
    succeed("curl", &["-sS", "-P", "-", "--disable-eprt", "-o", "e", &place.url("in/b")], local);
    succeed("curl", &["-sS", "-P", "-", "-o", "f", &place.url("in/b")], local);
    assert_eq!((read(&local.join("e")), read(&local.join("f"))), (bytes.clone(), bytes.clone()));
    std::fs::write(place.root.join("lines"), "a\nb\n").unwrap();
    assert_eq!(succeed("curl", &["-sS", "-B", &place.url("lines")], local), b"a\nb\n");
    // Odd names, as percent-encoded bytes: blanks at either end, Latin-1, 0xFF, a quote, 255 bytes.
    std::fs::write(local.join("empty"), "").unwrap();
    let long = "n".repeat(255);
    for name in ["%20a%20", "caf%E9", "%FF%FF%FFx", "a%22b", "%23%3B%25", "-la", long.as_str()] {
        succeed("curl", &["-sS", "-T", "empty", &place.url(name)], local);
        assert_eq!(succeed("curl", &["-sS", &place.url(name)], local), b"", "{name}");
        std::fs::write(local.join("one"), "1").unwrap();
        succeed("curl", &["-sS", "-T", "one", &place.url(name)], local);
        assert_eq!(succeed("curl", &["-sS", &place.url(name)], local), b"1", "{name}");
    }
    use std::os::unix::ffi::OsStrExt;
    let odd = std::ffi::OsStr::from_bytes(b"caf\xe9");
    assert_eq!(read(&place.root.join(odd)), b"1");
    let names = succeed("curl", &["-sS", "-l", &place.url("")], local);
    for name in [&b"\n a \n"[..], b"\ncaf\xe9\n", b"\na\"b\n"] {
        assert!([b"\n", names.as_slice()].concat().windows(name.len()).any(|window| window == name), "{names:?}");
    }
    // Commands by quotes; a name that is not there.
    succeed(
        "curl",
        &["-sS", "-Q", "RNFR half", "-Q", "RNTO other", "-Q", "MKD new", "-Q", "DELE lines", &place.url("")],
        local,
    );
    assert!(place.root.join("other").exists() && place.root.join("new").is_dir() && !place.root.join("lines").exists());
    assert_eq!(run("curl", &["-sS", &place.url("nothing")], local).status.code(), Some(78));
}

#[test]
fn wget() {
    if !has("wget") {
        return;
    }
    let place = Place::new();
    let (bytes, local) = (content(2_000_003), &place.local);
    std::fs::create_dir_all(place.root.join("tree/deep/er")).unwrap();
    std::fs::write(place.root.join("tree/a"), &bytes).unwrap();
    std::fs::write(place.root.join("tree/deep/b c"), "x").unwrap();
    std::fs::write(place.root.join("tree/deep/er/empty"), "").unwrap();
    succeed("wget", &["-q", "-r", "-nH", &place.url("tree/")], local);
    assert_eq!(read(&local.join("tree/a")), bytes);
    assert_eq!(read(&local.join("tree/deep/b c")), b"x");
    assert_eq!(read(&local.join("tree/deep/er/empty")), b"");
    std::fs::write(local.join("a"), &bytes[..999_999]).unwrap();
    succeed("wget", &["-q", "-c", &place.url("tree/a")], local);
    assert_eq!(read(&local.join("a")), bytes);
    succeed("wget", &["-q", "--no-passive-ftp", "-O", "active", &place.url("tree/a")], local);
    assert_eq!(read(&local.join("active")), bytes);
}

#[test]
fn lftp() {
    if !has("lftp") {
        return;
    }
    let place = Place::new();
    let (bytes, local) = (content(2_000_003), &place.local);
    std::fs::create_dir_all(local.join("tree/deep")).unwrap();
    std::fs::write(local.join("tree/a"), &bytes).unwrap();
    std::fs::write(local.join("tree/deep/ b \"c"), "x").unwrap();
    std::fs::write(local.join("tree/deep/empty"), "").unwrap();
    let set_time = Command::new("touch").args(["-d", "2001-02-03 04:05:06 UTC", "tree/a"]).current_dir(local).status();
    assert!(set_time.unwrap().success());
    let lftp = |script: &str| {
        let script = format!(
            "set ftp:ssl-allow no; set net:max-retries 2; set cmd:fail-exit yes; open {}; {script}; bye",
            place.url("")
        );
        succeed("lftp", &["--norc", "-c", &script], local)
    };
    lftp("mirror -R tree up");
    assert_eq!(read(&place.root.join("up/a")), bytes);
    assert_eq!(read(&place.root.join("up/deep/ b \"c")), b"x");
    let modified = std::fs::metadata(place.root.join("up/a")).unwrap().modified().unwrap();
    let seconds = modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert_eq!(seconds, 981_173_106, "lftp sets times by MFMT");
    lftp("mirror -P4 up down");
    assert_eq!(read(&local.join("down/a")), bytes);
    assert_eq!(read(&local.join("down/deep/ b \"c")), b"x");
    std::fs::write(local.join("part"), &bytes[..1_000_000]).unwrap();
    lftp("get -c up/a -o part");
    assert_eq!(read(&local.join("part")), bytes);
    std::fs::write(place.root.join("half"), &bytes[..1_000_000]).unwrap();
    lftp("put -c tree/a -o half; mv half whole; chmod 600 whole; pget -n 3 whole -o by-parts");
    assert_eq!(read(&place.root.join("whole")), bytes);
    assert_eq!(read(&local.join("by-parts")), bytes);
    let listing = String::from_utf8(lftp("cls -l; ls; nlist")).unwrap();
    assert!(listing.contains("-rw------- ") && listing.contains("whole"), "{listing}");
    lftp("rm -r up; mkdir -p x/y; rmdir x/y");
    assert!(!place.root.join("up").exists());
    lftp("set ftp:passive-mode off; get whole -o active");
    assert_eq!(read(&local.join("active")), bytes);
}

#[test]
fn ncftp() {
    if !has("ncftpget") {
        return;
    }
    let place = Place::new();
    let (bytes, local) = (content(1_500_001), &place.local);
    std::fs::create_dir(local.join("tree")).unwrap();
    std::fs::write(local.join("tree/a"), &bytes).unwrap();
    std::fs::write(local.join("tree/empty"), "").unwrap();
    let port = place.port();
    succeed("ncftpput", &["-V", "-R", "-P", &port, "127.0.0.1", "/", "tree"], local);
    assert_eq!(read(&place.root.join("tree/a")), bytes);
    std::fs::create_dir(local.join("back")).unwrap();
    succeed("ncftpget", &["-V", "-R", "-P", &port, "127.0.0.1", "back", "/tree"], local);
    assert_eq!(read(&local.join("back/tree/a")), bytes);
    let listing = succeed("ncftpls", &["-P", &port, "-l", &format!("ftp://127.0.0.1:{port}/tree/")], local);
    assert!(String::from_utf8_lossy(&listing).contains(" a"), "{listing:?}");
}

#[test]
fn tnftp_and_busybox() {
    let place = Place::new();
    let (bytes, local) = (content(1_000_001), &place.local);
    std::fs::write(place.root.join("a.bin"), &bytes).unwrap();
    std::fs::write(place.root.join("b.txt"), "b").unwrap();
    if has("tnftp") {
        succeed("tnftp", &["-o", "by-tnftp", &place.url("a.bin")], local);
        assert_eq!(read(&local.join("by-tnftp")), bytes);
        let script = format!(
            "open 127.0.0.1 {}\nuser anonymous x@\nbinary\nprompt\nmget *.bin\nput a.bin up.bin\nquit\n",
            place.port()
        );
        std::fs::write(local.join("script"), script).unwrap();
        succeed("sh", &["-c", "tnftp -n < script"], local);
        assert_eq!(read(&local.join("a.bin")), bytes);
        assert_eq!(read(&place.root.join("up.bin")), bytes);
    }
    if has("busybox") {
        let port = place.port();
        succeed("busybox", &["ftpget", "-P", &port, "127.0.0.1", "by-busybox", "a.bin"], local);
        assert_eq!(read(&local.join("by-busybox")), bytes);
        succeed("busybox", &["ftpput", "-P", &port, "127.0.0.1", "put", "by-busybox"], local);
        assert_eq!(read(&place.root.join("put")), bytes);
    }
}

/// ftplib, and a sparse file of 5 GiB whose last bytes are fetched.
#[test]
fn python() {
    if !has("python3") {
        return;
    }
    let place = Place::new();
    let sparse = std::fs::File::create(place.root.join("sparse")).unwrap();
    sparse.set_len(5 << 30).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"the end", (5 << 30) - 7).unwrap();
    let script = r#"
import ftplib, io, sys
f = ftplib.FTP(encoding="latin-1")
f.connect("127.0.0.1", int(sys.argv[1]), timeout=60)
f.login()
f.voidcmd("TYPE I")
assert f.size("sparse") == 5 << 30
lines = []
f.retrlines("LIST", lines.append)
assert any(str(5 << 30) in line for line in lines), lines
assert dict(f.mlsd())["sparse"]["size"] == str(5 << 30)
end = []
f.retrbinary("RETR sparse", end.append, rest=(5 << 30) - 7)
assert b"".join(end) == b"the end"
odd = [" a ", "b\"c", "\xe9\xff", "d;e=f", "n" * 255, "-x"]
for name in odd:
    f.storbinary("STOR " + name, io.BytesIO(name.encode("latin-1")))
assert set(odd) <= set(f.nlst()), f.nlst()
assert set(odd) <= {name for name, facts in f.mlsd()}
for name in odd:
    got = []
    f.retrbinary("RETR " + name, got.append)
    assert b"".join(got) == name.encode("latin-1"), name
assert f.mkd('q"q') == '/q"q'
f.cwd('q"q')
assert f.pwd() == '/q"q'
f.cwd("..")
f.rename(" a ", "z")
f.delete("z")
f.rmd('q"q')
try:
    f.size("none")
    assert False
except ftplib.error_perm as error:
    assert str(error).startswith("550")
f.set_pasv(False)
f.storbinary("STOR active", io.BytesIO(b"x" * 100000))
assert f.size("active") == 100000
conn = f.transfercmd("RETR sparse")
conn.recv(1000)
print("abort", flush=True)
assert f.abort().startswith("426")
conn.close()
assert f.voidresp().startswith("226")
f.quit()
"#;
    std::fs::write(place.local.join("script.py"), script).unwrap();
    succeed("python3", &["script.py", &place.port()], &place.local);
}

#[test]
fn rclone() {
    if !has("rclone") {
        return;
    }
    let place = Place::new();
    let (bytes, local) = (content(2_000_003), &place.local);
    std::fs::create_dir_all(local.join("tree/deep/er")).unwrap();
    std::fs::write(local.join("tree/a"), &bytes).unwrap();
    std::fs::write(local.join("tree/deep/b c"), "x").unwrap();
    std::fs::write(local.join("tree/deep/er/n\u{e4}me"), "y").unwrap();
    let password = String::from_utf8(succeed("rclone", &["obscure", "x"], local)).unwrap();
    let port = place.port();
    let rclone = |arguments: &[&str]| {
        let fixed =
            ["--config", "/dev/null", "--ftp-host", "127.0.0.1", "--ftp-port", &port, "--ftp-user", "anonymous"];
        succeed("rclone", &[&fixed[..], &["--ftp-pass", password.trim()], arguments].concat(), local)
    };
    rclone(&["copy", "tree", ":ftp:up"]);
    assert_eq!(read(&place.root.join("up/a")), bytes);
    assert_eq!(read(&place.root.join("up/deep/er/n\u{e4}me")), b"y");
    // Times are kept, so that nothing differs.
    rclone(&["check", "tree", ":ftp:up"]);
    rclone(&["copy", ":ftp:up", "down"]);
    assert_eq!(read(&local.join("down/a")), bytes);
    assert_eq!(read(&local.join("down/deep/b c")), b"x");
    rclone(&["moveto", ":ftp:up/a", ":ftp:up/other"]);
    rclone(&["deletefile", ":ftp:up/deep/b c"]);
    assert!(place.root.join("up/other").exists() && !place.root.join("up/deep/b c").exists());
    rclone(&["purge", ":ftp:up"]);
    assert!(!place.root.join("up").exists());
}
