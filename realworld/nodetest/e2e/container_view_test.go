package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Parts that look at what a running container sees, and at what the kernel has for it.
var containerViewParts = []part{
	{"the hosts and resolv.conf of a container", false, testHostFiles},
	{"the hosts of a pod in the node's network", true, testHostNetworkFiles},
	{"cgroups and oom scores", false, testCgroupValues},
	{"a container over its memory limit is killed", false, testMemoryHog},
	{"user namespaces", true, testUserNamespace},
	{"an image is a volume", true, testImageVolume},
	{"mounts propagate as the mount says", true, testMountPropagation},
	{"a volume in a read-only volume", false, testNestedVolume},
}

func testHostFiles(t *testing.T, s *suite) {
	s.runPod(t, "hostfiles", `
  hostname: tall
  subdomain: house
  hostAliases: [{ip: 10.9.8.7, hostnames: [far.example.com, far]}]
  dnsPolicy: None
  dnsConfig:
    nameservers: [10.1.2.3, 10.1.2.4]
    searches: [a.example.com, b.example.com]
    options: [{name: ndots, value: "3"}, {name: rotate}]
  containers:
  - name: main
    image: sample
    args: [report, --stay, /etc/hosts, /etc/resolv.conf]`)
	r := s.waitReport(t, "hostfiles", "main")
	hosts := r.Paths["/etc/hosts"].Text
	for _, want := range []string{"# Kubernetes-managed hosts file.\n", "127.0.0.1\tlocalhost\n",
		s.podIP(t, "hostfiles") + "\ttall", "10.9.8.7\tfar.example.com\tfar\n"} {
		if !strings.Contains(hosts, want) {
			t.Errorf("no %q in /etc/hosts:\n%s", want, hosts)
		}
	}
	lines := strings.Split(strings.TrimSpace(r.Paths["/etc/resolv.conf"].Text), "\n")
	slices.Sort(lines)
	want := []string{"nameserver 10.1.2.3", "nameserver 10.1.2.4", "options ndots:3 rotate",
		"search a.example.com b.example.com"}
	if !slices.Equal(lines, want) {
		t.Errorf("/etc/resolv.conf has the lines %q, want %q", lines, want)
	}
}

func testHostNetworkFiles(t *testing.T, s *suite) {
	s.runPod(t, "hostnet", `
  hostNetwork: true
  dnsPolicy: Default
  hostAliases: [{ip: 10.9.8.7, hostnames: [far.example.com]}]
  containers:
  - {name: main, image: sample, args: [report, --stay, /etc/hosts]}`)
	hosts := s.waitReport(t, "hostnet", "main").Paths["/etc/hosts"].Text
	node, err := os.ReadFile("/etc/hosts")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# Kubernetes-managed hosts file (host network).\n",
		strings.TrimSpace(string(node)), "10.9.8.7\tfar.example.com\n"} {
		if !strings.Contains(hosts, want) {
			t.Errorf("no %q in /etc/hosts:\n%s", want, hosts)
		}
	}
}

// processOf returns the first process of a running container.
func (s *suite) processOf(t testing.TB, id string) int {
	t.Helper()
	response, err := s.node.Runtime().ContainerStatus(t.Context(),
		&runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		t.Fatalf("requesting the status of container %s: %v", id, err)
	}
	var info struct{ Pid int }
	if err := json.Unmarshal([]byte(response.Info["info"]), &info); err != nil || info.Pid <= 1 {
		t.Fatalf("no process of container %s in %q: %v", id, response.Info["info"], err)
	}
	return info.Pid
}

// testUserNamespace runs a pod in a user namespace if the runtime can. Otherwise the pod must not
// run: as root of the node it would have more rights than its author has allowed for.
func testUserNamespace(t *testing.T, s *suite) {
	status, err := s.node.Runtime().Status(t.Context(), &runtimeapi.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	supported := slices.ContainsFunc(status.RuntimeHandlers, func(h *runtimeapi.RuntimeHandler) bool {
		return h.Name == "" && h.GetFeatures().GetUserNamespaces()
	})
	s.runPod(t, "userns", `
  hostUsers: false
  volumes: [{name: work, emptyDir: {}}]
  containers:
  - name: main
    image: sample
    args: [report, --stay, /proc/self/uid_map, /work]
    volumeMounts: [{name: work, mountPath: /work}]`)
	if !supported {
		t.Log("checked: a pod with a user namespace is refused; not checked: what it sees, for which " +
			"runc has to be 1.2 or newer")
		s.waitWaiting(t, "userns", "main", "ContainerCreating")
		s.eventually(t, "the log says why the pod does not run", func() bool {
			return strings.Contains(s.agent.podLogLines(t, "userns"), "FailedCreatePodSandBox")
		})
		if c := s.newestContainer(t, "userns", "main"); c != nil {
			t.Errorf("without user namespaces the container is %v", c)
		}
		return
	}
	r := s.waitReport(t, "userns", "main")
	fields := strings.Fields(r.Paths["/proc/self/uid_map"].Text)
	t.Logf("checked: what a pod sees in a user namespace with the map %q", fields)
	if len(fields) != 3 || fields[0] != "0" || fields[1] == "0" || fields[2] != "65536" {
		t.Errorf("the user ids are mapped as %q", fields)
	}
	if work := r.Paths["/work"]; work.UID != 0 || work.GID != 0 {
		t.Errorf("in the container, the emptyDir belongs to %d:%d", work.UID, work.GID)
	}
	s.execSample(t, "userns", "main", "write", "/work/file", "hello")
}

func testImageVolume(t *testing.T, s *suite) {
	s.runPod(t, "imagevolume", `
  volumes: [{name: files, image: {reference: seedlet.dev/sample:v1}}]
  containers:
  - name: main
    image: sample
    args: [report, --stay, /files, /files/sample]
    volumeMounts: [{name: files, mountPath: /files}]`)
	r := s.waitReport(t, "imagevolume", "main")
	if dir := r.Paths["/files"]; !dir.ReadOnly || !slices.Contains(dir.Entries, "sample") {
		t.Errorf("the image is mounted as %+v", dir)
	}
	if got := r.Paths["/files/sample"].Mode; !strings.HasPrefix(got, "-r") {
		t.Errorf("the program of the image has mode %q", got)
	}
}

// testMountPropagation mounts directories below volumes of a running container: on the node, which
// the container sees if the mount says so, and in the container, which the node sees then.
func testMountPropagation(t *testing.T, s *suite) {
	dir := t.TempDir()
	if err := errors.Join(unix.Mount(dir, dir, "", unix.MS_BIND, ""),
		unix.Mount("", dir, "", unix.MS_SHARED, ""),
		os.Mkdir(dir+"/of-node", 0o755), os.Mkdir(dir+"/of-pod", 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, path := range []string{dir + "/of-pod", dir + "/of-node", dir} {
			_ = unix.Unmount(path, unix.MNT_DETACH) // a failed test may not have mounted it
		}
	})
	s.runPod(t, "propagation", fmt.Sprintf(`
  terminationGracePeriodSeconds: 2
  volumes: [{name: tree, hostPath: {path: %s}}]
  containers:
  - name: main
    image: sample
    args: [sleep]
    securityContext: {privileged: true}
    volumeMounts:
    - {name: tree, mountPath: /none}
    - {name: tree, mountPath: /down, mountPropagation: HostToContainer}
    - {name: tree, mountPath: /both, mountPropagation: Bidirectional}`, dir))
	s.waitRunning(t, "propagation", "main", 0)
	pid := s.processOf(t, s.newestContainer(t, "propagation", "main").GetId())
	if err := errors.Join(unix.Mount("tmpfs", dir+"/of-node", "tmpfs", 0, ""),
		os.WriteFile(dir+"/of-node/file", nil, 0o644),
		mountInNamespace(pid, "/both/of-pod")); err != nil {
		t.Fatal(err)
	}
	var r report
	paths := []string{"/none/of-node/file", "/down/of-node/file", "/both/of-node/file"}
	text := s.execSample(t, "propagation", "main", append([]string{"report"}, paths...)...)
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{false, true, true} {
		if got := r.Paths[paths[i]].Mode != ""; got != want {
			t.Errorf("%s is visible: %v, want %v", paths[i], got, want)
		}
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir+"/of-pod", &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		t.Errorf("the mount of the container is not seen on the node: %+v, %v", fs, err)
	}
}

// mountInNamespace mounts a file system in the mount namespace of a process.
func mountInNamespace(pid int, path string) error {
	mounted := make(chan error)
	go func() {
		runtime.LockOSThread() // and ends with this goroutine: its namespace is not restored
		mounted <- func() error {
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return err
			}
			namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
			if err != nil {
				return err
			}
			err = unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNS)
			if err == nil {
				err = unix.Mount("tmpfs", path, "tmpfs", 0, "")
			}
			return errors.Join(err, namespace.Close())
		}()
	}()
	return <-mounted
}

// testNestedVolume mounts a writable volume in one that is read-only for the container.
func testNestedVolume(t *testing.T, s *suite) {
	s.runPod(t, "nested", `
  volumes:
  - name: info
    downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}
  - {name: work, emptyDir: {}}
  containers:
  - name: main
    image: sample
    args: [report, --stay, /info, /info/name, /info/work]
    volumeMounts:
    - {name: info, mountPath: /info}
    - {name: work, mountPath: /info/work}`)
	r := s.waitReport(t, "nested", "main")
	if r.Paths["/info/name"].Text != "nested-e2e" || !r.Paths["/info"].ReadOnly ||
		r.Paths["/info/work"].ReadOnly {
		t.Errorf("the volumes are %+v", r.Paths)
	}
	s.execSample(t, "nested", "main", "write", "/info/work/file", "hello")
}
