#!/usr/bin/env bash
# What `make demo` runs: two application nodes on one database, three proxies before them that meet in shared memory, a stream of updates,
# and shoppers who check every answer. `scripts/demo.sh 20` ends after 20 seconds, `scripts/demo.sh` or 0 at Ctrl-C. The exit code is 0 when
# no answer was stale, everything stayed up, and enough happened. Nothing is left behind: no process, no file.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)

seconds=${1:-0}
case "$seconds" in
'' | *[!0-9]*)
    echo "usage: $0 [SECONDS]" >&2
    exit 2
    ;;
esac

programs=${PROGRAMS:-${CARGO_TARGET_DIR:-$here/target}/release}
for program in verbena shop shoppers; do
    if [ ! -x "$programs/$program" ]; then
        echo "demo: $programs/$program is not there: 'make demo' builds it" >&2
        exit 2
    fi
done

directory=$(mktemp -d "${TMPDIR:-/tmp}/verbena-demo.XXXXXX")
stopping=0
. "$here/scripts/children.sh"
# Those who ask others end first.
trap 'clean_up shoppers proxy-1 proxy-2 proxy-3 shop-1 shop-2' EXIT
trap 'exit 130' INT TERM

# Waits until a child has said something.
await() {
    local name=$1 words=$2 patience=300
    until grep -qs "$words" "$directory/$name.out"; do
        ended "$name" && fail "$name ended" "$name"
        [ "$patience" -gt 0 ] || fail "$name does not begin" "$name"
        patience=$((patience - 1))
        sleep 0.1
    done
}

# Two demonstrations that start together choose one after the other. The lock is on this file: nothing is left of it.
exec 9<"$0"
flock 9

choose_port 8000 && shop_1=$port
choose_port 8000 && shop_2=$port
choose_port 8080 && proxy_1=$port
choose_port 8080 && proxy_2=$port
choose_port 8080 && proxy_3=$port
choose_port 9090 && helper_1=$port
choose_port 9090 && helper_2=$port

cat >"$directory/verbena.toml" <<TOML
[cluster]
members = [
    { name = "proxy-1", address = "shm://proxy-1" },
    { name = "proxy-2", address = "shm://proxy-2" },
    { name = "proxy-3", address = "shm://proxy-3" },
]

[fabric]
provider = "shm"

[node]
runtime = "$directory/run"

[proxy]
origin = ["http://127.0.0.1:$shop_1", "http://127.0.0.1:$shop_2"]
# The shops say what their writes touch.
routes = [{ prefix = "/", writes = "announced" }]
TOML

proxy() {
    local name=$1 port=$2
    shift 2
    start "$name" "$programs/verbena" proxy --config "$directory/verbena.toml" --cluster-name "$name" \
        --node-state "$directory/state-$name" --listen "127.0.0.1:$port" --json "$@"
}

echo "starting two shops on one database and three proxies ..."
proxy proxy-1 "$proxy_1" --node-api "127.0.0.1:$helper_1"
proxy proxy-2 "$proxy_2" --node-api "127.0.0.1:$helper_2"
proxy proxy-3 "$proxy_3"
for name in proxy-1 proxy-2 proxy-3; do
    await "$name" '"event":"serving"'
done
start shop-1 "$programs/shop" --database "$directory/shop.db" --listen "127.0.0.1:$shop_1" --helper "http://127.0.0.1:$helper_1"
start shop-2 "$programs/shop" --database "$directory/shop.db" --listen "127.0.0.1:$shop_2" --helper "http://127.0.0.1:$helper_2"
for name in shop-1 shop-2; do
    await "$name" '^shop: '
done
flock -u 9

cat <<TEXT

  open  http://127.0.0.1:$proxy_1   or  http://127.0.0.1:$proxy_2   or  http://127.0.0.1:$proxy_3
  watch http://127.0.0.1:$helper_1   or  http://127.0.0.1:$helper_2   (the dashboard)

The same shop through three proxies; the shops themselves are on ports $shop_1 and $shop_2. Every 20 ms something changes: a price, the stock, a cart.
Twelve shoppers read pages as fast as they come, and check each of them against the database's own order of commits.
$([ "$seconds" -gt 0 ] && echo "This ends after $seconds seconds." || echo "Ctrl-C ends it.")

TEXT

# On a slow machine that does other things too, a second still holds so much.
least=$((seconds > 0 ? seconds : 1))
setsid "$programs/shoppers" --seconds "$seconds" --every-ms 20 \
    --min-answers $((least * 50)) --min-hits $((least * 10)) --min-updates $((least * 2)) \
    "http://127.0.0.1:$proxy_1" "http://127.0.0.1:$proxy_2" "http://127.0.0.1:$proxy_3" 9>&- &
children[shoppers]=$!
trap 'stopping=1; kill -TERM "${children[shoppers]}" 2>/dev/null || true' INT TERM

code=0
wait "${children[shoppers]}" || code=$?
if [ "$stopping" = 1 ]; then
    # The signal ended the waiting, not the shoppers.
    code=0
    wait "${children[shoppers]}" || code=$?
fi
unset 'children[shoppers]'

for name in "${!children[@]}"; do
    ended "$name" && fail "$name ended before the end" "$name"
done
if [ "$code" -ne 0 ]; then
    echo "demo: failed (see above)" >&2
fi
exit "$code"
