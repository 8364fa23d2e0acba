#!/usr/bin/env bash
# Builds the Debian package (`make package`), installs it into a fresh Debian 12 with nothing but what it depends on and recommends, and looks there at what
# users find. About a quarter of an hour on two cores where nothing is built yet; one minute where the program is.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" != 0 ]; then
    echo "skipped: only root can make a fresh Debian"
    exit
fi
scripts/setup-debian.sh package
scripts/package.sh

packages=("${CARGO_TARGET_DIR:-target}"/debian/verbena_*.deb)
package=${packages[0]}
root=$(mktemp -d)
trap 'rm -rf --one-file-system "$root"' EXIT
checked=0

wrong() { echo "package: $*" >&2; exit 1; }
# check WHAT COMMAND...: the command succeeds.
check() {
    local what=$1 told
    shift
    told=$("$@" 2>&1) || wrong "$what: $told"
    checked=$((checked + 1))
}
# within COMMAND...: in the fresh Debian, without its own network or anything else of this machine.
within() { unshare --net --mount --fork --pid --mount-proc="$root/proc" chroot "$root" "$@"; }
field() { dpkg-deb --field "$package" "$1"; }
# says WANTED COMMAND...: what the command prints has this in it.
says() {
    local wanted=$1 told
    shift
    told=$("$@") && [[ $told == *"$wanted"* ]] || { echo "$told, and not $wanted"; return 1; }
}

# Names alone, of alternatives the first.
needed=$(echo "$(field Depends), $(field Recommends)" | sed -E 's/ \([^)]*\)//g; s/ \|[^,]*//g; s/, /,/g')
mmdebstrap --quiet --variant=apt --include="$needed" bookworm "$root"
cp "$package" "$root/tmp/verbena.deb"
scripts/test-first-hit.sh "${CARGO_TARGET_DIR:-target}/packages" "$root"
within dpkg --install /tmp/verbena.deb

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# iproute2, which is recommended, would bring it anyway.
check "what it depends on" says libelf1 field Depends
check "its version" says "verbena $version" within verbena --version
within verbena doctor --json >"$root/doctor.json" || wrong "doctor ended with $?"
verbs() {
    python3 - "$root/doctor.json" <<'END'
import json, sys
verbs, = (one for one in json.load(open(sys.argv[1]))["providers"] if one["name"] == "verbs")
assert verbs["in_build"], "verbs is not in the build"
assert any(check["what"] == "library" and check["verdict"] == "good" for check in verbs["checks"]), verbs
END
}
check "the provider verbs with its library" verbs

check "completions of bash" says complete within bash -ec 'source /usr/share/bash-completion/completions/verbena; complete -p verbena'
check "completions of zsh" grep -q '^#compdef verbena' "$root/usr/share/zsh/vendor-completions/_verbena"
check "completions of fish" grep -q '^complete -c verbena' "$root/usr/share/fish/vendor_completions.d/verbena.fish"
for page in verbena verbena-node verbena-lock-run; do
    check "the manual page $page" says .TH gunzip -c "$root/usr/share/man/man1/$page.1.gz"
done
for text in copyright README.md SECURITY.md docs/start.md docs/reference/OPERATING.md docs/internals/measurements/figures/fabric.load.svg; do
    check "$text" test -s "$root/usr/share/doc/verbena/$text"
done
check "licences of what is linked in" grep -q '^sideway v.*: MPL-2.0' "$root/usr/share/doc/verbena/crates.txt"
check "stripped" test -z "$(nm --quiet "$root/usr/bin/verbena")"

configuration=/etc/verbena/verbena.toml
check "a configuration that is kept" says "$configuration" within dpkg --status verbena
check "the configuration" within verbena config check "$configuration"
# With its examples, and a directory for keys that there is none of.
sed -E 's/^#([^ ]|  )/\1/' "$root$configuration" >"$root/tmp/examples.toml"
check "examples" grep -q '^members = ' "$root/tmp/examples.toml"
check "the configuration's examples" within verbena config check /tmp/examples.toml
within install -d -o verbena -m 700 /run/verbena /var/lib/verbena
# The node ends with who started it.
node() {
    within bash -c 'as=(setpriv --reuid=verbena --regid=verbena --clear-groups verbena)
        "${as[@]}" node --config "$0" >/tmp/node.log 2>&1 &
        for try in {1..100}; do "${as[@]}" lock run package --config "$0" -- echo held 2>/tmp/lock.log && exit; sleep 0.2; done
        tail -n 20 /tmp/node.log /tmp/lock.log; exit 1' "$configuration"
}
check "a node as the service's user" says held node
# A key that it does not know is no failure to it, only said.
verified() {
    local told
    told=$(within systemd-analyze verify --man=no verbena-node.service 2>&1) && [ -z "$told" ] || { echo "$told"; return 1; }
}
check "the unit" verified
check "not enabled" test -z "$(find "$root/etc/systemd" -name 'verbena-node*')"

within dpkg --purge verbena
check "nothing is left" test ! -e "$root/etc/verbena" -a ! -e "$root/usr/bin/verbena" -a ! -e "$root/usr/share/doc/verbena"
[ "$checked" -ge 23 ] || wrong "only $checked checks"
echo "counted: $checked checks of $(basename "$package")"
