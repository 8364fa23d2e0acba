#!/usr/bin/env bash
# What `make test` and `make check` run; docs/internals/TESTING.md says what is in each and why.
#
#   test.sh          everything that must be green
#   test.sh check    what one runs while one thinks: format, lints, unit tests, dialogues, 20 seeds
#
# Each part says how long it took; a failing part ends the run. Skipped tests are checked against .ci/allowed-skips. Where the time went is in
# target/test-times.json at the end. VERBENA_SEEDS=A..B are the seeds of the simulations; without it they begin at a number of the commit's.
set -euo pipefail
cd "$(dirname "$0")/.."

what=${1:-test}
case "$what" in
test) seeds=60 ;;
check) seeds=20 ;;
*)
    echo "usage: $0 [check]" >&2
    exit 2
    ;;
esac

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
mkdir -p "$target"
log=$(mktemp)
parts=$(mktemp)
junit=target/nextest/$([ "$what" = test ] && echo default || echo check)/junit.xml
preparing=
trap 'rm -f "$log" "$parts"; [ -z "$preparing" ] || kill "$preparing" 2>/dev/null || true' EXIT
rm -f "$junit"

part() {
    local name=$1 started=$SECONDS
    shift
    echo "== $name"
    "$@"
    echo "== $name: $((SECONDS - started)) s"
    echo "$((SECONDS - started)) $name" >>"$parts"
}

# What is compiled is linted by the same run of the compiler (clippy is one), with the features of all that is in the workspace, so that nothing is
# compiled twice: neither dependencies nor ours. CLIPPY_ARGS is how cargo-clippy tells the driver what is forbidden.
export RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__
everything=(--workspace --features verbena-fuzz/verbs --locked)

# The same commit always has the same seeds, and the next one has others.
if [ -z "${VERBENA_SEEDS:-}${VERBENA_SEED:-}" ]; then
    commit=$(git rev-parse --verify --quiet HEAD || echo 0)
    first=$((16#${commit:0:7}))
    export VERBENA_SEEDS=$first..$((first + seeds))
fi

compile() { cargo nextest run "${everything[@]}" --cargo-quiet --no-run; }

# Passing tests say nothing but what they skipped and what they counted; failing ones are shown as they fail and once more at the end.
run_tests() {
    local code=0
    echo "VERBENA_SEEDS=${VERBENA_SEEDS:-} VERBENA_SEED=${VERBENA_SEED:-}"
    cargo nextest run "${everything[@]}" --cargo-quiet --no-fail-fast --show-progress none "$@" >"$log" 2>&1 || code=$?
    # What tests print stands indented.
    sed -i 's/^ *skipped: /skipped: /; s/^ *counted: /counted: /' "$log"
    if [ "$code" != 0 ]; then
        grep -vE '^(counted|skipped): ' "$log" | tail -n 500
        return 1
    fi
    { grep -E '^(skipped|counted): ' "$log" || true; } | sort -u | sed 121,\$d
    grep -E '^ +Summary' "$log"
}

# The examples in doc comments, compiled and run.
examples() {
    local doctests
    doctests=$(mktemp)
    if ! cargo test --doc "${everything[@]}" --quiet >"$doctests" 2>&1; then
        cat "$doctests"
        rm -f "$doctests"
        return 1
    fi
    cat "$doctests" >>"$log"
    rm -f "$doctests"
}

# The tools of the packages come over the network, while the processors compile. What fails here is done again, and seen, by the part itself.
prepare_packages() {
    scripts/test-python.sh prepare
    scripts/test-node.sh prepare
} >/dev/null 2>&1

# Its skips are checked with the others, and what it counts is counted.
python_package() {
    wait "$preparing" || true
    scripts/test-python.sh 2>&1 | tee -a "$log"
}

node_package() {
    scripts/test-node.sh 2>&1 | tee -a "$log"
}

part "format" cargo fmt --all --check
if [ "$what" = check ]; then
    part "compile and lint" compile
    part "tests" run_tests --profile check
    scripts/test-times.py "$parts" "$junit" "$target/test-times.json"
    exit
fi
part "licences and sources" cargo deny --locked --log-level error check bans licenses sources
prepare_packages &
preparing=$!
part "compile and lint" compile
part "tests" run_tests
part "examples in documentation" examples
part "package for Python" python_package
part "package for Node" node_package
part "skips are known" scripts/check-skips.sh "$log"
scripts/test-times.py "$parts" "$junit" "$target/test-times.json"
awk '/^ +Summary /{for (i = 1; i < NF; i++) {if ($(i+1) ~ /^passed/) passed += $i; if ($(i+1) ~ /^failed/) failed += $i}}
    /^test result: /{passed += $4; failed += $6; ignored += $8} /^[0-9]+ passed in /{passed += $1}
    /^# pass /{passed += $3} /^# fail /{failed += $3}
    END {printf "%d passed, %d failed, %d skipped\n", passed, failed, ignored}' "$log"
