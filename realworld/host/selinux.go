package host

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strings"
)

// hasSELinux reports whether SELinux is enabled. While it is disabled, processes have the label of
// the kernel.
func hasSELinux(root string) bool {
	label := firstLine(root, "proc/self/attr/current")
	_, err := os.Stat(filepath.Join(root, "sys/fs/selinux/enforce"))
	return err == nil && label != "" && label != "kernel"
}

// seLinuxFileLabel returns the label of the files of containers, where runtimes find it
// (openContextFile and policyRoot in github.com/opencontainers/selinux/go-selinux); empty if
// SELinux is disabled, or the policy has no labels of containers.
func seLinuxFileLabel(root string) string {
	if !hasSELinux(root) {
		return ""
	}
	policy := assignments(root, "etc/selinux/config")["SELINUXTYPE"]
	labels := assignments(root, "usr/share/containers/selinux/contexts",
		filepath.Join("etc/selinux", policy, "contexts/lxc_contexts"))
	if labels["process"] == "" {
		return ""
	}
	return labels["file"]
}

// assignments returns the values in the first of some files that can be read, by name. Each line
// has one, as `name = "value"`; those that begin with # or ; are comments.
func assignments(root string, names ...string) map[string]string {
	values := map[string]string{}
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
			line := strings.TrimSpace(lines.Text())
			name, value, isOne := strings.Cut(line, "=")
			if isOne && line[0] != '#' && line[0] != ';' {
				values[strings.TrimSpace(name)] = strings.Trim(strings.TrimSpace(value), `"`)
			}
		}
		break
	}
	return values
}
