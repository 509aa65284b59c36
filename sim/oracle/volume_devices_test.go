package oracle

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// deviceStart starts a container of a pod with a block volume, with the given devices. The link
// leads to a source.
func deviceStart(s *script, source string, devices ...*runtimeapi.Device) {
	s.model.opts.DeviceAt = func(path string) (string, bool) { return source, path == "/link" }
	s.AgentStarted(s.now)
	csiObjects(s)
	block := v1.PersistentVolumeBlock
	pv := s.model.volumes.volumes["pv"].DeepCopy()
	pv.Name, pv.Spec.VolumeMode = "pv", &block
	writeObject(s, world.Object{Volume: pv}, world.Object{Volume: pv}, 0)
	csiPod(s, "u1")
	p := s.model.pods["u1"]
	p.spec.Spec.Containers[0].VolumeDevices = []v1.VolumeDevice{{Name: "v", DevicePath: "/dev/x"}}
	csiFact(s, truth.VolumePublished, "h", s.model.csiUses(p.spec)[0].path)
	s.model.volumes.apply(&truth.Fact{Kind: truth.DeviceHeld, Time: s.now,
		Path: s.model.csiBlocks() + "/pv/dev/u1"})
	o := &volumeDevices{}
	o.checkFact(s.model, &truth.Fact{Kind: truth.ContainerCreated, ContainerID: "c",
		ContainerConfig: &runtimeapi.ContainerConfig{Devices: devices}})
	if f := o.checkFact(s.model, &truth.Fact{Kind: truth.ContainerStarted, ContainerID: "c",
		PodUID: "u1", Container: "app"}); f != nil {
		s.report(o, f, s.now)
	}
}

func TestVolumeDevices(t *testing.T) {
	const own, oracle = "/dev/a.test/h", "devices"
	right := &runtimeapi.Device{ContainerPath: "/dev/x", HostPath: "/link", Permissions: "mrw"}
	runCases(t, []testCase{
		{"the device of the volume", "", func(s *script) { deviceStart(s, own, right) }},
		{"no device", oracle, func(s *script) { deviceStart(s, own) }},
		{"the device of another volume", oracle, func(s *script) {
			deviceStart(s, "/dev/a.test/other", right)
		}},
		{"a device that cannot be written to", oracle, func(s *script) {
			deviceStart(s, own, &runtimeapi.Device{ContainerPath: "/dev/x", HostPath: "/link",
				Permissions: "r"})
		}},
		{"one device too many", oracle, func(s *script) {
			deviceStart(s, own, right, &runtimeapi.Device{ContainerPath: "/dev/y", HostPath: "/link"})
		}},
	})
}

// An ephemeral container that was added to a pod has the devices that it names, and the others are
// judged as before.
func TestDevicesOfDebuggedPods(t *testing.T) {
	const name = "devices"
	link := &runtimeapi.Device{ContainerPath: "/dev/x", HostPath: "/link", Permissions: "mrw"}
	start := func(container string, change func(*v1.Pod),
		devices ...*runtimeapi.Device) func(*script) {
		return func(s *script) {
			deviceStart(s, "/dev/a.test/h", link)
			pod := s.model.pods["u1"].spec.DeepCopy()
			pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{
				EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug",
					VolumeDevices: []v1.VolumeDevice{{Name: "v", DevicePath: "/dev/x"}}}}}
			change(pod)
			s.setDesired(pod)
			o := &volumeDevices{}
			o.checkFact(s.model, &truth.Fact{Kind: truth.ContainerCreated, ContainerID: "d",
				ContainerConfig: &runtimeapi.ContainerConfig{Devices: devices}})
			if f := o.checkFact(s.model, &truth.Fact{Kind: truth.ContainerStarted, ContainerID: "d",
				PodUID: "u1", Container: container}); f != nil {
				s.report(o, f, s.now)
			}
		}
	}
	same := func(*v1.Pod) {}
	runCases(t, []testCase{
		{"its device", "", start("debug", same, link)},
		{"no device", name, start("debug", same)},
		{"another container without its device", name, start("app", same)},
		{"the image has changed, too", "", start("app", func(p *v1.Pod) {
			p.Spec.Containers[0].Image = "image:2"
		})},
	})
}

// localDevice is a pod with the device of a local volume, /dev/a, and what happens to it.
type localDevice struct {
	claimScript
	bound string // where the device is to be bound
}

// newLocalDevice creates the pod. What is bound is the device at a path; empty: nothing.
func newLocalDevice(s *script, source string) localDevice {
	c := newClaimScript(s, "/dev/a")
	p := s.model.pods["u1"]
	p.spec.Spec.Containers[0].VolumeMounts = nil
	p.spec.Spec.Containers[0].VolumeDevices = []v1.VolumeDevice{{Name: "v", DevicePath: "/dev/x"}}
	s.model.opts.DeviceAt = func(path string) (string, bool) { return source, source != "" }
	return localDevice{c, s.model.localBlocks() + "/pv/u1"}
}

func (d localDevice) hold() { d.addFact(truth.DeviceHeld, truth.Fact{Path: d.bound}) }

// startWithDevice starts the container with a device.
func (d localDevice) startWithDevice() {
	sandbox := d.sandbox("u1", 0)
	d.addFact(truth.ContainerCreated, truth.Fact{SandboxID: sandbox, Container: "app",
		ContainerID: "u1-app#0", ContainerConfig: &runtimeapi.ContainerConfig{
			Devices: []*runtimeapi.Device{{ContainerPath: "/dev/x", Permissions: "mrw",
				HostPath: podsDir + "/u1/volumeDevices/kubernetes.io~local-volume/pv"}}}})
	d.addFact(truth.ContainerStarted, truth.Fact{SandboxID: sandbox, Container: "app",
		ContainerID: "u1-app#0"})
}

func TestLocalDevices(t *testing.T) {
	const oracle = "devices"
	runCases(t, []testCase{
		{"the device of the volume", "", func(s *script) {
			d := newLocalDevice(s, "/dev/a")
			d.hold()
			d.startWithDevice()
		}},
		{"nothing holds the device", oracle, func(s *script) {
			newLocalDevice(s, "/dev/a").startWithDevice()
		}},
		{"another device is bound", oracle, func(s *script) {
			d := newLocalDevice(s, "/dev/b")
			d.hold()
			d.startWithDevice()
		}},
		{"the device is released while the container runs", oracle, func(s *script) {
			d := newLocalDevice(s, "/dev/a")
			d.hold()
			d.startWithDevice()
			d.addFact(truth.DeviceReleased, truth.Fact{Path: d.bound})
		}},
		{"the device is unmounted while the container runs", oracle, func(s *script) {
			d := newLocalDevice(s, "/dev/a")
			d.hold()
			d.startWithDevice()
			d.addFact(truth.Unmounted, truth.Fact{Path: d.bound})
		}},
		{"the directory of the pod goes first", oracle, func(s *script) {
			d := newLocalDevice(s, "/dev/a")
			d.addFact(truth.Mounted, truth.Fact{Path: d.bound, Source: nodeDisk})
			d.addFact(truth.PathRemoved, truth.Fact{Path: podsDir + "/u1"})
		}},
		{"the directory of the pod goes last", "", func(s *script) {
			d := newLocalDevice(s, "/dev/a")
			d.addFact(truth.Mounted, truth.Fact{Path: d.bound, Source: nodeDisk})
			d.addFact(truth.Unmounted, truth.Fact{Path: d.bound})
			d.addFact(truth.PathRemoved, truth.Fact{Path: podsDir + "/u1"})
		}},
		{"the power is lost", "", func(s *script) {
			d := newLocalDevice(s, "/dev/a")
			d.hold()
			d.startWithDevice()
			d.addFact(truth.DeviceReleased, truth.Fact{Path: d.bound, Cause: truth.CauseReboot})
		}},
	})
}

// What is bound or kept open in the end belongs to a pod that is desired.
func TestUnsettledBlocks(t *testing.T) {
	m := newModel(Options{PodsDir: podsDir})
	at := m.localBlocks() + "/pv/u1"
	m.volumes.apply(&truth.Fact{Kind: truth.Mounted, Path: at})
	m.volumes.apply(&truth.Fact{Kind: truth.DeviceHeld, Path: at})
	if got := m.unsettledBlocks(); len(got) != 2 {
		t.Errorf("%v for a pod that does not exist", got)
	}
	m.pods["u1"] = &pod{spec: &v1.Pod{}}
	if got := m.unsettledBlocks(); len(got) > 0 {
		t.Errorf("%v for a pod that is desired", got)
	}
	m.pods["u1"].terminalAt = time.Unix(1, 0)
	if got := m.unsettledBlocks(); len(got) != 2 {
		t.Errorf("%v for a pod that has ended", got)
	}
}
