//! A volume's file with our translators in it, and without them again. Lines that are not ours stay as they are.
//!
//! At a client `cmcache` takes the name of the `protocol/client` below it, which is called `NAME-brick` then: `cluster/distribute` writes the
//! names of what is below it into files of the bricks, and must see the ones it knows. In a brick `smcache` stands below the `debug/io-stats` that
//! `protocol/server` serves, above all that may answer from memory (rule B12).

use super::TranslatorOptions;

const CLIENT: &str = "user/cmcache";
const BRICK: &str = "user/smcache";
/// What the name of a `protocol/client` ends with when `cmcache` has its name.
const BELOW: &str = "-brick";

/// A `volume` of a file, by its lines.
#[derive(Clone, Copy, Debug)]
struct Block<'a> {
    first: usize,
    last: usize,
    name: &'a str,
    kind: &'a str,
    /// The line, and what it lists.
    subvolumes: Option<(usize, &'a str)>,
}

/// What a file is for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The graph of a brick.
    Brick,
    /// The graph of a client that talks to bricks.
    Client,
    /// Another one: of a proxy, a healer, a snapshot.
    Other,
}

pub(super) fn role(file_name: &str, text: &str) -> Role {
    let has = |kind: &str| text.lines().any(|line| line.trim() == format!("type {kind}"));
    let is_proxy = file_name.contains("gfproxy");
    match (has("protocol/server"), has("protocol/client"), has("storage/posix")) {
        (true, false, true) => Role::Brick,
        (false, true, false) if !is_proxy && file_name.ends_with("-fuse.vol") => Role::Client,
        _ => Role::Other,
    }
}

/// Whether our translators are in it, all of them.
pub(super) fn is_loaded(text: &str) -> bool {
    text.lines().any(|line| is_ours(line.trim().strip_prefix("type ").unwrap_or_default()))
}

fn is_ours(kind: &str) -> bool {
    kind == CLIENT || kind == BRICK
}

/// The file with the translators, with these options. One that has them already gets them anew.
pub(super) fn load(role: Role, text: &str, options: &TranslatorOptions) -> Result<String, String> {
    let plain = unload(text)?;
    match role {
        Role::Client => client(&plain, options),
        Role::Brick => brick(&plain, options),
        Role::Other => Ok(plain),
    }
}

/// The file as glusterd wrote it.
pub(super) fn unload(text: &str) -> Result<String, String> {
    let blocks = blocks(text)?;
    let mut lines: Vec<Option<String>> = lines(text);
    for ours in blocks.iter().filter(|block| is_ours(block.kind)) {
        let (_, below) = ours.subvolumes.ok_or_else(|| format!("{} has nothing below it", ours.name))?;
        // With the empty line before it, which was written with it.
        let first = ours.first - usize::from(ours.first > 0 && lines[ours.first - 1].as_deref() == Some("\n"));
        lines[first..=ours.last].fill(None);
        if ours.kind == CLIENT {
            let renamed = blocks.iter().find(|block| block.name == below);
            let renamed = renamed.ok_or_else(|| format!("{} stands above {below}, which is not there", ours.name))?;
            rename(&mut lines[renamed.first], below, ours.name);
        } else {
            let above = blocks.iter().filter(|block| block.subvolumes.is_some_and(|(_, list)| list == ours.name));
            for (line, _) in above.filter_map(|block| block.subvolumes) {
                rename(&mut lines[line], ours.name, below);
            }
        }
    }
    Ok(lines.into_iter().flatten().collect())
}

fn client(text: &str, options: &TranslatorOptions) -> Result<String, String> {
    let blocks = blocks(text)?;
    let mut lines = lines(text);
    let clients: Vec<_> = blocks.iter().filter(|block| block.kind == "protocol/client").collect();
    for client in &clients {
        let below = format!("{}{BELOW}", client.name);
        if blocks.iter().any(|block| block.name == below) {
            return Err(format!("it has a volume {below} of its own"));
        }
        rename(&mut lines[client.first], client.name, &below);
        append(&mut lines[client.last], &block(client.name, CLIENT, options, &below));
    }
    Ok(lines.into_iter().flatten().collect())
}

fn brick(text: &str, options: &TranslatorOptions) -> Result<String, String> {
    let blocks = blocks(text)?;
    let mut lines = lines(text);
    let by_name = |name: &str| blocks.iter().find(|block| block.name == name);
    let served = blocks.iter().find(|block| block.kind == "protocol/server").and_then(|server| server.subvolumes);
    let served = served.and_then(|(_, name)| by_name(name)).filter(|served| served.kind == "debug/io-stats");
    let (at, below) = served
        .and_then(|served| served.subvolumes)
        .filter(|(_, list)| !list.contains(' '))
        .ok_or("protocol/server serves no debug/io-stats with one translator below it")?;
    let name = format!("{below}-smcache");
    if by_name(&name).is_some() {
        return Err(format!("it has a volume {name} of its own"));
    }
    let below_last = by_name(below).ok_or_else(|| format!("{below} is not there"))?.last;
    rename(&mut lines[at], below, &name);
    append(&mut lines[below_last], &block(&name, BRICK, options, below));
    Ok(lines.into_iter().flatten().collect())
}

/// Another name at the end of a line.
fn rename(line: &mut Option<String>, from: &str, to: &str) {
    if let Some(line) = line
        && let Some(at) = line.rfind(from)
    {
        line.replace_range(at..at + from.len(), to);
    }
}

/// A block behind the end of another one, with an empty line between.
fn append(line: &mut Option<String>, block: &str) {
    if let Some(line) = line {
        line.push('\n');
        line.push_str(block);
    }
}

fn block(name: &str, kind: &str, options: &TranslatorOptions, below: &str) -> String {
    let options: String = options.0.iter().map(|(name, value)| format!("    option {name} {value}\n")).collect();
    format!("volume {name}\n    type {kind}\n{options}    subvolumes {below}\nend-volume\n")
}

/// Each with its end.
fn lines(text: &str) -> Vec<Option<String>> {
    text.split_inclusive('\n').map(|line| Some(line.to_owned())).collect()
}

fn blocks(text: &str) -> Result<Vec<Block<'_>>, String> {
    let mut found = vec![];
    let mut open: Option<Block<'_>> = None;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        let word = line.split_whitespace().next().unwrap_or_default();
        let rest = line[word.len()..].trim();
        match (word, &mut open) {
            ("volume", None) if !rest.is_empty() => {
                open = Some(Block { first: at, last: at, name: rest, kind: "", subvolumes: None });
            }
            ("type", Some(block)) => block.kind = rest,
            ("subvolumes", Some(block)) => block.subvolumes = Some((at, rest)),
            ("end-volume", Some(block)) => {
                block.last = at;
                found.extend(open.take());
            }
            ("option", Some(_)) | ("", _) => {}
            _ if word.starts_with('#') => {}
            _ => return Err(format!("line {}: {line:?} is nothing of a volume's file", at + 1)),
        }
    }
    match open {
        Some(block) => Err(format!("volume {} has no end", block.name)),
        None => Ok(found),
    }
}

/// Names and kinds of the translators of a file, from the bottom to the top.
pub(super) fn kinds(text: &str) -> Result<Vec<(String, String)>, String> {
    Ok(blocks(text)?.iter().map(|block| (block.name.to_owned(), block.kind.to_owned())).collect())
}

/// The value of an option wherever it stands.
pub(super) fn option<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.trim().strip_prefix("option ")?.strip_prefix(name)?.strip_prefix(' '))
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Two bricks of one volume, as glusterd 10.3 wrote it, shortened.
    pub const CLIENT_FILE: &str = "volume v-client-0\n    type protocol/client\n    option remote-subvolume /b/1\n    option ping-timeout 42\nend-volume\n\nvolume v-client-1\n    type protocol/client\n    option remote-subvolume /b/2\nend-volume\n\nvolume v-dht\n    type cluster/distribute\n    option lock-migration off\n    subvolumes v-client-0 v-client-1\nend-volume\n\nvolume v-md-cache\n    type performance/md-cache\n    subvolumes v-dht\nend-volume\n\nvolume v\n    type debug/io-stats\n    subvolumes v-md-cache\nend-volume\n";
    pub const BRICK_FILE: &str = "volume v-posix\n    type storage/posix\n    option directory /b/1\nend-volume\n\nvolume v-quota\n    type features/quota\n    subvolumes v-posix\nend-volume\n\nvolume /b/1\n    type debug/io-stats\n    option unique-id /b/1\n    subvolumes v-quota\nend-volume\n\nvolume v-server\n    type protocol/server\n    subvolumes /b/1\nend-volume\n";

    fn options() -> TranslatorOptions {
        TranslatorOptions::new(&[("scheme", "strong".into()), ("daemons", "h:1,h:2".into())]).unwrap()
    }

    #[test]
    fn a_client_stands_above_each_protocol_client_under_its_name() {
        let loaded = load(Role::Client, CLIENT_FILE, &options()).unwrap();
        assert!(loaded.starts_with("volume v-client-0-brick\n    type protocol/client\n"), "{loaded}");
        let ours = "end-volume\n\nvolume v-client-0\n    type user/cmcache\n    option scheme strong\n    option daemons h:1,h:2\n    subvolumes v-client-0-brick\nend-volume\n\nvolume v-client-1-brick\n";
        assert!(loaded.contains(ours), "{loaded}");
        assert!(loaded.contains("    subvolumes v-client-0 v-client-1\n"), "{loaded}");
        assert!(is_loaded(&loaded) && !is_loaded(CLIENT_FILE));
        assert_eq!(unload(&loaded).unwrap(), CLIENT_FILE);
        assert_eq!(load(Role::Client, &loaded, &options()).unwrap(), loaded);
    }

    #[test]
    fn a_brick_has_it_below_what_is_served() {
        let loaded = load(Role::Brick, BRICK_FILE, &options()).unwrap();
        let order = [
            "volume v-quota\n",
            "volume v-quota-smcache\n",
            "    subvolumes v-quota\nend-volume\n\nvolume /b/1\n",
            "    subvolumes v-quota-smcache\n",
        ];
        let at: Vec<_> = order.map(|part| loaded.find(part).unwrap_or_else(|| panic!("{part} in {loaded}"))).to_vec();
        assert!(at.is_sorted(), "{at:?}: {loaded}");
        assert_eq!(unload(&loaded).unwrap(), BRICK_FILE);
        assert_eq!(load(Role::Brick, &loaded, &options()).unwrap(), loaded);
    }

    #[test]
    fn other_files_and_strange_ones_are_left_alone() {
        assert_eq!(role("trusted-v.tcp-fuse.vol", CLIENT_FILE), Role::Client);
        assert_eq!(role("v.h.b-1.vol", BRICK_FILE), Role::Brick);
        assert_eq!(role("trusted-v.tcp-gfproxy-fuse.vol", CLIENT_FILE), Role::Other);
        assert_eq!(role("v-rebalance.vol", CLIENT_FILE), Role::Other);
        assert_eq!(role("v.gfproxyd.vol", &format!("{CLIENT_FILE}{BRICK_FILE}")), Role::Other);
        assert!(load(Role::Brick, CLIENT_FILE, &options()).is_err());
        for strange in ["volume x\n", "volume x\nvolume y\nend-volume\n", "hello\n", "end-volume\n"] {
            assert!(load(Role::Client, strange, &options()).is_err(), "{strange}");
        }
    }

    proptest! {
        #[test]
        fn whatever_can_be_loaded_comes_back_byte_for_byte(bricks in 1_usize..5, gaps in proptest::collection::vec(0_usize..3, 6), comment in "[ -~]{0,20}", has_end in any::<bool>()) {
            let mut text = format!("#{comment}\n");
            for (nth, gap) in gaps.iter().enumerate().take(bricks) {
                text.push_str(&format!("volume c-{nth}\n  type protocol/client\n\toption x y z\nend-volume{}", "\n".repeat(gap + 1)));
            }
            let list: Vec<String> = (0..bricks).map(|nth| format!("c-{nth}")).collect();
            text.push_str(&format!("volume v\n type cluster/distribute\n  subvolumes {}\nend-volume{}", list.join(" "), if has_end { "\n" } else { "" }));
            let loaded = load(Role::Client, &text, &options()).unwrap();
            prop_assert_eq!(loaded.matches("type user/cmcache").count(), bricks);
            prop_assert_eq!(unload(&loaded).unwrap(), text);
        }
    }
}
