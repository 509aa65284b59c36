package oracle

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

func TestAPIDeletion(t *testing.T) {
	runCases(t, []testCase{
		{"terminal and stopped", "", func(s *script) {
			s.startPod(always).exit(143, truth.CauseStop)
			s.PodNoLongerDesired(s.now, "u1")
			s.store(1, s.served("u1", v1.PodFailed), nil)
		}},
		{"while it runs", "api-deletion", func(s *script) {
			s.startPod(always)
			s.PodNoLongerDesired(s.now, "u1")
			s.store(1, s.served("u1", v1.PodFailed), nil)
		}},
		{"while it is desired", "api-deletion", func(s *script) {
			s.startPod(always).exit(143, truth.CauseStop)
			s.store(1, s.served("u1", v1.PodFailed), nil)
		}},
		{"without a terminal phase", "api-deletion", func(s *script) {
			s.setDesired(spec("u1", always, "app"))
			s.PodNoLongerDesired(s.now, "u1")
			s.store(1, s.served("u1", v1.PodPending), nil)
		}},
		{"force-deleted by another client", "", func(s *script) {
			s.startPod(always)
			s.PodNoLongerDesired(s.now, "u1")
			s.store(0, s.served("u1", v1.PodRunning), nil)
		}},
		{"stays after its end", "api-deletion", deletedFor(5*time.Minute, "", nil)},
		{"stays for a while", "", deletedFor(3*time.Minute, "", nil)},
		{"stays, as its driver refuses to unpublish", "", deletedFor(5*time.Minute, "UnpublishVolume",
			&v1.CSIVolumeSource{Driver: csiDriver})},
		{"stays, as the driver of another one refuses", "api-deletion",
			deletedFor(5*time.Minute, "UnpublishVolume", nil)},
	})
}

// deletedFor deletes a pod that has ended and may have a volume, and is still served a time later;
// calls of one name may have failed.
func deletedFor(span time.Duration, fault string, volume *v1.CSIVolumeSource) func(*script) {
	return func(s *script) {
		s.model.opts.FaultPossible = func(call string, _, _ time.Time) bool { return call == fault }
		r := s.startPod(always)
		if volume != nil {
			s.pods["u1"].Spec.Volumes = []v1.Volume{{Name: "v",
				VolumeSource: v1.VolumeSource{CSI: volume}}}
		}
		r.exit(143, truth.CauseStop)
		s.changeSandbox(truth.SandboxStopped, "u1-s0")
		deleted := s.served("u1", v1.PodFailed)
		deleted.DeletionTimestamp = &metav1.Time{Time: s.now}
		s.store(0, s.served("u1", v1.PodFailed), deleted)
		s.PodNoLongerDesired(s.now, "u1")
		s.wait(span.Seconds())
		s.CheckServed(s.now, nil)
	}
}

// The mirror of a static pod goes with its manifest, and if its Node or its status cannot stay.
func TestMirrorStaysWithItsManifest(t *testing.T) {
	remove := func(policy v1.RestartPolicy, hash, owner string,
		changes ...func(*v1.Pod)) func(*script) {
		return func(s *script) {
			p := spec("u1", policy, "app")
			for _, change := range changes {
				change(p)
			}
			p.Annotations = map[string]string{annotationSource: "file", annotationUID: "h1"}
			s.setDesired(p)
			s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ObjectCreated, Write: &truth.Write{
				Resource: api.ResourceNodes, After: api.Object{Node: &v1.Node{
					ObjectMeta: metav1.ObjectMeta{UID: "node"}}}}})
			before := s.served("u1", v1.PodFailed)
			before.UID, before.Annotations = "m1", map[string]string{v1.MirrorPodAnnotationKey: hash}
			before.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", UID: types.UID(owner)}}
			after := before.DeepCopy()
			after.DeletionTimestamp = &metav1.Time{Time: s.now}
			s.store(1, before, after)
		}
	}
	runCases(t, []testCase{
		{"its manifest is there", "api-deletion", remove(always, "h1", "node")},
		{"another version of the manifest", "", remove(always, "h0", "node")},
		{"another Node", "", remove(always, "h1", "other")},
		{"its status cannot be replaced", "", remove(never, "h1", "node")},
		{"that of an init container cannot be", "", remove(always, "h1", "node", func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Name: "init", Image: "image:1",
				RestartPolicy: new(v1.ContainerRestartPolicyNever)}}
		})},
		{"that of a sidecar can be", "api-deletion", remove(always, "h1", "node", func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Name: "init", Image: "image:1",
				RestartPolicy: new(v1.ContainerRestartPolicyAlways)}}
		})},
		{"that of one container cannot be", "", remove(always, "h1", "node", func(p *v1.Pod) {
			p.Spec.Containers[0].RestartPolicy = new(v1.ContainerRestartPolicyOnFailure)
		})},
	})
}
