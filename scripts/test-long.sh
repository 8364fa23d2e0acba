#!/usr/bin/env bash
# The long runs, in parts of less than an hour each: ten thousand seeds of each simulation, the larger models, an older kernel, emulated machines,
# rows of `verbena bench`, and real processes that are killed, paused, restarted and cut off from each other. docs/internals/TESTING.md says what each part took.
#
#   test-long.sh            all parts, one after the other
#   test-long.sh PART...    these
#
# VERBENA_SEEDS changes which seeds, VERBENA_SEED the first seed of the faults, VERBENA_PROFILE=debug which binaries are killed.
set -euo pipefail
cd "$(dirname "$0")/.."

seeds=${VERBENA_SEEDS:-10000}
target=${CARGO_TARGET_DIR:-target}

# Tests whose names fit the filter of cargo-nextest, built with optimisation; each says what it counted. At least one must fit.
run_tests() {
    VERBENA_LONG=1 cargo nextest run --release --locked --cargo-quiet --show-progress none --profile long "$@"
}
# The same, one at a time: each uses both cores, or memory by the gigabyte.
run_alone() { run_tests --test-threads 1 "$@"; }
with_seeds() { VERBENA_SEEDS=$1 run_tests "${@:2}"; }

fabric() { with_seeds "$seeds" -p verbena-fabric -E 'test(/^sim::/)'; }
cluster() { with_seeds "$seeds" -p verbena-cluster -E 'test(/^sim::/)'; }
content() { with_seeds "$seeds" -p verbena-content -E 'test(/^never_stale::.*no_answer/)'; }
# Tens of millions of states are remembered.
model() { run_alone -p verbena-content -E 'test(/^every_order::/)'; }
lock-models() { run_alone -p verbena-lock -E 'test(/^every_order::/)'; }
locks() {
    run_alone -p verbena-lock -E 'test(/^million::/)'
    run_alone -p verbena-cli -E 'test(/^lock::memory/)'
    with_seeds $((2 * seeds)) -p verbena-lock -E 'test(/^storm::.*locks_hold/)'
}
# What needs devices is the part `rdma`'s.
lock-crashes() { run_alone -p verbena-cli -E 'test(/^lock_crashes::/) and not test(/soft/)'; }
memory() {
    run_tests -p verbena-memory -E 'kind(lib) and test(/chain/)'
    with_seeds "$seeds" -p verbena-memory -E 'test(/^storm::.*segments_hold/)'
}
# A million statements on SQLite; a hundred thousand random conversations through the relay, and streams of commands beside memcached.
statements() { run_alone -p verbena-statements -p verbena-relay -p verbena-memcache; }
# Fifty thousand pairs each on a MariaDB and a PostgreSQL.
database() { run_alone -p verbena-database; }
# Ten thousand seeds of the cooperative cache and of transfers, pools under every scheme and with clients of others, its longest traces, a million operations on a
# mount, and a thousand transfers by every way that are killed, stopped, and met by others.
systems() {
    run_tests -p verbena-coop -p verbena-pool -p verbena-transfer -p verbena-ftp -p verbena-bank -p verbena-mount -p verbena-gluster
    run_tests -p verbena-cli -E 'test(/^transfers::/)'
}
# Clients of memcached in Node and Go, with their own tests and examples, at three pools.
pool-clients() {
    local profile=${VERBENA_PROFILE:-release} flag=()
    scripts/setup-debian.sh clients
    [ "$profile" = debug ] || flag=(--release)
    cargo build "${flag[@]}" --locked -p verbena-cli --bin verbena
    PROGRAMS="$target/$profile" scripts/test-pool-clients.sh
}
# A bank in volumes of a real glusterd, enabled, killed and disabled.
mounts() { run_tests -p verbena-cli -E 'test(/^gluster::/)'; }
# MediaWiki and WordPress, as Debian packages them, behind three Apaches, two application servers and the relay, two minutes each.
sites() {
    local profile=${VERBENA_PROFILE:-release} site flag=()
    scripts/setup-debian.sh site
    [ "$profile" = debug ] || flag=(--release)
    cargo build "${flag[@]}" --locked -p verbena-cli --bin verbena
    cargo build "${flag[@]}" --locked -p verbena-capi
    for site in mediawiki wordpress; do
        PROGRAMS="$target/$profile" scripts/demo-site.sh "$site" 120
    done
    FAULTS=4 PROGRAMS="$target/$profile" scripts/demo-site.sh mediawiki 600
}
# FTP clients and servers that are not ours; the servers' packages exclude each other, so they are unpacked beside the build.
ftp-peers() {
    local servers
    servers=$(scripts/ftp-servers.sh "$target/ftp-servers")
    VERBENA_FTP_SERVERS=$servers run_tests -p verbena-ftp -p verbena-cli -E 'test(/^(clients|ftp_servers)::/)'
}
# Members of etcd that are paused, killed and held back.
etcd() { run_alone -p verbena-etcd -p verbena-cli -E 'test(/^(faults|etcd)::/)'; }
# Every row of `verbena bench`, with the one that keeps a core busy.
rows() { run_alone -p verbena-bench -p verbena-cli -E '(package(verbena-bench) and kind(test)) or test(/^bench_rows::/)'; }

# On the kernel of Debian 12, Linux 6.1, under emulation: the provider xdp, for its verifier is another one, and so is what it leaves of the program;
# and netem, which this kernel has.
debian() {
    scripts/setup-debian.sh vm
    local runner=CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER
    env "$runner=$PWD/scripts/vm" cargo test --locked -p verbena-fabric --lib xdp
    env "$runner=$PWD/scripts/vm" cargo test --locked -p verbena-fabric --test it -- --test-threads=1 xdp_sharing:: conformance_xdp::
    # There nothing of it may be skipped.
    local netem=(VERBENA_NETEM=1 VM_ENV=VERBENA_NETEM "$runner=$PWD/scripts/vm")
    env "${netem[@]}" cargo test --locked -p verbena-wan --test it -- --test-threads=1 kernel::
    env "${netem[@]}" cargo test --locked -p verbena-cli --test it -- --test-threads=1 wan::kernel::
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

# A hundred thousand answers of each guest book behind its recipe.
guestbooks() { VERBENA_LONG=1 scripts/test-python.sh && VERBENA_LONG=1 scripts/test-node.sh; }

# The package for Debian, installed into a fresh one: a quarter of an hour where nothing of it is built, a minute otherwise.
package() { scripts/test-package.sh; }

# All fabrics and both schemes, twenty minutes in all: at least a million answers, 10,000 of them within 50 ms after an update, and 96
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
            "$target/$profile/never-stale" --fabric "$fabric" --scheme "$scheme" --seconds "$seconds" --faults "$faults" \
                --seed $((first + number)) --min-answers 170000 --min-soon 1700 --min-hits-percent "$hits" --min-updates 1900 || failed=1
            number=$((number + 1))
        done
    done
    # Standard pages, slices, TLS, HTTP/2 and parts among them.
    for fabric in shm tcp; do
        "$target/$profile/never-stale" --fabric "$fabric" --scheme dependency-lists --mixed --seconds 110 --faults 21 --every-ms 20 \
            --seed $((first + number)) --min-answers 170000 --min-soon 1700 --min-hits-percent 30 --min-updates 1900 || failed=1
        number=$((number + 1))
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
            "$target/$profile/never-stale" --fabric tcp --network --cluster "$cluster" --scheme "$scheme" \
                --every-ms "$every" --seconds "$seconds" --seed $((first + number)) --min-faults "$faults" --max-back-leases 3 \
                --min-answers $((seconds * 1000)) --min-soon $((seconds * 10)) --min-hits-percent "$hits" --min-updates $((seconds * 5)) || failed=1
            number=$((number + 1))
        done
    done
    return "$failed"
}

parts=(fabric cluster content model lock-models locks lock-crashes memory statements database systems pool-clients mounts ftp-peers sites guestbooks etcd rows debian package rdma never-stale cluster-faults)
if [ "$#" = 0 ]; then
    set -- "${parts[@]}"
fi
for part in "$@"; do
    if [[ " ${parts[*]} " != *" $part "* ]]; then
        echo "usage: $0 [${parts[*]}]..." >&2
        exit 2
    fi
    started=$SECONDS
    echo "== $part"
    "$part"
    echo "== $part: $((SECONDS - started)) s"
done
