#!/usr/bin/env bash
# Clients of memcached from other languages at `verbena pool`: their own tests and examples, unchanged, as the registries have them.
#
#   Node   memcached, which speaks the text protocol: its tests, with three pools of one cache as its three servers; and its examples, each of which
#          must say what it says at memcached. (memjs speaks the binary protocol alone, which the pool refuses.)
#   Go     gomemcache: its tests at one of the three pools, and at pools that the tests start themselves, by a `memcached` that starts a pool.
#
# The clients lie in target/pool-clients. PROGRAMS says where the program is. The clients' servers have fixed addresses, so all runs in a network of
# its own.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
export PATH=$PATH:/usr/sbin:/sbin

# Examples that say the same at both, in an order in which what one sets is there for the next.
examples=(simple_set simple_get simple_incr simple_decr simple_gets simple_cas simple_set_json simple_get_json simple_getmulti simple_set_binary
    simple_get_binary simple_set_compression simple_get_compression simple_set_largefile simple_get_largefile cluster_memcached_connect simple_delete
    simple_flush)
# The others: simple_redundancy finds its value at all three servers, for they are one cache. simple_version, simple_stats, simple_settings,
# simple_items and simple_metaData show numbers of the server and times. simple_slabs asks for `stats slabs`, which the pool does not have.
# memcached_connect and memcached_connect_socket ask nothing. simple_events and queue_limit never end. simple_cachedump, consistent_hashing,
# memcached_global_config and memcached_local_config fail at memcached too, with this version of the package and of Node.

ports=(11211 11212 11213)
node_version=2.2.2 node_tests=48
# Two of these ask no server.
go_version=v0.0.0-20260422231931-4d751bb6e37c go_tests=5
go_sums=(h1:6Gpm9YYUEQx2T9zMsYolQhr6sjwwGtFitSA0pQsa7a8= h1:r5xuitiExdLAJ09PR7vBVENGvp4ZuTBeWTGtxuX3K+c=)
target=$(realpath -m "${CARGO_TARGET_DIR:-$here/target}")
program=$(realpath -m "${PROGRAMS:-$target/debug}/verbena")
place=$target/pool-clients

install_node() {
    local tools="memcached@$node_version mocha@10.8.2 should@13.2.3"
    [ "$(cat "$place/node/tools" 2>/dev/null)" != "$tools" ] || return 0
    rm -rf "$place/node"
    mkdir -p "$place/node"
    echo '{"private": true}' >"$place/node/package.json"
    # shellcheck disable=SC2086
    npm install --prefix "$place/node" --save-exact --no-audit --no-fund --no-update-notifier --loglevel=error --cache "$place/cache" $tools
    echo "$tools" >"$place/node/tools"
}

install_go() {
    local module=github.com/bradfitz/gomemcache
    mkdir -p "$place/go"
    printf '%s\n' "module clients" "go 1.18" "require $module $go_version" >"$place/go/go.mod"
    printf '%s\n' "$module $go_version ${go_sums[0]}" "$module $go_version/go.mod ${go_sums[1]}" >"$place/go/go.sum"
    (cd "$place/go" && GOPATH=$place/go/path GOCACHE=$place/go/cache GOTOOLCHAIN=local GOFLAGS="-mod=mod -modcacherw" \
        go test -c -o "$place/go/memcache.test" "$module/memcache")
}

# The three servers of node-memcached's tests, and an address that never answers.
make_network() {
    ip link set lo up
    ip link add v0 type veth peer name v1
    ip address add 10.211.55.5/24 dev v0
    ip address add 10.211.55.6/24 dev v0
    ip link set v0 up
    ip link set v1 up
    ip route add default dev v0
    ip neighbour add 10.255.255.255 lladdr 02:00:00:00:00:01 dev v0
}

# All keys can be changed by the server at port $1, which knows $2 members.
is_open() {
    local number answers
    { exec 3<>"/dev/tcp/127.0.0.1/$1"; } 2>/dev/null || return 1
    {
        for number in {1..32}; do printf 'set open-%s 0 1 1\r\n?\r\n' "$number"; done
        printf 'stats\r\nquit\r\n'
    } >&3
    answers=$(cat <&3)
    exec 3>&-
    [ "$(grep -c STORED <<<"$answers")" = 32 ] && [ "$2" = "$(sed -n 's/^STAT pool_members \([0-9]*\).*/\1/p' <<<"$answers")" ]
}

wait_for() {
    local tries
    for tries in {1..600}; do
        "$@" && return
        sleep 0.1
    done
    return 1
}

start_pools() {
    local port
    for port in "${ports[@]}"; do
        start "pool-$port" "$program" pool --json --listen "0.0.0.0:$port" --memory 32MiB
    done
    for port in "${ports[@]}"; do
        wait_for is_open "$port" "${#ports[@]}" || fail "the pool at port $port does not open" "pool-$port"
    done
}

# What all examples say, in file $1; cas values are the server's.
run_examples() {
    local example
    for example in "${examples[@]}"; do
        echo "== $example"
        (cd "$place/node/node_modules/memcached/examples" && timeout 20 node "$example.js" 2>&1) || echo "ended with $?"
    done | sed "s/cas: '[0-9]*'/cas: N/" >"$1"
}

# memcached itself, where the pools will be, while the examples run.
examples_at_memcached() {
    local port name order=()
    for port in "${ports[@]}"; do
        start "memcached-$port" memcached -u "$(id -un)" -l 0.0.0.0 -p "$port"
        order+=("memcached-$port")
    done
    for port in "${ports[@]}"; do
        wait_for listens "$port" || fail "memcached does not listen at port $port" "memcached-$port"
    done
    run_examples "$directory/examples.memcached"
    for name in "${order[@]}"; do
        kill -TERM "${children[$name]}"
        wait "${children[$name]}" || true
        unset "children[$name]"
    done
}
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

examples_at_pools() {
    run_examples "$directory/examples.pool"
    diff "$directory/examples.memcached" "$directory/examples.pool" >&2 || fail "examples of node-memcached say something else than at memcached"
    echo "node-memcached $node_version: ${#examples[@]} examples say what they say at memcached"
}

tests_of_node() {
    local code=0 passed
    # `--require should` is what its mocha.opts says.
    (cd "$place/node/node_modules/memcached" && timeout 300 ../.bin/mocha --exit --require should test/*.test.js) >"$directory/node.log" 2>&1 || code=$?
    passed=$(sed -n 's/^ *\([0-9]*\) passing.*/\1/p' "$directory/node.log")
    if [ "$code" != 0 ] || [ "$passed" != "$node_tests" ]; then
        cat "$directory/node.log" >&2
        fail "node-memcached: ${passed:-0} of $node_tests tests pass, mocha ended with $code"
    fi
    echo "node-memcached $node_version: $passed of $node_tests tests pass, at three pools of one cache"
}

# What the tests of gomemcache call `memcached`: each a pool that is a cache for itself.
write_memcached() {
    mkdir "$directory/bin"
    cat >"$directory/bin/memcached" <<END
#!/usr/bin/env bash
set -euo pipefail
listen=127.0.0.1:0 options=()
while [ "\$#" != 0 ]; do
    case "\$1" in
    --version) exec "$program" --version ;;
    --port=*) listen=127.0.0.1:\${1#*=} ;;
    --listen=127.0.0.1 | --enable-ssl) ;;
    -s) options+=(--socket "\$2") && shift ;;
    -o)
        case "\$2" in
        ssl_chain_cert=*) options+=(--tls-cert "\${2#*=}") ;;
        ssl_key=*) options+=(--tls-key "\${2#*=}") ;;
        *) echo "no pool has \$2" >&2 && exit 2 ;;
        esac
        shift
        ;;
    *) echo "no pool has \$1" >&2 && exit 2 ;;
    esac
    shift
done
own=\$(mktemp -d "$directory/own.XXXXXX")
exec "$program" pool --listen "\$listen" --node-runtime "\$own/run" --node-state "\$own/state" "\${options[@]}" >"\$own/out" 2>>"$directory/own.log"
END
    chmod +x "$directory/bin/memcached"
}

# One run of these tests into $directory/go.log. The socket has the process in its name, and nothing removes it when its server is killed.
run_go() {
    start go env PATH="$directory/bin:$PATH" "$place/go/memcache.test" -test.v -test.timeout 3m -test.run "$1"
    wait "${children[go]}" || true
    rm -f "/tmp/test-gomemcache-${children[go]}.sock"
    unset 'children[go]'
    mv "$directory/go.out" "$directory/go.log"
}
results() { sed -n 's/^--- \([A-Z]*\): \([A-Za-z]*\) .*/\2 \1/p' "$directory/go.log"; }

tests_of_go() {
    local test result first wrong=() passed=0 seen=0 tries=0
    write_memcached
    touch "$directory/own.log"
    run_go .
    first=$(results)
    # It sends `flush_all` without waiting for the answer, so what it sets next, on another connection, may go too: at memcached as well.
    while grep -q '^TestLocalhost FAIL' <<<"$first" && grep -q 'cache miss' "$directory/go.log" && [ "$tries" -lt 3 ]; do
        tries=$((tries + 1))
        echo "gomemcache: TestLocalhost lost a key to its own flush_all, it is run again"
        run_go '^TestLocalhost$'
        first=$(grep -v '^TestLocalhost ' <<<"$first" && results)
    done
    while read -r test result; do
        seen=$((seen + 1))
        if [ "$result" = PASS ]; then passed=$((passed + 1)); else wrong+=("$test: $result"); fi
    done <<<"$first"
    [ "$seen" = "$go_tests" ] || wrong+=("$seen tests ran, not $go_tests")
    if [ "${#wrong[@]}" != 0 ]; then
        cat "$directory/go.log" "$directory/own.log" >&2
        fail "gomemcache: $(printf '%s; ' "${wrong[@]}")"
    fi
    echo "gomemcache $go_version: $passed of $seen tests pass, at one of the three pools and at pools of their own"
}

if [ "${1:-}" = inside ]; then
    directory=$(mktemp -d "${TMPDIR:-/tmp}/verbena-clients.XXXXXX")
    . "$here/scripts/children.sh"
    trap 'clean_up "${!children[@]}"' EXIT
    trap 'exit 130' INT TERM
    # The pools find each other, and nothing else.
    for name in "${!VERBENA@}"; do unset "$name"; done
    export HOME=$directory XDG_RUNTIME_DIR=$directory/run XDG_STATE_HOME=$directory/state
    mkdir -m 700 "$XDG_RUNTIME_DIR"
    cd "$directory"
    make_network
    [ -z "$has_memcached" ] || examples_at_memcached
    start_pools
    [ -z "$has_memcached" ] || examples_at_pools
    [ -z "$has_node" ] || tests_of_node
    [ -z "$has_go" ] || tests_of_go
    for port in "${ports[@]}"; do
        is_open "$port" "${#ports[@]}" || fail "the pool at port $port does not serve any more" "pool-$port"
    done
    exit
fi

if [ ! -x "$program" ]; then
    echo "test-pool-clients: $program is not there: 'cargo build --bin verbena' builds it, PROGRAMS names another directory" >&2
    exit 2
fi
alone=(unshare --net)
[ "$(id -u)" = 0 ] || alone+=(--user --map-root-user)
if ! "${alone[@]}" true 2>/dev/null; then
    echo "skipped: only root can make network namespaces"
    exit
fi
export has_node=yes has_go=yes has_memcached=yes
if ! node -e 'process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)' 2>/dev/null || ! command -v npm >/dev/null; then
    echo "skipped: no Node of 18 or later with npm is installed"
    has_node='' has_memcached=''
fi
# The client pings a server that has failed.
if [ "$has_node" ] && ! command -v ping >/dev/null; then
    echo "skipped: no ping is installed, which node-memcached calls"
    has_node='' has_memcached=''
fi
if ! command -v go >/dev/null; then
    echo "skipped: no Go is installed"
    has_go=''
fi
if [ "$has_memcached" ] && ! command -v memcached >/dev/null; then
    echo "skipped: no memcached is installed, which the examples of node-memcached are compared with"
    has_memcached=''
fi
[ "$has_node$has_go" ] || exit 0
[ -z "$has_node" ] || install_node
[ -z "$has_go" ] || install_go
exec "${alone[@]}" bash "$here/scripts/test-pool-clients.sh" inside
