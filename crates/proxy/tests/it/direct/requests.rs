//! What clients send, by chance: much that is plain, and all that may be odd.

use super::twins::PAGES;

/// Numbers by chance, the same for a seed.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Below a bound.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }

    pub fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// Fields after which the connection goes on.
const FIELDS: [&str; 36] = [
    "Accept: */*",
    "Accept-Encoding: gzip, br",
    "Accept-Language: de",
    "User-Agent: curl/8.1",
    "Referer: http://shop/a?b",
    "Connection: keep-alive",
    "connection: Keep-Alive",
    "Keep-Alive: timeout=5",
    "X-Empty:",
    "X-Space:   a b  ",
    "X-Odd: \u{e4}\u{f6}",
    "X_Folded: 1",
    "Cookie: sid=1",
    "Cookie: lang=de",
    "Cookie: other=1; sid=2",
    "Authorization: Basic eA==",
    "If-None-Match: \"x\"",
    "If-None-Match: W/\"x\"",
    "If-None-Match: \"y\", \"e\"",
    "If-None-Match: *",
    "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT",
    "If-Modified-Since: Sun, 06 Nov 1993 08:49:37 GMT",
    "If-Modified-Since: never",
    "If-Match: \"x\"",
    "If-Range: \"x\"",
    "Range: bytes=1-2",
    "Range: bytes=1-2, 4-5",
    "Cache-Control: no-cache",
    "Cache-Control: no-store",
    "Cache-Control: max-age=0",
    "Cache-Control: only-if-cached",
    "X-Forwarded-Host: other",
    "X-Forwarded-Proto: https",
    "Forwarded: for=1.2.3.4",
    "TE: trailers",
    "Content-Length: 0",
];

/// Of these, fields that are a part of a page's key.
const OTHER_PAGE: [&str; 3] = ["X-Forwarded-", "Forwarded:", "Cookie: lang="];
/// Of these, fields by which a standard page is asked about.
const ANEW: [&str; 2] = ["Cache-Control: no-cache", "Cache-Control: max-age=0"];

/// What may end a connection, or leave it to hyper.
const LAST: [&str; 24] = [
    "GET /p/small HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n",
    "GET /p/small HTTP/1.0\r\n\r\n",
    "GET /p/small HTTP/1.0\r\nHost: shop\r\nConnection: keep-alive\r\n\r\n",
    "GET /p/small HTTP/1.1\r\nHost: shop\r\nHost: other\r\n\r\n",
    "GET /p/small HTTP/1.1\r\n\r\n",
    "GET /p/small HTTP/1.1\r\nHost: me@shop\r\n\r\n",
    "GET /p/small HTTP/1.2\r\nHost: shop\r\n\r\n",
    "GET /p/small\r\nHost: shop\r\n\r\n",
    "GET  /p/small HTTP/1.1\r\nHost: shop\r\n\r\n",
    "GET /p/small HTTP/1.1\r\nHost : shop\r\n\r\n",
    "GET /p/small HTTP/1.1\r\nHost: shop\r\n folded: 1\r\n\r\n",
    "GET /p/small HTTP/1.1\r\nHost: shop\r\nX: \0\r\n\r\n",
    "GET p/small HTTP/1.1\r\nHost: shop\r\n\r\n",
    "GET /p/sm\u{e4}ll HTTP/1.1\r\nHost: shop\r\n\r\n",
    "CONNECT shop:80 HTTP/1.1\r\nHost: shop\r\n\r\n",
    "TRACE /p/small HTTP/1.1\r\nHost: shop\r\n\r\n",
    "GET /p/small HTTP/1.1\r\nHost: shop\r\nTransfer-Encoding: gzip\r\n\r\n",
    "POST /n/last HTTP/1.1\r\nHost: shop\r\nContent-Length: 5, 5\r\n\r\nabcde",
    "POST /n/last HTTP/1.1\r\nHost: shop\r\nContent-Length: 9\r\n\r\nshort",
    "POST /w/last HTTP/1.1\r\nHost: shop\r\nContent-Length: 5\r\n\r\nabcde",
    "GET /p/small HTTP/1.1\r\nHost: shop\r\nX-Original-URL: /w\r\n\r\n",
    "GET /p/small HTTP/1.1\r\nHost: shop\r\nX-Half",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "\u{1}\u{2}\u{3}",
];

/// What a client sends.
pub struct Script {
    bytes: Vec<u8>,
    /// Where it may be cut. A head that hyper refuses comes in one piece: whether it answers, or closes, depends on how much of it came at once.
    cut_before: usize,
    pub requests: usize,
}

/// Requests one behind the other.
pub fn script(chance: &mut Chance, nth: &mut usize) -> Script {
    let requests = 1 + chance.below(6);
    let mut bytes = Vec::new();
    for _ in 0..requests {
        *nth += 1;
        bytes.extend(request(chance, *nth).bytes());
    }
    let cut_before = bytes.len();
    if chance.one_in(6) {
        bytes.extend(chance.of(&LAST).bytes());
    }
    Script { bytes, cut_before, requests }
}

fn request(chance: &mut Chance, nth: usize) -> String {
    // A page that is not stored is asked for once: what the proxy remembers of it, it does for a time.
    let other = format!("/n/{nth}?a=b");
    let path = if chance.one_in(8) { &other } else { chance.of(&PAGES).0 };
    let method = if chance.one_in(8) { "HEAD" } else { "GET" };
    let end = if chance.one_in(30) { "\n" } else { "\r\n" };
    let (mut line, mut body) = (format!("{method} {path} HTTP/1.1{end}"), String::new());
    let host = chance.of(&["Host: shop", "Host: shop", "Host: shop", "host: SHOP", "Host: shop ", "HOST: shop"]);
    let mut fields = vec![host.to_owned()];
    for _ in 0..chance.of(&[0, 0, 0, 1, 1, 2, 5]) {
        let field = chance.of(&FIELDS);
        // A page is stored a moment after its answer. So that no request meets another in that moment, those for pages of the cache
        // bring none in, and none anew.
        let brings_another = OTHER_PAGE.iter().any(|begin| field.starts_with(begin)) && path != other;
        let brings_anew = ANEW.contains(&field) && path.starts_with("/s/");
        if !brings_another && !brings_anew {
            fields.push(field.to_owned());
        }
    }
    // Several that say the same length are one more oddity, which hyper has to itself.
    match chance.below(24) {
        0 => {
            line = format!("POST /n/{nth} HTTP/1.1{end}");
            body = "abcde".repeat(chance.of(&[0, 1, 1, 400]));
            fields.push(format!("Content-Length: {}", body.len()));
        }
        1 => {
            line = format!("PUT /n/{nth} HTTP/1.1{end}");
            fields.push("Transfer-Encoding: chunked".to_owned());
            body = "5\r\nabcde\r\n0\r\n\r\n".to_owned();
        }
        2 => {
            fields.push("Content-Length: 5".to_owned());
            body = "abcde".to_owned();
        }
        3 => line = format!("{method} http://shop{path} HTTP/1.1{end}"),
        4 => line = format!("OPTIONS * HTTP/1.1{end}"),
        5 => fields.push(format!("X-Long: {}", "x".repeat(chance.below(9000)))),
        6 => line = format!("{end}{line}"),
        _ => {}
    }
    if !body.is_empty() {
        fields.retain(|field| field != "Content-Length: 0");
    }
    let fields: String = fields.iter().map(|field| format!("{field}{end}")).collect();
    format!("{line}{fields}{end}{body}")
}

impl Script {
    /// Cut at bytes by chance.
    pub fn cut(&self, chance: &mut Chance) -> Vec<&[u8]> {
        let mut cuts: Vec<usize> = (0..chance.of(&[0, 0, 1, 2, 6])).map(|_| chance.below(self.cut_before)).collect();
        if self.cut_before < 200 && chance.one_in(20) {
            cuts = (0..self.cut_before).collect();
        }
        cuts.extend([0, self.bytes.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|two| &self.bytes[two[0]..two[1]]);
        pieces.filter(|piece| !piece.is_empty()).collect()
    }
}
