#!/usr/bin/env bash
# What `verbena bench database.site` measures: an application as Debian packages it, once for each arm, with a database, PHP-FPM, an Apache and a proxy of its own.
#
#   clients --> verbena proxy --> Apache, PHP-FPM --> [relay, in the proxy] --> MariaDB, which has a database for each arm
#
#   arms.sh mediawiki|wordpress VERBENA DIRECTORY PAGES PORT
#
# DIRECTORY is there and empty, and goes at the end. PORT is the first that is tried. When all arms answer, DIRECTORY/arms has a line for each: `NAME PORT`, or
# `NAME - REASON` where it cannot be. It ends when it is asked to, and says `skipped: REASON` (exit code 77) where no arm can be.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
export PATH=$PATH:/usr/sbin
site=$1 programs=$(dirname "$2") directory=$3 pages=$4 first=$5 workers=4

. "$here/scripts/site/$site.sh"
. "$here/scripts/site/stack.sh"
require apache2 php-fpm8.2 php mariadbd mariadb-install-db mariadb-dump
. "$here/scripts/children.sh"
# What this starts ends with it, however it ends.
before=(setpriv --pdeathsig TERM)
[ "${#as[@]}" = 0 ] || as+=("${before[@]}")
arms=(none own all relay tags proofs)
declare -A ports=() reasons=()
order=()
for arm in "${arms[@]}"; do order+=("proxy-$arm" "app-$arm" "app-$arm-php"); done
trap 'clean_up "${order[@]}" database' EXIT
trap 'exit 130' INT TERM
chmod 755 "$directory"

# Everything of an arm that is in files and tables.
prepare() {
    place=$directory/$arm database=${original}_$arm
    copy_site
    sql -e "CREATE DATABASE $database; GRANT ALL ON $database.* TO $original; GRANT ALL ON $database.* TO $original@localhost"
    sql "$database" <"$directory/dump"
}

# An arm's processes. Without a relay the application asks the server itself.
begin() {
    local options own application
    place=$directory/$arm database=${original}_$arm server=localhost:$directory/mysql.sock
    choose_port "$first" && own=$port
    choose_port "$first" && application=$port
    case $arm in
    none | own) options=(--mode pass) ;;
    all) options=(--mode coherent) ;;
    relay | tags | proofs)
        choose_port "$first"
        server=127.0.0.1:$port
        options=(--mode coherent --database "mysql://root@localhost?socket=$directory/mysql.sock" --database-listen "$server")
        # The configuration promises that pages are made of the database alone, or the application testifies to it.
        [ "$arm" = proofs ] || options+=(--database-complete true)
        ;;
    esac
    start "proxy-$arm" "$programs/verbena" proxy --json --name "$site-$arm" --listen "127.0.0.1:$own" --origin "http://127.0.0.1:$application" \
        --node-runtime "$place/run" --node-state "$place/state" "${options[@]}"
    await "proxy-$arm" '"event":"serving"'
    configure_site
    [ "$arm" != own ] || keep_own_pages
    PHP_INI_SCAN_DIR=$directory/php-plain
    case $arm in
    # No page is testified for.
    tags) PHP_INI_SCAN_DIR=$directory/php code= ;;
    proofs) PHP_INI_SCAN_DIR=$directory/php ;;
    esac
    start_application "$arm" "$workers" "$application"
    ports[$arm]=$own
}

declare -F keep_own_pages >/dev/null || reasons[own]="$package has no cache of whole pages without a plugin"
for program in cc make php-config phpize; do
    command -v "$program" >/dev/null || reasons[tags]="$program is not installed, and the extension for PHP is built with it"
done
[ -z "${reasons[tags]:-}" ] || reasons[proofs]=${reasons[tags]}
[ -n "${reasons[tags]:-}" ] || configure_php
configure_plain_php php-plain
start_database
posts=$pages
install_site
fill_site "$pages"
mariadb-dump --no-defaults -uroot --socket="$directory/mysql.sock" "$original" >"$directory/dump"
# All tables are there before a relay reads the catalog.
for arm in "${arms[@]}"; do [ -n "${reasons[$arm]:-}" ] || prepare; done
for arm in "${arms[@]}"; do [ -n "${reasons[$arm]:-}" ] || begin; done
for arm in "${arms[@]}"; do
    echo "$arm ${ports[$arm]:-- ${reasons[$arm]:-}}"
done >"$directory/arms.new"
mv "$directory/arms.new" "$directory/arms"
while :; do
    for name in "${!children[@]}"; do
        ended "$name" && fail "$name ended" "$name"
    done
    sleep 0.2
done
