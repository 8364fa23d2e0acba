#!/usr/bin/env bash
# fuzz.sh [TARGET [SECONDS]]: fuzzes one target, or all in turn, ten minutes each. It begins with the committed corpus and what earlier runs
# found; an input that breaks a target lands in fuzz/artifacts/TARGET and fails the run. fuzz.sh keep TARGET: adds to the committed corpus
# inputs of earlier runs that reach code which it does not, few and small. fuzz/README.md says more.
set -euo pipefail
cd "$(dirname "$0")/.."

# Longest input that is tried and kept, and most files of a committed corpus: every one is replayed by `make test`.
longest=4096
most=300

if ! cargo fuzz --version >/dev/null 2>&1; then
    echo "skipped: cargo-fuzz is not installed: cargo install cargo-fuzz --locked"
    exit 0
fi
# The sanitizers' flags are unstable; on stable this lets them through, on nightly it changes nothing.
export RUSTC_BOOTSTRAP=1
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target/fuzz}"
found="$CARGO_TARGET_DIR/corpus"
logs="$CARGO_TARGET_DIR/logs"

# What a target needs beyond the others.
features() { case "$1" in verbs_*) echo --features verbs ;; esac; }

run() {
    local target=$1 seconds=$2 log="$logs/$1.log" status=0
    mkdir -p "$found/$target" "$logs"
    # shellcheck disable=SC2046 # Several words, or none.
    cargo fuzz run $(features "$target") "$target" "$found/$target" "fuzz/corpus/$target" -- -max_total_time="$seconds" -max_len="$longest" -timeout=5 \
        -rss_limit_mb=2048 -print_final_stats=1 >"$log" 2>&1 || status=$?
    # The last line that libFuzzer wrote about its progress, and its own count at the end.
    echo "$target: $(grep -oE 'cov: .* exec/s: [0-9]+' "$log" | tail -n 1)"
    echo "$target: $(grep -E '^Done [0-9]+ runs' "$log" || true)"
    if [ "$status" != 0 ]; then
        grep -E '^error|panicked at|ERROR:|SUMMARY:|Test unit written' "$log" | head -n 10
        echo "$target: ended with status $status: all it said is in $log, its input in fuzz/artifacts/$target" >&2
    fi
    return "$status"
}

keep() {
    local target=$1
    # shellcheck disable=SC2046 # Several words, or none.
    cargo fuzz run $(features "$target") "$target" "fuzz/corpus/$target" "$found/$target" -- -set_cover_merge=1 -use_counters=0 -max_len="$longest" >"$logs/$target.keep.log" 2>&1
    # Of too many the largest of those that were found are left out; what was written by hand stays.
    local files
    files=$(find "fuzz/corpus/$target" -type f | wc -l)
    if [ "$files" -gt "$most" ]; then
        find "fuzz/corpus/$target" -type f -regextype posix-extended -regex '.*/[0-9a-f]{40}' -printf '%s %p\n' | sort -rn |
            head -n $((files - most)) | cut -d ' ' -f 2- | xargs -r rm --
    fi
    echo "$target: $(find "fuzz/corpus/$target" -type f | wc -l) files, $(cat "fuzz/corpus/$target"/* | wc -c) bytes"
}

if [ "${1:-}" = keep ]; then
    keep "${2:?fuzz.sh keep TARGET}"
    exit
fi
failed=0
for target in ${1:-$(cargo fuzz list)}; do
    run "$target" "${2:-600}" || failed=1
done
exit "$failed"
