package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"seedlet.dev/realworld/provision"
)

// toolsModule requires the modules whose versions are those of kubeadm and etcd.
const toolsModule = `module seedlet.dev/tools
go 1.26
require (
	k8s.io/kubernetes v1.36.3
	go.etcd.io/etcd/server/v3 v3.6.8
)
replace (
	k8s.io/kubernetes => ./kubernetes
	go.etcd.io/etcd/server/v3 => ./server
)
`

// kubeadmCheckout creates a checkout with small programs that have the names of kubeadm and etcd,
// and changes to it.
func kubeadmCheckout(t *testing.T) (target string) {
	t.Helper()
	tools := "realworld/cluster/tools/"
	_, target = changeToCheckout(t, map[string]string{
		tools + "go.mod":              toolsModule,
		tools + "kubernetes/go.mod":   "module k8s.io/kubernetes\n",
		tools + "kubernetes/empty.go": "package kubernetes\n",
		tools + "server/go.mod":       "module go.etcd.io/etcd/server/v3\n",
		tools + "server/empty.go":     "package server\n",
		tools + "kubeadm/main.go":     "package main\nimport _ \"k8s.io/kubernetes\"\nfunc main() {}\n",
		tools + "etcd/main.go": "package main\nimport _ \"go.etcd.io/etcd/server/v3\"\n" +
			"func main() {}\n",
	})
	// The leftover of a killed build, and the directory that Install has made.
	for _, dir := range []string{target + ".building/kubeadm", target} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return target
}

// Each program is built once, however many processes want it, and again for another version.
func TestBuildKubeadm(t *testing.T) {
	target := kubeadmCheckout(t)
	var mu sync.Mutex
	var lines []string
	install := func() {
		err := buildKubeadm(t.Context(), func(line string) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, strings.Join(strings.Fields(line)[:3], " "))
		})
		if err != nil {
			t.Error(err)
		}
	}
	expect := func(want ...string) {
		t.Helper()
		if !slices.Equal(lines, want) {
			t.Errorf("progress %q, want %q", lines, want)
		}
		lines = nil
	}
	var installs sync.WaitGroup
	for range 3 {
		installs.Go(install)
	}
	installs.Wait()
	expect("building kubeadm v1.36.3", "building etcd v3.6.8")
	for _, p := range kubeadmPrograms {
		if !provision.Executable(filepath.Join(target, p.name)) {
			t.Errorf("no %s was built", p.name)
		}
	}
	if _, err := os.Lstat(target + ".building"); err == nil {
		t.Error("the temporary directory still exists")
	}
	file := "realworld/cluster/tools/go.mod"
	text := strings.Replace(toolsModule, "v3.6.8", "v3.6.9", 1)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	install()
	expect("building etcd v3.6.9")
	if err := os.WriteFile(filepath.Join(target, "kubeadm"), []byte("torn"), 0o755); err != nil {
		t.Fatal(err)
	}
	install()
	expect("building kubeadm v1.36.3")
}

// A build that fails keeps the program that is there, and the error has what the compiler said.
func TestBuildOfKubeadmThatFails(t *testing.T) {
	target := kubeadmCheckout(t)
	file := "realworld/cluster/tools/kubeadm/main.go"
	if err := os.WriteFile(file, []byte("package main\nimport _ \"k8s.io/kubernetes\"\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(target, "kubeadm")
	if err := os.WriteFile(kept, []byte("earlier"), 0o755); err != nil {
		t.Fatal(err)
	}
	err := buildKubeadm(t.Context(), func(string) {})
	if err == nil || !strings.Contains(err.Error(), "function main is undeclared") {
		t.Errorf("error %v", err)
	}
	if data, err := os.ReadFile(kept); err != nil || string(data) != "earlier" {
		t.Errorf("the program is now %q, %v", data, err)
	}
}
