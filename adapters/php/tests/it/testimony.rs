//! Which requests are testified to be made of the database alone.

use crate::site::Php;

const TAG: &str = "0123456789abcdef";

#[test]
fn what_reads_nothing_else_is_testified_for_and_what_does_says_what() {
    let Some(php) = Php::start("127.0.0.1:1", None) else { return };
    let tagged = format!("Verbena-Fill: {TAG}\r\n");
    for what in ["plain", "own", "status", "redirect"] {
        let answer = php.ask(&format!("what={what}"), &tagged);
        assert_eq!(answer.testimony(), Some(TAG), "{what}: {answer:?}");
        assert!(answer.head.contains(&format!("x-of: {what}")), "{answer:?}");
    }
    let plain = php.ask("what=plain", &tagged);
    assert!(plain.head.ends_with("content-length: 7") && plain.body == "\"plain\"", "{plain:?}");
    assert!(php.ask("what=status", &tagged).head.starts_with("http/1.1 410 gone away"));
    assert!(php.ask("what=redirect", &tagged).head.starts_with("http/1.1 302"));
    assert_eq!(php.ask("what=own", &tagged).body, "[true,true,7]");
    for (what, by) in [
        ("file", "file /etc/passwd"),
        ("dots", "/etc/passwd"),
        ("look", "file_exists /etc/passwd"),
        ("object", "file /etc/passwd"),
        ("xml", "file /etc/hostname"),
        ("http", "file_get_contents http://127.0.0.1:1/"),
        ("session", "session_start"),
        ("include", "include /etc/hostname"),
        ("sqlite", "pdo of another kind"),
        ("flush", "flush"),
        ("late", "file /etc/passwd"),
        ("long", "more bytes than are held"),
        ("forged", "file /etc/passwd"),
        ("throws", "file /etc/passwd"),
    ] {
        let answer = php.ask(&format!("what={what}"), &tagged);
        let said = answer.testimony().unwrap_or_default();
        assert!(said.starts_with("no;by=\"") && said.contains(by), "{what}: {said:?} in {}", answer.head);
        assert_eq!(answer.head.matches("verbena-complete").count(), 1, "{}", answer.head);
        let length = if what == "long" { 9_000_006 } else { answer.body.len() };
        assert_eq!(answer.body.len(), length);
    }
    let log = std::fs::read_to_string(php.directory.path().join("log")).unwrap();
    assert!(!log.contains("PHP Request Shutdown"), "{log}");
    let apcu = php.ask("what=apcu", &tagged);
    assert!(matches!(apcu.testimony(), Some("no;by=\"apcu_fetch\"" | "no;by=\"sys_getloadavg\"")), "{apcu:?}");
    // A client that asks PHP itself, or no fill.
    for lines in ["", "Verbena-Fill: \r\n", "Verbena-Fill: 0123456789ABCDEF\r\n", "Verbena-Fill: 0123456789abcdef0\r\n"]
    {
        assert_eq!(php.ask("what=", lines).testimony(), None, "{lines:?}");
    }
}

#[test]
fn without_a_word_of_what_is_code_nothing_is_testified_for() {
    let Some(php) = Php::start("127.0.0.1:1", Some("")) else { return };
    let answer = php.ask("what=", &format!("Verbena-Fill: {TAG}\r\n"));
    assert!(answer.testimony().is_some_and(|said| said.starts_with("no;by=\"include /")), "{answer:?}");
    // A directory whose name begins so is another one.
    let near = format!("/nowhere:{}x", php.directory.path().display());
    let Some(php) = Php::start("127.0.0.1:1", Some(&near)) else { return };
    let answer = php.ask("what=", &format!("Verbena-Fill: {TAG}\r\n"));
    assert!(answer.testimony().is_some_and(|said| said.starts_with("no;by=\"include /")), "{answer:?}");
}
