//! Random command streams. They leave out what depends on how memcached's own buffers happen to be filled, and its defects: the
//! comments say which.

/// The largest value of both sides, in bytes.
pub const VALUE_BYTES: usize = 1 << 20;

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        random.below(2);
        random
    }

    pub fn below(&mut self, bound: usize) -> usize {
        // xorshift64*: a stream that never changes.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }

    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn is_one_of(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }
}

/// The same commands for both sides, each with its own cas values.
#[derive(Default)]
pub struct Both {
    pub ours: Vec<u8>,
    pub theirs: Vec<u8>,
}

impl Both {
    fn push(&mut self, text: &str) {
        self.ours.extend_from_slice(text.as_bytes());
        self.theirs.extend_from_slice(text.as_bytes());
    }

    fn push_cas(&mut self, (ours, theirs): (u64, u64)) {
        self.ours.extend_from_slice(ours.to_string().as_bytes());
        self.theirs.extend_from_slice(theirs.to_string().as_bytes());
    }
}

const KEYS: [&str; 7] = ["k0", "k1", "k2", "k3", "n0", "n1", "a_longer_key/with:signs"];
const TIMES: [&str; 8] = ["0", "0", "0", "100", "1000", "-1", "2592000", "2592001"];
const MALFORMED: [&str; 62] = [
    "",
    " ",
    "x",
    "mx",
    "mg",
    "md",
    "ma",
    "me",
    "ms",
    "ms k0",
    "ms k0 abc",
    "ms k0 -1",
    "ms k0 -1 v",
    "get",
    "gets",
    "gat",
    "gat 0",
    "gat x k0",
    "gats",
    "set",
    "set k0",
    "set k0 0 0",
    "set k0 0 0 abc",
    "set k0 0 0 -1",
    "set k0 0 0 -1 noreply",
    "cas k0 0 0 1",
    "cas k0 0 0 -1 5",
    "delete",
    "delete k0 5",
    "delete k0 0 5",
    "delete k0 0 noreply 5",
    "incr k0",
    "incr k0 abc",
    "incr k0 -1",
    "decr k0 1x noreply",
    "decr",
    "touch k0",
    "touch k0 abc",
    "flush_all abc",
    "flush_all 0 0 0 0",
    "verbosity",
    "verbosity x",
    "verbosity x noreply",
    "cache_memlimit",
    "cache_memlimit abc",
    "stats detail",
    "stats bogus",
    "bogus",
    "Get k0",
    "mg k0 v v",
    "mg k0 !",
    "mg k0 S100",
    "mg k0 Cabc",
    "mg k0 Mab",
    "mg k0 Cabc Mab",
    "mg k0 Fabc",
    "mg k0 Txy v",
    "md k0 !",
    "md k0 Cx",
    "ma k0 Dabc",
    "ma k0 MX",
    "mg abc b",
];
const PLAIN: [&str; 14] = [
    "verbosity 0",
    "verbosity 0 noreply",
    "version",
    "stats reset",
    "stats detail off",
    "cache_memlimit 1024",
    "mn",
    "cache_memlimit 4",
    "cache_memlimit 1024 noreply",
    "stats",
    "stats settings",
    "flush_all",
    "flush_all noreply",
    // A delayed flush of memcached brings back what an earlier one had flushed: so another at once follows.
    "flush_all 1000\r\nflush_all 0",
];

/// A round of commands. `known` are cas values that both sides showed at the same place.
pub fn round(random: &mut Random, known: &[(u64, u64)]) -> Both {
    let mut both = Both::default();
    for _ in 0..1 + random.below(14) {
        match random.below(20) {
            0..4 => get(random, &mut both),
            4..8 => store(random, &mut both, known),
            8 => delete(random, &mut both),
            9..11 => arithmetic(random, &mut both),
            11 => touch(random, &mut both),
            12..15 => meta_get(random, &mut both),
            15..17 => meta_set(random, &mut both, known),
            17 => meta_delete(random, &mut both, known),
            18 => odd(random, &mut both),
            _ => {
                let key = random.one(&KEYS);
                both.push(&format!("me {key}\r\n"));
            }
        }
    }
    both
}

fn odd(random: &mut Random, both: &mut Both) {
    let long = "y".repeat(251);
    match random.below(8) {
        0..4 => both.push(&format!("{}\r\n", random.one(&MALFORMED))),
        4..6 => both.push(&format!("{}\r\n", random.one(&PLAIN))),
        // What memcached has not sent yet is lost when a key is too long: so `mn` goes first.
        6 => both.push(&format!("mn\r\nget absent {long} k0\r\nmg {long} v\r\nmd {long}\r\nma {long}\r\n")),
        // Its opaque token is looked at after the effect: so the key is one without an item.
        _ => {
            let flags: String = ('a'..'t').map(|letter| format!(" {letter}")).collect();
            both.push(&format!(
                "mg absent O{long}\r\nmg k0{flags}\r\nincr {long} 1\r\ntouch {long} 0\r\nme {long}\r\n"
            ));
        }
    }
}

fn get(random: &mut Random, both: &mut Both) {
    let names = ["get", "gets", "gets", "gat", "gats"];
    let name = random.one(&names);
    let mut line = if random.is_one_of(9) { format!("  {name}") } else { name.to_owned() };
    if name.starts_with("gat") {
        line = format!("{line} {}", random.one(&TIMES));
    }
    let many = if random.is_one_of(8) { 40 } else { 4 };
    for _ in 0..1 + random.below(many) {
        line.push_str(random.one(&[" ", " ", " ", "   "]));
        line.push_str(random.one(&KEYS));
    }
    both.push(&line);
    both.push(random.one(&["\r\n", "\r\n", "\n", "  \r\n"]));
}

/// No minus stands in a key or a value: behind a number of more than 63 bits memcached looks for one beyond the item's end.
fn value(random: &mut Random) -> String {
    let number = || "9,10,99,100,18446744073709551615,5,0012,7 ,1 2,+4,x,3x, 8".split(',').collect::<Vec<_>>();
    match random.below(6) {
        0..3 => random.one(&number()).to_owned(),
        3 => String::new(),
        4 => "get k0\r\nset k1 0 0 5\r\n".to_owned(),
        _ => (0..random.below(200)).map(|_| random.one(b"abcXYZ\r\n 09") as char).collect(),
    }
}

/// A value beyond the limit, or one whose end is not where its length says.
fn block(random: &mut Random) -> (usize, String) {
    match random.below(240) {
        0 => {
            let length = VALUE_BYTES + 1 + random.below(5000);
            (length, "z".repeat(length))
        }
        1..10 => (4, "abcdefgh".to_owned()),
        _ => {
            let mut value = value(random);
            // memcached looks for the number behind white space beyond the item's end too.
            if value.trim().is_empty() && !value.is_empty() {
                value.push('x');
            }
            (value.len(), value)
        }
    }
}

fn noreply(random: &mut Random) -> &'static str {
    if random.is_one_of(5) { " noreply" } else { "" }
}

fn store(random: &mut Random, both: &mut Both, known: &[(u64, u64)]) {
    let name = random.one(&["set", "set", "set", "add", "replace", "append", "prepend", "cas", "cas"]);
    let (length, bytes) = block(random);
    let (key, time) = (random.one(&KEYS), random.one(&TIMES));
    let flags = random.one(&["0", "0", "1", "4294967295"]);
    both.push(&format!("{name} {key} {flags} {time} {length}"));
    if name == "cas" {
        both.push(" ");
        both.push_cas(cas(random, known));
    }
    both.push(noreply(random));
    both.push(&format!("\r\n{bytes}\r\n"));
}

fn cas(random: &mut Random, known: &[(u64, u64)]) -> (u64, u64) {
    match random.below(8) {
        0 => (1, 1),
        1 => (u64::MAX, u64::MAX),
        2 => (0, 0),
        _ => known.get(known.len().saturating_sub(1 + random.below(4))).copied().unwrap_or((1, 1)),
    }
}

fn delete(random: &mut Random, both: &mut Both) {
    let tail = random.one(&["", "", " 0", " noreply", " 0 noreply"]);
    both.push(&format!("delete {}{tail}\r\n", random.one(&KEYS)));
}

/// Whether a number that gets shorter is padded depends in memcached on whether an answer still refers to it: so `mn` goes first.
/// With `T` a number that gets longer keeps its old time there: so the key of those has room.
fn arithmetic(random: &mut Random, both: &mut Both) {
    let delta = random.one(&["1", "5", "90", "18446744073709551615", "0"]);
    both.push("mn\r\n");
    if random.is_one_of(2) {
        let name = random.one(&["incr", "decr"]);
        both.push(&format!("{name} {} {delta}{}\r\n", random.one(&KEYS), noreply(random)));
        return;
    }
    let mut line = format!("ma {}", random.one(&KEYS));
    if random.is_one_of(3) {
        both.push("set pad 0 0 20 noreply\r\n00000000000000000007\r\nmn\r\n");
        line = format!("ma pad T{}", random.one(&["0", "100", "1000"]));
    }
    let choices = [
        &format!("D{delta}"),
        " MI",
        " M+",
        " MD",
        " M-",
        " q",
        " N0",
        " N100",
        " J13",
        " v",
        " t",
        " c",
        " k",
        " Oop",
        " C1",
        " C0",
    ];
    flags(random, &mut line, &choices, 6);
    both.push(&format!("{line}\r\n"));
}

/// Some of these flags, each letter once.
fn flags(random: &mut Random, line: &mut String, choices: &[&str], many: usize) {
    let mut seen = vec![];
    for _ in 0..random.below(many + 1) {
        let flag = random.one(choices).trim();
        if !seen.contains(&flag.as_bytes()[0]) {
            seen.push(flag.as_bytes()[0]);
            line.push(' ');
            line.push_str(flag);
        }
    }
}

fn touch(random: &mut Random, both: &mut Both) {
    both.push(&format!("touch {} {}{}\r\n", random.one(&KEYS), random.one(&TIMES), noreply(random)));
}

const READS: [&str; 25] = [
    "v", "v", "v", "c", "f", "h", "k", "l", "Oopaque", "O1", "q", "s", "t", "u", "N100", "N0", "R30", "R500", "R5000",
    "T0", "T100", "T1000", "T-1", "Ppath", "Lhint",
];

fn meta_get(random: &mut Random, both: &mut Both) {
    let mut line = format!("mg {}", random.one(&KEYS));
    // A key in base64 is shown by memcached as the item's first store had it: so never with `k`.
    if random.is_one_of(6) {
        line = format!("mg {} b", random.one(&["Zm9v", "AAEC", "Zm8="]));
        flags(random, &mut line, &["v", "c", "f", "s", "t", "Oabc", "q", "h", "N100"], 5);
    } else {
        flags(random, &mut line, &READS, 8);
    }
    both.push(&format!("{line}\r\n"));
}

fn meta_set(random: &mut Random, both: &mut Both, known: &[(u64, u64)]) {
    let (length, bytes) = block(random);
    let mut line = format!("ms {} {length}", random.one(&KEYS));
    if random.is_one_of(6) {
        line = format!("ms {} {length} b", random.one(&["Zm9v", "AAEC", "Zm8="]));
    }
    let choices = [
        "c", "k", "Oopaque", "q", "T0", "T100", "T-1", "F7", "F0", "ME", "MA", "MP", "MR", "MS", "MX", "I", "Ppath",
        "Lhint",
    ];
    flags(random, &mut line, &choices, 5);
    both.push(&line);
    if random.is_one_of(3) {
        both.push(" C");
        both.push_cas(cas(random, known));
    }
    both.push(&format!("\r\n{bytes}\r\n"));
}

fn meta_delete(random: &mut Random, both: &mut Both, known: &[(u64, u64)]) {
    let mut line = format!("md {}", random.one(&KEYS));
    flags(random, &mut line, &["k", "Oopaque", "q", "I", "I", "I", "T0", "T100", "T-1", "Lhint"], 5);
    both.push(&line);
    if random.is_one_of(3) {
        both.push(" C");
        both.push_cas(cas(random, known));
    }
    both.push("\r\n");
}
