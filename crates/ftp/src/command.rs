//! One line of a client as a command, or the reason why it is none.

use std::net::{IpAddr, SocketAddr};

use crate::address::{EprtError, parse_eprt, parse_port};
use crate::date::Date;
use crate::endpoint;
use crate::file_work::Digest;
use verbena_transfer::Endpoint;

/// How the bytes of a data connection stand for those of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Representation {
    /// `TYPE A`: lines end with CR LF on the wire.
    Ascii,
    /// `TYPE I` and `TYPE L 8`: bytes as they are.
    Image,
}

/// The argument of `EPSV`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extended {
    /// None: the family of the control connection.
    Any,
    /// `1`, IPv4.
    V4,
    /// `2`, IPv6.
    V6,
    /// `ALL`: the client promises to use nothing else.
    All,
}

/// A command. Arguments are bytes as the client sent them; none holds NUL, CR or LF.
#[allow(missing_docs, reason = "named as in the RFCs")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    User(Vec<u8>),
    Pass(Vec<u8>),
    Acct,
    Host(Vec<u8>),
    Auth(Vec<u8>),
    Pbsz,
    Prot(u8),
    Rein,
    Quit,
    Noop,
    Clnt,
    Syst,
    Feat,
    Help,
    Opts(Vec<u8>),
    Type(Representation),
    Stru,
    /// `S`, or `E` if true.
    Mode(bool),
    Pasv,
    Spas,
    Epsv(Extended),
    Port(SocketAddr),
    /// Channels in the order of preference, those of one session joined by `+`, streams, and whose they are, where that is not the client.
    Tprt(Vec<Vec<u8>>, (u16, u16), Option<IpAddr>),
    /// Where another server listens for the streams of the next session, and how many there are.
    Tcon(Vec<Endpoint>, (u16, u16)),
    Retr(Vec<u8>),
    /// The path, and the bytes from the first to before the second.
    Eret(Vec<u8>, (u64, u64)),
    Stor(Vec<u8>),
    Appe(Vec<u8>),
    Stou,
    Allo(u64),
    Rest(u64),
    /// Parts of the file that the other end has: each from the first byte to before the second.
    RestParts(Vec<(u64, u64)>),
    /// First and last byte, both inclusive; `None` takes an earlier one back.
    Rang(Option<(u64, u64)>),
    Rnfr(Vec<u8>),
    Rnto(Vec<u8>),
    Dele(Vec<u8>),
    Mkd(Vec<u8>),
    Rmd(Vec<u8>),
    Pwd,
    Cwd(Vec<u8>),
    List(Vec<u8>),
    Nlst(Vec<u8>),
    Mlsd(Vec<u8>),
    Mlst(Vec<u8>),
    Size(Vec<u8>),
    Mdtm(Vec<u8>),
    /// Seconds since 1970, and the path.
    Mfmt(i64, Vec<u8>),
    /// The same by `SITE UTIME`, which has another answer.
    SiteUtime(i64, Vec<u8>),
    SiteChmod(u32, Vec<u8>),
    SiteHelp,
    Hash(Vec<u8>),
    /// The path, and the bytes from the first to before the second, where given.
    Xsha256(Vec<u8>, Option<(u64, u64)>),
    /// The same of an offset and a length, by one of two digests.
    Cksm(Digest, Vec<u8>, (u64, u64)),
    /// The size of the kernel's buffers, which it chooses itself.
    Sbuf,
    /// What the client is called.
    SiteClientInfo,
    Stat(Option<Vec<u8>>),
    Abor,
}

/// Why a line is no command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// A verb of HTTP: the connection is closed, because a browser may have been tricked into it.
    Http,
    /// No such command.
    Unknown,
    /// A command with a wrong argument, and what it takes.
    Syntax(&'static str),
    /// A parameter that the RFC knows and this server does not have.
    Parameter(&'static str),
    /// `EPRT` with another family than IPv4 and IPv6.
    Family,
}

impl Command {
    /// Parses one line.
    pub fn parse(line: &[u8]) -> Result<Command, CommandError> {
        let (verb, argument) = match line.iter().position(|byte| *byte == b' ') {
            Some(at) => (&line[..at], Some(&line[at + 1..])),
            None => (line, None),
        };
        let verb = verb.to_ascii_uppercase();
        if matches!(
            verb.as_slice(),
            b"GET" | b"POST" | b"PUT" | b"HEAD" | b"DELETE" | b"CONNECT" | b"OPTIONS" | b"TRACE" | b"PATCH" | b"PRI"
        ) {
            return Err(CommandError::Http);
        }
        if line.iter().any(|byte| matches!(byte, 0 | b'\r')) {
            return Err(CommandError::Syntax("Arguments hold no NUL and no CR."));
        }
        parse_verb(&verb, argument)
    }
}

fn parse_verb(verb: &[u8], argument: Option<&[u8]>) -> Result<Command, CommandError> {
    use Command::*;
    // A path as it stands, blanks at either end included.
    let path = || match argument {
        Some(path) if !path.is_empty() => Ok(path.to_vec()),
        _ => Err(CommandError::Syntax("The command takes a path.")),
    };
    let perhaps = || argument.unwrap_or_default().to_vec();
    let word = || argument.unwrap_or_default().trim_ascii();
    Ok(match verb {
        b"USER" => User(path().map_err(|_| CommandError::Syntax("USER takes a name."))?),
        b"PASS" => Pass(perhaps()),
        b"ACCT" => Acct,
        b"HOST" => Host(path().map_err(|_| CommandError::Syntax("HOST takes a name."))?),
        b"AUTH" => Auth(word().to_ascii_uppercase()),
        b"PBSZ" => match word() {
            b"0" => Pbsz,
            _ => return Err(CommandError::Syntax("PBSZ takes 0.")),
        },
        b"PROT" => match word().to_ascii_uppercase().as_slice() {
            [level @ (b'C' | b'P')] => Prot(*level),
            b"S" | b"E" => return Err(CommandError::Parameter("Levels are C and P.")),
            _ => return Err(CommandError::Syntax("PROT takes C or P.")),
        },
        b"REIN" => Rein,
        b"QUIT" => Quit,
        b"NOOP" => Noop,
        b"CLNT" => Clnt,
        b"SYST" => Syst,
        b"FEAT" => Feat,
        b"HELP" => Help,
        b"OPTS" => Opts(word().to_vec()),
        b"TYPE" => Type(representation(word())?),
        b"STRU" => match word().to_ascii_uppercase().as_slice() {
            b"F" => Stru,
            b"R" | b"P" => return Err(CommandError::Parameter("The structure is F.")),
            _ => return Err(CommandError::Syntax("STRU takes F.")),
        },
        b"MODE" => match word().to_ascii_uppercase().as_slice() {
            b"S" => Mode(false),
            b"E" => Mode(true),
            b"B" | b"C" | b"Z" => return Err(CommandError::Parameter("The modes are S and E.")),
            _ => return Err(CommandError::Syntax("MODE takes S or E.")),
        },
        b"PASV" => Pasv,
        b"SPAS" => Spas,
        b"EPSV" => Epsv(match word().to_ascii_uppercase().as_slice() {
            b"" => Extended::Any,
            b"1" => Extended::V4,
            b"2" => Extended::V6,
            b"ALL" => Extended::All,
            _ => return Err(CommandError::Family),
        }),
        b"PORT" => Port(parse_port(word()).ok_or(CommandError::Syntax("PORT takes six numbers: h1,h2,h3,h4,p1,p2."))?),
        b"EPRT" => Port(parse_eprt(word()).map_err(|error| match error {
            EprtError::Form => CommandError::Syntax("EPRT takes |1|address|port| or |2|address|port|."),
            EprtError::Family => CommandError::Family,
        })?),
        // A server of one stripe connects to one address.
        b"SPOR" => Port(parse_port(word()).ok_or(CommandError::Syntax("SPOR takes one address: h1,h2,h3,h4,p1,p2."))?),
        b"TPRT" => tprt(word())?,
        b"TCON" => tcon(word()).ok_or(CommandError::Syntax(
            "TCON takes an address, streams, as 1-16, and endpoints as the answer to TPRT has them.",
        ))?,
        b"RETR" => Retr(path()?),
        b"ERET" => eret(argument.unwrap_or_default())?,
        b"STOR" => Stor(path()?),
        b"APPE" => Appe(path()?),
        b"STOU" => Stou,
        b"ALLO" => Allo(number(word().split(|byte| *byte == b' ').next().unwrap_or_default())?),
        b"REST" if word().contains(&b'-') => RestParts(parts(word())?),
        b"REST" => Rest(number(word())?),
        b"RANG" => Rang(range(word())?),
        b"RNFR" => Rnfr(path()?),
        b"RNTO" => Rnto(path()?),
        b"DELE" => Dele(path()?),
        b"MKD" | b"XMKD" => Mkd(path()?),
        b"RMD" | b"XRMD" => Rmd(path()?),
        b"PWD" | b"XPWD" => Pwd,
        b"CWD" | b"XCWD" => Cwd(path()?),
        b"CDUP" | b"XCUP" => Cwd(b"..".to_vec()),
        b"LIST" => List(without_options(argument)),
        b"NLST" => Nlst(without_options(argument)),
        b"MLSD" => Mlsd(perhaps()),
        b"MLST" => Mlst(perhaps()),
        b"SIZE" => Size(path()?),
        b"MDTM" => Mdtm(path()?),
        b"MFMT" => {
            let (seconds, path) = dated(argument.unwrap_or_default())
                .ok_or(CommandError::Syntax("MFMT takes YYYYMMDDHHMMSS and a path."))?;
            Mfmt(seconds, path)
        }
        b"HASH" => Hash(path()?),
        b"XSHA256" => {
            let (path, range) = ranged(argument.unwrap_or_default())
                .ok_or(CommandError::Syntax("XSHA256 takes a path, in quotes where a start and an end follow."))?;
            Xsha256(path, range)
        }
        b"CKSM" => cksm(argument.unwrap_or_default())?,
        b"SBUF" => {
            number(word())?;
            Sbuf
        }
        b"STAT" => Stat(argument.filter(|path| !path.is_empty()).map(|_| without_options(argument))),
        b"ABOR" => Abor,
        b"SITE" => site(argument.unwrap_or_default())?,
        _ => return Err(CommandError::Unknown),
    })
}

fn representation(word: &[u8]) -> Result<Representation, CommandError> {
    let upper = word.to_ascii_uppercase();
    let words: Vec<&[u8]> = upper.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
    match words.as_slice() {
        [b"A"] | [b"A", b"N"] => Ok(Representation::Ascii),
        [b"I"] | [b"L", b"8"] | [b"L8"] => Ok(Representation::Image),
        [b"E" | b"A" | b"L", ..] => Err(CommandError::Parameter("Types are A, I and L 8.")),
        _ => Err(CommandError::Syntax("TYPE takes A, I or L 8.")),
    }
}

fn site(argument: &[u8]) -> Result<Command, CommandError> {
    let (verb, rest) = split(argument);
    match verb.to_ascii_uppercase().as_slice() {
        b"HELP" => Ok(Command::SiteHelp),
        b"CLIENTINFO" => Ok(Command::SiteClientInfo),
        b"CHMOD" => {
            let (mode, path) = split(rest);
            let mode = std::str::from_utf8(mode).ok().and_then(|mode| u32::from_str_radix(mode, 8).ok());
            match mode.filter(|mode| *mode <= 0o777 && !path.is_empty()) {
                Some(mode) => Ok(Command::SiteChmod(mode, path.to_vec())),
                None => Err(CommandError::Syntax("SITE CHMOD takes an octal mode up to 777 and a path.")),
            }
        }
        b"UTIME" => {
            let (seconds, path) =
                utime(rest).ok_or(CommandError::Syntax("SITE UTIME takes YYYYMMDDHHMM[SS] and a path."))?;
            Ok(Command::SiteUtime(seconds, path))
        }
        _ => Err(CommandError::Unknown),
    }
}

/// The first word, and what follows one blank.
fn split(text: &[u8]) -> (&[u8], &[u8]) {
    match text.iter().position(|byte| *byte == b' ') {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, b""),
    }
}

/// `date path`.
pub(crate) fn dated(argument: &[u8]) -> Option<(i64, Vec<u8>)> {
    let (date, path) = split(argument);
    let date = Date::parse(date)?;
    (!path.is_empty()).then(|| (date.seconds(), path.to_vec()))
}

/// `date path`, or `path access modification change UTC`.
fn utime(argument: &[u8]) -> Option<(i64, Vec<u8>)> {
    if let Some(found) = dated(argument) {
        return Some(found);
    }
    let mut fields = argument.rsplitn(5, |byte| *byte == b' ');
    let (zone, _change, modification, access) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let path = fields.next().filter(|path| !path.is_empty())?;
    if !zone.eq_ignore_ascii_case(b"UTC") || Date::parse(access).is_none() {
        return None;
    }
    Some((Date::parse(modification)?.seconds(), path.to_vec()))
}

/// Two positions in a file.
type Range = (u64, u64);

/// `path`, `"path"`, `"path" start` or `"path" start end`.
fn ranged(argument: &[u8]) -> Option<(Vec<u8>, Option<Range>)> {
    let Some(quoted) = argument.strip_prefix(b"\"") else {
        return (!argument.is_empty()).then(|| (argument.to_vec(), None));
    };
    let end = quoted.iter().rposition(|byte| *byte == b'"')?;
    let (path, rest) = (&quoted[..end], quoted[end + 1..].trim_ascii());
    if path.is_empty() {
        return None;
    }
    let numbers: Vec<u64> =
        rest.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).map(number).collect::<Result<_, _>>().ok()?;
    match numbers[..] {
        [] => Some((path.to_vec(), None)),
        [start] => Some((path.to_vec(), Some((start, u64::MAX)))),
        [start, end] if start <= end => Some((path.to_vec(), Some((start, end)))),
        _ => None,
    }
}

/// `CHANNELS STREAMS [ADDRESS]`.
fn tprt(argument: &[u8]) -> Result<Command, CommandError> {
    let (channels, rest) = split(argument);
    let (counts, from) = split(rest);
    let channels: Vec<Vec<u8>> = channels.split(|byte| *byte == b',').map(<[u8]>::to_ascii_lowercase).collect();
    let from = match from.trim_ascii() {
        b"" => Some(None),
        text => address(text).map(Some),
    };
    match (stream_counts(counts), from) {
        (Some(counts), Some(from)) if !channels[0].is_empty() => Ok(Command::Tprt(channels, counts, from)),
        _ => Err(CommandError::Syntax(
            "TPRT takes channels, as quic,tcp or tcp+quic, 1 to 16 streams, as 4 or 1-16, and the address of another server, if they are its.",
        )),
    }
}

/// `ADDRESS STREAMS (ENDPOINT)...`.
fn tcon(argument: &[u8]) -> Option<Command> {
    let (host, rest) = split(argument);
    let (counts, endpoints) = split(rest);
    let endpoints = endpoint::read(std::str::from_utf8(endpoints).ok()?, address(host)?)?;
    Some(Command::Tcon(endpoints, stream_counts(counts)?))
}

fn address(text: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// `FIRST-MOST`, or one number for both.
fn stream_counts(text: &[u8]) -> Option<(u16, u16)> {
    let mut ends = text.splitn(2, |byte| *byte == b'-');
    let first = number(ends.next().unwrap_or_default()).ok()?;
    let most = ends.next().map_or(Ok(first), number).ok()?;
    let limit = u64::from(verbena_transfer::MOST_STREAMS);
    (1 <= first && first <= most && most <= limit).then_some((first as u16, most as u16))
}

/// `P offset length path`.
fn eret(argument: &[u8]) -> Result<Command, CommandError> {
    let wrong = CommandError::Syntax("ERET takes P, an offset, a length and a path.");
    let (module, rest) = split(argument);
    let (from, rest) = split(rest);
    let (length, path) = split(rest);
    if !module.eq_ignore_ascii_case(b"P") || path.is_empty() {
        return Err(wrong);
    }
    let (from, length) = (number(from)?, number(length)?);
    Ok(Command::Eret(path.to_vec(), (from, from.saturating_add(length))))
}

/// `algorithm offset length path`; the length -1 is all that follows.
fn cksm(argument: &[u8]) -> Result<Command, CommandError> {
    let (algorithm, rest) = split(argument);
    let (from, rest) = split(rest);
    let (length, path) = split(rest);
    let digest = match algorithm.to_ascii_uppercase().as_slice() {
        b"MD5" => Digest::Md5,
        b"SHA256" | b"SHA-256" => Digest::Sha256,
        _ => return Err(CommandError::Parameter("Algorithms are MD5 and SHA256.")),
    };
    if path.is_empty() {
        return Err(CommandError::Syntax("CKSM takes an algorithm, an offset, a length or -1, and a path."));
    }
    let from = number(from)?;
    let to = if length == b"-1" { u64::MAX } else { from.saturating_add(number(length)?) };
    Ok(Command::Cksm(digest, path.to_vec(), (from, to)))
}

/// `a-b,c-d`, each from its first byte to before its second number, as markers of MODE E are.
fn parts(word: &[u8]) -> Result<Vec<(u64, u64)>, CommandError> {
    let part = |part: &[u8]| {
        let mut ends = part.splitn(2, |byte| *byte == b'-');
        let (from, to) = (number(ends.next().unwrap_or_default())?, number(ends.next().unwrap_or_default())?);
        if from <= to { Ok((from, to)) } else { Err(CommandError::Syntax("REST takes parts as 0-100,200-300.")) }
    };
    word.split(|byte| *byte == b',').map(part).collect()
}

/// `start end`; `1 0` takes an earlier one back.
fn range(word: &[u8]) -> Result<Option<(u64, u64)>, CommandError> {
    let (start, end) = split(word);
    match (number(start)?, number(end)?) {
        (1, 0) => Ok(None),
        (start, end) if start <= end => Ok(Some((start, end))),
        _ => Err(CommandError::Syntax("RANG takes a first and a last byte, or 1 0.")),
    }
}

fn number(word: &[u8]) -> Result<u64, CommandError> {
    let text = std::str::from_utf8(word).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    // A file is at most 2^63-1 bytes long for the kernel.
    text.and_then(|text| text.parse().ok())
        .filter(|number| *number <= i64::MAX as u64)
        .ok_or(CommandError::Syntax("The command takes a number of bytes."))
}

/// The path of a listing without the options of `ls` that clients put before it.
fn without_options(argument: Option<&[u8]>) -> Vec<u8> {
    let mut rest = argument.unwrap_or_default();
    while rest.first() == Some(&b'-') {
        rest = split(rest).1;
    }
    rest.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, CommandError> {
        Command::parse(line.as_bytes())
    }

    #[test]
    fn paths_stand_as_they_were_sent() {
        assert_eq!(parse("retr  a b "), Ok(Command::Retr(b" a b ".to_vec())));
        assert_eq!(parse("LIST -la  x"), Ok(Command::List(b" x".to_vec())));
        assert_eq!(parse("NLST"), Ok(Command::Nlst(Vec::new())));
        assert_eq!(parse("SITE CHMOD 644 a b"), Ok(Command::SiteChmod(0o644, b"a b".to_vec())));
        assert_eq!(parse("MFMT 19700101000001 a b"), Ok(Command::Mfmt(1, b"a b".to_vec())));
        assert_eq!(
            parse("SITE UTIME a b 19700101000001 19700101000002 19700101000003 UTC"),
            Ok(Command::SiteUtime(2, b"a b".to_vec()))
        );
        assert_eq!(parse("CKSM sha256 1 -1 a b"), Ok(Command::Cksm(Digest::Sha256, b"a b".to_vec(), (1, u64::MAX))));
        assert_eq!(parse("ERET p 5 10 a b"), Ok(Command::Eret(b"a b".to_vec(), (5, 15))));
        assert_eq!(parse("REST 0-5,7-9"), Ok(Command::RestParts(vec![(0, 5), (7, 9)])));
        assert_eq!(parse("XSHA256 \"a \"b\" 1 5"), Ok(Command::Xsha256(b"a \"b".to_vec(), Some((1, 5)))));
    }

    #[test]
    fn what_is_no_command_says_why() {
        assert_eq!(parse("GET / HTTP/1.1"), Err(CommandError::Http));
        assert_eq!(parse("XYZ"), Err(CommandError::Unknown));
        for line in [
            "RETR",
            "RETR ",
            "REST -1",
            "REST 5-4",
            "REST 1-",
            "ERET P 1 a",
            "ERET X 1 2 a",
            "CKSM MD5 0 -1",
            "SPOR 1,2,3,4,5,6 1,2,3,4,5,6",
            "SBUF x",
            "REST 9223372036854775808",
            "RANG 5 4",
            "SITE CHMOD 7777 a",
            "MFMT 1 a",
        ] {
            assert!(matches!(parse(line), Err(CommandError::Syntax(_))), "{line}");
        }
        for line in ["TYPE E", "TYPE L 9", "MODE B", "STRU R", "CKSM SHA1 0 -1 a"] {
            assert!(matches!(parse(line), Err(CommandError::Parameter(_))), "{line}");
        }
        assert!(matches!(Command::parse(b"RETR a\0b"), Err(CommandError::Syntax(_))));
        assert!(matches!(Command::parse(b"RETR a\rb"), Err(CommandError::Syntax(_))));
    }
}
