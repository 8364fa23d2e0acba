//! The command line: help, mistakes, exit codes, a reader that goes away.

#![allow(clippy::unwrap_used, reason = "a helper function of a test that cannot go on fails the test")]

mod common;

use clap::CommandFactory;
use common::verbena;

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
fn nothing_is_coloured_where_it_is_not_seen() {
    let help = verbena(&["--help"]).output().unwrap().stdout;
    let mistake = verbena(&["config", "show", "--config", "/nonexistent/verbena.toml"]).output().unwrap().stderr;
    assert!(!mistake.is_empty());
    assert!(!help.contains(&0x1b) && !mistake.contains(&0x1b));
}
