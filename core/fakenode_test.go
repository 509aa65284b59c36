package core

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/config"
	"seedlet.dev/core/credentials"
	nodeobject "seedlet.dev/core/node"
	"seedlet.dev/world"
)

// fakeNode is a node on which every operation succeeds at once, but for the failures that a test
// sets. Random faults belong to the simulator.
type fakeNode struct {
	agent           *Agent
	now             time.Time
	manifests       map[string]string
	sandboxes       map[string]*runtimeapi.PodSandbox
	containers      map[string]*runtimeapi.Container
	cgroups         map[string]world.SetCgroup
	cgroupWrites    []string                    // the paths of SetCgroup
	logs            map[string][]world.DirEntry // by the directory of a container's logs
	status          *runtimeapi.StatusResponse
	systemd         bool     // the cgroup driver
	createdCount    int      // sandboxes and containers
	calls           []string // the calls that change something
	stateJSON       string   // as it was served last
	singleFile      bool     // the manifest path is a file
	resolvConf      string
	volumeFile      string            // the content of every file in a volume; empty: none exists
	manifestURL     string            // empty: none
	manifestURLBody string            // empty: the URL is unavailable
	podsMax         int               // zero: the default
	evictionHard    map[string]string // nil: the defaults
	sysctls         []string          // allowed unsafe ones
	stepsMax        int               // per event; zero: 10,000
	pods            []*v1.Pod
	running         []*v1.Pod
	resolved        *world.ContainerAnswer
	stopsFail       bool            // StopContainer fails
	apiServer       *fakeServer     // nil: none
	events          []string        // recorded so far
	failingCalls    map[string]bool // by name
	podDirs         []string        // UIDs of pods that have a directory
	setAside        []world.PodSetAside
	answer          func(effect any) any // replaces answers, if it returns one; may be nil
	machine         world.MachineRead
	uptime          time.Duration // of the machine, when an agent starts
	// measure, if not nil, is called around each step, and reports whether to go on. The checks of
	// each step are left out then.
	measure  func(world.Event, func(world.Event) []world.Effect) ([]world.Effect, bool)
	podCIDR  string // in the configuration
	settings nodeobject.Options
	// detectByReads makes the agent read ConfigMaps and Secrets instead of watching them.
	detectByReads bool
	podCIDRs      []string // that were sent to the runtime
	credentials   credentials.Settings
	gates         map[string]bool // feature gates that are set
}

func bootNode(manifests map[string]string) *fakeNode {
	n := newNode(manifests)
	n.restart()
	return n
}

// newNode returns a node whose agent does not run yet.
func newNode(manifests map[string]string) *fakeNode {
	return &fakeNode{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), manifests: manifests,
		sandboxes:  map[string]*runtimeapi.PodSandbox{},
		containers: map[string]*runtimeapi.Container{},
		cgroups:    map[string]world.SetCgroup{},
		logs:       map[string][]world.DirEntry{}, status: &runtimeapi.StatusResponse{},
		machine: world.MachineRead{CPUs: 2, MemoryBytes: 1 << 30, NameUnknown: true,
			Machine: world.Machine{OperatingSystem: "linux", Architecture: "amd64",
				RootDirBytes: 1 << 30}}}
}

func (n *fakeNode) restart() {
	config := defaults()
	if n.podsMax > 0 {
		config.MaxPods = int32(n.podsMax)
	}
	if n.evictionHard != nil {
		config.EvictionHard = n.evictionHard
	}
	config.AllowedUnsafeSysctls, config.FeatureGates = n.sysctls, n.gates
	config.StaticPodURL = n.manifestURL
	config.PodCIDR = n.podCIDR
	if n.detectByReads {
		config.ConfigMapAndSecretChangeDetectionStrategy = kubeletconfig.GetChangeDetectionStrategy
	}
	config.StaticPodURLHeader = map[string][]string{"X-Token": {"hush"}}
	n.agent = New(Options{Config: config, NodeName: "n1", RootDir: "/var/lib/kubelet",
		ManifestPath: "/manifests", HasAPIServer: n.apiServer != nil, Credentials: n.credentials,
		Node: n.settings})
	n.event(world.Event{Body: &world.Boot{BootID: "b", Uptime: n.uptime, CPUs: n.machine.CPUs,
		MemoryBytes: n.machine.MemoryBytes, Addresses: n.machine.Addresses,
		Machine: n.machine.Machine, SetAside: n.setAside}})
}

func defaults() *kubeletconfig.KubeletConfiguration {
	c := &kubeletconfig.KubeletConfiguration{}
	config.SetDefaults(c)
	return c
}

// event passes an event to the agent, and the completions of all operations that follow from it.
func (n *fakeNode) event(ev world.Event) {
	queue := []world.Event{ev}
	for steps := 0; len(queue) > 0; steps++ {
		if steps > max(n.stepsMax, 10_000) {
			panic(fmt.Sprintf("the agent issues operations without end: %+v", queue))
		}
		next := queue[0]
		queue, next.Time = queue[1:], n.now
		effects, isLast := n.step(next)
		for _, eff := range effects {
			if e, ok := eff.Body.(*world.RecordEvent); ok {
				n.events = append(n.events, eventLine(e))
				continue
			}
			body := n.answerTo(eff.Body)
			if err, failed := body.(*world.Error); failed {
				queue = append(queue, world.Event{Op: eff.Op, Err: err})
			} else if eff.Op != 0 {
				queue = append(queue, world.Event{Op: eff.Op, Body: body})
			}
		}
		if n.apiServer != nil {
			for _, body := range n.apiServer.undelivered {
				queue = append(queue, world.Event{Body: body})
			}
			n.apiServer.undelivered = nil
		}
		if isLast {
			return
		}
	}
}

// step hands the agent one event, and checks what it serves. It reports whether to stop.
func (n *fakeNode) step(ev world.Event) ([]world.Effect, bool) {
	if n.measure != nil {
		return n.measure(ev, n.agent.Step)
	}
	effects := n.agent.Step(ev)
	if wrong := n.staleServedPod() + n.wrongTotals() + n.wrongWaiting(); wrong != "" {
		panic(wrong)
	}
	return effects, false
}

// advance advances the clock, and wakes the agent whenever it asked for that.
func (n *fakeNode) advance(d time.Duration) {
	end := n.now.Add(d)
	for wake := n.agent.NextWake(); !wake.IsZero() && !wake.After(end); wake = n.agent.NextWake() {
		if wake.After(n.now) {
			n.now = wake
		}
		n.event(world.Event{})
	}
	n.now = end
}

// answerTo performs an effect, unless the test answers it.
func (n *fakeNode) answerTo(effect any) any {
	if n.answer != nil {
		if body := n.answer(effect); body != nil {
			return body
		}
	}
	return n.perform(effect)
}

func (n *fakeNode) removeLog(file string) {
	dir := path.Dir(file)
	if n.logs[dir] == nil {
		return // another file
	}
	n.logs[dir] = slices.DeleteFunc(n.logs[dir], func(entry world.DirEntry) bool {
		return entry.Name == path.Base(file)
	})
}

func (n *fakeNode) perform(effect any) any {
	if n.apiServer != nil && n.apiServer.onEffect != nil {
		n.apiServer.onEffect(effect)
	}
	if n.failingCalls[world.CallName(effect)] {
		return world.Errorf(world.KindInternal, world.CallName(effect), "broken")
	}
	if world.PortOf(effect) == world.PortAPI {
		return n.apiServer.perform(effect)
	}
	switch e := effect.(type) {
	case *world.ReadFiles:
		return n.readFiles(e)
	case *world.FetchManifest:
		if n.manifestURLBody == "" {
			return world.Errorf(world.KindUnavailable, "FetchManifest", "connection refused")
		}
		page, err := e.Documents.ConvertPage([]byte(n.manifestURLBody))
		if err != nil {
			return err
		}
		return page
	case *world.ListDir:
		return n.listDir(e.Path)
	case *world.MeasureFiles:
		return n.measureFiles(e)
	case *world.ListMounts:
		return &world.MountsListed{}
	case *world.ReadLinks:
		return &world.LinksRead{}
	case *world.ReadTail:
		return &world.TailRead{}
	case *world.RemoveTree:
		n.removeLog(e.Path)
		return &world.Done{}
	case *world.MakeDir, *world.Unmount, *world.WriteFile, *world.WriteDir,
		*world.MountMemory, *world.BindSubPath, *world.ShareWithGroup, *world.MakeFile,
		*world.MakeLink:
		return &world.Done{}
	case *world.SetCgroup:
		n.cgroups[e.Path] = *e
		n.cgroupWrites = append(n.cgroupWrites, e.Path)
		return &world.Done{}
	case *world.RemoveCgroup:
		delete(n.cgroups, e.Path)
		return &world.Done{}
	case *world.ListCgroups:
		return n.listCgroups(e.Path)
	case *world.ReadMachine:
		read := n.machine
		return &read
	case *world.StatPath:
		return &world.PathInfo{Kind: world.PathDirectory}
	case *world.MeasureTree:
		return &world.TreeMeasured{Bytes: 2 << 20}
	case *world.StateAnswer:
		n.stateJSON = string(e.State)
	case *world.PodsAnswer:
		n.pods = e.Pods
	case *world.RunningPodsAnswer:
		n.running = e.Pods
	case *world.ContainerAnswer:
		n.resolved = e
	}
	return n.performImages(effect)
}

func (n *fakeNode) readFiles(e *world.ReadFiles) *world.FilesRead {
	if e.Path != "/manifests" {
		return n.hostFile(e.Path)
	}
	read := &world.FilesRead{Directory: !n.singleFile}
	for name, text := range n.manifests {
		read.Files = append(read.Files, world.File{Name: name, Data: []byte(text)})
	}
	e.Documents.Convert(read.Files, read.Directory)
	return read
}

// performImages performs the calls about the runtime itself and about images.
func (n *fakeNode) performImages(effect any) any {
	switch e := effect.(type) {
	case *world.ReadInVolume:
		return n.readInVolume(e)
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
	case *runtimeapi.UpdateRuntimeConfigRequest:
		n.podCIDRs = append(n.podCIDRs, e.RuntimeConfig.NetworkConfig.PodCidr)
		return &runtimeapi.UpdateRuntimeConfigResponse{}
	case *runtimeapi.PullImageRequest:
		return &runtimeapi.PullImageResponse{ImageRef: "sha256:1"}
	case *runtimeapi.ListImagesRequest:
		return &runtimeapi.ListImagesResponse{}
	case *runtimeapi.ImageFsInfoRequest:
		return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
			FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/var/lib/containerd"}}}}
	case *world.MeasureFilesystem:
		return &world.FilesystemMeasured{Device: 1, CapacityBytes: 1 << 40, AvailableBytes: 1 << 40}
	case *runtimeapi.ImageStatusRequest:
		return &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Id: "sha256:1", Size: 1024}}
	}
	return n.performRuntime(effect)
}

func (n *fakeNode) performRuntime(effect any) any {
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
		n.recordCall("run sandbox")
		return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}
	case *runtimeapi.PodSandboxStatusRequest:
		return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
			Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.2"}}}
	case *runtimeapi.CreateContainerRequest:
		id := n.newID("c")
		n.containers[id] = &runtimeapi.Container{Id: id, PodSandboxId: e.PodSandboxId,
			Metadata: e.Config.Metadata, Labels: e.Config.Labels,
			Annotations: e.Config.Annotations, CreatedAt: n.now.UnixNano()}
		dir, name := path.Split(e.SandboxConfig.LogDirectory + "/" + e.Config.LogPath)
		dir = path.Clean(dir)
		n.logs[dir] = append(n.logs[dir], world.DirEntry{Name: name, Size: 1})
		n.recordCall("create", e.Config.Metadata.Name)
		return &runtimeapi.CreateContainerResponse{ContainerId: id}
	case *runtimeapi.StartContainerRequest:
		c := n.containers[e.ContainerId]
		c.State = runtimeapi.ContainerState_CONTAINER_RUNNING
		n.recordCall("start", c.Metadata.Name)
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
	return n.doEnd(effect)
}

func (n *fakeNode) doEnd(effect any) any {
	switch e := effect.(type) {
	case *runtimeapi.StopContainerRequest:
		if n.stopsFail {
			return world.Errorf(world.KindUnavailable, "StopContainer", "it does not end")
		}
		c := n.containers[e.ContainerId]
		c.State = runtimeapi.ContainerState_CONTAINER_EXITED
		n.recordCall("stop", c.Metadata.Name, fmt.Sprint(e.Timeout))
		return &runtimeapi.StopContainerResponse{}
	case *runtimeapi.RemoveContainerRequest:
		n.recordCall("remove", n.containers[e.ContainerId].Metadata.Name)
		delete(n.containers, e.ContainerId)
		return &runtimeapi.RemoveContainerResponse{}
	case *runtimeapi.StopPodSandboxRequest:
		n.sandboxes[e.PodSandboxId].State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		n.recordCall("stop sandbox")
		return &runtimeapi.StopPodSandboxResponse{}
	case *runtimeapi.RemovePodSandboxRequest:
		delete(n.sandboxes, e.PodSandboxId)
		n.recordCall("remove sandbox")
		return &runtimeapi.RemovePodSandboxResponse{}
	}
	return nil // has no completion
}

func (n *fakeNode) newID(prefix string) string {
	n.createdCount++
	return fmt.Sprint(prefix, n.createdCount)
}

func (n *fakeNode) recordCall(words ...string) {
	n.calls = append(n.calls, strings.Join(words, " "))
}

func (n *fakeNode) takeCalls() string {
	calls := strings.Join(n.calls, ", ")
	n.calls = nil
	return calls
}

func (n *fakeNode) readInVolume(e *world.ReadInVolume) any {
	if n.volumeFile == "" {
		return world.Errorf(world.KindNotFound, "ReadInVolume", "%s does not exist", e.Path)
	}
	return &world.FilesRead{Files: []world.File{{Name: "f", Data: []byte(n.volumeFile)}}}
}

// hostFile returns the content of a file of the node.
func (n *fakeNode) hostFile(path string) *world.FilesRead {
	text := "# none\n"
	if path == "/etc/resolv.conf" {
		text += n.resolvConf
	}
	return &world.FilesRead{Files: []world.File{{Name: "f", Data: []byte(text)}}}
}

// listDir answers with the directories of pods, or the files of a container's logs.
func (n *fakeNode) listDir(path string) *world.DirListed {
	listed := &world.DirListed{Entries: n.logs[path]}
	for _, uid := range n.podDirs {
		if path == "/var/lib/kubelet/pods" {
			listed.Entries = append(listed.Entries, world.DirEntry{Name: uid, Directory: true})
		}
	}
	return listed
}

// measureFiles answers with the sizes of logs.
func (n *fakeNode) measureFiles(request *world.MeasureFiles) *world.FilesMeasured {
	measured := &world.FilesMeasured{}
	for _, p := range request.Paths {
		dir, size := path.Join(request.Dir, path.Dir(p)), int64(world.NotMeasured)
		for _, entry := range n.logs[dir] {
			if entry.Name == path.Base(p) {
				size = entry.Size
			}
		}
		measured.Sizes = append(measured.Sizes, size)
	}
	return measured
}
