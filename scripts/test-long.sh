#!/usr/bin/env bash
# The long runs, in parts: ten thousand seeds of each simulation, the larger models, an older kernel, and real processes that are killed, paused,
# restarted and cut off from each other.
# `test-long.sh PART` runs one of them; each prints how long it took. VERBENA_SEEDS changes how many seeds, VERBENA_SEED the first seed of the
# faults, VERBENA_PROFILE=debug which binaries are killed.
set -euo pipefail
cd "$(dirname "$0")/.."

seeds=${VERBENA_SEEDS:-10000}

content() { VERBENA_SEEDS=$seeds cargo test --release --locked -p verbena-content --test never_stale no_answer -- --nocapture; }
# One after the other: each uses both cores, and remembers tens of millions of states.
model() { VERBENA_LONG=1 cargo test --release --locked -p verbena-content --test every_order -- --nocapture --test-threads=1; }
locks() {
    VERBENA_LONG=1 cargo test --release --locked -p verbena-lock --test every_order -- --nocapture --test-threads=1
    VERBENA_LONG=1 cargo test --release --locked -p verbena-lock --test million -- --nocapture
    VERBENA_LONG=1 cargo test --release --locked -p verbena-cli --test lock memory -- --nocapture
    VERBENA_SEEDS=$((2 * seeds)) cargo test --release --locked -p verbena-lock --test storm locks_hold -- --nocapture
    # What needs devices is the part `rdma`'s.
    VERBENA_LONG=1 cargo test --release --locked -p verbena-cli --test lock_crashes -- --nocapture --skip soft
}
memory() {
    VERBENA_LONG=1 cargo test --release --locked -p verbena-memory --lib chain -- --nocapture
    VERBENA_SEEDS=$seeds cargo test --release --locked -p verbena-memory --test storm segments_hold -- --nocapture
}
cluster() { VERBENA_SEEDS=$seeds cargo test --release --locked -p verbena-cluster --test sim; }
fabric() { VERBENA_SEEDS=$seeds cargo test --release --locked -p verbena-fabric --test sim; }

# On the kernel of Debian 12, Linux 6.1, under emulation: the provider xdp, for its verifier is another one, and so is what it leaves of the program;
# and netem, which this kernel has.
debian() {
    scripts/setup-debian.sh vm
    local runner=CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER
    env "$runner=$PWD/scripts/vm" cargo test --locked -p verbena-fabric --lib xdp
    env "$runner=$PWD/scripts/vm" cargo test --locked -p verbena-fabric --test xdp_sharing --test conformance_xdp -- --test-threads=1
    # There nothing of it may be skipped.
    local netem=(VERBENA_NETEM=1 VM_ENV=VERBENA_NETEM "$runner=$PWD/scripts/vm")
    env "${netem[@]}" cargo test --locked -p verbena-wan --test kernel -- --test-threads=1
    env "${netem[@]}" cargo test --locked -p verbena-cli --test wan kernel -- --test-threads=1
}

# The machines with RDMA devices: exit codes come out, what is lost on the link is sent again, iWARP is there, two machines reach each other; and what
# is tested on them.
rdma() {
    local code=0 cable call='for try in {1..60}; do ibv_rc_pingpong -d $0 -g 1 -n 200 "$1" && exit; sleep 0.5; done; exit 1'
    scripts/setup-debian.sh vm
    scripts/rdma-vm none -- bash -c 'exit 7' || code=$?
    [ "$code" = 7 ] || { echo "rdma: the command ended with 7, the machine with $code" >&2; return 1; }
    scripts/rdma-vm rxe -- bash -ec 'tc qdisc add dev v0 root netem loss 2%; timeout 100 ibv_rc_pingpong -d rxe0 -g 1 -n 200 &
        bash -c "$1" rxe1 127.0.0.1; wait $!; tc -s qdisc show dev v0 | grep "dropped [1-9]"' bash "$call"
    scripts/rdma-vm siw -- bash -ec 'for device in siw0 siw1; do ibv_devinfo -d "$device" | grep iWARP; done'
    cable=$(mktemp -d)
    VM_LINK=$cable VM_NODE=1 scripts/rdma-vm rxe -- timeout 100 ibv_rc_pingpong -d rxe9 -g 1 -n 200 &
    VM_LINK=$cable VM_NODE=2 scripts/rdma-vm rxe -- bash -c "$call" rxe9 10.78.0.1
    wait $!
    rm -rf "$cable"
    scripts/test-verbs.sh
}

# The package for Debian, installed into a fresh one: a quarter of an hour where nothing of it is built, a minute otherwise.
package() { scripts/test-package.sh; }

# The rows of `verbena bench` that start nodes and proxies, with the one that keeps a core busy.
rows() { VERBENA_LONG=1 cargo test --release --locked -p verbena-cli --test bench_rows; }

# All fabrics and both schemes, a quarter of an hour in all: at least a million answers, 10,000 of them within 50 ms after an update, and 96
# faults. An unchanged shop has fewer of them in a longer time, for a dead proxy keeps everything out of the cache until it is settled (P6).
# With lists everybody meets everything: seven processes, three kinds of faults.
never-stale() {
    local profile=${VERBENA_PROFILE:-release} first=${VERBENA_SEED:-1} number=0 fabric scheme seconds faults hits failed=0 flag=()
    [ "$profile" = debug ] || flag=(--release)
    cargo build "${flag[@]}" --locked --bin verbena --bin shop --bin never-stale
    for fabric in shm tcp xdp; do
        if [ "$fabric" = xdp ] && [ "$(id -u)" != 0 ]; then
            echo "skipped: only root can make network namespaces"
            continue
        fi
        for scheme in dependency-lists invalidate-all; do
            case "$scheme" in
            dependency-lists) seconds=110 faults=21 hits=30 ;;
            invalidate-all) seconds=200 faults=11 hits=10 ;;
            esac
            "${CARGO_TARGET_DIR:-target}/$profile/never-stale" --fabric "$fabric" --scheme "$scheme" --seconds "$seconds" --faults "$faults" \
                --seed $((first + number)) --min-answers 170000 --min-soon 1700 --min-hits-percent "$hits" --min-updates 1900 || failed=1
            number=$((number + 1))
        done
    done
    return "$failed"
}

# A network that fails: at least 300 faults, a million answers and 10,000 of them within 50 ms after an update, where the first home keeps and where
# etcd does, on three members; everything happens to every process and member, rolling restarts among it, and service is back within three
# leases after each.
cluster-faults() {
    local profile=${VERBENA_PROFILE:-release} first=${VERBENA_SEED:-1} number=0 cluster scheme every seconds faults hits failed=0 flag=()
    if [ "$(id -u)" != 0 ]; then
        echo "skipped: only root can make network namespaces"
        return
    fi
    [ "$profile" = debug ] || flag=(--release)
    cargo build "${flag[@]}" --locked --bin verbena --bin shop --bin never-stale
    for cluster in static etcd; do
        for scheme in dependency-lists invalidate-all; do
            case "$cluster-$scheme" in
            static-dependency-lists) every=10 hits=10 seconds=45 faults=8 ;;
            static-invalidate-all) every=40 hits=1 seconds=45 faults=6 ;;
            etcd-dependency-lists) every=10 hits=10 seconds=510 faults=165 ;;
            etcd-invalidate-all) every=40 hits=1 seconds=430 faults=135 ;;
            esac
            "${CARGO_TARGET_DIR:-target}/$profile/never-stale" --fabric tcp --network --cluster "$cluster" --scheme "$scheme" \
                --every-ms "$every" --seconds "$seconds" --seed $((first + number)) --min-faults "$faults" --max-back-leases 3 \
                --min-answers $((seconds * 1000)) --min-soon $((seconds * 10)) --min-hits-percent "$hits" --min-updates $((seconds * 5)) || failed=1
            number=$((number + 1))
        done
    done
    return "$failed"
}

if [ "$#" = 0 ]; then
    set -- fabric cluster content model locks memory rows debian package rdma never-stale cluster-faults
fi
for part in "$@"; do
    case "$part" in
    fabric | cluster | content | model | locks | memory | rows | debian | package | rdma | never-stale | cluster-faults) ;;
    *)
        echo "usage: $0 [fabric|cluster|content|model|locks|memory|rows|debian|package|rdma|never-stale|cluster-faults]..." >&2
        exit 2
        ;;
    esac
    started=$SECONDS
    echo "== $part"
    "$part"
    echo "== $part: $((SECONDS - started)) s"
done
