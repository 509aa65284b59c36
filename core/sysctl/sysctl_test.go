package sysctl

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestForbiddenMessage(t *testing.T) {
	for _, test := range []struct {
		name         string
		allowed      []string
		hostIPC, net bool
		want         string
	}{
		{name: "net.ipv4.tcp_syncookies"},
		{name: "net/ipv4/tcp_syncookies"},
		{name: "kernel.msgmax", want: `forbidden sysctl: "kernel.msgmax" not allowlisted`},
		{name: "vm.swappiness", allowed: []string{"net.*", "kernel.msg*"},
			want: `forbidden sysctl: "vm.swappiness" not allowlisted`},
		{name: "kernel.msgmax", allowed: []string{"net.*", "kernel.msg*"}},
		{name: "kernel.msgmax", allowed: []string{"kernel/msg*"}},
		{name: "net.core.somaxconn", allowed: []string{"net.core.somaxconn"}},
		{name: "net.core.somaxconn2", allowed: []string{"net.core.somaxconn"},
			want: `forbidden sysctl: "net.core.somaxconn2" not allowlisted`},
		{name: "net/ipv4/conf/eth0.100/rp_filter", allowed: []string{"net.ipv4.conf.*"}},
		{name: "fs.mqueue.msg_max", allowed: []string{"fs.mqueue.*"}, hostIPC: true,
			want: `forbidden sysctl: "fs.mqueue.msg_max" not allowed with host IPC enabled`},
		{name: "kernel.msgfoo", allowed: []string{"kernel.msg*"}, hostIPC: true,
			want: `forbidden sysctl: "kernel.msgfoo" not allowed with host IPC enabled`},
		{name: "net.core.somaxconn", allowed: []string{"net.*"}, hostIPC: true},
		{name: "net.core.somaxconn", allowed: []string{"net.*"}, net: true,
			want: `forbidden sysctl: "net.core.somaxconn" not allowed with host Net enabled`},
	} {
		spec := &v1.PodSpec{HostIPC: test.hostIPC, HostNetwork: test.net,
			SecurityContext: &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: test.name}}}}
		if got := ForbiddenMessage(spec, test.allowed); got != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
	if got := ForbiddenMessage(&v1.PodSpec{}, nil); got != "" {
		t.Errorf("a pod without sysctls: %q", got)
	}
}

// A parameter that is safe in the pod's own namespace changes the host in the host's namespace.
func TestSafeSysctlsNeedTheirOwnNamespace(t *testing.T) {
	for _, name := range safeSysctls {
		sets := &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: name}}}
		ofIPC := namespaceOf(name) == ipc
		for _, spec := range []v1.PodSpec{{}, {HostIPC: true}, {HostNetwork: true}} {
			spec.SecurityContext = sets
			want := spec.HostIPC && ofIPC || spec.HostNetwork && !ofIPC
			if got := ForbiddenMessage(&spec, nil); (got != "") != want {
				t.Errorf("%s, host IPC %v, network %v: %q", name, spec.HostIPC, spec.HostNetwork, got)
			}
		}
	}
}

func TestIsNamespaced(t *testing.T) {
	for pattern, want := range map[string]bool{
		"kernel.msg*": true, "kernel.shm*": true, "kernel.sem": true, "net.*": true,
		"net.ipv4.conf.*": true, "fs.mqueue.*": true, "kernel/msgmax": true, "kernel.shmm*": false,
		"*": false, "kernel.*": false, "vm.swappiness": false, "net": false, "": false,
	} {
		if IsNamespaced(pattern) != want {
			t.Errorf("%q: %v", pattern, !want)
		}
	}
}
