package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
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

// cgroupValue returns the content of a file of a container's cgroup, or of a cgroup above it: the
// first one that exists, of a version 1 controller or of version 2.
func (s *suite) cgroupValue(t *testing.T, pod, container, above string, files ...string) string {
	t.Helper()
	pid := s.processOf(t, s.newestContainer(t, pod, container).GetId())
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		for line := range strings.Lines(string(data)) {
			fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
			controller := ""
			for _, c := range strings.Split(fields[1], ",") {
				if c == strings.SplitN(file, ".", 2)[0] {
					controller = fields[1]
				}
			}
			if controller == "" && fields[1] != "" {
				continue
			}
			path := filepath.Join("/sys/fs/cgroup", controller, fields[2], above, file)
			if value, err := os.ReadFile(path); err == nil {
				return strings.TrimSpace(string(value))
			}
		}
	}
	t.Fatalf("no file of %q in %s", files, data)
	return ""
}

func testCgroupValues(t *testing.T, s *suite) {
	s.runPod(t, "limited", `
  containers:
  - name: main
    image: sample
    args: [report, --stay, /proc/self/oom_score_adj]
    resources: {limits: {cpu: 500m, memory: 64Mi}, requests: {cpu: 250m, memory: 64Mi}}
  - name: large
    image: sample
    args: [report, --stay, /proc/self/oom_score_adj]
    resources: {limits: {cpu: 250m, memory: 1Gi}, requests: {memory: 512Mi}}`)
	s.runPod(t, "unlimited", `
  containers:
  - {name: main, image: sample, args: [report, --stay, /proc/self/oom_score_adj]}`)
	s.runPod(t, "guaranteed", `
  containers:
  - name: main
    image: sample
    args: [report, --stay, /proc/self/oom_score_adj]
    resources: {limits: {cpu: 100m, memory: 32Mi}}`)
	var memory unix.Sysinfo_t
	if err := unix.Sysinfo(&memory); err != nil {
		t.Fatal(err)
	}
	score := func(pod, container string) int {
		t.Helper()
		text := s.waitReport(t, pod, container).Paths["/proc/self/oom_score_adj"].Text
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			t.Errorf("the oom score of %s/%s is %q", pod, container, text)
		}
		return n
	}
	capacity := int(memory.Totalram) * int(memory.Unit)
	burstable := min(999, max(3, 1000-1000*(512<<20)/capacity))
	if got := score("limited", "large"); got < burstable-1 || got > burstable+1 {
		t.Errorf("the oom score of a burstable container is %d, want %d", got, burstable)
	}
	if got := score("unlimited", "main"); got != 1000 {
		t.Errorf("the oom score of a best-effort container is %d, want 1000", got)
	}
	own, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", s.node.PID()))
	if err != nil {
		t.Fatal(err)
	}
	// The tests' runtimes set no score below their own.
	lowest, _ := strconv.Atoi(strings.TrimSpace(string(own))) // the kernel writes a number
	if got, want := score("guaranteed", "main"), max(-997, lowest); got != want {
		t.Errorf("the oom score of a guaranteed container is %d, want %d", got, want)
	}
	score("limited", "main") // both containers run
	for _, c := range []struct {
		container, above string
		files, want      []string
	}{
		{"main", "", []string{"memory.limit_in_bytes", "memory.max"}, []string{"67108864"}},
		{"main", "", []string{"cpu.cfs_quota_us", "cpu.max"}, []string{"50000", "50000 100000"}},
		{"main", "", []string{"cpu.shares", "cpu.weight"}, []string{"256", "10", "35"}},
		{"large", "", []string{"memory.limit_in_bytes", "memory.max"}, []string{"1073741824"}},
		{"main", "..", []string{"memory.limit_in_bytes", "memory.max"}, []string{"1140850688"}},
		{"main", "..", []string{"cpu.cfs_quota_us", "cpu.max"}, []string{"75000", "75000 100000"}},
	} {
		got := s.cgroupValue(t, "limited", c.container, c.above, c.files...)
		if !slices.Contains(c.want, got) {
			t.Errorf("%s%s of %s is %s, want one of %q", c.above, c.files, c.container, got, c.want)
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
