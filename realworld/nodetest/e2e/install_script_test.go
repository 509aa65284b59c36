package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"seedlet.dev/realworld/provision"
)

// TestInstallRefuses has make install refuse what makes no service, before anything is written.
func TestInstallRefuses(t *testing.T) {
	checkout, err := provision.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	const path = ": want a path from /, of letters, digits and . _ / + -"
	for _, test := range []struct{ goal, variables, want string }{
		{"install", "NAME=node", "NAME=node: want kubelet or seedlet"},
		{"uninstall", "NAME=", "NAME=: want kubelet or seedlet"},
		{"install", "KUBEADM=true", "KUBEADM=true: want yes or no"},
		{"install", "PREFIX=opt", "BINDIR=opt/bin" + path},
		{"uninstall", "UNITDIR=/a b", "UNITDIR=/a b" + path},
		{"install", "DEFAULTDIR=/a|b", "DEFAULTDIR=/a|b" + path},
		{"install", "AGENT=/", "AGENT=/ is no program: run make build first"},
	} {
		t.Run(test.goal+" "+test.variables, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.Command("make", test.goal, "DESTDIR="+dir, test.variables)
			cmd.Dir = checkout
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "hack/install.sh: "+test.want+"\n") {
				t.Errorf("%v, it prints %q, want %q", err, out, test.want)
			}
			if found, err := filepath.Glob(dir + "/*"); err != nil || len(found) > 0 {
				t.Errorf("written: %q, %v", found, err)
			}
		})
	}
}
