package iptables

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// namespace makes a network namespace of the test's own, and returns how to run a command in it.
func namespace(t *testing.T, name string) []string {
	t.Helper()
	name = fmt.Sprintf("seedlet-iptables-%s-%d", name, os.Getpid())
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

// variant returns how to run a command in a network namespace where iptables and ip6tables are of
// one variant, and skips if the machine does not have its programs or the kernel not its tables.
func variant(t *testing.T, name string) (prefix []string) {
	t.Helper()
	dir := t.TempDir()
	for _, program := range []string{"iptables", "ip6tables"} {
		path, err := exec.LookPath(program + "-" + name)
		if err != nil {
			t.Skip(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, program)); err != nil {
			t.Fatal(err)
		}
	}
	prefix = append(namespace(t, name), "env", "PATH="+dir+":"+os.Getenv("PATH"))
	for _, program := range []string{"iptables", "ip6tables"} {
		for _, table := range []string{"filter", "mangle"} {
			list := append(slices.Clone(prefix), program, "-t", table, "-S")
			if out, err := exec.Command(list[0], list[1:]...).CombinedOutput(); err != nil {
				t.Skipf("the kernel has no table %s for %s-%s: %s", table, program, name, out)
			}
		}
	}
	return prefix
}

// The machine's iptables is one of the variants, and works.
func TestVariants(t *testing.T) {
	checked := 0
	for _, name := range []string{"nft", "legacy"} {
		t.Run(name, func(t *testing.T) {
			checkChainsAndRules(t, variant(t, name), name)
			checked++
		})
	}
	if checked == 0 {
		t.Error("no variant of iptables works on this machine")
	}
}

// checkChainsAndRules checks that the chains are those of the kubelet, exist once however often
// they are made, and are made again when a firewall has removed them. Rules of others stay. The
// other variant gets no chain: KUBE-IPTABLES-HINT tells containers which one the machine uses.
func checkChainsAndRules(t *testing.T, prefix []string, name string) {
	t.Helper()
	in := func(command ...string) string {
		return run(t, append(slices.Clone(prefix), command...)...)
	}
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
	other := map[string]string{"nft": "legacy", "legacy": "nft"}[name]
	for _, program := range []string{"iptables", "ip6tables"} {
		save := append(slices.Clone(prefix), program+"-"+other+"-save")
		out, err := exec.Command(save[0], save[1:]...).CombinedOutput()
		if err == nil && strings.Contains(string(out), "KUBE-") {
			t.Errorf("%s has chains, too: %s", save, out)
		}
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
