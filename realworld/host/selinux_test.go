package host_test

import (
	"path/filepath"
	"testing"

	"seedlet.dev/realworld/host"
)

// The label of containers' files is found where runtimes find it.
func TestSELinuxFileLabel(t *testing.T) {
	const config, lxc = "etc/selinux/config", "etc/selinux/targeted/contexts/lxc_contexts"
	const label = "system_u:object_r:container_file_t:s0"
	const contexts = "; of containers\nprocess = \"system_u:system_r:container_t:s0\"\n" +
		"# file = \"x\"\n\n  file=\"" + label + "\"  \nno assignment\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"policy": {map[string]string{config: "# SELINUXTYPE=mls\nSELINUX=permissive\n" +
			"SELINUXTYPE=targeted\n", lxc: contexts}, label},
		"the package of the runtimes": {map[string]string{
			"usr/share/containers/selinux/contexts": "process = \"a:b:c\"\nfile = \"u:r:t:s0\"\n",
			config:                                  "SELINUXTYPE=targeted\n", lxc: contexts}, "u:r:t:s0"},
		"no policy":  {map[string]string{lxc: contexts}, ""},
		"no process": {map[string]string{config: "SELINUXTYPE=targeted", lxc: "file = \"u:r:t\""}, ""},
		"disabled": {map[string]string{"proc/self/attr/current": "kernel",
			config: "SELINUXTYPE=targeted", lxc: contexts}, ""},
	} {
		root := t.TempDir()
		for name, text := range map[string]string{"proc/sys/kernel/random/boot_id": "a\n",
			"proc/meminfo": "MemTotal: 2048 kB\n", "sys/fs/selinux/enforce": "1",
			"proc/self/attr/current": "system_u:system_r:kubelet_t:s0\x00"} {
			write(t, filepath.Join(root, name), text)
		}
		for name, text := range c.files {
			write(t, filepath.Join(root, name), text)
		}
		boot, err := host.Boot(root, root, host.IDFiles{})
		if err != nil || boot.Machine.SELinuxFileLabel != c.want {
			t.Errorf("%s: %q, %v, want %q", name, boot.Machine.SELinuxFileLabel, err, c.want)
		}
	}
}
