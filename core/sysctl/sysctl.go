// Package sysctl decides which kernel parameters a pod may set: the safe ones, which do not affect
// other pods, and those that the node's allowedUnsafeSysctls allow. A pod that shares a namespace
// with the host may not set the parameters of that namespace.
// https://kubernetes.io/docs/tasks/administer-cluster/sysctl-cluster/
//
// It has no state. Start reading at ForbiddenMessage.
package sysctl

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Reason is the kubelet's reason in the status of a rejected pod.
const Reason = "SysctlForbidden"

// ForbiddenMessage returns why a pod may not set its parameters; empty if it may. The allowed
// patterns are those of the node's configuration.
func ForbiddenMessage(spec *v1.PodSpec, allowed []string) string {
	if spec.SecurityContext == nil {
		return ""
	}
	for _, s := range spec.SecurityContext.Sysctls {
		name := NormalizeName(s.Name)
		matchesName := func(pattern string) bool { return matches(pattern, name) }
		ns := namespaceOf(name)
		if !slices.Contains(safeSysctls, name) {
			i := slices.IndexFunc(allowed, matchesName)
			if i < 0 {
				return fmt.Sprintf("forbidden sysctl: %q not allowlisted", name)
			}
			prefix, _ := splitPattern(allowed[i])
			ns = namespaceOf(prefix)
		}
		if ns == ipc && spec.HostIPC || ns == network && spec.HostNetwork {
			return fmt.Sprintf("forbidden sysctl: %q not allowed with host %s enabled", name, ns)
		}
	}
	return ""
}

// IsNamespaced reports whether all parameters that match a pattern belong to a namespace. Only such
// patterns can be allowed.
func IsNamespaced(pattern string) bool {
	prefix, _ := splitPattern(pattern)
	return namespaceOf(prefix) != ""
}

// NormalizeName returns the name of a parameter with dots as separators, as runtimes require. If
// the first separator is a slash then slashes are the separators, and dots belong to names of
// interfaces.
func NormalizeName(written string) string {
	if i := strings.IndexAny(written, "./"); i < 0 || written[i] == '.' {
		return written
	}
	return strings.NewReplacer("/", ".", ".", "/").Replace(written)
}

func matches(pattern, name string) bool {
	prefix, isOpen := splitPattern(pattern)
	return name == prefix || isOpen && strings.HasPrefix(name, prefix)
}

// splitPattern returns a pattern up to its asterisk, and whether it has one.
func splitPattern(pattern string) (string, bool) {
	prefix, _, isOpen := strings.Cut(NormalizeName(pattern), "*")
	return prefix, isOpen
}

// safeSysctls are the parameters that a pod can set without an effect on others.
var safeSysctls = []string{
	"kernel.shm_rmid_forced",
	"net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports",
	"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range",
	"net.ipv4.tcp_syncookies", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_time",
	"net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes",
	"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
}

// namespace is a namespace of the kernel, as the kubelet's messages name it.
type namespace string

const (
	ipc     namespace = "IPC"
	network namespace = "Net"
)

// ipcPrefixes are the parameters of the IPC namespace, and the prefixes of patterns for them.
var ipcPrefixes = []string{
	"kernel.sem", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced",
	"kernel.shm", "kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.msg",
}

// namespaceOf returns the namespace of a parameter, or of all that begin with a prefix; empty if it
// is unknown.
func namespaceOf(name string) namespace {
	switch {
	case slices.Contains(ipcPrefixes, name), strings.HasPrefix(name, "fs.mqueue."):
		return ipc
	case strings.HasPrefix(name, "net."):
		return network
	}
	return ""
}
