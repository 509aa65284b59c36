package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/csi"
	"seedlet.dev/core/objectcache"
)

// Volumes that are found mounted are kept for a pod that has containers in its sandbox. Those of an
// earlier sandbox may be of before a reboot, and say nothing of what was mounted since.
func TestContainersOfEarlierSandboxKeepNoVolume(t *testing.T) {
	for sandbox, want := range map[string]bool{"s": true, "before the reboot": false} {
		p := withVolume(v1.VolumeMount{MountPath: "/data"})
		p.Spec.Spec.Volumes[0].VolumeSource = v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d"}}
		c := run("web", 0, Exited)
		c.SandboxID, c.Hash = sandbox, containerHash(&p.Spec.Spec.Containers[0])
		p.addContainer(c)
		env := claimEnv(&objectcache.Store{})
		node := csi.NewNode("n", "/k", true)
		env.CSI = CSI{Node: &node, Enqueue: func(string) {}}
		p.Plan(env)
		uses := 0
		for _, v := range node.Volumes {
			for _, u := range v.Uses {
				if uses++; u.HasRun != want {
					t.Errorf("a container in the sandbox %q: has run %v, want %v", sandbox, u.HasRun, want)
				}
			}
		}
		if uses != 1 {
			t.Errorf("a container in the sandbox %q: %d uses", sandbox, uses)
		}
	}
}
