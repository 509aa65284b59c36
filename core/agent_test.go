package core

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/config"
	"seedlet.dev/world"
)

// node is a world in which everything works at once. What goes wrong is the simulator's business.
type node struct {
	agent      *Agent
	now        time.Time
	manifests  map[string]string
	sandboxes  map[string]*runtimeapi.PodSandbox
	containers map[string]*runtimeapi.Container
	cgroups    map[string]world.SetCgroup
	status     *runtimeapi.StatusResponse
	systemd    bool     // the cgroup driver
	made       int      // sandboxes and containers
	calls      []string // what was done, besides looking
	state      string   // as it was shown last
	single     bool     // the manifest path is a file
	url        string   // of manifests, if there is one
	page       string   // what is there; empty: it is away
	podsMax    int      // zero for the default
	sysctls    []string // that are allowed
	stepsMax   int      // that one event may lead to; zero for 10,000
	pods       []*v1.Pod
	running    []*v1.Pod
	found      *world.ContainerAnswer
	stuck      bool            // containers do not end
	server     *server         // the API server, if there is one
	events     []string        // that were told
	broken     map[string]bool // calls that fail
	begun      []string        // pods that have a directory when the agent begins
}

func boot(manifests map[string]string) *node {
	n := newNode(manifests)
	n.restart()
	return n
}

// newNode is a node whose agent does not run yet.
func newNode(manifests map[string]string) *node {
	return &node{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), manifests: manifests,
		sandboxes:  map[string]*runtimeapi.PodSandbox{},
		containers: map[string]*runtimeapi.Container{},
		cgroups:    map[string]world.SetCgroup{}, status: &runtimeapi.StatusResponse{}}
}

func (n *node) restart() {
	config := defaults()
	if n.podsMax > 0 {
		config.MaxPods = int32(n.podsMax)
	}
	config.AllowedUnsafeSysctls = n.sysctls
	config.StaticPodURL = n.url
	config.StaticPodURLHeader = map[string][]string{"X-Token": {"hush"}}
	n.agent = New(Options{Config: config, NodeName: "n1", RootDir: "/var/lib/kubelet",
		ManifestPath: "/manifests", API: n.server != nil})
	n.event(world.Event{Body: &world.Boot{BootID: "b", CPUs: 2, MemoryBytes: 1 << 30,
		Machine: world.Machine{OperatingSystem: "linux", Architecture: "amd64",
			RootDirBytes: 1 << 30}}})
}

func defaults() *kubeletconfig.KubeletConfiguration {
	c := &kubeletconfig.KubeletConfiguration{}
	config.SetDefaults(c)
	return c
}

// event feeds one event, and the answers to what it leads to, until nothing is left to answer.
func (n *node) event(ev world.Event) {
	queue := []world.Event{ev}
	for steps := 0; len(queue) > 0; steps++ {
		if steps > max(n.stepsMax, 10_000) {
			panic(fmt.Sprintf("the agent never comes to rest: %+v", queue))
		}
		next := queue[0]
		queue, next.Time = queue[1:], n.now
		for _, eff := range n.agent.Step(next) {
			if e, is := eff.Body.(*world.RecordEvent); is {
				n.events = append(n.events, told(e))
				continue
			}
			body := n.do(eff.Body)
			if err, failed := body.(*world.Error); failed {
				queue = append(queue, world.Event{Op: eff.Op, Err: err})
			} else if eff.Op != 0 {
				queue = append(queue, world.Event{Op: eff.Op, Body: body})
			}
		}
		if n.server != nil {
			for _, told := range n.server.told {
				queue = append(queue, world.Event{Body: told})
			}
			n.server.told = nil
		}
		if wrong := n.stale() + n.miscounted(); wrong != "" {
			panic(wrong)
		}
	}
}

// pass lets time pass, waking the agent whenever it asked for it.
func (n *node) pass(d time.Duration) {
	end := n.now.Add(d)
	for wake := n.agent.NextWake(); !wake.IsZero() && !wake.After(end); wake = n.agent.NextWake() {
		if wake.After(n.now) {
			n.now = wake
		}
		n.event(world.Event{})
	}
	n.now = end
}

func (n *node) do(effect any) any {
	if n.server != nil && n.server.seen != nil {
		n.server.seen(effect)
	}
	if n.broken[world.Call(effect)] {
		return world.Errorf(world.KindInternal, world.Call(effect), "broken")
	}
	if world.PortOf(effect) == world.PortAPI {
		return n.server.do(effect)
	}
	switch e := effect.(type) {
	case *world.ReadFiles:
		if e.Path != "/manifests" {
			return &world.FilesRead{Files: []world.File{{Name: "f", Data: []byte("# none\n")}}}
		}
		read := &world.FilesRead{Directory: !n.single}
		for name, text := range n.manifests {
			read.Files = append(read.Files, world.File{Name: name, Data: []byte(text)})
		}
		return read
	case *world.FetchManifest:
		if n.page == "" {
			return world.Errorf(world.KindUnavailable, "FetchManifest", "connection refused")
		}
		return &world.ManifestFetched{Data: []byte(n.page)}
	case *world.ListDir:
		if strings.HasPrefix(e.Path, "/var/log/pods/default_") {
			return &world.DirListed{Entries: []world.DirEntry{{Name: "0.log", Size: 1}}}
		}
		listed := &world.DirListed{}
		for _, uid := range n.begun {
			if e.Path == "/var/lib/kubelet/pods" {
				listed.Entries = append(listed.Entries, world.DirEntry{Name: uid, Directory: true})
			}
		}
		return listed
	case *world.ReadLinks:
		return &world.LinksRead{}
	case *world.ReadTail:
		return &world.TailRead{}
	case *world.MakeDir, *world.RemoveTree, *world.Unmount, *world.WriteFile, *world.WriteDir,
		*world.MountMemory, *world.BindSubPath, *world.ShareWithGroup, *world.MakeFile,
		*world.MakeLink:
		return &world.Done{}
	case *world.SetCgroup:
		n.cgroups[e.Path] = *e
		return &world.Done{}
	case *world.RemoveCgroup:
		delete(n.cgroups, e.Path)
		return &world.Done{}
	case *world.ListCgroups:
		return n.listCgroups(e.Path)
	case *world.StatPath:
		return &world.PathInfo{Kind: world.PathDirectory}
	case *world.MeasureTree:
		return &world.TreeMeasured{Bytes: 2 << 20}
	case *world.StateAnswer:
		n.state = string(e.State)
	case *world.PodsAnswer:
		n.pods = e.Pods
	case *world.RunningPodsAnswer:
		n.running = e.Pods
	case *world.ContainerAnswer:
		n.found = e
	}
	return n.doImages(effect)
}

// doImages answers what is asked of the runtime about itself and about images.
func (n *node) doImages(effect any) any {
	switch effect.(type) {
	case *runtimeapi.VersionRequest:
		return &runtimeapi.VersionResponse{RuntimeName: "fake", RuntimeVersion: "1"}
	case *runtimeapi.RuntimeConfigRequest:
		if n.systemd {
			return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{
				CgroupDriver: runtimeapi.CgroupDriver_SYSTEMD}}
		}
		return &runtimeapi.RuntimeConfigResponse{}
	case *runtimeapi.StatusRequest:
		return n.status
	case *runtimeapi.PullImageRequest:
		return &runtimeapi.PullImageResponse{ImageRef: "sha256:1"}
	case *runtimeapi.ImageStatusRequest:
		return &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Id: "sha256:1", Size: 1024}}
	}
	return n.doRuntime(effect)
}

func (n *node) doRuntime(effect any) any {
	switch e := effect.(type) {
	case *runtimeapi.ListPodSandboxRequest:
		list := &runtimeapi.ListPodSandboxResponse{}
		for _, s := range n.sandboxes {
			list.Items = append(list.Items, s)
		}
		return list
	case *runtimeapi.ExecSyncRequest: // the probe's command "b" fails
		return &runtimeapi.ExecSyncResponse{ExitCode: int32(strings.Count(e.Cmd[0], "b"))}
	case *runtimeapi.ListContainersRequest:
		list := &runtimeapi.ListContainersResponse{}
		for _, c := range n.containers {
			list.Containers = append(list.Containers, c)
		}
		return list
	case *runtimeapi.RunPodSandboxRequest:
		id := n.newID("s")
		n.sandboxes[id] = &runtimeapi.PodSandbox{Id: id, Metadata: e.Config.Metadata,
			Annotations: e.Config.Annotations}
		n.did("run sandbox")
		return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}
	case *runtimeapi.PodSandboxStatusRequest:
		return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
			Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.2"}}}
	case *runtimeapi.CreateContainerRequest:
		id := n.newID("c")
		n.containers[id] = &runtimeapi.Container{Id: id, PodSandboxId: e.PodSandboxId,
			Metadata: e.Config.Metadata, Labels: e.Config.Labels,
			Annotations: e.Config.Annotations, CreatedAt: n.now.UnixNano()}
		n.did("create", e.Config.Metadata.Name)
		return &runtimeapi.CreateContainerResponse{ContainerId: id}
	case *runtimeapi.StartContainerRequest:
		c := n.containers[e.ContainerId]
		c.State = runtimeapi.ContainerState_CONTAINER_RUNNING
		n.did("start", c.Metadata.Name)
		if c.Metadata.Name == "setup" {
			c.State = runtimeapi.ContainerState_CONTAINER_EXITED
		}
		return &runtimeapi.StartContainerResponse{}
	case *runtimeapi.ContainerStatusRequest:
		c := n.containers[e.ContainerId]
		return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
			Id: c.Id, State: c.State, CreatedAt: c.CreatedAt, StartedAt: c.CreatedAt,
			FinishedAt: c.CreatedAt}}
	}
	return n.end(effect)
}

func (n *node) end(effect any) any {
	switch e := effect.(type) {
	case *runtimeapi.StopContainerRequest:
		if n.stuck {
			return world.Errorf(world.KindUnavailable, "StopContainer", "it does not end")
		}
		c := n.containers[e.ContainerId]
		c.State = runtimeapi.ContainerState_CONTAINER_EXITED
		n.did("stop", c.Metadata.Name, fmt.Sprint(e.Timeout))
		return &runtimeapi.StopContainerResponse{}
	case *runtimeapi.RemoveContainerRequest:
		n.did("remove", n.containers[e.ContainerId].Metadata.Name)
		delete(n.containers, e.ContainerId)
		return &runtimeapi.RemoveContainerResponse{}
	case *runtimeapi.StopPodSandboxRequest:
		n.sandboxes[e.PodSandboxId].State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		n.did("stop sandbox")
		return &runtimeapi.StopPodSandboxResponse{}
	case *runtimeapi.RemovePodSandboxRequest:
		delete(n.sandboxes, e.PodSandboxId)
		n.did("remove sandbox")
		return &runtimeapi.RemovePodSandboxResponse{}
	}
	return nil // a statement
}

func (n *node) newID(prefix string) string {
	n.made++
	return fmt.Sprint(prefix, n.made)
}

func (n *node) did(words ...string) { n.calls = append(n.calls, strings.Join(words, " ")) }

func (n *node) takeCalls() string {
	calls := strings.Join(n.calls, ", ")
	n.calls = nil
	return calls
}

const web = `{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {
  terminationGracePeriodSeconds: 7,
  initContainers: [{name: setup, image: i}], containers: [{name: web, image: i}]}}`

func TestTheLifeOfAPod(t *testing.T) {
	n := boot(map[string]string{"web.yaml": web})
	n.pass(5 * time.Second)
	want := "run sandbox, create setup, start setup, create web, start web"
	if got := n.takeCalls(); got != want {
		t.Fatalf("started by %q, want %q", got, want)
	}
	n.event(world.Event{Body: &world.PodsRequest{}})
	if len(n.pods) != 1 || n.pods[0].Status.Phase != v1.PodRunning ||
		n.pods[0].Status.PodIP != "10.0.0.2" || n.pods[0].Name != "web-n1" {
		t.Fatalf("shown as %+v", n.pods)
	}
	n.restart()
	n.pass(time.Minute)
	if got := n.takeCalls(); got != "" {
		t.Fatalf("a restart of the agent led to %q", got)
	}
	n.manifests = nil
	n.pass(time.Minute)
	want = "stop web 7, stop sandbox, remove setup, remove web, remove sandbox"
	if got := n.takeCalls(); got != want {
		t.Fatalf("ended by %q, want %q", got, want)
	}
	if len(n.agent.state.Pods) != 0 || len(n.agent.names) != 0 {
		t.Error("the pod is not forgotten")
	}
}

// An orphan of the runtime is ended once the sources are known not to want it.
func TestAnOrphanIsEnded(t *testing.T) {
	n := boot(map[string]string{"web.yaml": web})
	n.pass(5 * time.Second)
	n.takeCalls()
	n.manifests = nil
	n.restart()
	n.pass(time.Minute)
	want := "stop web 7, stop sandbox, remove setup, remove web, remove sandbox"
	if got := n.takeCalls(); got != want {
		t.Errorf("ended by %q, want %q", got, want)
	}
}

func TestABrokenManifestIsSkipped(t *testing.T) {
	n := boot(map[string]string{"a.yaml": "kind: {", "web.yaml": web, ".hidden.yaml": web})
	n.pass(5 * time.Second)
	if got := len(n.agent.state.Pods); got != 1 {
		t.Errorf("%d pods, want the one that is not broken", got)
	}
}

// A file that breaks while someone writes it does not end its pod; one that stays broken does.
func TestAHalfWrittenManifest(t *testing.T) {
	n := boot(map[string]string{"web.yaml": web})
	n.pass(5 * time.Second)
	n.takeCalls()
	n.manifests["web.yaml"] = web[:40]
	n.event(world.Event{Body: &world.FileChanged{Path: "/manifests"}})
	n.pass(500 * time.Millisecond)
	n.manifests["web.yaml"] = web
	n.event(world.Event{Body: &world.FileChanged{Path: "/manifests"}})
	n.pass(time.Minute)
	if got := n.takeCalls(); got != "" {
		t.Fatalf("a half-written manifest led to %q", got)
	}
	n.manifests["web.yaml"] = web[:40]
	n.pass(time.Minute)
	if got := n.takeCalls(); !strings.HasPrefix(got, "stop web") {
		t.Errorf("a manifest that stays broken led to %q", got)
	}
}

// An agent that starts while a manifest is half written does not take its pod for unwanted.
func TestAHalfWrittenManifestAtStart(t *testing.T) {
	n := boot(map[string]string{"web.yaml": web})
	n.pass(5 * time.Second)
	n.takeCalls()
	n.manifests["web.yaml"] = web[:40]
	n.restart()
	n.pass(500 * time.Millisecond)
	n.manifests["web.yaml"] = web
	n.pass(time.Minute)
	if got := n.takeCalls(); got != "" {
		t.Errorf("it led to %q", got)
	}
}

func TestSnapshotIsTheWholeState(t *testing.T) {
	n := boot(map[string]string{"web.yaml": web})
	n.pass(3 * time.Second)
	before, err := n.agent.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if n.agent, err = Restore(before); err != nil {
		t.Fatal(err)
	}
	after, _ := n.agent.Snapshot()
	if !bytes.Equal(before, after) {
		t.Errorf("restored as\n%s\nwant\n%s", after, before)
	}
	n.takeCalls()
	n.pass(time.Minute)
	if got := n.takeCalls(); got != "" {
		t.Errorf("the restored agent did %q", got)
	}
	if _, err := Restore([]byte("{")); err == nil {
		t.Error("half a snapshot was accepted")
	}
}

// At rest the agent does nothing but look.
func TestAtRest(t *testing.T) {
	n := boot(map[string]string{"web.yaml": web})
	n.pass(time.Minute)
	n.takeCalls()
	began := n.agent.state.Ops.Last
	n.pass(100 * time.Second)
	// Two lists a second, a status every 5 s, a log every 10 s, the manifests every 20 s, two
	// directories, three cgroups, the links and two files of the node a minute.
	if ops := n.agent.state.Ops.Last - began; ops > 100*2+100/5+100/10+100/20+2*6+2*2+5 {
		t.Errorf("%d operations in 100 s at rest", ops)
	}
}

func podNamed(name string) string {
	return `{apiVersion: v1, kind: Pod, metadata: {name: ` + name + `}, spec: {
	  containers: [{name: web, image: i}]}}`
}

// Beyond maxPods pods are refused, but a manifest that is added ends nothing that runs, and
// neither does a restart of the agent.
func TestMaxPods(t *testing.T) {
	n := boot(nil)
	n.podsMax = 2
	n.manifests = map[string]string{"m.yaml": podNamed("m"), "z.yaml": podNamed("z")}
	n.restart()
	n.pass(30 * time.Second)
	n.takeCalls()
	n.manifests["a.yaml"] = podNamed("a")
	n.pass(time.Minute)
	n.restart()
	n.pass(time.Minute)
	if got := n.takeCalls(); got != "" {
		t.Errorf("one manifest too many led to %q", got)
	}
	if len(n.agent.state.Refused) != 1 {
		t.Errorf("refused: %v, want one pod", n.agent.state.Refused)
	}
	delete(n.manifests, "m.yaml")
	n.pass(time.Minute)
	if got := n.takeCalls(); !strings.Contains(got, "run sandbox") {
		t.Errorf("the pod that was refused does not run in the place that is free now: %q", got)
	}
}

// A pod that asks for what is not done yet is refused, and says why.
func TestUnsupportedPodIsRefused(t *testing.T) {
	n := boot(map[string]string{"v.yaml": `{apiVersion: v1, kind: Pod, metadata: {name: v}, spec: {
	  volumes: [{name: x, nfs: {server: s, path: /}}],
	  containers: [{name: web, image: i, volumeMounts: [{name: x, mountPath: /x}]}]}}`})
	n.pass(time.Minute)
	if got := n.takeCalls(); got != "" {
		t.Errorf("it led to %q", got)
	}
	for _, why := range n.agent.state.Refused {
		if why.Message != "not supported yet: spec.volumes[0] (x)" {
			t.Errorf("refused because %+v", why)
		}
	}
}

func TestASingleManifestFile(t *testing.T) {
	n := boot(map[string]string{".pod.yaml": web})
	n.single = true
	n.restart()
	n.pass(30 * time.Second)
	if len(n.agent.state.Pods) != 1 {
		t.Errorf("%d pods from the file that is the manifest path, want 1", len(n.agent.state.Pods))
	}
}

func TestStateIsShownWithoutSecrets(t *testing.T) {
	n := boot(map[string]string{"p.yaml": `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {
	  containers: [{name: web, image: i, env: [{name: PASSWORD, value: hunter2}]}]}}`})
	n.pass(5 * time.Second)
	n.event(world.Event{Body: &world.StateRequest{}})
	if n.state == "" || strings.Contains(n.state, "hunter2") ||
		!strings.Contains(n.state, "PASSWORD") {
		t.Errorf("shown as %s", n.state)
	}
}

func TestARefusedPodIsShown(t *testing.T) {
	n := boot(map[string]string{"v.yaml": `{apiVersion: v1, kind: Pod, metadata: {name: v}, spec: {
	  volumes: [{name: x, nfs: {server: s, path: /}}], containers: [{name: web, image: i}]}}`})
	n.pass(5 * time.Second)
	n.event(world.Event{Body: &world.PodsRequest{}})
	if len(n.pods) != 1 || n.pods[0].Status.Reason != "Refused" ||
		!strings.Contains(n.pods[0].Status.Message, "spec.volumes") {
		t.Errorf("shown as %+v", n.pods)
	}
}

const unsafe = `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {
  securityContext: {sysctls: [{name: kernel.msgmax, value: "1"}]},
  containers: [{name: web, image: i}]}}`

// A pod that sets what it must not has failed, as with the kubelet.
func TestAForbiddenSysctl(t *testing.T) {
	n := boot(map[string]string{"p.yaml": unsafe})
	n.pass(time.Minute)
	n.event(world.Event{Body: &world.PodsRequest{}})
	if got := n.takeCalls(); got != "" || len(n.pods) != 1 {
		t.Fatalf("%d pods, and it led to %q", len(n.pods), got)
	}
	is, message := n.pods[0].Status, `Pod was rejected: forbidden sysctl: "kernel.msgmax" `+
		`not allowlisted`
	if is.Phase != v1.PodFailed || is.Reason != "SysctlForbidden" || is.Message != message {
		t.Errorf("%+v", is)
	}
}

// What is allowed runs, and goes on when the agent comes back and no longer allows it; but not
// once it is down.
func TestAnAllowedSysctl(t *testing.T) {
	n := boot(nil)
	n.manifests, n.sysctls = map[string]string{"p.yaml": unsafe}, []string{"kernel.msg*"}
	n.restart()
	n.pass(time.Minute)
	if got := n.takeCalls(); !strings.Contains(got, "start web") {
		t.Fatalf("an allowed sysctl led to %q", got)
	}
	n.sysctls = nil
	n.restart()
	n.pass(time.Minute)
	if got := n.takeCalls(); got != "" {
		t.Errorf("a restart of the agent led to %q", got)
	}
	n.sandboxes, n.containers = map[string]*runtimeapi.PodSandbox{},
		map[string]*runtimeapi.Container{}
	n.restart()
	n.pass(time.Minute)
	if got := n.takeCalls(); got != "" {
		t.Errorf("after a reboot: %q", got)
	}
}

// The start time of a pod outlives the agent.
func TestStartTimeOutlivesTheAgent(t *testing.T) {
	n := boot(map[string]string{"web.yaml": web})
	n.pass(5 * time.Second)
	want := n.now
	for _, s := range n.sandboxes {
		s.CreatedAt = want.UnixNano()
	}
	for _, c := range n.containers {
		c.CreatedAt = want.UnixNano()
	}
	n.pass(time.Hour)
	n.restart()
	n.pass(5 * time.Second)
	n.event(world.Event{Body: &world.PodsRequest{}})
	if got := n.pods[0].Status.StartTime; got == nil || !got.Time.Equal(want) {
		t.Errorf("started at %v, want %v", got, want)
	}
}

// A manifest that gives its UID to a pod of another name ends the one and starts the other.
func TestAUIDGivenToAnotherName(t *testing.T) {
	named := func(name string) string {
		return strings.Replace(podNamed(name), "name: "+name+"}", "name: "+name+", uid: u1}", 1)
	}
	n := boot(map[string]string{"p.yaml": named("one")})
	n.pass(5 * time.Second)
	n.takeCalls()
	n.manifests["p.yaml"] = named("two")
	n.pass(time.Minute)
	want := "stop web 30, stop sandbox, remove web, remove sandbox, run sandbox, create web, " +
		"start web"
	if got := n.takeCalls(); got != want {
		t.Errorf("it led to %q, want %q", got, want)
	}
	if got := n.agent.state.Pods["u1"].Name; got != "two-n1" {
		t.Errorf("known as %s", got)
	}
}
