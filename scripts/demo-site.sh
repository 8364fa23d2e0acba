#!/usr/bin/env bash
# What `make demo-site` runs: an application as Debian packages it, unmodified but for its configuration, in a data centre on one machine: Apache proxies
# with mod_verbena, two application servers (Apache, PHP-FPM), one MariaDB behind the relay. A checker edits by the application's own interface and
# by SQL, and reads through other proxies.
#
#   demo-site.sh mediawiki|wordpress [SECONDS [PROXIES]]
#   FAULTS=4 demo-site.sh mediawiki ...     every 4 seconds a part is killed (SIGKILL) and comes again, or is stopped for 3 seconds: helpers, the
#                                           relay, Apache's and PHP's processes, the database
#
# It ends after SECONDS (60). The exit code is 0 when no answer was stale, everything stayed up, and enough happened. Nothing is left behind.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
export PATH=$PATH:/usr/sbin

site=${1:-} seconds=${2:-60} proxies=${3:-3}
case "$site-$seconds-$proxies" in
mediawiki-*[!0-9]*-* | wordpress-*[!0-9]*-* | *-*-*[!0-9]* | *-*-[01]) site= ;;
esac
if [ ! -f "$here/scripts/site/$site.sh" ] || [ "$site" = stack ] || [ "$site" = arms ]; then
    echo "usage: $0 mediawiki|wordpress [SECONDS [PROXIES]], with two proxies or more" >&2
    exit 2
fi

faults=${FAULTS:-}
if [[ ! $faults =~ ^[0-9]*$ ]] || { [ -n "$faults" ] && [ "$site" != mediawiki ]; }; then
    echo "demo-site: FAULTS is a number of seconds, and for mediawiki alone" >&2
    exit 2
fi
programs=$(realpath -m "${PROGRAMS:-${CARGO_TARGET_DIR:-$here/target}/release}")
libraries=$(realpath -m "${LIBRARY:-$programs}")
for file in "$programs/verbena" "$libraries/libverbena.so"; do
    if [ ! -x "$file" ]; then
        echo "demo-site: $file is not there: 'make demo-site' builds it" >&2
        exit 2
    fi
done
. "$here/scripts/site/$site.sh"
. "$here/scripts/site/stack.sh"
require apache2 apxs php-fpm8.2 php php-config mariadbd mariadb-install-db /usr/bin/python3
/usr/bin/python3 -c 'import pymysql' 2>/dev/null || { echo "skipped: python3-pymysql is not installed" && exit 77; }

directory=$(mktemp -d "${TMPDIR:-/tmp}/verbena-site.XXXXXX")
. "$here/scripts/children.sh"
# Those who ask others end first.
order=()
for ((nth = 1; nth <= proxies; nth++)); do order+=("proxy-$nth"); done
order+=(app-1 app-2 app-1-php app-2-php relay)
for ((nth = 1; nth <= proxies; nth++)); do order+=("node-$nth"); done
trap 'clean_up checker "${order[@]}" database' EXIT
trap 'exit 130' INT TERM
chmod 755 "$directory"

# Two demonstrations that start together choose ports one after the other.
exec 9<"$0"
flock 9
echo "installing $package's site on MariaDB ..."
make -s -C "$here/adapters/httpd" OUT="$directory" LIBRARY="$libraries" ${SWITCHES:+SWITCHES="$SWITCHES"} "$directory/mod_verbena.so"
configure_php
start_database
install_site
# Chosen here, because the relay's proxy asks them too.
choose_port 8000 && applications=("$port")
choose_port 8000 && applications+=("$port")
start_nodes "$proxies" --origin "http://127.0.0.1:${applications[0]}" --origin "http://127.0.0.1:${applications[1]}" \
    --database-complete false
configure_site
for nth in 1 2; do
    start_application "$nth" 3 "${applications[nth - 1]}"
done
fronts=()
for ((nth = 1; nth <= proxies; nth++)); do
    start_proxy "$nth" "${applications[@]}"
    fronts+=("$port")
done
flock -u 9

cat <<TEXT

  $package through $proxies Apaches, at ${fronts[*]/#/127.0.0.1:}, and through our own proxy, at 127.0.0.1:$own (Host: $host)
  the applications are at ${applications[*]/#/127.0.0.1:}, the relay, which is their database, at 127.0.0.1:$relay

The checker runs for $seconds seconds.

TEXT

start checker /usr/bin/python3 "$here/scripts/site/check_$site.py" --host "$host" --seconds "$seconds" --relay "$relay" --own "$own" \
    ${faults:+--faults} ${CHECKER:-} "${fronts[@]}"
[ -z "$faults" ] || until_so checker grep -qs 'all pages are there' "$directory/checker.out"
last=$SECONDS last_fault=$SECONDS faulted=0
until ended checker; do
    if [ -n "$faults" ] && [ $((SECONDS - last_fault)) -ge "$faults" ]; then
        fault "$faulted"
        faulted=$((faulted + 1)) last_fault=$SECONDS
    fi
    if declare -F cron >/dev/null && [ $((SECONDS - last)) -ge 5 ]; then
        last=$SECONDS
        cron >>"$directory/cron.log" 2>&1 || [ -n "$faults" ] || fail "cron: $(tail -n 5 "$directory/cron.log")"
    fi
    for name in "${order[@]}" database; do
        ended "$name" && fail "$name ended before the end" "$name"
    done
    sleep 0.2
done
code=0
wait "${children[checker]}" || code=$?
unset 'children[checker]'
cat "$directory/checker.out"
if [ -n "$faults" ]; then
    echo "counted: $faulted faults:$(for kind in "${!kinds[@]}"; do echo " ${kinds[$kind]} $kind"; done | sort -k2 | paste -sd,)"
    [ "$faulted" -ge $((seconds / (faults + 10))) ] || { echo "demo-site: too few faults" >&2 && code=1; }
fi
if [ "$code" -ne 0 ]; then
    tail -n 30 "$directory/checker.log" >&2
    # Where the files are kept, for whoever looks into it.
    [ -z "${KEEP:-}" ] || cp -r "$directory" "$KEEP"
    echo "demo-site: failed (see above)" >&2
fi
exit "$code"
