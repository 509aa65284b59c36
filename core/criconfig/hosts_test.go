package criconfig

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

func TestHostsFileAndHostname(t *testing.T) {
	p := withVolume(v1.VolumeMount{MountPath: "/data"})
	p.Spec.Spec.Subdomain = "db"
	p.Spec.Spec.HostAliases = []v1.HostAlias{{IP: "1.2.3.4", Hostnames: []string{"x", "y"}}}
	p.IPs = []string{"10.0.0.9"}
	p.Node.DNS.Domain = "cluster.local"
	p.Node.Hosts.Text = "127.0.0.1 node\n"
	aliases := "\n# Entries added by HostAliases.\n1.2.3.4\tx\ty\n"
	end := "fe00::2\tip6-allrouters\n10.0.0.9\tp.db.default.svc.cluster.local\tp\n" + aliases
	if got := p.HostsFileContent(); !strings.HasSuffix(got, end) ||
		!strings.HasPrefix(got, "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n") {
		t.Errorf("the hosts file is\n%s", got)
	}
	p.Spec.Spec.SetHostnameAsFQDN = ref(true)
	if got, err := p.SandboxHostname(); got != "p.db.default.svc.cluster.local" || err != nil {
		t.Errorf("host name %q, %v", got, err)
	}
	p.Spec.Spec.Subdomain = strings.Repeat("d", 60)
	long := p.Spec.Spec.Subdomain
	want := "failed to construct FQDN from pod hostname and cluster domain, FQDN p." + long +
		".default.svc.cluster.local is too long (64 characters is the max, 88 characters requested)"
	if _, err := p.SandboxHostname(); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	p.Spec.Spec.HostnameOverride = ref(strings.Repeat("h", 62) + ".x")
	if got, err := p.SandboxHostname(); got != strings.Repeat("h", 62) || err != nil {
		t.Errorf("host name %q, %v", got, err)
	}
	p.Spec.Spec.HostnameOverride = nil
	p.Spec.Spec.HostNetwork = true
	want = "# Kubernetes-managed hosts file (host network).\n127.0.0.1 node\n" + aliases
	if diff := cmp.Diff(want, p.HostsFileContent()); diff != "" {
		t.Error(diff)
	}
	if !p.NeedsHostsFile(p.web()) {
		t.Error("the hosts file is not mounted")
	}
	p.Spec.Spec.Containers[0].VolumeMounts[0].MountPath = "/etc/hosts"
	if p.NeedsHostsFile(p.web()) {
		t.Error("the hosts file is mounted over a mount of the container itself")
	}
}

// A host name is cut to 63 characters, and does not end with a hyphen then.
func TestHostnameOverrideIsCut(t *testing.T) {
	p := newPod()
	for name, want := range map[string]string{
		"a.b": "a.b", strings.Repeat("x", 64): strings.Repeat("x", 63),
		strings.Repeat("x", 62) + "-x": strings.Repeat("x", 62),
	} {
		p.Spec.Spec.HostnameOverride = &name
		if got, err := p.SandboxHostname(); got != want || err != nil {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}
