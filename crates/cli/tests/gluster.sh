#!/usr/bin/env bash
# A volume of a real glusterd with the translators of a bank: gluster.sh FOLDER VERBENA ADAPTERS LIBRARY. To be run in namespaces of its own for mounts, networks and processes.
set -u
folder=$1 verbena=$2 source=$3 library=$4
say() { echo "$*"; }
fail() { say "failed: $*"; tail -20 "$folder/log/"*.log; exit 1; }
wait_for() { for turn in $(seq 300); do eval "$1" >/dev/null 2>&1 && return; sleep 0.2; done; fail "waited in vain: $1"; }
g() { gluster --mode=script "$@" >>"$folder/gluster.out" 2>&1 || { cat "$folder/gluster.out"; fail "gluster $*"; }; }
graphs() { (cd /var/lib/glusterd/vols/v && sha256sum ./*.vol); }

ip link set lo up && ip addr add 10.9.9.9/32 dev lo || fail network
mkdir -p "$folder"/{log,bricks,over,fast} /run/gluster
for place in /var/lib/glusterd /var/log/glusterfs /run/gluster "$folder/over"; do mount -t tmpfs none "$place" || fail "$place"; done
mkdir "$folder/over/upper" "$folder/over/work"
mount -t overlay -o "lowerdir=$library,upperdir=$folder/over/upper,workdir=$folder/over/work" none "$library" || fail overlay
make -s -C "$source" OUT="$folder" XLATORS="$library/xlator" install || fail make
glusterd --no-daemon -l "$folder/log/glusterd.log" &
wait_for 'gluster --mode=script volume list'
"$verbena" bank up --daemons 2 --memory 64MiB >"$folder/bank" &
wait_for 'grep -q "^bank " "$folder/bank"'
bank=$(sed -n 's/^bank //p' "$folder/bank")
g volume create v "10.9.9.9:$folder/bricks/1" force
g volume start v
plain=$(graphs)

"$verbena" bank gluster enable v --bank "$bank" || fail enable
say "check $("$verbena" bank gluster check v --json)"
"$verbena" bank gluster check v
g volume stop v
g volume start v
mount -t glusterfs -o attribute-timeout=0,entry-timeout=0,direct-io-mode=enable 10.9.9.9:/v "$folder/fast" || fail mount
dd if=/dev/urandom of="$folder/file" bs=64k count=8 status=none
cp "$folder/file" "$folder/fast/file" || fail write
for turn in 1 2 3 4; do cmp "$folder/file" "$folder/fast/file" || fail read; sleep 0.3; done
say "counts $(getfattr -n glusterfs.verbena.bank --only-values "$folder/fast" 2>/dev/null | tr '\n\0' '  ')"
umount "$folder/fast"

# glusterd writes all graphs anew, twice: the filter loads the translators each time.
loaded=$(graphs)
g volume set v diagnostics.client-log-level DEBUG
g volume reset v diagnostics.client-log-level
[ "$(graphs)" = "$loaded" ] || fail "what glusterd wrote anew is another graph: $(graphs) $loaded"

# A kill at any moment, and what comes after it.
for turn in $(seq 20); do
    "$verbena" bank gluster disable v >/dev/null 2>&1 & victim=$!
    sleep "0.00$((turn % 10))"; kill -9 $victim 2>/dev/null; wait $victim 2>/dev/null
    "$verbena" bank gluster disable v >/dev/null || fail disable
    [ "$(graphs)" = "$plain" ] || fail "disable left something behind"
    [ ! -e "$library/filter" ] && [ ! -e /var/lib/glusterd/verbena-bank ] || fail "disable left files behind"
    "$verbena" bank gluster enable v --bank "$bank" >/dev/null 2>&1 & victim=$!
    sleep "0.00$((turn % 7))"; kill -9 $victim 2>/dev/null; wait $victim 2>/dev/null
done
"$verbena" bank gluster disable v >/dev/null || fail disable
[ "$(graphs)" = "$plain" ] || fail "disable left something behind"
g volume set v diagnostics.client-log-level DEBUG
g volume reset v diagnostics.client-log-level
[ "$(graphs)" = "$plain" ] || fail "something is loaded after disable"
g volume stop v
g volume start v
mount -t glusterfs 10.9.9.9:/v "$folder/fast" || fail "mount without the bank"
cmp "$folder/file" "$folder/fast/file" || fail "read without the bank"
umount "$folder/fast"
say "done"
