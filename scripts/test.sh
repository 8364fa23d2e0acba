#!/usr/bin/env bash
# What `make test` runs. Each part says how long it took; a failing part ends the run. Skipped tests are listed at the end, and checked
# against .ci/allowed-skips.
set -euo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT

part() {
    local name=$1 started=$SECONDS
    shift
    echo "== $name"
    "$@"
    echo "== $name: $((SECONDS - started)) s"
}

# Passing tests say nothing but what they skipped and what they counted; a failing run is shown whole.
tests() {
    if ! cargo test --workspace --locked --no-fail-fast --features "$(cat scripts/test-features)" -- --show-output >"$log" 2>&1; then
        cat "$log"
        return 1
    fi
    grep -E '^(test result|skipped:|counted:)' "$log"
}

part "format" cargo fmt --all --check
part "lints" cargo clippy --workspace --all-targets --locked --quiet --features "$(cat scripts/test-features)" -- -D warnings
part "licences and sources" cargo deny --locked --log-level error check bans licenses sources
part "fuzz targets compile" cargo check --quiet --locked --manifest-path fuzz/Cargo.toml
part "tests" tests
part "skips are known" scripts/check-skips.sh "$log"
awk '/^test result: /{passed += $4; failed += $6; ignored += $8} END {printf "%d passed, %d failed, %d skipped\n", passed, failed, ignored}' "$log"
