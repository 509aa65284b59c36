package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

func configFile(name, body string) File { return File{Name: name, Data: []byte(header + body)} }

// loadAndFinish loads files and finishes the configuration. An error fails the test.
func loadAndFinish(t *testing.T, base *File, dropIns ...File) *Loaded {
	t.Helper()
	l, err := Load(base, dropIns, nil)
	if err == nil {
		err = l.Finish()
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLoadWithoutFilesGivesDefaults(t *testing.T) {
	l := loadAndFinish(t, nil)
	c := l.Config
	if len(l.Warnings) != 1 || !strings.HasPrefix(l.Warnings[0], "authentication.anonymous and ") {
		t.Errorf("warnings %q", l.Warnings)
	}
	if c.FileCheckFrequency.Duration != 20*time.Second || c.MaxPods != 110 ||
		*c.HealthzPort != 10248 || c.ReadOnlyPort != 10255 || !*c.Authentication.Anonymous.Enabled ||
		*c.Authentication.Webhook.Enabled || c.Authorization.Mode != "AlwaysAllow" ||
		c.PodLogsDir != "/var/log/pods" ||
		c.RuntimeRequestTimeout.Duration != 2*time.Minute || c.StaticPodPath != "" ||
		c.CrashLoopBackOff.MaxContainerRestartPeriod.Duration != 300*time.Second {
		t.Errorf("unexpected defaults: %+v", c)
	}
}

func TestLoadKubeadmFile(t *testing.T) {
	base := configFile("/var/lib/kubelet/config.yaml", `
authentication:
  anonymous: {enabled: false}
  webhook: {cacheTTL: 0s, enabled: true}
  x509: {clientCAFile: pki/ca.crt}
cgroupDriver: systemd
clusterDNS: [10.96.0.10]
crashLoopBackOff: {}
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
logging:
  flushFrequency: 0
  options:
    json: {infoBufferSize: "0"}
    text: {infoBufferSize: "0"}
  verbosity: 0
memorySwap: {}
staticPodPath: manifests
`)
	l := loadAndFinish(t, &base)
	if got := l.Config.StaticPodPath; got != "/var/lib/kubelet/manifests" {
		t.Errorf("staticPodPath %q does not start at the file", got)
	}
	if got := l.Config.Authentication.X509.ClientCAFile; got != "/var/lib/kubelet/pki/ca.crt" {
		t.Errorf("clientCAFile %q does not start at the file", got)
	}
	if len(l.Warnings) > 0 || l.Config.ReadOnlyPort != 0 {
		t.Errorf("warnings %q, read-only port %d", l.Warnings, l.Config.ReadOnlyPort)
	}
}

func TestLoadRejects(t *testing.T) {
	for _, c := range []struct{ name, data, want string }{
		{"wrong type", header + "maxPods: many\n",
			"c.yaml: maxPods: want a number (int32), have string"},
		{"bad duration", header + "fileCheckFrequency: soon\n",
			`c.yaml: fileCheckFrequency: time: invalid duration "soon"`},
		{"empty", "# nothing\n", "c.yaml: the file is empty, want kind KubeletConfiguration"},
		{"no kind", "maxPods: 5\n", "c.yaml: want apiVersion kubelet.config.k8s.io/v1beta1, " +
			`kind KubeletConfiguration; have apiVersion "", kind ""`},
		{"a list", "- 1\n", "c.yaml: want an object, have array"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Load(&File{Name: "c.yaml", Data: []byte(c.data)}, nil, nil)
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
			_, err = Load(nil, []File{{Name: "c.yaml", Data: []byte(c.data)}}, nil)
			if err == nil || err.Error() != c.want {
				t.Errorf("as a drop-in: got %v", err)
			}
		})
	}
}

// The configuration is decoded strictly first; what only a strict decoder rejects is a warning that
// names the field. In a drop-in a duplicate key is an error.
func TestLoadIsLenient(t *testing.T) {
	for _, c := range []struct {
		name, body, warning, dropIn string
		maxPods                     int32
	}{
		{"unknown field", "maxPodz: 5\nlogging: {colour: x}\n",
			"c.yaml: unknown fields, which are ignored: logging.colour, maxPodz", "", 110},
		{"wrong case", "maxpods: 5\n", "c.yaml: unknown fields, which are ignored: maxpods", "", 110},
		{"duplicate key", "maxPods: 5\nmaxPods: 6\n", `c.yaml: line 4: key "maxPods" already set in ` +
			"map: the last value counts, of the first document",
			`c.yaml: line 4: key "maxPods" already set in map`, 6},
		{"two documents", "maxPods: 7\n---\n" + header, "c.yaml: want one YAML document, have 2: " +
			"the last value counts, of the first document",
			"c.yaml: want one YAML document, have 2", 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := configFile("c.yaml", c.body)
			l, err := Load(&file, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{c.warning}, l.Warnings); diff != "" {
				t.Error(diff)
			}
			if l.Config.MaxPods != c.maxPods {
				t.Errorf("maxPods %d, want %d", l.Config.MaxPods, c.maxPods)
			}
			_, err = Load(nil, []File{file}, nil)
			if err == nil && c.dropIn != "" || err != nil && err.Error() != c.dropIn {
				t.Errorf("as a drop-in: %v, want %q", err, c.dropIn)
			}
		})
	}
}

// A default that depends on another field is that of the base file, and does not change with a
// drop-in. Without a base file the drop-ins change the defaults of a kubelet without files.
func TestDefaultsComeBeforeDropIns(t *testing.T) {
	base := configFile("/etc/base.yaml", "evictionHard: {}\n")
	dropIn := configFile("/etc/d/10.conf", "nodeStatusUpdateFrequency: 7s\n"+
		"serializeImagePulls: false\n")
	c := loadAndFinish(t, &base, dropIn).Config
	if c.NodeStatusReportFrequency.Duration != 5*time.Minute || *c.SerializeImagePulls ||
		len(c.EvictionHard) > 0 || c.ReadOnlyPort != 0 {
		t.Errorf("report %v, serialize %v, thresholds %v, read-only port %d",
			c.NodeStatusReportFrequency, *c.SerializeImagePulls, c.EvictionHard, c.ReadOnlyPort)
	}
	parallel := configFile("/etc/d/20.conf", "maxParallelImagePulls: 4\n")
	if l, err := Load(&base, []File{parallel}, nil); err != nil || l.Finish() == nil {
		t.Error("the default of serializeImagePulls followed a drop-in")
	}
	if c = loadAndFinish(t, nil, dropIn).Config; c.ReadOnlyPort != 10255 || *c.SerializeImagePulls {
		t.Errorf("without a base file: read-only port %d, %v", c.ReadOnlyPort, *c.SerializeImagePulls)
	}
}

func TestDropInsMergeAsTheKubeletDoes(t *testing.T) {
	base := configFile("/etc/base.yaml", `
port: 20250
clusterDNS: [192.168.0.9, 192.168.0.8]
authorization: {mode: Webhook, webhook: {cacheAuthorizedTTL: 5m}}
staticPodPath: /from/base
podLogsDir: /logs
`)
	l := loadAndFinish(t, &base,
		configFile("/etc/d/10.conf", `
clusterDNS: [192.168.0.2]
authorization: {webhook: {cacheUnauthorizedTTL: 45s}}
podLogsDir: null
evictionHard: {memory.available: 1Gi}
`),
		configFile("/etc/d/20.conf", "staticPodPath: here\nmaxPods: 7\n"))
	c := l.Config
	if diff := cmp.Diff([]string{"192.168.0.2"}, c.ClusterDNS); diff != "" {
		t.Error("a list must be replaced:", diff)
	}
	if a := c.Authorization; a.Webhook.CacheAuthorizedTTL.Duration != 5*time.Minute ||
		a.Webhook.CacheUnauthorizedTTL.Duration != 45*time.Second || a.Mode != "Webhook" {
		t.Errorf("an object must be merged: %+v", a)
	}
	if c.PodLogsDir != "/var/log/pods" {
		t.Errorf("null must take a field back to its default: podLogsDir %q", c.PodLogsDir)
	}
	if c.StaticPodPath != "/etc/d/here" || c.MaxPods != 7 || c.Port != 20250 {
		t.Errorf("staticPodPath %q, maxPods %d, port %d", c.StaticPodPath, c.MaxPods, c.Port)
	}
	if c.EvictionHard["memory.available"] != "1Gi" || c.EvictionHard["nodefs.available"] != "10%" {
		t.Errorf("a drop-in must change only its own thresholds: %v", c.EvictionHard)
	}
}

func TestFlagsComeBetweenFilesAndDefaults(t *testing.T) {
	base := configFile("/etc/base.yaml", "staticPodPath: /a\n")
	l, err := Load(&base, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	l.Config.StaticPodPath = "/b"
	l.Config.HealthzBindAddress = "nonsense"
	err = l.Finish()
	want := `invalid configuration: healthzBindAddress: Invalid value: "nonsense": ` +
		"must be an IP address"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if l.Config.StaticPodPath != "/b" {
		t.Errorf("the flag has no precedence: %q", l.Config.StaticPodPath)
	}
}

func TestErrorsAreOneLine(t *testing.T) {
	base := configFile("/etc/base.yaml", "address: \"a\\nb\"\nmaxPods: -1\n")
	l, err := Load(&base, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = l.Finish()
	if err == nil || strings.Contains(err.Error(), "\n") ||
		!strings.Contains(err.Error(), "maxPods") || !strings.Contains(err.Error(), "address") {
		t.Errorf("got %v", err)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(header), []byte(header+"maxPods: 3\n"))
	f.Add([]byte(header+"logging: {verbosity: 3}\n"), []byte(header+"logging: null\n"))
	f.Add([]byte("a: &a [*a]"), []byte("{}"))
	f.Fuzz(func(t *testing.T, base, dropIn []byte) {
		l, err := Load(&File{Name: "/a", Data: base}, []File{{Name: "/b", Data: dropIn}}, nil)
		if err == nil {
			err = l.Finish()
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("error of several lines: %q", err)
		}
	})
}

// Manifests that are fetched over plain HTTP are worth a warning.
func TestPlainStaticPodURL(t *testing.T) {
	for source, want := range map[string]int{"http://192.0.2.1/pods": 1, "HTTP://a/pods": 1,
		"https://a/pods": 0} {
		base := configFile("/c", "staticPodURL: "+source+"\n")
		l := loadAndFinish(t, &base)
		if len(l.Warnings) != want || want > 0 && !strings.HasPrefix(l.Warnings[0], "staticPodURL: ") {
			t.Errorf("%s: warnings %q", source, l.Warnings)
		}
	}
}
