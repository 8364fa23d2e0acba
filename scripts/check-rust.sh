#!/usr/bin/env bash
# Is there a Rust that can build this? Says what is missing otherwise.
set -euo pipefail
cd "$(dirname "$0")/.."

need=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
if ! command -v cargo >/dev/null || ! command -v rustc >/dev/null; then
    echo "verbena: Rust $need or newer is needed and cargo is not on the PATH: see https://rustup.rs" >&2
    exit 1
fi
have=$(rustc --version | awk '{print $2}')
oldest=$(printf '%s\n%s\n' "$need" "${have%%-*}" | sort -V | head -n 1)
if [ "$oldest" != "$need" ]; then
    echo "verbena: Rust $need or newer is needed, this is $have: try 'rustup update stable'" >&2
    exit 1
fi
