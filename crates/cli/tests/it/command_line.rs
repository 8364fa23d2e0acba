//! The command line: help, mistakes, exit codes, a reader that goes away.

use clap::CommandFactory;
use verbena_testkit::programs::verbena;

/// Every subcommand, as the words that lead to it.
fn subcommands() -> Vec<Vec<String>> {
    fn walk(command: &clap::Command, path: &[String], into: &mut Vec<Vec<String>>) {
        for child in command.get_subcommands().filter(|child| child.get_name() != "help") {
            let path = [path, &[child.get_name().to_owned()]].concat();
            walk(child, &path, into);
            into.push(path);
        }
    }
    let mut all = vec![];
    walk(&verbena_cli::Command::command(), &[], &mut all);
    all
}

#[test]
fn the_definitions_fit_together() {
    verbena_cli::Command::command().debug_assert();
}

/// clap finds out only when the option is read.
#[test]
fn no_subcommand_takes_the_name_of_a_global_option() {
    fn check(command: &clap::Command, globals: &[&str]) -> usize {
        let own =
            command.get_arguments().filter(|argument| !argument.is_global_set()).map(|argument| argument.get_id());
        for id in own {
            assert!(!globals.contains(&id.as_str()), "`{}` has its own `{id}`", command.get_name());
        }
        1 + command.get_subcommands().map(|child| check(child, globals)).sum::<usize>()
    }
    let root = verbena_cli::Command::command();
    let globals: Vec<&str> = root.get_arguments().map(|argument| argument.get_id().as_str()).collect();
    assert!(globals.len() >= 2, "{globals:?}");
    let checked: usize = root.get_subcommands().map(|child| check(child, &globals)).sum();
    assert!(checked >= 15, "only {checked} commands");
}

#[test]
fn traces_are_read_beside_the_global_options() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("read.csv");
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/twitter_cluster52_200k.csv.gz");
    let arguments = ["--log", "info", "traces", "--out", out.to_str().unwrap(), "keys", trace, "--first", "2"];
    let output = verbena(&arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(std::fs::read_to_string(&out).unwrap().lines().count(), 3, "a header and two requests");
}

#[test]
fn every_subcommand_has_help_and_an_example() {
    let all = subcommands();
    assert!(all.len() >= 4, "only {all:?}");
    for path in all {
        let mut arguments: Vec<_> = path.iter().map(String::as_str).collect();
        arguments.push("--help");
        let output = verbena(&arguments).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{path:?}");
        assert!(help.contains("Usage: verbena"), "{path:?}: {help}");
        // The keys of the configuration are told once, by `verbena help config`.
        let keys = help.matches("--node-").count();
        assert!(path == ["config"] || (keys < 5 && help.lines().count() < 200), "{path:?}: {help}");
        // A trace's own page is one option after the other; the examples stand a page above.
        let is_leaf = !help.contains("\nCommands:") && path[0] != "traces";
        assert!(!is_leaf || help.contains("Example"), "{path:?} has no example");
    }
}

#[test]
fn a_wrong_command_line_is_told_and_has_its_own_exit_code() {
    for arguments in [&["frobnicate"][..], &["config", "chekc"], &["config", "show", "--node-stat", "x"], &[]] {
        let output = verbena(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{arguments:?}: {output:?}");
    }
    for arguments in [&["proxy"][..], &["proxy", "--origin", "http://a:0"], &["bench", "no.such-row"]] {
        let output = verbena(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    }
    let output = verbena(&["proxy", "--origin", "http://a:1", "--listen", "8080"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("for example 127.0.0.1:8080"), "{output:?}");
    let output = verbena(&["--log", "verbena=loud", "config", "check"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--log \"verbena=loud\""), "{output:?}");
}

#[test]
fn the_exit_codes_are_in_the_help() {
    let help = String::from_utf8(verbena(&["--help"]).output().unwrap().stdout).unwrap();
    assert!(
        help.contains("Exit codes:") && help.contains("  2  the command line or the configuration is wrong"),
        "{help}"
    );
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    for arguments in [&["completions", "zsh"][..], &["config", "show"]] {
        let output = verbena(arguments).stdout(writer.try_clone().unwrap()).output().unwrap();
        assert_eq!(
            (output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()),
            (Some(0), ""),
            "{arguments:?}"
        );
    }
}

#[test]
fn completions_name_the_subcommands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = verbena(&["completions", shell]).output().unwrap();
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && script.contains("completions") && script.contains("node-state"), "{shell}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let output = verbena(&["man", folder.path().to_str().unwrap()]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let shown: Vec<_> = subcommands().into_iter().filter(|path| path[0] != "man").collect();
    for path in &shown {
        let page = std::fs::read_to_string(folder.path().join(format!("verbena-{}.1", path.join("-")))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{path:?}: {page}");
    }
    let pages = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(pages, shown.len() + 1, "a page each, and one of `verbena` itself");
}

#[test]
fn nothing_is_coloured_where_it_is_not_seen() {
    let help = verbena(&["--help"]).output().unwrap().stdout;
    let mistake = verbena(&["config", "show", "--config", "/nonexistent/verbena.toml"]).output().unwrap().stderr;
    assert!(!mistake.is_empty());
    assert!(!help.contains(&0x1b) && !mistake.contains(&0x1b));
}
