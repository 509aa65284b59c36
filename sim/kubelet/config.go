package kubelet

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/runtime"
	"seedlet.dev/world"
)

// What the kubelet asks the runtime for.

// sandboxConfig returns the configuration of a sandbox of a pod.
func (k *Kubelet) sandboxConfig(p *pod, attempt uint32) *runtimeapi.PodSandboxConfig {
	spec := &p.object.Spec
	context := &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: p.namespaces(),
		Seccomp: &runtimeapi.SecurityProfile{
			ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}}
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: p.object.Name, Uid: string(p.object.UID),
			Namespace: p.object.Namespace, Attempt: attempt},
		LogDirectory: k.logDir(p), Labels: podLabels(p.object), Annotations: podAnnotations(p),
		DnsConfig: &runtimeapi.DNSConfig{Servers: k.opts.Servers, Searches: k.opts.Search,
			Options: k.opts.Extra},
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: k.cgroupParent(p),
			SecurityContext: context, Resources: podResources(p.object)},
	}
	if !spec.HostNetwork {
		config.Hostname = p.object.Name
	}
	return config
}

func (p *pod) namespaces() *runtimeapi.NamespaceOption {
	spec := &p.object.Spec
	option := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER,
		UsernsOptions: p.users()}
	if spec.HostNetwork {
		option.Network = runtimeapi.NamespaceMode_NODE
	}
	if spec.ShareProcessNamespace != nil && *spec.ShareProcessNamespace {
		option.Pid = runtimeapi.NamespaceMode_POD
	}
	return option
}

// containerConfig returns the configuration of a run of a container.
func (k *Kubelet) containerConfig(p *pod, c *v1.Container, restarts uint32,
	image string) *runtimeapi.ContainerConfig {
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: restarts},
		Image:    &runtimeapi.ImageSpec{Image: image, UserSpecifiedImage: c.Image},
		Command:  c.Command, Args: c.Args,
		Labels: map[string]string{labelName: p.object.Name, labelNamespace: p.object.Namespace,
			labelUID: string(p.object.UID), labelContainer: c.Name},
		Annotations: containerAnnotations(p.object, c, restarts),
		LogPath:     fmt.Sprintf("%s/%d.log", c.Name, restarts),
		Mounts:      k.mounts(p, c, p.messages[fmt.Sprintf("%s/%d", c.Name, restarts)]),
		Devices:     k.devices(p, c),
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: k.containerResources(p.object, c),
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: p.namespaces(),
				Seccomp: &runtimeapi.SecurityProfile{
					ProfileType: runtimeapi.SecurityProfile_Unconfined},
				MaskedPaths: []string{"/proc/kcore"}, ReadonlyPaths: []string{"/proc/sys"},
			},
		},
	}
	for _, v := range c.Env {
		config.Envs = append(config.Envs, &runtimeapi.KeyValue{Key: v.Name, Value: []byte(v.Value)})
	}
	return config
}

// mounts returns the mounts of a container: its volumes, /etc/hosts, and the file of its
// termination message, in the order in which the kubelet has them.
func (k *Kubelet) mounts(p *pod, c *v1.Container, message string) []*runtimeapi.Mount {
	var all []*runtimeapi.Mount
	for i, m := range c.VolumeMounts {
		v := p.volume(m.Name)
		at := k.volumePath(p, v)
		if m.SubPath != "" {
			at = k.subPathOf(p, c, i)
		}
		all = append(all, &runtimeapi.Mount{HostPath: at, ContainerPath: m.MountPath,
			Readonly: m.ReadOnly || hasContent(v) ||
				p.used[v.Name] != nil && p.used[v.Name].readOnly})
	}
	all = append(all, &runtimeapi.Mount{HostPath: k.dir(p) + "/etc-hosts",
		ContainerPath: "/etc/hosts"})
	return append(all, &runtimeapi.Mount{HostPath: message,
		ContainerPath: c.TerminationMessagePath})
}

// volume returns a volume of a pod by its name.
func (p *pod) volume(name string) *v1.Volume {
	i := slices.IndexFunc(p.object.Spec.Volumes, func(v v1.Volume) bool { return v.Name == name })
	return &p.object.Spec.Volumes[i]
}

func hasContent(v *v1.Volume) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
}

// messageFile returns a file for the termination message of a run. The kubelet draws its name.
func (k *Kubelet) messageFile(p *pod, c *v1.Container, restarts uint32) string {
	drawn := checksum(fmt.Sprint(p.object.UID, c.Name, restarts))
	return fmt.Sprintf("%s/containers/%s/%08x", k.dir(p), c.Name, drawn)
}

func (k *Kubelet) volumePath(p *pod, v *v1.Volume) string {
	kind := "empty-dir"
	switch u := p.used[v.Name]; {
	case u != nil && u.csi != nil:
		return k.csiPath(u)
	case u != nil:
		return k.nodePath(u)
	case v.HostPath != nil:
		return path.Clean(v.HostPath.Path)
	case v.ConfigMap != nil:
		kind = "configmap"
	case v.Secret != nil:
		kind = "secret"
	case v.DownwardAPI != nil:
		kind = "downward-api"
	case v.Projected != nil:
		kind = "projected"
	}
	return k.dir(p) + "/volumes/kubernetes.io~" + kind + "/" + v.Name
}

// volumeStep returns what the volumes of a pod need next; nil if it has all of them.
func (k *Kubelet) volumeStep(p *pod) *step {
	for i := range p.object.Spec.Volumes {
		v := &p.object.Spec.Volumes[i]
		w := (*step)(nil)
		switch {
		case isBacked(v):
			w = k.setUpStep(p, v)
		case v.HostPath == nil:
			w = p.once(k.volumeSteps(p, v)...)
		}
		if w != nil {
			return w
		}
	}
	return nil
}

// volumeSteps returns what makes a volume that the node fills. The kubelet notes by an empty file
// that an emptyDir is ready, and so that of every volume with content.
func (k *Kubelet) volumeSteps(p *pod, v *v1.Volume) []*step {
	at, name := k.volumePath(p, v), v.Name
	if w := p.once(k.tokenSteps(p, v)...); w != nil {
		return []*step{w}
	}
	steps := []*step{mkdir(path.Dir(at), 0o750)}
	if v.EmptyDir != nil && v.EmptyDir.Medium == "" || v.ConfigMap != nil {
		steps = append(steps, mkdir(at, 0o777))
	} else {
		steps = append(steps, &step{"mount " + name, world.PortFS,
			&world.MountMemory{Path: at, Mode: 0o1777, BytesMax: k.opts.MemoryBytes}})
	}
	if hasContent(v) {
		name = "wrapped_" + name
		steps = append(steps, &step{"content " + v.Name, world.PortFS,
			&world.WriteDir{Path: at, Files: k.content(p, v)}})
	}
	meta := k.dir(p) + "/plugins/kubernetes.io~empty-dir/" + name
	return append(steps, mkdir(meta, 0o750), &step{"ready " + name, world.PortFS,
		&world.WriteFile{Path: meta + "/ready", Mode: 0o640, Volatile: true}})
}

// devices returns the devices that a container gets (makeBlockVolumes in kubelet_pods.go).
func (k *Kubelet) devices(p *pod, c *v1.Container) []*runtimeapi.Device {
	var all []*runtimeapi.Device
	for _, d := range c.VolumeDevices {
		for i := range p.object.Spec.Volumes {
			v := &p.object.Spec.Volumes[i]
			if v.Name != d.Name {
				continue
			}
			permissions := "mrw"
			if p.used[v.Name].readOnly {
				permissions = "r"
			}
			all = append(all, &runtimeapi.Device{HostPath: k.volumePath(p, v),
				ContainerPath: d.DevicePath, Permissions: permissions})
		}
	}
	return all
}

// content returns the files of a volume.
func (k *Kubelet) content(p *pod, v *v1.Volume) []world.DirFile {
	var files []world.DirFile
	add := func(name string, data []byte) {
		files = append(files, world.DirFile{Path: name, Data: data, Mode: 0o644})
	}
	switch {
	case v.Projected != nil:
		return k.projected(p, v)
	case v.ConfigMap != nil:
		o := k.opts.Server.Object(world.ResourceConfigMaps, p.object.Namespace, v.ConfigMap.Name)
		for _, key := range sortedKeys(o.ConfigMap.Data) {
			add(key, []byte(o.ConfigMap.Data[key]))
		}
	case v.Secret != nil:
		o := k.opts.Server.Object(world.ResourceSecrets, p.object.Namespace, v.Secret.SecretName)
		for _, key := range sortedKeys(o.Secret.Data) {
			add(key, o.Secret.Data[key])
		}
	case v.DownwardAPI != nil:
		for _, item := range v.DownwardAPI.Items { // of the name alone
			add(item.Path, []byte(p.object.Name))
		}
	}
	return files
}

// hostsStep writes the /etc/hosts of a pod, for each sandbox.
func (k *Kubelet) hostsStep(p *pod, s *state) *step {
	text := "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n" +
		"::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n" +
		"fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"
	if p.object.Spec.HostNetwork {
		hosts, _ := k.opts.Disk.Read("/etc/hosts")
		text = "# Kubernetes-managed hosts file (host network).\n" + string(hosts)
	} else {
		text += s.sandbox.IP + "\t" + p.object.Name + "\n"
	}
	return &step{"hosts " + s.sandbox.ID, world.PortFS, &world.WriteFile{
		Path: k.dir(p) + "/etc-hosts", Data: []byte(text), Mode: 0o644, Volatile: true}}
}

// linkStep links the log of a container to the directory of all logs.
func (k *Kubelet) linkStep(p *pod, c *runtime.Container) *step {
	return &step{"link " + c.ID, world.PortFS, &world.MakeLink{
		Path: fmt.Sprintf("%s/%s_%s_%s-%s.log", k.opts.LinksDir, c.PodName, c.PodNamespace, c.Name,
			c.ID),
		Target: fmt.Sprintf("%s/%s/%d.log", k.logDir(p), c.Name, c.Attempt)}}
}

// cgroup returns the cgroup of a pod.
func (k *Kubelet) cgroup(p *pod) string {
	switch qosClass(p.object) {
	case v1.PodQOSGuaranteed:
		return "kubepods/pod" + string(p.object.UID)
	case v1.PodQOSBurstable:
		return "kubepods/burstable/pod" + string(p.object.UID)
	}
	return "kubepods/besteffort/pod" + string(p.object.UID)
}

// cgroupParent returns the cgroup of a pod as the runtime gets it; of systemd, with the slices that
// it is in (ToSystemd in pkg/kubelet/cm/cgroup_manager_linux.go).
func (k *Kubelet) cgroupParent(p *pod) string {
	if !k.opts.Systemd {
		return "/" + k.cgroup(p)
	}
	at, slice := "", ""
	for _, name := range strings.Split(k.cgroup(p), "/") {
		if slice != "" {
			slice += "-"
		}
		slice += strings.ReplaceAll(name, "-", "_")
		at += "/" + slice + ".slice"
	}
	return at
}

// cgroupStep makes the cgroup of a pod, with its limits.
func (k *Kubelet) cgroupStep(p *pod) *step {
	r := podResources(p.object)
	set := &world.SetCgroup{Path: k.cgroup(p), Systemd: k.opts.Systemd, CPUShares: uint64(r.CpuShares),
		CPUQuota: r.CpuQuota, MemoryBytes: r.MemoryLimitInBytes, PidsMax: k.opts.PidsMax}
	if set.CPUQuota > 0 {
		set.CPUPeriod = uint64(r.CpuPeriod)
	}
	for _, size := range k.opts.PageSizes {
		set.HugePages = append(set.HugePages, world.HugePageLimit{SizeBytes: size})
	}
	return &step{"cgroup", world.PortHost, set}
}

// podResources returns the resources of a pod: its limits are those of its containers together, if
// each has one.
func podResources(p *v1.Pod) *runtimeapi.LinuxContainerResources {
	requests := podresources.PodRequests(p, podresources.PodResourcesOptions{})
	all := map[v1.ResourceName]bool{v1.ResourceCPU: true, v1.ResourceMemory: true}
	limits := podresources.PodLimits(p, podresources.PodResourcesOptions{
		ContainerFn: func(list v1.ResourceList, _ podresources.ContainerType) {
			for name := range all { //ordered: each by itself
				if list.Name(name, resource.DecimalSI).IsZero() {
					delete(all, name)
				}
			}
		}})
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if !all[name] {
			delete(limits, name)
		}
	}
	return linuxResources(requests, limits)
}

// linuxResources returns amounts in the units of the kernel.
func linuxResources(requests, limits v1.ResourceList) *runtimeapi.LinuxContainerResources {
	return &runtimeapi.LinuxContainerResources{CpuPeriod: 100_000,
		CpuShares:          max(2, requests.Cpu().MilliValue()*1024/1000),
		CpuQuota:           limits.Cpu().MilliValue() * 100,
		MemoryLimitInBytes: limits.Memory().Value()}
}

func (k *Kubelet) containerResources(p *v1.Pod,
	c *v1.Container) *runtimeapi.LinuxContainerResources {
	r := linuxResources(c.Resources.Requests, c.Resources.Limits)
	switch qosClass(p) {
	case v1.PodQOSGuaranteed:
		r.OomScoreAdj = -997
	case v1.PodQOSBestEffort:
		r.OomScoreAdj = 1000
	default:
		share := 1000 * c.Resources.Requests.Memory().Value() / k.opts.MemoryBytes
		r.OomScoreAdj = min(999, max(3, 1000-share))
	}
	return r
}

// qosClass returns the QoS class of a pod, by the CPU and memory of its containers.
func qosClass(p *v1.Pod) v1.PodQOSClass {
	amounts, equal := 0, 0
	list := append(append([]v1.Container{}, p.Spec.InitContainers...), p.Spec.Containers...)
	for i := range list {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			request, limit := list[i].Resources.Requests[name], list[i].Resources.Limits[name]
			if !request.IsZero() || !limit.IsZero() {
				amounts++
			}
			if !limit.IsZero() && request.Cmp(limit) == 0 {
				equal++
			}
		}
	}
	switch {
	case amounts == 0:
		return v1.PodQOSBestEffort
	case equal == 2*len(list):
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}

// tiers returns the calls that make the cgroups above those of the pods.
func (k *Kubelet) tiers() []any {
	pages := func(most int64) (limits []world.HugePageLimit) {
		for _, size := range k.opts.PageSizes {
			limits = append(limits, world.HugePageLimit{SizeBytes: size, MaxBytes: most})
		}
		return limits
	}
	systemd := k.opts.Systemd
	return []any{
		&world.SetCgroup{Path: "kubepods", Systemd: systemd, CPUShares: uint64(k.opts.CPUs) * 1024,
			MemoryBytes: k.opts.MemoryBytes, HugePages: pages(math.MaxInt64)},
		&world.SetCgroup{Path: "kubepods/burstable", Systemd: systemd,
			CPUShares: uint64(k.opts.CPUs) * 1024, HugePages: pages(-1)},
		&world.SetCgroup{Path: "kubepods/besteffort", Systemd: systemd, CPUShares: 2,
			HugePages: pages(-1)},
	}
}
