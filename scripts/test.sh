#!/usr/bin/env bash
# What `make test` runs. Each part says how long it took; a failing part ends the run. Skipped tests are checked against
# .ci/allowed-skips.
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

# Passing tests say nothing but what they skipped and what they counted; of a failing run the failures are shown.
tests() {
    local failed=0
    cargo test --workspace --locked --no-fail-fast -- --show-output >"$log" 2>&1 || failed=1
    if [ "$failed" = 1 ]; then
        grep -E '^test .*FAILED|^error' "$log" || true
        awk '/^failures:$/{show=1} /^test result:/{show=0} show' "$log" | tail -n 400
        # Test programs that have a main of their own list no failures. Other threads panic where tests want them to.
        grep -A 4 "thread 'main' .*panicked at" "$log" | tail -n 60 || true
        return 1
    fi
    grep -E '^test result|^     Running|skipped: |^counted: ' "$log" | sort -u | grep -vE ' 0 passed' | sed 121,\$d
}

# Its skips are checked with the others, and what it counts is counted.
python_package() {
    scripts/test-python.sh 2>&1 | tee -a "$log"
}

part "format" cargo fmt --all --check
part "lints" cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
part "licences and sources" cargo deny --locked --log-level error check bans licenses sources
part "fuzz targets compile" cargo check --quiet --locked --manifest-path fuzz/Cargo.toml --target-dir target/fuzz
part "tests" tests
part "package for Python" python_package
part "skips are known" scripts/check-skips.sh "$log"
awk '/^test result: /{passed += $4; failed += $6; ignored += $8} /^[0-9]+ passed in /{passed += $1} END {printf "%d passed, %d failed, %d skipped\n", passed, failed, ignored}' "$log"
