# For scripts/demo-site.sh and scripts/site/arms.sh, which source it: a data centre on one machine, each process in the site's own directory.
#
#   browsers --> Apache with mod_verbena (proxy-N) ---> application server (app-N: Apache, PHP-FPM) ---> relay ---> MariaDB
#                      | asks its helper (node-N)
#
# They name $programs (verbena), $libraries (libverbena.so), $directory, $host (what browsers call the site) and $root (the application's PHP files).

modules=/usr/lib/apache2/modules

# Ends where one of these programs is not installed, or the site $site.
require() {
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null || { echo "skipped: $program is not installed" && exit 77; }
    done
    is_there || { echo "skipped: $needs is not installed" && exit 77; }
}

# Apache and PHP-FPM do not work as root, and a helper answers its own user alone: root's are another user for themselves.
as=()
if [ "$(id -u)" = 0 ]; then
    as=(unshare -U --map-user=33 --map-group=33)
fi

# Waits until a command succeeds; $1 is the child that it is about.
until_so() {
    local name=$1 patience=600
    shift
    until "$@" >/dev/null 2>&1; do
        ended "$name" && fail "$name ended" "$name"
        [ "$patience" -gt 0 ] || fail "$name does not begin" "$name"
        patience=$((patience - 1))
        sleep 0.1
    done
}

# Waits until a child has said something.
await() { until_so "$1" grep -qs "$2" "$directory/$1.out"; }

is_open() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

sql() { mariadb --no-defaults -uroot --socket="$directory/mysql.sock" "$@"; }

start_database() {
    # A directory for temporary tables of its own: a server that starts removes what others have in a shared one.
    mkdir -p "$directory/database-tmp"
    local common=(--no-defaults --datadir="$directory/data" --tmpdir="$directory/database-tmp" --user="$(id -un)" --innodb-use-native-aio=0)
    mariadb-install-db "${common[@]}" --auth-root-authentication-method=normal --skip-test-db >"$directory/install-db.log" 2>&1 ||
        fail "mariadb-install-db failed: $(tail -n 5 "$directory/install-db.log")"
    start database mariadbd "${common[@]}" --socket="$directory/mysql.sock" --skip-networking --innodb-buffer-pool-size=64M \
        --innodb-flush-log-at-trx-commit=$([ -n "${faults:-}" ] && echo 1 || echo 0)
    until_so database sql -e 'SELECT 1'
}

# $1 nodes, and a proxy of ours with the relay, of one cluster. Its port is in $own, the relay's in $relay.
start_nodes() {
    local count=$1 members= nth
    shift
    for ((nth = 1; nth <= count; nth++)); do
        members+="    { name = \"node-$nth\", address = \"shm://node-$nth\" },"$'\n'
    done
    choose_port 8090 && own=$port
    choose_port 3307 && relay=$port
    cat >"$directory/verbena.toml" <<TOML
[cluster]
members = [
$members    { name = "relay", address = "shm://relay" },
]

[fabric]
provider = "shm"

[node]
runtime = "$directory/run"
TOML
    local verbena="$programs/verbena" config=(--config "$directory/verbena.toml" --json)
    for ((nth = 1; nth <= count; nth++)); do
        start "node-$nth" "$verbena" node "${config[@]}" --cluster-name "node-$nth" --node-state "$directory/state-$nth"
    done
    start relay "$verbena" proxy "${config[@]}" --cluster-name relay --node-state "$directory/state-relay" --listen "127.0.0.1:$own" \
        --database "mysql://root@localhost?socket=$directory/mysql.sock" --database-listen "127.0.0.1:$relay" "$@"
    for ((nth = 1; nth <= count; nth++)); do
        until_so "node-$nth" test -S "$directory/run/node-$nth.sock"
    done
    await relay '"event":"serving"'
}

# What all Apaches say: $1 their name, $2 their port.
apache_head() {
    cat <<CONF
ServerRoot $directory
Listen 127.0.0.1:$2
ServerName $host
PidFile $directory/$1.pid
DefaultRuntimeDir $directory
ErrorLog $directory/$1.errors
User www-data
Group www-data
Mutex file:$directory default
StartServers 1
ServerLimit 2
ThreadsPerChild 32
MaxRequestWorkers 64
MinSpareThreads 1
MaxSpareThreads 64
KeepAliveTimeout 60
MaxKeepAliveRequests 0
CONF
    local module
    for module in mpm_event authz_core "${@:3}"; do
        echo "LoadModule ${module}_module $modules/mod_$module.so"
    done
}

# What PHP loads from now on: what is installed, without APCu, which is a store beside the database (docs/howto/mediawiki-and-wordpress.md), and without our extension.
configure_plain_php() {
    local file
    export PHP_INI_SCAN_DIR=$directory/$1
    mkdir "$PHP_INI_SCAN_DIR"
    for file in /etc/php/8.2/fpm/conf.d/*.ini; do
        case "$file" in *-apcu.ini | *-verbena.ini) ;; *) ln -s "$file" "$PHP_INI_SCAN_DIR" ;; esac
    done
}

# The same, with the extension.
configure_php() {
    make -s -C "$here/adapters/php" OUT="$directory"
    configure_plain_php php
    echo "extension=$directory/verbena.so" >"$PHP_INI_SCAN_DIR/90-verbena.ini"
}

# Application server $1: PHP-FPM with $2 workers, and Apache before it at port $3.
start_application() {
    local name=app-$1 workers=$2 port=$3
    cat >"$directory/$name.fpm" <<CONF
[global]
error_log = $directory/$name.php.errors
daemonize = no
[site]
listen = $directory/$name.sock
pm = static
pm.max_children = $workers
catch_workers_output = yes
${fpm_settings:-}
CONF
    start "$name-php" "${as[@]}" php-fpm8.2 --nodaemonize --fpm-config "$directory/$name.fpm" -d "verbena.code=$code"
    {
        apache_head "$name" "$port" proxy proxy_fcgi dir mime alias
        cat <<CONF
TypesConfig /etc/mime.types
DocumentRoot $root
DirectoryIndex index.php
<Directory />
    Require all granted
</Directory>
<FilesMatch "\.php\$">
    SetHandler "proxy:unix:$directory/$name.sock|fcgi://localhost"
</FilesMatch>
${application_settings:-}
CONF
    } >"$directory/$name.conf"
    start "$name" "${as[@]}" apache2 -DFOREGROUND -f "$directory/$name.conf"
    until_so "$name-php" test -S "$directory/$name.sock"
    until_so "$name" is_open "$port"
}

# Proxy $1, which asks node $1, before the application servers at the ports $2 ...; its own is in $port.
start_proxy() {
    local name=proxy-$1 nth=$1
    shift
    choose_port 8080
    mkdir "$directory/$name.cache"
    {
        apache_head "$name" "$port" proxy proxy_http proxy_balancer lbmethod_byrequests slotmem_shm cache cache_disk
        cat <<CONF
LoadModule verbena_module $directory/mod_verbena.so
LogLevel warn verbena:debug
# Not socache: it keeps no answer without a length, and PHP gives none.
CacheRoot $directory/$name.cache
CacheHeader on
CacheEnable verbena /
VerbenaStore disk
VerbenaHelper $directory/run/node-$nth.sock
VerbenaTimeout 2000
# The relay sees what they write into the database.
VerbenaWrites database
ProxyPreserveHost on
<Proxy balancer://site>
$(printf '    BalancerMember http://127.0.0.1:%s retry=1\n' "$@")
</Proxy>
ProxyPass / balancer://site/
ProxyPassReverse / balancer://site/
CONF
    } >"$directory/$name.conf"
    start "$name" "${as[@]}" apache2 -DFOREGROUND -f "$directory/$name.conf"
    until_so "$name" is_open "$port"
}

# The fault number $1, in an order that is the same in each run. It is over when this returns.
declare -A kinds=()
fault() {
    local all=() nth name kind of
    for ((nth = 1; nth <= proxies; nth++)); do
        all+=("kill node-$nth" "processes proxy-$nth" "stop node-$nth" "processes app-$((nth % 2 + 1))-php" "stop relay" "kill relay" "processes app-$((nth % 2 + 1))"
            "kill database" "stop proxy-$nth" "stop database")
    done
    read -r kind name <<<"${all[$1 % ${#all[@]}]}"
    of=${children[$name]}
    kinds["$kind ${name%%-[0-9]*}"]=$((${kinds["$kind ${name%%-[0-9]*}"]:-0} + 1))
    case $kind in
    kill)
        kill -KILL "$of"
        wait "$of" 2>/dev/null || true
        start_again "$name"
        case $name in
        database) until_so database sql -e 'SELECT 1' ;;
        relay) until_so relay is_open "$relay" ;;
        esac
        ;;
    # Those that answer; their master starts others.
    processes) pkill -KILL -P "$of" || true ;;
    stop)
        pkill -STOP -P "$of" || true
        kill -STOP "$of"
        sleep 3
        kill -CONT "$of"
        pkill -CONT -P "$of" || true
        ;;
    esac
}
