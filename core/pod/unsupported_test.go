package pod

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestUnsupportedSecurity(t *testing.T) {
	const own = "spec.containers[0].securityContext."
	user, yes := ref(int64(7)), ref(true)
	for _, test := range []struct {
		pod       v1.PodSecurityContext
		container v1.SecurityContext
		want      []string
	}{
		{v1.PodSecurityContext{RunAsUser: user, RunAsGroup: user, RunAsNonRoot: yes, FSGroup: user},
			v1.SecurityContext{Privileged: yes, ReadOnlyRootFilesystem: yes}, nil},
		{v1.PodSecurityContext{RunAsNonRoot: yes, RunAsGroup: user}, v1.SecurityContext{}, nil},
		{v1.PodSecurityContext{WindowsOptions: &v1.WindowsSecurityContextOptions{}},
			v1.SecurityContext{WindowsOptions: &v1.WindowsSecurityContextOptions{}},
			[]string{"spec.securityContext.windowsOptions", own + "windowsOptions"}},
	} {
		got := UnsupportedFields(secured(&test.pod, &test.container).Spec, false)
		if !slices.Equal(got, test.want) {
			t.Errorf("%v, %v: %s, want %s", test.pod, test.container,
				strings.Join(got, "; "), strings.Join(test.want, "; "))
		}
	}
}

func TestUnsupportedEnvironment(t *testing.T) {
	for _, test := range []struct {
		from *v1.EnvVarSource
		host bool // network
		want string
	}{
		{field("metadata.name"), true, ""},
		{field("status.podIP"), false, ""},
		{field("status.podIPs"), true, ""},
		{field("status.hostIP"), false, ""},
		{resourceOf("", "limits.cpu", ""), false, ""},
		{resourceOf("setup", "limits.ephemeral-storage", ""), false, ""},
		{resourceOf("other", "limits.ephemeral-storage", ""), false, ""},
		{resourceOf("", "requests.ephemeral-storage", ""), false, ""},
		{resourceOf("", "limits.ephemeral-storage", ""), false, ""},
		{&v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{}}, false, ""},
		{&v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{}}, false, ""},
		{&v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{}}, false, ""},
	} {
		pod := envPod().Spec
		pod.Spec.HostNetwork = test.host
		pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "A"}, {Name: "B", ValueFrom: test.from}}
		want := ""
		if test.want != "" {
			want = "spec.containers[0].env[1].valueFrom." + test.want
		}
		if got := strings.Join(UnsupportedFields(pod, false), "; "); got != want {
			t.Errorf("%v, host network %v: %q, want %q", test.from, test.host, got, want)
		}
	}
}

// Volume sources that are not implemented are rejected by their path.
func TestUnsupportedVolumes(t *testing.T) {
	fields := v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{}}
	secret := v1.VolumeProjection{Secret: &v1.SecretProjection{}}
	bundle := v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{}}
	certificate := v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{}}
	storage := []v1.DownwardAPIVolumeFile{{Path: "s", ResourceFieldRef: &v1.ResourceFieldSelector{
		ContainerName: "web", Resource: "limits.ephemeral-storage"}}}
	for _, c := range []struct {
		source v1.VolumeSource
		want   string
	}{
		{v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}, ""},
		{v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}, ""},
		{v1.VolumeSource{RBD: &v1.RBDVolumeSource{}}, ""},
		{v1.VolumeSource{FlexVolume: &v1.FlexVolumeSource{}}, "spec.volumes[0].flexVolume"},
		{v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{}}, ""},
		{v1.VolumeSource{FC: &v1.FCVolumeSource{}}, ""},
		{v1.VolumeSource{}, "spec.volumes[0] (v)"},
		{v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
			Sources: []v1.VolumeProjection{fields}}}, ""},
		{v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
			Sources: []v1.VolumeProjection{secret, bundle}}}, ""},
		{v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
			Sources: []v1.VolumeProjection{secret, certificate}}}, ""},
		{v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: storage}}, ""},
	} {
		pod := spec(v1.RestartPolicyAlways, "", "web")
		pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: c.source}}
		if got := strings.Join(UnsupportedFields(pod, false), ", "); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// Of many fields that are not supported the first ones are listed, and supported ones cost nothing.
func TestManyUnsupportedFields(t *testing.T) {
	pod := spec(v1.RestartPolicyAlways, "", "c0")
	pod.Spec.Volumes = make([]v1.Volume, 1000)
	for i := range pod.Spec.Volumes {
		pod.Spec.Volumes[i] = v1.Volume{Name: "v"} // of no kind
	}
	if found := UnsupportedFields(pod, false); len(found) != unsupportedMax ||
		found[9] != "spec.volumes[9] (v)" {
		t.Errorf("%d fields: %q", len(found), found)
	}
	for i := range pod.Spec.Volumes {
		pod.Spec.Volumes[i].VolumeSource = v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}
	}
	allocations := testing.AllocsPerRun(10, func() { UnsupportedFields(pod, false) })
	if allocations > 10 {
		t.Errorf("%.0f allocations for a pod that is supported", allocations)
	}
}
