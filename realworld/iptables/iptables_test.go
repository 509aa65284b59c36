package iptables

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// namespace makes a network namespace of the test's own, and returns how to run a command in it.
func namespace(t *testing.T) []string {
	t.Helper()
	name := fmt.Sprintf("seedlet-iptables-%d", os.Getpid())
	run(t, "ip", "netns", "add", name)
	t.Cleanup(func() { run(t, "ip", "netns", "delete", name) })
	return []string{"ip", "netns", "exec", name}
}

func run(t *testing.T, command ...string) string {
	t.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", command, err, out)
	}
	return strings.TrimSpace(string(out))
}

// The chains are those of the kubelet, exist once however often they are made, and are made again
// when a firewall has removed them. Rules of others stay.
func TestChainsAndRules(t *testing.T) {
	prefix := namespace(t)
	in := func(command ...string) string { return run(t, append(prefix, command...)...) }
	r := &Rules{opts: Options{Prefix: prefix}}
	in("iptables", "-A", "INPUT", "-s", "192.0.2.1/32", "-j", "ACCEPT")
	want := strings.Join([]string{"-P INPUT ACCEPT", "-P FORWARD ACCEPT", "-P OUTPUT ACCEPT",
		"-N KUBE-FIREWALL", "-A INPUT -j KUBE-FIREWALL", "-A INPUT -s 192.0.2.1/32 -j ACCEPT",
		"-A OUTPUT -j KUBE-FIREWALL",
		`-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment ` +
			`"block incoming localnet connections" -m conntrack ` +
			`! --ctstate RELATED,ESTABLISHED,DNAT -j DROP`}, "\n")
	for _, before := range []string{"", "", "-D OUTPUT -j KUBE-FIREWALL", "-F KUBE-FIREWALL"} {
		if before != "" {
			in(append([]string{"iptables"}, strings.Fields(before)...)...)
		}
		for _, program := range []string{"iptables", "ip6tables"} {
			if err := r.Sync(t.Context(), program); err != nil {
				t.Fatal(err)
			}
			if got := in(program, "-t", "mangle", "-S", hintChain); got != "-N "+hintChain {
				t.Errorf("%s: hint %q", program, got)
			}
		}
		if d := cmp.Diff(want, in("iptables", "-S")); d != "" {
			t.Errorf("after %q: %s", before, d)
		}
	}
	if got := in("ip6tables", "-S"); strings.Contains(got, firewallChain) {
		t.Errorf("IPv6 has the firewall: %s", got)
	}
}

// A failure is reported once, and the rest is kept all the same.
func TestFailuresAreReportedOnce(t *testing.T) {
	var reports []string
	r := &Rules{opts: Options{Prefix: []string{"false"},
		Report: func(program string, err error) {
			reports = append(reports, fmt.Sprint(program, " ", err != nil))
		}}, last: map[string]string{}}
	r.syncAll(t.Context())
	r.syncAll(t.Context())
	r.opts.Prefix = []string{"true"}
	r.syncAll(t.Context())
	want := []string{"iptables true", "ip6tables true", "iptables false", "ip6tables false"}
	if d := cmp.Diff(want, reports); d != "" {
		t.Error(d)
	}
	r.opts.Prefix = []string{"/no/such/program"}
	if err := r.Sync(t.Context(), "iptables"); err == nil {
		t.Error("no error without the program")
	}
}

// Close ends a program that hangs.
func TestCloseWhileAProgramHangs(t *testing.T) {
	r := Keep(Options{Prefix: []string{"sh", "-c", "exec sleep 60"}, Report: func(string, error) {}})
	time.Sleep(50 * time.Millisecond)
	start := time.Now()
	r.Close()
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("closed after %s", took)
	}
}
