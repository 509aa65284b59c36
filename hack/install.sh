#!/bin/bash
# Installs or removes the agent and its unit: hack/install.sh install|uninstall
#
# From the environment, all set by the Makefile: AGENT, the built program; NAME, kubelet or seedlet, of
# the program and of the service; BINDIR, UNITDIR, DEFAULTDIR; DESTDIR, which is put before the paths of
# what is written; KUBEADM=yes for kubeadm's drop-in, or no.
set -euo pipefail
umask 022
cd "$(dirname "$0")/.."

refuse() {
	echo "hack/install.sh: $1" >&2
	exit 2
}

case ${1:-} in
install | uninstall) ;;
*) refuse "want install or uninstall" ;;
esac
case ${NAME:-} in
kubelet) other=seedlet ;;
seedlet) other=kubelet ;;
*) refuse "NAME=${NAME:-}: want kubelet or seedlet" ;;
esac
case ${KUBEADM:=no} in
yes | no) ;;
*) refuse "KUBEADM=$KUBEADM: want yes or no" ;;
esac
# systemd wants whole paths, and has a meaning for spaces, quotes, % and $ in them.
for variable in BINDIR UNITDIR DEFAULTDIR; do
	if [[ ! ${!variable:-} =~ ^/[A-Za-z0-9._/+-]+$ ]]; then
		refuse "$variable=${!variable:-}: want a path from /, of letters, digits and . _ / + -"
	fi
done
bindir=${DESTDIR:=}$BINDIR unitdir=$DESTDIR$UNITDIR
dropin=$unitdir/$NAME.service.d/10-kubeadm.conf

# fill FROM TO removes comments about the template, and replaces words between at signs. A file is
# replaced as a whole.
fill() {
	sed -e '1,2{/^#@/d; /^$/d}' -e "s|@NAME@|$NAME|g" -e "s|@OTHER@|$other|g" -e "s|@BINDIR@|$BINDIR|g" \
		-e "s|@DEFAULTDIR@|$DEFAULTDIR|g" "$1" >"$2.new"
	chmod 644 "$2.new"
	mv -f "$2.new" "$2"
}

case $1 in
install)
	if [[ ! -f ${AGENT:-} || ! -x $AGENT ]]; then
		refuse "AGENT=${AGENT:-} is no program: run make build first"
	fi
	mkdir -p "$bindir" "$unitdir"
	# A rename, so that a restart meanwhile finds the old program or the new one.
	install -m 755 "$AGENT" "$bindir/$NAME.new"
	mv -f "$bindir/$NAME.new" "$bindir/$NAME"
	fill packaging/agent.service "$unitdir/$NAME.service"
	if [[ $KUBEADM == yes ]]; then
		mkdir -p "${dropin%/*}"
		fill packaging/10-kubeadm.conf "$dropin"
	fi
	;;
uninstall)
	rm -f "$bindir/$NAME" "$unitdir/$NAME.service" "$dropin"
	if [[ -d ${dropin%/*} ]]; then
		rmdir --ignore-fail-on-non-empty "${dropin%/*}"
	fi
	;;
esac
