#!/bin/bash
# Packs the agent as a Debian package: hack/deb.sh DIRECTORY
#
# The same commit and Go give the same bytes. From the environment: DEB_VERSION and SOURCE_DATE_EPOCH,
# by default from the commit; AGENT, a program that is built already; RELEASE_FLAGS of go build;
# DEB_COMPRESSION; DEB_MAINTAINER.
set -euo pipefail
if [[ $# != 1 ]]; then
	echo "usage: hack/deb.sh DIRECTORY" >&2
	exit 2
fi
out=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")/.."
umask 022

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
agent=${AGENT:-}
if [[ -z $agent ]]; then
	agent=$stage/agent
	eval "go build $RELEASE_FLAGS -o '$agent' ./cmd/seedlet"
fi
kubernetes=$("$agent" --version) # "Kubernetes v1.36.3"
kubernetes=${kubernetes#Kubernetes v}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
if [[ -z ${DEB_VERSION:-} ]]; then
	# A later commit has a later version. Changes that are not committed yet are newer than the commit.
	DEB_VERSION=$kubernetes+$(date --utc --date="@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S)
	DEB_VERSION+=.$(git rev-parse --short=10 HEAD)
	[[ -z $(git status --porcelain) ]] || DEB_VERSION+=+changed
fi
case $(go env GOARCH) in
386) architecture=i386 ;;
arm) architecture=armhf ;;
ppc64le) architecture=ppc64el ;;
*) architecture=$(go env GOARCH) ;;
esac

root=$stage/root doc=$stage/root/usr/share/doc/seedlet
# The unit has the path that the kubelet's package has for it. If dpkg knew it by another one, through
# the link /lib, it would remove the unit with that package.
NAME=kubelet AGENT=$agent DESTDIR=$root BINDIR=/usr/bin UNITDIR=/lib/systemd/system \
	DEFAULTDIR=/etc/default KUBEADM=yes hack/install.sh install
ln -s kubelet "$root/usr/bin/seedlet"
# The kubelet's package has these directories, too, and its removal removes them if they are empty.
mkdir -p "$root/var/lib/kubelet" "$root/etc/kubernetes/manifests" "$root/usr/share/seedlet" "$doc"
# The path of the drop-in is of kubeadm's package.
mv "$root/lib/systemd/system/kubelet.service.d/10-kubeadm.conf" "$root/usr/share/seedlet"
rmdir "$root/lib/systemd/system/kubelet.service.d"
cp "$root/lib/systemd/system/kubelet.service" "$root/usr/share/seedlet" # see postinst
install -m 644 packaging/deb/copyright docs/install.md "$doc"

mkdir "$root/DEBIAN"
(cd "$root" && find lib usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)
size=$(find "$root" -type f -printf '%s\n' | awk '{ size += $1 } END { print int(size / 1024) + 1 }')
sed -e "s|@VERSION@|$DEB_VERSION|" -e "s|@ARCHITECTURE@|$architecture|" -e "s|@SIZE@|$size|" \
	-e "s|@MAINTAINER@|${DEB_MAINTAINER:-The Seedlet authors <seedlet@localhost>}|" \
	-e "s|@KUBERNETES@|$kubernetes|" packaging/deb/control >"$root/DEBIAN/control"
install -m 755 packaging/deb/{preinst,postinst,prerm,postrm} "$root/DEBIAN"

# One package at a time, so that bin/seedlet_*.deb is the newest.
rm -f "$out"/seedlet_*.deb
dpkg-deb --root-owner-group -Z"${DEB_COMPRESSION:-xz}" --build "$root" \
	"$out/seedlet_${DEB_VERSION}_$architecture.deb"
