package criconfig

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/csi"
	"seedlet.dev/core/image"
	"seedlet.dev/core/userns"
	"seedlet.dev/core/volume"
)

// withVolume returns a pod whose app container mounts the volume "data", an emptyDir.
func withVolume(mount v1.VolumeMount) *Pod {
	p := newPod()
	mount.Name = "data"
	p.setVolumes(v1.Volume{Name: "data",
		VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
	p.web().VolumeMounts = []v1.VolumeMount{mount}
	return p
}

func TestMounts(t *testing.T) {
	enabled, both := v1.RecursiveReadOnlyEnabled, v1.MountPropagationBidirectional
	unknown := v1.RecursiveReadOnlyMode("Sometimes")
	env := newVariables([]*runtimeapi.KeyValue{{Key: "POD", Value: []byte("p1")}, {Key: "EMPTY"}})
	at := "/pods/u/volumes/kubernetes.io~empty-dir/data"
	bound := "/pods/u/volume-subpaths/data/web/0"
	for _, c := range []struct {
		mount     v1.VolumeMount
		recursive bool // the runtime can
		want      *runtimeapi.Mount
		err       string
	}{
		{v1.VolumeMount{MountPath: "d"}, false,
			&runtimeapi.Mount{ContainerPath: "/d", HostPath: at}, ""},
		{v1.VolumeMount{MountPath: "/d", ReadOnly: true, RecursiveReadOnly: &enabled}, true,
			&runtimeapi.Mount{ContainerPath: "/d", HostPath: at, Readonly: true,
				RecursiveReadOnly: true}, ""},
		{v1.VolumeMount{MountPath: "/d", ReadOnly: true, RecursiveReadOnly: &enabled}, false, nil,
			"not supported by the runtime"},
		{v1.VolumeMount{MountPath: "/d", MountPropagation: &both}, false,
			&runtimeapi.Mount{ContainerPath: "/d", HostPath: at,
				Propagation: runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL}, ""},
		{v1.VolumeMount{MountPath: "/d", SubPathExpr: "$(POD)/x"}, false,
			&runtimeapi.Mount{ContainerPath: "/d", HostPath: bound}, ""},
		{v1.VolumeMount{MountPath: "/d", SubPathExpr: "$(NONE)"}, false, nil, "missing value for NONE"},
		{v1.VolumeMount{MountPath: "/d", SubPathExpr: "$(NONE)$(EMPTY)$(POD)$(NONE)"}, false, nil,
			"missing value for EMPTY, NONE"},
		{v1.VolumeMount{MountPath: "/d", RecursiveReadOnly: &enabled}, true, nil,
			`volume "data" requested recursive read-only mode, but it is not read-only`},
		{v1.VolumeMount{MountPath: "/d", ReadOnly: true, RecursiveReadOnly: &enabled,
			MountPropagation: &both}, true, nil, `not compatible with propagation "Bidirectional"`},
		{v1.VolumeMount{MountPath: "/d", ReadOnly: true, RecursiveReadOnly: &unknown}, true, nil,
			`unknown recursive read-only mode "Sometimes"`},
		{v1.VolumeMount{MountPath: "/d", SubPath: "a/../../b"}, false, nil, "'..'"},
		{v1.VolumeMount{MountPath: "/d", SubPath: "/etc"}, false, nil, "absolute"},
	} {
		p := withVolume(c.mount)
		p.Node.RecursiveReadOnly = c.recursive
		got, err := p.mounts(p.web(), env, Images{})
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%+v: %v, want %s", c.mount, err, c.err)
			}
			continue
		}
		if err != nil || len(got) != 1 || got[0].String() != c.want.String() {
			t.Errorf("%+v: %v, %v; want %v", c.mount, got, err, c.want)
		}
	}
}

// Containers can only read a volume whose content the agent writes, sub-paths included.
func TestMountsOfContentAreReadOnly(t *testing.T) {
	p := newPod()
	for name, source := range map[string]v1.VolumeSource{
		"configmap": {ConfigMap: &v1.ConfigMapVolumeSource{}},
		"secret":    {Secret: &v1.SecretVolumeSource{}},
		"projected": {Projected: &v1.ProjectedVolumeSource{}},
		"downward":  {DownwardAPI: &v1.DownwardAPIVolumeSource{}},
		"empty":     {EmptyDir: &v1.EmptyDirVolumeSource{}},
		"host":      {HostPath: &v1.HostPathVolumeSource{Path: "/data"}},
	} {
		p.setVolumes(v1.Volume{Name: name, VolumeSource: source})
		p.web().VolumeMounts = []v1.VolumeMount{{Name: name, MountPath: "/a"},
			{Name: name, MountPath: "/b", SubPath: "x"}, {Name: name, MountPath: "/c", ReadOnly: true}}
		got, err := p.mounts(p.web(), nil, Images{})
		if err != nil || len(got) != 3 {
			t.Fatalf("%s: %v, %v", name, got, err)
		}
		want := name != "empty" && name != "host"
		if got[0].Readonly != want || got[1].Readonly != want || !got[2].Readonly {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Where SELinux is enabled the runtime gives every sandbox its own categories, so all files of the
// pod are relabeled, whatever its security contexts are. A path of the node is not.
func TestMountsAreRelabeled(t *testing.T) {
	for _, enabled := range []bool{false, true} {
		for _, options := range []*v1.SELinuxOptions{nil, {Level: "s0:c1,c2"}} {
			p := newPod()
			p.Node.SELinux, p.IPs = enabled, []string{"10.0.0.1"}
			p.Spec.Spec.SecurityContext = &v1.PodSecurityContext{SELinuxOptions: options}
			p.web().SecurityContext = &v1.SecurityContext{ReadOnlyRootFilesystem: ref(true)}
			p.web().TerminationMessagePath = "log"
			for name, source := range map[string]v1.VolumeSource{
				"secret": {Secret: &v1.SecretVolumeSource{}},
				"empty":  {EmptyDir: &v1.EmptyDirVolumeSource{}},
				"host":   {HostPath: &v1.HostPathVolumeSource{Path: "/data"}},
				"image":  {Image: &v1.ImageVolumeSource{}},
			} {
				p.setVolumes(append(p.Spec.Spec.Volumes, v1.Volume{Name: name, VolumeSource: source})...)
				p.web().VolumeMounts = append(p.web().VolumeMounts, v1.VolumeMount{Name: name,
					MountPath: name, ReadOnly: true})
			}
			got, err := p.mounts(p.web(), nil, Images{})
			got = append(got, p.messageMount(p.web(), &Run{})...)
			if err != nil || len(got) != 6 {
				t.Fatalf("%v, %v", got, err)
			}
			for _, m := range got {
				isNodes := m.ContainerPath == "/host" || m.ContainerPath == "/image"
				if want := enabled && !isNodes; m.SelinuxRelabel != want {
					t.Errorf("SELinux %v, options %v: %v", enabled, options, m)
				}
				isOwn := m.ContainerPath == etcHosts || m.ContainerPath == "/log"
				if m.Readonly == isOwn {
					t.Errorf("with a read-only root file system: %v", m)
				}
			}
		}
	}
}

// A volume of a CSI driver is relabeled if its file system has labels of its own, and if the pod
// may write; a local volume if the pod may write.
func TestMountsOfClaimsAreRelabeled(t *testing.T) {
	for _, c := range []struct {
		backing volume.Backing
		want    bool
	}{
		{volume.Backing{Plugin: volume.CSIPlugin, CSI: &csi.Use{}}, false},
		{volume.Backing{Plugin: volume.CSIPlugin, CSI: &csi.Use{}, Relabel: true}, true},
		{volume.Backing{Plugin: volume.CSIPlugin, CSI: &csi.Use{}, Relabel: true, ReadOnly: true}, false},
		{volume.Backing{Plugin: volume.LocalPlugin}, true},
		{volume.Backing{Plugin: volume.LocalPlugin, ReadOnly: true}, false},
		{volume.Backing{Plugin: volume.NFSPlugin}, false},
		{volume.Backing{Plugin: volume.HostPathPlugin}, false},
	} {
		for _, enabled := range []bool{false, true} {
			p := newPod()
			p.Node.SELinux = enabled
			p.setVolumes(v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}})
			p.Mounted = &volume.Set{Volumes: []volume.Volume{{Name: "data", Backing: &c.backing}}}
			p.web().VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
			got, err := p.mounts(p.web(), nil, Images{})
			if err != nil || len(got) != 1 || got[0].SelinuxRelabel != (c.want && enabled) {
				t.Errorf("SELinux %v, %+v: %v, %v", enabled, c.backing, got, err)
			}
		}
	}
}

// Each run writes its termination message to a file of its own.
func TestMessageMount(t *testing.T) {
	p := newPod()
	if mounts := p.messageMount(p.web(), &Run{Restarts: 1}); len(mounts) != 0 {
		t.Errorf("mounts %v without a path", mounts)
	}
	p.web().TerminationMessagePath = "/dev/termination-log"
	mounts := p.messageMount(p.web(), &Run{Restarts: 1})
	if len(mounts) != 1 || mounts[0].HostPath != "/pods/u/containers/web/1" {
		t.Errorf("mounts %v", mounts)
	}
}

// With a user namespace, sandbox, containers and mounts have the pod's IDs.
func TestUserNamespace(t *testing.T) {
	p := newPod()
	p.IDs = userns.Range{First: 131072, Length: 65536}
	for _, option := range []*runtimeapi.NamespaceOption{
		p.sandboxSecurity().NamespaceOptions,
		p.containerSecurity(p.web(), image.User{}).NamespaceOptions,
	} {
		if userns.FromUserNamespace(option.UsernsOptions) != p.IDs {
			t.Errorf("namespaces %v", option)
		}
	}
	for _, m := range p.mapIDs([]*runtimeapi.Mount{{}}) {
		if m.UidMappings[0].HostId != p.IDs.First || m.GidMappings[0].Length != p.IDs.Length {
			t.Errorf("mounted with %v", m)
		}
	}
}
