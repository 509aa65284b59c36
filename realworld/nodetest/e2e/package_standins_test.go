package e2e

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// flagsFile has the administrator's flags of the service kubelet.
const flagsFile = "/etc/default/kubelet"

// Packages as those of Kubernetes 1.36 are, of programs that wait. Relations, paths and scripts are
// those of kubernetes/release (cmd/krel/templates/latest): the kubelet's needs kubernetes-cni,
// enables its service, does not start it, and disables it when it is removed; kubeadm's needs none
// since 1.32, and has a drop-in.
var (
	kubeletPackage = map[string]string{
		"DEBIAN/control": controlOf("kubelet", "1.36.3-1.1") +
			"Depends: kubernetes-cni (>= 1.2.0), mount, util-linux\nRecommends: iptables (>= 1.8.4)\n",
		"DEBIAN/conffiles": flagsFile + "\n",
		"DEBIAN/postinst": "#!/bin/sh\nsystemctl --no-reload preset kubelet\n" +
			"systemctl daemon-reload\n",
		"DEBIAN/prerm": "#!/bin/sh\nif [ $1 = remove ]; then\n" +
			"systemctl --no-reload disable kubelet\nsystemctl stop kubelet\nfi\n",
		"usr/bin/kubelet": "#!/bin/sh\nexec sleep infinity\n",
		"lib/systemd/system/kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet\n" +
			"[Install]\nWantedBy=multi-user.target\n",
		flagsFile[1:]:                            "KUBELET_EXTRA_ARGS=\n",
		"etc/kubernetes/manifests/.kubelet-keep": "",
		"var/lib/kubelet/.kubelet-keep":          "",
	}
	laterKubeletPackage = map[string]string{"DEBIAN/control": controlOf("kubelet", "1.37.0-1.1")}
	kubeadmPackage      = map[string]string{
		"DEBIAN/control":  controlOf("kubeadm", "1.36.3-1.1"),
		"usr/bin/kubeadm": "#!/bin/sh\n",
		"lib/systemd/system/kubelet.service.d/10-kubeadm.conf": `[Service]
Environment="KUBELET_KUBECONFIG_ARGS=` + strings.Join(kubeadmFlags[:2], " ") + `"
Environment="KUBELET_CONFIG_ARGS=` + kubeadmFlags[2] + `"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS \
    $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
`,
	}
	cniPackage = map[string]string{
		"DEBIAN/control":        controlOf("kubernetes-cni", "1.8.0-1.1"),
		"opt/cni/bin/README.md": "x\n",
	}
)

// controlOf returns what the control file of a package begins with.
func controlOf(name, version string) string {
	return fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: all\n"+
		"Maintainer: x <x@localhost>\nDescription: x\n", name, version)
}

// standInPackages are the packages of a repository.
type standInPackages struct {
	aptConfig string // the configuration of an apt that has this repository only, and asks nothing
	kubeadm   string // the path of kubeadm's package
}

// buildStandIns builds the packages below a directory, and makes a repository of it.
func buildStandIns(t *testing.T, dir string) standInPackages {
	t.Helper()
	repository := filepath.Join(dir, "repository")
	var index strings.Builder
	for name, files := range map[string]map[string]string{"kubelet": kubeletPackage,
		"kubelet-later": laterKubeletPackage, "kubeadm": kubeadmPackage,
		"kubernetes-cni": cniPackage} { //ordered: apt orders the packages by their versions
		data, err := os.ReadFile(buildPackage(t, filepath.Join(repository, name), files))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&index, "%sFilename: ./%s.deb\nSize: %d\nSHA256: %x\n\n",
			files["DEBIAN/control"], name, len(data), sha256.Sum256(data))
	}
	lists := filepath.Join(dir, "lists")
	if err := os.MkdirAll(filepath.Join(lists, "partial"), 0o755); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "apt.conf")
	for path, content := range map[string]string{
		filepath.Join(repository, "Packages"): index.String(),
		filepath.Join(dir, "sources.list"):    "deb [trusted=yes] file:" + repository + " ./\n",
		config: fmt.Sprintf("Dir::Etc::sourcelist \"%s/sources.list\";\n"+
			"Dir::Etc::sourceparts \"/dev/null\";\nDir::State::lists \"%s\";\n"+
			"APT::Get::Assume-Yes \"true\";\nAPT::Sandbox::User \"root\";\n", dir, lists),
	} { //ordered: each file is written once
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return standInPackages{aptConfig: config, kubeadm: filepath.Join(repository, "kubeadm.deb")}
}

// buildPackage builds a Debian package of some files and returns its path.
func buildPackage(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o644)
		if strings.HasPrefix(content, "#!") {
			mode = 0o755
		}
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	run(t, "dpkg-deb", "--root-owner-group", "-Znone", "--build", dir, dir+".deb")
	return dir + ".deb"
}
