#!/usr/bin/env bash
# make_initrd.sh KERNEL_FOLDER OUT: an initial RAM disk of busybox, guest_init.sh and the modules that a guest of
# tests/rdma needs. KERNEL_FOLDER is what `dpkg -x` made of a linux-image package.
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: make_initrd.sh KERNEL_FOLDER OUT" >&2; exit 2; }
kernel=$(realpath "$1")
out=$(realpath -m "$2")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
version=$(basename "$(echo "$kernel"/lib/modules/*)")
busybox=$(command -v busybox)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{bin,modules,proc,sys,dev,root}
cp "$busybox" "$work/bin/busybox"
cp "$here/guest_init.sh" "$work/init"
chmod 755 "$work/init"
[ -f "$kernel/lib/modules/$version/modules.dep" ] || depmod -b "$kernel" "$version"

# Each after those that it needs, once.
declare -A placed=()
for module in virtio_pci virtio_net 9pnet_virtio 9p crc32_generic ib_uverbs rdma_rxe sch_netem; do
  while read -r verb file _; do
    [ "$verb" = insmod ] || continue
    name=$(basename "${file%.xz}")
    [ -z "${placed[$name]:-}" ] || continue
    placed[$name]=1
    case "$file" in
      *.xz) xz -dc "$file" >"$work/modules/$name" ;;
      *) cp "$file" "$work/modules/$name" ;;
    esac
    echo "$name" >>"$work/modules/order"
  done < <(modprobe -d "$kernel" -S "$version" --show-depends "$module")
done
(cd "$work" && find . | cpio --create --format newc --quiet) | gzip -1 >"$out.new"
mv "$out.new" "$out"
