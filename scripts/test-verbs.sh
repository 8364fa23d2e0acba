#!/usr/bin/env bash
# What `make test-verbs` runs: the tests that need RDMA devices, on machines with soft-RoCE and with soft-iWARP (scripts/rdma-vm). None of
# them may be skipped here. The machines are emulated, and fifteen times slower where bytes are copied: leases are longer there, and updates fewer.
set -euo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT
export VERBENA_LONG=1

tests() {
    cargo test --locked "$@" -- --show-output 2>&1 | tee -a "$log"
}

started=$SECONDS
tests -p verbena-fabric --lib verbs
tests -p verbena-fabric --test it verbs
tests -p verbena-memory --test it processes::soft
tests -p verbena-cli --test it lock_crashes::locks_outlive_crashes_on_soft
tests -p verbena-cli --test it adapters

# Shops and homes at one device, proxies and shoppers at the other, and three faults. Without keys their messages go by the adapters too.
cargo build --release --locked --bin shop --bin never-stale
cargo build --release --locked -p verbena-cli --features verbs --bin verbena
never-stale() {
    VM_TIMEOUT=400 scripts/rdma-vm "$1" -- "${CARGO_TARGET_DIR:-$PWD/target}/release/never-stale" --fabric verbs --scheme dependency-lists \
        "${@:2}" --faults 3 --readers 4 --writers 2 --every-ms 300 --min-answers 4000 \
        --min-soon 50 --min-hits-percent 10 --min-updates 40 --min-by-adapters 1000
}
never-stale rxe --seconds 60 --lease-ms 3000 --longest-transaction-ms 7000
# To connect, which soft-iWARP does by calls of TCP, takes some machines so long that leases of 3 s end meanwhile.
never-stale siw --seconds 120 --lease-ms 5000 --longest-transaction-ms 11000

# What the conformance suite cannot arrange begins with the name of a check, and is asserted there.
if grep '^skipped: ' "$log" >&2; then
    echo "test-verbs: scripts/setup-debian.sh test installs what is missing" >&2
    exit 1
fi
echo "== verbs: $((SECONDS - started)) s"
