#!/usr/bin/env bash
# What `make package` runs: builds the Debian package into target/debian. crates/cli/Cargo.toml says what is in it.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-$PWD/target}
made=$target/dist/package
cargo build --locked --profile dist -p verbena-cli --bin verbena --features packages

rm -rf "$made"
mkdir -p "$made/man"
program=$target/dist/verbena
"$program" completions bash >"$made/verbena.bash"
"$program" completions zsh >"$made/_verbena"
"$program" completions fish >"$made/verbena.fish"
"$program" man "$made/man"
gzip -9n "$made"/man/*.1
# What is linked in, without what only builds it.
cargo tree --locked --offline -p verbena-cli --features packages -e normal --prefix none --format '{p}: {l}' |
    grep -v '^verbena-' | sed 's/ (.*): /: /; s/ (\*)$//' | sort -u >"$made/crates.txt"

# Of another version nothing stays: whoever takes what is there takes this one.
rm -f "$target"/debian/verbena_*.deb
cargo deb --locked -p verbena-cli --no-build --strip --quiet
