package oracle

import (
	"testing"

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
	o := &csiDevices{}
	o.checkFact(s.model, &truth.Fact{Kind: truth.ContainerCreated, ContainerID: "c",
		ContainerConfig: &runtimeapi.ContainerConfig{Devices: devices}})
	if f := o.checkFact(s.model, &truth.Fact{Kind: truth.ContainerStarted, ContainerID: "c",
		PodUID: "u1", Container: "app"}); f != nil {
		s.report(o, f, s.now)
	}
}

func TestCSIDevices(t *testing.T) {
	const own, oracle = "/dev/a.test/h", "csi-devices"
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
