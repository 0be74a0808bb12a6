#!/bin/busybox sh
# Process 1 of a guest (tests/rdma/guests.py): loads the modules, takes the host's root over 9p, read-only, sets
# the network up as network.sh in the shared folder says, and then runs what the host puts there, one command
# after another: command.N, whose output goes to output.N and whose exit status goes to status.N, until a command
# says "halt".
B=/bin/busybox
$B mount -t proc proc /proc
$B mount -t sysfs sysfs /sys
$B mount -t devtmpfs dev /dev 2>/dev/null
for module in $($B cat /modules/order); do
  $B insmod "/modules/$module" || echo "guest: $module cannot be loaded"
done

root=/root
$B mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=512000,cache=loose host $root || $B poweroff -f
for folder in proc sys dev; do $B mount --move /$folder $root/$folder; done
for folder in tmp run mnt; do $B mount -t tmpfs tmpfs $root/$folder; done
$B mkdir -p $root/dev/shm $root/dev/pts $root/mnt/share
$B mount -t tmpfs tmpfs $root/dev/shm
$B mount -t 9p -o trans=virtio,version=9p2000.L,rw,msize=512000,cache=none share $root/mnt/share || $B poweroff -f

export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp
share=$root/mnt/share

$B chroot $root /bin/sh /mnt/share/network.sh >$share/boot.log 2>&1
echo ready >$share/ready.new && $B mv $share/ready.new $share/ready

next=1
while :; do
  if [ -f $share/command.$next ]; then
    [ "$($B cat $share/command.$next)" != halt ] || break
    # A command may leave another behind in the background, and that one is not waited for.
    $B chroot $root /bin/bash /mnt/share/command.$next >$share/output.$next 2>&1 </dev/null
    echo $? >$share/status.new && $B mv $share/status.new $share/status.$next
    next=$((next + 1))
  else
    $B usleep 50000
  fi
done
$B sync
$B poweroff -f
