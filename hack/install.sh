#!/bin/bash
# Installs or removes the agent and its unit: hack/install.sh install|uninstall
#
# From the environment, all set by the Makefile: AGENT, the built program; NAME, kubelet or seedlet, of
# the program and of the service; BINDIR, UNITDIR, DEFAULTDIR; DESTDIR, which is put before all of
# them; KUBEADM=yes for kubeadm's drop-in.
set -euo pipefail
umask 022
cd "$(dirname "$0")/.."

case $NAME in
kubelet) other=seedlet ;;
seedlet) other=kubelet ;;
*)
	echo "NAME=$NAME: want kubelet or seedlet" >&2
	exit 2
	;;
esac
bindir=$DESTDIR$BINDIR unitdir=$DESTDIR$UNITDIR
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
	if [[ ! -x $AGENT ]]; then
		echo "there is no $AGENT: run make build first" >&2
		exit 1
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
