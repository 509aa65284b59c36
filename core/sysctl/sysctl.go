// Package sysctl says which kernel parameters a pod may set: those that do no harm to others, and
// what the node's allowedUnsafeSysctls allow besides. None of them may be the host's.
// https://kubernetes.io/docs/tasks/administer-cluster/sysctl-cluster/
//
// It keeps nothing; its functions are of the names only. Start reading at Forbidden.
package sysctl

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Reason is that of the status of a pod that may not run, in the kubelet's word.
const Reason = "SysctlForbidden"

// Forbidden is why a pod may not set what it sets; empty if it may. Allowed are patterns of the
// node's configuration.
func Forbidden(spec *v1.PodSpec, allowed []string) string {
	if spec.SecurityContext == nil {
		return ""
	}
	for _, s := range spec.SecurityContext.Sysctls {
		name := Name(s.Name)
		is := func(pattern string) bool { return matches(pattern, name) }
		of := namespaceOf(name)
		if !slices.Contains(safe, name) {
			i := slices.IndexFunc(allowed, is)
			if i < 0 {
				return fmt.Sprintf("forbidden sysctl: %q not allowlisted", name)
			}
			prefix, _ := cut(allowed[i])
			of = namespaceOf(prefix)
		}
		if of == ipc && spec.HostIPC || of == network && spec.HostNetwork {
			return fmt.Sprintf("forbidden sysctl: %q not allowed with host %s enabled", name, of)
		}
	}
	return ""
}

// Namespaced says whether everything that a pattern fits belongs to a namespace, so that it can be
// allowed to pods.
func Namespaced(pattern string) bool {
	prefix, _ := cut(pattern)
	return namespaceOf(prefix) != ""
}

// Name is a parameter's name with dots between its parts, as runtimes want it. If the first
// separator is a slash then slashes separate, and dots are in the names of interfaces.
func Name(written string) string {
	if i := strings.IndexAny(written, "./"); i < 0 || written[i] == '.' {
		return written
	}
	return strings.NewReplacer("/", ".", ".", "/").Replace(written)
}

func matches(pattern, name string) bool {
	prefix, open := cut(pattern)
	return name == prefix || open && strings.HasPrefix(name, prefix)
}

// cut is a pattern up to its asterisk, and whether it has one.
func cut(pattern string) (string, bool) {
	prefix, _, open := strings.Cut(Name(pattern), "*")
	return prefix, open
}

// safe are those that a pod can set without doing harm to others.
var safe = []string{
	"kernel.shm_rmid_forced",
	"net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports",
	"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range",
	"net.ipv4.tcp_syncookies", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_time",
	"net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes",
	"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
}

// namespace is one of the kernel's, in the kubelet's words.
type namespace string

const (
	ipc     namespace = "IPC"
	network namespace = "Net"
)

// ofIPC are the parameters of the IPC namespace, and the beginnings of patterns that mean them.
var ofIPC = []string{
	"kernel.sem", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced",
	"kernel.shm", "kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.msg",
}

// namespaceOf is where a parameter, or all that begin so, belong; empty if that is not known.
func namespaceOf(name string) namespace {
	switch {
	case slices.Contains(ofIPC, name), strings.HasPrefix(name, "fs.mqueue."):
		return ipc
	case strings.HasPrefix(name, "net."):
		return network
	}
	return ""
}
