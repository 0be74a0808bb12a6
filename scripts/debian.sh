#!/usr/bin/env bash
# debian.sh: Debian packages of what `make package` has laid out (build/package/c4) into build/package/debian: libc4-nccl,
# c4-agent, c4-masters, c4-tools, c4-dev. What is in each, its units, users and settings: deploy/debian, deploy/systemd.
# Their version is the project's with the count of commits and the commit behind it, or what C4_DEB_VERSION says. Two
# runs over the same files give the same packages. With lintian on this machine they are looked at by it, unless
# C4_SKIP_LINTIAN=1. C4_DEB_OUT names another folder than that.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

scripts/setup.sh debian
package=build/package
[ -x "$package/c4/bin/c4" ] || die "there is no $package/c4 yet: make package"
release=$(sed -n 's/^project(c4 VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
if history=$(git rev-list --count HEAD 2>/dev/null); then
  version=$release~git$history.$(git rev-parse --short=8 HEAD)
  date=$(git log -1 --format=%ct)
else # sources without their history
  version=$release
  date=$(stat -c %Y CMakeLists.txt)
fi
version=${C4_DEB_VERSION:-$version}
export SOURCE_DATE_EPOCH=$date

out=$(realpath -m "${C4_DEB_OUT:-$package/debian}")
work=$out/work
rm -rf "$out"
mkdir -p "$work/debian/tmp"
tmp=$work/debian/tmp
cp deploy/debian/* "$work/debian/"
chmod 0644 "$work"/debian/*.* "$work/debian/control" "$work/debian/copyright"
cat >"$work/debian/changelog" <<CHANGELOG
c4 ($version) unstable; urgency=medium

  * What changed stands in CHANGELOG.md of the sources.

 -- C4 maintainers <maintainers@c4.invalid>  $(date -u -R -d "@$date")
CHANGELOG

# The tree that the packages are cut from.
install -d "$tmp/usr/bin" "$tmp/usr/lib/c4" "$tmp/etc/c4" "$tmp/usr/share/man" "$tmp/usr/share/bash-completion/completions"
install -m 0755 "$package"/c4/bin/* "$tmp/usr/bin/"
cp -P "$package"/c4/lib/*.so* "$tmp/usr/lib/c4/"
chmod 0644 "$tmp"/usr/lib/c4/*
ln -s libnccl.so.2 "$tmp/usr/lib/c4/libnccl.so"
install -m 0644 deploy/debian/*.env "$tmp/etc/c4/"
multiarch=$tmp/usr/lib/x86_64-linux-gnu
install -d "$tmp/usr/include" "$multiarch/pkgconfig" "$multiarch/cmake"
cp -R "$package/c4-dev/include/c4-nccl" "$tmp/usr/include/"
cp -R "$package/c4-dev/lib/cmake/c4-nccl" "$multiarch/cmake/"
sed -e 's|^prefix=.*|prefix=/usr|' -e "s|^libdir=.*|libdir=\${prefix}/lib/c4|" "$package/c4-dev/lib/pkgconfig/c4-nccl.pc" \
  >"$multiarch/pkgconfig/c4-nccl.pc"
scripts/manuals.py "$tmp/usr/bin" "$work/manuals" "$(date -u -d "@$date" +%F)"
cp -R "$work/manuals/man1" "$work/manuals/man8" "$tmp/usr/share/man/"
cp "$work"/manuals/completions/* "$tmp/usr/share/bash-completion/completions/"

# Units, the user, the run directory. The agent and the masters share the last two: either may be there alone.
units=deploy/systemd
cp "$units/c4a.service" "$work/debian/c4-agent.c4a.service"
cp "$units/c4d_master@.service" "$work/debian/c4-masters.c4d_master@.service"
cp "$units/c4p_master.service" "$work/debian/c4-masters.c4p_master.service"
for name in c4-agent c4-masters; do
  cp "$units/c4.sysusers" "$work/debian/$name.sysusers"
  cp "$units/c4.tmpfiles" "$work/debian/$name.tmpfiles"
done

cd "$work"
printf '#!/usr/bin/make -f\n%%:\n\tdh $@\n' >debian/rules
chmod +x debian/rules
{
  dh_prep --exclude=tmp # which is what they are cut from
  dh_install --sourcedir=debian/tmp
  dh_installdocs
  dh_installchangelogs
  dh_installman
  dh_installsysusers
  dh_installsystemd -pc4-agent --name=c4a
  # Whoever runs a cluster says where the masters run. An upgrade leaves those that run to their jobs.
  dh_installsystemd -pc4-masters --name=c4p_master --no-enable --no-start --no-stop-on-upgrade
  dh_installsystemd -pc4-masters --name=c4d_master@ --no-enable --no-start --no-stop-on-upgrade
  dh_installtmpfiles
  dh_compress
  dh_fixperms
  dh_missing --fail-missing
  dh_shlibdeps
  dh_installdeb
  dh_gencontrol
  dh_md5sums
  dh_builddeb --destdir="$out" -- -Zxz
} >"$out/debhelper.log" 2>&1 || {
  tail -n 20 "$out/debhelper.log" >&2
  die "the packages could not be made; all of it: $out/debhelper.log"
}
cd "$C4_ROOT"
rm -rf "$work"
if [ "${C4_SKIP_LINTIAN:-0}" != 1 ] && command -v lintian >/dev/null; then
  lintian --allow-root --fail-on error,warning --tag-display-limit 0 "$out"/*.deb || die "lintian finds fault with the packages"
fi
say "Debian packages, version $version: $out"
