#!/usr/bin/env bash
# Coherent hits beside those of caches that check nothing: Verbena (every hit validated at its home, which is another process), nginx's
# proxy_cache, Varnish, and a bare hyper loop that returns the same bytes. Variants take turns for at least nine rounds on the same cores;
# what is printed are ratios of medians, with the least and the most of any round. The application is stopped (SIGSTOP) while hits are measured,
# so what is no hit is no answer; any answer that is not 200, and any that does not come, ends the comparison.
#
#   bench/compare.sh                     everything, a quarter of an hour and the build
#   bench/compare.sh --cases 8k          one case: 1k 8k 100k zipf tcp tail miss
#   bench/compare.sh --rounds 9 --seconds 3 --out bench-out/compare
#
# It installs nginx, Varnish and wrk from Debian (as root; else they must be there), and builds the profile `dist`.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
export PATH=$PATH:/usr/sbin

rounds=9 seconds=3 out=$here/bench-out/compare cases="8k 1k 100k zipf tcp tail miss"
usage() {
    sed -n '2,11s/^# \{0,1\}//p' "$0"
    exit "$1"
}
while [ "$#" -gt 0 ]; do
    case "$1" in
    --rounds | --seconds | --out | --cases)
        [ "$#" -gt 1 ] || { echo "compare: $1 wants a value" >&2 && exit 2; }
        declare "${1#--}=$2"
        shift 2
        ;;
    -h | --help) usage 0 ;;
    *) usage 2 >&2 ;;
    esac
done
[[ $rounds =~ ^[0-9]+$ && $rounds -ge 9 ]] || { echo "compare: --rounds is a number from 9 on: fewer say nothing" >&2 && exit 2; }
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { echo "compare: --seconds is a whole number" >&2 && exit 2; }
for case in $cases; do
    [[ " 1k 8k 100k zipf tcp tail miss " == *" $case "* ]] || { echo "compare: there is no case '$case'" >&2 && exit 2; }
done

"$here/scripts/setup-debian.sh" compare
if [ -z "${VERBENA:-}" ]; then
    (cd "$here" && cargo build --profile dist --locked --bin verbena)
    VERBENA=${CARGO_TARGET_DIR:-$here/target}/dist/verbena
fi

mkdir -p "$out"
before=$(cut -d' ' -f1-3 /proc/loadavg)
memory=/dev/shm
[ -w "$memory" ] || memory=${TMPDIR:-/tmp}
directory=$(mktemp -d "$memory/verbena-compare.XXXXXX")
chmod 755 "$directory"
. "$here/scripts/children.sh"
trap 'clean_up "${!children[@]}"' EXIT
trap 'exit 130' INT TERM

listening() {
    for _ in $(seq 200); do
        (exec 3<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null && return
        ! ended "$1" || break
        sleep 0.05
    done
    fail "$1 does not listen" "$1"
}

# ---- everybody, in front of one application
declare -A ports=()
for name in pages shm tcp nginx varnish bare home-tcp proxy-tcp; do
    choose_port 18100
    ports[$name]=$port
done
start pages "$VERBENA" __bench-target pages --listen "127.0.0.1:${ports[pages]}"
listening pages "${ports[pages]}"

cluster() { # fabric, addresses of home and proxy
    local fabric=$1
    cat >"$directory/$fabric.toml" <<TOML
[cluster]
members = [
    { name = "home", address = "$2", roles = ["home", "updater"] },
    { name = "proxy", address = "$3", roles = ["reader", "updater"] },
]
[fabric]
provider = "$fabric"
[node]
runtime = "$directory/run-$fabric"
[proxy]
origin = ["http://127.0.0.1:${ports[pages]}"]
threads = 2
TOML
    start "home-$fabric" "$VERBENA" node --config "$directory/$fabric.toml" --cluster-name home --node-state "$directory/home-$fabric"
    start "$fabric" "$VERBENA" proxy --config "$directory/$fabric.toml" --cluster-name proxy --node-state "$directory/proxy-$fabric" \
        --listen "127.0.0.1:${ports[$fabric]}"
    listening "$fabric" "${ports[$fabric]}"
}
cluster shm shm://home shm://proxy
cluster tcp "tcp://127.0.0.1:${ports[home-tcp]}" "tcp://127.0.0.1:${ports[proxy-tcp]}"

mkdir "$directory/nginx"
sed -e "s|@DIRECTORY@|$directory/nginx|g" -e "s|@LISTEN@|127.0.0.1:${ports[nginx]}|g" -e "s|@ORIGIN@|127.0.0.1:${ports[pages]}|g" \
    "$here/bench/nginx.conf" >"$directory/nginx.conf"
start nginx nginx -p "$directory/nginx" -c "$directory/nginx.conf" -e "$directory/nginx/error.log"
listening nginx "${ports[nginx]}"

sed -e "s|@PORT@|${ports[pages]}|g" "$here/bench/varnish.vcl" >"$directory/varnish.vcl"
start varnish varnishd -F -n "$directory/varnish" -j none -a "127.0.0.1:${ports[varnish]}" -f "$directory/varnish.vcl" -s malloc,512m \
    -p thread_pools=2
listening varnish "${ports[varnish]}"

status_of() { curl -s -o /dev/null -D - "http://127.0.0.1:$1$2" | tr -d '\r'; }
is_hit() { # variant, path
    local head
    head=$(status_of "${ports[$1]}" "$2")
    case "$1" in
    shm | tcp) grep -q '^cache-status: .*; hit' <<<"$head" ;;
    nginx) grep -q '^X-Cache: HIT' <<<"$head" ;;
    varnish) grep -q '^X-Varnish: [0-9]* [0-9]' <<<"$head" ;;
    bare) grep -q '^HTTP/1.1 200' <<<"$head" ;;
    esac
}
warm() { # variant, path
    for _ in $(seq 100); do
        is_hit "$1" "$2" && return
        sleep 0.05
    done
    fail "$1 does not keep http://127.0.0.1:${ports[$1]}$2" "$1"
}
# The loop repeats what this proxy answers, byte for byte but for the date.
repeat_in_bare() {
    if [ -n "${children[bare]:-}" ]; then
        kill "${children[bare]}" && wait "${children[bare]}" 2>/dev/null || true
    fi
    start bare "$VERBENA" __bench-target bare --listen "127.0.0.1:${ports[bare]}" --like "127.0.0.1:${ports[shm]}" --path "$1"
    listening bare "${ports[bare]}"
}
stop_pages() { kill -STOP "${children[pages]}"; }
wake_pages() { kill -CONT "${children[pages]}"; }

echo "case,round,variant,requests_per_second,p50_us,p99_us" >"$out/rounds.csv"
# One stretch of wrk, whatever is asked; prints requests a second and latencies.
wrk_once() { # variant, path or script, options
    local variant=$1 what=$2 said
    shift 2
    if [[ $what == *.lua ]]; then
        said=$(wrk "$@" --latency --timeout 2s -s "$what" "http://127.0.0.1:${ports[$variant]}/")
    else
        said=$(wrk "$@" --latency --timeout 2s "http://127.0.0.1:${ports[$variant]}$what")
    fi
    if grep -Eq 'Non-2xx|Socket errors' <<<"$said"; then
        fail "$variant failed requests: $(grep -E 'Non-2xx|Socket errors' <<<"$said")" "$variant"
    fi
    awk '
        function us(t) { return t ~ /us$/ ? t + 0 : t ~ /ms$/ ? t * 1e3 : t * 1e6 }
        /50%/ { p50 = us($2) } /99%/ { p99 = us($2) } /Requests\/sec/ { rate = $2 }
        END { if (!rate) exit 1; printf "%s,%s,%s\n", rate, p50, p99 }' <<<"$said" || fail "$variant: wrk counted nothing"
}
turns() { # case, command, variants
    local name=$1 command=$2 round variant found
    shift 2
    for round in $(seq 0 "$rounds"); do
        for variant in "$@"; do
            found=$($command "$variant")
            # The first is not counted: it warms.
            [ "$round" = 0 ] || echo "$name,$round,$variant,$found" >>"$out/rounds.csv"
        done
        echo "compare: $name, round $round of $rounds" >&2
    done
}
hits() { # case, bytes, variants
    local name=$1 path=/$2/page
    shift 2
    for variant in "$@"; do [ "$variant" = bare ] || warm "$variant" "$path"; done
    repeat_in_bare "$path"
    stop_pages
    one() { wrk_once "$1" "$path" -t2 -c64 -d"$seconds"; }
    turns "$name" one "$@"
    wake_pages
}

zipf() {
    local variant
    for variant in shm nginx varnish; do
        # Each page twice: fetched, then found.
        ZIPF_ALL=2 wrk -t1 -c16 -d12 -s "$here/bench/zipf.lua" "http://127.0.0.1:${ports[$variant]}/" >/dev/null
        warm "$variant" /8192/page-1
        warm "$variant" /8192/page-10000
    done
    stop_pages
    one() { wrk_once "$1" "$here/bench/zipf.lua" -t2 -c64 -d"$seconds"; }
    turns zipf one shm nginx varnish
    wake_pages
}

# 70 % of what the slowest of them can, asked for by a client that does not wait with asking until it is answered.
tail_at_rate() {
    local path=/8192/page rate
    for variant in shm nginx varnish; do warm "$variant" "$path"; done
    repeat_in_bare "$path"
    stop_pages
    # The most of three stretches of each, taken in turns: one alone may have met other work of the machine.
    rate=$(for _ in 1 2 3; do
        for variant in shm nginx varnish bare; do echo "$variant,$(wrk_once "$variant" "$path" -t2 -c64 -d"$seconds")"; done
    done | awk -F, '$2 > most[$1] { most[$1] = $2 } END { for (variant in most) print most[variant] }' | sort -n | head -n 1)
    rate=$(awk -v rate="$rate" 'BEGIN { printf "%d", rate * 0.7 }')
    echo "compare: tail at $rate requests a second" >&2
    one() {
        local said
        said=$("$VERBENA" __bench-target paced --connect "127.0.0.1:${ports[$1]}" --path "$path" --rate "$rate" --seconds "$seconds")
        grep -q '"lost":0,' <<<"$said" || fail "$1 at a fixed rate: $said" "$1"
        awk -F'[:,]' -v seconds="$seconds" '{
            for (at = 1; at < NF; at++) {
                if ($at ~ /answered/) answered = $(at + 1)
                if ($at ~ /"p50_us"/) p50 = $(at + 1)
                if ($at ~ /"p99_us"/) p99 = $(at + 1)
            }
            printf "%.1f,%s,%s\n", answered / seconds, p50, p99 }' <<<"$said"
    }
    turns tail one shm nginx varnish bare
    wake_pages
}

# Every request another page, one at a time: the way to the application and back, and what storing costs.
misses() {
    local turn=0
    one() {
        turn=$((turn + 1))
        MISS_PREFIX="$1-$BASHPID-$RANDOM" wrk_once "$1" "$here/bench/miss.lua" -t1 -c1 -d"$seconds"
    }
    turns miss one shm nginx varnish
}

for case in $cases; do
    case "$case" in
    1k) hits 1k 1024 shm nginx varnish bare ;;
    8k) hits 8k 8192 shm nginx varnish bare ;;
    100k) hits 100k 102400 shm nginx varnish bare ;;
    tcp) hits tcp 8192 tcp shm nginx bare ;;
    zipf) zipf ;;
    tail) tail_at_rate ;;
    miss) misses ;;
    esac
done

{
    echo "# load before: $before"
    echo "# $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2 | sed 's/^ //'), $(nproc) cores, Linux $(uname -r)"
    echo "# $("$VERBENA" --version); $(nginx -v 2>&1 | sed 's/nginx version: //'); $(varnishd -V 2>&1 | head -n 1 | sed 's/ revision.*/)/'); wrk -t2 -c64, $rounds rounds of $seconds s"
    awk -F, -f "$here/bench/ratios.awk" "$out/rounds.csv"
} | tee "$out/ratios.txt"
