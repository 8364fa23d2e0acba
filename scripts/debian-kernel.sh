# For scripts that start a machine, which source it: the kernel of Debian 12, unpacked and not installed, in $kernel, and its release in $release.
# They name $here, the top of the repository, and $work, a folder of their own, first.
export PATH=$PATH:/usr/sbin:/sbin
kernel=$(realpath -m "${VM_KERNEL:-${CARGO_TARGET_DIR:-$here/target}/debian-kernel}")

# Fetches these packages of Debian's and unpacks them into folder $1.
unpack() {
    local into=$1 packages
    shift
    packages=$(mktemp -d "$work/packages.XXXXXX")
    # apt fetches as a user of its own.
    chmod 755 "$work" "$packages"
    [ "$(id -u)" != 0 ] || chown _apt "$packages"
    (cd "$packages" && apt-get download -qq "$@" >&2)
    for package in "$packages"/*.deb; do dpkg -x "$package" "$into"; done
}

if ! ls "$kernel"/boot/vmlinuz-* >/dev/null 2>&1; then
    mkdir -p "$(dirname "$kernel")"
    unpack "$kernel.$$" "$(apt-cache depends linux-image-amd64 | awk '/Depends:/ {print $2; exit}')"
    # Whole or not at all, whoever else does the same.
    mv -T "$kernel.$$" "$kernel" 2>/dev/null || rm -rf "$kernel.$$"
fi
release=$(basename "$(ls "$kernel"/boot/vmlinuz-* | head -n 1)")
release=${release#vmlinuz-}
[ -s "$kernel/lib/modules/$release/modules.dep" ] || depmod -b "$kernel" "$release"
