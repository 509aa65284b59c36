package config

import (
	"strings"
	"testing"
)

// warningOf returns the warning of a configuration that begins with a text; empty if there is none.
func warningOf(t *testing.T, begin, body string) string {
	t.Helper()
	file := configFile("c.yaml", body)
	for _, warning := range loadAndFinish(t, &file).Warnings {
		if strings.HasPrefix(warning, begin) {
			return warning
		}
	}
	return ""
}

// A port that is open to everybody is a warning, with the port. What closes it takes that away.
func TestOpenPortWarning(t *testing.T) {
	const open = "authentication: {anonymous: {enabled: true}}\n" +
		"authorization: {mode: AlwaysAllow}\nport: 12345\n"
	const begin = "authentication.anonymous and authorization.mode: "
	if got := warningOf(t, begin, open); !strings.Contains(got, "any client that reaches port 12345") {
		t.Errorf("warning %q", got)
	}
	for name, body := range map[string]string{
		"no server":          open + "enableServer: false\n",
		"no debugging":       open + "enableDebuggingHandlers: false\n",
		"no anonymous":       strings.Replace(open, "true", "false", 1),
		"authorization asks": strings.Replace(open, "AlwaysAllow", "Webhook", 1),
	} {
		if got := warningOf(t, begin, body); got != "" {
			t.Errorf("%s: warning %q", name, got)
		}
	}
}

// The agent's own cgroup is not counted if it is outside of what is reserved for it.
func TestKubeletCgroupsWarning(t *testing.T) {
	const begin = "kubeletCgroups: "
	got := warningOf(t, begin, "kubeletCgroups: /other\nkubeReservedCgroup: /reserved\n")
	if !strings.Contains(got, "/other is not in kubeReservedCgroup, /reserved: ") {
		t.Errorf("warning %q", got)
	}
	for _, body := range []string{"", "kubeReservedCgroup: /reserved\n", "kubeletCgroups: /other\n",
		"kubeletCgroups: /reserved/agent\nkubeReservedCgroup: /reserved\n"} {
		if got := warningOf(t, begin, body); got != "" {
			t.Errorf("%q: warning %q", body, got)
		}
	}
}
