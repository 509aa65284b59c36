package volume

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/randfill"

	"seedlet.dev/core/csi"
	"seedlet.dev/core/objectcache"
)

// inline returns a pod that mounts the volume v, which is written in it.
func inline(source v1.VolumeSource) *Pod {
	pod := newPod(v1.Volume{Name: "v", VolumeSource: source})
	pod.Spec.Namespace = "a"
	pod.Objects = &objectcache.Store{Watches: map[string]*objectcache.Watch{}}
	return pod
}

// migratedCase is a pod, and how it uses its volume.
type migratedCase struct {
	pod  *Pod
	want csi.Use
}

var once = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}

// Persistent volumes of the kinds whose plugins were removed are those of the drivers that have
// replaced them.
func TestMigratedPersistentVolumes(t *testing.T) {
	pvOf := func(source v1.PersistentVolumeSource) *Pod {
		return claimed(v1.PersistentVolumeSpec{PersistentVolumeSource: source,
			AccessModes: once, MountOptions: []string{"noatime"}})
	}
	checkMigrated(t, map[string]migratedCase{
		"pv of cinder": {pvOf(v1.PersistentVolumeSource{Cinder: &v1.CinderPersistentVolumeSource{
			VolumeID: "c-1", FSType: "ext4"}}),
			csi.Use{SpecName: "pv", Driver: "cinder.csi.openstack.org", Handle: "c-1", FSType: "ext4",
				Claim: "c", MountOptions: []string{"noatime"}, AccessModes: once}},
		"pv of awsElasticBlockStore, read-only": {readOnly(pvOf(v1.PersistentVolumeSource{
			AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://zone/vol-1"}})),
			csi.Use{SpecName: "pv", Driver: "ebs.csi.aws.com", Handle: "vol-1", ReadOnly: true, Claim: "c",
				Attributes: map[string]string{"partition": "0"}, MountOptions: []string{"noatime"},
				AccessModes: once}},
	})
}

// So are those that are written in a pod.
func TestMigratedVolumesOfPods(t *testing.T) {
	disk, kind, ext4 := "disk", v1.AzureManagedDisk, "ext4"
	checkMigrated(t, map[string]migratedCase{
		"awsElasticBlockStore": {inline(v1.VolumeSource{AWSElasticBlockStore: &v1.
			AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1", ReadOnly: true}}),
			csi.Use{SpecName: "ebs.csi.aws.com-vol-1", Driver: "ebs.csi.aws.com", Handle: "vol-1",
				Attributes: map[string]string{"partition": "0"}, AccessModes: once}},
		"gcePersistentDisk": {inline(v1.VolumeSource{GCEPersistentDisk: &v1.
			GCEPersistentDiskVolumeSource{PDName: disk, ReadOnly: true}}),
			csi.Use{SpecName: "pd.csi.storage.gke.io-disk", Driver: "pd.csi.storage.gke.io",
				Handle:      "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk",
				AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadOnlyMany},
				Attributes:  map[string]string{"partition": ""}}},
		"cinder, with a path as its name": {inline(v1.VolumeSource{Cinder: &v1.CinderVolumeSource{
			VolumeID: "../../x"}}),
			csi.Use{SpecName: "cinder.csi.openstack.org-..~..~x", Driver: "cinder.csi.openstack.org",
				Handle: "../../x", AccessModes: once}},
		"vsphereVolume": {inline(v1.VolumeSource{VsphereVolume: &v1.
			VsphereVirtualDiskVolumeSource{VolumePath: "[ds] d/x.vmdk", FSType: "ext4"}}),
			csi.Use{SpecName: "csi.vsphere.vmware.com-[ds] d~x.vmdk", Driver: "csi.vsphere.vmware.com",
				Handle: "[ds] d/x.vmdk", FSType: "ext4", AccessModes: once}},
		"vsphereVolume with a policy": {inline(v1.VolumeSource{VsphereVolume: &v1.
			VsphereVirtualDiskVolumeSource{VolumePath: "x", StoragePolicyName: "gold"}}),
			csi.Use{SpecName: "csi.vsphere.vmware.com-x", Driver: "csi.vsphere.vmware.com", Handle: "x",
				Attributes: map[string]string{"storagepolicyname": "gold"}, AccessModes: once}},
		"azureDisk": {inline(v1.VolumeSource{AzureDisk: &v1.AzureDiskVolumeSource{DiskName: disk,
			DataDiskURI: "/d/disk", Kind: &kind, FSType: &ext4}}),
			csi.Use{SpecName: "~d~disk", Driver: "disk.csi.azure.com", Handle: "/d/disk",
				FSType: "ext4", Attributes: map[string]string{"kind": "Managed", "fstype": "ext4"},
				AccessModes: once}},
		"azureFile": {inline(v1.VolumeSource{AzureFile: &v1.AzureFileVolumeSource{
			SecretName: "azure-storage-account-acc-secret", ShareName: "share"}}),
			csi.Use{SpecName: "#acc#share#v#a", Driver: "file.csi.azure.com", Handle: "#acc#share#v#a",
				Attributes: map[string]string{"sharename": "share"},
				StageSecret: &v1.SecretReference{Namespace: "a",
					Name: "azure-storage-account-acc-secret"},
				AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}}},
		"portworxVolume": {inline(v1.VolumeSource{PortworxVolume: &v1.PortworxVolumeSource{
			VolumeID: "p"}}),
			csi.Use{SpecName: "pxd.portworx.com-p", Driver: "pxd.portworx.com", Handle: "p",
				AccessModes: once}},
	})
}

func checkMigrated(t *testing.T, cases map[string]migratedCase) {
	t.Helper()
	for name, c := range cases {
		b, known, err := c.pod.backingOf(&c.pod.Spec.Spec.Volumes[0])
		if err != nil || !known || b.CSI == nil || !b.CSI.Migrated || b.Plugin != CSIPlugin ||
			b.Name != c.want.SpecName || b.ReadOnly != c.want.ReadOnly {
			t.Errorf("%s: backed by %+v (known %v, %v)", name, b, known, err)
			continue
		}
		c.want.UID, c.want.Namespace, c.want.Volume = b.CSI.UID, "a", "v"
		c.want.Inline = c.want.Claim == ""
		c.want.PodName, c.want.Migrated = b.CSI.PodName, true
		if diff := cmp.Diff(c.want, *b.CSI, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: other use (-want +got):\n%s", name, diff)
		}
	}
}

// The node has to be of the zone that the driver names.
func TestZoneOfMigratedVolume(t *testing.T) {
	pod := claimed(v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{
		Cinder: &v1.CinderPersistentVolumeSource{VolumeID: "c-1"}},
		NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.
			NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{
			Key: v1.LabelTopologyZone, Operator: v1.NodeSelectorOpIn, Values: []string{"z1"}}}}}}}})
	for label, fits := range map[string]bool{"topology.cinder.csi.openstack.org/zone": true,
		v1.LabelTopologyZone: false} {
		pod.Node = func() (*v1.Node, bool) {
			node := &v1.Node{}
			node.Labels = map[string]string{label: "z1"}
			return node, true
		}
		if _, _, err := pod.backingOf(&pod.Spec.Spec.Volumes[0]); (err == nil) != fits {
			t.Errorf("with the label %s: %v", label, err)
		}
	}
}

// A volume that cannot be translated, or that is in a pod without an API server, says so.
func TestUntranslatableVolume(t *testing.T) {
	bad := v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://disk"}
	noServer := inline(v1.VolumeSource{Cinder: &v1.CinderVolumeSource{VolumeID: "c"}})
	noServer.Objects = nil
	for want, pod := range map[string]*Pod{
		"failed to translate in-tree pv to CSI: failed to translate Kubernetes ID to EBS Volume ID " +
			"Invalid format for AWS volume (aws://disk)": inline(
			v1.VolumeSource{AWSElasticBlockStore: &bad}),
		"failed to get a kubernetes client": noServer,
	} {
		_, known, err := pod.backingOf(&pod.Spec.Spec.Volumes[0])
		var failed *setupError
		if !known || !errors.As(err, &failed) || err.Error() != want {
			t.Errorf("known %v, error %v, want %s", known, err, want)
		}
	}
}

// No content of a volume makes the agent panic: the library that translates it is one for
// controllers of the cluster.
func TestAnyVolumeIsTranslated(t *testing.T) {
	fill := randfill.NewWithSeed(1).NilChance(0.3).NumElements(0, 3)
	translated := 0
	for range 200 {
		for _, source := range []any{&v1.AWSElasticBlockStoreVolumeSource{},
			&v1.GCEPersistentDiskVolumeSource{}, &v1.AzureDiskVolumeSource{},
			&v1.AzureFilePersistentVolumeSource{}, &v1.CinderPersistentVolumeSource{},
			&v1.VsphereVirtualDiskVolumeSource{}, &v1.PortworxVolumeSource{},
			&v1.AzureFileVolumeSource{}, &v1.CinderVolumeSource{}} {
			fill.Fill(source)
			volume := v1.PersistentVolumeSource{}
			inTree := v1.VolumeSource{}
			switch s := source.(type) {
			case *v1.AWSElasticBlockStoreVolumeSource:
				volume.AWSElasticBlockStore, inTree.AWSElasticBlockStore = s, s
			case *v1.GCEPersistentDiskVolumeSource:
				volume.GCEPersistentDisk, inTree.GCEPersistentDisk = s, s
			case *v1.AzureDiskVolumeSource:
				volume.AzureDisk, inTree.AzureDisk = s, s
			case *v1.AzureFilePersistentVolumeSource:
				volume.AzureFile = s
			case *v1.CinderPersistentVolumeSource:
				volume.Cinder = s
			case *v1.VsphereVirtualDiskVolumeSource:
				volume.VsphereVolume, inTree.VsphereVolume = s, s
			case *v1.PortworxVolumeSource:
				volume.PortworxVolume, inTree.PortworxVolume = s, s
			case *v1.AzureFileVolumeSource:
				inTree.AzureFile = s
			case *v1.CinderVolumeSource:
				inTree.Cinder = s
			}
			var pods []*Pod
			if volume != (v1.PersistentVolumeSource{}) {
				pv := v1.PersistentVolumeSpec{PersistentVolumeSource: volume}
				fill.Fill(&pv.NodeAffinity)
				pods = append(pods, claimed(pv))
			}
			if inTree != (v1.VolumeSource{}) {
				pods = append(pods, inline(inTree))
			}
			for _, pod := range pods {
				if _, known, _ := pod.backingOf(&pod.Spec.Spec.Volumes[0]); known {
					translated++
				}
			}
		}
	}
	if translated < 500 {
		t.Errorf("only %d volumes were translated", translated)
	}
}
