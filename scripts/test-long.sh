#!/usr/bin/env bash
# The long runs, in parts: ten thousand seeds of each simulation, the larger model. `test-long.sh PART` runs one of them; each prints how
# long it took. VERBENA_SEEDS changes how many seeds.
set -euo pipefail
cd "$(dirname "$0")/.."

seeds=${VERBENA_SEEDS:-10000}

content() { VERBENA_SEEDS=$seeds cargo test --release --locked -p verbena-content --test never_stale no_answer -- --nocapture; }
model() { VERBENA_LONG=1 cargo test --release --locked -p verbena-content --test every_order -- --nocapture; }
cluster() { VERBENA_SEEDS=$seeds cargo test --release --locked -p verbena-cluster --test sim; }
fabric() { VERBENA_SEEDS=$seeds cargo test --release --locked -p verbena-fabric --test sim; }

if [ "$#" = 0 ]; then
    set -- fabric cluster content model
fi
for part in "$@"; do
    case "$part" in
    fabric | cluster | content | model) ;;
    *)
        echo "usage: $0 [fabric|cluster|content|model]..." >&2
        exit 2
        ;;
    esac
    started=$SECONDS
    echo "== $part"
    "$part"
    echo "== $part: $((SECONDS - started)) s"
done
