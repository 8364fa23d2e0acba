#!/usr/bin/env bash
# What `make test-verbs` runs: the tests that need RDMA devices, on machines with soft-RoCE and with soft-iWARP (scripts/rdma-vm). None of
# them may be skipped here.
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
tests -p verbena-fabric --test verbs_devices
tests -p verbena-cli --test doctor adapters
if grep '^skipped: ' "$log" >&2; then
    echo "test-verbs: scripts/setup-debian.sh test installs what is missing" >&2
    exit 1
fi
echo "== verbs: $((SECONDS - started)) s"
