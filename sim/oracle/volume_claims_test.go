package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// claimScript is a pod with a claim on a local volume, /mnt/disks/a, and what happens to it.
type claimScript struct {
	*script
	path string // of the volume on the node
}

// newClaimScript creates the claim, its volume if that is given a path, and the pod.
func newClaimScript(s *script, local string) claimScript {
	pod := spec("u1", always, "app")
	pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/data"}}
	created := func(r api.Resource, namespace, name string, o api.Object) {
		s.addFact(truth.ObjectCreated, truth.Fact{Write: &truth.Write{Resource: r,
			Namespace: namespace, Name: name, After: o}})
	}
	s.AgentStarted(s.now)
	created(api.ResourceClaims, pod.Namespace, "c", api.Object{Claim: &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "c"},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "pv"}}})
	if local != "" {
		created(api.ResourceVolumes, "", "pv", api.Object{Volume: &v1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pv"},
			Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{
				Local: &v1.LocalVolumeSource{Path: local}}}}})
	}
	s.setDesired(pod)
	return claimScript{s, podsDir + "/u1/volumes/kubernetes.io~local-volume/pv"}
}

// mount mounts a path of a file system at the path of the volume.
func (s claimScript) mount(source, within string) {
	s.addFact(truth.Mounted, truth.Fact{Path: s.path, Source: source, NewPath: within})
}

// start starts the container with the volume mounted from a path of the node.
func (s claimScript) start(from string) {
	sandbox := s.sandbox("u1", 0)
	s.addFact(truth.ContainerCreated, truth.Fact{SandboxID: sandbox, Container: "app",
		ContainerID: "u1-app#0", Mounts: []truth.Mount{{HostPath: from, ContainerPath: "/data"}}})
	s.addFact(truth.ContainerStarted, truth.Fact{SandboxID: sandbox, Container: "app",
		ContainerID: "u1-app#0"})
}

func (s claimScript) remove(path, cause string) {
	s.addFact(truth.PathRemoved, truth.Fact{Path: path, Cause: cause})
}

func TestVolumeClaims(t *testing.T) {
	runCases(t, []testCase{
		{"the volume", "", func(s *script) {
			c := newClaimScript(s, "/mnt/disks/a")
			c.mount(nodeDisk, "/mnt/disks/a")
			c.start(c.path)
		}},
		{"a device", "", func(s *script) {
			c := newClaimScript(s, "/dev/a")
			c.mount("/dev/a", "/")
			c.start(c.path)
		}},
		{"nothing is mounted", "claims", func(s *script) {
			c := newClaimScript(s, "/mnt/disks/a")
			c.start(c.path)
		}},
		{"another volume is mounted", "claims", func(s *script) {
			c := newClaimScript(s, "/mnt/disks/a")
			c.mount(nodeDisk, "/mnt/disks/b")
			c.start(c.path)
		}},
		{"another mount is on top", "claims", func(s *script) {
			c := newClaimScript(s, "/mnt/disks/a")
			c.mount(nodeDisk, "/mnt/disks/a")
			c.mount("/dev/b", "/")
			c.start(c.path)
		}},
		{"another path", "claims", func(s *script) {
			c := newClaimScript(s, "/mnt/disks/a")
			c.mount(nodeDisk, "/mnt/disks/a")
			c.start(podsDir + "/u1/volumes/kubernetes.io~empty-dir/v")
		}},
		{"a claim without a volume", "claims", func(s *script) {
			c := newClaimScript(s, "")
			c.start(c.path)
		}},
		{"data of a volume is removed", "claims", func(s *script) {
			newClaimScript(s, "/mnt/disks/a").remove("/mnt/disks/a/file", "")
		}},
		{"data is removed through a mount", "claims", func(s *script) {
			c := newClaimScript(s, "/dev/a")
			c.mount("/dev/a", "/")
			c.remove(c.path+"/file", "")
		}},
		{"an administrator removes data", "", func(s *script) {
			newClaimScript(s, "/mnt/disks/a").remove("/mnt/disks/a/file", truth.CauseAdministrator)
		}},
		{"a mount point is removed", "", func(s *script) {
			c := newClaimScript(s, "/mnt/disks/a")
			c.mount(nodeDisk, "/mnt/disks/a")
			s.addFact(truth.Unmounted, truth.Fact{Path: c.path})
			c.remove(c.path, "")
		}},
	})
}

// If a driver has lied, a container sees the empty target, and nothing else.
func TestVolumeClaimsOfLiar(t *testing.T) {
	start := func(from string) func(*script) {
		return func(s *script) {
			csiStartAgent(s)
			s.pods["u1"].Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v",
				MountPath: "/data"}}
			csiFact(s, truth.VolumeNotPublished, "h", csiTarget("u1"))
			claimScript{s, ""}.start(from)
		}
	}
	runCases(t, []testCase{
		{"the target", "", start(csiTarget("u1"))},
		{"the volume of another pod", "claims", start(csiTarget("u2"))},
	})
}

func TestUnsettledDevices(t *testing.T) {
	const global = "/var/lib/kubelet/plugins/kubernetes.io/local-volume/mounts/pv"
	m := newModel(Options{PodsDir: "/var/lib/kubelet/pods"})
	m.volumes.apply(&truth.Fact{Kind: truth.Mounted, Path: global, Source: "/dev/a", NewPath: "/"})
	if got := m.unsettledDevices(); len(got) != 1 {
		t.Errorf("%v for a device that no pod has", got)
	}
	m.volumes.apply(&truth.Fact{Kind: truth.Mounted, Path: "/var/lib/kubelet/pods/u/v",
		Source: "/dev/a", NewPath: "/"})
	if got := m.unsettledDevices(); len(got) > 0 {
		t.Errorf("%v for a device that a pod has", got)
	}
}
