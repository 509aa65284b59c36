package e2e

import (
	"slices"
	"strings"
	"testing"
)

var securityContextParts = []part{
	{"user, group and supplemental groups", true, func(t *testing.T, s *suite) {
		s.runPod(t, "user", `
  securityContext: {runAsUser: 1000, runAsGroup: 2000, supplementalGroups: [3000]}
  containers:
  - {name: main, image: sample, args: [report, --stay]}
  - name: own
    image: sample
    args: [report, --stay]
    securityContext: {runAsUser: 1001, runAsNonRoot: true}`)
		main, own := s.waitReport(t, "user", "main"), s.waitReport(t, "user", "own")
		if main.UID != 1000 || main.GID != 2000 || !slices.Contains(main.Groups, 3000) {
			t.Errorf("main runs as %d:%d with groups %v", main.UID, main.GID, main.Groups)
		}
		if own.UID != 1001 || own.GID != 2000 || !slices.Contains(own.Groups, 3000) {
			t.Errorf("own runs as %d:%d with groups %v", own.UID, own.GID, own.Groups)
		}
	}},
	{"runAsNonRoot refuses root", true, func(t *testing.T, s *suite) {
		s.runPod(t, "notroot", `
  securityContext: {runAsNonRoot: true, runAsUser: 0}
  containers:
  - {name: main, image: sample, args: [report]}`)
		message := s.waitWaiting(t, "notroot", "main", "CreateContainerConfigError")
		if !strings.Contains(message, "breaks non-root policy") {
			t.Errorf("the message is %q", message)
		}
		if c := s.newestContainer(t, "notroot", "main"); c != nil {
			t.Errorf("the container was created: %v", c)
		}
	}},
	{"capabilities, privileges, seccomp and the root file system", false, testRestrictions},
	{"host name, directory and sysctls", true, func(t *testing.T, s *suite) {
		s.runPod(t, "sysctls", `
  hostname: custom
  securityContext:
    sysctls: [{name: net.ipv4.ip_local_port_range, value: "2000 3000"}]
  containers:
  - name: main
    image: sample
    workingDir: /tmp
    args: [report, --stay, /proc/sys/net/ipv4/ip_local_port_range, /etc/hostname]`)
		r := s.waitReport(t, "sysctls", "main")
		got := strings.Fields(r.Paths["/proc/sys/net/ipv4/ip_local_port_range"].Text)
		if !slices.Equal(got, []string{"2000", "3000"}) {
			t.Errorf("ip_local_port_range is %q", got)
		}
		if file := r.Paths["/etc/hostname"].Text; r.Host != "custom" || file != "custom\n" {
			t.Errorf("the host name is %q, in the file %q", r.Host, file)
		}
		if r.Dir != "/tmp" {
			t.Errorf("the working directory is %s", r.Dir)
		}
	}},
	{"shareProcessNamespace shares processes", false, func(t *testing.T, s *suite) {
		const containers = `
  containers:
  - {name: other, image: sample, args: [sleep]}
  - {name: main, image: sample, args: [report, --stay]}`
		s.runPod(t, "shared", "\n  shareProcessNamespace: true"+containers)
		s.runPod(t, "apart", strings.TrimPrefix(containers, "\n"))
		shared, apart := s.waitReport(t, "shared", "main"), s.waitReport(t, "apart", "main")
		if !slices.Contains(shared.Processes, "/sample sleep") || len(shared.Processes) != 3 {
			t.Errorf("with shared processes main sees %q", shared.Processes)
		}
		if len(apart.Processes) != 1 {
			t.Errorf("without shared processes main sees %q", apart.Processes)
		}
	}},
	{"hostNetwork and hostPID share the host's network and processes", true,
		func(t *testing.T, s *suite) {
			s.runPod(t, "onhost", `
  hostNetwork: true
  hostPID: true
  containers:
  - {name: main, image: sample, args: [report, --stay, /sys/class/net]}`)
			r := s.waitReport(t, "onhost", "main")
			if len(r.Processes) < 10 {
				t.Errorf("main sees %d processes", len(r.Processes))
			}
			bridge := func(name string) bool { return strings.HasPrefix(name, "sdl-") }
			if !slices.ContainsFunc(r.Paths["/sys/class/net"].Entries, bridge) {
				t.Errorf("main sees the networks %q", r.Paths["/sys/class/net"].Entries)
			}
		}},
}

// testRestrictions compares containers with the default, a restricted and a privileged security
// context.
func testRestrictions(t *testing.T, s *suite) {
	s.runPod(t, "restricted", `
  containers:
  - {name: usual, image: sample, args: [report, --stay]}
  - name: little
    image: sample
    args: [report, --stay]
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}
      seccompProfile: {type: RuntimeDefault}
  - {name: all, image: sample, args: [report, --stay], securityContext: {privileged: true}}`)
	for _, c := range []struct {
		name                string
		caps, privs, filter string
		writable            bool
	}{
		{"usual", "00000000a80425fb", "0", "0", true},
		{"little", "0000000000000400", "1", "2", false},
	} {
		r := s.waitReport(t, "restricted", c.name)
		if r.Status["CapEff"] != c.caps || r.Status["NoNewPrivs"] != c.privs ||
			r.Status["Seccomp"] != c.filter || r.Writable != c.writable {
			t.Errorf("%s has capabilities %s, no new privileges %s, seccomp %s, writable %t",
				c.name, r.Status["CapEff"], r.Status["NoNewPrivs"], r.Status["Seccomp"], r.Writable)
		}
	}
	all := s.waitReport(t, "restricted", "all")
	if all.Status["CapEff"] <= "00000000a80425fb" { // equal lengths order like numbers
		t.Errorf("a privileged container has capabilities %s", all.Status["CapEff"])
	}
}
