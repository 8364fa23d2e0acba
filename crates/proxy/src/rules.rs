//! What is wrong with the rules of `proxy.routes`: a rule, a list or a name that has no effect is a mistake, because its author believes that it has one.

use verbena_caching::{ANALYTICS, Codings, Mode, Names, Route, Rule, Writes, is_language, parents, resolve};
use verbena_terms::{Contradiction, Size};

/// The least bytes of a slice: with fewer, heads would be more than bodies.
const LEAST_SLICE: Size = Size(4 << 10);

/// What a list of names is of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Cookies,
    Parameters,
}

/// All contradictions of the rules, by the keys of the section.
pub(crate) fn contradictions(rules: &[Rule], largest: Size) -> Vec<Contradiction> {
    let mut found = Vec::new();
    let elsewhere = Route::default();
    let (parents, resolved) = (parents(rules), resolve(rules, &elsewhere));
    for (at, (rule, parent)) in rules.iter().zip(parents).enumerate() {
        let mut say = |key: &str, problem: String| {
            let dot = if key.is_empty() { "" } else { "." };
            found.push(Contradiction::new(format!("routes.{at}{dot}{key}"), problem));
        };
        prefix(rule, &rules[..at], &mut say);
        inheritance(rule, parent.map(|parent| rules[parent].prefix.as_str()), &mut say);
        cookies(rule, &mut say);
        let here = &resolved[at].cookies;
        if rule.cookies.publish == Some(true) && here.ignore.is_empty() && here.only.is_none() {
            say("cookies.publish", "has no effect: no cookie is ignored here".into());
        }
        if resolved[at].upgrade && resolved[at].writes == Writes::Always {
            say("upgrade", "no update brackets what is written through a tunnel, and writes = \"always\" says that each request is: write one of them".into());
        }
        let around = parent.filter(|_| rule.inherit).map_or(&elsewhere, |parent| &resolved[parent]);
        empty_lists(rule, around, &mut say);
        coding(rule, resolved[at].mode, &mut say);
        languages(rule, &mut say);
        harmless(rule, &resolved[at], &mut say);
        slice(rule, &resolved[at], largest, &mut say);
        if let Some(ignored) = &rule.query.ignore {
            names("query.ignore", ignored, Kind::Parameters, &mut say);
        }
    }
    found
}

fn prefix(rule: &Rule, before: &[Rule], say: &mut impl FnMut(&str, String)) {
    if !rule.prefix.starts_with('/') {
        say("prefix", "a prefix begins with \"/\"".into());
    } else if before.iter().any(|other| other.prefix == rule.prefix) {
        say("prefix", "a route of this prefix stands before it".into());
    }
    if rule.prefix.contains(['?', '#']) {
        say("prefix", "a prefix is one of paths, and no path has \"?\" or \"#\" in it".into());
    }
}

fn inheritance(rule: &Rule, parent: Option<&str>, say: &mut impl FnMut(&str, String)) {
    match parent {
        Some(parent) if rule.inherit && rule.is_bare() => {
            say(
                "",
                format!("has no effect: it inherits all from {parent:?}; write what is different, or inherit = false"),
            );
        }
        None if !rule.inherit => {
            say("inherit", "has no effect: no shorter prefix covers this one; leave it out".into());
        }
        _ => {}
    }
}

/// Reports lists that take nothing away: an empty list takes away what a shorter prefix says, and has no effect
/// where that says nothing.
fn empty_lists(rule: &Rule, around: &Route, say: &mut impl FnMut(&str, String)) {
    let is_empty = |list: &Option<Vec<String>>| list.as_ref().is_some_and(Vec::is_empty);
    let cookies = &around.cookies;
    for (key, is_empty, has_none) in [
        ("harmless", rule.harmless.as_ref().is_some_and(Vec::is_empty), around.harmless.is_empty()),
        ("languages", is_empty(&rule.languages), around.languages.is_empty()),
        ("compress", rule.compress.as_ref().is_some_and(Codings::is_empty), around.compress.is_empty()),
        ("cookies.ignore", is_empty(&rule.cookies.ignore), cookies.ignore.is_empty() && cookies.only.is_none()),
        ("cookies.key", is_empty(&rule.cookies.key), cookies.key.is_empty()),
        ("query.ignore", is_empty(&rule.query.ignore), around.query.ignore.is_empty()),
    ] {
        if is_empty && has_none {
            say(key, "has no effect: it is empty, and no shorter prefix says what it could take away; write what is meant, or leave it out".into());
        }
    }
}

fn coding(rule: &Rule, mode: Mode, say: &mut impl FnMut(&str, String)) {
    let Some(codings) = rule.compress.as_ref().filter(|codings| !codings.is_empty()) else { return };
    if let Some(coding) = codings.repeated() {
        say("compress", format!("has no effect: {:?} stands there twice", coding.name()));
    } else if mode == Mode::Pass {
        say("compress", "has no effect: what is stored is compressed, and with mode = \"pass\" nothing is".into());
    }
}

fn languages(rule: &Rule, say: &mut impl FnMut(&str, String)) {
    let languages = rule.languages.as_deref().unwrap_or_default();
    for (at, language) in languages.iter().enumerate() {
        let key = format!("languages.{at}");
        if !is_language(language) {
            say(&key, format!("has no effect: {language:?} is no tag of a language, as \"de\" and \"pt-BR\" are"));
        } else if languages[..at].iter().any(|other| other.eq_ignore_ascii_case(language)) {
            say(&key, format!("has no effect: {language:?} stands before it"));
        }
    }
}

/// Statuses are the application's refusals, and hold where a request is an update of everything.
fn harmless(rule: &Rule, here: &Route, say: &mut impl FnMut(&str, String)) {
    let Some(statuses) = rule.harmless.as_deref().filter(|statuses| !statuses.is_empty()) else { return };
    for (at, status) in statuses.iter().enumerate() {
        let key = format!("harmless.{at}");
        if !(400..500).contains(status) {
            say(
                &key,
                format!(
                    "{status} is no refusal: an answer of 400 to 499 says that the request was not carried out, any other may have written"
                ),
            );
        } else if statuses[..at].contains(status) {
            say(&key, format!("has no effect: {status} stands before it"));
        }
    }
    let around = match (here.writes, here.mode) {
        (Writes::Never, _) => "nothing writes here, by writes = \"never\"",
        (Writes::Announced, _) => "by writes = \"announced\" the application says what it touches",
        (Writes::Database, _) => "by writes = \"database\" the relay sees what is written",
        (Writes::UnsafeMethods, Mode::Standard) => {
            "with mode = \"standard\" a write purges its own address, and after a refusal nothing"
        }
        (Writes::UnsafeMethods | Writes::Always, _) => return,
    };
    say("harmless", format!("has no effect: {around}"));
}

/// Slices are stored as pages are, and by lifetimes.
fn slice(rule: &Rule, here: &Route, largest: Size, say: &mut impl FnMut(&str, String)) {
    let Some(size) = rule.slice.filter(|size| size.0 > 0) else { return };
    if here.mode != Mode::Standard {
        say("slice", "has no effect: slices are stored by their lifetimes; write mode = \"standard\" beside it".into());
    } else if size < LEAST_SLICE {
        say("slice", format!("{size} is less than {LEAST_SLICE}, the least size of a slice"));
    } else if size > largest {
        say(
            "slice",
            format!("{size} is more than proxy.largest, {largest}: no slice would be stored; lower it, or raise that"),
        );
    }
}

fn cookies(rule: &Rule, say: &mut impl FnMut(&str, String)) {
    let cookies = &rule.cookies;
    for (key, list) in [("ignore", &cookies.ignore), ("only", &cookies.only), ("key", &cookies.key)] {
        if let Some(list) = list {
            names(&format!("cookies.{key}"), list, Kind::Cookies, say);
        }
    }
    if cookies.ignore.is_some() && cookies.only.is_some() {
        say(
            "cookies.only",
            "only ignores all cookies but these, so ignore beside it has no effect: write one of them".into(),
        );
    }
    for (at, name) in cookies.key.iter().flatten().enumerate() {
        for (key, list) in [("ignore", &cookies.ignore), ("only", &cookies.only)] {
            if list.iter().flatten().any(|other| other == name) {
                say(&format!("cookies.key.{at}"), format!("{name:?} is in cookies.{key} too: take it off one of them"));
            }
        }
    }
}

/// What is wrong with the names of one list.
fn names(key: &str, list: &[String], kind: Kind, say: &mut impl FnMut(&str, String)) {
    for (at, name) in list.iter().enumerate() {
        let at_name = format!("{key}.{at}");
        if let Some(problem) = of_name(key, name, kind) {
            say(&at_name, problem);
            continue;
        }
        if list[..at].contains(name) {
            say(&at_name, format!("has no effect: {name:?} stands before it"));
            continue;
        }
        let mut others = list.iter().filter(|other| *other != name && of_name(key, other, kind).is_none());
        let covers = |other: &&String| match kind {
            Kind::Cookies => Names::of_cookies([other]).has_all_of(name),
            Kind::Parameters => Names::of_parameters([other]).has_all_of(name),
        };
        if let Some(wider) = others.find(covers).filter(|_| name != ANALYTICS) {
            say(&at_name, format!("has no effect: {wider:?} stands for {name:?} too"));
        }
    }
}

fn of_name(key: &str, name: &str, kind: Kind) -> Option<String> {
    let is_ignored = key.ends_with("ignore");
    if name.starts_with('@') {
        return match (name, is_ignored) {
            (ANALYTICS, true) => None,
            (ANALYTICS, false) => Some(format!("{ANALYTICS:?} is a list of what can be ignored: write the names")),
            _ => Some(format!("has no effect: there is no list {name:?}; the one that is built in is {ANALYTICS:?}")),
        };
    }
    if name.trim_end_matches('*').contains('*') || name.ends_with("**") {
        return Some(format!("has no effect: in {name:?} \"*\" does not stand once, at the end"));
    }
    match kind {
        Kind::Parameters => {
            let strange = name.chars().find(|byte| matches!(byte, '&' | '=' | '#') || !byte.is_ascii_graphic())?;
            Some(format!(
                "has no effect: {name:?} is no name of a parameter, for no address has {strange:?} in one: names are compared as addresses spell them (\"%20\")"
            ))
        }
        Kind::Cookies => of_cookie(key, name, is_ignored),
    }
}

fn of_cookie(key: &str, name: &str, is_ignored: bool) -> Option<String> {
    if name == "*" {
        let instead = match is_ignored {
            true => {
                "\"*\" would ignore each cookie, also those of sessions: name in cookies.only those that matter ([] if none does)"
            }
            false => "\"*\" is every cookie: name those that matter",
        };
        return Some(instead.into());
    }
    if name.is_empty() {
        return Some("has no effect: \"\" is no name of a cookie".into());
    }
    // RFC 6265 section 4.1.1: a name is a token (RFC 9110 section 5.6.2).
    let is_token = |char: char| char.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(char);
    if let Some(strange) = name.chars().find(|char| !is_token(*char)) {
        let instead = if strange == '=' { "; write the name without its value" } else { "" };
        return Some(format!("has no effect: {name:?} is no name of a cookie, for {strange:?} is in none{instead}"));
    }
    (key.ends_with("key") && name.ends_with('*'))
        .then(|| format!("has no effect: a key names each cookie, and {name:?} stands for many"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbena_caching::{CookieRule, QueryRule};

    const LARGEST: Size = Size(4 << 20);

    /// Of one rule for all paths: each problem, with its key below `routes.0.`.
    fn found(cookies: [Option<&[&str]>; 3], query: Option<&[&str]>) -> Vec<String> {
        let list = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let [ignore, only, key] = cookies.map(|names| names.map(list));
        let query = QueryRule { ignore: query.map(list), sort: None };
        let rule = Rule { cookies: CookieRule { ignore, only, key, publish: None }, query, ..Rule::default() };
        let said = |found: Contradiction| format!("{}: {}", found.key.trim_start_matches("routes.0."), found.problem);
        contradictions(&[rule], LARGEST).into_iter().map(said).collect()
    }

    #[test]
    fn whatever_has_no_effect_is_a_mistake() {
        let ignoring = |names: &'static [&'static str]| found([Some(names), None, None], None);
        let only = |names: &'static [&'static str]| found([None, Some(names), None], None);
        let keyed = |names: &'static [&'static str]| found([None, None, Some(names)], None);
        let query = |names: &'static [&'static str]| found([None; 3], Some(names));
        for (found, begins, says) in [
            (ignoring(&["*"]), "cookies.ignore.0: ", "cookies.only"),
            (ignoring(&["sid", "a b;"]), "cookies.ignore.1: ", "' ' is in none"),
            (ignoring(&["sid=1"]), "cookies.ignore.0: ", "without its value"),
            (ignoring(&[""]), "cookies.ignore.0: ", "no name of a cookie"),
            (ignoring(&["s*d"]), "cookies.ignore.0: ", "at the end"),
            (ignoring(&["sid**"]), "cookies.ignore.0: ", "at the end"),
            (ignoring(&["@analitics"]), "cookies.ignore.0: ", "\"@analytics\""),
            (ignoring(&["sid", "sid"]), "cookies.ignore.1: ", "before it"),
            (ignoring(&["_ga_1", "_ga*"]), "cookies.ignore.0: ", "\"_ga*\" stands for"),
            (ignoring(&["@analytics", "_ga"]), "cookies.ignore.1: ", "\"@analytics\" stands for"),
            (only(&["*"]), "cookies.only.0: ", "name those that matter"),
            (only(&["@analytics"]), "cookies.only.0: ", "can be ignored"),
            (keyed(&["lang*"]), "cookies.key.0: ", "names each"),
            (found([Some(&["a"]), None, Some(&["b", "a"])], None), "cookies.key.1: ", "cookies.ignore too"),
            (found([None, Some(&["a"]), Some(&["a"])], None), "cookies.key.0: ", "cookies.only too"),
            (found([Some(&["a"]), Some(&["b"]), None], None), "cookies.only: ", "write one of them"),
            (query(&["a&b"]), "query.ignore.0: ", "'&'"),
            (query(&["a b"]), "query.ignore.0: ", "%20"),
            (query(&["utm_*", "utm_source"]), "query.ignore.1: ", "\"utm_*\" stands for"),
            (query(&["@campaigns"]), "query.ignore.0: ", "\"@analytics\""),
        ] {
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with(begins) && found[0].contains(says), "{found:?}: {begins}... {says}");
        }
    }

    #[test]
    fn what_has_an_effect_is_none() {
        for right in [
            found([Some(&["_ga*", "connect.sid", "@analytics"]), None, Some(&["lang"])], Some(&["ref", "@analytics"])),
            found([None, Some(&["sessionid", "wp_*"]), Some(&["lang"])], Some(&["*"])),
            found([None, Some(&[]), None], None),
            // A name in the key is ignored by no beginning.
            found([Some(&["s*"]), None, Some(&["shop"])], None),
        ] {
            assert_eq!(right, [""; 0]);
        }
    }

    #[test]
    fn harmless_statuses_are_refusals_of_what_would_touch_everything() {
        let found = |writes: Option<Writes>, statuses: &[u16]| {
            let rule = Rule { writes, harmless: Some(statuses.to_vec()), ..Rule::default() };
            contradictions(&[rule], LARGEST)
                .iter()
                .map(|found| format!("{}: {}", found.key, found.problem))
                .collect::<Vec<_>>()
        };
        assert_eq!(found(None, &[404, 405]), [""; 0]);
        assert_eq!(found(Some(Writes::Always), &[404]), [""; 0]);
        for (found, begins, says) in [
            (found(None, &[404, 200]), "routes.0.harmless.1: ", "200 is no refusal"),
            (found(None, &[500]), "routes.0.harmless.0: ", "500 is no refusal"),
            (found(None, &[404, 404]), "routes.0.harmless.1: ", "before it"),
            (found(None, &[]), "routes.0.harmless: ", "it is empty"),
            (found(Some(Writes::Never), &[404]), "routes.0.harmless: ", "nothing writes here"),
            (found(Some(Writes::Announced), &[404]), "routes.0.harmless: ", "says what it touches"),
            (found(Some(Writes::Database), &[404]), "routes.0.harmless: ", "the relay sees"),
        ] {
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with(begins) && found[0].contains(says), "{found:?}: {begins}... {says}");
        }
    }

    #[test]
    fn a_rule_that_changes_nothing_is_a_mistake() {
        let ignoring = CookieRule { ignore: Some(vec!["sid".into()]), ..CookieRule::default() };
        let rules = [
            Rule { cookies: ignoring, ..Rule::default() },
            Rule { prefix: "/account".into(), ..Rule::default() },
            Rule { prefix: "/open".into(), inherit: false, ..Rule::default() },
        ];
        let found = contradictions(&rules, LARGEST);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].key == "routes.1" && found[0].problem.contains("inherit = false"), "{found:?}");
        let publishes = CookieRule { publish: Some(true), ..CookieRule::default() };
        let nothing = contradictions(&[Rule { cookies: publishes, ..Rule::default() }], LARGEST);
        assert!(nothing.len() == 1 && nothing[0].key == "routes.0.cookies.publish", "{nothing:?}");
        let alone = contradictions(&[Rule { inherit: false, ..Rule::default() }], LARGEST);
        assert!(alone.len() == 1 && alone[0].key == "routes.0.inherit", "{alone:?}");
    }
}
