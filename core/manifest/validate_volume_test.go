package manifest

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// Only certain fields can be projected, and a recursive read-only mount must not propagate.
func TestValidateVolumeFieldsAndMounts(t *testing.T) {
	for path, want := range map[string]bool{
		"metadata.name": true, "metadata.labels": true, "metadata.annotations['a']": true,
		"status.podIP": false, "spec.nodeName": false,
	} {
		if volumeField(path) != want {
			t.Errorf("%s: %v, want %v", path, !want, want)
		}
	}
	enabled, both := v1.RecursiveReadOnlyEnabled, v1.MountPropagationHostToContainer
	v := &validator{volumes: map[string]*v1.Volume{"v": {}}}
	v.checkMount(&v1.VolumeMount{Name: "v", MountPath: "/v", ReadOnly: true,
		RecursiveReadOnly: &enabled}, nil)
	if len(v.errs) != 0 {
		t.Errorf("%v", v.errs)
	}
	v.checkMount(&v1.VolumeMount{Name: "v", MountPath: "/v", ReadOnly: true,
		RecursiveReadOnly: &enabled, MountPropagation: &both}, nil)
	if len(v.errs) != 1 || v.errs[0].Field != "recursiveReadOnly" {
		t.Errorf("%v", v.errs)
	}
}

// Of a pod from the API server, claims and devices are checked as the server checks them.
func TestValidateClaimsAndDevices(t *testing.T) {
	const pod = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: app
    image: app:1
    volumeMounts: [{name: files, mountPath: /files}]
    volumeDevices: [{name: raw, devicePath: /dev/a}]
  volumes:
  - {name: raw, persistentVolumeClaim: {claimName: raw}}
  - {name: tmp, emptyDir: {}}
  - name: files
    ephemeral:
      volumeClaimTemplate:
        spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`
	const device, container = "spec.containers[0].volumeDevices[0]", "{name: raw, devicePath: /dev/a}"
	const template = "spec.volumes[2].ephemeral.volumeClaimTemplate"
	for _, c := range [][3]string{
		{"", "", ""},
		{container, "{name: none, devicePath: /dev/a}", device + ".name: Not found"},
		{container, "{name: tmp, devicePath: /dev/a}", device + ".name: Invalid"},
		{container, "{name: files, devicePath: /dev/a}", device + ".name: Duplicate"},
		{container, "{name: raw}", device + ".devicePath: Required"},
		{container, "{name: raw, devicePath: /dev/../a}", device + ".devicePath: Invalid"},
		{container, "{name: raw, devicePath: /files}", device + ".devicePath: Duplicate"},
		{"claimName: raw", "", "spec.volumes[0].persistentVolumeClaim.claimName: Required"},
		{"accessModes: [ReadWriteOnce], ", "", template + ".spec.accessModes: Required"},
		{"[ReadWriteOnce]", "[ReadWriteOncePod, ReadWriteOnce]", template + ".spec.accessModes: Forb"},
		{"[ReadWriteOnce]", "[Some]", template + ".spec.accessModes[0]: Unsupported"},
		{"storage: 1Gi", "storage: 0", template + ".spec.resources.requests.storage: Invalid"},
		{"accessModes", "volumeMode: Tape, accessModes", template + ".spec.volumeMode: Unsupported"},
	} {
		object := &v1.Pod{}
		if err := yaml.UnmarshalStrict([]byte(strings.Replace(pod, c[0], c[1], 1)), object); err != nil {
			t.Fatal(err)
		}
		object.Namespace = "default"
		SetDefaults(object)
		got := ""
		if errs := ValidateAPIPod(object); len(errs) > 0 {
			got = errs[0].Error()
		}
		if !strings.HasPrefix(got, c[2]) || (got == "") != (c[2] == "") {
			t.Errorf("%q instead of %q: %q, want %q", c[1], c[0], got, c[2])
		}
	}
}

// Disks of iSCSI and fibre channel are checked in every pod.
func TestValidateDisks(t *testing.T) {
	lun, name := int32(256), "disk"
	iscsi := v1.ISCSIVolumeSource{TargetPortal: "10.0.0.1", IQN: "iqn.2001-04.com.example:a"}
	for _, c := range []struct {
		change func(*v1.ISCSIVolumeSource)
		want   string
	}{
		{func(*v1.ISCSIVolumeSource) {}, ""},
		{func(s *v1.ISCSIVolumeSource) { s.TargetPortal = "" }, "iscsi.targetPortal"},
		{func(s *v1.ISCSIVolumeSource) { s.IQN = "disk" }, "iscsi.iqn"},
		{func(s *v1.ISCSIVolumeSource) { s.IQN += " b" }, "iscsi.iqn"},
		{func(s *v1.ISCSIVolumeSource) { s.IQN = "eui.02004567A425678D" }, ""},
		{func(s *v1.ISCSIVolumeSource) { s.InitiatorName = &name }, "iscsi.initiatorName"},
		{func(s *v1.ISCSIVolumeSource) { s.Lun = lun }, "iscsi.lun"},
		{func(s *v1.ISCSIVolumeSource) { s.SessionCHAPAuth = true }, "iscsi.secretRef"},
	} {
		changed := iscsi
		c.change(&changed)
		expectField(t, &v1.VolumeSource{ISCSI: &changed}, c.want)
	}
	zero := int32(0)
	wwns, wwids := []string{"500a0982991b8dc5"}, []string{"3600508b400105e210000900000490000"}
	for _, c := range []struct {
		fc   v1.FCVolumeSource
		want string
	}{
		{v1.FCVolumeSource{TargetWWNs: wwns, Lun: &zero}, ""},
		{v1.FCVolumeSource{WWIDs: wwids}, ""},
		{v1.FCVolumeSource{WWIDs: wwids, Lun: &lun}, ""},
		{v1.FCVolumeSource{Lun: &zero}, "fc"},
		{v1.FCVolumeSource{TargetWWNs: wwns, WWIDs: wwids, Lun: &zero}, "fc"},
		{v1.FCVolumeSource{TargetWWNs: wwns}, "fc.lun"},
		{v1.FCVolumeSource{TargetWWNs: wwns, Lun: &lun}, "fc.lun"},
	} {
		expectField(t, &v1.VolumeSource{FC: &c.fc}, c.want)
	}
}

// expectField fails unless a source of a volume has one error, of a field; none if that is empty.
func expectField(t *testing.T, s *v1.VolumeSource, want string) {
	t.Helper()
	v := &validator{static: true, volumes: map[string]*v1.Volume{}}
	v.checkVolumeSource(s, field.NewPath("v"))
	if want == "" && len(v.errs) == 0 {
		return
	}
	if len(v.errs) != 1 || v.errs[0].Field != "v."+want {
		t.Errorf("%+v: %v, want %s", s, v.errs, want)
	}
}
